//! From the child's fixed record to an error that names the step and the thing.

use crate::error::{SpawnError, Step as At};
use crate::plan::Plan;
use forkless_child::{Action as Step, Failure, Phase};
use forkless_sys::Errno;
use std::path::Path;

/// A failure after the descriptors.
pub(crate) fn failure(plan: &Plan, f: Failure) -> SpawnError {
    match f.phase {
        Phase::Exec => exec(plan, f),
        _ => failed_step(plan.steps().get(f.index), f.errno),
    }
}

/// One step, by name.
pub(crate) fn failed_step(step: Option<&Step<'_>>, errno: Errno) -> SpawnError {
    let path = |p: forkless_sys::CPtr<'_>| match p.to_c_str().to_string_lossy() {
        empty if empty.is_empty() => String::from("\"\""),
        path => path.into_owned(),
    };
    let Some(step) = step else { return SpawnError::new(At::Clone, None, errno.raw()) };
    let (at, what) = match *step {
        Step::Unshare { .. } | Step::FetchAll { .. } | Step::Staged => {
            (At::Descriptors, String::from("table"))
        }
        Step::CloseRange { first, last, .. } | Step::CloexecRange { first, last, .. } => {
            (At::Descriptors, format!("{first} to {last} (closing)"))
        }
        Step::Close { fds } => (At::Descriptors, format!("{fds:?} (closing)")),
        Step::Dup { from, to } => (At::Descriptors, format!("{to} from {from}")),
        Step::Save { from, .. } | Step::CopyUntilExec { from, .. } => (At::Descriptors, format!("{from}")),
        Step::Keep { fd } | Step::Restore { to: fd } => (At::Descriptors, format!("{fd}")),
        Step::Open { path: p, to, .. } | Step::OpenWithoutWaiting { path: p, to, .. } => {
            (At::Descriptors, format!("{to} from {}", path(p)))
        }
        Step::ResetHandlers | Step::Dispositions { .. } => {
            return SpawnError::new(At::Signals, None, errno.raw());
        }
        Step::Setsid => return SpawnError::new(At::Setsid, None, errno.raw()),
        Step::Setpgid { pgid } => (At::ProcessGroup, pgid.to_string()),
        Step::ControllingTerminal { fd } | Step::Foreground { fd } => {
            (At::Terminal, format!("on descriptor {fd}"))
        }
        Step::JoinCgroup { procs } => (At::Cgroup, path(procs)),
        Step::Chroot { path: p } => (At::Chroot, path(p)),
        Step::Chdir { path: p } => (At::Chdir, path(p)),
        Step::Fchdir { fd } => (At::Chdir, format!("descriptor {fd}")),
        Step::Umask { .. } => (At::Command, String::from("umask")),
        Step::Rlimit { resource, .. } => (At::Rlimit, format!("resource {resource}")),
        Step::Nice { value } => (At::Nice, value.to_string()),
        Step::Scheduler { policy, priority } => {
            (At::Scheduler, format!("policy {policy} priority {priority}"))
        }
        Step::Affinity { .. } => return SpawnError::new(At::Affinity, None, errno.raw()),
        Step::Groups { groups } => (At::Groups, list(groups)),
        Step::DropGroups => (At::Groups, list(&[])),
        Step::Gid { gid } => (At::Gid, gid.to_string()),
        Step::Uid { uid } => (At::Uid, uid.to_string()),
        Step::DeathSignal { signal, .. } => (At::DeathSignal, signal.to_string()),
        Step::NoNewPrivs => return SpawnError::new(At::NoNewPrivs, None, errno.raw()),
        Step::Hook(_) | Step::Run(_) => return SpawnError::new(At::PreExec, None, errno.raw()),
    };
    SpawnError::new(at, what, errno.raw())
}

/// The first few numbers: the kernel takes 65,536 groups, a message of one line does not.
fn list(numbers: &[u32]) -> String {
    const FEW: usize = 8;
    match numbers.len() {
        0..=FEW => format!("{numbers:?}"),
        n => format!("{:?} and {} more", &numbers[..FEW], n - FEW),
    }
}

fn exec(plan: &Plan, f: Failure) -> SpawnError {
    let searched = plan.candidates() > 1;
    // The kernel says ENOENT of a file that is there when the interpreter it names is not, which has cost many an hour; and
    // a search goes on after it, so that the last directory's answer is the one that is left.
    if f.errno == Errno::ENOENT
        && let Some(path) = (0..plan.candidates()).map(|i| plan.candidate(i)).find(|p| is_there(plan, p))
    {
        let what = format!("{path} (the interpreter or loader it names is missing)");
        return SpawnError::new(At::Exec, what, f.errno.raw());
    }
    let mut what = if searched && f.errno == Errno::ENOENT {
        plan.program().to_string_lossy().into_owned()
    } else {
        plan.candidate(f.index)
    };
    if what.is_empty() {
        what.push_str("\"\" (an empty name)");
    }
    SpawnError::new(At::Exec, what, f.errno.raw())
}

/// Whether the child finds a file at the path, as far as this process can tell.
fn is_there(plan: &Plan, path: &str) -> bool {
    let known = !plan.other_root && (path.starts_with('/') || !plan.other_directory);
    known && Path::new(path).is_file()
}
