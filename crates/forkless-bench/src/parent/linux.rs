//! The parent's burden on Linux: its kinds of pages, and the processors it is bound to.

use std::ffi::c_int;
use std::ptr::NonNull;

use linux_raw_sys::general::MADV_COLLAPSE;

use crate::error::Error;
use crate::page_kinds::Pages;

/// The directory with one entry for each open descriptor.
pub(super) const DESCRIPTORS: &str = "/proc/self/fd";

/// How to ask for the pages when they are mapped.
#[expect(clippy::unnecessary_wraps, reason = "elsewhere some pages cannot be had")]
pub(super) fn map_flags(pages: Pages) -> Result<c_int, Error> {
    Ok(match pages {
        Pages::Hugetlb(kib) => {
            // Reserved at once: too small a pool is an error here, not a SIGBUS at the first touch.
            let log2 = i32::try_from((kib << 10).trailing_zeros()).unwrap_or(21);
            libc::MAP_HUGETLB | log2 << libc::MAP_HUGE_SHIFT
        }
        Pages::Base | Pages::Thp(_) => libc::MAP_NORESERVE,
    })
}

/// Asks for transparent huge pages, or declines them. A kernel without them answers EINVAL, which
/// for base pages means that there is nothing to decline; for huge ones the caller looks at what it
/// got.
///
/// # Safety
/// The range is a mapping of the caller's own.
pub(super) unsafe fn advise(start: NonNull<u8>, length: usize, pages: Pages) {
    let advice = match pages {
        Pages::Base => libc::MADV_NOHUGEPAGE,
        Pages::Thp(_) => libc::MADV_HUGEPAGE,
        Pages::Hugetlb(_) => return,
    };
    // SAFETY: the caller owns the range; the advice changes the pages behind it, not its content.
    unsafe { libc::madvise(start.as_ptr().cast(), length, advice) };
}

/// Bytes between two addresses that huge pages of the PMD size back now; `None` where
/// `/proc/self/smaps` does not tell.
pub(super) fn huge_bytes(first: u64, end: u64) -> Option<u64> {
    // Never empty where there is one.
    let smaps = std::fs::read_to_string("/proc/self/smaps").ok().filter(|text| !text.is_empty())?;
    let mut inside = false;
    let mut kib = 0;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let Some(head) = words.next() else { continue };
        if let Some((low, high)) = head.split_once('-')
            && let (Ok(low), Ok(high)) = (u64::from_str_radix(low, 16), u64::from_str_radix(high, 16))
        {
            // The kernel may merge the mapping with a neighbour of the same kind, or split it.
            inside = low < end && first < high;
        } else if inside && matches!(head, "AnonHugePages:" | "Private_Hugetlb:") {
            kib += words.next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Some(kib << 10)
}

/// Has the kernel gather the range into huge pages again; false where it cannot (`MADV_COLLAPSE`,
/// Linux 6.1).
///
/// # Safety
/// The range is a mapping of the caller's own.
pub(super) unsafe fn collapse(start: NonNull<u8>, length: usize) -> bool {
    // SAFETY: the caller owns the range; collapsing changes the pages behind it, not its content.
    unsafe { libc::madvise(start.as_ptr().cast(), length, MADV_COLLAPSE as i32) == 0 }
}

/// The calling thread, and what comes of it.
pub(super) fn pin(cpus: &[usize]) -> Result<(), Error> {
    // SAFETY: cpu_set_t is an array of bits; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if cpu >= 8 * size_of::<libc::cpu_set_t>() {
            return Err(Error::Spec(format!("there is no processor {cpu}")));
        }
        // SAFETY: the number was checked against the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set is initialised and as large as said; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0 {
        return Err(super::cannot_run_on(cpus));
    }
    Ok(())
}
