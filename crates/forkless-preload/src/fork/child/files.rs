//! Opening files: reading a plain file or a directory leaves no trace another process could act on; the rest of what open does
//! (creating, truncating, waking the other end of a FIFO, taking a terminal, starting a tape) may not happen twice.
#![expect(unsafe_code, reason = "the program's own open, and stat structures")]

use forkless_run::{AbortKind as Kind, AbortReason as Reason};
use forkless_sys::{CPtr, Errno, fd};
use linux_raw_sys::general as k;

use crate::kernel::{self, Args};

use super::super::memory;
use super::{abort, fds, need};

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFCHR: u32 = 0o020_000;

// include/uapi/linux/magic.h
const PROC: usize = 0x9fa0;
const SYSFS: usize = 0x6265_6572;
const TRACEFS: usize = 0x7472_6163;
const DEBUGFS: usize = 0x6462_6720;
const FUSE: usize = 0x6573_5546;
const BPF: usize = 0xcafe_4a11;
const CGROUP2: usize = 0x6367_7270;
const CGROUP: usize = 0x27_e0eb;

/// `open`, with the arguments of `openat`.
pub(crate) fn open(dir: usize, path: usize, flags: usize, mode: usize) -> isize {
    need::path_at(dir, path);
    let refuse = || -> ! { abort(Reason::new(Kind::OpenFile, flags as u32)) };
    let flags32 = flags as u32;
    let writes = flags32 & k::O_ACCMODE != k::O_RDONLY
        || flags32 & (k::O_CREAT | k::O_TRUNC | (k::O_TMPFILE & !k::O_DIRECTORY)) != 0;
    if path == 0 {
        return -(Errno::EFAULT.raw() as isize);
    }
    let mut usable = false;
    if flags32 & k::O_PATH == 0 {
        match look(dir as i32, path, flags32 & k::O_NOFOLLOW) {
            Ok(Found::Null) => usable = true,
            Ok(Found::Plain { readable }) if !writes => usable = readable,
            Ok(Found::Directory) if !writes => {}
            Ok(_) => refuse(),
            // It does not exist, or cannot be reached: the real call may say so, unless it would create something.
            Err(_) if flags32 & (k::O_CREAT | k::O_TMPFILE) == 0 => {}
            Err(_) => refuse(),
        }
    }
    // SAFETY: the program's own open; the path is present.
    let answer = unsafe { kernel::pass(k::__NR_openat, &[dir, path, flags, mode, 0, 0]) };
    if answer >= 0 && flags32 & k::O_PATH != 0 && flags32 & k::O_NOFOLLOW == 0 {
        abort_if_ours(fd::identity(answer as i32, CPtr::from(c""), fd::AT_EMPTY_PATH));
    }
    fds::opened(answer, 0, usable);
    answer
}

enum Found {
    /// A device without memory or effect: null, zero, full, random, urandom.
    Null,
    Plain {
        /// Reading it has no effect on others (in /proc and its like it may).
        readable: bool,
    },
    Directory,
    Other,
}

/// What a path leads to, without opening it.
fn look(dir: i32, path: usize, nofollow: u32) -> Result<Found, Errno> {
    // SAFETY: the caller has made the string present, and the program has one thread here.
    let path = unsafe { CPtr::from_raw(path as *const _) };
    let handle = fd::openat(dir, path, k::O_PATH | k::O_CLOEXEC | nofollow, 0)?;
    let mut stat = [0u64; 18];
    let mut statfs = [0usize; 15];
    // SAFETY: fstat fills in one struct stat of 144 bytes.
    let a =
        unsafe { kernel::pass(k::__NR_fstat, &[handle as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    // SAFETY: fstatfs fills in one struct statfs of 120 bytes.
    let b = unsafe {
        kernel::pass(k::__NR_fstatfs, &[handle as usize, statfs.as_mut_ptr() as usize, 0, 0, 0, 0])
    };
    let _ = fd::close(handle);
    Errno::check(a)?;
    Errno::check(b)?;
    // struct stat: dev, ino, nlink, then mode and uid in one word, gid and padding, rdev.
    let (mode, device) = (stat[3] as u32, stat[5]);
    let kind = statfs[0];
    if kind == PROC {
        abort_if_ours(Ok((stat[0], stat[1])));
    }
    if kind == FUSE {
        // Its server sees every open.
        return Ok(Found::Other);
    }
    Ok(match mode & S_IFMT {
        S_IFREG => Found::Plain {
            readable: !matches!(kind, PROC | SYSFS | TRACEFS | DEBUGFS | BPF | CGROUP | CGROUP2),
        },
        S_IFDIR => Found::Directory,
        // Major 1: 3 null, 5 zero, 7 full, 8 random, 9 urandom (Documentation/admin-guide/devices.txt).
        S_IFCHR if matches!(device, 0x103 | 0x105 | 0x107 | 0x108 | 0x109) => Found::Null,
        _ => Found::Other,
    })
}

/// A link of the program's may lead to our descriptor, of which no name says so (`need::path`): ends the speculation where a file is ours.
fn abort_if_ours(file: Result<(u64, u64), Errno>) {
    let ours = fds::hidden().map(|ours| fd::identity(ours, CPtr::from(c""), fd::AT_EMPTY_PATH));
    if file.is_ok() && ours == Some(file) {
        abort(Kind::Collision);
    }
}

/// What a call answered that names a file: with an answer that a file of ours may have given.
pub(crate) fn not_ours(dir: usize, path: usize, answer: isize) -> isize {
    const TOLD: [i32; 3] = [0, Errno::EACCES.raw(), Errno::ENOTDIR.raw()];
    if path != 0 && TOLD.contains(&(-answer as i32)) && fds::hidden().is_some() {
        // SAFETY: the caller has made the string present.
        let path = unsafe { CPtr::from_raw(path as *const _) };
        abort_if_ours(fd::identity(dir as i32, path, 0));
    }
    answer
}

/// What a question about a file was answered, in the structure at `at`. Since Linux 6.2 the size of a directory of descriptors is their number
/// (fs/proc/fd.c), and ours is taken from it.
pub(crate) fn counted(nr: u32, at: usize, answer: isize) -> isize {
    if answer != 0 {
        return answer;
    }
    // struct statx: mode at 28, inode at 32, size at 40, the device's minor number at 140. struct stat: device, inode, mode at 24, size at 48.
    let extended = nr == k::__NR_statx;
    let (mode, size) = if extended { (at + 28, at + 40) } else { (at + 24, at + 48) };
    let count = memory::value::<u64>(size);
    let kind = u32::from(memory::value::<u16>(mode)) & S_IFMT;
    // Our file is empty.
    if !(kind == S_IFDIR && count != 0 || kind == S_IFREG && count == 0) {
        return answer;
    }
    let (device, inode) = if extended {
        let minor = memory::value::<u32>(at + 140);
        (u64::from(minor & 0xff | (minor & !0xff) << 12), memory::value::<u64>(at + 32))
    } else {
        (memory::value::<u64>(at), memory::value::<u64>(at + 8))
    };
    if kind == S_IFREG {
        abort_if_ours(Ok((device, inode)));
        return answer;
    }
    let ours = fds::hidden().and_then(|ours| fd::identity(ours, CPtr::from(c""), fd::AT_EMPTY_PATH).ok());
    if ours.is_some_and(|(proc, _)| proc == device) {
        if fd::identity(fd::AT_FDCWD, CPtr::from(c"/proc/self/fd"), 0) != Ok((device, inode)) {
            // Another process's: which may have ours open as well.
            abort(Reason::new(Kind::Call, nr));
        }
        memory::store(size, count - 1);
    }
    answer
}

/// `getdents64` of a directory the child opened, without our descriptor where the directory lists descriptors.
pub(crate) fn getdents64(args: &Args) -> isize {
    let [dir, buffer, size, ..] = *args;
    need::bytes(buffer, size);
    loop {
        // SAFETY: the program's own call, its buffer is present.
        let answer = unsafe { kernel::pass(k::__NR_getdents64, args) };
        if answer <= 0 || !lists_descriptors(dir) {
            return answer;
        }
        let left = hide(buffer, answer as usize);
        // An answer of nothing would be the end of the directory.
        if left > 0 {
            return left as isize;
        }
    }
}

/// Whether a directory is some process's `fd` or `fdinfo`, wherever its procfs is mounted. Undoes the speculation where that cannot be told.
fn lists_descriptors(dir: usize) -> bool {
    if fd::file_system(dir as i32) != Ok(k::PROC_SUPER_MAGIC.into()) {
        return false;
    }
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0u8; 10];
    let (mut n, mut rest) = (0, dir as u32);
    loop {
        digits[n] = b'0' + (rest % 10) as u8;
        n += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    for i in 0..n {
        link[14 + i] = digits[n - 1 - i];
    }
    let mut target = [0u8; 64];
    let args = [link.as_ptr() as usize, target.as_mut_ptr() as usize, target.len(), 0, 0, 0];
    // SAFETY: reads a link's text into a buffer of that length.
    let len = unsafe { kernel::pass(k::__NR_readlink, &args) };
    match usize::try_from(len) {
        Ok(len) if len < target.len() => {
            target[..len].ends_with(b"/fd") || target[..len].ends_with(b"/fdinfo")
        }
        // Another root, or a long name.
        _ => abort(Reason::new(Kind::Call, k::__NR_getdents64)),
    }
}

/// Takes our entry out of a buffer of `struct linux_dirent64`; returns the length left.
fn hide(buffer: usize, len: usize) -> usize {
    const NAME: usize = 19;
    let mut at = 0;
    while at < len {
        let record = usize::from(memory::value::<u16>(buffer + at + 16));
        if record == 0 {
            break;
        }
        let mut number = 0usize;
        let mut i = 0;
        loop {
            match memory::byte(buffer + at + NAME + i) {
                d @ b'0'..=b'9' => number = number * 10 + usize::from(d - b'0'),
                0 if i > 0 => break,
                _ => {
                    number = usize::MAX;
                    break;
                }
            }
            i += 1;
        }
        if fds::is_hidden(number) && number != usize::MAX {
            for i in at + record..len {
                memory::store(buffer + i - record, memory::byte(buffer + i));
            }
            return len - record;
        }
        at += record;
    }
    len
}
