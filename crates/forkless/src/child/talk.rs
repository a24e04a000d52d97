//! Talking with a child: input in, output out, however large, without deadlock, within limits and a
//! deadline.

use super::handle::Child;
use crate::error::{SpawnError, Step, WaitError};
use crate::kernel::poll::{poll, timespec};
use forkless_sys::poll::{POLLIN, POLLOUT, PollFd};
use forkless_sys::signal::{self, Disposition, SIGPIPE, SigSet};
use forkless_sys::{Errno, fd};
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::{ExitStatus, Output};
use std::time::{Duration, Instant};

/// Why a conversation ended.
///
/// ```
/// use forkless::{Command, End};
/// let (_, said) = Command::new("yes").communicate().limit(100).run().unwrap();
/// assert_eq!(said.end, End::Limit);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum End {
    /// The child ended, and every pipe with it.
    Complete,
    /// The child ended, but another process kept a pipe open for longer than
    /// [`Communicate::linger`](crate::Communicate::linger).
    Lingered,
    /// The deadline passed: the child was killed if it still ran.
    Deadline,
    /// A stream was longer than its limit: the child was killed.
    Limit,
    /// The callback asked to stop: the child was killed.
    Stopped,
}

/// A child's output, and how the conversation ended.
///
/// ```
/// use forkless::Command;
/// let (status, said) =
///     Command::new("sh").args(["-c", "echo a; echo b >&2"]).communicate().run().unwrap();
/// assert!(status.success());
/// assert_eq!((said.stdout, said.stderr), (b"a\n".to_vec(), b"b\n".to_vec()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Conversation {
    /// Its output to standard output, as far as it was captured.
    pub stdout: Vec<u8>,
    /// Its output to standard error.
    pub stderr: Vec<u8>,
    /// Its output to other numbers.
    pub others: Vec<(RawFd, Vec<u8>)>,
    /// How it ended.
    pub end: End,
}

type Callback<'a> = Box<dyn FnMut(RawFd, &[u8]) -> ControlFlow<()> + 'a>;

/// How to talk with a child.
#[derive(Default)]
pub(crate) struct Talk<'a> {
    pub input: Option<&'a [u8]>,
    pub limit: Option<usize>,
    pub timeout: Option<Duration>,
    pub linger: Option<Duration>,
    pub on_chunk: Option<Callback<'a>>,
    pub on_line: Option<Callback<'a>>,
    pub merged: bool,
    pub also: Vec<RawFd>,
    pub kill_group: bool,
}

impl Child {
    /// Closes standard input, collects standard output and error where they are pipes, and waits.
    /// Every other pipe that was not taken is closed.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn().unwrap();
    /// assert_eq!(child.wait_with_output().unwrap().stdout, b"hi\n");
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait`], and those of poll(2) and fcntl(2); `OutOfMemory` for output that does
    /// not fit. After an error the handle is dropped: [`OnDrop`](crate::OnDrop) says what becomes of
    /// the child.
    pub fn wait_with_output(mut self) -> Result<Output, SpawnError> {
        Ok(output(converse(&mut self, &mut Talk::default(), None)?))
    }

    /// As [`Child::wait_with_output`], for a child that its caller does not know.
    pub(crate) fn into_output(self) -> Result<Output, SpawnError> {
        converse_to_the_end(self, &mut Talk::default(), None).map(output)
    }
}

fn output((status, said): (ExitStatus, Conversation)) -> Output {
    Output { status, stdout: said.stdout, stderr: said.stderr }
}

struct Stream {
    number: RawFd,
    fd: Option<OwnedFd>,
    kept: Vec<u8>,
}

/// How many bytes are read at once. A pipe holds 64 KiB by default (`pipe(7)`).
const PIECE: usize = 64 * 1024;

/// Between two looks at the child where nothing tells of its end.
const LOOK: Duration = Duration::from_millis(20);

/// A child that the caller of a talk does not know.
struct Unknown {
    child: Child,
    group: bool,
    /// The talk has ended as it should.
    done: bool,
}

impl Drop for Unknown {
    /// After an error, or a panic of the callback.
    fn drop(&mut self) {
        if !self.done && !self.child.is_over() {
            let _ = kill_and_reap(&mut self.child, self.group);
        }
    }
}

/// Talks with a child that its caller does not know, until both are done. After an error it is
/// killed and waited for, unless it may not be killed: then it is reaped when it ends.
pub(crate) fn converse_to_the_end(
    child: Child,
    how: &mut Talk<'_>,
    deadline: Option<Instant>,
) -> Result<(ExitStatus, Conversation), SpawnError> {
    let mut unknown = Unknown { child, group: how.kill_group, done: false };
    let said = converse(&mut unknown.child, how, deadline)?;
    unknown.done = true;
    Ok(said)
}

/// Talks with a child until both are done.
fn converse(
    child: &mut Child,
    how: &mut Talk<'_>,
    deadline: Option<Instant>,
) -> Result<(ExitStatus, Conversation), SpawnError> {
    let mut streams: Vec<Stream> = Vec::new();
    let mut stream = |number, fd| streams.push(Stream { number, fd: Some(fd), kept: Vec::new() });
    if let Some(fd) = child.stdout.take() {
        stream(1, fd.into());
    }
    if let Some(fd) = child.stderr.take() {
        stream(2, fd.into());
    }
    for n in &how.also {
        if let Some(fd) = child.take_pipe(*n) {
            stream(*n, fd);
        }
    }
    let mut input = how.input.unwrap_or_default();
    let mut to_child: Option<OwnedFd> = child.stdin.take().map(OwnedFd::from).filter(|_| !input.is_empty());
    // Nobody can take the rest any more: see `close_pipes`.
    child.close_pipes();
    for fd in streams.iter().filter_map(|s| s.fd.as_ref()).chain(&to_child) {
        nonblocking(fd)?;
    }
    let mut buf = Vec::new();
    grow(&mut buf, PIECE)?;
    buf.resize(PIECE, 0u8);
    let mut ended_at = None;
    let end = 'talk: loop {
        let open = streams.iter().any(|s| s.fd.is_some()) || to_child.is_some();
        if !open {
            break End::Complete;
        }
        let linger_until = ended_at.and_then(|at: Instant| how.linger.and_then(|l| at.checked_add(l)));
        let until = match (deadline, linger_until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let left = until.map(|u| u.saturating_duration_since(Instant::now()));
        if left.is_some_and(|l| l.is_zero()) {
            break if linger_until.is_some() && until == linger_until {
                End::Lingered
            } else {
                End::Deadline
            };
        }
        let mut fds: Vec<PollFd> = streams
            .iter()
            .map(|s| s.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd))
            .map(|fd| entry(fd, POLLIN))
            .collect();
        fds.push(entry(to_child.as_ref().map_or(-1, AsRawFd::as_raw_fd), POLLOUT));
        // Only to know since when to linger. Without that, the end of the pipes says all.
        let watched = (how.linger.is_some() && ended_at.is_none())
            .then(|| child.pidfd().map(|f| f.as_raw_fd()))
            .flatten();
        fds.push(entry(watched.unwrap_or(-1), POLLIN));
        // Where pidfds are refused, the child is looked at from time to time.
        let looks = how.linger.is_some() && ended_at.is_none() && watched.is_none();
        let left = if looks { Some(left.map_or(LOOK, |l| l.min(LOOK))) } else { left };
        match poll(&mut fds, left.map(timespec)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(SpawnError::at(Step::Wait, "the child's pipes", e)),
        }
        if fds[streams.len() + 1].revents != 0 || (looks && !matches!(child.try_wait(), Ok(None))) {
            ended_at = Some(Instant::now());
        }
        if let Some(fd) = to_child.as_ref().filter(|_| fds[streams.len()].revents != 0) {
            match write_quietly(fd.as_raw_fd(), &input[..input.len().min(PIECE)]) {
                Ok(n) => input = &input[n..],
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                // EPIPE: the child does not want the rest.
                Err(_) => input = &[],
            }
            if input.is_empty() {
                to_child = None;
            }
        }
        for (s, p) in streams.iter_mut().zip(&fds) {
            let Some(fd) = s.fd.as_ref().filter(|_| p.revents != 0) else { continue };
            match fd::read(fd.as_raw_fd(), &mut buf) {
                Ok(0) => s.fd = None,
                Ok(n) => {
                    if let Some(end) = take_in(s, &buf[..n], how)? {
                        break 'talk end;
                    }
                }
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(_) => s.fd = None,
            }
        }
    };
    finish(child, streams, how, deadline, end)
}

fn entry(fd: RawFd, events: i16) -> PollFd {
    // poll(2) passes a negative number over.
    PollFd { fd, events, revents: 0 }
}

/// Makes room for more bytes. Output that does not fit is an error of the talk; a failed allocation
/// would end the program.
pub(crate) fn grow(kept: &mut Vec<u8>, by: usize) -> Result<(), SpawnError> {
    // And a byte more: the C library adds a NUL.
    let by = by.saturating_add(1);
    kept.try_reserve(by)
        .or_else(|_| kept.try_reserve_exact(by))
        .map_err(|_| SpawnError::at(Step::Wait, "memory for the child's output", Errno::ENOMEM))
}

/// Adds a piece to its stream, or hands it to the callback.
fn take_in(s: &mut Stream, piece: &[u8], how: &mut Talk<'_>) -> Result<Option<End>, SpawnError> {
    if let Some(f) = &mut how.on_chunk {
        return Ok(f(s.number, piece).is_break().then_some(End::Stopped));
    }
    let searched = s.kept.len();
    grow(&mut s.kept, piece.len())?;
    s.kept.extend_from_slice(piece);
    if let Some(f) = &mut how.on_line {
        let mut done = 0;
        while let Some(at) = s.kept[done.max(searched)..].iter().position(|b| *b == b'\n') {
            let at = done.max(searched) + at;
            let line = &s.kept[done..at];
            let over = how.limit.is_some_and(|limit| line.len() > limit);
            if over || f(s.number, line).is_break() {
                s.kept.clear();
                return Ok(Some(if over { End::Limit } else { End::Stopped }));
            }
            done = at + 1;
        }
        s.kept.drain(..done);
        if how.limit.is_some_and(|limit| s.kept.len() > limit) {
            // This is not a line, and must not be taken for the last one.
            s.kept.clear();
            return Ok(Some(End::Limit));
        }
    }
    Ok(match how.limit {
        Some(limit) if s.kept.len() > limit => {
            s.kept.truncate(limit);
            Some(End::Limit)
        }
        _ => None,
    })
}

fn finish(
    child: &mut Child,
    mut streams: Vec<Stream>,
    how: &mut Talk<'_>,
    deadline: Option<Instant>,
    mut end: End,
) -> Result<(ExitStatus, Conversation), SpawnError> {
    // Before its pipes are closed: the child is to end by this signal, and not by SIGPIPE.
    if matches!(end, End::Deadline | End::Limit | End::Stopped) {
        kill_and_reap(child, how.kill_group)?;
    }
    for s in &mut streams {
        // Closed before the wait: a child that still writes gets EPIPE instead of blocking for
        // ever.
        s.fd = None;
        let Some(f) = &mut how.on_line else { continue };
        let last = std::mem::take(&mut s.kept);
        // A callback that has asked to stop is not called again.
        if !last.is_empty() && end != End::Stopped && f(s.number, &last).is_break() && end != End::Deadline {
            end = End::Stopped;
            kill_and_reap(child, how.kill_group)?;
        }
    }
    let status = match end {
        // The child may have closed its pipes and live on.
        End::Complete => match child.wait_until(deadline) {
            Err(WaitError::Deadline) => {
                end = End::Deadline;
                kill_and_reap(child, how.kill_group)?
            }
            other => other?,
        },
        End::Lingered | End::Deadline | End::Limit | End::Stopped => child.wait()?,
    };
    let mut said = Conversation { stdout: Vec::new(), stderr: Vec::new(), others: Vec::new(), end };
    for s in streams {
        match s.number {
            1 => said.stdout = s.kept,
            2 => said.stderr = s.kept,
            n => said.others.push((n, s.kept)),
        }
    }
    Ok((status, said))
}

fn kill_and_reap(child: &mut Child, group: bool) -> Result<ExitStatus, WaitError> {
    if group {
        let _ = child.kill_group();
    }
    child.kill_and_reap()
}

fn nonblocking(fd: &OwnedFd) -> Result<(), SpawnError> {
    // The parent's end is an open file description of its own: the child's end keeps blocking.
    let flags = fd::get_status_flags(fd.as_raw_fd()).map_err(|e| SpawnError::at(Step::Pipe, "flags", e))?;
    fd::set_status_flags(fd.as_raw_fd(), flags | fd::O_NONBLOCK)
        .map_err(|e| SpawnError::at(Step::Pipe, "flags", e))
}

/// write(2) without SIGPIPE, which would kill a C program that uses this library.
fn write_quietly(to: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    if signal::disposition(SIGPIPE) == Ok(Disposition::Ignore) {
        return fd::write(to, bytes);
    }
    let old = signal::mask()?;
    let was_pending = signal::pending()?.has(SIGPIPE);
    signal::set_mask(old.with(SIGPIPE))?;
    let written = fd::write(to, bytes);
    if written == Err(Errno::EPIPE) && !was_pending {
        // The signal is this thread's own: the kernel sends it to the writer.
        let _ = signal::take_pending(SigSet::EMPTY.with(SIGPIPE));
    }
    signal::set_mask(old)?;
    written
}
