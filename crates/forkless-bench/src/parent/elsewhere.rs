//! The parent's burden on FreeBSD and macOS: base pages, for neither lets a program choose. FreeBSD
//! promotes to superpages and splits them again by itself, and tells nobody.

use std::ffi::c_int;
use std::ptr::NonNull;

use crate::error::Error;
use crate::page_kinds::Pages;

/// The directory with one entry for each open descriptor. On FreeBSD without fdescfs it has the
/// standard three alone: those that the command line did not open itself.
pub(super) const DESCRIPTORS: &str = "/dev/fd";

/// There is nothing to ask for but memory.
pub(super) fn map_flags(pages: Pages) -> Result<c_int, Error> {
    match pages {
        Pages::Base => Ok(0),
        Pages::Thp(_) | Pages::Hugetlb(_) => {
            Err(Error::Missing(format!("{pages} pages can be chosen on Linux only")))
        }
    }
}

/// Nothing to advise.
///
/// # Safety
/// None is needed: the face is that of Linux.
pub(super) unsafe fn advise(_start: NonNull<u8>, _length: usize, _pages: Pages) {}

/// Not told.
pub(super) fn huge_bytes(_first: u64, _end: u64) -> Option<u64> {
    None
}

/// Cannot be asked for.
///
/// # Safety
/// None is needed: the face is that of Linux.
pub(super) unsafe fn collapse(_start: NonNull<u8>, _length: usize) -> bool {
    false
}

/// The calling process, and what comes of it.
#[cfg(target_os = "freebsd")]
pub(super) fn pin(cpus: &[usize]) -> Result<(), Error> {
    // SAFETY: cpuset_t is an array of bits; all zero is the empty set.
    let mut set: libc::cpuset_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if cpu >= 8 * size_of::<libc::cpuset_t>() {
            return Err(Error::Spec(format!("there is no processor {cpu}")));
        }
        // SAFETY: the number was checked against the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    let (level, which) = (libc::CPU_LEVEL_WHICH, libc::CPU_WHICH_PID);
    // SAFETY: the set is initialised and as large as said; -1 is the calling process
    // (cpuset_setaffinity(2)).
    if unsafe { libc::cpuset_setaffinity(level, which, -1, size_of::<libc::cpuset_t>(), &raw const set) } != 0
    {
        return Err(super::cannot_run_on(cpus));
    }
    Ok(())
}

/// macOS binds nothing to a processor.
#[cfg(not(target_os = "freebsd"))]
pub(super) fn pin(_cpus: &[usize]) -> Result<(), Error> {
    Err(Error::Missing("this system does not bind processes to processors".into()))
}
