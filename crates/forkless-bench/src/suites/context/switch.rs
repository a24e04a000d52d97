//! Ways to switch contexts: libc's ucontext functions, which save and restore the signal mask by a system call each; jumps
//! with and without the mask; and a switch of the callee-saved registers alone. The green threads have the shape of the
//! published program: one pushes onto an array and yields, the other pops and yields.

// The parent module's expectation of unsafe code covers this file.

/// A name and what repeats the operation.
pub(crate) type Named = (&'static str, fn(u64));

/// What can be switched here: `getcontext`, `swapcontext` and `mask_free` are single switches, the jumps a pair of set and
/// jump, the green threads one push or pop with the switch that follows.
#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
pub(crate) fn operations() -> Vec<Named> {
    Vec::new()
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
pub(crate) use here::operations;

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod here {
    use std::arch::naked_asm;
    use std::cell::UnsafeCell;
    use std::ffi::{c_int, c_void};
    use std::hint::black_box;
    use std::mem::MaybeUninit;
    use std::ptr;

    use super::Named;
    use crate::suites::context::ignore;

    pub(crate) fn operations() -> Vec<Named> {
        vec![
            ("getcontext", getcontext as fn(u64)),
            ("swapcontext", swapcontext),
            ("mask_free", mask_free),
            ("sigsetjmp", sigsetjmp),
            ("_setjmp", setjmp),
            ("green_ucontext", green_ucontext),
            ("green_mask_free", green_mask_free),
        ]
    }

    unsafe extern "C" {
        // Never called from Rust: their addresses go to assembly, for they return twice.
        fn __sigsetjmp(buffer: *mut c_void, save_mask: c_int) -> c_int;
        fn siglongjmp(buffer: *mut c_void, value: c_int) -> !;
    }

    /// Sets and jumps `count` times, all within this one frame, which therefore is valid at every return.
    #[unsafe(naked)]
    unsafe extern "C" fn jump_loop(
        count: u64,
        buffer: *mut c_void,
        save_mask: c_int,
        set: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
        jump: unsafe extern "C" fn(*mut c_void, c_int) -> !,
    ) {
        naked_asm!(
            "push rbx",
            "push r12",
            "push r13",
            "push r14",
            "push r15", // five pushes and the return address: aligned to 16
            "mov rbx, rdi",
            "mov r12, rsi",
            "mov r13d, edx",
            "mov r14, rcx",
            "mov r15, r8",
            "2:",
            "mov rdi, r12",
            "mov esi, r13d",
            "call r14",
            "test eax, eax",
            "jnz 3f",
            "mov rdi, r12",
            "mov esi, 1",
            "call r15",
            "3:", // arrives here by the jump, with the registers of the call above
            "dec rbx",
            "jnz 2b",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbx",
            "ret",
        )
    }

    fn jumps(count: u64, save_mask: c_int) {
        // glibc's jmp_buf has 200 bytes on x86-64.
        let mut buffer = [0_u64; 64];
        if count > 0 {
            // SAFETY: the buffer is larger than a jmp_buf and outlives the loop; every jump goes to a set within it.
            unsafe { jump_loop(count, buffer.as_mut_ptr().cast(), save_mask, __sigsetjmp, siglongjmp) };
        }
    }

    fn sigsetjmp(count: u64) {
        jumps(count, 1);
    }

    fn setjmp(count: u64) {
        jumps(count, 0);
    }

    fn getcontext(count: u64) {
        let mut context = MaybeUninit::<libc::ucontext_t>::zeroed();
        for _ in 0..count {
            // SAFETY: the memory is writable; nobody ever resumes this context.
            ignore(unsafe { libc::getcontext(context.as_mut_ptr()) });
            black_box(&context);
        }
    }

    const STACK: usize = 64 << 10;

    /// The other side of a pair of coroutines: its stack, and what both sides share.
    struct Pair {
        stack: UnsafeCell<Box<[u8]>>,
        contexts: UnsafeCell<[MaybeUninit<libc::ucontext_t>; 2]>,
        /// Stack pointers of the sides not running, for the mask-free switch.
        sleeping: UnsafeCell<[*mut c_void; 2]>,
        array: UnsafeCell<Vec<u64>>,
        /// Whether the sides push and pop, or only switch.
        work: bool,
        by_ucontext: bool,
    }

    impl Pair {
        fn new(work: bool, by_ucontext: bool) -> Box<Pair> {
            Box::new(Pair {
                stack: UnsafeCell::new(vec![0; STACK].into_boxed_slice()),
                contexts: UnsafeCell::new([MaybeUninit::zeroed(), MaybeUninit::zeroed()]),
                sleeping: UnsafeCell::new([ptr::null_mut(); 2]),
                array: UnsafeCell::new(Vec::with_capacity(16)),
                work,
                by_ucontext,
            })
        }

        fn context(&self, side: usize) -> *mut libc::ucontext_t {
            self.contexts.get().cast::<libc::ucontext_t>().wrapping_add(side)
        }

        fn sleeper(&self, side: usize) -> *mut *mut c_void {
            self.sleeping.get().cast::<*mut c_void>().wrapping_add(side)
        }

        /// Lets the other side run until it yields back.
        fn yield_from(&self, side: usize) {
            let other = 1 - side;
            if self.by_ucontext {
                // SAFETY: both contexts are in this pair; the other one was made or saved before.
                ignore(unsafe { libc::swapcontext(self.context(side), self.context(other)) });
            } else {
                // SAFETY: the other side's stack pointer was saved by a switch, or laid out by `prepare`.
                let stack = unsafe { *self.sleeper(other) };
                // SAFETY: as above; this side's pointer is kept until the other side switches back.
                unsafe { switch(self.sleeper(side), stack) };
            }
        }

        /// Lays the other side out so that the first switch enters it.
        fn prepare(&self) {
            // SAFETY: nothing runs on the stack yet.
            let stack = unsafe { &mut *self.stack.get() };
            if self.by_ucontext {
                let context = self.context(1);
                // SAFETY: the context is writable memory of this pair.
                ignore(unsafe { libc::getcontext(context) });
                // SAFETY: getcontext initialised it; nobody else refers to it.
                let made = unsafe { &mut *context };
                made.uc_stack.ss_sp = stack.as_mut_ptr().cast();
                made.uc_stack.ss_size = STACK;
                made.uc_link = ptr::null_mut();
                let address = ptr::from_ref(self) as usize;
                let halves = [(address >> 32) as c_int, address as u32 as c_int];
                // SAFETY: makecontext passes ints, hence the pointer in two halves; the function takes just those.
                let entry = unsafe {
                    std::mem::transmute::<extern "C" fn(c_int, c_int) -> !, extern "C" fn()>(enter_by_halves)
                };
                // SAFETY: the stack belongs to this context alone.
                unsafe { libc::makecontext(context, entry, 2, halves[0], halves[1]) };
                return;
            }
            // What `switch` pops: six callee-saved registers, the last of them rbx with the pair's address, then the
            // address to return to. The stack is left as a call would leave it.
            let top = stack.as_mut_ptr().wrapping_add(STACK);
            // The trampoline calls, so it must find the stack aligned to 16.
            let top = top.wrapping_sub(top as usize % 16 + 72).cast::<usize>();
            let words = [0, 0, 0, 0, 0, ptr::from_ref(self) as usize, trampoline as *const () as usize, 0];
            for (index, word) in words.into_iter().enumerate() {
                // SAFETY: eight words at the end of the stack, below its top.
                unsafe { top.wrapping_add(index).write(word) };
            }
            // SAFETY: nothing reads the pointer until the first switch.
            unsafe { *self.sleeper(1) = top.cast() };
        }

        /// The other side: pops for ever.
        fn pop_for_ever(&self) -> ! {
            loop {
                if self.work {
                    // SAFETY: only one side runs at a time, and none keeps a reference across a switch.
                    black_box(unsafe { &mut *self.array.get() }.pop());
                }
                self.yield_from(1);
            }
        }

        /// This side: pushes and yields. Every round is two switches.
        fn push(&self, rounds: u64) {
            for round in 0..rounds {
                if self.work {
                    // SAFETY: as in `pop_for_ever`.
                    unsafe { &mut *self.array.get() }.push(round);
                }
                self.yield_from(0);
            }
        }
    }

    extern "C" fn enter_by_halves(high: c_int, low: c_int) -> ! {
        let address = (high as u32 as usize) << 32 | low as u32 as usize;
        enter(ptr::with_exposed_provenance(address))
    }

    extern "C" fn enter(pair: *const Pair) -> ! {
        // SAFETY: the pair is alive as long as anything switches to this side.
        unsafe { &*pair }.pop_for_ever()
    }

    /// The first return of a laid-out stack: its rbx holds the argument.
    #[unsafe(naked)]
    extern "C" fn trampoline() {
        naked_asm!("mov rdi, rbx", "call {enter}", "ud2", enter = sym enter)
    }

    /// Saves the callee-saved registers on this stack and continues on another. No system call: the signal mask is left alone.
    #[unsafe(naked)]
    unsafe extern "C" fn switch(save: *mut *mut c_void, to: *mut c_void) {
        naked_asm!(
            "push rbx",
            "push rbp",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "mov [rdi], rsp",
            "mov rsp, rsi",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbp",
            "pop rbx",
            "ret",
        )
    }

    fn pair(count: u64, work: bool, by_ucontext: bool) {
        let pair = Pair::new(work, by_ucontext);
        pair.prepare();
        pair.push(count / 2);
        // The other side's stack goes away with it suspended: it owns nothing.
    }

    fn swapcontext(count: u64) {
        pair(count, false, true);
    }

    fn mask_free(count: u64) {
        pair(count, false, false);
    }

    fn green_ucontext(count: u64) {
        pair(count, true, true);
    }

    fn green_mask_free(count: u64) {
        pair(count, true, false);
    }
}
