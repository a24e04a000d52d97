//! Waiting for descriptors, whatever the limit on their number.

use forkless_sys::poll::{self, POLLIN, POLLOUT, PollFd};
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, Result};
use std::time::Duration;

/// As [`poll::poll`], and also for more entries than `RLIMIT_NOFILE` allows now.
///
/// The kernel refuses that (poll(2), EINVAL): a program may lower the limit to 0 with many open.
pub(crate) fn poll(fds: &mut [PollFd], timeout: Option<Timespec>) -> Result<usize> {
    match poll::poll(fds, timeout) {
        Err(Errno::EINVAL) => select(fds, timeout),
        answer => answer,
    }
}

/// A duration as the kernel takes it.
pub(crate) fn timespec(d: Duration) -> Timespec {
    Timespec { tv_sec: d.as_secs().min(i64::MAX as u64) as i64, tv_nsec: i64::from(d.subsec_nanos()) }
}

fn select(fds: &mut [PollFd], timeout: Option<Timespec>) -> Result<usize> {
    let highest = fds.iter().map(|entry| entry.fd).max().unwrap_or(-1).max(-1);
    let words = (highest + 1) as usize / 64 + 1;
    let (mut readable, mut writable) = (vec![0u64; words], vec![0u64; words]);
    let place = |fd: i32| (fd as usize / 64, 1u64 << (fd % 64));
    for entry in fds.iter_mut() {
        entry.revents = 0;
        if entry.fd >= 0 {
            let (word, bit) = place(entry.fd);
            readable[word] |= if entry.events & POLLIN != 0 { bit } else { 0 };
            writable[word] |= if entry.events & POLLOUT != 0 { bit } else { 0 };
        }
    }
    poll::select(highest + 1, &mut readable, &mut writable, timeout)?;
    for entry in fds.iter_mut().filter(|entry| entry.fd >= 0) {
        let (word, bit) = place(entry.fd);
        // An end and an error count as readable and as writable (POLLIN_SET and POLLOUT_SET,
        // fs/select.c).
        entry.revents |= if readable[word] & bit != 0 { entry.events & POLLIN } else { 0 };
        entry.revents |= if writable[word] & bit != 0 { entry.events & POLLOUT } else { 0 };
    }
    Ok(fds.iter().filter(|entry| entry.revents != 0).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn select_says_what_poll_says() {
        let (empty, keep) = std::io::pipe().unwrap();
        let (full, mut filled) = std::io::pipe().unwrap();
        let (gone, _) = std::io::pipe().unwrap();
        filled.write_all(b"x").unwrap();
        let entry = |fd: i32, events| PollFd { fd, events, revents: 0 };
        let make = || {
            vec![
                entry(empty.as_raw_fd(), POLLIN),
                entry(-1, POLLIN),
                entry(full.as_raw_fd(), POLLIN),
                entry(gone.as_raw_fd(), POLLIN),
                entry(keep.as_raw_fd(), POLLOUT),
            ]
        };
        let ready = |fds: &[PollFd]| fds.iter().map(|entry| entry.revents != 0).collect::<Vec<_>>();
        let (mut one, mut other) = (make(), make());
        assert_eq!(select(&mut one, None), poll::poll(&mut other, None));
        assert_eq!(ready(&one), ready(&other));
        assert_eq!(ready(&one), [false, false, true, true, true]);
        let mut none = [entry(empty.as_raw_fd(), POLLIN)];
        assert_eq!(select(&mut none, Some(Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0));
    }
}
