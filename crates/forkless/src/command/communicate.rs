//! Talking to a child: input in, output out, however large, without deadlock, within limits and a deadline.

use crate::child::handle::{Child, timespec};
use crate::command::builder::{Command, Defaults, start_planned};
use crate::error::{SpawnError, Step, WaitError};
use crate::kernel::poll as ready;
use crate::spec::stdio::Stdio;
use crate::start::attempt::Until;
use forkless_sys::poll::{POLLIN, POLLOUT, PollFd};
use forkless_sys::signal::{self, Disposition, SigSet};
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
    /// The child ended, but somebody else kept a pipe open for longer than [`Communicate::linger`].
    Lingered,
    /// The deadline passed: the child was killed if it still ran.
    Deadline,
    /// A stream was longer than its limit: the child was killed.
    Limit,
    /// The callback asked to stop: the child was killed.
    Stopped,
}

/// What a child wrote, and how the conversation ended.
///
/// ```
/// use forkless::Command;
/// let (status, said) = Command::new("sh").args(["-c", "echo a; echo b >&2"]).communicate().run().unwrap();
/// assert!(status.success());
/// assert_eq!((said.stdout, said.stderr), (b"a\n".to_vec(), b"b\n".to_vec()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Conversation {
    /// What it wrote to standard output, as far as it was captured.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// What it wrote to other numbers.
    pub others: Vec<(RawFd, Vec<u8>)>,
    /// How it ended.
    pub end: End,
}

type Callback<'a> = Box<dyn FnMut(RawFd, &[u8]) -> ControlFlow<()> + 'a>;

/// A conversation to be had with a child; made by [`Command::communicate`].
///
/// ```
/// use forkless::{Command, End};
/// use std::time::Duration;
/// let mut cmd = Command::new("sh");
/// cmd.args(["-c", "cat; echo oops >&2; sleep 1 &"]);
/// let (status, said) = cmd
///     .communicate()
///     .input(b"to be echoed")
///     .timeout(Duration::from_secs(10))
///     .linger(Duration::from_millis(50)) // the sleep keeps the pipes open
///     .run()
///     .unwrap();
/// assert!(status.success());
/// assert_eq!(said.stdout, b"to be echoed");
/// assert_eq!(said.stderr, b"oops\n");
/// assert_eq!(said.end, End::Lingered);
/// ```
pub struct Communicate<'a> {
    command: &'a mut Command,
    how: How<'a>,
}

#[derive(Default)]
struct How<'a> {
    input: Option<&'a [u8]>,
    limit: Option<usize>,
    timeout: Option<Duration>,
    linger: Option<Duration>,
    on_chunk: Option<Callback<'a>>,
    on_line: Option<Callback<'a>>,
    merged: bool,
    also: Vec<RawFd>,
    kill_group: bool,
}

impl Command {
    /// A conversation: what [`Command::output`] does, with input, limits, a deadline and streaming.
    ///
    /// ```
    /// use forkless::Command;
    /// let (_, said) = Command::new("cat").communicate().input("hello").run().unwrap();
    /// assert_eq!(said.stdout, b"hello");
    /// ```
    pub fn communicate(&mut self) -> Communicate<'_> {
        Communicate { command: self, how: How::default() }
    }
}

impl<'a> Communicate<'a> {
    /// Bytes for the child's standard input; the pipe is closed after them. A child that does not read them all is no error.
    ///
    /// ```
    /// use forkless::Command;
    /// let (_, said) = Command::new("wc").arg("-c").communicate().input(&vec![b'x'; 1 << 20]).run().unwrap();
    /// assert_eq!(said.stdout, b"1048576\n");
    /// ```
    #[must_use]
    pub fn input<B: AsRef<[u8]> + ?Sized>(mut self, bytes: &'a B) -> Communicate<'a> {
        self.how.input = Some(bytes.as_ref());
        self
    }

    /// Standard error goes where standard output goes, in the order written.
    ///
    /// ```
    /// use forkless::Command;
    /// let (_, said) = Command::new("sh").args(["-c", "echo a; echo b >&2; echo c"]).communicate().merged().run().unwrap();
    /// assert_eq!(said.stdout, b"a\nb\nc\n");
    /// ```
    #[must_use]
    pub fn merged(mut self) -> Communicate<'a> {
        self.how.merged = true;
        self
    }

    /// Captures what the child writes to this number, too; it ends up in [`Conversation::others`].
    ///
    /// ```
    /// use forkless::Command;
    /// let (_, said) = Command::new("sh").args(["-c", "echo result >&3"]).communicate().capture(3).run().unwrap();
    /// assert_eq!(said.others, [(3, b"result\n".to_vec())]);
    /// ```
    #[must_use]
    pub fn capture(mut self, number: RawFd) -> Communicate<'a> {
        self.how.also.push(number);
        self
    }

    /// The most bytes to keep of each stream. A child that writes more is killed ([`End::Limit`]).
    ///
    /// ```
    /// use forkless::{Command, End};
    /// let (_, said) = Command::new("yes").communicate().limit(1000).run().unwrap();
    /// assert_eq!((said.stdout.len(), said.end), (1000, End::Limit));
    /// ```
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Communicate<'a> {
        self.how.limit = Some(bytes);
        self
    }

    /// The most time for all of it. Then the child is killed and [`Communicate::run`] returns, whoever holds its pipes.
    ///
    /// ```
    /// use forkless::{Command, End};
    /// use std::time::Duration;
    /// let (status, said) = Command::new("sleep").arg("60").communicate().timeout(Duration::from_millis(20)).run().unwrap();
    /// assert_eq!(said.end, End::Deadline);
    /// assert!(!status.success());
    /// ```
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Communicate<'a> {
        self.how.timeout = Some(time);
        self
    }

    /// How long to go on reading after the child has ended, when a process it left behind keeps a pipe open; for ever by default.
    ///
    /// ```
    /// use forkless::{Command, End};
    /// use std::time::Duration;
    /// // The sleep is not the child, but it has the child's output.
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "echo done; sleep 2 &"]);
    /// let (status, said) = c.communicate().linger(Duration::from_millis(20)).run().unwrap();
    /// assert!(status.success());
    /// assert_eq!((&said.stdout[..], said.end), (&b"done\n"[..], End::Lingered));
    /// ```
    #[must_use]
    pub fn linger(mut self, time: Duration) -> Communicate<'a> {
        self.how.linger = Some(time);
        self
    }

    /// When the child is killed, so is its whole process group; the child is made to lead one.
    ///
    /// ```
    /// use forkless::{Command, End};
    /// use std::time::Duration;
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "sleep 60 & wait"]);
    /// let (_, said) = c.communicate().timeout(Duration::from_millis(20)).kill_group().run().unwrap();
    /// assert_eq!(said.end, End::Deadline); // and no sleep is left
    /// ```
    #[must_use]
    pub fn kill_group(mut self) -> Communicate<'a> {
        self.how.kill_group = true;
        self
    }

    /// Called with each piece as it arrives (number, bytes), instead of collecting it. `Break` stops and kills the child.
    ///
    /// ```
    /// use forkless::{Command, End};
    /// use std::ops::ControlFlow;
    /// let mut seen = 0;
    /// let (_, said) = Command::new("yes").communicate()
    ///     .on_chunk(|_, bytes| { seen += bytes.len(); if seen > 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) } })
    ///     .run().unwrap();
    /// assert_eq!(said.end, End::Stopped);
    /// assert!(said.stdout.is_empty() && seen > 1000);
    /// ```
    #[must_use]
    pub fn on_chunk(mut self, f: impl FnMut(RawFd, &[u8]) -> ControlFlow<()> + 'a) -> Communicate<'a> {
        self.how.on_chunk = Some(Box::new(f));
        self
    }

    /// Called with each line, without its newline, instead of collecting it; a last line without one counts.
    /// [`Communicate::limit`] is then the longest line in bytes: a longer one ends the conversation, and no part of it is handed over.
    /// `Break` stops and kills the child; there is no call after it.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let mut lines = Vec::new();
    /// forkless::Command::new("printf").arg("a\\nb").communicate()
    ///     .on_line(|_, line| { lines.push(line.to_vec()); ControlFlow::Continue(()) })
    ///     .run().unwrap();
    /// assert_eq!(lines, [b"a", b"b"]);
    /// ```
    #[must_use]
    pub fn on_line(mut self, f: impl FnMut(RawFd, &[u8]) -> ControlFlow<()> + 'a) -> Communicate<'a> {
        self.how.on_line = Some(Box::new(f));
        self
    }

    /// Starts the child and talks to it until both are done.
    ///
    /// ```
    /// use forkless::Command;
    /// let (status, said) = Command::new("tr").args(["a-z", "A-Z"]).communicate().input("loud").run().unwrap();
    /// assert!(status.success());
    /// assert_eq!(said.stdout, b"LOUD");
    /// ```
    ///
    /// # Errors
    /// As [`Command::status`]. A deadline, a limit and a stop are not errors: see [`Conversation::end`].
    pub fn run(self) -> Result<(ExitStatus, Conversation), SpawnError> {
        let Communicate { command, mut how } = self;
        let deadline = how.timeout.and_then(|t| Instant::now().checked_add(t));
        let mut wanted: Vec<(RawFd, Stdio)> = how.also.iter().map(|n| (*n, Stdio::piped())).collect();
        if how.input.is_some() {
            wanted.push((0, Stdio::piped()));
        }
        if how.merged {
            wanted.push((2, Stdio::same_as(1)));
        }
        let pgid = command.attributes.pgid;
        if how.kill_group && pgid.is_none() && !command.attributes.setsid {
            command.process_group(0);
        }
        let before: Vec<_> = wanted.into_iter().map(|(n, to)| (n, command.rewire(n, Some(to)))).collect();
        // Not waiting for exec overlaps it with what comes next; a program that cannot be run shows at the wait.
        let child = start_planned(command, Until::Cloned, Defaults::Capture);
        // What the conversation needed is not part of the command: it is as it was.
        command.attributes.pgid = pgid;
        for (n, was) in before.into_iter().rev() {
            command.rewire(n, was);
        }
        let mut child = child?;
        converse(&mut child, &mut how, deadline)
    }
}

impl Child {
    /// Closes standard input, collects standard output and error as far as they are pipes, and waits.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let child = Command::new("echo").arg("hi").stdout(Stdio::piped()).spawn().unwrap();
    /// assert_eq!(child.wait_with_output().unwrap().stdout, b"hi\n");
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn wait_with_output(mut self) -> Result<Output, SpawnError> {
        drop(self.stdin.take());
        let (status, said) = converse(&mut self, &mut How::default(), None)?;
        Ok(Output { status, stdout: said.stdout, stderr: said.stderr })
    }
}

struct Stream {
    number: RawFd,
    fd: Option<OwnedFd>,
    kept: Vec<u8>,
}

/// The most that is read at once. A pipe holds 64 KiB unless told otherwise (`pipe(7)`).
const PIECE: usize = 64 * 1024;

/// How often the child is looked at where nothing tells of its end.
const LOOK: Duration = Duration::from_millis(20);

fn converse(
    child: &mut Child,
    how: &mut How<'_>,
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
    for fd in streams.iter().filter_map(|s| s.fd.as_ref()).chain(&to_child) {
        nonblocking(fd)?;
    }
    let mut buf = vec![0u8; PIECE];
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
        // Only to know since when to linger; without, the end of the pipes says all.
        let watched = (how.linger.is_some() && ended_at.is_none())
            .then(|| child.pidfd().map(|f| f.as_raw_fd()))
            .flatten();
        fds.push(entry(watched.unwrap_or(-1), POLLIN));
        // Where pidfds are refused, by looking from time to time.
        let looks = how.linger.is_some() && ended_at.is_none() && watched.is_none();
        let left = if looks { Some(left.map_or(LOOK, |l| l.min(LOOK))) } else { left };
        match ready::poll(&mut fds, left.map(timespec)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(SpawnError::at(Step::Wait, "the child's pipes", e)),
        }
        if fds[streams.len() + 1].revents != 0 || (looks && !matches!(child.try_wait(), Ok(None))) {
            ended_at = Some(Instant::now());
        }
        if fds[streams.len()].revents != 0
            && let Some(fd) = &to_child
        {
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
                    if let Some(end) = take_in(s, &buf[..n], how) {
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
    // A negative number is passed over (poll(2)).
    PollFd { fd, events, revents: 0 }
}

/// Adds a piece to its stream, or hands it to the callback.
fn take_in(s: &mut Stream, piece: &[u8], how: &mut How<'_>) -> Option<End> {
    if let Some(f) = &mut how.on_chunk {
        return f(s.number, piece).is_break().then_some(End::Stopped);
    }
    let searched = s.kept.len();
    s.kept.extend_from_slice(piece);
    if let Some(f) = &mut how.on_line {
        let mut done = 0;
        while let Some(at) = s.kept[done.max(searched)..].iter().position(|b| *b == b'\n') {
            let at = done.max(searched) + at;
            let line = &s.kept[done..at];
            let over = how.limit.is_some_and(|limit| line.len() > limit);
            if over || f(s.number, line).is_break() {
                s.kept.clear();
                return Some(if over { End::Limit } else { End::Stopped });
            }
            done = at + 1;
        }
        s.kept.drain(..done);
        if how.limit.is_some_and(|limit| s.kept.len() > limit) {
            // Not a line, and not to be taken for the last one.
            s.kept.clear();
            return Some(End::Limit);
        }
    }
    match how.limit {
        Some(limit) if s.kept.len() > limit => {
            s.kept.truncate(limit);
            Some(End::Limit)
        }
        _ => None,
    }
}

fn finish(
    child: &mut Child,
    mut streams: Vec<Stream>,
    how: &mut How<'_>,
    deadline: Option<Instant>,
    mut end: End,
) -> Result<(ExitStatus, Conversation), SpawnError> {
    // Before its pipes are closed: it is to end by this, and not by SIGPIPE, whichever comes first.
    if matches!(end, End::Deadline | End::Limit | End::Stopped) {
        put_down(child, how.kill_group)?;
    }
    for s in &mut streams {
        // Closed before the wait: a child that still writes gets EPIPE instead of blocking for ever.
        s.fd = None;
        let Some(f) = &mut how.on_line else { continue };
        let last = std::mem::take(&mut s.kept);
        // Who has asked to stop is not called again.
        if !last.is_empty() && end != End::Stopped && f(s.number, &last).is_break() && end != End::Deadline {
            end = End::Stopped;
            put_down(child, how.kill_group)?;
        }
    }
    let status = match end {
        // It may have closed its pipes and live on.
        End::Complete => match child.wait_until(deadline) {
            Err(WaitError::Deadline) => {
                end = End::Deadline;
                put_down(child, how.kill_group)?
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

fn put_down(child: &mut Child, group: bool) -> Result<ExitStatus, WaitError> {
    if group {
        let _ = child.kill_group();
    }
    child.put_down()
}

fn nonblocking(fd: &OwnedFd) -> Result<(), SpawnError> {
    // The parent's end is a description of its own: the child's end keeps blocking.
    let flags = fd::get_status_flags(fd.as_raw_fd()).map_err(|e| SpawnError::at(Step::Pipe, "flags", e))?;
    fd::set_status_flags(fd.as_raw_fd(), flags | fd::O_NONBLOCK)
        .map_err(|e| SpawnError::at(Step::Pipe, "flags", e))
}

/// write(2) without SIGPIPE, which would kill a C program that uses this library.
fn write_quietly(to: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    const SIGPIPE: i32 = 13;
    if signal::disposition(SIGPIPE) == Ok(Disposition::Ignore) {
        return fd::write(to, bytes);
    }
    let old = signal::mask()?;
    let was_pending = signal::pending()?.has(SIGPIPE);
    signal::set_mask(old.with(SIGPIPE))?;
    let written = fd::write(to, bytes);
    if written == Err(Errno::EPIPE) && !was_pending {
        // The signal is this thread's own (the kernel sends it to the writer), so nobody else can be meant.
        let _ = signal::take_pending(SigSet::EMPTY.with(SIGPIPE));
    }
    signal::set_mask(old)?;
    written
}
