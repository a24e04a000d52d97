//! The actions a child takes before exec, in their order, and why they have it.
//!
//! Actions on descriptors are not here: pipes differ at every start (`start/moves.rs`).
#![expect(unsafe_code, reason = "actions point into boxes that go with them")]

use super::fixed::Fixed;
use crate::error::{SpawnError, Step};
use crate::spec::attributes::{Attributes, HookFn};
use forkless_child::{Action, Hook};
use forkless_sys::signal::SigSet;
use forkless_sys::{CPtr, process};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Mutex, PoisonError};

/// How the child gets into its cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CgroupEntry {
    /// It is born there.
    Born,
    /// It writes itself into `cgroup.procs`.
    Join,
}

/// The boxes that actions point into: they go where the actions go.
pub(super) struct ActionData {
    cwd: Option<Fixed<CStr>>,
    chroot: Option<Fixed<CStr>>,
    procs: Option<Fixed<CStr>>,
    groups: Option<Fixed<[u32]>>,
    affinity: Option<Fixed<[u64]>>,
}

/// Extends a borrow to the time for which the plan keeps the actions.
///
/// # Safety
/// `s` must be kept with the actions.
unsafe fn kept_str(s: &Fixed<CStr>) -> CPtr<'static> {
    // SAFETY: the caller's contract.
    unsafe { CPtr::from_raw(s.as_ptr().cast::<c_char>()) }
}

/// The actions that come after the actions on descriptors, and the boxes that they point into.
pub(super) fn actions(
    a: &Attributes,
    hooks: &Mutex<Vec<HookFn>>,
    cgroup: CgroupEntry,
) -> Result<(Vec<Action<'static>>, ActionData), SpawnError> {
    let fixed = |s: &Option<CString>| s.clone().map(|s| Fixed::from(s.into_boxed_c_str()));
    let data = ActionData {
        cwd: fixed(&a.cwd),
        chroot: fixed(&a.chroot),
        procs: match &a.cgroup {
            Some(dir) if cgroup == CgroupEntry::Join => fixed(&Some(
                CString::new([dir.to_bytes(), b"/cgroup.procs"].concat())
                    .map_err(|_| SpawnError::new(Step::Cgroup, None, libc::EINVAL))?,
            )),
            _ => None,
        },
        groups: a.groups.clone().map(|groups| Fixed::from(groups.into_boxed_slice())),
        affinity: a.affinity.clone().map(|mask| Fixed::from(mask.into_boxed_slice())),
    };
    let mut s = Vec::new();
    if let Some(path) = data.cwd.as_ref().filter(|_| a.as_posixsubprocess) {
        // SAFETY: `data` owns it and goes with the actions.
        s.push(Action::Chdir { path: unsafe { kept_str(path) } });
    }
    // The session first: a leader of a group cannot make a session, and a controlling terminal
    // needs one.
    if a.setsid {
        s.push(Action::Setsid);
    }
    // The leader of a session leads a group already, and setpgid(2) refuses to make it one again.
    // Python's users get that refusal.
    if let Some(pgid) = a.pgid.filter(|&pgid| pgid != 0 || !a.setsid || a.as_posixsubprocess) {
        s.push(Action::Setpgid { pgid });
    }
    if let Some(fd) = a.terminal {
        s.push(Action::ControllingTerminal { fd });
    }
    if let Some(fd) = a.foreground {
        s.push(Action::Foreground { fd });
    }
    // Actions that need privilege come before those that give it up.
    if let Some(procs) = &data.procs {
        // SAFETY: `data` owns it and goes with the actions.
        s.push(Action::JoinCgroup { procs: unsafe { kept_str(procs) } });
    }
    if let Some(value) = a.nice {
        s.push(Action::Nice { value });
    }
    if let Some(sched) = a.scheduler {
        let (policy, priority) = sched.numbers();
        s.push(Action::Scheduler { policy, priority });
    }
    if let Some(mask) = &data.affinity {
        let mask: *const [u64] = mask.as_ptr();
        // SAFETY: `data` owns it and goes with the actions.
        s.push(Action::Affinity { mask: unsafe { &*mask } });
    }
    for &(resource, limit) in &a.rlimits {
        s.push(Action::Rlimit { resource, limit });
    }
    if let Some(mask) = a.umask {
        s.push(Action::Umask { mask });
    }
    if let Some(path) = &data.chroot {
        // SAFETY: `data` owns it and goes with the actions.
        s.push(Action::Chroot { path: unsafe { kept_str(path) } });
    }
    // Groups, then group, then user: each needs the privilege the next gives up.
    if let Some(groups) = &data.groups {
        let groups: *const [u32] = groups.as_ptr();
        // SAFETY: `data` owns it and goes with the actions.
        s.push(Action::Groups { groups: unsafe { &*groups } });
    } else if a.uid.is_some() && !a.as_posixsubprocess {
        // As std: a caller that may set groups does not hand its own on to another user. Whether
        // the one that starts the plan may is not known here.
        s.push(Action::DropGroups);
    }
    if let Some(gid) = a.gid {
        s.push(if a.as_posixsubprocess { Action::Regid { gid } } else { Action::Gid { gid } });
    }
    if let Some(uid) = a.uid {
        s.push(if a.as_posixsubprocess { Action::Reuid { uid } } else { Action::Uid { uid } });
    }
    // After the credentials: the program itself would enter it with the new ones.
    if let Some(path) = data.cwd.as_ref().filter(|_| !a.as_posixsubprocess) {
        // SAFETY: `data` owns it and goes with the actions.
        s.push(Action::Chdir { path: unsafe { kept_str(path) } });
    }
    if a.no_new_privs {
        s.push(Action::NoNewPrivs);
    }
    // After the credentials: changing them clears the death signal (commit_creds, kernel/cred.c).
    if let Some(signal) = a.death_signal {
        s.push(Action::DeathSignal { signal, parent: process::getpid() });
    }
    if a.default != SigSet::EMPTY || a.ignore != SigSet::EMPTY {
        s.push(Action::Dispositions { default: SigSet(a.default.0 & !a.ignore.0), ignore: a.ignore });
    }
    // A child that died while it panicked, in this memory, has poisoned the lock. The functions are
    // there all the same, and one that gives up privilege must not be left out.
    let mut hooks = hooks.lock().unwrap_or_else(PoisonError::into_inner);
    // Pointers of the vector itself: a borrow of a hook would end the pointers that an earlier plan
    // has.
    let first = hooks.as_mut_ptr();
    for i in 0..hooks.len() {
        s.push(Action::Hook(Hook { call: call_hook, data: first.wrapping_add(i).cast() }));
    }
    Ok((s, data))
}

/// Runs a hook; a panic becomes an error, since unwinding must not leave the child's stack.
unsafe extern "C" fn call_hook(data: *mut c_void) -> i32 {
    // SAFETY: `data` is the box that `actions` took it from. The command keeps it, and its lock is
    // held while the child runs.
    let hook = unsafe { &mut *data.cast::<HookFn>() };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(hook)) {
        Ok(Ok(())) => 0,
        Ok(Err(e)) => e.raw_os_error().filter(|e| *e > 0).unwrap_or(libc::EINVAL),
        Err(_) => libc::ECANCELED,
    }
}
