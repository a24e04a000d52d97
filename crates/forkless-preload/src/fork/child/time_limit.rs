//! The time limit of the child: a timer, and a look when it has expired
//! (`forkless_speculate::time_limit`).

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use forkless_run::AbortKind;
use forkless_speculate::text::decimal;
use forkless_speculate::time_limit;
use forkless_sys::time::{self, Timespec};
use forkless_sys::timer::{self, TimerId};
use forkless_sys::{Result, fd};

use crate::signals::SIGBUS;
use crate::{config, proc};

use super::super::frame::Frame;
use super::super::memory_source;
use super::abort;

static TIMER: AtomicI32 = AtomicI32::new(0);

/// The clock when the child began, in nanoseconds.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// The kernel's number of the timer.
pub(super) fn number() -> i32 {
    TIMER.load(Relaxed)
}

fn limit() -> u64 {
    u64::from(config::limit_ms()) * 1_000_000
}

pub(super) fn start() -> Result<()> {
    let id = timer::create_last(SIGBUS)?;
    TIMER.store(id.0, Relaxed);
    BEGUN.store(time::monotonic().nanos(), Relaxed);
    give(limit())
}

fn give(nanos: u64) -> Result<()> {
    timer::set(TimerId(number()), Timespec::of_nanos(nanos)).map(drop)
}

/// The timer has expired, and has interrupted the child. Returns where the child may go on.
pub(super) fn over(frame: &Frame) {
    // A call of the program's that was interrupted would have another answer than without the
    // timer.
    if !memory_source::is_asking() && frame.may_follow_a_call() {
        abort(AbortKind::Timeout);
    }
    go_on_or_abort();
}

/// After an exec that failed. The timer's signal comes once, and not at all where the program
/// ignores it. Its parent waits for the child. So a child that tries until the parent has made the
/// file would try for ever.
pub(super) fn abort_if_over() {
    match timer::left(TimerId(number())) {
        Ok(left) if left.tv_sec != 0 || left.tv_nsec != 0 => {}
        _ => go_on_or_abort(),
    }
}

fn go_on_or_abort() {
    let now = time::monotonic().nanos();
    let more = waited().and_then(|waited| time_limit::more(limit(), BEGUN.load(Relaxed), now, waited));
    if more.is_none_or(|more| give(more).is_err()) {
        abort(AbortKind::Timeout);
    }
}

/// Nanoseconds for which this process has waited: for a processor, which is the second number of
/// /proc/self/schedstat, and for the thread or process that serves its memory, which waits for a
/// processor, too. `None`: the kernel does not say.
fn waited() -> Option<u64> {
    let file = proc::open(c"self/schedstat").ok()?;
    let mut text = [0; 64];
    let read = fd::read(file, &mut text);
    let _ = fd::close(file);
    let numbers = text.get(..read.ok()?)?;
    let for_processor = decimal(numbers.split(|byte| *byte == b' ').nth(1)?)?;
    Some(for_processor + memory_source::waited())
}
