//! The calling process's mappings, one question at a time: the `PROCMAP_QUERY` ioctl of
//! `/proc/PID/maps` (Linux 6.11).
#![expect(unsafe_code, reason = "the kernel fills in a structure and a name")]

use crate::Result;
use crate::calls::{self, Fd, Op};
use linux_raw_sys::general::procmap_query;

/// One mapping: its range, its permissions, and its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: usize,
    /// First address after it.
    pub end: usize,
    /// `READABLE`, `WRITABLE`, `EXECUTABLE`, `SHARED`.
    pub flags: u64,
    /// Inode of the backing file; 0 for anonymous memory.
    pub inode: u64,
    /// Bytes per page: above the base page size for memory from a pool of huge pages.
    pub page_size: u64,
}

/// Readable (`PROCMAP_QUERY_VMA_READABLE`).
pub const READABLE: u64 = 1;
/// Writable.
pub const WRITABLE: u64 = 2;
/// Executable.
pub const EXECUTABLE: u64 = 4;
/// `MAP_SHARED`.
pub const SHARED: u64 = 8;
/// As a filter: the mapping that covers the address, or else the next one that matches.
pub const COVERING_OR_NEXT: u64 = 0x10;

const _: () = assert!(size_of::<procmap_query>() == 104, "PROCMAP_QUERY, include/uapi/linux/fs.h");

/// The mapping at `addr` that has all the properties in `filter`. `ENOENT`: none; `ENOTTY`: the
/// kernel is older than 6.11.
#[inline]
pub fn query(maps_fd: i32, addr: usize, filter: u64) -> Result<Mapping> {
    ask(maps_fd, addr, filter, &mut []).map(|(mapping, _)| mapping)
}

/// The name of the mapping that covers `addr`, as the file has it, without its NUL; empty for
/// memory without a name. `ENAMETOOLONG`: the name and its NUL do not fit into `into`; `ENOENT` and
/// `ENOTTY` as with [`query`].
pub fn name(maps_fd: i32, addr: usize, into: &mut [u8]) -> Result<&[u8]> {
    let (_, length) = ask(maps_fd, addr, 0, into)?;
    Ok(into.get(..length.saturating_sub(1)).unwrap_or(&[]))
}

/// A mapping, and the bytes of its name with the NUL. The name is asked for if `name` has room.
#[inline]
fn ask(maps_fd: i32, addr: usize, filter: u64, name: &mut [u8]) -> Result<(Mapping, usize)> {
    const REQUEST: u32 = (3 << 30) | ((size_of::<procmap_query>() as u32) << 16) | (0x66 << 8) | 17;
    let mut q = procmap_query {
        size: size_of::<procmap_query>() as u64,
        query_flags: filter,
        query_addr: addr as u64,
        vma_start: 0,
        vma_end: 0,
        vma_flags: 0,
        vma_page_size: 0,
        vma_offset: 0,
        inode: 0,
        dev_major: 0,
        dev_minor: 0,
        vma_name_size: name.len() as u32,
        build_id_size: 0,
        // The kernel refuses an address without a size (EINVAL).
        vma_name_addr: if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 },
        build_id_addr: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes, and `vma_name_size` bytes into `name`.
    unsafe { calls::ioctl(Fd(maps_fd), Op(REQUEST), (&raw mut q).cast()) }?;
    let mapping = Mapping {
        start: q.vma_start as usize,
        end: q.vma_end as usize,
        flags: q.vma_flags,
        inode: q.inode,
        page_size: q.vma_page_size,
    };
    Ok((mapping, q.vma_name_size as usize))
}
