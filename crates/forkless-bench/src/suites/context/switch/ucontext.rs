//! libc's ucontext functions, where it has them: glibc and FreeBSD's. macOS has deprecated them,
//! musl never had any.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr;

use libc::ucontext_t;

use super::{Named, Pair, STACK, Way, pair};

pub(super) fn operations() -> Vec<Named> {
    vec![
        ("getcontext", getcontext as fn(u64)),
        ("swapcontext", swapcontext),
        ("green_ucontext", green_ucontext),
    ]
}

#[cfg(target_os = "linux")]
use libc::{getcontext as libc_getcontext, makecontext, swapcontext as libc_swapcontext};

#[cfg(not(target_os = "linux"))]
unsafe extern "C" {
    #[link_name = "getcontext"]
    fn libc_getcontext(context: *mut ucontext_t) -> c_int;
    #[link_name = "swapcontext"]
    fn libc_swapcontext(save: *mut ucontext_t, to: *const ucontext_t) -> c_int;
    fn makecontext(context: *mut ucontext_t, entry: extern "C" fn(), count: c_int, ...);
}

fn getcontext(count: u64) {
    let mut context = MaybeUninit::<ucontext_t>::zeroed();
    for _ in 0..count {
        // SAFETY: the memory is writable; nobody ever resumes this context.
        black_box(unsafe { libc_getcontext(context.as_mut_ptr()) });
        black_box(&context);
    }
}

fn swapcontext(count: u64) {
    pair::<Contexts>(count, false);
}

fn green_ucontext(count: u64) {
    pair::<Contexts>(count, true);
}

/// The saved contexts of both sides.
struct Contexts(UnsafeCell<[MaybeUninit<ucontext_t>; 2]>);

impl Default for Contexts {
    fn default() -> Contexts {
        Contexts(UnsafeCell::new([MaybeUninit::zeroed(), MaybeUninit::zeroed()]))
    }
}

impl Contexts {
    fn of(&self, side: usize) -> *mut ucontext_t {
        self.0.get().cast::<ucontext_t>().wrapping_add(side)
    }
}

impl Way for Contexts {
    fn prepare(&self, pair: *const Pair<Contexts>, stack: *mut u8) {
        let context = self.of(1);
        // SAFETY: the context is writable memory of this value.
        black_box(unsafe { libc_getcontext(context) });
        // SAFETY: getcontext initialised it; nobody else refers to it.
        let made = unsafe { &mut *context };
        made.uc_stack.ss_sp = stack.cast();
        made.uc_stack.ss_size = STACK;
        made.uc_link = ptr::null_mut();
        let address = pair.expose_provenance();
        let halves = [(address >> 32) as c_int, address as u32 as c_int];
        // SAFETY: makecontext passes ints, hence the pointer in two halves; the function takes just
        // those.
        let entry = unsafe {
            std::mem::transmute::<extern "C" fn(c_int, c_int) -> !, extern "C" fn()>(enter_by_halves)
        };
        // SAFETY: the stack belongs to this context alone.
        unsafe { makecontext(context, entry, 2, halves[0], halves[1]) };
    }

    fn switch_from(&self, side: usize) {
        // SAFETY: both contexts are this value's; the other one was made or saved before.
        black_box(unsafe { libc_swapcontext(self.of(side), self.of(1 - side)) });
    }
}

extern "C" fn enter_by_halves(high: c_int, low: c_int) -> ! {
    let address = (high as u32 as usize) << 32 | low as u32 as usize;
    let pair: *const Pair<Contexts> = ptr::with_exposed_provenance(address);
    // SAFETY: the pair is alive as long as anything switches to this side.
    unsafe { &*pair }.pop_for_ever()
}
