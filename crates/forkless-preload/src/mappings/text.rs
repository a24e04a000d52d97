//! `/proc/self/maps` read as text, for kernels without `PROCMAP_QUERY`: fields as `proc_pid_maps(5)` has them.

use forkless_record::Kind;
use forkless_sys::maps::{self, Mapping};
use forkless_sys::{Errno, fd};

/// Calls `each` for every writable mapping until it says `false`. Out of line, for its buffer would make the frames of all callers span
/// two pages more of a stack that parent and child both write; and once for all of them.
#[cold]
#[inline(never)]
pub(crate) fn each_writable(file: i32, each: &mut dyn FnMut(Mapping) -> bool) -> Result<(), Kind> {
    // The kernel hands out whole lines, at most a page of them at a time.
    let mut buffer = [0u8; 4096];
    let mut line = Line::new();
    loop {
        let n = match fd::read(file, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(Errno::EINTR) => continue,
            Err(_) => return Err(Kind::NoMaps),
        };
        for &byte in &buffer[..n] {
            if let Some(mapping) = line.push(byte)
                && mapping.flags & maps::WRITABLE != 0
                && !each(mapping)
            {
                return Err(Kind::NoMaps);
            }
        }
    }
}

/// The file that is mapped at an address, and where its first mapping begins; `None` for memory without one.
#[cold]
#[inline(never)]
pub(crate) fn file_at(file: i32, address: usize) -> Option<(Name, usize)> {
    let mut buffer = [0u8; 4096];
    let mut line = Line::new();
    // Of the file whose mappings are being gone through; what lies between them has none.
    let (mut inode, mut first) = (0, 0);
    loop {
        let n = match fd::read(file, &mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(n) => n,
        };
        for &byte in &buffer[..n] {
            // Gone with the end of the line.
            let name = (byte == b'\n').then_some(line.name);
            let (Some(mapping), Some(name)) = (line.push(byte), name) else { continue };
            if mapping.inode != 0 && mapping.inode != inode {
                (inode, first) = (mapping.inode, mapping.start);
            }
            if (mapping.start..mapping.end).contains(&address) {
                return (mapping.inode != 0).then_some((name, first));
            }
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
    const EMPTY: Name = Name { bytes: [0; 64], len: 0 };

    pub(crate) fn last_of(path: &[u8]) -> Name {
        let mut name = Name::EMPTY;
        path.iter().for_each(|byte| name.push(*byte));
        name
    }

    fn push(&mut self, byte: u8) {
        match byte {
            b'/' => self.len = 0,
            // What fills the line up before the path.
            b' ' if self.len == 0 => {}
            _ if self.len < self.bytes.len() => {
                self.bytes[self.len] = byte;
                self.len += 1;
            }
            _ => {}
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// `start-end rwxp offset major:minor inode path`, byte by byte.
struct Line {
    field: usize,
    number: usize,
    mapping: Mapping,
    /// Bytes of the name that are those of [`POOL`] so far.
    pool: usize,
    name: Name,
}

const EMPTY: Mapping = Mapping { start: 0, end: 0, flags: 0, inode: 0, page_size: 4096 };

/// What anonymous memory from a pool of huge pages is called (fs/hugetlbfs/inode.c, `HUGETLB_ANON_FILE`); of which pool the file does not say.
const POOL: &[u8] = b"/anon_hugepage";

impl Line {
    fn new() -> Line {
        Line { field: 0, number: 0, mapping: EMPTY, pool: 0, name: Name::EMPTY }
    }

    fn push(&mut self, byte: u8) -> Option<Mapping> {
        if byte == b'\n' {
            if self.field == 5 {
                self.mapping.inode = self.number as u64;
            }
            if self.pool == POOL.len() {
                self.mapping.page_size = 2 << 20;
            }
            let done = core::mem::replace(self, Line::new());
            return Some(done.mapping);
        }
        if self.field == 6 {
            self.name.push(byte);
        }
        match (self.field, byte) {
            (0, b'-') => self.end_of_number(|m, n| m.start = n),
            (1, b' ') => self.end_of_number(|m, n| m.end = n),
            (2, b'r') => self.mapping.flags |= maps::READABLE,
            (2, b'w') => self.mapping.flags |= maps::WRITABLE,
            (2, b'x') => self.mapping.flags |= maps::EXECUTABLE,
            (2, b's') => self.mapping.flags |= maps::SHARED,
            (2..=4, b' ') => self.end_of_number(|_, _| {}),
            (5, b' ') => self.end_of_number(|m, n| m.inode = n as u64),
            (0 | 1, _) => self.number = self.number * 16 + hex(byte),
            (6, _) if self.pool < POOL.len() => {
                self.pool = if byte == POOL[self.pool] { self.pool + 1 } else { 0 }
            }
            (5, b'0'..=b'9') => self.number = self.number * 10 + usize::from(byte - b'0'),
            _ => {}
        }
        None
    }

    fn end_of_number(&mut self, set: impl FnOnce(&mut Mapping, usize)) {
        set(&mut self.mapping, self.number);
        self.number = 0;
        self.field += 1;
    }
}

fn hex(digit: u8) -> usize {
    usize::from(match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => 0,
    })
}
