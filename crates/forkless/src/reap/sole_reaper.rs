//! Whether a wait of this call can be overtaken: by another thread, or by a handler for SIGCHLD, that waits for any child.
//!
//! Where it cannot, a start that ends with its own wait needs no pidfd. The kernel makes one as a file with an inode of its own, which is
//! a twentieth of a whole cycle.
#![expect(unsafe_code, reason = "a variable of the C library that not every one has")]

use crate::kernel::process_state;
use forkless_sys::signal::{self, Disposition};
use std::sync::atomic::{AtomicU8, Ordering};

/// Where the C library says whether the process has had a second thread.
pub(crate) struct SingleThreaded(Option<&'static AtomicU8>);

impl Default for SingleThreaded {
    /// glibc has it since 2.32, musl has not; without it every process counts as one with threads.
    fn default() -> SingleThreaded {
        // SAFETY: a NUL-terminated name, searched in what is loaded.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        // SAFETY: a `char` of the C library (sys/single_threaded.h), there as long as the process; another thread may clear it.
        SingleThreaded((!at.is_null()).then(|| unsafe { AtomicU8::from_ptr(at.cast()) }))
    }
}

impl SingleThreaded {
    fn now(&self) -> bool {
        self.0.is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
    }
}

/// Whether the process is sure to have one thread: nothing changes beside the caller then.
pub(crate) fn single_threaded() -> bool {
    process_state::state().single_threaded.now()
}

/// Whether nobody else in this process waits for children: it has one thread, and leaves SIGCHLD at its default, so that neither a
/// handler nor the kernel itself reaps them. What is left is a handler of another signal that waits for any child: the status is lost to
/// it then, and the wait says so.
pub(crate) fn nobody_else_reaps() -> bool {
    const SA_NOCLDWAIT: usize = 2;
    single_threaded()
        && signal::action(libc::SIGCHLD)
            .is_ok_and(|a| a.disposition() == Disposition::Default && a.flags & SA_NOCLDWAIT == 0)
}
