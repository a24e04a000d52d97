//! The parent's side: the window between `MADV_DONTFORK` and `MADV_DOFORK`, the clone, and the
//! decision between commit and abort.
#![expect(unsafe_code, reason = "clone and the program's own calls")]

use core::sync::atomic::Ordering::Relaxed;

use forkless_run::{AbortKind, AbortReason, Counter};
use forkless_speculate::commit::{self, WaitAnswer, WaitQuestion};
use forkless_speculate::site::resident::Lesson;
use forkless_sys::Errno;
use forkless_sys::process::{self, P_PID, WALL, WEXITED, WNOHANG, WNOWAIT, WaitInfo};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::time::Timespec;
use linux_raw_sys::general as k;

use crate::kernel::{self, Args};
use crate::signals::{BLOCKED, OF_TIMERS, SIGCHLD, SIGCONT, SIGKILL, SIGTSTP, SIGTTOU, STOPS, SYNCHRONOUS};
use crate::tally;
use crate::window::{self, Busy};
use crate::{config, errno};
use forkless_speculate::retry::retry;

use super::arm::Resolution;
use super::decide::{self, NANOS_PER_PAGE};
use super::exclusions::{ForkFrame, Listed};
use super::frame::Frame;
use super::memory_source::{Attendant, NO_DESCRIPTOR, Source};
use super::shared_pages::SharedPages;
use super::slot::ThreadSlot;
use super::{OrPlain, child, exclusions, memory_source, program_memory, shared_pages, site, threshold};

/// The flags of a fork. With any other flag it is another kind of clone.
const FORK_FLAGS: usize = (k::CLONE_CHILD_SETTID | k::CLONE_CHILD_CLEARTID | k::CLONE_PARENT_SETTID) as usize;

/// A system call of an armed thread: libc's fork and the program's fork handlers.
pub(crate) fn trapped(slot: &'static ThreadSlot, frame: &mut Frame) {
    let (nr, args) = (frame.number(), frame.args());
    match nr {
        k::__NR_rt_sigprocmask => {
            let answer = mask_of(slot, &args);
            frame.answer(answer);
        }
        k::__NR_clone
            if args[0] & 0xff == SIGCHLD as usize && args[0] & !0xff & !FORK_FLAGS == 0 && args[1] == 0 =>
        {
            fork(&mut CloneCall { slot, frame, nr, args: &args });
        }
        k::__NR_fork => fork(&mut CloneCall { slot, frame, nr, args: &args }),
        // Calls that do not return as calls do, or that would undo the arming: give up, and let the
        // kernel have them.
        k::__NR_clone
        | k::__NR_clone3
        | k::__NR_vfork
        | k::__NR_execve
        | k::__NR_execveat
        | k::__NR_rt_sigreturn
        | k::__NR_rt_sigsuspend
        | k::__NR_sigaltstack
        | k::__NR_rt_sigaction
        | k::__NR_prctl
        | k::__NR_seccomp => give_up(slot, frame),
        k::__NR_exit | k::__NR_exit_group => {
            slot.disarm(frame);
            frame.again();
        }
        k::__NR_futex => match futex(&args) {
            Ok(answer) => frame.answer(answer),
            Err(kind) => {
                slot.set_resolution(Resolution::Plain(kind.into()));
                give_up(slot, frame);
            }
        },
        _ => {
            // SAFETY: the program's own call.
            let answer = unsafe { kernel::pass(nr, &args) };
            frame.answer(answer);
        }
    }
}

/// Gives up: the kernel makes the call when the handler returns, and the fork is a plain one.
pub(crate) fn give_up(slot: &ThreadSlot, frame: &mut Frame) {
    slot.disarm(frame);
    slot.goes_plain();
    frame.again();
}

/// A wait for a lock, mostly one of libc's. Its holder may be waiting for this thread to handle a
/// signal (collectors stop all threads so), and we have signals blocked. So a wait that takes
/// longer than such a lock is held is given up, and made by the kernel without us.
fn futex(args: &Args) -> OrPlain<isize> {
    const WAIT: usize = k::FUTEX_WAIT as usize;
    const WAKE: usize = k::FUTEX_WAKE as usize;
    static PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut args = *args;
    match args[1] & !(k::FUTEX_PRIVATE_FLAG as usize) {
        WAIT if args[3] == 0 => args[3] = (&raw const PATIENCE) as usize,
        WAKE => {}
        _ => return Err(AbortKind::Unusual),
    }
    // SAFETY: libc's own call, but for the time.
    let answer = unsafe { kernel::pass(k::__NR_futex, &args) };
    if answer == -(Errno::ETIMEDOUT.raw() as isize) { Err(AbortKind::Lock) } else { Ok(answer) }
}

/// `rt_sigprocmask` on the program's view of its mask. libc's pointers are valid. An invalid one
/// faults as it would in libc.
fn mask_of(slot: &ThreadSlot, args: &Args) -> isize {
    let [how, set, old, size, ..] = *args;
    let before = slot.mask.load(Relaxed);
    match child::signals::new_mask(before, how, set, size) {
        Ok(after) => slot.mask.store(after, Relaxed),
        Err(e) => return -(e.raw() as isize),
    }
    if old != 0 {
        program_memory::store(old, before);
    }
    0
}

/// A system call of libc's that makes a process, in the thread that makes it.
struct CloneCall<'a> {
    slot: &'static ThreadSlot,
    frame: &'a mut Frame,
    nr: u32,
    args: &'a Args,
}

/// libc's clone: speculate, and make the plain fork where no child committed.
fn fork(call: &mut CloneCall<'_>) {
    window::begin();
    let result = in_turn(call);
    // The child has a copy of the window, which never matters there.
    if result == Ok(Ended::InChild) {
        return;
    }
    window::close();
    if matches!(result, Ok(Ended::Aborted(_))) && shared_pages::get().has_signals() {
        return resend(call, result);
    }
    window::end();
    if let Ok(Ended::Committed { pid, bytes }) = result {
        call.slot.set_resolution(Resolution::Committed { bytes });
        call.slot.disarm(call.frame);
        call.frame.answer(pid as isize);
        return;
    }
    call.slot.set_resolution(as_resolution(result));
    // A signal that waits has reached no child, and comes before the fork: the kernel makes none
    // while one waits, so that a signal to a process group reaches the parent before the fork, or
    // both after it (kernel/fork.c, copy_process). Here the signal may still be blocked by libc, as
    // glibc 2.41 does for its clone. It is delivered when libc's fork has failed.
    if call.slot.may_fail.load(Relaxed) && call.slot.keeps_a_signal() {
        call.slot.errno.store(errno::get(), Relaxed);
        call.slot.again.store(true, Relaxed);
        call.slot.disarm(call.frame);
        return call.frame.answer(-(Errno::EAGAIN.raw() as isize));
    }
    give_up(call.slot, call.frame);
}

/// How a fork went that no child committed.
fn as_resolution(result: OrPlain<Ended>) -> Resolution {
    match result {
        Ok(Ended::Aborted(reason)) => Resolution::Aborted(reason),
        Err(kind) => Resolution::Plain(kind.into()),
        Ok(_) => Resolution::Plain(AbortKind::Unusual.into()),
    }
}

/// Makes the plain fork. Returns its answer.
fn replace(call: &mut CloneCall<'_>, resolution: Resolution) -> isize {
    call.slot.set_resolution(resolution);
    // Everything is put back before the clone, so that the child inherits nothing of ours.
    call.slot.disarm(call.frame);
    // Nor may the child lack memory that another thread has marked meanwhile.
    // SAFETY: the program's own fork.
    let pid = window::plain(|| unsafe { kernel::pass(call.nr, call.args) });
    call.frame.answer(pid);
    pid
}

/// Makes the plain fork, and ends the speculation before. The child gets the signals that had
/// reached the speculative child, when the handler that we are in returns. Sent by the parent, a
/// signal could come after something that its sender knows the child had not done yet.
///
/// Out of line, for the copy of the signals on its stack. When the speculation has ended, another
/// thread may be using the shared pages.
#[cold]
#[inline(never)]
fn resend(call: &mut CloneCall<'_>, result: OrPlain<Ended>) {
    let outcome = shared_pages::get();
    let ((count, known), rest) = (outcome.signals(), outcome.pending.load(Relaxed));
    window::end();
    let stops =
        known.iter().take(count).fold(SigSet(rest), |set, taken| set.with(taken.signal())).0 & STOPS.0;
    match replace(call, as_resolution(result)) {
        0 => {}
        replacement => return stop(replacement as i32, SigSet(stops)),
    }
    let _ = signal::set_mask(SigSet::ALL);
    let me = process::getpid();
    for taken in known.iter().take(count).filter(|taken| !STOPS.has(taken.signal())) {
        let _ = taken.send_again(me);
    }
    for signal in 1..=64 {
        if SigSet(rest & !STOPS.0).has(signal) {
            let _ = process::kill_self(signal);
        }
    }
}

/// Stops the replacement, if the child that is gone was to stop.
///
/// SIGCONT may have come for it since: the replacement would wait for another for ever. The sender
/// of a stop may have meant that child alone, and does not know of the replacement. A stop that was
/// meant for the process group waits for this thread, too, until SIGCONT comes for the group. All
/// signals are blocked here. So as long as the stop waits, none has come. One that comes now
/// reaches the replacement itself, maybe before the stop that is sent here.
fn stop(replacement: i32, stops: SigSet) {
    let waits = |signal| signal::pending().is_ok_and(|waiting| waiting.has(signal));
    for signal in SIGTSTP..=SIGTTOU {
        if stops.has(signal) && replacement > 0 && waits(signal) {
            let _ = process::kill(replacement, signal);
            if !waits(signal) {
                let _ = process::kill(replacement, SIGCONT);
            }
        }
    }
}

/// Whether finding the mappings costs more than a plain fork would copy of what the child lacks.
/// Beside threads the mappings are listed three times.
fn costs_too_many_looks(listed: &Listed, beside_threads: bool) -> bool {
    /// Mappings in the smallest process that is worth a speculation.
    const USUAL: usize = 128;
    /// Each takes 0.4 us, where there are many.
    const PAGES_A_LOOK: usize = 400 / NANOS_PER_PAGE as usize;
    let looks = listed.mappings.saturating_sub(USUAL) * if beside_threads { 3 } else { 1 };
    config::learn() && listed.absent / 4096 < looks * PAGES_A_LOOK
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    InChild,
    Committed { pid: i32, bytes: usize },
    Aborted(AbortReason),
}

/// Speculates, and once more where a child has read memory late (`late`). What children leave in
/// the shared pages, and what is learnt of it, is this fork's until the speculation ends.
fn in_turn(call: &mut CloneCall<'_>) -> OrPlain<Ended> {
    let at = call.slot.site.load(Relaxed);
    let beside_threads = decide::beside_threads()?;
    let outcome = shared_pages::get();
    outcome.begin(beside_threads && config::fork() == config::Fork::Exact);
    let mut made = 0;
    loop {
        let reason = match attempt(call, beside_threads, made == 0) {
            Ok(Ended::Aborted(reason)) => reason,
            Ok(ended) => {
                if matches!(ended, Ended::Committed { .. }) {
                    site::committed(at);
                }
                return Ok(ended);
            }
            // The first child is undone already.
            Err(_) if made > 0 => AbortKind::Late.into(),
            Err(kind) => return Err(kind),
        };
        made += 1;
        let proves_nothing = outcome.has_read_late() && reason.kind().may_come_of_late_reads();
        // Signals that reached a child must reach the child that stays. Only a plain one is sure
        // to stay.
        if proves_nothing && !outcome.has_signals() && outcome.try_again(made) {
            tally::add(Counter::Retried, 1);
            continue;
        }
        let lesson = if proves_nothing { AbortKind::Late.into() } else { reason };
        site::aborted(at, lesson, outcome.has_failed());
        return Ok(Ended::Aborted(reason));
    }
}

/// Makes one child. `is_first`: the first of its fork.
fn attempt(call: &mut CloneCall<'_>, beside_threads: bool, is_first: bool) -> OrPlain<Ended> {
    // Other speculations wait. Plain forks and moves go on between the children of a fork.
    window::open().map_err(|Busy| AbortKind::Busy)?;
    let (flags, tid_word) =
        if call.nr == k::__NR_clone { (call.args[0] & FORK_FLAGS, call.args[3]) } else { (0, call.args[3]) };
    let tid_word = if flags & k::CLONE_CHILD_SETTID as usize != 0 { tid_word } else { call.frame.sp() };
    let fork_frame = ForkFrame { call_site: call.slot.site.load(Relaxed), sp: call.frame.sp(), tid_word };
    // Blocks the synchronous signals, too, until the child has handlers for them.
    let Ok(before) = signal::set_mask(SigSet::ALL) else { return Err(AbortKind::Setup) };
    let outcome = shared_pages::get();
    let trials = outcome.trials();
    let make = if beside_threads { make_child_beside_threads } else { make_child };
    let made = make(call, fork_frame, is_first);
    if made.is_ok_and(|made| made.pid == 0) {
        return Ok(Ended::InChild);
    }
    let _ = retry(|| signal::set_mask(before));
    let Made { pid, bytes } = made?;
    // For the report. Mapped memory need not be resident: sanitizers reserve terabytes. The peak
    // resident set bounds what a fork would have copied.
    let bytes = if config::record().is_none() { bytes } else { bytes.min(threshold::peak()) };
    let has_executed = has_executed(pid);
    child::signals::learn_restorer();
    let reason = outcome.reason().unwrap_or(AbortKind::Died.into());
    let came_to_exec = has_executed || outcome.has_failed() || reason.kind() == AbortKind::Late;
    site::learn(fork_frame.call_site, outcome.ranges(), Lesson { came_to_exec, trials });
    count(outcome);
    Ok(if has_executed { Ended::Committed { pid, bytes } } else { Ended::Aborted(reason) })
}

/// Whether a child that lacks the listed memory costs less than a plain fork. A second child costs
/// less in any case.
fn is_worth(listed: &Listed, beside_threads: bool, is_first: bool) -> bool {
    listed.absent >= config::minimum() && !(is_first && costs_too_many_looks(listed, beside_threads))
}

/// Notes whether a child [`is_worth`] it.
fn weigh(at: usize, listed: &Listed, beside_threads: bool, is_first: bool) -> OrPlain<()> {
    if listed.absent < config::minimum() {
        if is_first {
            site::note_small(at, listed.absent, beside_threads);
        }
        return Err(AbortKind::Small);
    }
    threshold::note_large();
    if !is_worth(listed, beside_threads, is_first) {
        site::note_costly(at);
        return Err(AbortKind::Small);
    }
    Ok(())
}

/// Counts what a child did, for the report.
fn count(outcome: &SharedPages) {
    tally::add(Counter::PagesFetched, outcome.pages.load(Relaxed));
    tally::add(Counter::Traps, outcome.traps.load(Relaxed));
    tally::add(Counter::Direct, outcome.direct.load(Relaxed));
    tally::add(Counter::Closes, outcome.closes.load(Relaxed));
}

/// A child was made.
#[derive(Clone, Copy)]
struct Made {
    /// Its number, when it has executed a program or ended. In the child: 0.
    pid: i32,
    /// How much it lacked.
    bytes: usize,
}

/// Makes a child in a process with one thread, which makes no other process meanwhile: its thread
/// waits here. With all signals blocked.
fn make_child(call: &mut CloneCall<'_>, fork_frame: ForkFrame, is_first: bool) -> OrPlain<Made> {
    let listed = exclusions::list(&fork_frame, false)?;
    weigh(fork_frame.call_site, &listed, false, is_first)?;
    let source = Source::open(call.slot)?;
    shared_pages::get().reset();
    if !shared_pages::lend() {
        source.close();
        return Err(AbortKind::Setup);
    }
    exclusions::mark();
    let pid = clone(call, source.descriptor());
    if pid != Ok(0) {
        shared_pages::keep();
        exclusions::unmark(false);
        source.close();
    }
    Ok(Made { pid: pid?, bytes: listed.absent })
}

/// The same beside other threads. They notice no descriptor, and marks for the clone alone: see
/// [`Attendant`].
fn make_child_beside_threads(
    call: &mut CloneCall<'_>,
    fork_frame: ForkFrame,
    is_first: bool,
) -> OrPlain<Made> {
    let attendant = Attendant::new(
        fork_frame,
        if is_first { |l| is_worth(l, true, true) } else { |l| is_worth(l, true, false) },
    );
    let listed = attendant.start(call.slot)?;
    weigh(fork_frame.call_site, &listed, true, is_first)?;
    shared_pages::get().reset();
    if !shared_pages::lend() || !memory_source::lend() {
        return Err(AbortKind::Setup);
    }
    let pid = clone(call, NO_DESCRIPTOR);
    if pid == Ok(0) {
        // Its thread is not in the child.
        core::mem::forget(attendant);
    }
    Ok(Made { pid: pid?, bytes: listed.absent })
}

/// Makes the clone. Returns the child's number when it has executed a program or ended. In the
/// child: 0.
fn clone(call: &mut CloneCall<'_>, source: i32) -> OrPlain<i32> {
    let (parent, thread) = (process::getpid(), process::gettid());
    let flags =
        if call.nr == k::__NR_clone { call.args[0] & FORK_FLAGS } else { 0 } | k::CLONE_VFORK as usize;
    let spawn = match call.nr {
        k::__NR_clone => [flags, 0, call.args[2], call.args[3], call.args[4], 0],
        _ => [flags, 0, 0, 0, 0, 0],
    };
    // Sent to the process group before now, it would miss the child.
    let can_wait = call.slot.may_fail.load(Relaxed) || call.slot.has_handlers.load(Relaxed);
    if can_wait && call.slot.keeps_a_signal() {
        return Err(AbortKind::Signal);
    }
    // SAFETY: a fork as the program asked for, but with exit signal 0 (an aborted child is nobody's
    // business; exec sets SIGCHLD, kernel/exec.c, de_thread) and suspending us until it has
    // executed a program or ended.
    let pid = unsafe { kernel::pass(k::__NR_clone, &spawn) };
    if pid == 0 {
        if source == NO_DESCRIPTOR {
            memory_source::say_it_runs();
        }
        child::begin(call.slot, source, parent);
        // An exec of another thread may have ended this one, and its helper with it, before the
        // child asked for a death signal. The process lives on, and is the child's parent.
        if process::tgkill(parent, thread, 0) == Err(Errno::ESRCH) {
            child::abort(AbortKind::Setup);
        }
        call.frame.mask = BLOCKED.0;
        call.frame.answer(0);
    }
    if pid < 0 { Err(AbortKind::CloneFailed) } else { Ok(pid as i32) }
}

/// Whether the child, which has left our memory, executed a program. If not, it is reaped.
fn has_executed(pid: i32) -> bool {
    let ask = |question| {
        let options = match question {
            WaitQuestion::Executed => WEXITED | WNOHANG | WNOWAIT,
            WaitQuestion::End => WEXITED | WALL,
        };
        let asked = retry(|| match process::waitid(P_PID, pid, options) {
            Ok(ended) => {
                if question == WaitQuestion::End {
                    killed(&ended);
                }
                Ok(WaitAnswer::Yes)
            }
            Err(Errno::ECHILD) => Ok(WaitAnswer::NoChild),
            Err(Errno::EINTR) => Ok(WaitAnswer::Interrupted),
            Err(other) => Err(other),
        });
        let told = asked.unwrap_or(WaitAnswer::Refused);
        // A filter may know only waitid's predecessor.
        if told == WaitAnswer::Refused && question == WaitQuestion::End && process::wait4(pid, WALL).is_ok() {
            WaitAnswer::Yes
        } else {
            told
        }
    };
    commit::committed(ask, || shared_pages::get().is_executing())
}

/// While the child is in execve, signals act on it by their default. If one ended it there, it was
/// sent, and the replacement gets it as well. Left out are signals of the child's own timers,
/// signals that only our own faults raise, and SIGKILL: a kill would also come where there is no
/// memory for a speculation.
fn killed(child: &WaitInfo) {
    const CLD_KILLED: i32 = 2;
    const CLD_DUMPED: i32 = 3;
    if matches!(child.code, CLD_KILLED | CLD_DUMPED)
        && child.status != SIGKILL
        && !SYNCHRONOUS.has(child.status)
        && !OF_TIMERS.has(child.status)
    {
        shared_pages::get().pending.fetch_or(1 << (child.status - 1), Relaxed);
    }
}
