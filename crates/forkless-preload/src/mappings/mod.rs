//! The process's own mappings, and the program's own wishes about what fork does with them.
#![expect(unsafe_code, reason = "unmapping")]

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use forkless_run::AbortKind;
use forkless_speculate::maps as text;
use forkless_sys::maps::{self, Mapping};
use forkless_sys::{Errno, fd, mm};

use crate::proc;

pub(crate) mod advice;
mod notes;

pub(crate) use forkless_speculate::maps::Name;

/// The list of mappings, or why a fork is left plain without it.
fn open() -> Result<i32, AbortKind> {
    proc::open(c"self/maps").map_err(|errno| match errno {
        Errno::EMFILE | Errno::ENFILE => AbortKind::Descriptors,
        _ => AbortKind::NoProc,
    })
}

/// The file that is mapped at an address, by the last part of its path, and where its first mapping
/// begins.
pub(crate) fn file_at(address: usize) -> Option<(Name, usize)> {
    let file = open().ok()?;
    let found = text::file_at(&mut |into| fd::read(file, into), address);
    let _ = fd::close(file);
    found
}

/// Whether one of the mappings in `start..end` has a flag ([`text::has_flag`]).
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
pub(crate) fn have_flag(start: usize, end: usize, letters: [u8; 2]) -> Option<bool> {
    let file = proc::open(c"self/smaps").ok()?;
    let found = text::has_flag(&mut |into| fd::read(file, into), start, end, letters);
    let _ = fd::close(file);
    found
}

/// Whether one of the shared mappings is a ring of aio or io_uring ([`text::is_ring`]). Takes the
/// lowest free descriptor for a moment.
#[cfg(target_arch = "x86_64")]
#[cold]
pub(crate) fn have_ring(shared: impl Iterator<Item = (usize, usize)>) -> Result<bool, AbortKind> {
    let file = open()?;
    let found = match any_is_ring(file, shared) {
        Err(Errno::ENOTTY) => text::has_ring(&mut |into| fd::read(file, into)),
        asked => asked.ok(),
    };
    let _ = fd::close(file);
    found.ok_or(AbortKind::NoMaps)
}

/// `ENOTTY`: the kernel is older than 6.11.
#[cfg(target_arch = "x86_64")]
fn any_is_ring(file: i32, shared: impl Iterator<Item = (usize, usize)>) -> Result<bool, Errno> {
    for (start, _) in shared {
        match maps::name(file, start, &mut [0; text::RING_NAME]) {
            Ok(name) if text::is_ring(name) => return Ok(true),
            // No ring has so long a name. A mapping that another process has changed meanwhile, by
            // ptrace, is none of a ring either.
            Ok(_) | Err(Errno::ENAMETOOLONG | Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// Whether all mappings from `start` to `end` are private, as far as that can be told. Takes the
/// lowest free descriptor for a moment.
#[cfg(target_arch = "x86_64")]
pub(crate) fn are_private(start: usize, end: usize) -> bool {
    let Ok(file) = open() else { return false };
    let asked = all_private(file, start, end);
    let private = match asked {
        Err(Errno::ENOTTY) => text::are_private(&mut |into| fd::read(file, into), start, end),
        asked => asked == Ok(true),
    };
    let _ = fd::close(file);
    private
}

/// `ENOTTY`: the kernel is older than 6.11.
#[cfg(target_arch = "x86_64")]
fn all_private(file: i32, start: usize, end: usize) -> Result<bool, Errno> {
    let mut at = start;
    while at < end {
        match maps::query(file, at, maps::COVERING_OR_NEXT) {
            Ok(m) if m.start >= end => break,
            Ok(m) if m.flags & maps::SHARED != 0 => return Ok(false),
            Ok(m) => at = m.end,
            Err(Errno::ENOENT) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// Writable mappings from which on the file is read. A question takes 0.8 us, and a line of the
/// file half of that, but the file has lines of other mappings, too.
const MANY: usize = 512;

/// How the mappings are found: the kernel is asked for each ([`ASKED_FOR`]), or the file is read
/// once there were many ([`READ`]).
static LISTING: AtomicU8 = AtomicU8::new(ASKED_FOR);
const ASKED_FOR: u8 = 0;
const READ: u8 = 1;
/// The kernel is asked for good, since most lines of the file were of other mappings.
const BETTER_ASKED_FOR: u8 = 2;

/// Calls `each` for every writable mapping, going up, until it says `false`: too many to keep.
pub(crate) fn each_writable(mut each: impl FnMut(Mapping) -> bool) -> Result<(), AbortKind> {
    let file = open()?;
    let mut count = 0;
    let mut each = |mapping| {
        count += 1;
        each(mapping)
    };
    let listing = LISTING.load(Relaxed);
    let asked = if listing == READ { None } else { ask(file, &mut each) };
    let result = match asked {
        Some(asked) => asked.map(|()| None),
        None => text::each_writable(&mut |into| fd::read(file, into), &mut each)
            .ok_or(AbortKind::NoMaps)
            .map(Some),
    };
    let _ = fd::close(file);
    let better = match result {
        Ok(None) if count >= MANY && listing == ASKED_FOR => READ,
        Ok(Some(lines)) if lines > 2 * count => BETTER_ASKED_FOR,
        _ => listing,
    };
    if better != listing {
        LISTING.store(better, Relaxed);
    }
    result.map(drop)
}

/// Asks the kernel for one mapping after the other. `None`: the kernel is older than 6.11.
fn ask(file: i32, each: &mut impl FnMut(Mapping) -> bool) -> Option<Result<(), AbortKind>> {
    let mut addr = 0;
    loop {
        match maps::query(file, addr, maps::WRITABLE | maps::COVERING_OR_NEXT) {
            Ok(m) if each(m) => addr = m.end,
            Err(Errno::ENOENT) => return Some(Ok(())),
            Err(Errno::ENOTTY) if addr == 0 => return None,
            Ok(_) | Err(_) => return Some(Err(AbortKind::NoMaps)),
        }
    }
}

/// Unmaps memory of our own that nothing refers to any more.
pub(crate) fn unmap_own(at: *mut core::ffi::c_void, len: usize) {
    // SAFETY: the caller has dropped the only pointer to it.
    let _ = unsafe { mm::munmap(at, len) };
}
