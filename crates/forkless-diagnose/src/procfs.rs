//! Reads facts about processes from /proc. Every answer may be missing: processes end at any time.
//! The crate procfs is no substitute: its `Status` fails on a name that is not UTF-8, and it parses
//! every field for each fork.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use forkless_sys::signal::SigSet;

use crate::creation::{CallerMemory, ProgramKey};
use crate::error::ThreadOf;
use crate::program::KnownProgram;

/// `pid` and every process below it now, `pid` first.
pub(crate) fn with_descendants(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&at) = found.get(next) {
        found.extend(children.remove(&at).into_iter().flatten());
        next += 1;
    }
    found
}

/// Whether /proc shows another pid namespace than ours, as under unshare(1) without a mount of
/// /proc. Its numbers then mean other processes. `false` if /proc is missing.
pub(crate) fn is_foreign() -> bool {
    match fs::read_link("/proc/self") {
        Ok(own) => own.as_os_str() != std::process::id().to_string().as_str(),
        // The link leads nowhere in a namespace that we are not in (fs/proc/self.c).
        Err(_) => fs::symlink_metadata("/proc/self").is_ok(),
    }
}

/// A file of /proc as text. A process's name is any 15 bytes (prctl(2), PR_SET_NAME) and occurs in
/// `stat`, `status` and `comm`. A name that is not UTF-8 must not make the rest unreadable.
pub(crate) fn read(path: &str) -> Option<String> {
    // Room from the start: such a file tells no size, and would be read in small parts.
    let mut bytes = Vec::with_capacity(1024);
    fs::File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(
        String::from_utf8(bytes)
            .unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned()),
    )
}

/// An amount as files of /proc have it, `N kB`, in bytes.
pub(crate) fn bytes(amount: &str) -> Option<u64> {
    Some(amount.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The amount in the line `NAME: N kB` of such a file, in bytes.
pub(crate) fn bytes_of(text: &str, name: &str) -> Option<u64> {
    bytes(text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?)
}

/// /proc/PID/stat.
struct Stat {
    text: String,
    /// Where the command name ends, which may hold blanks and parentheses itself.
    name_end: usize,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        let text = read(&format!("/proc/{pid}/stat"))?;
        let name_end = text.rfind(')')? + 1;
        Some(Self { text, name_end })
    }

    /// A field after the command name, from 0: three less than the manual page's number.
    fn field(&self, at: usize) -> Option<&str> {
        self.text[self.name_end..].split_ascii_whitespace().nth(at)
    }

    fn number<T: FromStr>(&self, at: usize) -> Option<T> {
        self.field(at)?.parse().ok()
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    Stat::of(pid)?.number(1)
}

/// Facts of /proc/PID/stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessTimes {
    /// User and system time of the process with its ended threads, in nanoseconds (clock ticks of
    /// usually 10 ms).
    pub(crate) cpu_ns: u64,
    /// As [`start_ticks`].
    pub(crate) start_ticks: u64,
    /// As [`arguments_at`].
    pub(crate) arguments_at: Option<u64>,
}

pub(crate) fn times_of(pid: u32) -> Option<ProcessTimes> {
    let stat = Stat::of(pid)?;
    let ticks = stat.number::<u64>(11)? + stat.number::<u64>(12)?;
    Some(ProcessTimes {
        cpu_ns: ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()),
        start_ticks: stat.number(19)?,
        arguments_at: stat.number(45).filter(|&address| address != 0),
    })
}

pub(crate) fn cpu_ns(pid: u32) -> Option<u64> {
    times_of(pid).map(|times| times.cpu_ns)
}

/// Start time of a process in clock ticks since boot. With the pid it identifies a process for
/// ever.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    Stat::of(pid)?.number(19)
}

/// Whether a process exists and is no zombie.
pub(crate) fn runs(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.field(0).is_some_and(|state| !matches!(state, "Z" | "X")))
}

/// Now, in the unit of [`start_ticks`].
pub(crate) fn ticks_since_boot() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * rustix::param::clock_ticks_per_second()
        + now.tv_nsec as u64 / (1_000_000_000 / rustix::param::clock_ticks_per_second())
}

/// CLOCK_MONOTONIC, as events have it.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The code that ends right before an address of a process; `None` where its memory may not be
/// read.
pub(crate) fn code_before<const LENGTH: usize>(pid: u32, address: u64) -> Option<[u8; LENGTH]> {
    use std::os::unix::fs::FileExt as _;
    let memory = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut code = [0; LENGTH];
    memory.read_exact_at(&mut code, address.checked_sub(LENGTH as u64)?).ok()?;
    Some(code)
}

/// The address range of the main program's code: fields 26 and 27 of /proc/PID/stat. They are zero
/// without the right to trace the process.
pub(crate) fn text_range(pid: u32) -> Option<Range<u64>> {
    let stat = Stat::of(pid)?;
    let range = stat.number(23)?..stat.number(24)?;
    (range.start > 1 && !range.is_empty()).then_some(range)
}

/// The address of a process's arguments (field 48 of /proc/PID/stat). Each exec changes it where
/// addresses are randomised. `None` without the right to trace the process, and for kernel threads.
pub(crate) fn arguments_at(pid: u32) -> Option<u64> {
    Stat::of(pid)?.number(45).filter(|&address| address != 0)
}

/// Whether a process has made no exec since. `None` if that cannot be told.
pub(crate) fn is_still(program: ProgramKey) -> Option<bool> {
    (program.image != 0 && program.image < ProgramKey::MADE_UP)
        .then(|| arguments_at(program.pid) == Some(program.image))
}

/// The command line of a process, in words.
pub(crate) fn arguments(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let Some(line) = line.strip_suffix(&[0]) else { return Vec::new() };
    line.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Where the unified cgroup hierarchy is mounted.
pub(crate) fn cgroup_roots() -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read("/proc/self/mounts")?;
    let root = |line: &str| {
        let mut fields = line.split(' ');
        let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at))
    };
    Ok(String::from_utf8_lossy(&mounts).lines().filter_map(root).collect())
}

/// The memory of a process as /proc/PID/status has it; nothing if it is gone.
pub(crate) fn memory_of(pid: u32) -> CallerMemory {
    let status = read(&format!("/proc/{pid}/status")).unwrap_or_default();
    let bytes = |name| bytes_of(&status, name).unwrap_or(0);
    CallerMemory {
        anon: bytes("RssAnon"),
        file: bytes("RssFile"),
        shmem: bytes("RssShmem"),
        swap: bytes("VmSwap"),
        hugetlb: bytes("HugetlbPages"),
        page_tables: bytes("VmPTE"),
    }
}

/// The page kinds of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct PageKinds {
    /// Anonymous memory, bytes.
    pub anon: u64,
    /// Its part in transparent huge pages, bytes.
    pub anon_huge: u64,
    /// hugetlb pages, bytes.
    pub hugetlb: u64,
}

impl PageKinds {
    /// The part of anonymous memory in huge pages, 0 to 1.
    pub fn huge_share(&self) -> f64 {
        if self.anon == 0 { 0.0 } else { self.anon_huge as f64 / self.anon as f64 }
    }
}

/// Reads smaps_rollup, which walks the page tables under the target's mmap lock: milliseconds per
/// GiB. Ask seldom.
pub(crate) fn page_kinds(pid: u32) -> Option<PageKinds> {
    let rollup = read(&format!("/proc/{pid}/smaps_rollup"))?;
    let bytes = |name| bytes_of(&rollup, name).unwrap_or(0);
    Some(PageKinds {
        anon: bytes("Anonymous"),
        anon_huge: bytes("AnonHugePages"),
        hugetlb: bytes("Private_Hugetlb") + bytes("Shared_Hugetlb"),
    })
}

/// The number of a process's threads.
pub(crate) fn threads_of(pid: u32) -> Option<u64> {
    Stat::of(pid)?.number(17)
}

/// Fails for the number of a thread that is not its process's first. /proc does not list it, and
/// has a directory for it all the same (fs/proc/base.c, `proc_pid_lookup`).
pub(crate) fn no_thread(pid: u32) -> Result<(), ThreadOf> {
    let status = status_of(pid);
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    match group {
        Some(process) if process != pid => {
            Err(ThreadOf { thread: pid, process, name: comm_of(process).unwrap_or_default() })
        }
        _ => Ok(()),
    }
}

/// /proc/PID/status; empty if the process is gone.
pub(crate) fn status_of(pid: u32) -> String {
    read(&format!("/proc/{pid}/status")).unwrap_or_default()
}

/// Whether a process is root's, by the effective user in its [`status_of`].
pub(crate) fn is_roots(status: &str) -> bool {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.and_then(|users| users.split_whitespace().nth(1)) == Some("0")
}

/// Whether a debugger or tracer watches a process, by its [`status_of`].
pub(crate) fn is_traced(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
}

/// A set of signals in a process's [`status_of`], by the word at the beginning of its line.
pub(crate) fn signals(status: &str, word: &str) -> SigSet {
    let set = status.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(':'));
    SigSet(set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0))
}

/// Whether a process has excluded itself from transparent huge pages (THP_enabled of
/// /proc/PID/status, Linux 5.0).
pub(crate) fn refuses_huge_pages(pid: u32) -> bool {
    status_of(pid)
        .lines()
        .any(|line| line.strip_prefix("THP_enabled:").is_some_and(|value| value.trim() == "0"))
}

/// The program of a process. The kernel appends " (deleted)" to the name of a removed file. An
/// upgrade removes the file of a running server.
pub(crate) fn exe_of(pid: u32) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let link = format!("/proc/{pid}/exe");
    let exe = fs::read_link(&link).ok()?.to_string_lossy().into_owned();
    match exe.strip_suffix(" (deleted)") {
        Some(was) if fs::metadata(link).is_ok_and(|file| file.nlink() == 0) => Some(was.to_owned()),
        _ => Some(exe),
    }
}

/// The name of a process's thread leader.
pub(crate) fn comm_of(pid: u32) -> Option<String> {
    let comm = read(&format!("/proc/{pid}/comm"))?;
    Some(comm.strip_suffix('\n').unwrap_or(&comm).to_owned())
}

/// A process's cgroup in the unified hierarchy.
pub(crate) fn cgroup_of(pid: u32) -> Option<String> {
    read(&format!("/proc/{pid}/cgroup"))?.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned))
}

/// The program that a process is now.
pub(crate) fn program_of(pid: u32) -> Option<KnownProgram> {
    Some(KnownProgram {
        comm: comm_of(pid)?,
        exe: exe_of(pid),
        path: None,
        arguments: arguments(pid),
        cgroup: cgroup_of(pid),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_found_with_itself_first() {
        let own = std::process::id();
        assert_eq!(with_descendants(own).first(), Some(&own));
        assert!(cpu_ns(own).is_some());
        assert!(program_of(own).is_some_and(|name| name.exe.is_some()));
    }

    #[test]
    fn a_process_whose_name_is_no_text_is_read_like_any_other() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let pid = child.id();
        // Only the process itself may set its name, so a thread of ours does. A thread's directory
        // has the same files.
        let named = std::thread::spawn(|| {
            // The kernel copies 16 bytes at most, up to the NUL.
            rustix::thread::set_name(c"\xff\xfe) R 1").expect("a name");
            let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            (program_of(thread), parent_of(thread), start_ticks(thread), memory_of(thread))
        });
        let (name, parent, start, memory) = named.join().expect("no panic");
        assert_eq!(name.expect("it is there").comm, "\u{fffd}\u{fffd}) R 1");
        assert!(parent.is_some() && start.is_some() && memory.file > 0);

        assert!(runs(pid));
        child.kill().expect("it is ours");
        while runs(pid) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(program_of(pid).is_some(), "a zombie is still there");
        child.wait().expect("it ended");
        assert!(!runs(pid));
    }

    #[test]
    fn amounts_are_read_by_their_whole_name() {
        let text = "MemTotalX: 3 kB\nMemTotal:  12 kB\nHugePages_Total:       0\n";
        assert_eq!(bytes_of(text, "MemTotal"), Some(12 << 10));
        assert_eq!((bytes_of(text, "HugePages_Total"), bytes_of("", "MemTotal")), (None, None));
    }

    #[test]
    fn a_thread_is_told_from_its_process() {
        let own = std::process::id();
        let tid = || rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let (thread, said) = std::thread::spawn(move || (tid(), no_thread(tid()))).join().expect("no panic");
        let said = said.expect_err("it is a thread");
        assert_eq!((said.thread, said.process), (thread, own));
        let name = comm_of(own).expect("we run");
        assert_eq!(
            said.to_string(),
            format!("{thread} is a thread of process {own} ({name}); give that number")
        );
        assert_eq!((no_thread(own), no_thread(1 << 23)), (Ok(()), Ok(())));
    }

    #[test]
    fn no_process_gives_no_answer() {
        assert_eq!(program_of(1 << 23), None);
        assert_eq!(page_kinds(1 << 23), None);
    }
}
