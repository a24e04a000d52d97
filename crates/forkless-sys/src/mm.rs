//! Memory of the calling process.
#![expect(unsafe_code, reason = "mapping memory; the contract is on each function")]

use crate::calls::{self, Addr, Fd, Flags, Len, Offset, Op, Pid, Prot};
use crate::{Errno, Result};
use core::ffi::c_void;
use linux_raw_sys::general as k;

pub use k::{
    MADV_COLLAPSE, MADV_DOFORK, MADV_DONTFORK, MADV_HUGEPAGE, MADV_KEEPONFORK, MADV_POPULATE_WRITE,
    MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_HUGE_2MB, MAP_HUGETLB, MAP_NORESERVE,
    MAP_PRIVATE, MAP_SHARED, MAP_STACK, PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE,
};

/// The smallest page of the supported architectures, and x86-64's only one.
pub const PAGE: usize = 4096;
/// The largest base page of the supported architectures (arm64). A length or an alignment of it
/// fits all of them.
pub const LARGEST_PAGE: usize = 64 << 10;

/// `mmap(2)` of anonymous memory at an address that the kernel chooses.
#[inline]
pub fn map_anonymous(len: usize, prot: u32, flags: u32) -> Result<*mut c_void> {
    let flags = (flags & !(MAP_FIXED | MAP_FIXED_NOREPLACE)) | MAP_ANONYMOUS;
    // SAFETY: without MAP_FIXED no existing mapping is touched.
    unsafe { calls::mmap(Addr(0), Len(len), Prot(prot), Flags(flags), Fd(-1), Offset(0)) }
        .map(|p| p as *mut c_void)
}

/// `mprotect(2)`.
///
/// # Safety
/// Nothing may rely on the old protection of the range.
#[inline]
pub unsafe fn mprotect(addr: *mut c_void, len: usize, prot: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { calls::mprotect(addr, Len(len), Prot(prot)) }.map(drop)
}

/// `madvise(2)`.
///
/// # Safety
/// The advice must not destroy or hide data that is still in use.
#[inline]
pub unsafe fn madvise(addr: *mut c_void, len: usize, advice: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { calls::madvise(addr, Len(len), Op(advice)) }.map(drop)
}

/// `mincore(2)`: which pages from an address on are resident, one byte for each. The address must
/// begin a page.
#[inline]
pub fn mincore(addr: usize, pages: &mut [u8]) -> Result<()> {
    // SAFETY: the kernel writes one byte for each page, and does not read the range.
    unsafe { calls::mincore(Addr(addr), Len(pages.len() * PAGE), pages.as_mut_ptr()) }.map(drop)
}

/// `process_vm_readv(2)` of the caller's own memory, named by the pid of a process that has it.
/// `EFAULT`, and no signal, where nothing is mapped. It needs no permission; reading another memory
/// does (kernel/fork.c, `mm_access`).
///
/// Returns how many bytes were read: fewer than asked for where the mapped memory ends.
#[inline]
pub fn read(pid: i32, from: usize, to: &mut [u8]) -> Result<usize> {
    let (local, remote) = ([to.as_mut_ptr() as usize, to.len()], [from, to.len()]);
    // SAFETY: the kernel writes into the slice only, and checks every address it reads.
    unsafe {
        calls::process_vm_readv(Pid(pid), &raw const local, Len(1), &raw const remote, Len(1), Flags(0))
    }
}

/// Whether `addr..addr + len` lies in several mappings, or in part in none. It asks by an
/// `mremap(2)` that must fail: to grow the range in place over the whole address space. The kernel
/// refuses with `EFAULT` across mappings (mm/mremap.c, `vma_to_resize`), and then with `ENOMEM`. It
/// merges adjacent mappings whose flags are all the same.
///
/// Growth by a page would succeed if another thread unmapped that page just then. From Linux 5.14
/// on no memory is counted before the place is looked for.
///
/// `EINVAL`: the range does not begin a page, or lies above the stack.
#[inline]
pub fn is_split(addr: usize, len: usize) -> Result<bool> {
    /// No more than a program's address space (`TASK_SIZE` of x86-64), for which the kernel asks.
    const WHOLE: usize = (1 << 47) - 2 * PAGE;
    // Behind an address above it such a length may be free, with page tables of five levels.
    if addr > WHOLE {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the program's stack, or the end of the address space, lies within the length. So
    // nothing is mapped or moved.
    match unsafe { calls::mremap(Addr(addr), Len(len), Len(WHOLE), Flags(0), Addr(0)) } {
        Err(Errno::EFAULT) => Ok(true),
        Err(Errno::ENOMEM) => Ok(false),
        Err(other) => Err(other),
        Ok(_) => Err(Errno::EINVAL),
    }
}

/// `munmap(2)`.
///
/// # Safety
/// Nothing may use the range afterwards.
#[inline]
pub unsafe fn munmap(addr: *mut c_void, len: usize) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { calls::munmap(addr, Len(len)) }.map(drop)
}

/// `mremap(2)` of a whole range onto another address of the same length: one call replaces the
/// mapping at that address.
///
/// # Safety
/// Nothing may use the range at `from` afterwards. Every use of the range at `to` must expect the
/// new content.
#[inline]
pub unsafe fn move_onto(from: *mut c_void, len: usize, to: usize) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe {
        calls::mremap(
            Addr(from as usize),
            Len(len),
            Len(len),
            Flags(k::MREMAP_MAYMOVE | k::MREMAP_FIXED),
            Addr(to),
        )
    }
    .map(drop)
}

/// `mmap(2)` of a file's beginning at exactly this address.
///
/// # Safety
/// `MAP_FIXED` removes the mapping that was at the address: nothing may still use it.
#[inline]
pub unsafe fn map_file_at(addr: usize, fd: i32, len: usize, prot: u32, flags: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { calls::mmap(Addr(addr), Len(len), Prot(prot), Flags(flags & !MAP_ANONYMOUS), Fd(fd), Offset(0)) }
        .map(drop)
}

/// `mmap(2)` of anonymous memory at exactly this address.
///
/// # Safety
/// `MAP_FIXED` removes the mapping that was at the address: nothing may still use it.
#[inline]
pub unsafe fn map_anonymous_at(addr: usize, len: usize, prot: u32, flags: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { calls::mmap(Addr(addr), Len(len), Prot(prot), Flags(flags | MAP_ANONYMOUS), Fd(-1), Offset(0)) }
        .map(drop)
}
