//! The address space of what the library maps: a part of its own image, zeros at the end of its file's text, which the loader maps with the rest.
//!
//! The kernel chooses the lowest hole that fits, or the highest, and so often one that the program has given back. The program may unmap such a
//! place once more, map something else over it, or attach memory there that it knows to be free. So nothing of ours that lasts lies anywhere
//! but here. Untouched zeros cost a program no memory, no mapping and no system call; a part is made usable when it is first needed, in its place.
#![expect(unsafe_code, reason = "remaps part of the library's own image")]

use core::arch::{asm, global_asm};
use core::ffi::c_void;
#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

#[cfg(target_arch = "x86_64")]
use forkless_sys::Errno;
use forkless_sys::{Result, mm};

use crate::mappings::NOTES;
#[cfg(doc)]
use crate::owner;
use crate::{fork, huge, shell, tally};

/// The largest page that the system may have: protection is a page's.
const PAGE: usize = if cfg!(target_arch = "aarch64") { 64 << 10 } else { 4096 };

/// A part of the reserve, in whole pages.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    from: usize,
    len: usize,
}

// Parts that processes use together lie together, and the tables beside the library's writable memory: the fewer mappings.

/// Ranges of memory that the program has marked.
pub(crate) const MARKS: Area = Area { from: 0, len: 0 }.then(NOTES);
/// Ranges of memory that lie in the pool of huge pages.
pub(crate) const POOLED: Area = MARKS.then(huge::pool::RANGES_LEN);
/// Memory for launching what replaces a shell.
pub(crate) const WORKSPACES: Area = POOLED.then(shell::WORKSPACES_LEN);
/// Streams of `popen`.
pub(crate) const STREAMS: Area = WORKSPACES.then(shell::STREAMS_LEN);
/// Tables of speculations.
pub(crate) const TABLES: Area = ROOT.then(fork::TABLES_LEN);
/// What a speculative child shares with the server of its memory.
pub(crate) const EXCHANGE: Area = STREAMS.then(fork::EXCHANGE_LEN);
/// The page a speculative child shares with its parent.
const OUTCOME: Area = EXCHANGE.then(fork::OUTCOME_LEN);
/// The record of `forkless run --report`.
pub(crate) const RECORD: Area = OUTCOME.then(tally::RECORD_LEN);
/// Whose memory this is ([`owner`]).
pub(crate) const OWNER: Area = RECORD.then(PAGE);
/// Whether this is the root's memory ([`tally`]).
pub(crate) const ROOT: Area = OWNER.then(PAGE);

const LEN: usize = TABLES.from + TABLES.len;

// Not a static of Rust's: those that are never written to may be assumed to stay zero.
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

    /// Makes it memory of this process's own: zeros at first, and what it holds if it is that already, so that threads need not take turns.
    pub(crate) fn open(self) -> Result<*mut c_void> {
        let at = self.address() as *mut c_void;
        // SAFETY: nothing but the owner of the part refers to it. A private mapping of the file: what is written stays in memory.
        unsafe { mm::mprotect(at, self.len, mm::PROT_READ | mm::PROT_WRITE) }?;
        Ok(at)
    }

    /// Puts fresh anonymous memory in its place. One thread at a time: what it held is gone.
    pub(crate) fn replace(self, prot: u32, flags: u32) -> Result<*mut c_void> {
        // SAFETY: the caller has dropped what referred to it.
        unsafe { mm::map_anonymous_at(self.address(), self.len, prot, flags | mm::MAP_FIXED) }?;
        Ok(self.address() as *mut c_void)
    }

    /// Frees what it held. The place stays ours.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn let_go(self) {
        let _ = self.replace(mm::PROT_NONE, mm::MAP_PRIVATE | mm::MAP_NORESERVE);
    }

    /// Puts the beginning of a file in its place, shared. As [`Area::replace`].
    pub(crate) fn map_shared(self, file: i32) -> Result<*mut c_void> {
        let (prot, flags) = (mm::PROT_READ | mm::PROT_WRITE, mm::MAP_SHARED | mm::MAP_FIXED);
        // SAFETY: as above.
        unsafe { mm::map_file_at(self.address(), file, self.len, prot, flags) }?;
        Ok(self.address() as *mut c_void)
    }
}

/// Whether [`OUTCOME`] is shared memory of this process's, or is being made so.
#[cfg(target_arch = "x86_64")]
static SHARED: AtomicBool = AtomicBool::new(false);

/// Memory that children share, zeros, for [`fork`]'s outcome. An error: another thread is just making it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn share_outcome() -> Result<*mut c_void> {
    if SHARED.swap(true, Acquire) {
        return Err(Errno::EAGAIN);
    }
    let shared = OUTCOME.replace(mm::PROT_READ | mm::PROT_WRITE, mm::MAP_SHARED);
    if shared.is_err() {
        SHARED.store(false, Release);
    }
    shared
}

/// Its place is to stay ours. `gone`: this is a child, which has not inherited it, and may have mapped something there since.
#[cfg(target_arch = "x86_64")]
pub(crate) fn let_outcome_go(gone: bool) {
    let (flags, place) = (mm::MAP_PRIVATE | mm::MAP_NORESERVE, OUTCOME.address());
    let kept = if gone {
        // SAFETY: what lies there stays.
        unsafe { mm::map_anonymous_at(place, OUTCOME.len, mm::PROT_NONE, flags | mm::MAP_FIXED_NOREPLACE) }
    } else {
        OUTCOME.replace(mm::PROT_NONE, flags).map(drop)
    };
    // Else it is another's from here on.
    if kept.is_ok() {
        SHARED.store(false, Release);
    }
}
