//! Methods of switching contexts. libc's ucontext functions save and restore the signal mask by a
//! system call each. The others are jumps with and without the mask, and a switch of the
//! callee-saved registers alone. The green threads have the shape of the published program: one
//! pushes onto an array and yields, the other pops and yields.

// The parent module's expectation of unsafe code covers this file and those below it.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ptr;

#[cfg(target_arch = "aarch64")]
#[path = "switch/aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "switch/x86_64.rs"]
mod arch;
mod mask_free;
#[cfg(any(all(target_os = "linux", target_env = "gnu"), target_os = "freebsd"))]
mod ucontext;

/// A name and what repeats the operation.
pub(crate) type Named = (&'static str, fn(u64));

/// The kinds of switch. `getcontext`, `swapcontext` and `mask_free` are single switches. The jumps
/// are a pair of set and jump. The green threads do one push or pop with the switch that follows.
pub(crate) fn operations() -> Vec<Named> {
    let mut all: Vec<Named> = Vec::new();
    #[cfg(any(all(target_os = "linux", target_env = "gnu"), target_os = "freebsd"))]
    all.extend(ucontext::operations());
    all.extend(mask_free::operations());
    all.push(("sigsetjmp", sigsetjmp));
    all.push(("_setjmp", setjmp));
    // In the order of the table.
    const ORDER: [&str; 7] = [
        "getcontext",
        "swapcontext",
        "mask_free",
        "sigsetjmp",
        "_setjmp",
        "green_ucontext",
        "green_mask_free",
    ];
    all.sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name));
    all
}

/// What of it this C library has not got.
pub(crate) fn missing() -> Option<&'static str> {
    let has = cfg!(any(all(target_os = "linux", target_env = "gnu"), target_os = "freebsd"));
    (!has)
        .then_some("getcontext, swapcontext, green_ucontext: this C library's are deprecated, or it has none")
}

unsafe extern "C" {
    // Never called from Rust: their addresses go to assembly, for they return twice. On Linux
    // `sigsetjmp` is a macro.
    #[cfg_attr(target_os = "linux", link_name = "__sigsetjmp")]
    #[cfg_attr(not(target_os = "linux"), link_name = "sigsetjmp")]
    fn libc_sigsetjmp(buffer: *mut c_void, save_mask: c_int) -> c_int;
    fn siglongjmp(buffer: *mut c_void, value: c_int) -> !;
}

fn jumps(count: u64, save_mask: c_int) {
    // The largest is glibc's sigjmp_buf on arm64, of 312 bytes.
    let mut buffer = [0_u64; 64];
    if count > 0 {
        // SAFETY: the buffer is larger than a sigjmp_buf and outlives the loop; every jump goes to
        // a set within it.
        unsafe { arch::jump_loop(count, buffer.as_mut_ptr().cast(), save_mask, libc_sigsetjmp, siglongjmp) };
    }
}

fn sigsetjmp(count: u64) {
    jumps(count, 1);
}

fn setjmp(count: u64) {
    jumps(count, 0);
}

const STACK: usize = 64 << 10;

/// How a pair of coroutines switches; holds what the side that does not run has left.
trait Way: Default {
    /// Lays the other side out on its stack, [`STACK`] bytes, so that the first switch enters it.
    fn prepare(&self, pair: *const Pair<Self>, stack: *mut u8);

    /// Lets the other side run until it switches back.
    fn switch_from(&self, side: usize);
}

/// Two coroutines: the other one's stack, and what both share.
struct Pair<W> {
    way: W,
    stack: UnsafeCell<Box<[u8]>>,
    array: UnsafeCell<Vec<u64>>,
    /// Whether the sides push and pop, or only switch.
    work: bool,
}

impl<W: Way> Pair<W> {
    /// The other side: pops for ever.
    fn pop_for_ever(&self) -> ! {
        loop {
            if self.work {
                // SAFETY: only one side runs at a time, and none keeps a reference across a switch.
                black_box(unsafe { &mut *self.array.get() }.pop());
            }
            self.way.switch_from(1);
        }
    }

    /// This side: pushes and yields. Every round is two switches.
    fn push(&self, rounds: u64) {
        for round in 0..rounds {
            if self.work {
                // SAFETY: as in `pop_for_ever`.
                unsafe { &mut *self.array.get() }.push(round);
            }
            self.way.switch_from(0);
        }
    }
}

/// `count` switches between two coroutines. The other side's stack goes away with it suspended: it
/// owns nothing.
fn pair<W: Way>(count: u64, work: bool) {
    let pair = Box::new(Pair {
        way: W::default(),
        stack: UnsafeCell::new(vec![0; STACK].into_boxed_slice()),
        array: UnsafeCell::new(Vec::with_capacity(16)),
        work,
    });
    // SAFETY: nothing runs on the stack yet.
    let stack = unsafe { &mut *pair.stack.get() }.as_mut_ptr();
    pair.way.prepare(ptr::from_ref(&*pair), stack);
    pair.push(count / 2);
}
