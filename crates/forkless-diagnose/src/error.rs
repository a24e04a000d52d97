//! The library's errors. Each names the failed step, the thing it failed on, and the next thing to
//! do.

use std::path::PathBuf;

/// The message of each `ForeignProc`.
pub(crate) const FOREIGN_PROC: &str = "/proc shows the processes of another pid namespace; mount this one's: \
    mount -t proc proc /proc, or unshare --mount-proc";

/// A number of a thread where one of a process was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{thread} is a thread of process {process} ({}); give that number", name.escape_debug())]
pub struct ThreadOf {
    /// The number asked for.
    pub thread: u32,
    /// The thread's process.
    pub process: u32,
    /// The name of the process.
    pub name: String,
}

/// Why a watch could not begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// There is no such process.
    #[error("no process {pid} (it may have ended); see `ps -e`")]
    NoProcess {
        /// The number or path asked for.
        pid: u32,
    },
    /// The number is one of a thread.
    #[error(transparent)]
    Thread(#[from] ThreadOf),
    /// The path is not a cgroup that can be watched.
    #[error("cgroup {}: {why}", path.display())]
    NoCgroup {
        /// The number or path asked for.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// `WatchTarget::Command` has no words.
    #[error("the command to watch has no words")]
    EmptyCommand,
    /// The command could not be started.
    #[error("cannot run {program}: {source}; {}", mend(source))]
    Command {
        /// Its first word.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// BPF is out of reach for this process.
    #[error("{why}; {}", remedy())]
    NotPermitted {
        /// The refusal.
        why: String,
    },
    /// BPF may not read the kernel's memory.
    #[error(
        "lockdown=confidentiality keeps BPF from reading the kernel's memory; boot with lockdown=integrity or without lockdown"
    )]
    LockedDown,
    /// The kernel lacks what the programs need.
    #[error("this kernel cannot run the BPF programs: {why}")]
    Unsupported {
        /// The missing facility.
        why: String,
    },
    /// Too little memory may be had to read the kernel's types.
    #[error("no {mib} MiB of memory may be had to read the kernel's types; raise the limit (ulimit -v)")]
    NoRoom {
        /// How much it takes.
        mib: usize,
    },
    /// /proc belongs to another pid namespace: its numbers mean other processes.
    #[error("{FOREIGN_PROC}")]
    ForeignProc,
    /// The tier asked for cannot do this.
    #[error("only BPF can list single creations, and /proc alone cannot watch the whole machine or a cgroup")]
    TierTooWeak,
    /// The kernel refused one program.
    #[error("BPF program {program}: {why}")]
    Program {
        /// Its name.
        program: &'static str,
        /// The kernel's reason.
        why: String,
    },
    /// A map could not be opened or read.
    #[error("BPF map {map}: {source}")]
    Map {
        /// Its name.
        map: &'static str,
        /// Why.
        source: aya::maps::MapError,
    },
    /// Waiting for events failed.
    #[error("waiting for events: {0}")]
    Wait(std::io::Error),
}

impl WatchError {
    /// Whether the machine lacks a facility (a privilege, a kernel feature), so that another tier
    /// may help. Otherwise the request was wrong.
    pub fn is_missing_facility(&self) -> bool {
        matches!(
            self,
            Self::NotPermitted { .. }
                | Self::LockedDown
                | Self::Unsupported { .. }
                | Self::NoRoom { .. }
                | Self::ForeignProc
                | Self::Program { .. }
                | Self::Map { .. }
        )
    }
}

fn mend(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::NotFound => "check its path, or the PATH",
        std::io::ErrorKind::PermissionDenied => "it must be a program that may be executed (chmod +x)",
        _ => "see whether it starts without a watch",
    }
}

/// The capabilities with which a user who is not root sees everything, for messages: the first two
/// for BPF, the third for what /proc says about other users' processes.
pub const CAPABILITIES: &str = "CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE";

/// The advice depends on whether root was refused.
fn remedy() -> String {
    if rustix::process::geteuid().is_root() {
        "root is not enough here: the kernel's configuration or a container's policy forbids it".to_owned()
    } else {
        format!("run as root, or grant {CAPABILITIES}")
    }
}
