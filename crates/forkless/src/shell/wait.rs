//! Waiting for the processes of a line, within the line's time limit.

use super::ending::Ending;
use crate::child::Child;
use crate::error::{SpawnError, WaitError};
use crate::start::WaitFor;
use forkless_sys::Errno;
use forkless_sys::process::{self, P_ALL, P_PID, WALL, WEXITED, WNOWAIT};
use std::process::ExitStatus;
use std::time::Instant;

/// How the processes of a line end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ends {
    /// All are children, which are awaited until then.
    Awaited(Option<Instant>),
    /// The last is this process, where the shell would not wait for it.
    InPlace {
        /// A wait takes the end of every child of this process.
        reaps_all: bool,
    },
}

impl Ends {
    fn deadline(self) -> Option<Instant> {
        match self {
            Ends::Awaited(deadline) => deadline,
            Ends::InPlace { .. } => None,
        }
    }
}

/// The wait of a start whose child has a time limit. Such a child needs a pidfd: without, a wait
/// looks again every few milliseconds.
pub(super) fn with_limit(wait_for: WaitFor, ends: Ends) -> WaitFor {
    if ends.deadline().is_some() { WaitFor::Exec } else { wait_for }
}

/// Waits for all stages; returns the last one's status as the shell makes it.
pub(super) fn wait_for_all(
    children: &mut [Child],
    ending: &mut Ending,
    ends: Ends,
) -> Result<ExitStatus, SpawnError> {
    let status = wait_or_kill(children, ends, |status| ending.complain(status))?;
    Ok(ending.translate(status))
}

/// Waits for all; kills the group that the first child leads when the time is over.
pub(super) fn wait_or_kill(
    children: &mut [Child],
    ends: Ends,
    mut each: impl FnMut(ExitStatus),
) -> Result<ExitStatus, SpawnError> {
    let mut last = Ok(ExitStatus::default());
    for index in 0..children.len() {
        if let Ends::InPlace { reaps_all: true } = ends {
            reap_all_until_end_of(index, children);
        }
        last = children[index].wait_until(ends.deadline());
        if matches!(last, Err(WaitError::Deadline)) {
            return Err(kill_and_reap_all(children).into());
        }
        if let Ok(status) = &last {
            each(*status);
        }
    }
    Ok(last?)
}

/// Takes the ends of this process's children, whichever they are, until one of the line has ended.
///
/// Nobody else takes them: a container's pid 1 gets all orphans, and a shell in its place would
/// reap them.
fn reap_all_until_end_of(index: usize, children: &mut [Child]) {
    while !children[index].is_over() {
        let ended = match process::waitid(P_ALL, 0, WEXITED | WNOWAIT | WALL) {
            Err(Errno::EINTR) => continue,
            // No child is left, or a filter refuses the call: the wait for the child finds out.
            Err(_) => return,
            Ok(ended) => ended.pid,
        };
        match children.iter_mut().find(|child| i32::try_from(child.id()) == Ok(ended)) {
            Some(child) => {
                let _ = child.wait();
                // A stop for a tracer in this process is reported as an end.
                if !child.is_over() {
                    return;
                }
            }
            None => drop(process::waitid(P_PID, ended, WEXITED | WALL)),
        }
    }
}

/// Kills every process of a line whose time is over, and takes their statuses.
///
/// Returns the error for the wait: the deadline, or that a process may not be killed.
pub(super) fn kill_and_reap_all(children: &mut [Child]) -> WaitError {
    if let Some(first) = children.first_mut() {
        let _ = first.kill_group();
    }
    let mut error = WaitError::Deadline;
    for child in children.iter_mut() {
        if let Err(refused @ WaitError::Os(_)) = child.kill_and_reap() {
            error = refused;
        }
    }
    error
}
