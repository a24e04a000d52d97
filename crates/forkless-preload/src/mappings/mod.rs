//! The process's own mappings: which there are, and which the program has asked fork to treat in a way of their own.
#![expect(unsafe_code, reason = "unmapping")]

use forkless_record::Kind;
use forkless_sys::maps::{self, Mapping};
use forkless_sys::{CPtr, Errno, fd, mm};

pub(crate) mod advice;
mod notes;
mod text;

pub(crate) use text::Name;

fn open() -> Result<i32, Errno> {
    fd::openat(fd::AT_FDCWD, CPtr::from(c"/proc/self/maps"), fd::O_RDONLY | fd::O_CLOEXEC, 0)
}

/// The file that is mapped at an address, by the last part of its path, and where its first mapping begins.
pub(crate) fn file_at(address: usize) -> Option<(Name, usize)> {
    let file = open().ok()?;
    let found = text::file_at(file, address);
    let _ = fd::close(file);
    found
}

/// Calls `each` for every writable mapping, upwards, until it says `false`: too many to keep.
pub(crate) fn each_writable(mut each: impl FnMut(Mapping) -> bool) -> Result<(), Kind> {
    let file = match open() {
        Ok(file) => file,
        Err(Errno::EMFILE | Errno::ENFILE) => return Err(Kind::Descriptors),
        Err(_) => return Err(Kind::NoProc),
    };
    let mut addr = 0;
    let result = loop {
        match maps::query(file, addr, maps::WRITABLE | maps::COVERING_OR_NEXT) {
            Ok(m) => {
                if !each(m) {
                    break Err(Kind::NoMaps);
                }
                addr = m.end;
            }
            Err(Errno::ENOENT) => break Ok(()),
            // Before Linux 6.11.
            Err(Errno::ENOTTY) if addr == 0 => break text::each_writable(file, &mut each),
            Err(_) => break Err(Kind::NoMaps),
        }
    };
    let _ = fd::close(file);
    result
}

/// Unmaps memory of our own that nothing refers to any more.
pub(crate) fn unmap_own(at: *mut core::ffi::c_void, len: usize) {
    // SAFETY: the caller has dropped the only pointer to it.
    let _ = unsafe { mm::munmap(at, len) };
}
