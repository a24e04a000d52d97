//! Masks, dispositions, pending signals, alternate stacks and timers, in a child with one thread.
#![expect(unsafe_code, reason = "actions and stacks of the process")]

mod common;

use common::{in_child, must};
use forkless_sys::signal::{self, AltStack, Disposition, KernelAction, SIGCHLD, SigSet, Taken};
use forkless_sys::time::{self, Timespec};
use forkless_sys::{Errno, futex, mm, process, timer};

const USR1: i32 = 10;
const ALARM: i32 = 14;
const IGNORE: KernelAction = KernelAction { handler: 1, ..KernelAction::DEFAULT };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

#[test]
fn a_set_holds_signals_1_to_64() {
    assert_eq!(SigSet::EMPTY.with(1).with(64), SigSet(1 | 1 << 63));
    assert_eq!(SigSet::EMPTY.with(0).with(65), SigSet::EMPTY);
    assert!(!SigSet::ALL.has(0) && !SigSet::ALL.has(65) && !SigSet::ALL.without(9).has(9));
    assert_eq!(
        SigSet::EMPTY.with(2).with(15).and(SigSet::EMPTY.with(15).with(SIGCHLD)),
        SigSet::EMPTY.with(15)
    );
    assert_eq!(KernelAction { handler: 0x1000, ..IGNORE }.disposition(), Disposition::Handler(0x1000));
}

#[test]
fn a_blocked_signal_is_pending_until_taken() {
    in_child(|| {
        let usr1 = SigSet::EMPTY.with(USR1);
        let old = signal::set_mask(SigSet::ALL)?;
        must(signal::set_mask(usr1)? == SigSet::ALL.without(9).without(19))?; // SIGKILL and SIGSTOP stay
        must(signal::mask() == Ok(usr1))?;
        process::kill(process::getpid(), USR1)?;
        must(signal::pending() == Ok(usr1))?;
        let taken = signal::take_pending_from(usr1)?;
        must(taken.signal() == USR1 && taken.code() == Taken::USER && taken.sender() == process::getpid())?;
        must(signal::take_pending(usr1) == Err(Errno::EAGAIN))?;
        let mut info = [0; 32];
        (info[0], info[4]) = (USR1, 4711);
        Taken(info).send_again(process::getpid())?;
        must(signal::take_pending_from(usr1)?.sender() == 4711)?;
        process::tgkill(process::getpid(), process::gettid(), USR1)?;
        must(signal::take_pending(usr1) == Ok(USR1))?;
        signal::set_mask(old).map(drop)
    });
}

#[test]
fn the_kernel_tells_what_can_be_read_and_written() {
    in_child(|| {
        let before = signal::mask()?;
        let words = [u64::MAX; 3];
        must(signal::is_readable(&raw const words[1] as usize + 5) && signal::mask() == Ok(before))?;
        let mut words = [7u32, u32::MAX];
        let second = &raw mut words[1] as usize;
        must(futex::is_writable(second + 3) && futex::is_writable(second - 4) && words == [7, u32::MAX])?;
        let closed = mm::map_anonymous(4096, mm::PROT_NONE, mm::MAP_PRIVATE)? as usize;
        must(!signal::is_readable(closed) && !signal::is_readable(0))?;
        let constant = mm::map_anonymous(4096, mm::PROT_READ, mm::MAP_PRIVATE)? as usize;
        must(![closed, constant, 0].into_iter().any(futex::is_writable))
    });
}

#[test]
fn an_action_is_replaced_and_read() {
    in_child(|| {
        signal::reset(USR1, true)?;
        must(signal::disposition(USR1) == Ok(Disposition::Ignore) && signal::action(USR1)?.handler == 1)?;
        signal::reset(USR1, false)?;
        must(signal::disposition(USR1) == Ok(Disposition::Default))?;
        must(signal::reset(9, true) == Err(Errno::EINVAL))?;
        must(signal::disposition(65) == Err(Errno::EINVAL))?;
        // SAFETY: no handler.
        let before = unsafe { signal::set_action(USR1, &IGNORE) }?;
        // SAFETY: the old action.
        must(unsafe { signal::set_action(USR1, &before) }? == IGNORE)?;
        must(!signal::any_handled(SigSet::EMPTY.with(USR1)))
    });
}

#[test]
fn an_alternate_stack_is_replaced_by_the_old_one() {
    let mut memory = vec![0u8; 64 << 10];
    let new = AltStack { start: memory.as_mut_ptr() as usize, flags: 0, size: memory.len() };
    // SAFETY: `memory` has no other use, and lives until the old stack is back.
    let old = unsafe { signal::set_altstack(&new) }.unwrap();
    assert_eq!(signal::altstack(), Ok(new));
    // SAFETY: the old stack.
    assert_eq!(unsafe { signal::set_altstack(&old) }, Ok(new));
}

#[test]
fn a_timer_counts_down_and_sends_its_signal() {
    in_child(|| {
        let alarm = SigSet::EMPTY.with(ALARM);
        signal::set_mask(alarm)?;
        must(timer::create(65) == Err(Errno::EINVAL))?;
        let one = timer::create(ALARM)?;
        must(timer::left(one) == Ok(NOW))?;
        timer::set(one, Timespec { tv_sec: 1000, tv_nsec: 0 })?;
        must(timer::left(one)?.tv_sec > 900)?;
        let millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        must(timer::set(one, millisecond)?.tv_sec > 900)?;
        for _ in 0..10_000 {
            if signal::pending()?.has(ALARM) {
                break;
            }
            time::nanosleep(millisecond)?;
        }
        must(signal::take_pending(alarm) == Ok(ALARM))?;
        let last = timer::create_last(ALARM)?;
        let next = timer::create(ALARM)?;
        must((last.0 == i32::MAX && next.0 == 0) || next.0 == last.0 + 1) // from Linux 6.15 on, before it
    });
}

#[test]
fn clocks_move_forward() {
    let before = time::monotonic_coarse();
    time::nanosleep(Timespec { tv_sec: 0, tv_nsec: 20_000_000 }).unwrap(); // more than a tick
    let after = time::monotonic_coarse();
    assert!((before.tv_sec, before.tv_nsec) < (after.tv_sec, after.tv_nsec));
    let wrong = Timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
    assert_eq!(time::nanosleep(wrong), Err(Errno::EINVAL));
}
