//! The PID namespace that children are born in.

use crate::kernel::process_state::PerProcess;
use forkless_sys::fd;
use std::ffi::CStr;
use std::sync::OnceLock;

/// Whether children are in this thread's own PID namespace.
///
/// After `unshare(CLONE_NEWPID)` the first child is the init of a new namespace, which ends with
/// it. The line's shell is to be that child. Signals at their default action do nothing to an init.
pub(super) fn children_stay() -> bool {
    /// The namespace of this process, as its link in /proc says it: it never has another.
    static OWN: PerProcess<OnceLock<[u8; 24]>> = PerProcess::new();
    let read = |path: &CStr| {
        let mut name = [0; 24];
        fd::readlinkat(fd::AT_FDCWD, path.into(), &mut name).ok().map(|_| name)
    };
    let known = OWN.get();
    let own = known.get().copied().or_else(|| {
        let own = read(c"/proc/thread-self/ns/pid")?;
        let _ = known.set(own);
        Some(own)
    });
    own.is_some() && own == read(c"/proc/thread-self/ns/pid_for_children")
}
