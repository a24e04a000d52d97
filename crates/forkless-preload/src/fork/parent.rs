//! The parent's side: the window between `MADV_DONTFORK` and `MADV_DOFORK`, the clone, and the decision.
#![expect(unsafe_code, reason = "clone and memory advice")]

use core::sync::atomic::Ordering::Relaxed;

use forkless_run::AbortKind as Kind;
use forkless_run::protocol::{self, Answer, Question};
use forkless_sys::process::{self, P_PID, WALL, WEXITED, WNOHANG, WNOWAIT, WaitInfo};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, mm};
use linux_raw_sys::general as k;

use crate::config;
use crate::insist::insist;
use crate::kernel::{self, Args};
use crate::signals::{BLOCKED, OF_TIMERS, SIGCHLD, SYNCHRONOUS};

use super::arm::{Slot, Verdict};
use super::decide::NANOS_PER_PAGE;
use super::frame::Frame;
use super::plan::Listed;
use super::source::Source;
use super::{Attempt, child, decide, memory, outcome, plan, sites, size};

/// The flags of a fork; anything else is another kind of clone.
const FORK_FLAGS: usize = (k::CLONE_CHILD_SETTID | k::CLONE_CHILD_CLEARTID | k::CLONE_PARENT_SETTID) as usize;

/// A mapping smaller than this costs more to mark, reserve and unmark than to copy.
const SMALLEST: usize = 128 << 10;

/// A system call of an armed thread: libc's fork and the program's fork handlers.
pub(crate) fn trapped(slot: &'static Slot, frame: &mut Frame) {
    let (nr, args) = (frame.number(), frame.args());
    match nr {
        k::__NR_rt_sigprocmask => {
            let answer = mask_of(slot, &args);
            frame.answer(answer);
        }
        k::__NR_clone
            if args[0] & 0xff == SIGCHLD as usize && args[0] & !0xff & !FORK_FLAGS == 0 && args[1] == 0 =>
        {
            fork(slot, frame, nr, &args);
        }
        k::__NR_fork => fork(slot, frame, nr, &args),
        // Calls that do not come back as calls do, or that would undo the arming: give up and let the kernel have them.
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
                slot.set_verdict(Verdict::Plain(kind.into()));
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

/// The call is made when the handler returns, and the fork is a plain one.
pub(crate) fn give_up(slot: &Slot, frame: &mut Frame) {
    slot.disarm(frame);
    slot.goes_plain();
    frame.again();
}

/// A lock of libc's, mostly. Who has it may be waiting for us to handle a signal (collectors stop all threads so), and we have them blocked: what
/// takes longer than such a lock is held is done without us.
fn futex(args: &Args) -> Attempt<isize> {
    const WAIT: usize = k::FUTEX_WAIT as usize;
    const WAKE: usize = k::FUTEX_WAKE as usize;
    static PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut args = *args;
    match args[1] & !(k::FUTEX_PRIVATE_FLAG as usize) {
        WAIT if args[3] == 0 => args[3] = (&raw const PATIENCE) as usize,
        WAKE => {}
        _ => return Err(Kind::Unusual),
    }
    // SAFETY: libc's own call, but for the time.
    let answer = unsafe { kernel::pass(k::__NR_futex, &args) };
    if answer == -(Errno::ETIMEDOUT.raw() as isize) { Err(Kind::Lock) } else { Ok(answer) }
}

/// `rt_sigprocmask` on the program's view of its mask. libc has valid pointers here; an invalid one faults as it would in libc.
fn mask_of(slot: &Slot, args: &Args) -> isize {
    let [how, set, old, size, ..] = *args;
    let before = slot.mask.load(Relaxed);
    match child::signals::new_mask(before, how, set, size) {
        Ok(after) => slot.mask.store(after, Relaxed),
        Err(e) => return -(e.raw() as isize),
    }
    if old != 0 {
        memory::store(old, before);
    }
    0
}

/// libc's clone: speculate, and replace what did not commit.
fn fork(slot: &'static Slot, frame: &mut Frame, nr: u32, args: &Args) {
    let site = slot.site.load(Relaxed);
    let mut again = false;
    let verdict = match speculate(slot, frame, nr, args) {
        Ok(Ended::InChild) => return,
        Ok(Ended::Committed { pid, bytes }) => {
            sites::committed(site);
            slot.set_verdict(Verdict::Committed { bytes });
            slot.disarm(frame);
            frame.answer(pid as isize);
            return;
        }
        Ok(Ended::Aborted) => {
            let outcome = outcome::get();
            sites::aborted(site);
            again = outcome.has_signals();
            Verdict::Aborted(outcome.reason().unwrap_or(Kind::Died.into()))
        }
        Err(kind) => Verdict::Plain(kind.into()),
    };
    slot.set_verdict(verdict);
    // Everything is back in place before the clone, so that the child inherits nothing of ours.
    slot.disarm(frame);
    // Nor memory that another thread has marked meanwhile.
    // SAFETY: the program's own fork.
    let replace = || decide::plain(|| unsafe { kernel::pass(nr, args) });
    frame.answer(if again { resend(replace) } else { replace() });
}

/// In the replacement: what had reached the speculative child reaches it, when the handler we are in is left. Sent by the parent it could
/// come after something that the sender of the signal knows the child had not done. Out of line, for what it remembers: the shared pages are
/// the parent's, and another of its threads may be using them by then.
#[cold]
#[inline(never)]
fn resend(replace: impl FnOnce() -> isize) -> isize {
    let outcome = outcome::get();
    let ((count, known), rest) = (outcome.signals(), outcome.pending.load(Relaxed));
    let pid = replace();
    if pid != 0 {
        return pid;
    }
    let _ = signal::set_mask(SigSet::ALL);
    let me = process::getpid();
    for taken in known.iter().take(count) {
        let _ = taken.send_again(me);
    }
    for signal in 1..=64 {
        if rest & 1 << (signal - 1) != 0 {
            let _ = process::kill(me, signal);
        }
    }
    pid
}

/// Whether finding the mappings costs more than a plain fork would copy for what the child lacks. Beside threads they are gone through three times.
fn costs_too_many_looks(listed: &Listed, beside_threads: bool) -> bool {
    /// As many are in the smallest size that is worth a speculation.
    const USUAL: usize = 128;
    /// Each takes 0.4 us, where there are many.
    const PAGES_A_LOOK: usize = 400 / NANOS_PER_PAGE as usize;
    let looks = listed.mappings.saturating_sub(USUAL) * if beside_threads { 3 } else { 1 };
    config::learn() && listed.absent / 4096 < looks * PAGES_A_LOOK
}

enum Ended {
    InChild,
    Committed { pid: i32, bytes: usize },
    Aborted,
}

fn speculate(slot: &'static Slot, frame: &mut Frame, nr: u32, args: &Args) -> Attempt<Ended> {
    decide::open_window()?;
    let result = in_window(slot, frame, nr, args);
    // The child has a window of its own to leave; it never gets here with one that matters.
    if !matches!(result, Ok(Ended::InChild)) {
        decide::close_window();
    }
    result
}

fn in_window(slot: &'static Slot, frame: &mut Frame, nr: u32, args: &Args) -> Attempt<Ended> {
    let (flags, tid_word) = if nr == k::__NR_clone { (args[0] & FORK_FLAGS, args[3]) } else { (0, args[3]) };
    let tid_word = if flags & k::CLONE_CHILD_SETTID as usize != 0 { tid_word } else { frame.sp() };
    let site = slot.site.load(Relaxed);
    // From one no other is made meanwhile: it waits here.
    let beside_threads = config::fork() == config::Fork::Speculate && process::thread_count() != Some(1);
    let listed = plan::list(site, frame.sp(), tid_word, SMALLEST, beside_threads)?;
    let bytes = listed.absent;
    if bytes < config::minimum() {
        if !sites::gave_too_much(site, bytes) {
            size::note_small(site, bytes);
        }
        return Err(Kind::Small);
    }
    size::note_large();
    if costs_too_many_looks(&listed, beside_threads) {
        sites::aborted(site);
        return Err(Kind::Small);
    }
    // Nor those that are never blocked, until the child has handlers for them.
    let Ok(before) = signal::set_mask(SigSet::ALL) else { return Err(Kind::Setup) };
    let made = make_child(slot, frame, nr, args, beside_threads);
    if made == Ok(0) {
        return Ok(Ended::InChild);
    }
    let _ = insist(|| signal::set_mask(before));
    let pid = made?;
    // For the report. What is mapped need not be there: sanitizers reserve terabytes. The peak resident set bounds what a fork would have
    // copied.
    let bytes = if config::record().is_null() { bytes } else { bytes.min(size::peak()) };
    let committed = committed(pid);
    child::signals::learn_restorer();
    sites::learn(site, outcome::get().ranges(), committed);
    Ok(if committed { Ended::Committed { pid, bytes } } else { Ended::Aborted })
}

/// The clone, with all signals blocked. Returns the child's number when it has executed a program or ended; in the child 0.
fn make_child(
    slot: &'static Slot,
    frame: &mut Frame,
    nr: u32,
    args: &Args,
    beside_threads: bool,
) -> Attempt<i32> {
    let source = Source::open(slot, beside_threads)?;
    outcome::get().reset();
    if !outcome::lend() {
        source.close();
        return Err(Kind::Setup);
    }
    mark();
    let parent = process::getpid();
    let flags = if nr == k::__NR_clone { args[0] & FORK_FLAGS } else { 0 } | k::CLONE_VFORK as usize;
    let spawn = match nr {
        k::__NR_clone => [flags, 0, args[2], args[3], args[4], 0],
        _ => [flags, 0, 0, 0, 0, 0],
    };
    // SAFETY: a fork as the program asked for, but with exit signal 0 (an aborted child is nobody's business; exec sets SIGCHLD,
    // kernel/exec.c, de_thread) and suspending us until it has executed a program or ended.
    let pid = unsafe { kernel::pass(k::__NR_clone, &spawn) };
    if pid == 0 {
        child::begin(slot, source.descriptor(), parent);
        frame.mask = BLOCKED.0;
        frame.answer(0);
        return Ok(0);
    }
    outcome::keep();
    unmark(beside_threads);
    source.close();
    if pid < 0 { Err(Kind::CloneFailed) } else { Ok(pid as i32) }
}

/// Whether the child, which has left our memory, executed a program. If it did not it is reaped.
fn committed(pid: i32) -> bool {
    let ask = |question| {
        let options = match question {
            Question::Executed => WEXITED | WNOHANG | WNOWAIT,
            Question::End => WEXITED | WALL,
        };
        let asked = insist(|| match process::waitid(P_PID, pid, options) {
            Ok(ended) => {
                if question == Question::End {
                    killed(&ended);
                }
                Ok(Answer::Yes)
            }
            Err(Errno::ECHILD) => Ok(Answer::NoChild),
            Err(Errno::EINTR) => Ok(Answer::Interrupted),
            Err(other) => Err(other),
        });
        let told = asked.unwrap_or(Answer::Refused);
        // Filters that know waitid's older brother only.
        if told == Answer::Refused && question == Question::End && process::wait4(pid, WALL).is_ok() {
            Answer::Yes
        } else {
            told
        }
    };
    protocol::committed(ask, || outcome::get().is_executing())
}

/// While the child is in execve, signals act on it by their default. What ended it then was sent, for the replacement as well; but not what
/// its own timers sent, what only our own faults send, or a kill: that one would also come where there is no memory for a speculation.
fn killed(child: &WaitInfo) {
    const CLD_KILLED: i32 = 2;
    const CLD_DUMPED: i32 = 3;
    const SIGKILL: i32 = 9;
    if matches!(child.code, CLD_KILLED | CLD_DUMPED)
        && child.status != SIGKILL
        && !SYNCHRONOUS.has(child.status)
        && !OF_TIMERS.has(child.status)
    {
        outcome::get().pending.fetch_or(1 << (child.status - 1), Relaxed);
    }
}

/// Marks the absent ranges. From the first that refuses on (VM_SPECIAL mappings do), the rest stays with the kernel.
fn mark() {
    let mut n = 0;
    for (start, end) in plan::absent().iter() {
        // SAFETY: affects only what a child gets, and the child knows how to fetch it.
        if unsafe { mm::madvise(start as *mut _, end - start, mm::MADV_DONTFORK) }.is_err() {
            // Where another thread has unmapped a part of it the others are marked all the same.
            clear(start, end);
            break;
        }
        n += 1;
    }
    plan::absent().truncate(n);
}

fn clear(start: usize, end: usize) {
    // SAFETY: takes back what `mark` did; mappings with the program's own mark are never among them.
    let _ = insist(|| unsafe { mm::madvise(start as *mut _, end - start, mm::MADV_DOFORK) });
}

fn unmark(beside_threads: bool) {
    plan::absent().iter().for_each(|(start, end)| clear(start, end));
    if beside_threads {
        // What moves downwards while they are gone through upwards is passed by: until a look finds all where the one before found it, or
        // threads that never rest have had their share.
        const LOOKS: usize = 8;
        let mut before = None;
        for _ in 0..LOOKS {
            let now = Some(plan::each_candidate(clear));
            if now == before {
                break;
            }
            before = now;
        }
    }
}
