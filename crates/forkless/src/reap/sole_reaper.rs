//! Whether a wait of this call can be overtaken: by another thread, or by a handler for SIGCHLD,
//! that waits for any child.
//!
//! Where it cannot, a start that ends with its own wait needs no pidfd. The kernel makes a pidfd as
//! a file with an inode of its own, which costs a twentieth of a whole cycle.

use crate::kernel::single_threaded::single_threaded;
use forkless_sys::signal::{self, Disposition, SA_NOCLDWAIT};

/// Whether nobody else in this process waits for children.
///
/// The process then has one thread, and SIGCHLD has its default action: neither a handler nor the
/// kernel itself reaps. A handler of another signal may still wait for any child. The status is
/// lost to that handler then, and the wait says so.
pub(crate) fn caller_is_sole_reaper() -> bool {
    single_threaded()
        && signal::action(libc::SIGCHLD)
            .is_ok_and(|a| a.disposition() == Disposition::Default && a.flags & SA_NOCLDWAIT == 0)
}
