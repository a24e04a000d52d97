//! The builder of a talk with a child.

use super::builder::Command;
use crate::child::{Conversation, Talk, converse_to_the_end, spawn};
use crate::error::{SpawnError, Step};
use crate::spec::Defaults;
use crate::spec::stdio::Stdio;
use crate::start::WaitFor;
use std::ops::ControlFlow;
use std::os::fd::RawFd;
use std::process::{ExitStatus, Output};
use std::time::{Duration, Instant};

/// A conversation to be had with a child; made by [`Command::communicate`].
///
/// ```
/// use forkless::{Command, End};
/// use std::time::Duration;
/// let mut cmd = Command::new("sh");
/// cmd.args(["-c", "cat; echo oops >&2; sleep 1 &"]);
/// let (status, said) = cmd
///     .communicate()
///     .input(b"to be echoed")
///     .timeout(Duration::from_secs(10))
///     .linger(Duration::from_millis(50)) // the sleep keeps the pipes open
///     .run()
///     .unwrap();
/// assert!(status.success());
/// assert_eq!(said.stdout, b"to be echoed");
/// assert_eq!(said.stderr, b"oops\n");
/// assert_eq!(said.end, End::Lingered);
/// ```
pub struct Communicate<'a> {
    command: &'a mut Command,
    talk: Talk<'a>,
}

impl Command {
    /// A conversation: what [`Command::output`] does, with input, limits, a deadline and streaming.
    ///
    /// ```
    /// use forkless::Command;
    /// let (_, said) = Command::new("cat").communicate().input("hello").run().unwrap();
    /// assert_eq!(said.stdout, b"hello");
    /// ```
    pub fn communicate(&mut self) -> Communicate<'_> {
        Communicate { command: self, talk: Talk::default() }
    }

    /// Runs the program and collects what it writes; input is empty unless [`Command::stdin`] says
    /// otherwise.
    ///
    /// ```
    /// use forkless::Command;
    /// let out =
    ///     Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).output().unwrap();
    /// assert_eq!(
    ///     (&out.stdout[..], &out.stderr[..], out.status.code()),
    ///     (&b"out\n"[..], &b"err\n"[..], Some(3))
    /// );
    /// ```
    ///
    /// # Errors
    /// As [`Communicate::run`].
    pub fn output(&mut self) -> Result<Output, SpawnError> {
        let (status, io) = self.communicate().run()?;
        Ok(Output { status, stdout: io.stdout, stderr: io.stderr })
    }
}

impl<'a> Communicate<'a> {
    /// Bytes for the child's standard input; the pipe is closed after them. For this conversation
    /// it takes the place of whatever [`Command::stdin`] says. A child that does not read them all
    /// is no error.
    ///
    /// ```
    /// use forkless::Command;
    /// let (_, said) = Command::new("wc")
    ///     .arg("-c")
    ///     .communicate()
    ///     .input(&vec![b'x'; 1 << 20])
    ///     .run()
    ///     .unwrap();
    /// assert_eq!(said.stdout, b"1048576\n");
    /// ```
    #[must_use]
    pub fn input<B: AsRef<[u8]> + ?Sized>(mut self, bytes: &'a B) -> Communicate<'a> {
        self.talk.input = Some(bytes.as_ref());
        self
    }

    /// Standard error goes where standard output goes, in the order written.
    ///
    /// ```
    /// use forkless::Command;
    /// let (_, said) = Command::new("sh")
    ///     .args(["-c", "echo a; echo b >&2; echo c"])
    ///     .communicate()
    ///     .merged()
    ///     .run()
    ///     .unwrap();
    /// assert_eq!(said.stdout, b"a\nb\nc\n");
    /// ```
    #[must_use]
    pub fn merged(mut self) -> Communicate<'a> {
        self.talk.merged = true;
        self
    }

    /// Captures what the child writes to this number, too; it ends up in [`Conversation::others`].
    /// 0 is no output, and fails the start.
    ///
    /// ```
    /// use forkless::Command;
    /// let (_, said) = Command::new("sh")
    ///     .args(["-c", "echo result >&3"])
    ///     .communicate()
    ///     .capture(3)
    ///     .run()
    ///     .unwrap();
    /// assert_eq!(said.others, [(3, b"result\n".to_vec())]);
    /// ```
    #[must_use]
    pub fn capture(mut self, number: RawFd) -> Communicate<'a> {
        self.talk.also.push(number);
        self
    }

    /// The most bytes to keep of each stream. A child that writes more is killed
    /// ([`End::Limit`](crate::End::Limit)).
    ///
    /// ```
    /// use forkless::{Command, End};
    /// let (_, said) = Command::new("yes").communicate().limit(1000).run().unwrap();
    /// assert_eq!((said.stdout.len(), said.end), (1000, End::Limit));
    /// ```
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Communicate<'a> {
        self.talk.limit = Some(bytes);
        self
    }

    /// The most time for all of it. Then the child is killed and [`Communicate::run`] returns, even
    /// if another process holds its pipes.
    ///
    /// ```
    /// use forkless::{Command, End};
    /// use std::time::Duration;
    /// let (status, said) = Command::new("sleep")
    ///     .arg("60")
    ///     .communicate()
    ///     .timeout(Duration::from_millis(20))
    ///     .run()
    ///     .unwrap();
    /// assert_eq!(said.end, End::Deadline);
    /// assert!(!status.success());
    /// ```
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Communicate<'a> {
        self.talk.timeout = Some(time);
        self
    }

    /// How long to go on reading after the child has ended, where a process that it left behind
    /// keeps a pipe open; for ever by default.
    ///
    /// ```
    /// use forkless::{Command, End};
    /// use std::time::Duration;
    /// // The sleep is not the child, but it has the child's output.
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "echo done; sleep 2 &"]);
    /// let (status, said) = c.communicate().linger(Duration::from_millis(20)).run().unwrap();
    /// assert!(status.success());
    /// assert_eq!((&said.stdout[..], said.end), (&b"done\n"[..], End::Lingered));
    /// ```
    #[must_use]
    pub fn linger(mut self, time: Duration) -> Communicate<'a> {
        self.talk.linger = Some(time);
        self
    }

    /// Where the child is killed, its whole process group is killed; the child is made to lead a
    /// group. A command that names another group ([`Command::process_group`]) stays in it: then the
    /// child alone is killed.
    ///
    /// ```
    /// use forkless::{Command, End};
    /// use std::time::Duration;
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "sleep 60 & wait"]);
    /// let (_, said) =
    ///     c.communicate().timeout(Duration::from_millis(20)).kill_group().run().unwrap();
    /// assert_eq!(said.end, End::Deadline); // and no sleep is left
    /// ```
    #[must_use]
    pub fn kill_group(mut self) -> Communicate<'a> {
        self.talk.kill_group = true;
        self
    }

    /// Called with each piece as it arrives (number, bytes), instead of collecting it. `Break`
    /// stops and kills the child, and so does a panic.
    ///
    /// ```
    /// use forkless::{Command, End};
    /// use std::ops::ControlFlow;
    /// let mut seen = 0;
    /// let (_, said) = Command::new("yes")
    ///     .communicate()
    ///     .on_chunk(|_, bytes| {
    ///         seen += bytes.len();
    ///         if seen > 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    ///     })
    ///     .run()
    ///     .unwrap();
    /// assert_eq!(said.end, End::Stopped);
    /// assert!(said.stdout.is_empty() && seen > 1000);
    /// ```
    #[must_use]
    pub fn on_chunk(mut self, f: impl FnMut(RawFd, &[u8]) -> ControlFlow<()> + 'a) -> Communicate<'a> {
        self.talk.on_chunk = Some(Box::new(f));
        self
    }

    /// Called with each line, without its newline, instead of collecting it; a last line without
    /// one counts. [`Communicate::limit`] is then the longest line in bytes: a longer one ends the
    /// conversation, and no part of it is handed over. `Break` stops and kills the child; there is
    /// no call after it. A panic kills the child, too.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let mut lines = Vec::new();
    /// forkless::Command::new("printf")
    ///     .arg("a\\nb")
    ///     .communicate()
    ///     .on_line(|_, line| {
    ///         lines.push(line.to_vec());
    ///         ControlFlow::Continue(())
    ///     })
    ///     .run()
    ///     .unwrap();
    /// assert_eq!(lines, [b"a", b"b"]);
    /// ```
    #[must_use]
    pub fn on_line(mut self, f: impl FnMut(RawFd, &[u8]) -> ControlFlow<()> + 'a) -> Communicate<'a> {
        self.talk.on_line = Some(Box::new(f));
        self
    }

    /// Starts the child and talks to it until both are done.
    ///
    /// ```
    /// use forkless::Command;
    /// let (status, said) =
    ///     Command::new("tr").args(["a-z", "A-Z"]).communicate().input("loud").run().unwrap();
    /// assert!(status.success());
    /// assert_eq!(said.stdout, b"LOUD");
    /// ```
    ///
    /// # Errors
    /// As [`Command::status`]; `OutOfMemory` for output that does not fit, and errors of poll(2)
    /// and fcntl(2). The child is killed then. A deadline, a limit and a stop are not errors: see
    /// [`Conversation::end`].
    pub fn run(self) -> Result<(ExitStatus, Conversation), SpawnError> {
        let Communicate { command, mut talk } = self;
        if talk.also.contains(&0) {
            let why = String::from("capture(0): standard input is no output");
            return Err(SpawnError::new(Step::Command, why, libc::EINVAL));
        }
        let deadline = talk.timeout.and_then(|t| Instant::now().checked_add(t));
        let mut wanted: Vec<(RawFd, Stdio)> = talk.also.iter().map(|n| (*n, Stdio::piped())).collect();
        if talk.input.is_some() {
            wanted.push((0, Stdio::piped()));
        }
        if talk.merged {
            wanted.push((2, Stdio::same_as(1)));
        }
        let spec = &mut command.spec;
        let pgid = spec.attributes.pgid;
        if talk.kill_group && pgid.is_none() && !spec.attributes.setsid {
            spec.attributes.pgid = Some(0);
        }
        let before: Vec<_> = wanted.into_iter().map(|(n, to)| (n, spec.rewire(n, Some(to)))).collect();
        // Not waiting for exec overlaps it with the talk. A program that cannot be run shows at the
        // wait.
        let child = spawn(spec, WaitFor::Clone, Defaults::Capture);
        // The talk's needs are not part of the command, so the command is put back as it was.
        spec.attributes.pgid = pgid;
        for (n, was) in before.into_iter().rev() {
            spec.rewire(n, was);
        }
        converse_to_the_end(child?, &mut talk, deadline)
    }
}
