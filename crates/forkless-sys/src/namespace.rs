//! The PID namespaces of a thread: its own, and that of the children it makes.
//!
//! After `unshare(CLONE_NEWPID)` the first child is the init of a new namespace, and with that
//! child the namespace ends. In a namespace entered by `setns` a child cannot tell whether its
//! parent lives.

use crate::{CPtr, Result, fd};
use core::ffi::CStr;

/// A PID namespace, by the text of its link in /proc: `pid:[NUMBER]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace([u8; 24]);

/// The calling thread's. An error: there is no /proc.
pub fn of_thread() -> Result<PidNamespace> {
    read(c"/proc/thread-self/ns/pid")
}

/// Whether a child of the calling thread, whose namespace is `own`, would be in that namespace,
/// too. It takes no descriptor, of which another thread would miss the number; so the answer is
/// only as good as /proc.
pub fn children_stay_in(own: &PidNamespace) -> bool {
    // The link of a new namespace leads nowhere before it has an init.
    read(c"/proc/thread-self/ns/pid_for_children").as_ref() == Ok(own)
}

fn read(path: &CStr) -> Result<PidNamespace> {
    let mut text = [0; 24];
    fd::readlinkat(fd::AT_FDCWD, CPtr::from(path), &mut text)?;
    Ok(PidNamespace(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_stay_where_no_namespace_was_changed() {
        let own = of_thread().unwrap();
        assert!(own.0.starts_with(b"pid:["));
        assert!(children_stay_in(&own));
        assert!(!children_stay_in(&PidNamespace([0; 24])));
    }
}
