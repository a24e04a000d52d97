//! One process of a trial: started, timed, waited for, and ended if the user wants no more.
//!
//! Orphans are reaped at once, as init does: a program may wait until an orphan's number is free.
//! Their processor time is counted so, too.

#![expect(unsafe_code, reason = "sigprocmask, sigaction, signalfd, wait4 and kill")]

use std::cell::Cell;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::clock::{self, CpuTime};
use crate::descendants;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By exit, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl End {
    fn of(status: i32) -> End {
        let status = ExitStatus::from_raw(status);
        status.signal().map_or(End::Exit(status.code().unwrap_or(0)), End::Signal)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exit(status) => write!(f, "exit status {status}"),
            End::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What one run of a command gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finished {
    pub(super) end: End,
    /// From before the command was prepared until its process was reaped, in milliseconds.
    pub(super) wall: f64,
    /// Of the process and the descendants that were reaped meanwhile, and of its start; in
    /// milliseconds.
    pub(super) processor: f64,
    /// The largest resident set among the process and its descendants, in MiB; at least that of
    /// this process.
    pub(super) memory: f64,
    /// This process was stopped meanwhile, as by Ctrl-Z: the times mean nothing.
    pub(super) was_stopped: bool,
}

/// How a run went.
#[derive(Debug)]
pub(super) enum Outcome {
    Finished(Finished),
    /// It was ended, since the user wants no more.
    Interrupted,
}

/// How long a process may take to end after the user's signal, before it is killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits for processes and for signals that end the trial. It has the calling thread hold these
/// signals and SIGCHLD back as long as it lives; this thread must be the only one. Commands start
/// with the signal mask of before.
pub(super) struct Watcher {
    signals: OwnedFd,
    held: libc::sigset_t,
    mask_before: libc::sigset_t,
    /// What the signals that end the trial did before.
    actions_before: Vec<(i32, libc::sigaction)>,
    /// A signal has ended the trial.
    is_stopped: Cell<bool>,
    /// This process was stopped since the present run began, and goes on.
    was_stopped: Cell<bool>,
    /// Children that were there before: nothing of the trial's.
    spared: Vec<i32>,
    /// See [`Spec::hand_on`](super::Spec::hand_on).
    hand_on: fn(&mut Command),
}

/// What the watcher hears of.
enum Heard {
    ChildEnded,
    /// This process was stopped, and goes on.
    Continued,
    /// A signal that ends the trial, and whether the terminal sent it: then the command got it,
    /// too.
    Stop {
        signal: i32,
        from_terminal: bool,
    },
}

impl Watcher {
    pub(super) fn new(hand_on: fn(&mut Command)) -> io::Result<Watcher> {
        descendants::adopt();
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: fills the set in.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: filled in.
        let mut set = unsafe { set.assume_init() };
        // A signal that this process was started to ignore, as by nohup, ends nothing. Held back,
        // it would be heard all the same.
        let stops: Vec<i32> = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]
            .into_iter()
            .filter(|&signal| !is_ignored(signal))
            .collect();
        // SIGCONT lets a stopped process go on even if it is held back.
        let continued = Some(libc::SIGCONT).filter(|&signal| !is_ignored(signal));
        for signal in stops.iter().copied().chain(continued).chain([libc::SIGCHLD]) {
            // SAFETY: an initialised set, and a signal that exists.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: an initialised set.
        let signals = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if signals < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let signals = unsafe { OwnedFd::from_raw_fd(signals) };
        let mask_before = mask(libc::SIG_BLOCK, &set)?;
        let spared = descendants::children();
        let mut watcher = Watcher {
            signals,
            held: set,
            mask_before,
            actions_before: Vec::new(),
            is_stopped: Cell::new(false),
            was_stopped: Cell::new(false),
            spared,
            hand_on,
        };
        for signal in stops.into_iter().chain(continued) {
            watcher.actions_before.push((signal, act(signal, &remembering(0))?));
        }
        Ok(watcher)
    }

    /// Starts a command, which inherits the mask of the calling thread. A signal that comes
    /// meanwhile is remembered.
    fn start(&self, mut command: Command) -> io::Result<Child> {
        (self.hand_on)(&mut command);
        mask(libc::SIG_SETMASK, &self.mask_before)?;
        let child = command.spawn();
        mask(libc::SIG_BLOCK, &self.held)?;
        child
    }

    /// Has a command made and started, and waits for its end. All of it is timed.
    pub(super) fn run(&self, make: impl FnOnce() -> io::Result<Command>) -> io::Result<Outcome> {
        if self.hears_a_stop() {
            return Ok(Outcome::Interrupted);
        }
        self.was_stopped.set(false);
        let (processor, begin) = (CpuTime::of_self_and_children(), clock::now());
        let child = self.start(make()?)?.id().cast_signed();
        loop {
            if let Some((status, usage)) = reap_until(child) {
                #[expect(clippy::cast_precision_loss, reason = "times and sizes fit a double")]
                let mut finished = Finished {
                    end: End::of(status),
                    wall: (clock::now() - begin) as f64 / 1e6,
                    processor: CpuTime::of_self_and_children().since(processor).total() / 1e3,
                    memory: usage.ru_maxrss as f64 / 1024.0,
                    was_stopped: false,
                };
                // Of a signal to the whole group the child may have died before this process reads
                // its own: that end is no finding.
                let is_stopped = self.hears_a_stop();
                finished.was_stopped = self.was_stopped.get();
                return Ok(if is_stopped { Outcome::Interrupted } else { Outcome::Finished(finished) });
            }
            if let Some(Heard::Stop { signal, from_terminal }) = self.hear(None)? {
                self.end(child, (!from_terminal).then_some(signal));
                return Ok(Outcome::Interrupted);
            }
        }
    }

    /// Ends what a run has left behind. Returns the names of the processes that had to be told.
    pub(super) fn end_rest(&self) -> Vec<String> {
        /// For those that are about to end.
        const MOMENT: Duration = Duration::from_millis(50);
        /// For those that clean up when they are told.
        const KILLED: Duration = Duration::from_millis(1000);
        /// For those that are another user's.
        const GIVEN_UP: Duration = Duration::from_secs(3);
        let (mut names, mut told) = (Vec::new(), false);
        descendants::end_all_but(&self.spared, |passed, left| {
            if passed >= GIVEN_UP {
                return ControlFlow::Break(());
            }
            if passed >= KILLED {
                return ControlFlow::Continue(Some(libc::SIGKILL));
            }
            let is_due = passed >= MOMENT && !told;
            if is_due {
                told = true;
                names.extend(left.iter().copied().filter_map(name));
            }
            ControlFlow::Continue(is_due.then_some(libc::SIGTERM))
        });
        names
    }

    /// Ends a child that is running. A second signal of the user's shortens its time. One that may
    /// not be killed, since it is another user's, is left in the end.
    fn end(&self, child: i32, signal: Option<i32>) {
        if let Some(signal) = signal {
            // SAFETY: a child that has not been waited for.
            unsafe { libc::kill(child, signal) };
        }
        let asked = Instant::now();
        while reap_until(child).is_none() {
            let left = PATIENCE.saturating_sub(asked.elapsed());
            let heard = if left.is_zero() { Ok(None) } else { self.hear(Some(left)) };
            if left.is_zero() || matches!(heard, Ok(Some(Heard::Stop { .. })) | Err(_)) {
                // SAFETY: as above.
                unsafe { libc::kill(child, libc::SIGKILL) };
                let killed = Instant::now();
                while reap_until(child).is_none() && killed.elapsed() < PATIENCE {
                    let _ = self.hear(Some(PATIENCE.saturating_sub(killed.elapsed())));
                }
                return;
            }
        }
    }

    fn hears_a_stop(&self) -> bool {
        while let Ok(Some(heard)) = self.hear(Some(Duration::ZERO)) {
            if matches!(heard, Heard::Stop { .. }) {
                return true;
            }
        }
        false
    }

    /// The next signal; `None` after so much time.
    fn hear(&self, time: Option<Duration>) -> io::Result<Option<Heard>> {
        if CONTINUED.swap(false, Ordering::Relaxed) {
            self.was_stopped.set(true);
        }
        match REMEMBERED.swap(0, Ordering::Relaxed) {
            0 => {}
            signal => {
                self.is_stopped.set(true);
                let from_terminal = signal < 0;
                return Ok(Some(Heard::Stop { signal: signal.abs(), from_terminal }));
            }
        }
        // A millisecond more: rounded down, the last one would be spent asking again and again.
        let time = time.map_or(-1, |time| match time.as_millis() {
            0 => 0,
            more => i32::try_from(more + 1).unwrap_or(i32::MAX),
        });
        let mut watched = libc::pollfd { fd: self.signals.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, and its place for the answer.
        if unsafe { libc::poll(&raw mut watched, 1, time) } < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(None) } else { Err(error) };
        }
        let mut told = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the pointer and the length are those of one value.
        let read = unsafe { libc::read(self.signals.as_raw_fd(), told.as_mut_ptr().cast(), size) };
        if read.cast_unsigned() != size {
            return Ok(None);
        }
        // SAFETY: plain integers, filled in by the kernel.
        let told = unsafe { told.assume_init() };
        let signal = told.ssi_signo.cast_signed();
        Ok(Some(match signal {
            libc::SIGCHLD => Heard::ChildEnded,
            libc::SIGCONT => {
                self.was_stopped.set(true);
                Heard::Continued
            }
            _ => {
                self.is_stopped.set(true);
                Heard::Stop { signal, from_terminal: told.ssi_code == SI_KERNEL }
            }
        }))
    }
}

/// The last signal to end the trial that came while a command was started, as a negative number if
/// the terminal sent it. 0: none.
static REMEMBERED: AtomicI32 = AtomicI32::new(0);

/// SIGCONT came while a command was started.
static CONTINUED: AtomicBool = AtomicBool::new(false);

extern "C" fn remember(signal: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
    if signal == libc::SIGCONT {
        CONTINUED.store(true, Ordering::Relaxed);
        return;
    }
    // SAFETY: the kernel passes one.
    let from_terminal = unsafe { (*info).si_code } == SI_KERNEL;
    REMEMBERED.store(if from_terminal { -signal } else { signal }, Ordering::Relaxed);
}

fn remembering(further_flags: i32) -> libc::sigaction {
    // SAFETY: plain integers, of which all zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = remember as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | further_flags;
    action
}

/// Gives a signal an action. Returns the one before.
fn act(signal: i32, action: &libc::sigaction) -> io::Result<libc::sigaction> {
    let mut before = MaybeUninit::zeroed();
    // SAFETY: `remember` is sound at any point: it stores a number. Or an action from before.
    if unsafe { libc::sigaction(signal, action, before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in.
    Ok(unsafe { before.assume_init() })
}

/// Changes the signal mask of the calling thread, the only one. Returns the one before.
fn mask(how: i32, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: an initialised set; the old one is filled in.
    if unsafe { libc::sigprocmask(how, set, before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in.
    Ok(unsafe { before.assume_init() })
}

/// A signal's sender is the kernel, as for Ctrl-C (sigaction(2)).
const SI_KERNEL: i32 = 0x80;

impl Drop for Watcher {
    fn drop(&mut self) {
        for (signal, before) in &self.actions_before {
            // A stop often comes twice: timeout(1) sends on what the whole group got. The second
            // one must not keep the trial from its report.
            let stops = *signal != libc::SIGCONT && self.is_stopped.get();
            let once = stops.then(|| remembering(libc::SA_RESETHAND));
            let _ = act(*signal, once.as_ref().unwrap_or(before));
        }
        let _ = mask(libc::SIG_SETMASK, &self.mask_before);
    }
}

/// Whether this process ignores a signal.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks for the action and changes nothing.
    if unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: filled in.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Reaps every child that has ended. Returns the status of this one, if it has.
fn reap_until(child: i32) -> Option<(i32, libc::rusage)> {
    loop {
        let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
        // SAFETY: reaps any child; both pointers are to places of this frame.
        let reaped = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
        if reaped == child {
            // SAFETY: plain integers, filled in.
            return Some((status, unsafe { usage.assume_init() }));
        }
        if reaped <= 0 {
            return None;
        }
    }
}

/// What a process is called, without characters that would steer a terminal.
fn name(pid: i32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name));
    Some(name.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}
