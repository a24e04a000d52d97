//! The PID namespace that children are born in.

use super::process_state::PerProcess;
use forkless_sys::namespace::{self, PidNamespace};
use std::sync::OnceLock;

/// Whether children are in this thread's own PID namespace. No, too, where there is no /proc.
///
/// After `unshare(CLONE_NEWPID)` the first child is the init of a new namespace, which ends with
/// it. The line's shell is to be that child. Signals at their default action do nothing to an init.
pub(crate) fn children_stay() -> bool {
    own().is_some_and(|own| namespace::children_stay_in(&own))
}

/// Whether children are known to be in another: a probe's child would be its init, and end it.
pub(crate) fn children_leave() -> bool {
    own().is_some_and(|own| !namespace::children_stay_in(&own))
}

/// This thread's own.
fn own() -> Option<PidNamespace> {
    /// The namespace of this process, as its link in /proc says it: it never has another.
    static OWN: PerProcess<OnceLock<PidNamespace>> = PerProcess::new();
    let known = OWN.get();
    known.get().copied().or_else(|| {
        let own = namespace::of_thread().ok()?;
        let _ = known.set(own);
        Some(own)
    })
}
