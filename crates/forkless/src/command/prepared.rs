//! A command laid out once, for many starts.

use crate::child::handle::Child;
use crate::command::builder::{Command, Defaults, may_join, run_to_end, wait_alone};
use crate::error::SpawnError;
use crate::kernel::cancel::NotCancelled;
use crate::plan::{Cgroup, Life, Plan};
use crate::start::attempt::{self as start, Request, Until};
use std::process::{ExitStatus, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A [`Command`] whose arguments, environment and search path are laid out once, for many starts, from any number of threads.
///
/// The environment is that of the moment of [`Command::prepare`]. The place where the program was found is remembered and tried
/// first; when it is gone, the search begins anew, so an upgrade or a removal does no harm. A file that appears earlier in PATH
/// is not noticed while the old one works, as with a shell's hash table.
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
        let plan = Mutex::new(Arc::new(Plan::new(&command, Life::Long, Cgroup::Born)?));
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
        self.start(Until::Exec, Defaults::Inherit)
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
        self.start(Until::Cloned, Defaults::Inherit)
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
            |until| self.start(until, Defaults::Inherit),
            |child| {
                let status = wait_alone(child)?;
                if let Some(tried) = child.held.tried {
                    self.hint.store(tried, Ordering::Relaxed);
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
        self.start(Until::Cloned, Defaults::Capture)?.wait_with_output()
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

    fn start(&self, until: Until, defaults: Defaults) -> Result<Child, SpawnError> {
        let _whole = NotCancelled::begin();
        let plan = self.current()?;
        let command = &self.command;
        let go = |plan: &Arc<Plan>| {
            let started =
                start::start(Request { command, plan, until, defaults, until_exec: None, hint: &self.hint })?;
            Ok(Child::new(command, plan, started))
        };
        go(&plan).or_else(|e| {
            if !may_join(command, &e) || plan.cgroup.is_none() {
                return Err(e);
            }
            let joining = Arc::new(Plan::new(command, Life::Long, Cgroup::Join)?);
            let child = go(&joining)?;
            *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = joining;
            Ok(child)
        })
    }

    /// The plan, made anew after a fork of this process: it names the process.
    fn current(&self) -> Result<Arc<Plan>, SpawnError> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.death_signal && plan.pid != forkless_sys::process::getpid() {
            *plan = Arc::new(Plan::new(&self.command, Life::Long, Cgroup::Born)?);
        }
        Ok(Arc::clone(&plan))
    }
}
