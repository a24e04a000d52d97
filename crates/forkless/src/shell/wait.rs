//! Waiting for the processes of a line, within the line's time limit.

use super::ending::Ending;
use crate::child::Child;
use crate::error::{SpawnError, WaitError};
use crate::start::WaitFor;
use std::process::ExitStatus;
use std::time::Instant;

/// The wait of a start whose child has a time limit. Such a child needs a pidfd: without, a wait
/// looks again every few milliseconds.
pub(super) fn with_limit(wait_for: WaitFor, deadline: Option<Instant>) -> WaitFor {
    if deadline.is_some() { WaitFor::Exec } else { wait_for }
}

/// Waits for all stages; returns the last one's status as the shell makes it.
pub(super) fn wait_for_all(
    children: &mut [Child],
    ending: &mut Ending,
    deadline: Option<Instant>,
) -> Result<ExitStatus, SpawnError> {
    let status = wait_or_kill(children, deadline, |status| ending.complain(status))?;
    Ok(ending.translate(status))
}

/// Waits for all; kills the group that the first child leads when the time is over.
pub(super) fn wait_or_kill(
    children: &mut [Child],
    deadline: Option<Instant>,
    mut each: impl FnMut(ExitStatus),
) -> Result<ExitStatus, SpawnError> {
    let mut last = Ok(ExitStatus::default());
    for index in 0..children.len() {
        last = children[index].wait_until(deadline);
        if matches!(last, Err(WaitError::Deadline)) {
            return Err(kill_and_reap_all(children).into());
        }
        if let Ok(status) = &last {
            each(*status);
        }
    }
    Ok(last?)
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
