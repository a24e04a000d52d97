//! Memory of the calling process.
#![expect(unsafe_code, reason = "mapping memory; the contract is on each function")]

use crate::{Errno, Result};
use core::ffi::c_void;
use linux_raw_sys::general as k;

pub use k::{
    MADV_COLLAPSE, MADV_DOFORK, MADV_DONTFORK, MADV_HUGEPAGE, MADV_KEEPONFORK, MADV_WIPEONFORK,
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_HUGE_2MB, MAP_HUGETLB, MAP_NORESERVE, MAP_PRIVATE,
    MAP_SHARED, MAP_STACK, PROT_EXEC, PROT_NONE, PROT_READ, PROT_WRITE,
};

/// `mmap(2)` of anonymous memory somewhere the kernel chooses.
///
/// ```
/// # use forkless_sys::{Errno, mm};
/// let page = mm::map_anonymous(4096, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE)?;
/// // SAFETY: fresh memory, ours alone.
/// assert_eq!(unsafe { page.cast::<[u8; 4096]>().read() }, [0; 4096]);
/// // SAFETY: nothing uses it any more.
/// unsafe { mm::munmap(page, 4096) }?;
/// # Ok::<(), Errno>(())
/// ```
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
///
/// ```
/// # use forkless_sys::{Errno, fd, mm};
/// # let zero = fd::openat(fd::AT_FDCWD, c"/dev/zero".into(), fd::O_CLOEXEC, 0)?;
/// # let page = mm::map_anonymous(4096, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE)?;
/// // SAFETY: nothing writes to the page.
/// unsafe { mm::mprotect(page, 4096, mm::PROT_READ) }?;
/// // SAFETY: memory of ours that nothing refers to; now not even the kernel writes to it.
/// assert_eq!(unsafe { fd::pread_raw(zero, page.cast(), 1, 0) }, Err(Errno::EFAULT));
/// # // SAFETY: nothing uses it any more.
/// # unsafe { mm::munmap(page, 4096) }?;
/// # fd::close(zero)?;
/// # Ok::<(), Errno>(())
/// ```
pub unsafe fn mprotect(addr: *mut c_void, len: usize, prot: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_mprotect, addr, len, prot) }.map(drop)
}

/// `madvise(2)`.
///
/// # Safety
/// The advice must not destroy or hide data somebody still uses.
///
/// ```
/// # use forkless_sys::{Errno, mm, process};
/// # use std::os::unix::process::CommandExt as _;
/// # let page = mm::map_anonymous(4096, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE)?;
/// # let address = page as usize;
/// // SAFETY: no child uses the page.
/// unsafe { mm::madvise(page, 4096, mm::MADV_DONTFORK) }?;
/// let mut child = std::process::Command::new("true");
/// let missing = move || mm::mincore(address, &mut [0]) == Err(Errno::ENOMEM);
/// // SAFETY: async-signal-safe.
/// unsafe { child.pre_exec(move || process::exit_group(i32::from(missing()))) };
/// assert_eq!(child.status().unwrap().code(), Some(1)); // in the forked child it is
/// assert!(!missing());
/// # // SAFETY: nothing uses it any more.
/// # unsafe { mm::munmap(page, 4096) }?;
/// # Ok::<(), Errno>(())
/// ```
pub unsafe fn madvise(addr: *mut c_void, len: usize, advice: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_madvise, addr, len, advice) }.map(drop)
}

/// `mincore(2)`: which pages from an address on are there, one byte each. The address must be a page's.
///
/// ```
/// # use forkless_sys::{Errno, mm};
/// # let page = mm::map_anonymous(4096, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE)?;
/// let mut there = [0];
/// // SAFETY: ours, and writable.
/// unsafe { page.cast::<u8>().write(1) };
/// mm::mincore(page as usize, &mut there)?;
/// assert_eq!(there[0] & 1, 1);
/// assert_eq!(mm::mincore(page as usize + 1, &mut there), Err(Errno::EINVAL)); // no page's address
/// # // SAFETY: nothing uses it any more.
/// # unsafe { mm::munmap(page, 4096) }?;
/// # Ok::<(), Errno>(())
/// ```
pub fn mincore(addr: usize, pages: &mut [u8]) -> Result<()> {
    // SAFETY: the kernel writes one byte a page; what the range holds is only looked at.
    unsafe { call!(__NR_mincore, addr, pages.len() * 4096, pages.as_mut_ptr()) }.map(drop)
}

/// `process_vm_readv(2)` of the calling process's own memory, or of one that shares it: `EFAULT` where nothing is mapped, and not a
/// signal. Asks for no permission, which reading another memory does (kernel/fork.c, `mm_access`).
///
/// Returns how much was read, which ends where the mapped memory does.
///
/// ```
/// # use forkless_sys::{Errno, mm, process};
/// let (from, mut to) = (*b"memory", [0; 6]);
/// match mm::read(process::getpid(), from.as_ptr() as usize, &mut to) {
///     Ok(n) => assert_eq!((n, to), (6, from)),
///     Err(e) => assert!(matches!(e, Errno::ENOSYS | Errno::EPERM)), // a kernel without it, a container's filter
/// }
/// assert!(mm::read(process::getpid(), 0, &mut to).is_err());
/// ```
pub fn read(pid: i32, from: usize, to: &mut [u8]) -> Result<usize> {
    let (local, remote) = ([to.as_mut_ptr() as usize, to.len()], [from, to.len()]);
    // SAFETY: the kernel writes into the slice; what it reads it copies as it finds it.
    unsafe { call!(__NR_process_vm_readv, pid, local.as_ptr(), 1usize, remote.as_ptr(), 1usize, 0usize) }
}

/// Whether `addr..addr + len` lies in several mappings, asked by an `mremap(2)` that cannot be granted: it is to grow the range in place, and
/// the kernel refuses that with `EFAULT` across mappings (mm/mremap.c, `vma_to_resize`) and with `ENOMEM` where something is behind it.
/// Adjacent mappings are one if all their flags are the same.
///
/// # Safety
/// `addr` is a page's, `len` a multiple of the page size, and something is mapped behind the range, or it would grow.
///
/// ```
/// # use forkless_sys::{Errno, mm};
/// let pages = mm::map_anonymous(3 * 4096, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE)?;
/// let is_split = || {
///     // SAFETY: a third page is behind the two.
///     unsafe { mm::is_split(pages as usize, 2 * 4096) }
/// };
/// assert_eq!(is_split(), Ok(false));
/// // SAFETY: nobody forks meanwhile.
/// unsafe { mm::madvise(pages, 4096, mm::MADV_DONTFORK) }?;
/// assert_eq!(is_split(), Ok(true)); // the first page has a flag of its own
/// # // SAFETY: nothing uses them any more.
/// # unsafe { mm::munmap(pages, 3 * 4096) }?;
/// # Ok::<(), Errno>(())
/// ```
pub unsafe fn is_split(addr: usize, len: usize) -> Result<bool> {
    // SAFETY: by the caller's contract nothing is mapped or moved.
    match unsafe { call!(__NR_mremap, addr, len, len + 4096, 0usize) } {
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
///
/// ```
/// # use forkless_sys::{Errno, mm};
/// let page = mm::map_anonymous(4096, mm::PROT_READ, mm::MAP_PRIVATE)?;
/// // SAFETY: nothing uses the page.
/// unsafe { mm::munmap(page, 4096) }?;
/// assert_eq!(mm::mincore(page as usize, &mut [0]), Err(Errno::ENOMEM));
/// # Ok::<(), Errno>(())
/// ```
pub unsafe fn munmap(addr: *mut c_void, len: usize) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_munmap, addr, len) }.map(drop)
}

/// `mremap(2)` of a whole range onto another address of the same length: what was mapped there gives way in one step.
///
/// # Safety
/// Nobody may still use the range at `from`, nor what was at `to` as anything but what comes in its place.
///
/// ```
/// # use forkless_sys::{Errno, mm};
/// # let page = || mm::map_anonymous(4096, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE);
/// let (new, old) = (page()?, page()?);
/// // SAFETY: ours, and writable.
/// unsafe { new.cast::<u8>().write(7) };
/// // SAFETY: nothing uses either page.
/// unsafe { mm::move_onto(new, 4096, old as usize) }?;
/// // SAFETY: what was at `new` is here.
/// assert_eq!(unsafe { old.cast::<u8>().read() }, 7);
/// assert_eq!(mm::mincore(new as usize, &mut [0]), Err(Errno::ENOMEM)); // and not there
/// # // SAFETY: nothing uses it any more.
/// # unsafe { mm::munmap(old, 4096) }?;
/// # Ok::<(), Errno>(())
/// ```
pub unsafe fn move_onto(from: *mut c_void, len: usize, to: usize) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_mremap, from, len, len, k::MREMAP_MAYMOVE | k::MREMAP_FIXED, to) }.map(drop)
}

/// `mmap(2)` of a file's beginning at exactly this address.
///
/// # Safety
/// With `MAP_FIXED` whatever was mapped there is gone: nobody may still use it.
///
/// ```
/// # use forkless_sys::{Errno, fd, mm};
/// # let page = mm::map_anonymous(4096, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE)?;
/// let program = fd::openat(fd::AT_FDCWD, c"/proc/self/exe".into(), fd::O_CLOEXEC, 0)?;
/// // SAFETY: nothing uses what is on the page.
/// unsafe { mm::map_file_at(page as usize, program, 4096, mm::PROT_READ, mm::MAP_PRIVATE | mm::MAP_FIXED) }?;
/// // SAFETY: a program that runs has a header and is not changed (ETXTBSY).
/// assert_eq!(unsafe { page.cast::<[u8; 4]>().read() }, *b"\x7fELF");
/// # // SAFETY: nothing uses it any more.
/// # unsafe { mm::munmap(page, 4096) }?;
/// # fd::close(program)?;
/// # Ok::<(), Errno>(())
/// ```
pub unsafe fn map_file_at(addr: usize, fd: i32, len: usize, prot: u32, flags: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_mmap, addr, len, prot, flags & !MAP_ANONYMOUS, fd, 0usize) }.map(drop)
}

/// `mmap(2)` of anonymous memory at exactly this address.
///
/// # Safety
/// With `MAP_FIXED` whatever was mapped there is gone: nobody may still use it.
///
/// ```
/// # use forkless_sys::{Errno, mm};
/// # let page = mm::map_anonymous(4096, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE)?;
/// # // SAFETY: ours, and writable.
/// # unsafe { page.cast::<u8>().write(7) };
/// // SAFETY: nothing uses what is on the page.
/// unsafe { mm::map_anonymous_at(page as usize, 4096, mm::PROT_READ, mm::MAP_PRIVATE | mm::MAP_FIXED) }?;
/// // SAFETY: readable.
/// assert_eq!(unsafe { page.cast::<u8>().read() }, 0); // it was 7
/// # // SAFETY: nothing uses it any more.
/// # unsafe { mm::munmap(page, 4096) }?;
/// # Ok::<(), Errno>(())
/// ```
pub unsafe fn map_anonymous_at(addr: usize, len: usize, prot: u32, flags: u32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { call!(__NR_mmap, addr, len, prot, flags | MAP_ANONYMOUS, -1i32, 0usize) }.map(drop)
}
