//! A command laid out once, for many starts.

use super::builder::Command;
use crate::child::{Child, may_join_cgroup, run_to_end, wait_silently};
use crate::error::SpawnError;
use crate::kernel::cancel::NotCancelled;
use crate::plan::{CgroupEntry, EnvironmentUse, Plan};
use crate::spec::Defaults;
use crate::start::{self, Request, WaitFor};
use std::process::{ExitStatus, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

impl Command {
    /// Resolves and lays out everything once, for many starts. It takes the command over: one with
    /// arguments, which its methods only borrow, is a variable first.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut test = Command::new("test");
    /// test.args(["-d", "/"]);
    /// let prepared = test.prepare().unwrap();
    /// assert!((0..3).all(|_| prepared.status().unwrap().success()));
    /// ```
    ///
    /// # Errors
    /// What is wrong with the command itself; the program need not exist yet.
    pub fn prepare(self) -> Result<Prepared, SpawnError> {
        Prepared::new(self)
    }
}

/// A [`Command`] whose arguments, environment and search path are laid out once, for many starts,
/// from any number of threads.
///
/// The environment is that at the time of [`Command::prepare`]. The place where the program was
/// found is remembered and tried first. When the program is gone from there, the search begins
/// anew, so an upgrade or a removal does no harm. A file that appears earlier in PATH is not
/// noticed while the old one works, as with a shell's hash table.
///
/// ```
/// use forkless::Command;
/// let mut c = Command::new("true");
/// c.arg("x");
/// let p = c.prepare().unwrap();
/// for _ in 0..3 {
///     assert!(p.status().unwrap().success());
/// }
/// ```
#[derive(Debug)]
pub struct Prepared {
    command: Command,
    plan: Mutex<Arc<Plan>>,
    hint: AtomicUsize,
}

impl Prepared {
    pub(crate) fn new(command: Command) -> Result<Prepared, SpawnError> {
        let plan = Mutex::new(Arc::new(lay_out(&command, CgroupEntry::Born)?));
        Ok(Prepared { command, plan, hint: AtomicUsize::new(0) })
    }

    /// As [`Command::spawn`].
    ///
    /// ```
    /// let p = forkless::Command::new("true").prepare().unwrap();
    /// let (mut a, mut b) = (p.spawn().unwrap(), p.spawn().unwrap());
    /// assert!(a.wait().unwrap().success() && b.wait().unwrap().success());
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn(&self) -> Result<Child, SpawnError> {
        self.start(WaitFor::Exec, Defaults::Inherit)
    }

    /// As [`Command::spawn_nonblocking`].
    ///
    /// ```
    /// let p = forkless::Command::new("true").prepare().unwrap();
    /// let mut children: Vec<_> = (0..10).map(|_| p.spawn_nonblocking().unwrap()).collect();
    /// assert!(children.iter_mut().all(|c| c.wait().unwrap().success()));
    /// ```
    ///
    /// # Errors
    /// As [`Command::spawn_nonblocking`].
    pub fn spawn_nonblocking(&self) -> Result<Child, SpawnError> {
        self.start(WaitFor::Clone, Defaults::Inherit)
    }

    /// As [`Command::status`].
    ///
    /// ```
    /// let p = forkless::Command::new("false").prepare().unwrap();
    /// assert_eq!(p.status().unwrap().code(), Some(1));
    /// ```
    ///
    /// # Errors
    /// As [`Command::status`].
    pub fn status(&self) -> Result<ExitStatus, SpawnError> {
        run_to_end(
            |wait_for| self.start(wait_for, Defaults::Inherit),
            |child| {
                let status = wait_silently(child)?;
                if let Some(tried) = child.held.tried {
                    self.hint.store(tried as usize, Ordering::Relaxed);
                }
                Ok(status)
            },
        )
    }

    /// As [`Command::output`].
    ///
    /// ```
    /// let mut c = forkless::Command::new("echo");
    /// c.arg("again");
    /// let p = c.prepare().unwrap();
    /// assert!((0..2).all(|_| p.output().unwrap().stdout == b"again\n"));
    /// ```
    ///
    /// # Errors
    /// As [`Command::output`].
    pub fn output(&self) -> Result<Output, SpawnError> {
        self.start(WaitFor::Clone, Defaults::Capture)?.into_output()
    }

    /// The command this was made from.
    ///
    /// ```
    /// let p = forkless::Command::new("true").prepare().unwrap();
    /// assert_eq!(p.command().get_program(), "true");
    /// ```
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// Where the program was found last, as an index into the search; for tests.
    #[doc(hidden)]
    pub fn found_at(&self) -> usize {
        self.hint.load(Ordering::Relaxed)
    }

    fn start(&self, wait_for: WaitFor, defaults: Defaults) -> Result<Child, SpawnError> {
        let _whole = NotCancelled::begin();
        let plan = self.current()?;
        let command = &self.command;
        let spec = &command.spec;
        let go = |plan: &Arc<Plan>| {
            let hint = &self.hint;
            let request = Request { spec, plan, wait_for, defaults, held_until_exec: None, hint };
            Ok(Child::new(spec, plan, start::start(request)?))
        };
        go(&plan).or_else(|e| {
            if !may_join_cgroup(spec, &e) || plan.cgroup.is_none() {
                return Err(e);
            }
            let joining = Arc::new(lay_out(command, CgroupEntry::Join)?);
            let child = go(&joining)?;
            *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = joining;
            Ok(child)
        })
    }

    /// The plan, made anew after a fork of this process: a plan with a death signal names the
    /// process.
    fn current(&self) -> Result<Arc<Plan>, SpawnError> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.death_signal && plan.pid != forkless_sys::process::getpid() {
            *plan = Arc::new(lay_out(&self.command, CgroupEntry::Born)?);
        }
        Ok(Arc::clone(&plan))
    }
}

fn lay_out(command: &Command, cgroup: CgroupEntry) -> Result<Plan, SpawnError> {
    Plan::new(&command.spec, EnvironmentUse::MustCopy, cgroup)
}
