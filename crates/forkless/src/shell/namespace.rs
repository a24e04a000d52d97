//! The PID namespace that children are born in.

use crate::kernel::process_state::PerProcess;
use forkless_sys::namespace::{self, PidNamespace};
use std::sync::OnceLock;

/// Whether children are in this thread's own PID namespace.
///
/// After `unshare(CLONE_NEWPID)` the first child is the init of a new namespace, which ends with
/// it. The line's shell is to be that child. Signals at their default action do nothing to an init.
pub(super) fn children_stay() -> bool {
    /// The namespace of this process, as its link in /proc says it: it never has another.
    static OWN: PerProcess<OnceLock<PidNamespace>> = PerProcess::new();
    let known = OWN.get();
    let own = known.get().copied().or_else(|| {
        let own = namespace::of_thread().ok()?;
        let _ = known.set(own);
        Some(own)
    });
    own.is_some_and(|own| namespace::children_stay_in(&own))
}
