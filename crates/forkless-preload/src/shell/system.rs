//! `system(3)`. While any thread waits in it, the process ignores SIGINT and SIGQUIT; the waiting
//! thread blocks SIGCHLD.
#![expect(unsafe_code, reason = "a function under libc's name; signal actions")]

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::signal::{self, KernelAction, SigSet};
use forkless_sys::{Errno, process};

use crate::errno::fail;
use crate::fork;
use crate::next::{self, Next, of_libc};
use crate::patience::wait_while;
use crate::signals::{SIG_IGN, SIGCHLD, SIGINT, SIGKILL, SIGQUIT, of_cancellation};

use super::launch::wait;
use super::line;
use super::message::Signals;

of_libc! {
    static SYSTEM: unsafe extern "C" fn(*const c_char) -> c_int = c"system", "system(3)";
}

/// `system(3)`.
#[unsafe(no_mangle)]
extern "C" fn system(line: *const c_char) -> c_int {
    let environ = crate::next::environment().cast_const().cast::<*const c_char>();
    // While another thread waits here, libc would save this library's dispositions and put them
    // back as the program's.
    if line.is_null()
        || environ.is_null()
        || (!KEYS.is_in_force() && super::is_sandboxed())
        || super::is_left_to_the_next()
    {
        return by_libc(line);
    }
    // SAFETY: not null, so a string, by system's contract.
    let line = unsafe { CStr::from_ptr(line) };
    if !fork::sandboxed() {
        super::ask::if_needed(line, environ);
    }
    let before = signal::mask().unwrap_or_default();
    // A thread that is cancelled in here would leave the keys ignored, and its child.
    let _ = signal::set_mask(before.with(SIGCHLD).with(of_cancellation()));
    KEYS.enter();
    let restore = KEYS.restore();
    let terms = line::Terms { close: &[], pipe: None, restore, mask: before, is_stream: false };
    // The shell writes its message while `system` still waits.
    let result = line::start(line, environ, &terms).map(|started| {
        let left = Left { pid: started.pid, before };
        match (left.or_ended(|| wait(started.pid)), started.ending) {
            (Ok(status), Some(ending)) => {
                Ok(ending.tell(status, &Signals { restore, ignored: SigSet::EMPTY, mask: before }))
            }
            (result, _) => result,
        }
    });
    KEYS.leave();
    let _ = signal::set_mask(before);
    match result {
        Ok(Ok(status)) => status,
        Ok(Err(errno)) => fail(errno),
        // Each libc reports in its own way that no process can be made, if it can make none either.
        Err(Errno::EAGAIN | Errno::ENOMEM) => by_libc(line.as_ptr()),
        // The status of a shell that cannot be executed.
        Err(_) => 127 << 8,
    }
}

/// A wait that a handler may leave: by `siglongjmp`, or by the thread's end.
struct Left {
    pid: i32,
    /// The thread's mask before `system`.
    before: SigSet,
}

/// glibc's `struct _pthread_cleanup_buffer`. glibc writes it.
#[repr(C)]
struct Cleanup([usize; 4]);

// SAFETY: their types in glibc. musl has others under these names, and runs nothing at a jump.
static PUSH: Next<extern "C" fn(*mut Cleanup, extern "C" fn(&Left), *const Left)> =
    unsafe { Next::new(c"_pthread_cleanup_push") };
// SAFETY: as of `PUSH`.
static POP: Next<extern "C" fn(*mut Cleanup, c_int)> = unsafe { Next::new(c"_pthread_cleanup_pop") };

impl Left {
    /// Waits. If the wait is left, glibc's `system` ends the child, and puts the dispositions back
    /// (sysdeps/posix/system.c, `cancel_handler`). Its `siglongjmp` and the end of a thread call
    /// what is registered here.
    fn or_ended<T>(&self, wait: impl FnOnce() -> T) -> T {
        let known = if next::is_glibc() { PUSH.get().zip(POP.get()) } else { None };
        let Some((push, pop)) = known else { return wait() };
        let mut cleanup = Cleanup([0; 4]);
        push(&raw mut cleanup, Self::end, self);
        let result = wait();
        pop(&raw mut cleanup, 0);
        result
    }

    extern "C" fn end(&self) {
        let _ = process::kill(self.pid, SIGKILL);
        let _ = super::launch::wait(self.pid);
        KEYS.leave();
        // Handlers have changed the mask meanwhile, so the rest of it stays.
        let cancels = of_cancellation();
        if !self.before.has(cancels) {
            let _ = signal::set_mask(signal::mask().unwrap_or_default().without(cancels));
        }
    }
}

/// The next definition of `system`, with the caller's argument.
fn by_libc(line: *const c_char) -> c_int {
    let Some(real) = SYSTEM.get() else { return fail(Errno::ENOSYS) };
    // SAFETY: the argument that `system` was called with.
    unsafe { real(line) }
}

/// SIGINT and SIGQUIT while threads wait: the first saves the dispositions and ignores both
/// signals, the last puts them back.
struct IgnoredKeys {
    lock: AtomicBool,
    users: AtomicU32,
    saved: [[AtomicUsize; 3]; 2],
    masks: [AtomicU64; 2],
}

static KEYS: IgnoredKeys = IgnoredKeys {
    lock: AtomicBool::new(false),
    users: AtomicU32::new(0),
    saved: [const { [const { AtomicUsize::new(0) }; 3] }; 2],
    masks: [const { AtomicU64::new(0) }; 2],
};

impl IgnoredKeys {
    fn locked(&self, f: impl FnOnce()) {
        wait_while(|| self.lock.swap(true, Acquire));
        f();
        self.lock.store(false, Release);
    }

    fn enter(&self) {
        self.locked(|| {
            if self.users.fetch_add(1, Relaxed) == 0 {
                for (i, signal) in [SIGINT, SIGQUIT].into_iter().enumerate() {
                    let ignore = KernelAction { handler: SIG_IGN, ..KernelAction::DEFAULT };
                    // SAFETY: ignoring runs nothing.
                    if let Ok(old) = unsafe { signal::set_action(signal, &ignore) } {
                        self.saved[i][0].store(old.handler, Relaxed);
                        self.saved[i][1].store(old.flags, Relaxed);
                        self.saved[i][2].store(old.restorer, Relaxed);
                        self.masks[i].store(old.mask, Relaxed);
                    }
                }
            }
        });
    }

    fn leave(&self) {
        self.locked(|| {
            if self.users.fetch_sub(1, Relaxed) == 1 {
                for (i, signal) in [SIGINT, SIGQUIT].into_iter().enumerate() {
                    let old = KernelAction {
                        handler: self.saved[i][0].load(Relaxed),
                        flags: self.saved[i][1].load(Relaxed),
                        restorer: self.saved[i][2].load(Relaxed),
                        mask: self.masks[i].load(Relaxed),
                    };
                    // SAFETY: the action the program had.
                    let _ = unsafe { signal::set_action(signal, &old) };
                }
            }
        });
    }

    fn is_in_force(&self) -> bool {
        self.users.load(Relaxed) != 0
    }

    /// The signals of the two that the program itself did not ignore.
    fn restore(&self) -> SigSet {
        let mut set = SigSet::EMPTY;
        for (i, signal) in [SIGINT, SIGQUIT].into_iter().enumerate() {
            if self.saved[i][0].load(Relaxed) != SIG_IGN {
                set = set.with(signal);
            }
        }
        set
    }
}
