//! A switch of the callee-saved registers alone, in assembly.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;

use super::arch::{lay_out, switch};
use super::{Named, Pair, STACK, Way, pair};

pub(super) fn operations() -> Vec<Named> {
    vec![("mask_free", mask_free as fn(u64)), ("green_mask_free", green_mask_free)]
}

fn mask_free(count: u64) {
    pair::<Registers>(count, false);
}

fn green_mask_free(count: u64) {
    pair::<Registers>(count, true);
}

/// Stack pointers of the sides not running.
struct Registers(UnsafeCell<[*mut c_void; 2]>);

impl Default for Registers {
    fn default() -> Registers {
        Registers(UnsafeCell::new([ptr::null_mut(); 2]))
    }
}

impl Registers {
    fn of(&self, side: usize) -> *mut *mut c_void {
        self.0.get().cast::<*mut c_void>().wrapping_add(side)
    }
}

impl Way for Registers {
    fn prepare(&self, pair: *const Pair<Registers>, stack: *mut u8) {
        // SAFETY: the stack is larger than what is laid out, and nothing runs on it yet.
        let sleeper = unsafe {
            lay_out(stack.wrapping_add(STACK), enter as *const () as usize, pair.expose_provenance())
        };
        // SAFETY: nothing reads the pointer until the first switch.
        unsafe { *self.of(1) = sleeper };
    }

    fn switch_from(&self, side: usize) {
        // SAFETY: the other side's stack pointer was saved by a switch, or laid out by `prepare`.
        let stack = unsafe { *self.of(1 - side) };
        // SAFETY: as above; this side's pointer is kept until the other side switches back.
        unsafe { switch(self.of(side), stack) };
    }
}

/// Where the first switch to the other side arrives.
extern "C" fn enter(pair: *const Pair<Registers>) -> ! {
    // SAFETY: the pair is alive as long as anything switches to this side.
    unsafe { &*pair }.pop_for_ever()
}
