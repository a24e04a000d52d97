//! Address space for what the library maps: a part of its own image, zeros at the end of its file's
//! text, which the loader maps with the rest.
//!
//! The kernel chooses the lowest hole that fits, or the highest, and so often one that the program
//! has given back. The program may unmap such a place once more, map something else over it, or
//! attach memory there that it knows to be free. So memory of ours that lasts lies here and nowhere
//! else. Untouched zeros cost a program no memory, no mapping and no system call. A part is made
//! usable in its place when it is first needed.
#![expect(unsafe_code, reason = "remaps part of the library's own image")]

use core::arch::{asm, global_asm};
use core::ffi::c_void;

use forkless_sys::{Result, mm};

/// The largest page that the system may have, for protection is a page's.
const PAGE: usize = if cfg!(target_arch = "aarch64") { 64 << 10 } else { 4096 };

/// A part of the reserve, in whole pages.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    from: usize,
    len: usize,
}

// Sizes are written here, for their users lie above this module. Each user asserts that its part is
// large enough.

/// Whether forks speculate here.
const SPECULATION: usize = if cfg!(target_arch = "x86_64") { 1 } else { 0 };

// Parts that processes use together lie together, and the tables lie beside the library's writable
// memory. That makes fewer mappings.

/// Ranges of memory that the program has marked.
pub(crate) const MARKS: Area = Area { from: 0, len: 0 }.then(512 << 10);
/// Ranges of memory that lie in the pool of huge pages.
pub(crate) const POOLED: Area = MARKS.then(12 << 10);
/// What is known of the memory that is merged in the background.
pub(crate) const MERGING: Area = POOLED.then(PAGE);
/// Memory for launching what replaces a shell.
pub(crate) const WORKSPACES: Area = MERGING.then(256 << 10);
/// Streams of `popen`.
pub(crate) const STREAMS: Area = WORKSPACES.then(8 << 10);
/// Tables of speculations.
pub(crate) const TABLES: Area = ROOT.then(SPECULATION * (940 << 10));
/// What a speculative child shares with its memory server or attendant.
pub(crate) const FETCH_PAGES: Area = STREAMS.then(SPECULATION * (68 << 10));
/// The pages that a speculative child shares with its parent.
pub(crate) const SHARED_PAGES: Area = FETCH_PAGES.then(SPECULATION * (12 << 10));
/// The record of `forkless run --report`.
pub(crate) const RECORD: Area = SHARED_PAGES.then(28 << 10);
/// Whose memory this is (`memory_owner`).
pub(crate) const OWNER: Area = RECORD.then(PAGE);
/// Whether this is the root's memory (`tally`).
pub(crate) const ROOT: Area = OWNER.then(PAGE);

const LEN: usize = TABLES.from + TABLES.len;

// Not a static of Rust's: the compiler may assume that a static which is never written to stays
// zero.
global_asm!(
    ".pushsection .reserve, \"ax\", %progbits",
    ".balign {page}",
    ".hidden forkless_reserve",
    ".globl forkless_reserve",
    "forkless_reserve:",
    ".zero {len}",
    ".popsection",
    page = const PAGE,
    len = const LEN,
);

fn start() -> usize {
    let at: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: takes an address.
    unsafe {
        asm!("lea {}, [rip + forkless_reserve]", out(reg) at, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: takes an address.
    unsafe {
        asm!("adrp {0}, forkless_reserve", "add {0}, {0}, :lo12:forkless_reserve", out(reg) at,
            options(nomem, nostack, preserves_flags));
    }
    at
}

impl Area {
    /// The part after this one, of at least `len` bytes.
    const fn then(self, len: usize) -> Area {
        Area { from: self.from + self.len, len: len.next_multiple_of(PAGE) }
    }

    pub(crate) const fn len(self) -> usize {
        self.len
    }

    /// Its first address.
    pub(crate) fn address(self) -> usize {
        start() + self.from
    }

    /// Makes it memory of this process's own: zeros at first. What it holds already stays, so
    /// threads need not take turns.
    pub(crate) fn open(self) -> Result<*mut c_void> {
        let at = self.address() as *mut c_void;
        // SAFETY: nothing but the owner of the part refers to it. A private mapping of the file:
        // what is written stays in memory.
        unsafe { mm::mprotect(at, self.len, mm::PROT_READ | mm::PROT_WRITE) }?;
        Ok(at)
    }

    /// Puts fresh anonymous memory in its place. One thread at a time, for what it held is gone.
    pub(crate) fn replace(self, prot: u32, flags: u32) -> Result<*mut c_void> {
        // SAFETY: the caller has dropped what referred to it.
        unsafe { mm::map_anonymous_at(self.address(), self.len, prot, flags | mm::MAP_FIXED) }?;
        Ok(self.address() as *mut c_void)
    }

    /// Keeps the place ours where what it held is gone. What lies there since stays. An error: the
    /// place is another's from here on.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn hold(self) -> Result<()> {
        let flags = mm::MAP_PRIVATE | mm::MAP_NORESERVE | mm::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing is replaced.
        unsafe { mm::map_anonymous_at(self.address(), self.len, mm::PROT_NONE, flags) }
    }

    /// Frees what it held. The place stays ours.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn let_go(self) -> Result<()> {
        self.replace(mm::PROT_NONE, mm::MAP_PRIVATE | mm::MAP_NORESERVE).map(drop)
    }

    /// Puts the beginning of a file in its place, shared. As [`Area::replace`].
    pub(crate) fn map_shared(self, file: i32) -> Result<*mut c_void> {
        let (prot, flags) = (mm::PROT_READ | mm::PROT_WRITE, mm::MAP_SHARED | mm::MAP_FIXED);
        // SAFETY: as above.
        unsafe { mm::map_file_at(self.address(), file, self.len, prot, flags) }?;
        Ok(self.address() as *mut c_void)
    }
}
