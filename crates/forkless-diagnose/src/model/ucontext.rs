//! The cost of glibc's user contexts: one system call, and saving registers and floating-point
//! state. A switch without the mask does neither.

#![expect(unsafe_code, reason = "getcontext, makecontext and swapcontext are what is measured")]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;

use libc::ucontext_t;

use super::repeated;

/// Enough for a function that calls another, with room for the dynamic linker's first look-up of
/// it.
const STACK: usize = 64 << 10;

struct Pair {
    here: MaybeUninit<ucontext_t>,
    there: MaybeUninit<ucontext_t>,
}

thread_local! {
    /// makecontext(3) passes integers only, so the pointer goes through here.
    static PAIR: Cell<*mut Pair> = const { Cell::new(ptr::null_mut()) };
}

/// Runs on the other stack and switches back at once, every time.
extern "C" fn go_back() {
    let pair = PAIR.get();
    loop {
        // SAFETY: `swapcontext` below set the pointer to its own pair, which lives as long as this
        // context is switched to.
        let there = unsafe { (*pair).there.as_mut_ptr() };
        // SAFETY: as above.
        let here = unsafe { (*pair).here.as_ptr() };
        // SAFETY: `here` was filled by the switch that led here; both are this thread's.
        unsafe { libc::swapcontext(there, here) };
    }
}

/// The cost of one switch. A round has two.
pub(super) fn swapcontext() -> f64 {
    let mut stack = vec![0u8; STACK];
    let mut pair = Pair { here: MaybeUninit::uninit(), there: MaybeUninit::uninit() };
    let there = pair.there.as_mut_ptr();
    // SAFETY: room for one context of ours.
    if unsafe { libc::getcontext(there) } != 0 {
        return 0.0;
    }
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK };
    // SAFETY: getcontext has filled it.
    unsafe { (*there).uc_stack = stack };
    // SAFETY: the context has a stack, and its function takes no arguments and never returns.
    unsafe { libc::makecontext(there, go_back, 0) };
    let here = pair.here.as_mut_ptr();
    PAIR.set(&raw mut pair);
    let round = repeated(|| {
        // SAFETY: both contexts and the stack outlive the loop, and the other side comes back at
        // once.
        unsafe { libc::swapcontext(here, there) };
    });
    PAIR.set(ptr::null_mut());
    round / 2.0
}

/// getcontext alone; setcontext costs the same, and cannot be measured without a jump.
pub(super) fn getcontext() -> f64 {
    let mut context = MaybeUninit::uninit();
    repeated(|| {
        // SAFETY: room for one context of ours.
        unsafe { libc::getcontext(context.as_mut_ptr()) };
    })
}
