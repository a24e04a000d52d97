//! Reads all entries of a per-CPU BPF hash map by BPF_MAP_LOOKUP_BATCH (Linux 5.6). aya has no call
//! for it.
//!
//! One system call returns some hundred entries, bucket by bucket, so entries that come and go
//! meanwhile do no harm. Asking key by key takes two calls an entry and restarts when the last key
//! is deleted. On a machine that starts thousands of processes a second it took very long to end.

#![expect(unsafe_code, reason = "bpf(2) takes the addresses of its buffers as numbers")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::Pod;

/// `BPF_MAP_LOOKUP_BATCH` of `enum bpf_cmd`.
const LOOKUP_BATCH: libc::c_int = 24;
/// Entries to ask for in one call, unless a bucket has more. Buckets have one or two.
pub(crate) const AT_ONCE: usize = 512;
/// Retries of calls that the kernel gave up because of a signal or a locked bucket (EAGAIN, EINTR,
/// EBUSY).
const PATIENCE: u32 = 16;

/// The `batch` part of `union bpf_attr`.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Hands each entry to `sink`, with a value for each of the `cpus` possible CPUs; asks for
/// `at_once` of them.
///
/// # Errors
/// The kernel's error: `EINVAL` or 524 (ENOTSUPP) where it has no batches, `EPERM` where they are
/// refused. `sink` may already have been called.
pub(crate) fn for_each<K: Pod, V: Pod + Default>(
    map: BorrowedFd<'_>,
    cpus: usize,
    at_once: usize,
    mut sink: impl FnMut(K, &[V]),
) -> io::Result<()> {
    // The kernel rounds a CPU's value up to 8 bytes.
    const { assert!(size_of::<V>().is_multiple_of(8) && align_of::<V>() <= 8) };
    const { assert!(align_of::<K>() <= 8) };
    let (mut room, mut patience) = (at_once, PATIENCE);
    // The bucket to continue with; opaque to us.
    let mut token: Option<u32> = None;
    loop {
        let mut keys = vec![0u64; (room * size_of::<K>()).div_ceil(8)];
        let mut values = vec![V::default(); room * cpus];
        let (from, mut next) = (token.unwrap_or(0), 0u32);
        let mut attributes = Attributes {
            in_batch: token.map_or(0, |_| address(&raw const from)),
            out_batch: address(&raw mut next),
            keys: address(keys.as_mut_ptr()),
            values: address(values.as_mut_ptr()),
            count: room as u32,
            map_fd: map.as_raw_fd() as u32,
            ..Attributes::default()
        };
        // SAFETY: the attributes are as large as said. `in_batch` and `out_batch` are a u32 each,
        // as hash maps want them. The buffers have room for `count` keys, and for as many values of
        // every possible CPU. All outlive the call.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, LOOKUP_BATCH, &raw mut attributes, size_of::<Attributes>())
        };
        let error = (result != 0).then(io::Error::last_os_error);
        let over = match error.as_ref().and_then(io::Error::raw_os_error) {
            None => false,
            // The last batch; it may have entries.
            Some(libc::ENOENT) => true,
            // A bucket does not fit.
            Some(libc::ENOSPC) if room < at_once << 10 => {
                room *= 2;
                continue;
            }
            Some(libc::EAGAIN | libc::EINTR | libc::EBUSY) if patience > 0 => {
                patience -= 1;
                continue;
            }
            Some(_) => return Err(error.unwrap_or_else(io::Error::last_os_error)),
        };
        let count = (attributes.count as usize).min(room);
        for (at, value) in values.chunks_exact(cpus).take(count).enumerate() {
            // SAFETY: the kernel has filled `count` keys one after the other from the buffer's
            // start; K is plain old data.
            let key = unsafe { keys.as_ptr().cast::<K>().wrapping_add(at).read_unaligned() };
            sink(key, value);
        }
        if over {
            return Ok(());
        }
        token = Some(next);
    }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.addr() as u64
}
