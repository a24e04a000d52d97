//! What an unmodified program needs to lose its forks under `forkless run`.

#![expect(unsafe_code, reason = "probes are raw system calls")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use super::{Entry, setting, works};
use crate::commands::run::{library, shell};

const DISPATCH: &str = "syscall user dispatch";

pub(super) fn entries() -> Vec<Entry> {
    vec![
        Entry::new(
            DISPATCH,
            user_dispatch(),
            "catching the system calls of a speculative child",
            "forks are left as they are",
        ),
        Entry::new(
            "PROCMAP_QUERY",
            procmap_query(),
            "finding a mapping without reading all of /proc/self/maps",
            "the maps file is read as text",
        ),
        Entry::new(
            "/proc/self/mem",
            own_memory(),
            "bringing memory into a speculative child",
            "forks are left as they are",
        ),
        preload(),
        Entry::new(
            "preloaded library",
            library::find().map(|path| path.display().to_string()).map_err(|why| why.to_string()),
            "everything run does",
            "programs run plainly",
        ),
        Entry::new(
            "/bin/sh",
            shell::ask()
                .and_then(shell::Asked::known)
                .map(|known| known.traits.kind().to_string())
                .ok_or_else(|| "not a shell whose ways are known".to_owned()),
            "running lines of system() and popen() without it",
            "every line goes to the shell",
        ),
        Entry::info(
            "vm.overcommit_memory",
            setting("/proc/sys/vm/overcommit_memory").unwrap_or_else(|why| why),
            "2 makes a large process's fork fail with ENOMEM where a start without fork does not",
        ),
    ]
}

pub(super) fn path(entries: &[Entry]) -> String {
    if let Some(why) = library::NEVER_SPECULATES {
        return why.to_owned();
    }
    if works(entries, DISPATCH) {
        "forks that only lead to an exec are speculated about".to_owned()
    } else {
        "forks are left as they are: the kernel lacks syscall user dispatch (Linux 5.11)".to_owned()
    }
}

fn last_error() -> String {
    io::Error::last_os_error().to_string()
}

/// Switching dispatch off where it never was on changes nothing, and says EINVAL where the kernel does not know it.
fn user_dispatch() -> Result<String, String> {
    const PR_SET_SYSCALL_USER_DISPATCH: libc::c_int = 59;
    let zero: libc::c_ulong = 0;
    // SAFETY: PR_SYS_DISPATCH_OFF with zero arguments affects the calling thread only, and leaves it as it is.
    let result = unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, zero, zero, zero, zero) };
    if result == 0 { Ok("works".into()) } else { Err(last_error()) }
}

/// A null argument is EFAULT to a kernel that knows the ioctl (6.11) and ENOTTY to one that does not.
fn procmap_query() -> Result<String, String> {
    const PROCMAP_QUERY: u32 = 0xc068_6611; // _IOWR('f', 17, struct procmap_query), 104 bytes
    let maps = File::open("/proc/self/maps").map_err(|error| error.to_string())?;
    // SAFETY: the kernel checks the null pointer and answers with an error.
    unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, std::ptr::null_mut::<u8>()) };
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EFAULT) => Ok("works".into()),
        _ => Err(last_error()),
    }
}

/// A process that is not dumpable may not open it.
fn own_memory() -> Result<String, String> {
    File::open("/proc/self/mem").map(|_| "works".into()).map_err(|error| error.to_string())
}

/// Whether this very program is dynamically linked tells nothing of others; what does is whether a loader exists.
fn preload() -> Entry {
    let loaders = [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
        "/lib/ld-musl-x86_64.so.1",
        "/lib/ld-musl-aarch64.so.1",
    ];
    let found: Vec<&str> = loaders.into_iter().filter(|path| std::path::Path::new(path).exists()).collect();
    let outcome =
        if found.is_empty() { Err("no dynamic loader found".to_owned()) } else { Ok(found.join(", ")) };
    Entry::new(
        "dynamic loader",
        outcome,
        "preloading the library",
        "statically linked programs stay as they are",
    )
}
