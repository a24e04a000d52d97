//! The PID namespace that children are made in.

use forkless_sys::{CPtr, fd, namespace};

#[cfg(target_arch = "x86_64")]
use crate::proc;
#[cfg(target_arch = "x86_64")]
use crate::uninterrupted::uninterrupted;
use forkless_speculate::text::decimal;

/// Whether a child would be in this thread's own PID namespace. An error: there is no /proc.
///
/// After `unshare(CLONE_NEWPID)` the first child is the init of a new namespace, which ends with
/// it. Every fork after that fails with ENOMEM (kernel/pid.c, `alloc_pid`). In a namespace that was
/// entered by `setns` a child cannot tell whether its parent lives.
#[cfg(target_arch = "x86_64")]
pub(crate) fn children_stay() -> forkless_sys::Result<bool> {
    // `pid:[NUMBER]`. The second link leads nowhere until the new namespace has an init. A handler
    // that jumped away would leave descriptors open.
    let links = || proc::links(c"thread-self/ns/pid", c"thread-self/ns/pid_for_children");
    let (own, children) = uninterrupted(links)?;
    Ok(children == Some(own))
}

/// The same for the child of a shell line. It takes no descriptor, whose number another thread
/// would miss. So the answer is that of whoever owns /proc, and only the line's own end depends on
/// it.
pub(crate) fn line_s_child_stays() -> bool {
    namespace::of_thread().is_ok_and(|own| namespace::children_stay_in(&own))
}

/// The number of this process's PID namespace. `None`: there is no /proc.
pub(crate) fn own() -> Option<u64> {
    let mut name = [0; 24];
    let len = fd::readlinkat(fd::AT_FDCWD, CPtr::from(c"/proc/self/ns/pid"), &mut name).ok()?;
    decimal(name.get(..len)?.strip_prefix(b"pid:[")?.strip_suffix(b"]")?)
}
