//! The process's own mappings: which there are, and which the program has asked fork to treat in a way of their own.
#![expect(unsafe_code, reason = "unmapping")]

use forkless_record::Kind;
use forkless_sys::maps::{self, Mapping};
use forkless_sys::{CPtr, Errno, fd, mm};

pub(crate) mod advice;
mod text;

/// Calls `each` for every writable mapping, upwards, until it says `false`: too many to keep.
pub(crate) fn each_writable(mut each: impl FnMut(Mapping) -> bool) -> Result<(), Kind> {
    let flags = fd::O_RDONLY | fd::O_CLOEXEC;
    let file = match fd::openat(fd::AT_FDCWD, CPtr::from(c"/proc/self/maps"), flags, 0) {
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
