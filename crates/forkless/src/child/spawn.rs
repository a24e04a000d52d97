//! From a spec to a running child.

use super::handle::Child;
use crate::error::{SpawnError, Step};
use crate::kernel::cancel::NotCancelled;
use crate::plan::{CgroupEntry, EnvironmentUse, Plan};
use crate::spec::{Defaults, Spec};
use crate::start::{self, Request, WaitFor};
use std::io;
use std::os::fd::RawFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Plans and starts once.
pub(crate) fn spawn(spec: &Spec, wait_for: WaitFor, defaults: Defaults) -> Result<Child, SpawnError> {
    spawn_holding(spec, wait_for, defaults, None)
}

/// As [`spawn`], with a descriptor that the child holds until it executes the program.
pub(crate) fn spawn_holding(
    spec: &Spec,
    wait_for: WaitFor,
    defaults: Defaults,
    held_until_exec: Option<RawFd>,
) -> Result<Child, SpawnError> {
    let _whole = NotCancelled::begin();
    let environment = match wait_for {
        WaitFor::Clone => EnvironmentUse::MustCopy,
        WaitFor::Exec | WaitFor::End => EnvironmentUse::MayBorrow,
    };
    let hint = AtomicUsize::new(0);
    let go = |cgroup| {
        let plan = Arc::new(Plan::new(spec, environment, cgroup)?);
        let request = Request { spec, plan: &plan, wait_for, defaults, held_until_exec, hint: &hint };
        let started = start::start(request)?;
        Ok(Child::new(spec, &plan, started))
    };
    let born = go(CgroupEntry::Born);
    born.or_else(|e| if may_join_cgroup(spec, &e) { go(CgroupEntry::Join) } else { Err(e) })
}

/// Whether a child that could not be born in its cgroup may still join it. A filter, an old kernel
/// and a version 1 hierarchy refuse the birth and not the joining.
pub(crate) fn may_join_cgroup(spec: &Spec, e: &SpawnError) -> bool {
    e.step() == Step::Cgroup && spec.attributes.cgroup.is_some() && e.kind() != io::ErrorKind::NotFound
}

/// Starts a child and waits for its end.
///
/// There is no wait in between, so a facility that is refused for the first time shows only at the
/// wait for the end. The program has not run then, and is started again another way.
pub(crate) fn run_to_end<T>(
    mut start: impl FnMut(WaitFor) -> Result<Child, SpawnError>,
    mut wait: impl FnMut(&mut Child) -> Result<T, SpawnError>,
) -> Result<T, SpawnError> {
    let mut child = start(WaitFor::End)?;
    match wait(&mut child) {
        Err(_) if child.held.try_again => wait(&mut start(WaitFor::Exec)?),
        done => done,
    }
}

/// Waits for a child that nobody talks to.
pub(crate) fn wait_silently(child: &mut Child) -> Result<ExitStatus, SpawnError> {
    child.close_pipes();
    Ok(child.wait()?)
}
