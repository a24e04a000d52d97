//! The methods of the suite: their names and their descriptions.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// A way to start a program and wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[expect(missing_docs, reason = "`Method::about` describes each, for programs and readers alike")]
pub enum Method {
    VforkExec,
    VforkExecPipes,
    CloneVm,
    NoshellCloneCompat0,
    NoshellCloneCompat1,
    NoshellSpawnCompat0,
    NoshellSpawnCompat1,
    NoshellForkCompat0,
    NoshellForkCompat1,
    PosixSpawn,
    PosixSpawnPipes,
    ForkExec,
    System,
    Popen,
    Forkless,
    ForklessSpawn,
    ForklessCommand,
    ForklessNonblocking,
    ForklessInherit,
    ForklessPipes,
    ForklessPipes3,
    ForklessFull,
    ForklessSystem,
    ForklessPopen,
}

impl Method {
    /// All methods, in the order of the table. [`Method::offered`] are those of this system.
    pub const ALL: [Method; 24] = [
        Method::VforkExec,
        Method::CloneVm,
        Method::NoshellCloneCompat0,
        Method::NoshellCloneCompat1,
        Method::NoshellSpawnCompat0,
        Method::NoshellSpawnCompat1,
        Method::NoshellForkCompat0,
        Method::NoshellForkCompat1,
        Method::Forkless,
        Method::ForklessSpawn,
        Method::ForklessCommand,
        Method::ForklessNonblocking,
        Method::ForklessInherit,
        Method::ForklessPipes,
        Method::ForklessPipes3,
        Method::ForklessFull,
        Method::PosixSpawn,
        Method::PosixSpawnPipes,
        Method::ForkExec,
        Method::System,
        Method::Popen,
        Method::ForklessSystem,
        Method::ForklessPopen,
        Method::VforkExecPipes,
    ];

    /// The ten that people know, in the order of the table. The others are variants of these.
    const KNOWN: [Method; 10] = [
        Method::VforkExec,
        Method::NoshellCloneCompat0,
        Method::Forkless,
        Method::ForklessCommand,
        Method::PosixSpawn,
        Method::ForkExec,
        Method::System,
        Method::Popen,
        Method::ForklessSystem,
        Method::ForklessPopen,
    ];

    /// The methods that people know, as far as this system has them.
    #[must_use]
    pub fn known() -> Vec<Method> {
        Method::only_offered(&Method::KNOWN)
    }

    /// The methods of this system: all on Linux, elsewhere those of every Unix.
    #[must_use]
    pub fn offered() -> Vec<Method> {
        Method::only_offered(&Method::ALL)
    }

    /// Leaves out the methods that this system lacks.
    pub(crate) fn only_offered(methods: &[Method]) -> Vec<Method> {
        methods.iter().copied().filter(|method| cfg!(target_os = "linux") || method.is_portable()).collect()
    }

    fn is_portable(self) -> bool {
        matches!(
            self,
            Method::VforkExec
                | Method::VforkExecPipes
                | Method::PosixSpawn
                | Method::PosixSpawnPipes
                | Method::ForkExec
                | Method::System
                | Method::Popen
        )
    }

    /// The name used in results and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Method::VforkExec => "vfork_exec",
            Method::VforkExecPipes => "vfork_exec_pipes",
            Method::CloneVm => "clone_vm",
            Method::NoshellCloneCompat0 => "noshell_clone_compat0",
            Method::NoshellCloneCompat1 => "noshell_clone_compat1",
            Method::NoshellSpawnCompat0 => "noshell_spawn_compat0",
            Method::NoshellSpawnCompat1 => "noshell_spawn_compat1",
            Method::NoshellForkCompat0 => "noshell_fork_compat0",
            Method::NoshellForkCompat1 => "noshell_fork_compat1",
            Method::PosixSpawn => "posix_spawn",
            Method::PosixSpawnPipes => "posix_spawn_pipes",
            Method::ForkExec => "fork_exec",
            Method::System => "system",
            Method::Popen => "popen",
            Method::Forkless => "forkless",
            Method::ForklessSpawn => "forkless_spawn",
            Method::ForklessCommand => "forkless_command",
            Method::ForklessNonblocking => "forkless_nonblocking",
            Method::ForklessInherit => "forkless_inherit",
            Method::ForklessPipes => "forkless_pipes",
            Method::ForklessPipes3 => "forkless_pipes3",
            Method::ForklessFull => "forkless_full",
            Method::ForklessSystem => "forkless_system",
            Method::ForklessPopen => "forkless_popen",
        }
    }

    /// One line: what is timed.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Method::VforkExec if cfg!(target_os = "linux") => {
                "the bare vfork and execve system calls: the yardstick"
            }
            Method::VforkExec => "libc's vfork and execve: the yardstick",
            Method::VforkExecPipes => "pipe2, vfork, dup2, execve, read to the end",
            Method::CloneVm => "libc's clone(CLONE_VM | CLONE_VFORK) on a stack of its own, then execve",
            Method::NoshellCloneCompat0 => {
                "popen-noshell's way: clone on an 8 MiB malloc'd stack, argument vector"
            }
            Method::NoshellCloneCompat1 => "the same, splitting a command string",
            Method::NoshellSpawnCompat0 => "popen-noshell's posix_spawn mode, argument vector",
            Method::NoshellSpawnCompat1 => "the same, splitting a command string",
            Method::NoshellForkCompat0 => "popen-noshell's fork (debug) mode, argument vector",
            Method::NoshellForkCompat1 => "the same, splitting a command string",
            Method::PosixSpawn => "libc's posix_spawn without actions or attributes",
            Method::PosixSpawnPipes => "pipe2 and posix_spawn with one dup2 action, read to the end",
            Method::ForkExec => "libc's fork, then execve",
            Method::System => "libc's system(): through /bin/sh",
            Method::Forkless => "Forkless: a prepared command's status(), start and wait in one call",
            Method::ForklessSpawn => "Forkless: a prepared command's spawn(), then wait()",
            Method::ForklessCommand => "Forkless: Command::new(..).status(), laid out anew each time",
            Method::ForklessNonblocking => "Forkless: spawn_nonblocking(), then wait()",
            Method::ForklessInherit => "Forkless: as `forkless`, the child inheriting every descriptor",
            Method::ForklessPipes => "Forkless: spawn() with standard output piped, read to the end",
            Method::ForklessPipes3 => "Forkless: spawn() with input, output and error piped",
            Method::ForklessFull => {
                "Forkless: uid, gid, groups (as root), cwd, umask, two rlimits, 20 descriptors mapped"
            }
            Method::ForklessSystem => "forkless_system() of the C library: the same line, without a shell",
            Method::ForklessPopen => "forkless_popen(..., \"r\") and forkless_pclose(): likewise",
            Method::Popen => "libc's popen(..., \"r\") and pclose(): through /bin/sh",
        }
    }

    /// Whether it carries out a line without a shell, where that can be.
    pub(super) fn spares_a_shell(self) -> bool {
        matches!(self, Method::ForklessSystem | Method::ForklessPopen)
    }

    /// What the time of a method is mostly made of, beyond what every process creation costs.
    #[must_use]
    pub(crate) fn limit(self) -> &'static str {
        match self {
            Method::ForkExec | Method::NoshellForkCompat0 | Method::NoshellForkCompat1 => {
                "copying page tables: grows with the parent's memory"
            }
            Method::System | Method::Popen => "the start of /bin/sh",
            Method::PosixSpawn
            | Method::PosixSpawnPipes
            | Method::NoshellSpawnCompat0
            | Method::NoshellSpawnCompat1 => "what libc's posix_spawn does around the clone",
            Method::ForklessFull => "the system calls of the child before its exec",
            Method::VforkExecPipes
            | Method::ForklessPipes
            | Method::ForklessPipes3
            | Method::ForklessPopen => "the kernel's work for clone, exec and exit, and the pipes",
            _ => "the kernel's work for clone, exec and exit",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Method, Error> {
        Method::ALL.into_iter().find(|method| method.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Method::offered().into_iter().map(Method::name).collect();
            Error::Spec(format!("no method {name:?}; there are: {}", known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_method() {
        for method in Method::ALL {
            assert_eq!(method.name().parse::<Method>().unwrap(), method);
        }
        let message = "vfork".parse::<Method>().unwrap_err().to_string();
        assert!(message.contains("vfork_exec"), "{message}");
    }
}
