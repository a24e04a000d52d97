//! The program's POSIX timers in a child (`forkless_speculate::timers`). None may be set to expire:
//! its signal would come before the exec, or wait for it.

use forkless_run::{AbortKind, AbortReason};
use forkless_speculate::timers::Numbers;
use forkless_sys::Errno;
use linux_raw_sys::general as k;

use crate::kernel::Args;

use super::super::program_memory;
use super::{abort, need, stack, time_limit};

/// Bytes of `struct sigevent` and `struct itimerspec`.
const SIGEVENT: usize = 64;
const ITIMERSPEC: usize = 32;

fn numbers() -> Numbers {
    Numbers { ours: time_limit::number() }
}

/// `timer_create`.
pub(crate) fn create(args: &Args) -> isize {
    let [_, event, number, ..] = *args;
    need::bytes(event, SIGEVENT);
    need::bytes(number, 4);
    let answer = stack::pass(k::__NR_timer_create, args);
    if answer == -(Errno::EAGAIN.raw() as isize) {
        // Ours counts against RLIMIT_SIGPENDING as well.
        abort(AbortReason::new(AbortKind::Call, k::__NR_timer_create));
    }
    if answer == 0 {
        program_memory::store(number, numbers().programs(program_memory::value(number)));
    }
    answer
}

/// `timer_settime`.
pub(crate) fn set(args: &Args) -> isize {
    let [_, _, new, old, ..] = *args;
    need::bytes(new, ITIMERSPEC);
    need::bytes(old, ITIMERSPEC);
    // The interval comes first. It means nothing where the time until the first end is 0.
    if new != 0 && program_memory::value::<[i64; 2]>(new + ITIMERSPEC / 2) != [0, 0] {
        abort(AbortReason::new(AbortKind::Call, k::__NR_timer_settime));
    }
    named(k::__NR_timer_settime, args)
}

/// `timer_gettime`, `timer_getoverrun` and `timer_delete`.
pub(crate) fn other(nr: u32, args: &Args) -> isize {
    if nr == k::__NR_timer_gettime {
        need::bytes(args[1], ITIMERSPEC);
    }
    named(nr, args)
}

/// The call, on the timer that argument 0 names.
fn named(nr: u32, args: &Args) -> isize {
    let [timer, rest @ ..] = *args;
    let Some(timer) = numbers().kernels(timer as i32) else { return -(Errno::EINVAL.raw() as isize) };
    let [a, b, c, d, e] = rest;
    stack::pass(nr, &[timer as usize, a, b, c, d, e])
}
