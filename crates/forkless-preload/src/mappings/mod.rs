//! The process's own mappings: which there are, and which the program has asked fork to treat in a way of their own.
#![expect(unsafe_code, reason = "unmapping")]

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use forkless_run::AbortKind as Kind;
use forkless_sys::maps::{self, Mapping};
use forkless_sys::{Errno, fd, mm};

use crate::proc;

pub(crate) mod advice;
mod notes;
mod text;

pub(crate) use notes::LEN as NOTES;
pub(crate) use text::Name;

fn open() -> Result<i32, Errno> {
    proc::open(c"self/maps")
}

/// The file that is mapped at an address, by the last part of its path, and where its first mapping begins.
pub(crate) fn file_at(address: usize) -> Option<(Name, usize)> {
    let file = open().ok()?;
    let found = text::file_at(file, address);
    let _ = fd::close(file);
    found
}

/// Writable mappings from which on the file is read: a question takes 0.8 us, a line of the file half of that, but it has lines of others, too.
const MANY: usize = 512;

/// How the mappings are found: [`ASKED_FOR`], or [`READ`] once there were many.
static WAY: AtomicU8 = AtomicU8::new(ASKED_FOR);
const ASKED_FOR: u8 = 0;
const READ: u8 = 1;
/// For good, since most lines of the file were of others.
const BETTER_ASKED_FOR: u8 = 2;

/// Calls `each` for every writable mapping, upwards, until it says `false`: too many to keep.
pub(crate) fn each_writable(mut each: impl FnMut(Mapping) -> bool) -> Result<(), Kind> {
    let file = match open() {
        Ok(file) => file,
        Err(Errno::EMFILE | Errno::ENFILE) => return Err(Kind::Descriptors),
        Err(_) => return Err(Kind::NoProc),
    };
    let mut count = 0;
    let mut each = |mapping| {
        count += 1;
        each(mapping)
    };
    let way = WAY.load(Relaxed);
    let asked = if way == READ { None } else { ask(file, &mut each) };
    let result = match asked {
        Some(asked) => asked.map(|()| None),
        None => text::each_writable(file, &mut each).map(Some),
    };
    let _ = fd::close(file);
    let better = match result {
        Ok(None) if count >= MANY && way == ASKED_FOR => READ,
        Ok(Some(lines)) if lines > 2 * count => BETTER_ASKED_FOR,
        _ => way,
    };
    if better != way {
        WAY.store(better, Relaxed);
    }
    result.map(drop)
}

/// Asks the kernel for one after the other. `None`: it is older than 6.11.
fn ask(file: i32, each: &mut impl FnMut(Mapping) -> bool) -> Option<Result<(), Kind>> {
    let mut addr = 0;
    loop {
        match maps::query(file, addr, maps::WRITABLE | maps::COVERING_OR_NEXT) {
            Ok(m) if each(m) => addr = m.end,
            Err(Errno::ENOENT) => return Some(Ok(())),
            Err(Errno::ENOTTY) if addr == 0 => return None,
            Ok(_) | Err(_) => return Some(Err(Kind::NoMaps)),
        }
    }
}

/// Unmaps memory of our own that nothing refers to any more.
pub(crate) fn unmap_own(at: *mut core::ffi::c_void, len: usize) {
    // SAFETY: the caller has dropped the only pointer to it.
    let _ = unsafe { mm::munmap(at, len) };
}
