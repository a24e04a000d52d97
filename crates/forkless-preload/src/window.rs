//! The window of this process (`forkless_speculate::window`): the time in which memory is marked
//! for a speculation. Only beside other threads somebody can meet it.

#[cfg(target_arch = "x86_64")]
use forkless_speculate::window::{Threads, Window};
#[cfg(target_arch = "x86_64")]
use forkless_sys::process;

#[cfg(target_arch = "x86_64")]
use crate::patience::{self, Patience};
#[cfg(target_arch = "x86_64")]
use crate::{config, filters, memory_owner, speculation};

#[cfg(target_arch = "x86_64")]
pub(crate) use forkless_speculate::window::Busy;

#[cfg(target_arch = "x86_64")]
static WINDOW: Window = Window::new();

/// Whether other threads may run beside a speculation. Where libc knows of none, nobody speculates
/// beside any (`fork/decide`).
#[cfg(target_arch = "x86_64")]
pub(crate) fn meets_threads() -> bool {
    config::fork().serves_threads() && !filters::has_one_thread()
}

/// Makes a fork that does not speculate, never while another thread has memory marked: its child
/// would lack it. Before libc's fork takes any lock.
#[cfg(target_arch = "x86_64")]
pub(crate) fn plain<T>(fork: impl FnOnce() -> T) -> T {
    if !meets_threads() {
        return fork();
    }
    begin_plain();
    let result = fork();
    end_plain();
    result
}

/// Whether other threads may be speculating, and the library may make calls of its own to wait for
/// them. A speculative child has one thread, and a program with a filter speculates no more.
#[cfg(target_arch = "x86_64")]
pub(crate) fn may_meet_speculations() -> bool {
    if speculation::speculating() || !meets_threads() {
        return false;
    }
    filters::learn();
    !filters::sandboxed()
}

/// Makes a fork of which the library is not asked, as [`plain`]: by libc's `forkpty`, or by a
/// system call.
#[cfg(target_arch = "x86_64")]
pub(crate) fn past_fork<T>(fork: impl FnOnce() -> T) -> T {
    let counted = begin_past_fork();
    let result = fork();
    // In the child, what was counted is the parent's.
    if counted && !memory_owner::is_copy() {
        end_plain();
    }
    result
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn begin_past_fork() -> bool {
    if !may_meet_speculations() {
        return false;
    }
    if memory_owner::is_copy() {
        // A window that was open in the parent is never closed here.
        memory_owner::take_over();
    }
    begin_plain();
    true
}

/// From here on no window is opened, until [`end_plain`].
#[cfg(target_arch = "x86_64")]
pub(crate) fn begin_plain() {
    speculation::touch();
    WINDOW.begin_plain(&OurThreads);
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn end_plain() {
    WINDOW.end_plain();
}

/// Makes a call that moves memory, never while another thread has memory marked. Nor one that marks
/// memory for the program, whose mark would be taken back with ours.
#[cfg(target_arch = "x86_64")]
pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
    if !meets_threads() {
        return call();
    }
    begin_move();
    let result = call();
    end_move();
    result
}

/// Makes a call that lets a mapping join its neighbour, never while another thread has memory
/// marked. Marked memory is joined by none: if both parts get pages meanwhile, they stay two
/// mappings for good, and `mremap` refuses to move them (EFAULT).
#[cfg(target_arch = "x86_64")]
pub(crate) fn unmarked<T>(call: impl FnOnce() -> T) -> T {
    if speculation::speculating() || filters::sandboxed() || !meets_threads() {
        return call();
    }
    here();
    WINDOW.begin_change(&OurThreads);
    let result = call();
    end_move();
    result
}

/// A call begins that moves memory, where threads are met. Waits while another thread has memory
/// marked.
#[cfg(target_arch = "x86_64")]
pub(crate) fn begin_move() {
    here();
    WINDOW.begin_move(&OurThreads);
}

/// Before the calling thread counts itself.
#[cfg(target_arch = "x86_64")]
fn here() {
    speculation::touch();
    if memory_owner::is_copy() {
        // A window that was open in the parent is never closed here.
        memory_owner::take_over();
    }
}

/// The call has ended.
#[cfg(target_arch = "x86_64")]
pub(crate) fn end_move() {
    WINDOW.end_move();
}

/// Makes a call that lets a mapping join its neighbour: on arm64 nothing is marked.
#[cfg(target_arch = "aarch64")]
pub(crate) fn unmarked<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// Makes a call that moves memory: on arm64 nothing marks any.
#[cfg(target_arch = "aarch64")]
pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// A speculation begins: waits for another one to end.
#[cfg(target_arch = "x86_64")]
pub(crate) fn begin() {
    WINDOW.begin(&OurThreads);
}

/// Opens the window of a speculation, which has closed it after an earlier child.
#[cfg(target_arch = "x86_64")]
pub(crate) fn open() -> Result<(), Busy> {
    let mut patience = Patience::short(1000);
    WINDOW.open(&OurThreads, || patience.turn())
}

/// All marks are taken back.
#[cfg(target_arch = "x86_64")]
pub(crate) fn close() {
    WINDOW.close();
}

/// The speculation has ended, its window closed.
#[cfg(target_arch = "x86_64")]
pub(crate) fn end() {
    WINDOW.end();
}

/// In a plain forked child: threads that were in the middle of something are not here.
#[cfg(target_arch = "x86_64")]
pub(crate) fn reset() {
    WINDOW.reset();
}

#[cfg(target_arch = "x86_64")]
struct OurThreads;

#[cfg(target_arch = "x86_64")]
impl Threads for OurThreads {
    fn wait(&self, turn: u32) {
        // The program's filter may kill for a call that the program does not make.
        if filters::sandboxed() {
            core::hint::spin_loop();
        } else {
            patience::pause(turn);
        }
    }

    fn is_only_one(&self) -> bool {
        process::thread_count() == Some(1)
    }
}
