//! Descriptors, files, terminals and waiting, each by what the kernel does with the arguments.
#![expect(unsafe_code, reason = "a raw address, and hooks between fork and exec")]

mod common;

use core::ffi::CStr;
use core::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;

use common::{in_child, must};
use forkless_sys::poll::{self, EpollEvent, POLLIN, PollFd};
use forkless_sys::time::{self, Timespec};
use forkless_sys::{Errno, fd, process};

const FD_CLOEXEC: u32 = 1;

#[test]
fn a_descriptor_is_moved_copied_marked_and_closed() {
    let (read, write) = fd::pipe2(fd::O_CLOEXEC).unwrap();
    assert_eq!(fd::dup3(read, read, 0), Err(Errno::EINVAL));
    let copy = fd::dup_cloexec(write, 50).unwrap();
    assert!(copy >= 50);
    fd::dup3(write, copy, 0).unwrap();
    assert_eq!((fd::get_fd_flags(write), fd::get_fd_flags(copy)), (Ok(FD_CLOEXEC), Ok(0)));
    if fd::have_one_description(write, copy) != Err(Errno::ENOSYS) {
        assert_eq!(fd::have_one_description(write, copy), Ok(true));
        assert_eq!(fd::have_one_description(write, read), Ok(false));
        assert_eq!(fd::have_one_description(write, -1), Err(Errno::EBADF));
    }
    fd::set_cloexec(copy, true).unwrap();
    assert_eq!(fd::get_fd_flags(copy), Ok(FD_CLOEXEC));
    assert_eq!(fd::write(copy, b"abc"), Ok(3));
    let mut buf = [0; 2];
    assert_eq!((fd::read(read, &mut buf), &buf), (Ok(2), b"ab"));
    assert_eq!(fd::read(read, &mut buf), Ok(1));
    fd::set_status_flags(read, fd::get_status_flags(read).unwrap() | fd::O_NONBLOCK).unwrap();
    assert_eq!(fd::read(read, &mut buf), Err(Errno::EAGAIN));
    fd::close(write).unwrap();
    fd::close(copy).unwrap();
    // A child that another test makes meanwhile has the writers until it ends.
    let mut hung_up = [PollFd { fd: read, events: 0, revents: 0 }];
    assert_eq!(poll::poll(&mut hung_up, Some(Timespec { tv_sec: 60, tv_nsec: 0 })), Ok(1));
    assert_eq!(fd::read(read, &mut buf), Ok(0), "no writer is left");
    assert_eq!(fd::position(read), Err(Errno::ESPIPE));
    fd::close(read).unwrap();
    assert_eq!(fd::get_fd_flags(-1), Err(Errno::EBADF));
}

#[test]
fn a_range_is_closed_or_marked() {
    in_child(|| {
        fd::dup3(1, 100, 0)?;
        fd::dup3(1, 101, 0)?;
        match fd::close_range(101, 101, fd::CLOSE_RANGE_CLOEXEC) {
            Ok(()) => must(fd::get_fd_flags(101) == Ok(FD_CLOEXEC))?,
            Err(e) => must(e == Errno::EINVAL)?, // before Linux 5.11
        }
        fd::close_range(100, 100, 0)?;
        must(fd::get_fd_flags(100) == Err(Errno::EBADF) && fd::get_fd_flags(101).is_ok())
    });
}

#[test]
fn files_are_opened_identified_and_listed() {
    let missing = fd::openat(fd::AT_FDCWD, c"/nonexistent".into(), fd::O_RDONLY, 0);
    assert_eq!(missing, Err(Errno::ENOENT));
    let proc = fd::openat(fd::AT_FDCWD, c"/proc".into(), fd::O_PATH | fd::O_CLOEXEC, 0).unwrap();
    assert_eq!(fd::file_system(proc), Ok(i64::from(linux_raw_sys::general::PROC_SUPER_MAGIC)));
    let (device, inode, mode) = process::stat(c"/proc".into()).unwrap();
    assert_eq!(mode & 0o170_000, 0o040_000, "a directory");
    assert_eq!(fd::identity(proc, c"".into(), fd::AT_EMPTY_PATH), Ok((device, inode)));
    assert_ne!(fd::identity(fd::AT_FDCWD, c"/".into(), 0), Ok((device, inode)));
    match fd::open_below(proc, c"self/status".into(), fd::O_RDONLY | fd::O_CLOEXEC) {
        Ok(file) => fd::close(file).unwrap(),
        Err(e) => assert!(matches!(e, Errno::ENOSYS | Errno::EPERM), "{e}"), // an old kernel, a container's filter
    }
    assert!(fd::open_below(proc, c"self/root/etc".into(), fd::O_RDONLY).is_err(), "another mount");
    let mut text = [0; 32];
    let long = fd::readlinkat(proc, c"self/ns/pid".into(), &mut text).unwrap();
    assert!(text[..long].starts_with(b"pid:["));

    let dir = fd::openat(proc, c"self".into(), fd::O_DIRECTORY | fd::O_CLOEXEC, 0).unwrap();
    let mut buf = [const { MaybeUninit::uninit() }; 2048];
    let entries = fd::getdents64(dir, &mut buf).unwrap();
    let length = usize::from(u16::from_ne_bytes([entries[16], entries[17]]));
    assert_eq!(CStr::from_bytes_until_nul(&entries[19..length]), Ok(c"."));
    fd::close(dir).unwrap();
    fd::close(proc).unwrap();

    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let created =
        file.metadata().unwrap().created().map_or(0, |at| {
            u64::try_from(at.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()).unwrap()
        });
    assert_eq!(fd::birth(file.as_raw_fd()), Ok(created));
    assert_eq!(fd::birth(std::io::pipe().unwrap().0.as_raw_fd()), Ok(0));
    let mut magic = [0; 3];
    // SAFETY: three bytes that no other reference covers.
    assert_eq!(unsafe { fd::pread_raw(file.as_raw_fd(), magic.as_mut_ptr(), 3, 1) }, Ok(3));
    assert_eq!((&magic, fd::position(file.as_raw_fd())), (b"ELF", Ok(0)));
}

#[test]
fn a_new_session_gets_a_terminal_and_a_foreground_group() {
    in_child(|| {
        process::setsid()?;
        let (pipe, _) = fd::pipe2(fd::O_CLOEXEC)?;
        must(fd::set_controlling_terminal(pipe, false) == Err(Errno::ENOTTY))?;
        let Ok(terminal) = fd::openat(fd::AT_FDCWD, c"/dev/ptmx".into(), fd::O_RDWR, 0) else {
            return Ok(());
        };
        must(fd::set_foreground_group(terminal, process::getpgrp()) == Err(Errno::ENOTTY))?;
        fd::set_controlling_terminal(terminal, false)?;
        fd::set_foreground_group(terminal, process::getpgrp())?;
        must(fd::set_foreground_group(terminal, 1) == Err(Errno::EPERM)) // a group of another session
    });
}

#[test]
fn poll_select_and_epoll_tell_the_descriptor_that_is_ready() {
    let (read, write) = fd::pipe2(fd::O_CLOEXEC).unwrap();
    let mut fds = [PollFd { fd: read, events: POLLIN, revents: 0 }];
    assert_eq!(poll::poll(&mut fds, Some(Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0));
    fd::write(write, b"x").unwrap();
    assert_eq!((poll::poll(&mut fds, None), fds[0].revents), (Ok(1), POLLIN));

    let number = usize::try_from(read).unwrap();
    let mut set = vec![0u64; number / 64 + 1];
    set[number / 64] |= 1 << (number % 64);
    let mut none = vec![0; set.len()];
    assert_eq!(poll::select(read + 1, &mut set, &mut none, None), Ok(1));
    assert_eq!(set[number / 64], 1 << (number % 64));

    let epoll = poll::epoll_create().unwrap();
    poll::epoll_add(epoll, read, 7).unwrap();
    let mut events = [EpollEvent { events: 0, data: 0 }; 4];
    assert_eq!((poll::epoll_wait(epoll, &mut events), { events[0].data }), (Ok(1), 7));
    for n in [epoll, read, write] {
        fd::close(n).unwrap();
    }
}

#[test]
fn a_timerfd_is_readable_after_its_time() {
    let timer = time::timerfd().unwrap();
    time::arm_timerfd(timer, Timespec { tv_sec: 0, tv_nsec: 1_000_000 }).unwrap();
    let mut fds = [PollFd { fd: timer, events: POLLIN, revents: 0 }];
    assert_eq!(poll::poll(&mut fds, None), Ok(1));
    time::arm_timerfd(timer, Timespec { tv_sec: 1000, tv_nsec: 0 }).unwrap();
    assert_eq!(fd::read(timer, &mut [0; 8]), Err(Errno::EAGAIN), "the earlier expiry is forgotten");
    fd::close(timer).unwrap();
}

#[test]
fn a_pidfd_gives_a_copy_of_a_descriptor() {
    let (read, write) = fd::pipe2(fd::O_CLOEXEC).unwrap();
    let pidfd = process::pidfd_open(process::getpid()).unwrap();
    match fd::pidfd_getfd(pidfd, write) {
        Ok(copy) => {
            assert_eq!((fd::write(copy, b"x"), fd::read(read, &mut [0])), (Ok(1), Ok(1)));
            fd::close(copy).unwrap();
        }
        Err(e) => println!("skipped: pidfd_getfd: {e}"), // a container's filter
    }
    for n in [pidfd, read, write] {
        fd::close(n).unwrap();
    }
}
