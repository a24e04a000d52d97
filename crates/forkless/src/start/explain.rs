//! From the child's fixed record to an error that names the step and the thing.

use crate::error::{SpawnError, Step};
use crate::plan::Plan;
use crate::spec::attributes::Resource;
use forkless_child::{Action, Failure, Phase};
use forkless_sys::Errno;
use forkless_sys::sched::{self, Rlimit};
use std::path::Path;

/// A failure after the descriptors.
pub(crate) fn failure(plan: &Plan, f: Failure) -> SpawnError {
    match f.phase {
        Phase::Exec => exec(plan, f),
        _ => failed_action(plan.actions().get(f.index), f.errno),
    }
}

/// The error of an action that failed.
pub(crate) fn failed_action(action: Option<&Action<'_>>, errno: Errno) -> SpawnError {
    let path = |p: forkless_sys::CPtr<'_>| match p.to_c_str().to_string_lossy() {
        empty if empty.is_empty() => String::from("\"\""),
        path => path.into_owned(),
    };
    let Some(action) = action else { return SpawnError::new(Step::Clone, None, errno.raw()) };
    let (step, what) = match *action {
        Action::Unshare { .. } | Action::GetFromParent { .. } | Action::Staged => {
            (Step::Descriptors, String::from("table"))
        }
        Action::CloseRange { first, last, .. } | Action::CloexecRange { first, last, .. } => {
            (Step::Descriptors, format!("{first} to {last} (closing)"))
        }
        Action::Close { fds } => (Step::Descriptors, format!("{fds:?} (closing)")),
        Action::Dup { from, to } => (Step::Descriptors, format!("{to} from {from}{}", beyond_limit(to))),
        Action::Save { from, .. } | Action::CopyUntilExec { from, .. } => {
            (Step::Descriptors, format!("{from}"))
        }
        Action::Keep { fd } | Action::Restore { to: fd } => (Step::Descriptors, format!("{fd}")),
        Action::Open { path: p, to, .. } | Action::OpenWithoutWaiting { path: p, to, .. } => {
            (Step::Descriptors, format!("{to} from {}{}", path(p), beyond_limit(to)))
        }
        Action::ResetHandlers | Action::Dispositions { .. } => {
            return SpawnError::new(Step::Signals, None, errno.raw());
        }
        Action::Setsid => return SpawnError::new(Step::Setsid, None, errno.raw()),
        Action::Setpgid { pgid } => (Step::ProcessGroup, pgid.to_string()),
        Action::ControllingTerminal { fd } | Action::Foreground { fd } => {
            (Step::Terminal, format!("on descriptor {fd}"))
        }
        Action::JoinCgroup { procs } => (Step::Cgroup, path(procs)),
        Action::Chroot { path: p } => (Step::Chroot, path(p)),
        Action::Chdir { path: p } => (Step::Chdir, path(p)),
        Action::Fchdir { fd } => (Step::Chdir, format!("descriptor {fd}")),
        Action::Umask { .. } => (Step::Command, String::from("umask")),
        Action::Rlimit { resource, .. } => (Step::Rlimit, resource_name(resource)),
        Action::Nice { value } => (Step::Nice, value.to_string()),
        Action::Scheduler { policy, priority } => {
            (Step::Scheduler, format!("policy {policy} priority {priority}"))
        }
        Action::Affinity { mask } => (Step::Affinity, format!("CPUs {}", list(&cpus(mask)))),
        Action::Groups { groups } => (Step::Groups, list(groups)),
        Action::DropGroups => (Step::Groups, list(&[])),
        Action::Gid { gid } | Action::Regid { gid } => (Step::Gid, gid.to_string()),
        Action::Uid { uid } | Action::Reuid { uid } => (Step::Uid, uid.to_string()),
        Action::DeathSignal { signal, .. } => (Step::DeathSignal, signal.to_string()),
        Action::NoNewPrivs => return SpawnError::new(Step::NoNewPrivs, None, errno.raw()),
        Action::Hook(_) | Action::Run(_) => return SpawnError::new(Step::PreExec, None, errno.raw()),
    };
    SpawnError::new(step, what, errno.raw())
}

/// The limit that keeps a number from being a descriptor's: the kernel says EBADF alone.
fn beyond_limit(number: i32) -> String {
    match sched::getrlimit(Resource::OpenFiles as u32) {
        Ok(Rlimit { soft, .. }) if number as u64 >= soft => format!(" (RLIMIT_NOFILE is {soft})"),
        _ => String::new(),
    }
}

/// The name in `<sys/resource.h>`.
fn resource_name(number: u32) -> String {
    const NAMES: [&str; 16] = [
        "CPU",
        "FSIZE",
        "DATA",
        "STACK",
        "CORE",
        "RSS",
        "NPROC",
        "NOFILE",
        "MEMLOCK",
        "AS",
        "LOCKS",
        "SIGPENDING",
        "MSGQUEUE",
        "NICE",
        "RTPRIO",
        "RTTIME",
    ];
    NAMES.get(number as usize).map_or_else(|| number.to_string(), |name| format!("RLIMIT_{name}"))
}

/// The numbers of the CPUs in a mask.
fn cpus(mask: &[u64]) -> Vec<u32> {
    let bits = |word: &u64| (0..64).filter(move |bit| word >> bit & 1 == 1).collect::<Vec<u32>>();
    (0..).zip(mask).flat_map(|(i, word)| bits(word).into_iter().map(move |bit| i * 64 + bit)).collect()
}

/// The first few numbers: the kernel takes 65,536 groups, but a message of one line does not.
fn list(numbers: &[u32]) -> String {
    const FEW: usize = 8;
    match numbers.len() {
        0..=FEW => format!("{numbers:?}"),
        n => format!("{:?} and {} more", &numbers[..FEW], n - FEW),
    }
}

fn exec(plan: &Plan, f: Failure) -> SpawnError {
    let searched = plan.candidates() > 1;
    // The kernel says ENOENT of a file that is there when the interpreter it names is not. That has
    // cost many an hour. And a search goes on after it, so that only the last directory's answer is
    // left.
    let mut candidates = (0..plan.candidates()).map(|i| plan.candidate(i));
    let there = if f.errno == Errno::ENOENT { candidates.find(|p| is_there(plan, p)) } else { None };
    if let Some(path) = there {
        let what = format!("{path} (the interpreter or loader it names is missing)");
        return SpawnError::new(Step::Exec, what, f.errno.raw());
    }
    let mut what = if searched && f.errno == Errno::ENOENT {
        plan.program().to_string_lossy().into_owned()
    } else {
        plan.candidate(f.index)
    };
    if what.is_empty() {
        what.push_str("\"\" (an empty name)");
    }
    SpawnError::new(Step::Exec, what, f.errno.raw())
}

/// Whether the child finds a file at the path, as far as this process can tell.
fn is_there(plan: &Plan, path: &str) -> bool {
    let known = !plan.other_root && (path.starts_with('/') || !plan.other_directory);
    known && Path::new(path).is_file()
}
