//! Programs of the system that an experiment runs: found, or installed where that was allowed, and
//! run with an end in sight. A program that outlives its time is killed with all it started, and
//! dies with this process.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::time::Duration;

use forkless::{Command, Stdio};
use forkless_bench::error::Error;
use forkless_bench::private_directory::PrivateDirectory;

use super::Bench;
use crate::install;
pub(super) use crate::install::find;

/// Finds a program, or installs the Debian package it is in. The error is a sentence for the
/// reader.
pub(super) fn provide(bench: &mut Bench<'_>, program: &str, package: &str) -> Result<PathBuf, String> {
    install::need(program, package, bench.options.install, bench.observer).map_err(|error| error.to_string())
}

/// The command of a program's words, its name first.
pub(super) fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Executes a program in this process, a forked child, without these variables of its environment
/// and with nothing to read or to write to. When that fails the child ends with 127.
pub(super) fn become_program(words: &[OsString], without: &[&str]) {
    let mut command = std::process::Command::new(&words[0]);
    let null = std::process::Stdio::null;
    command.args(&words[1..]).stdin(null()).stdout(null()).stderr(null());
    for name in without {
        command.env_remove(name);
    }
    let _ = command.exec();
    std::process::exit(127);
}

/// What a program said and how it ended.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Exit code; `None` for a signal.
    pub(super) code: Option<i32>,
    /// In words.
    pub(super) status: String,
}

impl Said {
    /// The output of a program that ended well.
    pub(super) fn fine(self, what: &str) -> Result<String, Error> {
        if self.code == Some(0) {
            return Ok(self.stdout);
        }
        let last = self.stderr.lines().last().unwrap_or("nothing").trim().to_owned();
        Err(Error::Missing(format!("{what} ended with {} and said: {last}", self.status)))
    }
}

/// Runs a program with nothing to read, to its end or to that of its time.
pub(super) fn run(command: &mut Command, limit: Duration) -> Result<Said, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).parent_death_signal(libc::SIGKILL);
    let name = command.get_program().to_string_lossy().into_owned();
    let started = command.communicate().timeout(limit).kill_group().run();
    let (status, said) =
        started.map_err(|error| Error::io(format!("run {name}"))(std::io::Error::from(error)))?;
    if said.end == forkless::End::Deadline {
        return Err(Error::Missing(format!("{name} did not end within {} s", limit.as_secs())));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said {
        stdout: text(&said.stdout),
        stderr: text(&said.stderr),
        code: status.code(),
        status: status.to_string(),
    })
}

/// A directory for the files of an experiment, whose programs may run as another user.
pub(super) fn scratch(bench: &mut Bench<'_>) -> Result<PrivateDirectory, Error> {
    PrivateDirectory::temporary(PrivateDirectory::ENTERED_BY_OTHERS, bench.guard.as_deref_mut())
}

/// A command that starts `program`, put behind `launcher` where there is one.
pub(super) fn behind(launcher: Option<&[OsString]>, program: &OsStr) -> Command {
    match launcher.and_then(|words| words.split_first()) {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_takes_too_long_is_killed_with_what_it_started() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 30 & wait"]);
        let error = run(&mut command, Duration::from_millis(200)).unwrap_err().to_string();
        assert!(error.contains("did not end within"), "{error}");
    }

    #[test]
    fn a_failure_names_the_program_and_its_last_words() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo first >&2; echo last words >&2; exit 3"]);
        let said = run(&mut command, Duration::from_secs(20)).unwrap();
        let error = said.fine("the shell").unwrap_err().to_string();
        assert!(error.contains("the shell") && error.contains("last words"), "{error}");
    }
}
