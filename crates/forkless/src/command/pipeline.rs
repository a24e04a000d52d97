//! Several commands, with the output of each as the input of the next.

use super::builder::Command;
use crate::child::{Child, spawn};
use crate::error::{SpawnError, WaitError};
use crate::kernel::descriptor::pipe;
use crate::spec::Defaults;
use crate::spec::stdio::Stdio;
use crate::start::WaitFor;
use std::process::{ExitStatus, Output};

/// Commands joined by pipes; made by [`Command::pipe`].
///
/// ```
/// use forkless::Command;
/// let mut printf = Command::new("printf");
/// printf.arg("b\\na\\nb\\n");
/// let sort = Command::new("sort");
/// let mut uniq = Command::new("uniq");
/// uniq.arg("-c");
/// let out = printf.pipe(sort).pipe(uniq).output().unwrap();
/// assert!(String::from_utf8(out.stdout).unwrap().contains("2 b"));
/// ```
#[derive(Debug)]
pub struct Pipeline {
    stages: Vec<Command>,
}

impl Command {
    /// Joins this command's standard output to the next one's standard input.
    ///
    /// The pipeline takes the commands over. The methods that set something up only borrow them,
    /// so a command with arguments is a variable first.
    ///
    /// ```
    /// use forkless::Command;
    /// let out = Command::new("echo").pipe(Command::new("wc")).output().unwrap();
    /// assert!(out.status.success());
    ///
    /// let mut printf = Command::new("printf");
    /// printf.arg("b\\na\\n");
    /// let mut head = Command::new("head");
    /// head.args(["-n", "1"]);
    /// let out = printf.pipe(Command::new("sort")).pipe(head).output().unwrap();
    /// assert_eq!(out.stdout, b"a\n");
    /// ```
    pub fn pipe(self, next: Command) -> Pipeline {
        Pipeline { stages: vec![self, next] }
    }
}

/// The running stages of a [`Pipeline`], first to last.
///
/// ```
/// use forkless::Command;
/// let mut running = Command::new("true").pipe(Command::new("false")).spawn().unwrap();
/// assert_eq!(running.stages.len(), 2);
/// let codes: Vec<_> = running.wait().unwrap().iter().map(|s| s.code()).collect();
/// assert_eq!(codes, [Some(0), Some(1)]);
/// ```
#[derive(Debug)]
pub struct Children {
    /// One child for each stage.
    pub stages: Vec<Child>,
}

impl Pipeline {
    /// Adds a stage.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut p = Command::new("true").pipe(Command::new("cat")).pipe(Command::new("false"));
    /// assert_eq!(p.status().unwrap().len(), 3);
    /// ```
    #[must_use]
    pub fn pipe(mut self, next: Command) -> Pipeline {
        self.stages.push(next);
        self
    }

    /// Starts every stage. The first stage's input and the last stage's output are as those
    /// commands say.
    ///
    /// ```
    /// use forkless::Command;
    /// let error = Command::new("true").pipe(Command::new("/nowhere")).spawn().unwrap_err();
    /// assert_eq!(error.what(), Some("/nowhere")); // and the first stage is gone
    /// ```
    ///
    /// # Errors
    /// That of the first stage that cannot start. The stages started before it are killed and
    /// waited for. A stage that may not be killed, since it became another user, goes on, and is
    /// reaped when it ends.
    pub fn spawn(&mut self) -> Result<Children, SpawnError> {
        self.start(Defaults::Inherit)
    }

    /// `defaults` are for the last stage's output and error.
    fn start(&mut self, defaults: Defaults) -> Result<Children, SpawnError> {
        let mut started: Vec<Child> = Vec::with_capacity(self.stages.len());
        let mut from_before = None;
        let last = self.stages.len() - 1;
        for (i, stage) in self.stages.iter_mut().enumerate() {
            if let Some(read) = from_before.take() {
                stage.stdin(Stdio::from(read));
            }
            let child = if i == last {
                spawn(&stage.spec, WaitFor::Exec, defaults)
            } else {
                pipe().and_then(|(read, write)| {
                    from_before = Some(read);
                    stage.stdout(Stdio::from(write));
                    let child = stage.spawn();
                    // A copy here would keep the next stage from seeing the end.
                    stage.stdout(Stdio::inherit());
                    child
                })
            };
            if i > 0 {
                stage.stdin(Stdio::inherit());
            }
            match child {
                Ok(child) => started.push(child),
                Err(e) => {
                    end(started);
                    return Err(e);
                }
            }
        }
        Ok(Children { stages: started })
    }

    /// Runs it; the status of each stage, first to last. Pipes other than those between the stages
    /// are closed, as [`Command::status`] closes them.
    ///
    /// ```
    /// use forkless::Command;
    /// let statuses = Command::new("false").pipe(Command::new("true")).status().unwrap();
    /// assert!(!statuses[0].success() && statuses[1].success());
    /// ```
    ///
    /// # Errors
    /// As [`Pipeline::spawn`] and [`Child::wait`].
    pub fn status(&mut self) -> Result<Vec<ExitStatus>, SpawnError> {
        let mut children = self.spawn()?;
        children.stages.iter_mut().for_each(Child::close_pipes);
        Ok(children.wait()?)
    }

    /// Runs it and collects the last stage's output and error; the status is the last stage's, as a
    /// shell has it. Other pipes are closed, as [`Command::status`] closes them.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut printf = Command::new("printf");
    /// printf.arg("b\\na\\n");
    /// assert_eq!(printf.pipe(Command::new("sort")).output().unwrap().stdout, b"a\nb\n");
    /// ```
    ///
    /// # Errors
    /// As [`Pipeline::status`].
    pub fn output(&mut self) -> Result<Output, SpawnError> {
        let mut children = self.start(Defaults::Capture)?;
        let Some(last) = children.stages.pop() else { unreachable!("a pipeline has two stages at least") };
        // With its input still open here, the first stage would never see the end of it.
        children.stages.iter_mut().for_each(Child::close_pipes);
        let out = last.into_output();
        if out.is_err() {
            end(children.stages);
            return out;
        }
        children.wait()?;
        out
    }

    /// The stages, first to last.
    ///
    /// ```
    /// use forkless::Command;
    /// let p = Command::new("ls").pipe(Command::new("wc"));
    /// assert!(p.stages().iter().map(|c| c.get_program()).eq(["ls", "wc"]));
    /// ```
    pub fn stages(&self) -> &[Command] {
        &self.stages
    }
}

/// Kills and reaps stages, but for those that may not be killed.
fn end(stages: Vec<Child>) {
    for mut child in stages {
        let _ = child.kill_and_reap();
    }
}

impl Children {
    /// Waits for every stage; the status of each, first to last. The pipes that a stage reads from,
    /// if still held here, are closed first, as [`Child::wait`] closes them.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut running = Command::new("true").pipe(Command::new("true")).spawn().unwrap();
    /// assert!(running.wait().unwrap().iter().all(|s| s.success()));
    /// ```
    ///
    /// # Errors
    /// As [`Child::wait`], for the first stage whose wait fails. The other stages are waited for
    /// all the same.
    pub fn wait(&mut self) -> Result<Vec<ExitStatus>, WaitError> {
        // Of all before the first wait: a stage may wait for the end of a later stage.
        self.stages.iter_mut().for_each(Child::close_inputs);
        let all: Vec<_> = self.stages.iter_mut().map(Child::wait).collect();
        all.into_iter().collect()
    }
}
