//! Opens files and describes them as the program would see them without our descriptor
//! (`forkless_speculate::files`).
#![expect(unsafe_code, reason = "the program's own open, and stat structures")]

use core::ffi::CStr;

use forkless_run::{AbortKind, AbortReason};
use forkless_speculate::files::{self, Found, PROC, S_IFDIR, S_IFREG, S_IFSOCK, may_open};
use forkless_sys::{CPtr, Errno, fd};
use linux_raw_sys::general as k;

use crate::kernel::{self, Args};
use crate::proc;

use super::super::program_memory;
use super::{abort, fds, need, stack};

/// `open`, with the arguments of `openat`.
pub(crate) fn open(dir: usize, path: usize, flags: usize, mode: usize) -> isize {
    need::path_at(dir, path);
    let flags32 = flags as u32;
    if path == 0 {
        return -(Errno::EFAULT.raw() as isize);
    }
    let mut is_usable = false;
    if flags32 & k::O_PATH == 0 {
        let found = look(dir as i32, path, flags32 & k::O_NOFOLLOW).ok();
        let Some(usable) = may_open(flags32, found) else {
            abort(AbortReason::new(AbortKind::OpenFile, flags32))
        };
        is_usable = usable;
    }
    // SAFETY: the program's own open; the path is present.
    let answer = unsafe { kernel::pass(k::__NR_openat, &[dir, path, flags, mode, 0, 0]) };
    if answer >= 0 && flags32 & k::O_PATH != 0 && flags32 & k::O_NOFOLLOW == 0 {
        abort_if_ours(fd::identity(answer as i32, CPtr::from(c""), fd::AT_EMPTY_PATH));
    }
    fds::opened(answer, is_usable);
    answer
}

/// Finds what a path leads to, without opening it.
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
    // struct stat: dev, ino, nlink, then mode and uid in one word, gid and padding, rdev.
    let (mode, device) = (stat[3] as u32, stat[5]);
    let kind = statfs[0];
    let told = a == 0 && b == 0 && kind == PROC && files::kind(mode) == S_IFREG;
    let is_constant = told && is_constant(handle, (stat[0], stat[1]));
    let _ = fd::close(handle);
    if a != 0 || b != 0 {
        // A server of FUSE that does not know statfs (fs/fuse/inode.c, fuse_statfs) would see the
        // open.
        return Ok(Found::Other);
    }
    if kind == PROC {
        abort_if_ours(Ok((stat[0], stat[1])));
    }
    Ok(if is_constant { Found::Plain { is_usable: true } } else { Found::of(mode, device, kind) })
}

/// Whether a file of procfs says nothing of the process that reads it. Another file may have been
/// mounted over one that does not.
fn is_constant(handle: i32, identity: (u64, u64)) -> bool {
    let link = files::link_to(handle as u32);
    let mut path = [0u8; 64];
    let known = CStr::from_bytes_until_nul(&link)
        .ok()
        .and_then(|link| fd::readlinkat(fd::AT_FDCWD, CPtr::from(link), &mut path).ok())
        .and_then(|length| files::constant(path.get(..length)?));
    let Some(file) = known.and_then(|known| proc::open(known).ok()) else { return false };
    let same = fd::identity(file, CPtr::from(c""), fd::AT_EMPTY_PATH) == Ok(identity);
    let _ = fd::close(file);
    same
}

/// `connect` of a descriptor that the child has made. Where the socket's name leads nowhere, nobody
/// notices: so it is for libc's question to a name service that is not there.
pub(crate) fn connect(args: &Args) -> isize {
    /// `struct sockaddr_un` (unix(7)).
    const LONGEST: usize = 110;
    let [socket, address, length, ..] = *args;
    let give_up = || -> ! { abort(AbortReason::new(AbortKind::Call, k::__NR_connect)) };
    let length = length as u32 as usize;
    if address == 0 || length > LONGEST {
        give_up();
    }
    need::bytes(address, length);
    let mut bytes = [0u8; LONGEST];
    for (i, byte) in bytes.iter_mut().enumerate().take(length) {
        *byte = program_memory::byte(address + i);
    }
    let name = bytes.get(..length).and_then(files::socket_name);
    let is_socket = mode(socket as i32).is_ok_and(|mode| files::kind(mode) == S_IFSOCK);
    if name.is_none() || !is_socket {
        give_up();
    }
    let path = address + 2;
    need::path(path);
    match look(fd::AT_FDCWD, path, 0) {
        Err(Errno::ENOENT) => -(Errno::ENOENT.raw() as isize),
        _ => give_up(),
    }
}

fn mode(fd: i32) -> Result<u32, Errno> {
    let mut stat = [0u64; 18];
    // SAFETY: fstat fills in one struct stat of 144 bytes.
    let answer =
        unsafe { kernel::pass(k::__NR_fstat, &[fd as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    Errno::check(answer).map(|_| stat[3] as u32)
}

/// Aborts where a file is our descriptor's. A link of the program's may lead to it, of which no
/// name says so (`need::path`).
fn abort_if_ours(file: Result<(u64, u64), Errno>) {
    let ours = fds::hidden().map(|ours| fd::identity(ours, CPtr::from(c""), fd::AT_EMPTY_PATH));
    if file.is_ok() && ours == Some(file) {
        abort(AbortKind::Collision);
    }
}

/// After a call that names a file: aborts where the answer may come from our file.
pub(crate) fn abort_if_answer_is_ours(dir: usize, path: usize, answer: isize) {
    const TOLD: [i32; 3] = [0, Errno::EACCES.raw(), Errno::ENOTDIR.raw()];
    if path != 0 && TOLD.contains(&(-answer as i32)) && fds::hidden().is_some() {
        // SAFETY: the caller has made the string present.
        let path = unsafe { CPtr::from_raw(path as *const _) };
        abort_if_ours(fd::identity(dir as i32, path, 0));
    }
}

/// After a call that describes a file, in the structure at `at`. Since Linux 6.2 the size of a
/// directory of descriptors is their number (fs/proc/fd.c). Ours is taken from it.
pub(crate) fn counted(nr: u32, at: usize, answer: isize) {
    if answer != 0 {
        return;
    }
    // struct statx: mode at 28, inode at 32, size at 40, the device's minor number at 140.
    //
    // struct stat: device, inode, mode at 24, size at 48.
    let extended = nr == k::__NR_statx;
    let (mode, size) = if extended { (at + 28, at + 40) } else { (at + 24, at + 48) };
    let count = program_memory::value::<u64>(size);
    let kind = files::kind(program_memory::value::<u16>(mode).into());
    // Our file is empty.
    if !(kind == S_IFDIR && count != 0 || kind == S_IFREG && count == 0) {
        return;
    }
    let (device, inode) = if extended {
        let minor = program_memory::value::<u32>(at + 140);
        (u64::from(minor & 0xff | (minor & !0xff) << 12), program_memory::value::<u64>(at + 32))
    } else {
        (program_memory::value::<u64>(at), program_memory::value::<u64>(at + 8))
    };
    if kind == S_IFREG {
        abort_if_ours(Ok((device, inode)));
        return;
    }
    let ours = fds::hidden().and_then(|ours| fd::identity(ours, CPtr::from(c""), fd::AT_EMPTY_PATH).ok());
    if ours.is_some_and(|(proc, _)| proc == device) {
        if fd::identity(fd::AT_FDCWD, CPtr::from(c"/proc/self/fd"), 0) != Ok((device, inode)) {
            // Another process's directory, which may list our file as well.
            abort(AbortReason::new(AbortKind::Call, nr));
        }
        program_memory::store(size, count - 1);
    }
}

/// `getdents64` of a directory the child opened, without our descriptor where the directory lists
/// descriptors.
pub(crate) fn getdents64(args: &Args) -> isize {
    let [dir, buffer, size, ..] = *args;
    need::bytes(buffer, size);
    loop {
        let answer = stack::pass(k::__NR_getdents64, args);
        if answer <= 0 || !lists_descriptors(dir) {
            return answer;
        }
        let Some(ours) = fds::hidden() else { return answer };
        // SAFETY: the kernel has just written these bytes of the program's buffer. The child has
        // one thread.
        let entries = unsafe { core::slice::from_raw_parts_mut(buffer as *mut u8, answer as usize) };
        let left = files::hide(entries, ours);
        // An empty answer would be the end of the directory.
        if left > 0 {
            return left as isize;
        }
    }
}

/// Whether a directory is some process's `fd` or `fdinfo`, wherever its procfs is mounted. Aborts
/// where that cannot be told.
fn lists_descriptors(dir: usize) -> bool {
    if fd::file_system(dir as i32) != Ok(k::PROC_SUPER_MAGIC.into()) {
        return false;
    }
    let link = files::link_to(dir as u32);
    let mut target = [0u8; 64];
    let args = [link.as_ptr() as usize, target.as_mut_ptr() as usize, target.len(), 0, 0, 0];
    // SAFETY: reads a link's text into a buffer of that length.
    let len = unsafe { kernel::pass(k::__NR_readlink, &args) };
    match usize::try_from(len) {
        Ok(len) if len < target.len() => {
            target[..len].ends_with(b"/fd") || target[..len].ends_with(b"/fdinfo")
        }
        // Another root, or a long name.
        _ => abort(AbortReason::new(AbortKind::Call, k::__NR_getdents64)),
    }
}
