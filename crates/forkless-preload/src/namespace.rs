//! The PID namespace that children are made in.

use forkless_sys::{CPtr, Result, fd};

use crate::decimal::decimal;
use crate::proc;

/// Whether a child would be in this thread's own PID namespace. After `unshare(CLONE_NEWPID)` the first child is the init of a new one, and
/// with it the namespace ends: every fork after that fails with ENOMEM (kernel/pid.c, `alloc_pid`). In a namespace that was entered by
/// `setns` a child cannot tell whether its parent lives. An error: there is no /proc.
pub(crate) fn children_stay() -> Result<bool> {
    // `pid:[NUMBER]`. Nothing is behind the second link before the new namespace has an init.
    let (own, children) = proc::links(c"thread-self/ns/pid", c"thread-self/ns/pid_for_children")?;
    Ok(children == Some(own))
}

/// The number of this process's PID namespace. `None`: there is no /proc.
pub(crate) fn own() -> Option<u64> {
    let mut name = [0; 24];
    let len = fd::readlinkat(fd::AT_FDCWD, CPtr::from(c"/proc/self/ns/pid"), &mut name).ok()?;
    decimal(name.get(..len)?.strip_prefix(b"pid:[")?.strip_suffix(b"]")?)
}
