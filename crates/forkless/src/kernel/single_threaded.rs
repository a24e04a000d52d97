//! Whether the process has one thread, as the C library tells.
#![expect(unsafe_code, reason = "a variable of the C library that not every one has")]

use super::process_state::PerProcess;
use std::sync::atomic::{AtomicU8, Ordering};

/// The C library's variable, where it has one.
struct Flag(Option<&'static AtomicU8>);

impl Default for Flag {
    /// glibc has the variable since 2.32, musl has not. Without it every process counts as one with
    /// threads.
    fn default() -> Flag {
        // SAFETY: a NUL-terminated name, searched in what is loaded.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
        // SAFETY: a `char` of the C library (sys/single_threaded.h), there as long as the process;
        // another thread may clear it.
        Flag((!at.is_null()).then(|| unsafe { AtomicU8::from_ptr(at.cast()) }))
    }
}

/// Whether the process is sure to have one thread: nothing changes beside the caller then.
pub(crate) fn single_threaded() -> bool {
    static FLAG: PerProcess<Flag> = PerProcess::new();
    FLAG.get().0.is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
}
