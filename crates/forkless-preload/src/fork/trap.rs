//! The `SIGSYS` handler. Dispatched system calls arrive here, in the parent while it forks and in
//! the speculative child.
#![expect(unsafe_code, reason = "signal handlers")]

use forkless_run::AbortKind;
use forkless_sys::dispatch::SYS_USER_DISPATCH;
use forkless_sys::process;
use forkless_sys::signal::KernelAction;

use crate::signals::SIGSYS;

use super::arm;
use super::child;
use super::frame::{Frame, Info, OWN_TABLE};
use super::parent;
use super::slot::ThreadSlot;

/// Handler of `SIGSYS`, installed while any thread is armed and in speculative children.
pub(crate) extern "C" fn on_sigsys(signal: i32, info: &Info, frame: &mut Frame) {
    if info.code != SYS_USER_DISPATCH {
        return not_ours(signal, info, frame);
    }
    if super::speculating() {
        if info.table != OWN_TABLE {
            // By int 0x80. Its number is one of i386's.
            child::abort(AbortKind::Call32);
        }
        let answer = child::trapped(frame.number(), &frame.args());
        frame.answer(answer);
    } else if let Some(slot) = arm::mine() {
        if info.table == OWN_TABLE {
            parent::trapped(slot, frame);
        } else {
            parent::give_up(slot, frame);
        }
    } else {
        // Dispatch is ours alone, and a thread's. So this thread has a slot.
        crate::rt::abort();
    }
}

/// A `SIGSYS` from elsewhere: a seccomp filter of another thread's, or kill. The program's action
/// decides, as if ours were not there.
fn not_ours(signal: i32, info: &Info, frame: &mut Frame) {
    if super::speculating() {
        child::interrupted(signal, info.code);
    }
    let slot = arm::mine().filter(|slot| slot.is_armed());
    if let Some(slot) = slot
        && info.code <= 0
    {
        // Sent again when all is put back. The program may have it blocked, and its handler makes
        // calls that must not come to us here.
        slot.disarm(frame);
        slot.goes_plain();
        let _ = info.taken().send_again(process::getpid());
        return;
    }
    let is_blocked = slot.is_some_and(ThreadSlot::blocks_sigsys);
    let action = arm::program_action();
    match action.handler {
        // The default action. Also for a signal that the kernel forces on a call and that cannot be
        // delivered.
        handler if handler == 0 || (info.code > 0 && (is_blocked || handler == 1)) => {
            // SAFETY: the default action.
            let _ = unsafe { forkless_sys::signal::set_action(SIGSYS, &KernelAction::DEFAULT) };
            let _ = process::tgkill(process::getpid(), process::gettid(), SIGSYS);
            // Delivered when this handler returns.
            frame.mask &= !(1 << (SIGSYS - 1));
        }
        1 => {}
        handler => {
            // SAFETY: the program's own handler, for this signal and with the kernel's description
            // of it. A handler of one argument (without SA_SIGINFO) ignores the other registers.
            // Unlike the kernel's call, it runs with all but the synchronous signals blocked, and
            // on the slot's stack where the thread has a slot.
            let handler =
                unsafe { core::mem::transmute::<usize, extern "C" fn(i32, &Info, &mut Frame)>(handler) };
            handler(signal, info, frame);
        }
    }
}
