//! The attributes of a child: all but its program, arguments, environment and descriptors.

use forkless_sys::sched::Rlimit;
use forkless_sys::signal::{SIGPIPE, SigSet};
use std::ffi::CString;
use std::io;

/// A resource that can be limited (`getrlimit(2)`).
///
/// ```
/// use forkless::{Command, Resource};
/// let out = Command::new("sh")
///     .args(["-c", "ulimit -c"])
///     .rlimit(Resource::Core, 0, 0)
///     .output()
///     .unwrap();
/// assert_eq!(out.stdout, b"0\n");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Resource {
    /// CPU time, in seconds.
    Cpu = 0,
    /// Size of a file the process writes, in bytes.
    FileSize = 1,
    /// Data segment, in bytes.
    Data = 2,
    /// Stack of the main thread, in bytes.
    Stack = 3,
    /// Core dump, in bytes.
    Core = 4,
    /// Resident set, in bytes; not enforced by Linux.
    Rss = 5,
    /// Processes and threads of the user.
    Processes = 6,
    /// One more than the highest descriptor number.
    OpenFiles = 7,
    /// Locked memory, in bytes.
    LockedMemory = 8,
    /// Address space, in bytes.
    AddressSpace = 9,
    /// File locks; not enforced by Linux.
    FileLocks = 10,
    /// Pending signals of the user.
    PendingSignals = 11,
    /// POSIX message queues, in bytes.
    MessageQueues = 12,
    /// Ceiling of the nice value, as 20 - nice.
    Nice = 13,
    /// Ceiling of the real-time priority.
    RealtimePriority = 14,
    /// CPU time without a blocking call under real-time scheduling, in microseconds.
    RealtimeTime = 15,
}

/// A scheduling policy (`sched(7)`).
///
/// ```
/// use forkless::{Command, Scheduler};
/// let out = Command::new("cut")
///     .args(["-d ", "-f41", "/proc/self/stat"])
///     .scheduler(Scheduler::Batch)
///     .output()
///     .unwrap();
/// assert_eq!(out.stdout, b"3\n"); // SCHED_BATCH
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Scheduler {
    /// The default, `SCHED_OTHER`.
    Other,
    /// First in, first out, with its priority of 1 to 99.
    Fifo(u8),
    /// Round robin, with its priority of 1 to 99.
    RoundRobin(u8),
    /// CPU-bound work.
    Batch,
    /// Only when nothing else runs.
    Idle,
}

impl Scheduler {
    pub(crate) fn numbers(self) -> (i32, i32) {
        match self {
            Scheduler::Other => (0, 0),
            Scheduler::Fifo(p) => (1, i32::from(p)),
            Scheduler::RoundRobin(p) => (2, i32::from(p)),
            Scheduler::Batch => (3, 0),
            Scheduler::Idle => (5, 0),
        }
    }
}

/// What the drop of a [`Child`](crate::Child) does that has not been waited for. No choice leaves a
/// zombie.
///
/// A process forked from the starting process has no part in the child: a drop there only closes
/// the handle's descriptors.
///
/// ```
/// use forkless::{Command, OnDrop};
/// let child = Command::new("sleep").arg("60").on_drop(OnDrop::Kill).spawn().unwrap();
/// drop(child); // killed, and waited for
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum OnDrop {
    /// The child goes on. A thread that exists only while there are such children reaps it when it
    /// ends.
    #[default]
    Detach,
    /// The child gets SIGKILL and is waited for.
    Kill,
    /// The drop waits for the child to end.
    Wait,
}

/// A function of the caller's, to run in the child.
pub(crate) type HookFn = Box<dyn FnMut() -> io::Result<()> + Send + Sync>;

#[derive(Debug)]
pub(crate) struct Attributes {
    pub setsid: bool,
    pub pgid: Option<i32>,
    pub terminal: Option<i32>,
    pub foreground: Option<i32>,
    pub umask: Option<u32>,
    pub rlimits: Vec<(u32, Rlimit)>,
    pub nice: Option<i32>,
    pub scheduler: Option<Scheduler>,
    pub affinity: Option<Vec<u64>>,
    pub death_signal: Option<i32>,
    pub no_new_privs: bool,
    pub chroot: Option<CString>,
    pub cgroup: Option<CString>,
    pub cwd: Option<CString>,
    /// The order and the calls of CPython's `_posixsubprocess`.
    pub as_posixsubprocess: bool,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Option<Vec<u32>>,
    /// The signals blocked in the program; `None` for those that the calling thread blocks.
    pub mask: Option<SigSet>,
    pub default: SigSet,
    pub ignore: SigSet,
}

impl Default for Attributes {
    fn default() -> Self {
        Attributes {
            setsid: false,
            pgid: None,
            terminal: None,
            foreground: None,
            umask: None,
            rlimits: Vec::new(),
            nice: None,
            scheduler: None,
            affinity: None,
            death_signal: None,
            no_new_privs: false,
            chroot: None,
            cgroup: None,
            cwd: None,
            as_posixsubprocess: false,
            uid: None,
            gid: None,
            groups: None,
            mask: None,
            // Rust programs ignore SIGPIPE; the programs that they start must not.
            default: SigSet::EMPTY.with(SIGPIPE),
            ignore: SigSet::EMPTY,
        }
    }
}
