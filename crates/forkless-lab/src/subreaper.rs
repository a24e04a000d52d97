//! A process that keeps another program, and everything that one starts, from outliving the
//! measurement.
//!
//! Servers and their workers would live on when the measuring process is killed: a signal on its
//! parent's death reaches a program, but not the programs it has started. This process is the
//! subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`) of all of them, so that orphans become its own
//! children. It holds the read end of a pipe; only the measuring process has the other end. When
//! that closes, for whatever reason, the subreaper ends and reaps all its children. It signals its
//! own children only, whose numbers nobody else can have got meanwhile.
//!
//! The subreaper reaps every child of its own at once, as init does. A program may wait until an
//! orphan's pid is free: Apache's mod_cgid asks kill(2) for up to six seconds whether a CGI program
//! still exists, and a zombie does.
//!
//! As [`guard`](forkless_bench::guard) does, this library leaves it to its caller how to start
//! itself as a program.

#![expect(unsafe_code, reason = "poll, pidfd_open, signalfd, waitpid and kill")]

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use forkless_bench::descendants;

/// How the program hears that it is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCue {
    /// Its standard input, the pipe, comes to an end.
    Input,
    /// By SIGTERM; its standard input is `/dev/null`.
    Terminate,
}

/// How long a program may take to end when told to, while the bench waits for it. Apache gives its
/// own workers ten seconds before it kills them, and the kernel frees 8 GiB in seconds on a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same once the bench is gone: nothing reads a report, and the machine is to be quiet again.
const ABANDONED: Duration = Duration::from_secs(5);
/// How often the subreaper looks whether the bench is gone, while a program takes its time to end.
const LOOK: Duration = Duration::from_millis(100);
/// How long what it leaves behind may take, while the bench waits: a report being written, workers
/// of a server. No victim leaves anything on an idle machine.
const REST: Duration = Duration::from_secs(5);
/// The same once the bench is gone. It is time enough for another bench's guard to undo what that
/// bench has changed.
const ABANDONED_REST: Duration = Duration::from_secs(2);
/// How long new orphans are given time of their own: a program could make them without end.
const LAST: Duration = Duration::from_secs(20);

/// Runs the program until it ends or the pipe on standard input is hung up, then ends what is left
/// of it. Returns the status to exit with: the program's own, 128 and the number of the signal that
/// killed it, or 127 if it could not be started. A program that had to be killed, or died of a
/// signal, is named on standard error.
///
/// It reaps every child of the calling process, and holds back SIGCHLD for the calling thread: call
/// it from a process that has no other children and no other threads.
pub fn keep(ending: StopCue, program: &OsString, arguments: &[OsString]) -> u8 {
    let bench = std::os::unix::process::parent_id();
    let gone = || std::os::unix::process::parent_id() != bench;
    descendants::adopt();
    let mut command = Command::new(program);
    // A group of its own: servers end by a signal to their whole group (Apache does), which is not
    // to reach the subreaper.
    command.args(arguments).process_group(0);
    if ending == StopCue::Terminate {
        command.stdin(Stdio::null());
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("forkless: cannot start {}: {error}", program.display());
            return 127;
        }
    };
    let mut kept = KeptProgram::new(child.id().cast_signed());
    let asked = kept.ended_before(&mut || None, true).is_none().then(Instant::now);
    if let Some(asked) = asked {
        if ending == StopCue::Terminate {
            kept.signal(libc::SIGTERM);
        }
        let mut patience = || Some(asked + if gone() { ABANDONED } else { PATIENCE });
        if kept.ended_before(&mut patience, false).is_none() {
            kept.signal(libc::SIGKILL);
        }
    }
    let status = kept.ended_before(&mut || None, false);
    let complaint = status.and_then(|status| complaint(ending, asked, kept.killed, status));
    let rest = || if gone() { ABANDONED_REST } else { REST };
    // A process that such a kill orphans has time of its own: it may be a guard with work to do.
    let (mut known, mut since) = (Vec::new(), Duration::ZERO);
    descendants::end_all_but(&[], |passed, left| {
        if passed < LAST && left.iter().any(|child| !known.contains(child)) {
            since = passed;
        }
        left.clone_into(&mut known);
        ControlFlow::Continue((passed - since >= rest()).then_some(libc::SIGKILL))
    });
    // Last of all: if nobody reads standard error any more, SIGPIPE ends this process.
    if let Some(what) = complaint {
        eprintln!("forkless: {}: {what}", program.display());
    }
    status.map_or(127, code)
}

/// The sentence about a program that a signal has ended; none about one that ended by itself.
fn complaint(ending: StopCue, asked: Option<Instant>, killed: bool, status: ExitStatus) -> Option<String> {
    let signal = status.signal()?;
    let order = match ending {
        StopCue::Input => "the end of its input",
        StopCue::Terminate => "SIGTERM",
    };
    let seconds = asked.map_or(0.0, |asked| asked.elapsed().as_secs_f64());
    Some(match asked {
        Some(_) if killed => format!("did not end within {seconds:.1} s of {order}, and was killed"),
        Some(_) if (ending, signal) == (StopCue::Terminate, libc::SIGTERM) => return None,
        Some(_) => format!("died of signal {signal}, {seconds:.1} s after {order}"),
        None => format!("died of signal {signal}, which the bench had not sent"),
    })
}

/// The program, its end, and what tells of the end.
struct KeptProgram {
    pid: i32,
    status: Option<ExitStatus>,
    killed: bool,
    /// Readable when a child has ended.
    signals: Option<OwnedFd>,
    /// Readable when the program has ended: where another thread takes SIGCHLD, and the first does
    /// not hear of it.
    pidfd: Option<OwnedFd>,
}

impl KeptProgram {
    fn new(pid: i32) -> KeptProgram {
        // SAFETY: an all-zero set is a valid one for sigemptyset to fill in.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a set of this frame.
        unsafe { libc::sigemptyset(&raw mut set) };
        // SAFETY: as before.
        unsafe { libc::sigaddset(&raw mut set, libc::SIGCHLD) };
        // After the start of the program, which would inherit it. A child that has ended before is
        // found by the first look.
        // SAFETY: the set is initialised; the old one is not asked for.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        // SAFETY: a new descriptor for an initialised set.
        let signals = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        // SAFETY: takes a pid and flags. Not known before Linux 5.3.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let pidfd = i32::try_from(pidfd).unwrap_or(-1);
        KeptProgram { pid, status: None, killed: false, signals: owned(signals), pidfd: owned(pidfd) }
    }

    /// The program's end, waiting for it no longer than until the time given, or than the pipe on
    /// standard input is there. The time is asked for again and again.
    fn ended_before(
        &mut self,
        end: &mut dyn FnMut() -> Option<Instant>,
        while_the_pipe_is: bool,
    ) -> Option<ExitStatus> {
        loop {
            self.reap();
            if self.status.is_some() {
                return self.status;
            }
            let end = end();
            let left = end.map(|end| end.saturating_duration_since(Instant::now()).min(LOOK));
            let deaf = self.signals.is_none() && self.pidfd.is_none();
            let left = left.or(deaf.then_some(LOOK));
            if left == Some(Duration::ZERO) {
                return None;
            }
            // No events asked for: a hang-up is reported all the same, and what the pipe holds is
            // the program's to read. poll(2) passes by a descriptor below zero.
            let fd = |fd: &Option<OwnedFd>| fd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            let mut watched = [
                watched(if while_the_pipe_is { 0 } else { -1 }, 0),
                watched(fd(&self.signals), libc::POLLIN),
                watched(fd(&self.pidfd), libc::POLLIN),
            ];
            if poll(&mut watched, left).is_err() || watched[0].revents != 0 {
                self.reap();
                return self.status;
            }
            if watched[1].revents != 0 {
                self.hear();
            }
        }
    }

    /// Takes the signal that is pending: SIGCHLD is not queued, so one stands for any number of
    /// children.
    fn hear(&self) {
        let Some(signals) = &self.signals else { return };
        let mut information = [0_u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: the pointer and the length are those of one array.
        unsafe { libc::read(signals.as_raw_fd(), information.as_mut_ptr().cast(), information.len()) };
    }

    /// Reaps every child that has ended.
    fn reap(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: reaps any child; the pointer is to a status of this frame.
            match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
                pid if pid == self.pid => self.status = Some(ExitStatus::from_raw(status)),
                pid if pid > 0 => {}
                // None has ended, or none is left.
                _ => return,
            }
        }
    }

    /// Sends the program a signal, if it has not ended.
    fn signal(&mut self, signal: i32) {
        self.reap();
        if self.status.is_none() {
            self.killed |= signal == libc::SIGKILL;
            // SAFETY: a child of this process that has not been waited for.
            unsafe { libc::kill(self.pid, signal) };
        }
    }
}

fn owned(fd: i32) -> Option<OwnedFd> {
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn watched(fd: i32, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Waits until one of them is ready or so much time has passed; for ever without a time.
fn poll(watched: &mut [libc::pollfd], time: Option<Duration>) -> io::Result<()> {
    // A millisecond more: rounded down, the last one would be spent asking again and again.
    let time = time.map_or(-1, |time| i32::try_from(time.as_millis() + 1).unwrap_or(i32::MAX));
    // SAFETY: the pointer and the length are those of one slice.
    let ready = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, time) };
    let error = io::Error::last_os_error();
    if ready >= 0 || error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}
