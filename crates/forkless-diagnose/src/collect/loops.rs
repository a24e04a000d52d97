//! Threads that create processes and also wait in an event loop. Whatever the loop serves stands
//! still meanwhile.
//!
//! What a thread waits for is asked when its child executes and ends, on the kernel side. Whether
//! it is a loop's thread is told by what it waits in at other times: epoll, for at least one
//! socket.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use super::Outcome;
use super::bounded::{TopNames, forget_the_least};
use crate::creation::{Creation, Place, ProgramKey, waits_for_events};
use crate::procfs;

const MAX_THREADS: usize = 4096;
/// Threads that are looked at at one time.
const MAX_LOOKS: usize = 16;
/// A thread that has stood still for less is not looked at, nanoseconds.
const LOOKED_AT_FROM: u64 = 2_000_000;
/// Least time between two looks at the descriptors of one process.
const EVERY: Duration = Duration::from_secs(1);
/// Looks at one thread between its creations, after which it is taken for none of a loop. It is
/// asked at its creations still.
const MAX_LOOKS_BETWEEN: u32 = 1000;
/// Time between two of these looks.
const BETWEEN: Duration = Duration::from_millis(3);
/// Descriptors of a process that are looked at.
const MAX_DESCRIPTORS: usize = 4096;

/// The creations of one thread at one place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocked {
    pub(crate) count: u64,
    /// Time in the creating calls, nanoseconds.
    pub(crate) call_ns: u64,
    /// Creations whose caller waited for the exec, and how long from the call's end on.
    pub(crate) exec_waits: u64,
    pub(crate) exec_ns: u64,
    /// Creations whose caller waited for the child's end, and how long from the exec or the call
    /// on.
    pub(crate) end_waits: u64,
    pub(crate) end_ns: u64,
    /// The rest of all children's lives, waited for or not.
    pub(crate) rest_ns: u64,
    /// Full forks.
    pub(crate) copies: u64,
    /// Anonymous memory of the caller at the last of them, bytes.
    pub(crate) anon: u64,
    pub(crate) programs: TopNames,
    pub(crate) comm: String,
}

impl Blocked {
    /// All time that the thread stood still, nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        self.call_ns + self.exec_ns + self.end_ns
    }

    fn add(&mut self, creation: &Creation) {
        self.count += 1;
        let life = creation.lifetime_ns.unwrap_or(0);
        let until_exec = creation.until_exec_ns.unwrap_or(0);
        // Without fentry the time of a vfork is not known, and its caller waits until the exec.
        let vfork = creation.until_exec_ns.or(creation.lifetime_ns).filter(|_| creation.kind.waits());
        let call = creation.caller_waited_ns.or(creation.copy_ns).or(vfork).unwrap_or(0);
        self.call_ns += call;
        let mut stood = call;
        let waits = creation.caller_waits;
        if waits.is_some_and(|waits| waits.for_exec) && until_exec > stood {
            self.exec_waits += 1;
            self.exec_ns += until_exec - stood;
            stood = until_exec;
        }
        if waits.is_some_and(|waits| waits.for_end) && life > stood {
            self.end_waits += 1;
            self.end_ns += life - stood;
        }
        self.rest_ns += life.saturating_sub(stood);
        if Outcome::of(creation) != Outcome::Shared {
            self.copies += 1;
            self.anon = creation.memory.anon;
        }
        if let Some(path) = &creation.exec_path {
            self.programs.add(path.rsplit('/').next().unwrap_or(path));
        }
        if self.comm.is_empty() {
            self.comm.clone_from(&creation.caller_comm);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.call_ns += other.call_ns;
        self.exec_waits += other.exec_waits;
        self.exec_ns += other.exec_ns;
        self.end_waits += other.end_waits;
        self.end_ns += other.end_ns;
        self.rest_ns += other.rest_ns;
        self.copies += other.copies;
        self.anon = self.anon.max(other.anon);
        self.programs.merge(&other.programs);
        if self.comm.is_empty() {
            self.comm.clone_from(&other.comm);
        }
    }
}

/// A thread that creates processes.
#[derive(Debug, Clone, Default)]
struct Thread {
    places: HashMap<Place, Blocked>,
    ns: u64,
    /// It was seen to wait in epoll.
    waits_in_epoll: bool,
    /// Its process has an epoll that watches a socket.
    serves: bool,
    asked: Option<Instant>,
    looks: u32,
}

/// Places that are kept of one thread.
const MAX_PLACES: usize = 64;

impl Thread {
    fn is_loop(&self) -> bool {
        self.waits_in_epoll && self.serves
    }

    /// Whether looks between its creations may tell.
    fn is_unknown(&self) -> bool {
        !self.is_loop() && self.ns >= LOOKED_AT_FROM && self.looks < MAX_LOOKS_BETWEEN
    }

    /// Asks for what is not known yet, if that was not done a moment ago.
    fn ask(&mut self, program: ProgramKey, tid: u32) {
        // The program that a wrapper script has executed since may have a loop. The script has
        // none.
        if procfs::is_still(program) == Some(false) {
            return;
        }
        let pid = program.pid;
        if !self.waits_in_epoll {
            self.waits_in_epoll = call_of(pid, tid).is_some_and(waits_for_events);
        }
        if self.waits_in_epoll && !self.serves && self.asked.is_none_or(|asked| asked.elapsed() >= EVERY) {
            self.asked = Some(Instant::now());
            self.serves = epoll_has_a_socket(pid);
        }
    }
}

/// All threads that create processes, by program and thread.
#[derive(Debug, Default)]
pub(crate) struct Loops(HashMap<(ProgramKey, u32), Thread>);

impl Loops {
    pub(super) fn created(&mut self, creation: &Creation) {
        // A wrapper script's waits are not those of the loop that it executes.
        let key = (creation.site.program(), creation.caller_thread);
        if self.0.len() >= MAX_THREADS && !self.0.contains_key(&key) {
            forget_the_least(&mut self.0, |thread| thread.ns as f64);
        }
        let thread = self.0.entry(key).or_default();
        if thread.places.len() >= MAX_PLACES && !thread.places.contains_key(&creation.site) {
            forget_the_least(&mut thread.places, |blocked| blocked.ns() as f64);
        }
        let blocked = thread.places.entry(creation.site).or_default();
        let before = blocked.ns();
        blocked.add(creation);
        thread.ns += blocked.ns() - before;
        thread.waits_in_epoll |= creation.caller_waits.is_some_and(|waits| waits.in_epoll);
        if !thread.is_loop() && thread.ns >= LOOKED_AT_FROM {
            thread.ask(key.0, key.1);
        }
    }

    /// Looks at threads of which it is not known whether they are a loop's. To be called often: a
    /// loop that mostly starts programs seldom waits.
    pub(super) fn look(&mut self) {
        let unknown = self.0.iter_mut().filter(|(_, thread)| thread.is_unknown());
        for (&(program, tid), thread) in unknown.take(MAX_LOOKS) {
            thread.looks += 1;
            thread.ask(program, tid);
        }
    }

    /// How soon to look again. Events come when children end, and just then no loop waits.
    pub(super) fn look_again(&self) -> Option<Duration> {
        self.0.values().any(Thread::is_unknown).then_some(BETWEEN)
    }

    /// The creations of loops' threads.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Place, &Blocked)> {
        self.0.values().filter(|thread| thread.is_loop()).flat_map(|thread| &thread.places)
    }
}

/// The number of the system call that a thread waits in.
fn call_of(pid: u32, tid: u32) -> Option<i64> {
    procfs::read(&format!("/proc/{pid}/task/{tid}/syscall"))?.split_whitespace().next()?.parse().ok()
}

/// Whether an epoll of the process watches a socket that others can reach. A script that only runs
/// its own children has pipes, events and socket pairs there, and so has a loop that wakes itself.
fn epoll_has_a_socket(pid: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let link = |number: &str| fs::read_link(format!("/proc/{pid}/fd/{number}")).ok();
    let is_epoll =
        |number: &str| link(number).is_some_and(|link| link.as_os_str() == "anon_inode:[eventpoll]");
    let socket = |number: &str| {
        let link = link(number)?.into_os_string().into_string().ok()?;
        Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    let watched: HashSet<String> = descriptors
        .take(MAX_DESCRIPTORS)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|number| is_epoll(number))
        .filter_map(|number| procfs::read(&format!("/proc/{pid}/fdinfo/{number}")))
        .flat_map(|info| watched_by(&info).take(MAX_DESCRIPTORS).filter_map(socket).collect::<Vec<_>>())
        .collect();
    !watched.is_empty()
        && ["tcp", "tcp6", "unix", "udp", "udp6"].iter().any(|family| {
            procfs::read(&format!("/proc/{pid}/net/{family}")).is_some_and(|table| {
                reachable(&table, *family == "unix").any(|inode| watched.contains(inode))
            })
        })
}

/// The inodes of a table of sockets (proc_pid_net(5)). Of UNIX sockets those that have a name.
fn reachable(table: &str, unix: bool) -> impl Iterator<Item = &str> {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_whitespace();
        let inode = fields.nth(if unix { 6 } else { 9 });
        inode.filter(|_| !unix || fields.next().is_some())
    })
}

/// The descriptors that an epoll watches, from its fdinfo (proc(5)).
fn watched_by(info: &str) -> impl Iterator<Item = &str> {
    info.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::creation::{CallerWaits, CloneFlags};

    fn creation(caller_waits: CallerWaits) -> Creation {
        let flags = CloneFlags(0);
        Creation {
            caller: 1 << 23,
            caller_thread: 1 << 23,
            flags,
            kind: flags.kind(),
            copy_ns: Some(2_000_000),
            until_exec_ns: Some(5_000_000),
            lifetime_ns: Some(9_000_000),
            execs: 1,
            caller_waits: Some(caller_waits),
            ..Creation::unseen()
        }
    }

    #[test]
    fn sockets_that_others_can_reach_are_told() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 35177 1 0 100 0\n";
        assert_eq!(reachable(tcp, false).collect::<Vec<_>>(), ["35177"]);
        let unix = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000003 00000000 00000000 0001 03 777\n0: 00000003 00000000 00000000 0001 03 778 /run/a\n";
        assert_eq!(reachable(unix, true).collect::<Vec<_>>(), ["778"]);
    }

    #[test]
    fn time_is_counted_once_and_only_what_was_waited_for() {
        let of = |waits| {
            let mut blocked = Blocked::default();
            blocked.add(&creation(waits));
            (blocked.call_ns / 1_000_000, blocked.exec_ns / 1_000_000, blocked.end_ns / 1_000_000)
        };
        let none = CallerWaits::default();
        assert_eq!(of(none), (2, 0, 0));
        assert_eq!(of(CallerWaits { for_exec: true, ..none }), (2, 3, 0));
        assert_eq!(of(CallerWaits { for_end: true, ..none }), (2, 0, 7));
        assert_eq!(of(CallerWaits { for_exec: true, for_end: true, ..none }), (2, 3, 4));
    }

    #[test]
    fn a_vfork_whose_time_is_not_known_waits_until_the_exec() {
        let flags = CloneFlags(0x4100);
        let vfork = Creation { flags, kind: flags.kind(), copy_ns: None, ..creation(CallerWaits::default()) };
        let mut blocked = Blocked::default();
        blocked.add(&vfork);
        assert_eq!((blocked.call_ns, blocked.ns(), blocked.copies), (5_000_000, 5_000_000, 0));
    }

    #[test]
    fn an_epoll_with_a_socket_is_told_from_one_without() {
        use rustix::event::epoll;
        let loops = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let watch = |fd: &rustix::fd::OwnedFd| {
            epoll::add(&loops, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .expect("it is watched");
        };
        watch(&reader);
        // Other tests of this process have no epoll.
        assert!(!epoll_has_a_socket(std::process::id()));
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        watch(&ours.into());
        // The descriptor is closed by now, and an epoll forgets it with the last one.
        let (kept, _theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let kept: rustix::fd::OwnedFd = kept.into();
        watch(&kept);
        // Nobody else can reach a pair.
        assert!(!epoll_has_a_socket(std::process::id()));
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let server: rustix::fd::OwnedFd = server.into();
        watch(&server);
        assert!(epoll_has_a_socket(std::process::id()));
        let info = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data: 5\n";
        assert_eq!(watched_by(info).collect::<Vec<_>>(), ["5"]);
    }

    #[test]
    fn threads_are_bounded_and_those_that_stand_still_longest_stay() {
        let mut loops = Loops::default();
        for pid in 0..10_000 {
            let copy_ns = Some(if pid == 0 { 1_000_000_000 } else { 1 });
            let site = Place { pid: (1 << 23) + pid, nr: 56, ip: 1, word: 0, image: 0 };
            let creation = Creation { site, copy_ns, ..creation(CallerWaits::default()) };
            loops.created(&creation);
        }
        assert!(loops.0.len() <= MAX_THREADS);
        assert!(loops.0.keys().any(|(program, _)| program.pid == 1 << 23));
        assert_eq!(loops.iter().count(), 0, "nobody was seen in epoll");
    }
}
