//! One process creation as users see it: its caller, system call and flags, the memory copied, and
//! the child's exec and end. It holds facts only, no judgement.

use std::fmt;

use serde::Serialize;

use crate::ring::{self, RawCreation, RawPlace, STATE_RETURNED};

/// The system call that created the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CreatingCall {
    /// fork(2). glibc's `fork()` does not issue it: it issues [`Clone`](Self::Clone). aarch64 does
    /// not have it.
    Fork,
    /// vfork(2). aarch64 does not have it: `vfork()` is a [`Clone`](Self::Clone) there.
    Vfork,
    /// clone(2).
    Clone,
    /// clone3(2).
    Clone3,
    /// The watch began in the middle of the call.
    Unknown,
}

impl CreatingCall {
    fn from_number(nr: u32) -> Self {
        match nr {
            #[cfg(target_arch = "x86_64")]
            57 => Self::Fork,
            #[cfg(target_arch = "x86_64")]
            58 => Self::Vfork,
            #[cfg(target_arch = "x86_64")]
            56 => Self::Clone,
            #[cfg(target_arch = "aarch64")]
            220 => Self::Clone,
            435 => Self::Clone3,
            // 32-bit programs. i386 and 32-bit ARM have the same numbers.
            2 => Self::Fork,
            190 => Self::Vfork,
            120 => Self::Clone,
            _ => Self::Unknown,
        }
    }

    /// The name in the manual.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fork => "fork",
            Self::Vfork => "vfork",
            Self::Clone => "clone",
            Self::Clone3 => "clone3",
            Self::Unknown => "?",
        }
    }
}

/// What happens to the caller's memory, and whether the caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CreationKind {
    /// The caller's page tables were copied (no `CLONE_VM`).
    FullFork,
    /// Memory shared and the caller suspended until exec or exit (`CLONE_VM | CLONE_VFORK`): vfork,
    /// posix_spawn.
    VforkLike,
    /// Memory shared and the caller runs on (`CLONE_VM` without `CLONE_VFORK`).
    SharedMemory,
}

/// The flags of clone(2) as the kernel saw them, without the exit signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct CloneFlags(pub u64);

const FLAG_NAMES: [(u64, &str); 25] = [
    (0x0000_0100, "VM"),
    (0x0000_0200, "FS"),
    (0x0000_0400, "FILES"),
    (0x0000_0800, "SIGHAND"),
    (0x0000_1000, "PIDFD"),
    (0x0000_2000, "PTRACE"),
    (0x0000_4000, "VFORK"),
    (0x0000_8000, "PARENT"),
    (0x0001_0000, "THREAD"),
    (0x0002_0000, "NEWNS"),
    (0x0004_0000, "SYSVSEM"),
    (0x0008_0000, "SETTLS"),
    (0x0010_0000, "PARENT_SETTID"),
    (0x0020_0000, "CHILD_CLEARTID"),
    (0x0080_0000, "UNTRACED"),
    (0x0100_0000, "CHILD_SETTID"),
    (0x0200_0000, "NEWCGROUP"),
    (0x0400_0000, "NEWUTS"),
    (0x0800_0000, "NEWIPC"),
    (0x1000_0000, "NEWUSER"),
    (0x2000_0000, "NEWPID"),
    (0x4000_0000, "NEWNET"),
    (0x8000_0000, "IO"),
    (0x1_0000_0000, "CLEAR_SIGHAND"),
    (0x2_0000_0000, "INTO_CGROUP"),
];

impl CloneFlags {
    const VM: u64 = libc::CLONE_VM as u64;
    const VFORK: u64 = libc::CLONE_VFORK as u64;

    /// The kind of creation that these flags ask for.
    pub fn kind(self) -> CreationKind {
        match (self.0 & Self::VM != 0, self.0 & Self::VFORK != 0) {
            (true, true) => CreationKind::VforkLike,
            (true, false) => CreationKind::SharedMemory,
            (false, _) => CreationKind::FullFork,
        }
    }
}

impl CreationKind {
    /// Whether the caller is suspended until its child executes or ends.
    pub(crate) fn waits(self) -> bool {
        self == Self::VforkLike
    }
}

/// What the creating thread waited for when its child executed or ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CallerWaits {
    /// It read a pipe or waited for the child when the child executed a program: so runtimes learn
    /// whether the exec has worked.
    pub(crate) for_exec: bool,
    /// It waited for the child, or read a pipe, when the child ended.
    pub(crate) for_end: bool,
    /// It waited for events when the child ended.
    pub(crate) in_epoll: bool,
}

impl CallerWaits {
    /// From the system calls of the two moments, each plus one; `None` where neither is known.
    fn from_raw(at_exec: u32, at_exit: u32) -> Option<Self> {
        let call = |raw: u32| raw.checked_sub(1).map(i64::from);
        let (at_exec, at_exit) = (call(at_exec), call(at_exit));
        (at_exec.is_some() || at_exit.is_some()).then(|| Self {
            for_exec: at_exec.is_some_and(waits_for_a_child),
            for_end: at_exit.is_some_and(waits_for_a_child),
            in_epoll: at_exit.is_some_and(waits_for_events),
        })
    }
}

/// Whether a system call is one in which programs wait for one child: for its end, or for what it
/// writes.
fn waits_for_a_child(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    const OLDER: &[i64] = &[libc::SYS_poll, libc::SYS_select];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: &[i64] = &[];
    [libc::SYS_read, libc::SYS_wait4, libc::SYS_waitid, libc::SYS_ppoll, libc::SYS_pselect6].contains(&number)
        || OLDER.contains(&number)
}

/// Whether a system call is one in which event loops wait.
pub(crate) fn waits_for_events(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    const OLDER: &[i64] = &[libc::SYS_epoll_wait];
    #[cfg(not(target_arch = "x86_64"))]
    const OLDER: &[i64] = &[];
    [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2].contains(&number) || OLDER.contains(&number)
}

impl CloneFlags {
    /// Whether the caller was suspended though nothing is shared (`CLONE_VFORK` without
    /// `CLONE_VM`). Only a speculated fork has these flags: no C library creates processes so.
    pub fn is_speculated(self) -> bool {
        self.0 & (Self::VM | Self::VFORK) == Self::VFORK
    }
}

/// The names without `CLONE_`, joined by `|`; unknown bits in hexadecimal; `0` for none.
impl fmt::Display for CloneFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut first = true;
        for (bit, name) in FLAG_NAMES {
            if rest & bit != 0 {
                rest &= !bit;
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        match (first, rest) {
            (true, 0) => f.write_str("0"),
            (true, _) => write!(f, "{rest:#x}"),
            (false, 0) => Ok(()),
            (false, _) => write!(f, "|{rest:#x}"),
        }
    }
}

/// How the child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "value")]
pub enum ChildEnd {
    /// The child still ran when the record was made.
    Running,
    /// exit status, 0 to 255.
    Exited(u8),
    /// Number of the signal that killed it.
    Killed(u8),
    /// The child ended; this tier cannot see how.
    Unknown,
}

impl fmt::Display for ChildEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::Exited(status) => write!(f, "exit {status}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("ended"),
        }
    }
}

/// The caller's memory when it made the call, from its kernel counters (exact to some tens of
/// pages), in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CallerMemory {
    /// Anonymous memory. A full fork copies its page-table entries.
    pub anon: u64,
    /// File mappings.
    pub file: u64,
    /// Shared memory and tmpfs.
    pub shmem: u64,
    /// Swapped out; its page-table entries are copied too.
    pub swap: u64,
    /// hugetlb pages, which the resident size leaves out.
    pub hugetlb: u64,
    /// Page tables.
    pub page_tables: u64,
}

impl CallerMemory {
    /// The resident size as /proc/PID/status counts it (no hugetlb).
    pub fn resident(&self) -> u64 {
        self.anon + self.file + self.shmem
    }
}

/// A place in a process that makes a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The process.
    pub pid: u32,
    /// The system call's number.
    pub nr: u32,
    /// The address after the system call instruction.
    pub ip: u64,
    /// The return address of libc's function that makes the call, once it is known where that is on
    /// the stack. Before, the nearest word there that points into the main program. 0 for system
    /// calls that create nothing.
    pub word: u64,
    /// Tells the programs apart that the process has been: each exec changes it. 0 where it is not
    /// known.
    pub image: u64,
}

/// One program that a process was: its pid, and [`Place::image`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ProgramKey {
    pub(crate) pid: u32,
    pub(crate) image: u64,
}

impl ProgramKey {
    /// From here on images are numbers that a tier has made up, and no addresses of arguments.
    pub(crate) const MADE_UP: u64 = 1 << 63;
}

impl Place {
    pub(crate) fn program(&self) -> ProgramKey {
        ProgramKey { pid: self.pid, image: self.image }
    }

    pub(crate) fn from_raw(raw: &RawPlace) -> Self {
        Self { pid: raw.tgid, nr: raw.nr, ip: raw.ip, word: raw.word, image: raw.image }
    }
}

/// One process creation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Creation {
    /// The system call.
    pub call: CreatingCall,
    /// Its flags.
    pub flags: CloneFlags,
    /// What the flags mean.
    pub kind: CreationKind,
    /// The calling process.
    pub caller: u32,
    /// The calling thread.
    pub caller_thread: u32,
    /// The calling thread's name.
    pub caller_comm: String,
    /// The caller's real user, as the initial user namespace numbers it.
    pub caller_uid: Option<u32>,
    /// The caller's cgroup (inode number in the unified hierarchy).
    pub caller_cgroup: u64,
    /// The place of the call.
    pub place: Place,
    /// The caller's memory.
    pub memory: CallerMemory,
    /// The new process.
    pub child: u32,
    /// The child's name after its exec, else at its exit.
    pub child_comm: String,
    /// CLOCK_MONOTONIC at the begin of the call; at the begin of the child if that of the call was
    /// missed.
    pub at_ns: u64,
    /// From the call to the copied child: the copy's cost to the caller.
    pub copy_ns: Option<u64>,
    /// From the call to the new program in place.
    pub until_exec_ns: Option<u64>,
    /// The exec itself, in the child: it opens the program and tears the old memory down.
    pub exec_ns: Option<u64>,
    /// From the call to the caller's return: the time the caller waited.
    pub caller_waited_ns: Option<u64>,
    /// From the call to the child's exit.
    pub lifetime_ns: Option<u64>,
    /// Of it, the time that the child could run and had no processor; 0 where that is not known.
    #[serde(skip)]
    pub(crate) processor_wait_ns: u64,
    /// As in the [`CreatingThread`](crate::CreatingThread) that was reported for it; 0 for none.
    pub(crate) asked: u64,
    /// The first program the child became.
    pub exec_path: Option<String>,
    /// Its arguments, cut at 384 bytes.
    pub argv: Vec<String>,
    /// Whether `argv` was cut.
    pub argv_cut: bool,
    /// The child's thread that called exec, by its number before the exec.
    pub exec_thread: Option<u32>,
    /// Execs that succeeded.
    pub execs: u32,
    /// Execs that failed because the file or a directory was missing.
    pub exec_missing: u32,
    /// Execs that failed because the file was open for writing (ETXTBSY).
    pub exec_busy: u32,
    /// Execs that failed otherwise.
    pub exec_failed_otherwise: u32,
    /// errno of the last failed exec.
    pub exec_errno: Option<i32>,
    /// The path of the last failed exec.
    pub exec_failed_path: Option<String>,
    /// Write-protect faults of the child, before its exec, that copied a page.
    // Not serialised: a watch that hands out single creations does not count faults.
    #[serde(skip)]
    pub child_copied: u64,
    /// Such faults that could reuse the page.
    #[serde(skip)]
    pub child_reused: u64,
    /// Threads and processes that the child created before its exec.
    #[serde(skip)]
    pub(crate) child_made: u64,
    /// The child's time before its exec in a loop of closes, nanoseconds, as far as the preloaded
    /// library would answer it without the kernel.
    #[serde(skip)]
    pub(crate) closing_ns: u64,
    /// The closes of that loop which the library would answer.
    #[serde(skip)]
    pub(crate) closes: u64,
    /// Other threads of the caller that waited for its memory map meanwhile.
    #[serde(skip)]
    pub(crate) stalled: u64,
    /// The sum of their waits, nanoseconds.
    #[serde(skip)]
    pub(crate) stalled_ns: u64,
    /// What its caller waited for; `None` where that is not known.
    #[serde(skip)]
    pub(crate) caller_waits: Option<CallerWaits>,
    /// How it ended.
    pub end: ChildEnd,
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// In bytes. Per-CPU counters read without their per-CPU parts can be a little below zero.
fn pages(count: u64) -> u64 {
    ((count as i64).max(0) as u64).saturating_mul(page_size())
}

fn some_text(bytes: &[u8]) -> Option<String> {
    Some(ring::text(bytes)).filter(|text| !text.is_empty())
}

impl Creation {
    pub(crate) fn from_raw(raw: &RawCreation) -> Self {
        let at_ns = if raw.start_ns != 0 { raw.start_ns } else { raw.copied_ns };
        let since = |end: u64, begin: u64| (end != 0 && begin != 0).then(|| end.saturating_sub(begin));
        let argv_bytes = &raw.argv[..(raw.argv_bytes as usize).min(raw.argv.len())];
        let (argv, argv_cut) = ring::arguments(argv_bytes);
        let flags = CloneFlags(raw.flags);
        let returned = raw.state & STATE_RETURNED != 0 && raw.returned_ns != 0;
        Self {
            call: CreatingCall::from_number(raw.place.nr),
            flags,
            kind: flags.kind(),
            caller: raw.place.tgid,
            caller_thread: raw.caller_tid,
            caller_comm: ring::text(&raw.caller_comm),
            caller_uid: Some(raw.uid),
            caller_cgroup: raw.cgroup,
            place: Place::from_raw(&raw.place),
            memory: CallerMemory {
                anon: pages(raw.anon_pages),
                file: pages(raw.file_pages),
                shmem: pages(raw.shmem_pages),
                swap: pages(raw.swap_pages),
                hugetlb: pages(raw.hugetlb_pages),
                page_tables: raw.pgtables_bytes,
            },
            child: raw.child,
            child_comm: ring::text(&raw.child_comm),
            at_ns,
            copy_ns: since(raw.copied_ns, raw.start_ns),
            until_exec_ns: since(raw.exec_ns, at_ns),
            exec_ns: since(raw.exec_ns, raw.exec_enter_ns),
            caller_waited_ns: if returned { since(raw.returned_ns, raw.start_ns) } else { None },
            lifetime_ns: since(raw.exit_ns, at_ns),
            processor_wait_ns: raw.processor_wait_ns,
            asked: raw.asked,
            exec_path: some_text(&raw.exec_path),
            argv,
            argv_cut,
            exec_thread: (raw.exec_ns != 0).then_some(raw.exec_tid),
            execs: raw.execs,
            exec_missing: raw.exec_missing,
            exec_busy: raw.exec_busy,
            exec_failed_otherwise: raw.exec_other,
            exec_errno: (raw.exec_errno != 0).then_some(raw.exec_errno),
            exec_failed_path: some_text(&raw.failed_path),
            child_copied: (raw.child_copied as i64).max(0) as u64,
            child_reused: (raw.child_reused as i64).max(0) as u64,
            child_made: raw.child_made,
            closing_ns: raw.closing_ns,
            closes: raw.closes,
            stalled: raw.stalled,
            stalled_ns: raw.stalled_ns,
            caller_waits: CallerWaits::from_raw(raw.caller_at_exec, raw.caller_at_exit),
            end: match (raw.exit_ns, raw.exit_code) {
                (0, _) => ChildEnd::Running,
                (_, code) if code & 0x7f == 0 => ChildEnd::Exited((code >> 8) as u8),
                (_, code) => ChildEnd::Killed((code & 0x7f) as u8),
            },
        }
    }

    /// A creation with nothing known. The tiers without BPF start from it.
    pub(crate) fn unseen() -> Self {
        let flags = CloneFlags(CloneFlags::VM);
        Self {
            call: CreatingCall::Unknown,
            flags,
            kind: flags.kind(),
            caller: 0,
            caller_thread: 0,
            caller_comm: String::new(),
            caller_uid: None,
            caller_cgroup: 0,
            place: Place { pid: 0, nr: 0, ip: 0, word: 0, image: 0 },
            memory: CallerMemory::default(),
            child: 0,
            child_comm: String::new(),
            at_ns: 0,
            copy_ns: None,
            until_exec_ns: None,
            exec_ns: None,
            caller_waited_ns: None,
            lifetime_ns: None,
            processor_wait_ns: 0,
            asked: 0,
            exec_path: None,
            argv: Vec::new(),
            argv_cut: false,
            exec_thread: None,
            execs: 0,
            exec_missing: 0,
            exec_busy: 0,
            exec_failed_otherwise: 0,
            exec_errno: None,
            exec_failed_path: None,
            child_copied: 0,
            child_reused: 0,
            child_made: 0,
            closing_ns: 0,
            closes: 0,
            stalled: 0,
            stalled_ns: 0,
            caller_waits: None,
            end: ChildEnd::Running,
        }
    }

    /// Whether the child became another program.
    pub(crate) fn execed(&self) -> bool {
        self.execs > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_print_unknown_bits_and_none() {
        assert_eq!(CloneFlags(0).to_string(), "0");
        assert_eq!(CloneFlags(1 << 50).to_string(), "0x4000000000000");
        assert_eq!(CloneFlags(1 << 50 | 0x100).to_string(), "VM|0x4000000000000");
        assert_eq!(CloneFlags(0x120_0000).to_string(), "CHILD_CLEARTID|CHILD_SETTID");
    }

    #[test]
    fn flags_alone_tell_the_kinds_apart() {
        assert_eq!(CloneFlags(0x4000).kind(), CreationKind::FullFork);
        assert_eq!(CloneFlags(0x100).kind(), CreationKind::SharedMemory);
        assert_eq!(CloneFlags(0x4100).kind(), CreationKind::VforkLike);
        assert!(CloneFlags(0x4000).is_speculated() && !CloneFlags(0x4100).is_speculated());
    }

    #[test]
    fn an_end_reads_the_same_in_text_and_in_json() {
        assert_eq!(ChildEnd::Exited(3).to_string(), "exit 3");
        let json = serde_json::to_string(&ChildEnd::Killed(9)).expect("plain data");
        assert_eq!(json, r#"{"how":"killed","value":9}"#);
    }
}
