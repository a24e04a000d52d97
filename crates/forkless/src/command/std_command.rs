//! From `std::process::Command` and to it. An attribute that cannot be taken over is an error, so
//! that no other program is run than the one described.

use super::builder::Command;
use crate::error::{SpawnError, Step};
use crate::spec::attributes::{Attributes, HookFn, OnDrop};
use crate::spec::stdio::Kind;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command as Std, Stdio};

fn refuse<T>(why: &str) -> Result<T, SpawnError> {
    Err(SpawnError::new(Step::Command, why.to_owned(), libc::EOPNOTSUPP))
}

impl Command {
    /// The same command as one of std's: program, arguments, environment, directory; it inherits
    /// descriptors as std does. std tells no more of a command. So anything else that its `{:#?}`
    /// shows is an error: `arg0`, user, groups, process group, standard streams. Set these on the
    /// returned command instead.
    ///
    /// **`pre_exec` functions are not seen, and lost**: std shows them in no way.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut std = std::process::Command::new("printenv");
    /// std.arg("A").env("A", "1");
    /// assert_eq!(Command::from_std(&std)?.output()?.stdout, b"1\n");
    /// std.stdin(std::process::Stdio::null());
    /// assert!(Command::from_std(&std).is_err());
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    ///
    /// # Errors
    /// [`Step::Command`] with `EOPNOTSUPP` for a command with attributes that cannot be read.
    pub fn from_std(std: &Std) -> Result<Command, SpawnError> {
        let shown = format!("{std:#?}");
        for clear in [false, true] {
            // std has no getter for a cleared environment, but shows it.
            let mut again = Std::new(std.get_program());
            let mut ours = Command::new(std.get_program());
            again.args(std.get_args());
            ours.args(std.get_args()).inherit_descriptors(true);
            if clear {
                again.env_clear();
                ours.env_clear();
            }
            for (name, value) in std.get_envs() {
                match value {
                    Some(value) => (again.env(name, value), ours.env(name, value)),
                    None => (again.env_remove(name), ours.env_remove(name)),
                };
            }
            if let Some(dir) = std.get_current_dir() {
                again.current_dir(dir);
                ours.current_dir(dir);
            }
            if format!("{again:#?}") == shown {
                return Ok(ours);
            }
        }
        refuse("std's command has more than program, arguments, environment and directory")
    }

    /// The same command as one of std's, its `pre_exec` functions included. std has no name for
    /// most of what a command can have here, and always inherits descriptors:
    /// [`Command::inherit_descriptors`] must be on.
    ///
    /// ```
    /// use forkless::Command;
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "echo $0 $A"]).arg0("x").env("A", "1").inherit_descriptors(true);
    /// assert_eq!(c.into_std()?.output()?.stdout, b"x 1\n");
    /// let mut c = Command::new("sh");
    /// c.inherit_descriptors(true).umask(0o77);
    /// assert_eq!(c.into_std().unwrap_err().what(), Some("std has no umask"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Step::Command`] with `EOPNOTSUPP`, and [`SpawnError::what`] naming what std cannot do.
    pub fn into_std(self) -> Result<Std, SpawnError> {
        let spec = self.spec;
        if let Some(bad) = spec.bad {
            return Err(SpawnError::new(Step::Command, bad, libc::EINVAL));
        }
        // Named one by one: whoever adds an attribute must decide here whether std has it.
        let Attributes {
            setsid,
            pgid,
            terminal,
            foreground,
            umask,
            rlimits,
            nice,
            scheduler,
            affinity,
            death_signal,
            no_new_privs,
            chroot,
            cgroup,
            cwd,
            as_posixsubprocess,
            uid,
            gid,
            groups,
            mask,
            default,
            ignore,
        } = spec.attributes;
        let signals = Attributes::default();
        let foreign = [
            (setsid, "std has no stable setsid"),
            (terminal.is_some(), "std has no controlling terminal"),
            (foreground.is_some(), "std has no foreground group"),
            (umask.is_some(), "std has no umask"),
            (!rlimits.is_empty(), "std has no resource limits"),
            (nice.is_some(), "std has no nice value"),
            (scheduler.is_some(), "std has no scheduling policy"),
            (affinity.is_some(), "std has no CPU affinity"),
            (death_signal.is_some(), "std has no parent death signal"),
            (no_new_privs, "std has no no_new_privs"),
            (chroot.is_some(), "std has no stable chroot"),
            (cgroup.is_some(), "std has no cgroup"),
            (groups.is_some(), "std has no stable groups"),
            (mask.is_some(), "std has no signal mask"),
            (default != signals.default || ignore != signals.ignore, "std has no signal dispositions"),
            (!spec.fds.is_empty(), "std connects descriptors 0, 1 and 2 alone"),
            (!spec.inherit_descriptors, "std hands every descriptor on: set inherit_descriptors(true)"),
            (spec.on_drop != OnDrop::Detach, "std leaves a dropped child alone"),
            (as_posixsubprocess, "std has an order of its own"),
            (spec.files.is_some(), "std searches for the program"),
            (!spec.scripts, "std runs scripts without interpreter where it forks"),
            (spec.env.is_of_c(), "std copies the environment by its own rules"),
        ];
        if let Some((_, why)) = foreign.iter().find(|(is_set, _)| *is_set) {
            return refuse(why);
        }
        let mut std = Std::new(&spec.program);
        let mut args = spec.args.iter();
        let arg0 = args.next().unwrap_or_default();
        std.args(args.map(OsStr::from_bytes));
        if arg0 != spec.program.as_bytes() {
            std.arg0(OsStr::from_bytes(arg0));
        }
        if spec.env.is_cleared() {
            std.env_clear();
        }
        for (name, value) in spec.env.iter() {
            match value {
                Some(value) => std.env(name, value),
                None => std.env_remove(name),
            };
        }
        if let Some(dir) = &cwd {
            std.current_dir(OsStr::from_bytes(dir.to_bytes()));
        }
        if let Some(pgid) = pgid {
            std.process_group(pgid);
        }
        if let Some(gid) = gid {
            std.gid(gid);
        }
        if let Some(uid) = uid {
            std.uid(uid);
        }
        let [stdin, stdout, stderr] = spec.std;
        if let Some(stdin) = stdin {
            std.stdin(stdio(stdin.0)?);
        }
        if let Some(stdout) = stdout {
            std.stdout(stdio(stdout.0)?);
        }
        if let Some(stderr) = stderr {
            std.stderr(stdio(stderr.0)?);
        }
        for hook in spec.hooks.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            add_hook(&mut std, hook);
        }
        Ok(std)
    }
}

#[expect(unsafe_code, reason = "hands the caller's promise on")]
fn add_hook(std: &mut Std, hook: HookFn) {
    // SAFETY: `Command::pre_exec` asked its caller for more: to run in the parent's memory.
    unsafe { std.pre_exec(hook) };
}

fn stdio(kind: Kind) -> Result<Stdio, SpawnError> {
    match kind {
        Kind::Inherit => Ok(Stdio::inherit()),
        Kind::Null => Ok(Stdio::null()),
        Kind::Piped => Ok(Stdio::piped()),
        Kind::Owned(fd) => Ok(Stdio::from(fd)),
        Kind::Raw(1) => Ok(Stdio::from(std::io::stdout())),
        Kind::Raw(2) => Ok(Stdio::from(std::io::stderr())),
        Kind::PipedInput | Kind::Closed | Kind::Raw(_) | Kind::SameAs(_) => {
            refuse("std has no closed, borrowed, reversed or shared standard stream")
        }
    }
}
