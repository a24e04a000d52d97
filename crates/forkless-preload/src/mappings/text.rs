//! `/proc/self/maps` read as text, where there are many mappings or the kernel has no `PROCMAP_QUERY`: fields as `proc_pid_maps(5)` has them.

use forkless_run::AbortKind as Kind;
use forkless_sys::maps::{self, Mapping};
use forkless_sys::{Errno, fd};

/// Calls `each` for every writable mapping until it says `false`. Returns how many mappings there were of any kind.
pub(crate) fn each_writable(file: i32, each: &mut dyn FnMut(Mapping) -> bool) -> Result<usize, Kind> {
    let (mut count, mut all) = (0, true);
    let read = each_line(file, &mut |mapping, _| {
        count += 1;
        all = mapping.flags & maps::WRITABLE == 0 || each(mapping);
        all
    });
    if read.is_ok() && all { Ok(count) } else { Err(Kind::NoMaps) }
}

/// The file that is mapped at an address, and where its first mapping begins; `None` for memory without one.
pub(crate) fn file_at(file: i32, address: usize) -> Option<(Name, usize)> {
    // Of the file whose mappings are being gone through; what lies between them has none.
    let (mut inode, mut first) = (0, 0);
    let mut found = None;
    let read = each_line(file, &mut |mapping, path| {
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

/// Calls `each` for every line until it says `false`. Out of line, for its buffer would make the frames of all callers span two pages more of a stack
/// that parent and child both write; and once for all of them.
#[cold]
#[inline(never)]
fn each_line(file: i32, each: &mut dyn FnMut(Mapping, &[u8]) -> bool) -> Result<(), Errno> {
    // The kernel hands out whole lines, a page of them at most, but one that is longer in parts.
    let mut buffer = [0u8; 4096];
    let mut kept = 0;
    loop {
        let n = match fd::read(file, &mut buffer[kept..]) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(Errno::EINTR) => continue,
            Err(e) => return Err(e),
        };
        let end = kept + n;
        let whole = buffer[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let mut lines = Fields(&buffer[..whole]);
        while !lines.0.is_empty() {
            let (mapping, path) = lines.mapping();
            if !each(mapping, path) {
                return Ok(());
            }
        }
        buffer.copy_within(whole..end, 0);
        // Of one that is longer than the buffer the middle of the path is left out.
        kept = end - whole;
        if kept == buffer.len() {
            kept = 1024;
        }
    }
}

/// The last part of a path, or the beginning of it.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    bytes: [u8; 64],
    len: usize,
}

impl Name {
    pub(crate) fn last_of(path: &[u8]) -> Name {
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let mut name = Name { bytes: [0; 64], len: last.len().min(64) };
        name.bytes[..name.len].copy_from_slice(&last[..name.len]);
        name
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// What anonymous memory from a pool of huge pages is called (fs/hugetlbfs/inode.c, `HUGETLB_ANON_FILE`); of which pool the file does not say.
const POOL: &[u8] = b"/anon_hugepage";

/// Whole lines, whose fields are taken off the front: `start-end rwxp offset major:minor inode path`.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// A line, and the path in it.
    fn mapping(&mut self) -> (Mapping, &'a [u8]) {
        let (start, end) = (self.number(16), self.number(16));
        let mut flags = 0;
        while let Some(byte) = self.byte()
            && byte != b' '
        {
            flags |= match byte {
                b'r' => maps::READABLE,
                b'w' => maps::WRITABLE,
                b'x' => maps::EXECUTABLE,
                b's' => maps::SHARED,
                _ => 0,
            };
        }
        let _offset_and_device = (self.number(16), self.number(16), self.number(16));
        let inode = self.number(10) as u64;
        let length = self.0.iter().position(|byte| *byte == b'\n').unwrap_or(self.0.len());
        let path = self.0[..length].trim_ascii_start();
        self.0 = self.0.get(length + 1..).unwrap_or_default();
        let page_size = if path.starts_with(POOL) { 2 << 20 } else { 4096 };
        (Mapping { start, end, flags, inode, page_size }, path)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number, and the byte that ends it.
    fn number(&mut self, radix: usize) -> usize {
        let mut number = 0;
        while let Some(byte) = self.byte() {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => break,
            };
            number = number * radix + usize::from(digit);
        }
        number
    }
}
