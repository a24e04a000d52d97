//! `/proc/self/maps` read as text, where there are many mappings or the kernel has no
//! `PROCMAP_QUERY`. `proc_pid_maps(5)` describes the fields.

use forkless_sys::maps::{self, Mapping};
use forkless_sys::{Errno, Result};

/// Reads the file's next bytes into a buffer, as `read(2)`.
pub type Read<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<usize>;

/// Calls `each` for every writable mapping until it says `false`. Returns how many mappings of any
/// kind there were. `None`: the list was not read to its end.
pub fn each_writable(read: Read<'_>, each: &mut dyn FnMut(Mapping) -> bool) -> Option<usize> {
    let (mut count, mut all) = (0, true);
    let read = each_line(read, &mut |line| {
        let (mapping, _) = mapping_of(line);
        count += 1;
        all = mapping.flags & maps::WRITABLE == 0 || each(mapping);
        all
    });
    (read.is_ok() && all).then_some(count)
}

/// Whether all mappings in `start..end` are private. Also `false` where the list was not read.
pub fn are_private(read: Read<'_>, start: usize, end: usize) -> bool {
    let mut private = true;
    let read = each_line(read, &mut |line| {
        let (mapping, _) = mapping_of(line);
        let here = mapping.start < end && start < mapping.end;
        private = !here || mapping.flags & maps::SHARED == 0;
        private && mapping.start < end
    });
    read.is_ok() && private
}

/// The file that is mapped at an address, and where its first mapping begins. `None` for memory
/// without a file.
pub fn file_at(read: Read<'_>, address: usize) -> Option<(Name, usize)> {
    // The file whose mappings the lines show now. Mappings in between have no file.
    let (mut inode, mut first) = (0, 0);
    let mut found = None;
    let read = each_line(read, &mut |line| {
        let (mapping, path) = mapping_of(line);
        if mapping.inode != 0 && mapping.inode != inode {
            (inode, first) = (mapping.inode, mapping.start);
        }
        let here = (mapping.start..mapping.end).contains(&address);
        if here && mapping.inode != 0 {
            found = Some((Name::last_of(path), first));
        }
        !here
    });
    read.ok().and(found)
}

/// Rings by which a program gives the kernel requests (fs/aio.c, io_uring/io_uring.c). The kernel
/// carries them out at times of its own, and may write any memory of the program's.
const RINGS: [&[u8]; 2] = [b"/[aio]", b"anon_inode:[io_uring]"];

/// Bytes for the name of any ring and its NUL.
pub const RING_NAME: usize = 64;

/// Whether a mapping of that name is a ring of aio or io_uring.
pub fn is_ring(name: &[u8]) -> bool {
    RINGS.iter().any(|ring| name.starts_with(ring))
}

/// Whether a ring of aio or io_uring is mapped. `None`: the list was not read.
pub fn has_ring(read: Read<'_>) -> Option<bool> {
    let mut has = false;
    let read = each_line(read, &mut |line| {
        has = is_ring(mapping_of(line).1);
        !has
    });
    read.ok().map(|()| has)
}

/// Whether a mapping in `start..end` has a flag, by its two letters in `/proc/self/smaps`. That
/// file has the lines of `maps`, and behind each of them lines that begin with an upper-case
/// letter. `None`: no flags were read.
pub fn has_flag(read: Read<'_>, start: usize, end: usize, flag: [u8; 2]) -> Option<bool> {
    let (mut here, mut found) = (false, None);
    let read = each_line(read, &mut |line| {
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            if here {
                found = Some(flags.split(|byte| *byte == b' ').any(|letters| letters == flag));
            }
        } else if !line.first().is_some_and(u8::is_ascii_uppercase) {
            let (mapping, _) = mapping_of(line);
            here = mapping.start < end && start < mapping.end;
            return mapping.start < end;
        }
        found != Some(true)
    });
    read.ok().and(found)
}

/// Bytes of a line that are enough for all but the middle of its path.
const BEGINNING: usize = 1024;

/// Calls `each` for every line, without its end, until it says `false`.
///
/// Out of line, and once for all callers. Its buffer would make their frames span two pages more of
/// a stack, and parent and child both write that stack.
#[cold]
#[inline(never)]
fn each_line(read: Read<'_>, each: &mut dyn FnMut(&[u8]) -> bool) -> Result<()> {
    // The kernel hands out whole lines, a page of them at most. A line that is longer comes in
    // parts.
    let mut buffer = [0u8; 4096];
    let mut kept = 0;
    loop {
        let n = match read(&mut buffer[kept..]) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(Errno::EINTR) => continue,
            Err(e) => return Err(e),
        };
        let end = kept + n;
        let whole = buffer[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let mut lines = &buffer[..whole];
        while let Some(length) = lines.iter().position(|byte| *byte == b'\n') {
            if !each(&lines[..length]) {
                return Ok(());
            }
            lines = &lines[length + 1..];
        }
        buffer.copy_within(whole..end, 0);
        // The middle of a path that is longer than the buffer is left out.
        kept = end - whole;
        if kept == buffer.len() {
            kept = BEGINNING;
        }
    }
}

/// The last part of a path, or the beginning of that part.
#[derive(Clone, Copy)]
pub struct Name {
    bytes: [u8; 64],
    len: usize,
}

impl Name {
    /// The part after the last slash, as far as there is room.
    #[must_use]
    pub fn last_of(path: &[u8]) -> Name {
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let mut name = Name { bytes: [0; 64], len: last.len().min(64) };
        name.bytes[..name.len].copy_from_slice(&last[..name.len]);
        name
    }

    /// As text.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The name of anonymous memory from a pool of huge pages (fs/hugetlbfs/inode.c,
/// `HUGETLB_ANON_FILE`). The list does not name the pool.
const POOL: &[u8] = b"/anon_hugepage";

/// A line of the list, and the path in it.
#[inline(never)]
fn mapping_of(line: &[u8]) -> (Mapping, &[u8]) {
    let mut fields = Fields(line);
    let (start, end) = (fields.number(16), fields.number(16));
    let mut flags = 0;
    while let Some(byte) = fields.byte() {
        flags |= match byte {
            b' ' => break,
            b'r' => maps::READABLE,
            b'w' => maps::WRITABLE,
            b'x' => maps::EXECUTABLE,
            b's' => maps::SHARED,
            _ => 0,
        };
    }
    let _offset_and_device = (fields.number(16), fields.number(16), fields.number(16));
    let inode = fields.number(10) as u64;
    let path = fields.0.trim_ascii_start();
    let page_size = if path.starts_with(POOL) { 2 << 20 } else { 4096 };
    (Mapping { start, end, flags, inode, page_size }, path)
}

/// The rest of a line. Fields are taken off its front: `start-end rwxp offset major:minor inode
/// path`.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// The next byte; `None` at the line's end.
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number, and the byte that ends it.
    fn number(&mut self, radix: usize) -> usize {
        let mut number = 0usize;
        while let Some(byte) = self.byte() {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => break,
            };
            number = number.wrapping_mul(radix).wrapping_add(usize::from(digit));
        }
        number
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::string::String;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn line(m: &Mapping, path: &str) -> String {
        let flag = |flag, letter| if m.flags & flag != 0 { letter } else { '-' };
        let (r, w, x) = (flag(maps::READABLE, 'r'), flag(maps::WRITABLE, 'w'), flag(maps::EXECUTABLE, 'x'));
        let s = if m.flags & maps::SHARED != 0 { 's' } else { 'p' };
        let space = if path.is_empty() { "" } else { "                  " };
        format!("{:08x}-{:08x} {r}{w}{x}{s} 00001000 08:02 {}{space}{path}\n", m.start, m.end, m.inode)
    }

    /// Reads a text in pieces of these lengths, again and again.
    fn in_pieces<'a>(text: &'a str, pieces: &'a [usize]) -> impl FnMut(&mut [u8]) -> Result<usize> + 'a {
        let (mut rest, mut turn) = (text.as_bytes(), 0);
        move |into: &mut [u8]| {
            let n = pieces[turn % pieces.len()].min(rest.len()).min(into.len());
            turn += 1;
            into[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            Ok(n)
        }
    }

    fn all(text: &str, pieces: &[usize]) -> Vec<(Mapping, String)> {
        let mut found = Vec::new();
        each_line(&mut in_pieces(text, pieces), &mut |line| {
            let (m, path) = mapping_of(line);
            found.push((m, String::from_utf8_lossy(path).into_owned()));
            true
        })
        .expect("no error");
        found
    }

    const TEXT: &str = "\
55d0c0a00000-55d0c0a02000 r--p 00000000 08:02 173521                     /usr/bin/cat
55d0c0a02000-55d0c0a06000 r-xp 00002000 08:02 173521                     /usr/bin/cat
55d0c0a0a000-55d0c0a0b000 rw-p 00009000 08:02 173521                     /usr/bin/cat
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000200000 rw-p 00000000 00:0f 2049                       /anon_hugepage (deleted)
7f10a0000000-7f10a0021000 rw-s 00000000 00:01 1024                       /dev/shm/a b
7ffc11111000-7ffc11132000 rw-p 00000000 00:00 0
";

    #[test]
    fn rings_are_found_by_their_names() {
        let has = |more: &str| has_ring(&mut in_pieces(&format!("{TEXT}{more}"), &[100]));
        assert_eq!(has(""), Some(false));
        let m = Mapping {
            start: 0x1000,
            end: 0x2000,
            flags: maps::WRITABLE | maps::SHARED,
            inode: 7,
            page_size: 4096,
        };
        assert_eq!(has(&line(&m, "/[aio] (deleted)")), Some(true));
        assert_eq!(has(&line(&m, "anon_inode:[io_uring]")), Some(true));
        assert_eq!(has(&line(&m, "/tmp/[aio]")), Some(false));
    }

    #[test]
    fn flags_are_those_of_the_mappings_asked_for() {
        const SMAPS: &str = "\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0
Size:               2048 kB
THPeligible:           1
VmFlags: rd wr mr mw me dc ac sd 
7f0000200000-7f0000300000 rw-p 00000000 00:0f 2049                       /tmp/VmFlags: dc
Size:               1024 kB
VmFlags: rd wr mr mw me wf ac sd
7f0000400000-7f0000500000 rw-p 00000000 00:00 0
Size:               1024 kB
VmFlags: rd wr mr mw me ac
";
        let has = |start: usize, end: usize, flag: &[u8; 2]| {
            let in_thirds = &mut in_pieces(SMAPS, &[130]);
            has_flag(in_thirds, 0x7f00_0000_0000 + start, 0x7f00_0000_0000 + end, *flag)
        };
        assert_eq!(has(0, 0x1000, b"dc"), Some(true));
        assert_eq!(has(0x1f_f000, 0x20_0000, b"dc"), Some(true));
        assert_eq!(has(0x20_0000, 0x50_0000, b"dc"), Some(false));
        assert_eq!(has(0x20_0000, 0x50_0000, b"wf"), Some(true));
        assert_eq!(has(0x30_0000, 0x50_0000, b"wf"), Some(false));
        // Nothing is mapped there.
        assert_eq!(has(0x30_0000, 0x40_0000, b"wf"), None);
        assert_eq!(has_flag(&mut |_| Err(Errno::EIO), 0, usize::MAX, *b"dc"), None);
    }

    #[test]
    fn writable_mappings_are_told_with_flags_inode_and_page_size() {
        let mut found = Vec::new();
        let count = each_writable(&mut in_pieces(TEXT, &[4096]), &mut |m| {
            found.push((m.start, m.flags & maps::SHARED != 0, m.inode, m.page_size));
            true
        });
        assert_eq!(count, Some(7));
        let expected = [
            (0x55d0_c0a0_a000, false, 173_521, 4096),
            (0x55d0_c100_0000, false, 0, 4096),
            (0x7f00_0000_0000, false, 2049, 2 << 20),
            (0x7f10_a000_0000, true, 1024, 4096),
            (0x7ffc_1111_1000, false, 0, 4096),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_list_that_ends_early_is_no_list() {
        assert_eq!(each_writable(&mut in_pieces(TEXT, &[4096]), &mut |_| false), None);
        assert_eq!(each_writable(&mut |_: &mut [u8]| Err(Errno::EIO), &mut |_| true), None);
    }

    #[test]
    fn shared_mappings_are_found_in_a_range_and_not_beside_it() {
        let private = |start, end| are_private(&mut in_pieces(TEXT, &[4096]), start, end);
        assert!(private(0x55d0_c0a0_0000, 0x7f10_a000_0000));
        assert!(!private(0x55d0_c0a0_0000, 0x7f10_a000_0001));
        assert!(!private(0x7f10_a002_0fff, 0x7f10_a003_0000));
        assert!(private(0x7f10_a002_1000, usize::MAX));
        assert!(!are_private(&mut |_: &mut [u8]| Err(Errno::EIO), 0, 4096), "not read");
    }

    #[test]
    fn the_file_at_an_address_is_named_with_its_first_mapping() {
        let at = |address| {
            let (name, first) = file_at(&mut in_pieces(TEXT, &[100]), address)?;
            Some((String::from_utf8_lossy(name.bytes()).into_owned(), first))
        };
        assert_eq!(at(0x55d0_c0a0_a800), Some(("cat".into(), 0x55d0_c0a0_0000)));
        assert_eq!(at(0x7f10_a000_0000), Some(("a b".into(), 0x7f10_a000_0000)));
        assert_eq!(at(0x55d0_c100_0000), None, "the heap has no file");
        assert_eq!(at(0x1000), None);
    }

    #[test]
    fn a_signal_does_not_end_the_list() {
        let mut interrupted = false;
        let mut read = in_pieces(TEXT, &[50]);
        let count = each_writable(
            &mut |into: &mut [u8]| {
                interrupted = !interrupted;
                if interrupted { Err(Errno::EINTR) } else { read(into) }
            },
            &mut |_| true,
        );
        assert_eq!(count, Some(7));
    }

    #[test]
    fn a_line_that_ends_early_takes_nothing_of_the_next() {
        assert_eq!(all("1000-2000 rw\n3000-4000 rw-p 0 0:0 7\n", &[4096]).len(), 2);
    }

    #[test]
    fn a_path_longer_than_the_buffer_loses_its_middle_only() {
        let m = Mapping { start: 0x1000, end: 0x2000, flags: maps::WRITABLE, inode: 7, page_size: 4096 };
        let path = format!("/{}/last", "d".repeat(9000));
        let text = [line(&m, &path), line(&Mapping { start: 0x3000, end: 0x4000, ..m }, "/b")].concat();
        let found = all(&text, &[4096]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].0, m);
        assert!(found[0].1.starts_with("/ddd") && found[0].1.ends_with("/last"));
        assert_eq!(found[1].0.start, 0x3000);
    }

    /// Miri takes a second a line.
    const LINES: usize = if cfg!(miri) { 4 } else { 40 };

    fn mapping() -> impl Strategy<Value = Mapping> {
        (0usize..1 << 35, 1usize..1 << 20, 0u64..16, any::<u32>()).prop_map(|(page, pages, flags, inode)| {
            Mapping {
                start: page << 12,
                end: (page + pages) << 12,
                flags,
                inode: inode.into(),
                page_size: 4096,
            }
        })
    }

    proptest! {
        #[test]
        fn lines_are_read_as_they_were_written_however_they_come(
            mappings in prop::collection::vec((mapping(), "(/[a-z ]{1,300}[a-z])?"), 0..LINES),
            pieces in prop::collection::vec(1usize..5000, 1..8),
        ) {
            let text: String = mappings.iter().map(|(m, path)| line(m, path)).collect();
            prop_assert_eq!(all(&text, &pieces), mappings);
        }

        #[test]
        fn strange_text_is_read_the_same_however_it_comes(
            text in "[0-9a-f\\-rwxps /\n:]{0,400}",
            piece in 1usize..200,
        ) {
            prop_assert_eq!(all(&text, &[piece]), all(&text, &[4096]));
        }
    }
}
