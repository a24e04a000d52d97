//! A stand-in for the published program: an interpreter with two green threads, one pushing numbers
//! onto an array and the other popping them, a switch after each. It can be had with either way of
//! switching that the original was built with: getcontext and setcontext, or `_setjmp` and
//! `_longjmp`.
//!
//! The interpreter walks a tree, finds variables by name and methods in a table, as the Ruby of the
//! time did. So the work between two switches is about that of the original. x86-64 with glibc
//! only.
//!
//! It runs as a program of its own (`forkless bench green-threads`), so that others can look at it,
//! and change what it runs on, without its help.

use std::str::FromStr;

use forkless_bench::error::Error;

/// How the threads are switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// getcontext, setcontext.
    Ucontext,
    /// `_setjmp`, `_longjmp`.
    Setjmp,
}

impl How {
    /// Its name on a command line.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            How::Ucontext => "ucontext",
            How::Setjmp => "setjmp",
        }
    }
}

impl FromStr for How {
    type Err = Error;

    fn from_str(name: &str) -> Result<How, Error> {
        let found = [How::Ucontext, How::Setjmp].into_iter().find(|how| how.name() == name);
        found.ok_or_else(|| Error::Spec(format!("no way to switch {name:?}: there are ucontext and setjmp")))
    }
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
use here::run;

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
fn run(_how: How, _operations: u64) {}

/// Whether the program can be had here.
pub(super) const AVAILABLE: bool = cfg!(all(target_arch = "x86_64", target_env = "gnu"));

/// Runs both threads, each `operations` long. Memory of the second one is not given back: for
/// processes of their own.
///
/// # Errors
/// [`Error::Missing`] where the program cannot be had: it is for x86-64 with glibc.
pub fn main(how: How, operations: u64) -> Result<(), Error> {
    if !AVAILABLE {
        return Err(Error::Missing(ELSEWHERE.into()));
    }
    run(how, operations);
    Ok(())
}

/// Why there is no such program on other systems.
pub(super) const ELSEWHERE: &str = "the program of green threads is for x86-64 with glibc";

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod here {
    #![expect(unsafe_code, reason = "context switches")]

    use std::arch::naked_asm;
    use std::cell::{Cell, RefCell, UnsafeCell};
    use std::collections::HashMap;
    use std::ffi::{c_int, c_void};
    use std::ptr;

    use super::How;

    /// An expression of the language.
    enum Node {
        Int(i64),
        Variable(&'static str),
        Assign(&'static str, Box<Node>),
        Call(&'static str, Vec<Node>),
        While(Box<Node>, Vec<Node>),
        /// Lets the other thread run.
        Pass,
    }

    type Method = fn(&World, &[i64]) -> i64;

    /// What both threads share.
    struct World {
        how: How,
        methods: HashMap<&'static str, Method>,
        array: RefCell<Vec<i64>>,
        stack: UnsafeCell<Box<[u8]>>,
        /// A context of either kind for each thread; both kinds fit.
        saved: UnsafeCell<[Space; 2]>,
        /// Where the second thread begins.
        first: UnsafeCell<Space>,
        running: Cell<usize>,
        begun: Cell<bool>,
        operations: i64,
    }

    /// Room for a ucontext_t (968 bytes) or a jmp_buf (200).
    #[repr(C, align(64))]
    struct Space([u8; 1024]);

    const _: () = assert!(size_of::<libc::ucontext_t>() <= size_of::<Space>());

    const STACK: usize = 256 << 10;

    unsafe extern "C" {
        // Never called from Rust: their addresses go to assembly, for two of them return twice.
        fn _setjmp(buffer: *mut c_void) -> c_int;
        fn _longjmp(buffer: *mut c_void, value: c_int) -> !;
        #[link_name = "getcontext"]
        fn get_context(context: *mut c_void) -> c_int;
        #[link_name = "setcontext"]
        fn set_context(context: *const c_void) -> c_int;
    }

    /// Saves this thread of execution with one function and continues another with the other. The
    /// save returns a second time when this one is continued; a word on this stack, which nobody
    /// else uses, tells the two returns apart.
    #[unsafe(naked)]
    unsafe extern "C" fn switch(
        save_to: *mut c_void,
        go_on_with: *mut c_void,
        save: *const c_void,
        go_on: *const c_void,
    ) {
        naked_asm!(
            "push rbx",
            "push r12",
            "push r13",
            "sub rsp, 16", // aligned to 16 with the three pushes and the return address
            "mov r12, rsi",
            "mov r13, rcx",
            "mov dword ptr [rsp], 0",
            "call rdx",
            "cmp dword ptr [rsp], 0",
            "jne 2f",
            "mov dword ptr [rsp], 1",
            "mov rdi, r12",
            "mov esi, 1",
            "call r13",
            "ud2",
            "2:",
            "add rsp, 16",
            "pop r13",
            "pop r12",
            "pop rbx",
            "ret",
        )
    }

    impl World {
        fn context(&self, side: usize) -> *mut c_void {
            self.saved.get().cast::<Space>().wrapping_add(side).cast()
        }

        /// Lets the other thread run until it lets this one.
        fn pass(&self) {
            let side = self.running.replace(1 - self.running.get());
            let save = match self.how {
                How::Ucontext => get_context as *const c_void,
                How::Setjmp => _setjmp as *const c_void,
            };
            let (target, go_on) = if !self.begun.replace(true) {
                // The beginning of a thread is a context in both builds.
                (self.first.get().cast(), set_context as *const c_void)
            } else if self.how == How::Ucontext {
                (self.context(1 - side), set_context as *const c_void)
            } else {
                (self.context(1 - side), _longjmp as *const c_void)
            };
            // SAFETY: the target was made by `prepare` or saved by the other thread's own switch,
            // whose frame still exists; only one of the two runs at a time.
            unsafe { switch(self.context(side), target, save, go_on) };
        }

        /// Lays the second thread out.
        fn prepare(&self) {
            let context = self.first.get().cast::<libc::ucontext_t>();
            // SAFETY: the context is writable memory of this value; it is not continued before it
            // is complete.
            let saved = unsafe { libc::getcontext(context) };
            assert_eq!(saved, 0, "getcontext fails only for bad memory");
            // SAFETY: nothing runs on the stack yet.
            let stack = unsafe { &mut *self.stack.get() };
            // SAFETY: getcontext initialised it; nobody else refers to it.
            let made = unsafe { &mut *context };
            made.uc_stack.ss_sp = stack.as_mut_ptr().cast();
            made.uc_stack.ss_size = STACK;
            made.uc_link = ptr::null_mut();
            let address = ptr::from_ref(self).expose_provenance();
            let halves = [(address >> 32) as c_int, address as u32 as c_int];
            // SAFETY: makecontext passes ints, hence the pointer in two halves; the function takes
            // just those.
            let entry = unsafe {
                std::mem::transmute::<extern "C" fn(c_int, c_int) -> !, extern "C" fn()>(second_thread)
            };
            // SAFETY: the stack belongs to this context alone.
            unsafe { libc::makecontext(context, entry, 2, halves[0], halves[1]) };
        }

        fn evaluate(&self, node: &Node, locals: &mut Vec<(&'static str, i64)>) -> i64 {
            match node {
                Node::Int(value) => *value,
                Node::Variable(name) => {
                    locals.iter().find(|local| local.0 == *name).map_or(0, |local| local.1)
                }
                Node::Assign(name, value) => {
                    let value = self.evaluate(value, locals);
                    match locals.iter_mut().find(|local| local.0 == *name) {
                        Some(local) => local.1 = value,
                        None => locals.push((name, value)),
                    }
                    value
                }
                Node::Call(name, arguments) => {
                    let values: Vec<i64> =
                        arguments.iter().map(|argument| self.evaluate(argument, locals)).collect();
                    self.methods.get(name).map_or(0, |method| method(self, &values))
                }
                Node::While(condition, body) => {
                    while self.evaluate(condition, locals) != 0 {
                        for node in body {
                            self.evaluate(node, locals);
                        }
                    }
                    0
                }
                Node::Pass => {
                    self.pass();
                    0
                }
            }
        }

        /// `i = 0; while i < operations; WORK; i = i + 1; pass; end`
        fn thread(&self, work: Node) {
            let i = || Node::Variable("i");
            let body =
                vec![work, Node::Assign("i", Box::new(Node::Call("+", vec![i(), Node::Int(1)]))), Node::Pass];
            let condition = Node::Call("<", vec![i(), Node::Int(self.operations)]);
            let mut locals = Vec::new();
            self.evaluate(&Node::Assign("i", Box::new(Node::Int(0))), &mut locals);
            self.evaluate(&Node::While(Box::new(condition), body), &mut locals);
        }
    }

    extern "C" fn second_thread(high: c_int, low: c_int) -> ! {
        let address = (high as u32 as usize) << 32 | low as u32 as usize;
        let world = ptr::with_exposed_provenance::<World>(address);
        // SAFETY: the world outlives both threads.
        let world = unsafe { &*world };
        loop {
            world.thread(Node::Call("pop", vec![]));
            // The first thread ends the program; this one has nothing to return to.
            world.pass();
        }
    }

    pub(super) fn run(how: How, operations: u64) {
        let methods: [(&str, Method); 4] = [
            ("push", |world, values| {
                world.array.borrow_mut().extend(values);
                0
            }),
            ("pop", |world, _| world.array.borrow_mut().pop().unwrap_or(0)),
            ("+", |_, values| values.iter().sum()),
            ("<", |_, values| i64::from(values[0] < values[1])),
        ];
        let space = || Space([0; 1024]);
        let world = World {
            how,
            methods: methods.into_iter().collect(),
            array: RefCell::new(Vec::new()),
            stack: UnsafeCell::new(vec![0; STACK].into_boxed_slice()),
            saved: UnsafeCell::new([space(), space()]),
            first: UnsafeCell::new(space()),
            running: Cell::new(0),
            begun: Cell::new(false),
            operations: operations.cast_signed(),
        };
        world.prepare();
        world.thread(Node::Call("push", vec![Node::Variable("i")]));
        assert!(world.array.borrow().is_empty(), "every push was popped");
    }
}

#[cfg(all(test, target_arch = "x86_64", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn both_builds_push_and_pop_to_the_end() {
        for name in ["ucontext", "setjmp"] {
            main(name.parse().unwrap(), 1000).unwrap();
        }
        assert!("longjmp".parse::<How>().is_err());
    }
}
