//! The command that a watch starts, and the time that it runs.

use std::process::{Child, Command};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::error::WatchError;
use crate::target::WatchedCommand;

/// A command that was started. It stays unreaped at its end, so that /proc still knows it.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) child: Child,
    begin: Instant,
    end: Arc<OnceLock<Instant>>,
    /// Whether a thread waits for the end and notes it.
    is_awaited: bool,
}

impl Started {
    /// Starts the command. It inherits the standard streams.
    pub(crate) fn start(watched: &WatchedCommand) -> Result<Self, WatchError> {
        let (program, arguments) = watched.argv.split_first().ok_or(WatchError::EmptyCommand)?;
        let mut command = Command::new(program);
        command.args(arguments);
        (watched.prepare)(&mut command);
        // Before the spawn: on a busy machine the command may have ended when it returns.
        let begin = Instant::now();
        let child = command.spawn().map_err(|source| WatchError::Command {
            program: program.to_string_lossy().into_owned(),
            source,
        })?;
        let end = Arc::new(OnceLock::new());
        let (noted, pid) = (Arc::clone(&end), Pid::from_child(&child));
        // A look between two polls would find the end up to a tenth of a second late.
        let awaits = thread::Builder::new().name("command".to_owned()).spawn(move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
            let _ = noted.set(Instant::now());
        });
        Ok(Self { child, begin, end, is_awaited: awaits.is_ok() })
    }

    /// Whether the command has ended.
    pub(crate) fn has_ended(&self) -> bool {
        if self.is_awaited {
            return self.end.get().is_some();
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error: the caller of `Watch::command` has reaped it.
        let ended =
            waitid(WaitId::Pid(Pid::from_child(&self.child)), options).map_or(true, |end| end.is_some());
        if ended {
            let _ = self.end.set(Instant::now());
        }
        ended
    }

    /// How long it has run, or ran.
    pub(crate) fn ran(&self) -> Duration {
        self.end.get().copied().unwrap_or_else(Instant::now).duration_since(self.begin)
    }
}
