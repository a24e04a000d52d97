//! What this machine gives the preloaded library. Each question is asked by trying, and changes
//! nothing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use forkless_sys::{Errno, dispatch, maps};

/// Whether the library speculates on this processor at all: its trap reads and writes the registers
/// of x86-64. Elsewhere it leaves forks as they are, whatever the kernel has.
pub const SPECULATES: bool = cfg!(target_arch = "x86_64");

fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw())
}

/// Whether a speculative child's system calls can be caught: by syscall user dispatch (Linux 5.11).
///
/// # Errors
/// The kernel's answer where it has none.
pub fn user_dispatch() -> io::Result<()> {
    // Off where it never was on changes nothing, and says EINVAL where the kernel does not know it.
    dispatch::off().map_err(error)
}

/// Whether one mapping can be found without reading all of `/proc/self/maps` (`PROCMAP_QUERY`,
/// Linux 6.11).
///
/// # Errors
/// The kernel's answer where it cannot.
pub fn procmap_query() -> io::Result<()> {
    let maps = File::open("/proc/self/maps")?;
    let mapped = 0u8;
    maps::query(maps.as_raw_fd(), &raw const mapped as usize, maps::READABLE).map(drop).map_err(error)
}

/// Whether memory can be brought into a speculative child: by `/proc/self/mem`, which a process
/// that is not dumpable may not open.
///
/// # Errors
/// Why it cannot be opened.
pub fn own_memory() -> io::Result<()> {
    File::open("/proc/self/mem").map(drop)
}

/// The dynamic loaders that are installed. Whether one program is dynamically linked tells nothing
/// of others.
pub fn loaders() -> Vec<&'static str> {
    let known = [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
        "/lib/ld-musl-x86_64.so.1",
        "/lib/ld-musl-aarch64.so.1",
    ];
    known.into_iter().filter(|path| Path::new(path).exists()).collect()
}
