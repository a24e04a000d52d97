//! Creations that the kernel refuses with EAGAIN or ENOMEM, and the limit that was reached. The
//! limits of the user and of cgroups come from the kernel side, as they were at the call. The
//! others are read from /proc when its record arrives.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::creation::Place;
use crate::procfs;
use crate::ring::{self, RawRefusalKey, RawRefused};

/// A creation that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCreation {
    pub(crate) key: RefusalKey,
    pub(crate) thread: u32,
    /// The thread's name.
    pub(crate) comm: String,
    /// The caller's cgroup, its inode number in the unified hierarchy.
    pub(crate) cgroup: u64,
    pub(crate) limit: ReachedLimit,
    /// Anonymous memory of the caller, bytes; 0 where it was gone.
    pub(crate) anon: u64,
}

/// What refusals are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RefusalKey {
    pub(crate) place: Place,
    pub(crate) errno: i32,
    pub(crate) is_thread: bool,
    /// Nothing is copied for it: a thread, vfork, posix_spawn.
    pub(crate) shares_memory: bool,
}

impl RefusalKey {
    pub(crate) fn from_raw(raw: &RawRefusalKey) -> Self {
        Self {
            place: Place::from_raw(&raw.place),
            errno: raw.error.cast_signed(),
            is_thread: raw.is_thread != 0,
            shares_memory: raw.shares_memory != 0,
        }
    }
}

/// The limit behind a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ReachedLimit {
    /// `RLIMIT_NPROC`: processes and threads of a user.
    User {
        uid: u32,
        limit: u64,
    },
    /// `pids.max` of a cgroup, by its inode. The directory is unknown where the hierarchy cannot be
    /// read, and where the cgroup is gone.
    Cgroup {
        inode: u64,
        directory: Option<PathBuf>,
        limit: u64,
    },
    /// `kernel.threads-max`.
    Threads {
        limit: u64,
    },
    /// `kernel.pid_max`: no number is free.
    Numbers {
        limit: u64,
    },
    /// The first process of the pid namespace that the children belong to has ended.
    NamespaceEnded,
    /// `vm.overcommit_memory` 2: a copy of the memory could not be promised. Bytes.
    Promised {
        wanted: u64,
        limit: u64,
    },
    /// `vm.overcommit_memory` 0: no mapping may be larger than memory and swap together. Bytes.
    Memory {
        wanted: u64,
        limit: u64,
    },
    Unknown,
}

impl ReachedLimit {
    /// Whether the kernel looks at this limit only after it has copied the caller's memory
    /// (`copy_process()` in kernel/fork.c).
    pub(crate) fn is_behind_the_copy(&self) -> bool {
        matches!(self, Self::Cgroup { .. } | Self::Numbers { .. } | Self::NamespaceEnded)
    }

    fn of(raw: &RawRefused) -> Self {
        let errno = raw.key.error.cast_signed();
        if errno == libc::EAGAIN { Self::of_numbers(raw) } else { Self::of_memory(raw) }
    }

    /// In the order in which the kernel asks.
    fn of_numbers(raw: &RawRefused) -> Self {
        const MAY_EXCEED: u64 = 1 << 21 | 1 << 24; // CAP_SYS_ADMIN, CAP_SYS_RESOURCE
        let may_exceed = raw.uid == 0 || raw.capabilities & MAY_EXCEED != 0;
        let count = match raw.user_count {
            u64::MAX => threads_of_user(raw.uid),
            count => count,
        };
        if !may_exceed && count >= raw.user_limit {
            return Self::User { uid: raw.uid, limit: raw.user_limit };
        }
        if raw.pids_limit > 0 {
            return Self::Cgroup {
                inode: raw.pids_cgroup,
                directory: pids_directory(raw.key.place.tgid, raw.pids_cgroup),
                limit: raw.pids_limit,
            };
        }
        // Some threads may have ended meanwhile.
        let is_near = |limit: u64| threads_now().is_some_and(|count| count + count / 50 >= limit);
        let setting = |name: &str| number(&format!("/proc/sys/kernel/{name}"));
        if let Some(limit) = setting("threads-max").filter(|limit| is_near(*limit)) {
            return Self::Threads { limit };
        }
        match setting("pid_max").filter(|limit| is_near(*limit)) {
            Some(limit) => Self::Numbers { limit },
            None => Self::Unknown,
        }
    }

    fn of_memory(raw: &RawRefused) -> Self {
        if raw.no_init != 0 {
            return Self::NamespaceEnded;
        }
        let meminfo = procfs::read("/proc/meminfo").unwrap_or_default();
        let bytes = |name| procfs::bytes_of(&meminfo, name).unwrap_or(0);
        let wanted = raw.data_pages.saturating_mul(rustix::param::page_size() as u64);
        match number("/proc/sys/vm/overcommit_memory") {
            Some(2) => {
                let (promised, limit) = (bytes("Committed_AS"), bytes("CommitLimit"));
                if promised.saturating_add(wanted) >= limit {
                    Self::Promised { wanted, limit }
                } else {
                    Self::Unknown
                }
            }
            Some(0) => {
                let limit = bytes("MemTotal") + bytes("SwapTotal");
                if wanted > limit { Self::Memory { wanted, limit } } else { Self::Unknown }
            }
            _ => Self::Unknown,
        }
    }
}

impl RefusedCreation {
    pub(crate) fn from_raw(raw: &RawRefused) -> Self {
        Self {
            key: RefusalKey::from_raw(&raw.key),
            thread: raw.tid,
            comm: ring::text(&raw.comm),
            cgroup: raw.cgroup,
            limit: ReachedLimit::of(raw),
            anon: procfs::memory_of(raw.key.place.tgid).anon,
        }
    }
}

fn number(path: &str) -> Option<u64> {
    procfs::read(path)?.trim().parse().ok()
}

/// Threads on the machine, the fourth field of /proc/loadavg.
fn threads_now() -> Option<u64> {
    let loads = procfs::read("/proc/loadavg")?;
    loads.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// Threads of the processes of a real user.
fn threads_of_user(uid: u32) -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_entry = |name: &str| -> Option<u64> {
        name.parse::<u32>().ok()?;
        let status = procfs::read(&format!("/proc/{name}/status"))?;
        let field = |field: &str| {
            status.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok())
        };
        if field("Uid:")? == u64::from(uid) { field("Threads:") } else { None }
    };
    entries.filter_map(|entry| of_entry(entry.file_name().to_str()?)).sum()
}

/// The directory of a cgroup that counts processes, by its inode: in the unified hierarchy, or in
/// that of the controller alone. It is one that process `pid` is in or below; where that has ended,
/// the hierarchies are walked.
fn pids_directory(pid: u32, inode: u64) -> Option<PathBuf> {
    let is_it = |directory: &Path| {
        fs::metadata(directory).is_ok_and(|found| found.ino() == inode) && directory.join("pids.max").exists()
    };
    let roots = pids_roots();
    let own = procfs::read(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
    // "0::/a/b" or "4:pids:/a/b" (cgroups(7)).
    for path in own.lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
        for root in &roots {
            let innermost = root.join(path.trim_start_matches('/'));
            let mut upwards = innermost.ancestors().take_while(|directory| directory.starts_with(root));
            if let Some(found) = upwards.find(|directory| is_it(directory)) {
                return Some(found.to_owned());
            }
        }
    }
    walk_to(roots, is_it)
}

/// The first directory at or below `next` that is the one looked for.
fn walk_to(mut next: Vec<PathBuf>, is_it: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    /// Larger hierarchies are not walked to their end.
    const MAX_DIRECTORIES: usize = 16_384;
    let mut seen = 0;
    while let Some(directory) = next.pop() {
        seen += 1;
        if seen > MAX_DIRECTORIES {
            return None;
        }
        if is_it(&directory) {
            return Some(directory);
        }
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        next.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    None
}

fn pids_roots() -> Vec<PathBuf> {
    let mounts = procfs::read("/proc/self/mounts").unwrap_or_default();
    let root = |line: &str| {
        let mut fields = line.split(' ');
        let (_, at, kind, options) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let counts = kind == "cgroup2" || kind == "cgroup" && options.split(',').any(|word| word == "pids");
        counts.then(|| Path::new(at).to_owned())
    };
    mounts.lines().filter_map(root).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::RawPlace;

    fn raw(error: i32) -> RawRefused {
        RawRefused {
            kind: 0,
            uid: 1000,
            key: RawRefusalKey {
                // Above pid_max: nothing in /proc answers for it.
                place: RawPlace { ip: 0, word: 0, image: 0, tgid: 1 << 23, nr: 56 },
                error: error.cast_unsigned(),
                is_thread: 0,
                shares_memory: 0,
            },
            capabilities: 0,
            user_limit: 10,
            user_count: 3,
            pids_limit: 0,
            pids_cgroup: 0,
            data_pages: 0,
            cgroup: 0,
            no_init: 0,
            tid: 0,
            comm: [0; 16],
        }
    }

    #[test]
    fn the_first_limit_that_the_kernel_asks_for_is_named() {
        let full = RawRefused { pids_limit: 4, pids_cgroup: u64::MAX, ..raw(libc::EAGAIN) };
        let cgroup = ReachedLimit::Cgroup { inode: u64::MAX, directory: None, limit: 4 };
        assert_eq!(ReachedLimit::of(&full), cgroup);
        let user = RawRefused { user_count: 10, ..full };
        assert_eq!(ReachedLimit::of(&user), ReachedLimit::User { uid: 1000, limit: 10 });
        // The kernel lets these exceed it.
        assert_eq!(ReachedLimit::of(&RawRefused { capabilities: 1 << 24, ..user }), cgroup);
        assert_eq!(ReachedLimit::of(&RawRefused { uid: 0, ..user }), cgroup);
        assert!(cgroup.is_behind_the_copy());
        // Where the kernel does not tell the count, /proc does. Nobody is this user.
        let uncounted = RawRefused { user_count: u64::MAX, uid: 3_999_999_999, user_limit: 0, ..user };
        assert_eq!(ReachedLimit::of(&uncounted), ReachedLimit::User { uid: 3_999_999_999, limit: 0 });
    }

    #[test]
    fn a_refusal_for_want_of_memory_is_none_of_numbers() {
        let full = RawRefused { user_count: 10, pids_limit: 4, no_init: 1, ..raw(libc::ENOMEM) };
        assert_eq!(ReachedLimit::of(&full), ReachedLimit::NamespaceEnded);
        let little = RawRefused { no_init: 0, ..full };
        let much = RawRefused { data_pages: 1 << 40, ..little };
        // vm.overcommit_memory decides, and is this machine's.
        let limits = (ReachedLimit::of(&little), ReachedLimit::of(&much));
        let known = matches!(limits.1, ReachedLimit::Memory { .. } | ReachedLimit::Promised { .. });
        assert!(known || limits == (ReachedLimit::Unknown, ReachedLimit::Unknown), "{limits:?}");
    }

    #[test]
    fn facts_of_proc_are_read() {
        assert!(threads_now().is_some_and(|count| count > 0));
        // The root has no limit.
        let roots = pids_roots();
        if let Some(root) = roots.first() {
            let inode = fs::metadata(root).expect("it is mounted").ino();
            assert_eq!(pids_directory(std::process::id(), inode), None);
        }
        // Any process is in a directory that the walk finds as well.
        let counts = |directory: &Path| directory.join("pids.max").exists();
        if let Some(directory) = walk_to(roots, counts) {
            let inode = fs::metadata(&directory).expect("it is there").ino();
            assert_eq!(pids_directory(1 << 23, inode).as_ref(), Some(&directory));
            let members = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            if let Some(member) = members.lines().next().and_then(|pid| pid.parse().ok()) {
                assert_eq!(pids_directory(member, inode), Some(directory));
            }
        }
    }
}
