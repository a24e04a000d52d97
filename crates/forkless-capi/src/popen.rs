//! `forkless_popen` and `forkless_pclose`: popen(3) and pclose(3).
//!
//! POSIX wants the streams of earlier calls closed in the child, and without `e` those streams are
//! inheritable. The module `streams` knows them, and the calls under way.
#![expect(unsafe_code, reason = "exported C symbols; stdio streams")]

use crate::atfork;
use crate::error::Failure;
use crate::ffi::Text;
use crate::guard::{as_libc, memory_for, set_errno};
use crate::shell_line;
use crate::streams::{SPAWNED, Stream, begin, identity, streams};
use forkless::Stdio;
use libc::{FILE, c_int};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::sync::PoisonError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mode {
    /// Whether the caller reads.
    read: bool,
    cloexec: bool,
}

/// Exactly one of `r` and `w`, and any `e`, in any order, as glibc takes them.
fn parse(mode: &CStr) -> Option<Mode> {
    let has = |c| mode.to_bytes().contains(&c);
    let known = mode.to_bytes().iter().all(|c| b"rwe".contains(c));
    (known && has(b'r') != has(b'w')).then(|| Mode { read: has(b'r'), cloexec: has(b'e') })
}

fn last_error() -> Failure {
    io::Error::last_os_error().into()
}

/// A stream on a pipe end, which it owns from then on.
pub(crate) fn fdopen(end: OwnedFd, read: bool) -> Result<*mut FILE, Failure> {
    let mode = if read { c"r" } else { c"w" };
    // SAFETY: an open descriptor and a valid mode.
    let file = unsafe { libc::fdopen(end.as_raw_fd(), mode.as_ptr()) };
    if file.is_null() {
        return Err(last_error());
    }
    // The stream owns it now.
    let _ = end.into_raw_fd();
    Ok(file)
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_popen(line: Text<'_>, mode: Text<'_>) -> *mut FILE {
    if !memory_for(line) {
        set_errno(libc::ENOMEM);
        return null_mut();
    }
    as_libc(null_mut(), || {
        let line = line.get().ok_or_else(|| Failure::null("command"))?;
        let mode = mode.get().and_then(parse);
        let mode =
            mode.ok_or_else(|| Failure::plain(libc::EINVAL, "the mode is not r or w, with or without e"))?;
        open(line, mode)
    })
}

fn open(line: &CStr, mode: Mode) -> Result<*mut FILE, Failure> {
    atfork::register();
    let (ticket, close) = begin();
    let mut line = shell_line::line(line);
    for fd in close {
        line.close_descriptor(fd);
    }
    // Where this process has no standard streams, an earlier stream may have this number: the new
    // stream takes it.
    if mode.read {
        line.stdout(Stdio::piped());
    } else {
        line.stdin(Stdio::piped());
    }
    let mut child = line.spawn()?;
    let end: Option<OwnedFd> =
        if mode.read { child.stdout.take().map(Into::into) } else { child.stdin.take().map(Into::into) };
    let end = end.ok_or_else(|| Failure::plain(libc::EIO, "no pipe was made"))?;
    let fd = end.as_raw_fd();
    let pipe = identity(fd).ok_or_else(last_error)?;
    let file = fdopen(end, mode.read)?;
    let id = ticket.0;
    drop(ticket);
    let mut s = streams();
    // An earlier stream with this address was closed by fclose. The drop of its child, which reaps
    // it, comes outside the lock.
    let of_before = |o: &Stream| o.file == file as usize && o.child.is_some();
    let (stale, open): (Vec<Stream>, _) = std::mem::take(&mut s.open).into_iter().partition(of_before);
    s.open = open;
    s.open.push(Stream { id, file: file as usize, fd, pipe, child: Some(child) });
    if !mode.cloexec {
        // Calls that begin from here on know of the stream. Earlier calls may be about to copy the
        // table, and must not find it inheritable: their child would keep the pipe open.
        let until = s.next;
        s.waiters += 1;
        while s.spawning.iter().any(|t| *t < until) {
            s = SPAWNED.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
        s.waiters -= 1;
        drop(s);
        // SAFETY: clears the flag of a descriptor that the stream just made owns.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    } else {
        drop(s);
    }
    drop(stale);
    Ok(file)
}

/// See `forkless.h`.
///
/// # Safety
/// The stream was not closed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_pclose(file: *mut FILE) -> c_int {
    as_libc(-1, || {
        let found = streams()
            .open
            .iter_mut()
            .filter(|o| o.file == file as usize)
            .find_map(|o| o.child.take().map(|child| (o.id, child)));
        let Some((id, mut child)) = found else {
            return Err(Failure::plain(libc::EINVAL, "the stream is not from forkless_popen"));
        };
        // Before it leaves the list: a child made meanwhile would otherwise keep the pipe open.
        // SAFETY: handed out by `forkless_popen`, and closed once, since its child was still there.
        unsafe { libc::fclose(file) };
        streams().open.retain(|o| o.id != id);
        Ok(child.wait()?.into_raw())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_glibc() {
        let mode = |read, cloexec| Some(Mode { read, cloexec });
        assert_eq!(parse(c"r"), mode(true, false));
        assert_eq!(parse(c"w"), mode(false, false));
        assert_eq!(parse(c"re"), mode(true, true));
        assert_eq!(parse(c"ew"), mode(false, true));
        for bad in [c"", c"e", c"rw", c"r+", c"a", c"rb"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
