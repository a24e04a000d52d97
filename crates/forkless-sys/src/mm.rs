//! Memory of the calling process.
#![expect(unsafe_code, reason = "mapping memory; the contract is on each function")]

use crate::Result;
use core::ffi::c_void;
use linux_raw_sys::general as k;

pub use k::{
    MADV_COLLAPSE, MADV_DOFORK, MADV_DONTFORK, MADV_HUGEPAGE, MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_FIXED,
    MAP_FIXED_NOREPLACE, MAP_HUGE_2MB, MAP_HUGETLB, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, MAP_STACK,
    PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE,
};

/// `mmap(2)` of anonymous memory somewhere the kernel chooses.
pub fn map_anonymous(len: usize, prot: u32, flags: u32) -> Result<*mut c_void> {
    let addr: *mut c_void = core::ptr::null_mut();
    let flags = (flags & !(MAP_FIXED | MAP_FIXED_NOREPLACE)) | MAP_ANONYMOUS;
    // SAFETY: without MAP_FIXED no existing mapping is touched.
    unsafe { call!(__NR_mmap, addr, len, prot, flags, -1i32, 0usize) }.map(|p| p as *mut c_void)
}

/// `mprotect(2)`.
///
/// # Safety
/// Nothing may rely on the old protection of the range.
pub unsafe fn mprotect(addr: *mut c_void, len: usize, prot: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_mprotect, addr, len, prot) }.map(drop)
}

/// `madvise(2)`.
///
/// # Safety
/// The advice must not destroy or hide data somebody still uses.
pub unsafe fn madvise(addr: *mut c_void, len: usize, advice: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_madvise, addr, len, advice) }.map(drop)
}

/// `mincore(2)`: which pages from an address on are there, one byte each. The address must be a page's.
pub fn mincore(addr: usize, pages: &mut [u8]) -> Result<()> {
    // SAFETY: the kernel writes one byte a page; what the range holds is only looked at.
    unsafe { call!(__NR_mincore, addr, pages.len() * 4096, pages.as_mut_ptr()) }.map(drop)
}

/// `munmap(2)`.
///
/// # Safety
/// Nothing may use the range afterwards.
pub unsafe fn munmap(addr: *mut c_void, len: usize) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_munmap, addr, len) }.map(drop)
}

/// `mremap(2)` of a whole range onto another address of the same length: what was mapped there gives way in one step.
///
/// # Safety
/// Nobody may still use the range at `from`, nor what was at `to` as anything but what comes in its place.
pub unsafe fn move_onto(from: *mut c_void, len: usize, to: usize) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_mremap, from, len, len, k::MREMAP_MAYMOVE | k::MREMAP_FIXED, to) }.map(drop)
}

/// `mmap(2)` of a file's beginning, somewhere the kernel chooses.
pub fn map_file(fd: i32, len: usize, prot: u32, flags: u32) -> Result<*mut c_void> {
    let addr: *mut c_void = core::ptr::null_mut();
    let flags = flags & !(MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_ANONYMOUS);
    // SAFETY: without MAP_FIXED no existing mapping is touched.
    unsafe { call!(__NR_mmap, addr, len, prot, flags, fd, 0usize) }.map(|p| p as *mut c_void)
}

/// `mmap(2)` of anonymous memory at exactly this address.
///
/// # Safety
/// With `MAP_FIXED` whatever was mapped there is gone: nobody may still use it.
pub unsafe fn map_anonymous_at(addr: usize, len: usize, prot: u32, flags: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_mmap, addr, len, prot, flags | MAP_ANONYMOUS, -1i32, 0usize) }.map(drop)
}
