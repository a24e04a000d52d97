//! Threads that wait in an event loop and also create processes. While they do, whatever the loop
//! serves stands still.
//!
//! When a child executes and when it ends, the kernel side notes the system call in which its
//! creator waits. A loop's thread waits in epoll at other times, for at least one socket that
//! others can reach. /proc tells that, at the creations and a few times between them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::time::{Duration, Instant};

use forkless_frames::ThreadCall;

use super::Outcome;
use super::bounded::{TopNames, forget_the_least};
use super::lines::{Ended, Read};
use super::stood::Stood;
use super::walk::Walk;
use crate::creation::{Creation, Place, ProgramKey, waits_for_events};
use crate::file_name::file_name;
use crate::procfs;
use crate::stack::Frame;

const MAX_THREADS: usize = 4096;
/// Threads looked at in one round between creations. A look takes some 30 us, of the 3 ms between
/// two rounds.
const MAX_LOOKS: usize = 4;
/// A thread that has stood still for less is not looked at, nanoseconds.
const LOOKED_AT_FROM: u64 = 2_000_000;
/// Least time between two looks at the descriptors of one process.
const EVERY: Duration = Duration::from_secs(1);
/// After so many looks between its creations a thread counts as none of a loop's. It is still
/// looked at when it creates a process.
const MAX_LOOKS_BETWEEN: u32 = 1000;
/// Time between two rounds of looks.
const BETWEEN: Duration = Duration::from_millis(3);
/// Descriptors of a process that are looked at.
const MAX_DESCRIPTORS: usize = 4096;

/// Lines that are kept of one place.
const MAX_LINES: usize = 8;

/// The creations of one place whose caller was read at the same lines.
#[derive(Debug, Clone)]
pub(crate) struct ReadLine {
    pub(crate) frames: Vec<Frame>,
    /// Whether the caller waited for the child's end.
    pub(crate) for_end: bool,
    pub(crate) count: u64,
    /// How long it stood still for them.
    pub(crate) ns: u64,
    /// Waits for the end that only the lines tell, and how long they took.
    pub(crate) told_waits: u64,
    pub(crate) told_ns: u64,
    pub(crate) programs: TopNames,
}

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
    /// Of those that were read.
    pub(crate) read: Vec<ReadLine>,
}

impl Blocked {
    pub(crate) fn add_line(&mut self, line: ReadLine) {
        let same = |known: &&mut ReadLine| (known.for_end, &known.frames) == (line.for_end, &line.frames);
        if let Some(known) = self.read.iter_mut().find(same) {
            known.count += line.count;
            known.ns += line.ns;
            known.told_waits += line.told_waits;
            known.told_ns += line.told_ns;
            known.programs.merge(&line.programs);
        } else if self.read.len() < MAX_LINES {
            self.read.push(line);
        }
    }

    fn read(&mut self, ended: &Ended, read: &Read) {
        let stood = ended.stood;
        let told = read.in_own_loop && stood.end.is_none();
        let told_ns = if told { stood.rest } else { 0 };
        let mut programs = TopNames::default();
        ended.origin.started.iter().for_each(|name| programs.add(name));
        self.add_line(ReadLine {
            frames: read.frames.clone(),
            for_end: read.in_own_loop || stood.end.is_some(),
            count: 1,
            ns: stood.ns() + told_ns,
            told_waits: u64::from(told),
            told_ns,
            programs,
        });
    }

    /// Counts the waits for the end that only lines tell.
    pub(crate) fn count_told_waits(&mut self) {
        self.end_waits += self.read.iter().map(|line| line.told_waits).sum::<u64>();
        self.end_ns += self.read.iter().map(|line| line.told_ns).sum::<u64>();
    }

    /// The lines at which the thread stood still longest; with `for_end`, while it waited for a
    /// child's end or, if any did, while it did not. Frames with a line come first, as everywhere.
    pub(crate) fn line(&self, for_end: Option<bool>) -> Option<&ReadLine> {
        let has_line = |line: &ReadLine| line.frames.first().is_some_and(|frame| frame.line.is_some());
        let is_wanted = |line: &ReadLine| for_end.is_none_or(|for_end| line.for_end == for_end);
        let longest = |fitting: &dyn Fn(&ReadLine) -> bool| {
            let fitting = self.read.iter().filter(|line| fitting(line));
            fitting.max_by_key(|line| (has_line(line), line.ns, line.count))
        };
        longest(&is_wanted).or_else(|| longest(&|_| for_end == Some(false)))
    }

    /// All time that the thread stood still, nanoseconds.
    pub(crate) fn ns(&self) -> u64 {
        self.call_ns + self.exec_ns + self.end_ns
    }

    fn add(&mut self, creation: &Creation) {
        self.count += 1;
        let Stood { call, exec, end, rest } = Stood::of(creation);
        self.call_ns += call;
        self.exec_waits += u64::from(exec.is_some());
        self.exec_ns += exec.unwrap_or(0);
        self.end_waits += u64::from(end.is_some());
        self.end_ns += end.unwrap_or(0);
        self.rest_ns += rest;
        if Outcome::of(creation) != Outcome::Shared {
            self.copies += 1;
            self.anon = creation.memory.anon;
        }
        if let Some(path) = &creation.exec_path {
            self.programs.add(file_name(path));
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
        other.read.iter().for_each(|line| self.add_line(line.clone()));
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
    /// It was seen to wait in epoll, or in a function that does nothing but run an event loop.
    waits_in_epoll: bool,
    /// Its process has an epoll that watches a socket.
    serves: bool,
    asked: Option<Instant>,
    /// When /proc was last asked at a creation of its.
    looked_at: Option<Instant>,
    /// Looks between its creations.
    looks: u32,
    /// It is among those that are looked at in turns.
    queued: bool,
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

    /// Whether a creation of its has /proc asked. A look takes the watcher some 20 us, and a script
    /// makes thousands of creations a second.
    fn is_due_at_creation(&mut self) -> bool {
        const BETWEEN: Duration = Duration::from_millis(20);
        let is_due = self.looked_at.is_none_or(|looked_at| looked_at.elapsed() >= BETWEEN);
        if is_due {
            self.looked_at = Some(Instant::now());
        }
        is_due
    }

    /// Asks /proc for what is not known yet. `descriptors` says when it may be asked for sockets:
    /// on some machines their tables have a hundred thousand lines.
    fn ask(&mut self, program: ProgramKey, tid: u32, descriptors: &mut Walk) {
        /// Of so many looks at a thread that does not wait for events one asks for its program.
        const CHECKED: u32 = 16;
        let pid = program.pid;
        let waits = self.waits_in_epoll
            || match ThreadCall::of(pid, tid) {
                Ok(call) => call.is_some_and(|call| waits_for_events(call.number)),
                Err(_) => return self.give_up(),
            };
        // The program that a wrapper script has executed since may have a loop. The script has
        // none. Without a wait that only ends the looks, and is asked now and then.
        if (waits || self.looks % CHECKED == 1) && procfs::is_still(program) == Some(false) {
            return self.give_up();
        }
        self.waits_in_epoll = waits;
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= EVERY) && descriptors.is_due();
        if self.waits_in_epoll && !self.serves && is_due {
            self.asked = Some(Instant::now());
            descriptors.began();
            self.serves = epoll_has_a_socket(pid);
            descriptors.ended();
        }
    }

    /// The program has ended, or does not let itself be looked at: further looks tell nothing.
    fn give_up(&mut self) {
        self.looks = MAX_LOOKS_BETWEEN;
    }
}

/// All threads that create processes, by program and thread.
#[derive(Debug, Default)]
pub(crate) struct Loops {
    threads: HashMap<(ProgramKey, u32), Thread>,
    /// Those of which it is not known yet whether they are a loop's. They are looked at in turns.
    unknown: VecDeque<(ProgramKey, u32)>,
    /// When the last round of looks was.
    looked: Option<Instant>,
    descriptors: Walk,
}

impl Loops {
    pub(super) fn created(&mut self, creation: &Creation) {
        // A wrapper script's waits are not those of the loop that it executes.
        let key = (creation.place.program(), creation.caller_thread);
        let Self { threads, unknown, descriptors, .. } = self;
        if threads.len() >= MAX_THREADS && !threads.contains_key(&key) {
            forget_the_least(threads, |thread| thread.ns as f64);
        }
        let thread = threads.entry(key).or_default();
        if thread.places.len() >= MAX_PLACES && !thread.places.contains_key(&creation.place) {
            forget_the_least(&mut thread.places, |blocked| blocked.ns() as f64);
        }
        let blocked = thread.places.entry(creation.place).or_default();
        let before = blocked.ns();
        blocked.add(creation);
        thread.ns += blocked.ns() - before;
        thread.waits_in_epoll |= creation.caller_waits.is_some_and(|waits| waits.in_epoll);
        if !thread.is_loop() && thread.ns >= LOOKED_AT_FROM && thread.is_due_at_creation() {
            thread.ask(key.0, key.1, descriptors);
        }
        // Forgotten threads stay in the queue until their turn.
        if thread.is_unknown() && !thread.queued && unknown.len() < MAX_THREADS {
            thread.queued = true;
            unknown.push_back(key);
        }
    }

    /// Takes over the lines of a creation.
    pub(super) fn read(&mut self, ended: &Ended, read: &Read) {
        let place = ended.origin.place;
        let Some(thread) = self.threads.get_mut(&(place.program(), ended.thread)) else { return };
        thread.waits_in_epoll |= read.in_event_loop;
        if let Some(blocked) = thread.places.get_mut(&place) {
            blocked.read(ended, read);
        }
    }

    /// Looks at the next threads of which it is not known whether they are a loop's. To be called
    /// often: a loop that mostly starts programs seldom waits. Beside many creations it is called
    /// after each, and has a round only if the last one was a while ago.
    pub(super) fn look(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < BETWEEN) {
            return;
        }
        self.looked = Some(now).filter(|_| !self.unknown.is_empty());
        for _ in 0..self.unknown.len().min(MAX_LOOKS) {
            let Some(key) = self.unknown.pop_front() else { return };
            let Some(thread) = self.threads.get_mut(&key) else { continue };
            thread.looks += 1;
            thread.ask(key.0, key.1, &mut self.descriptors);
            thread.queued = thread.is_unknown();
            if thread.queued {
                self.unknown.push_back(key);
            }
        }
    }

    /// How soon to look again. Events come when children end, and just then no loop waits.
    pub(super) fn look_again(&self) -> Option<Duration> {
        (!self.unknown.is_empty()).then_some(BETWEEN)
    }

    /// The creations at a place, of a loop's thread or not.
    #[cfg(test)]
    pub(super) fn all_at(&self, place: &Place) -> Option<&Blocked> {
        self.threads.values().find_map(|thread| thread.places.get(place))
    }

    /// The creations of loops' threads.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Place, &Blocked)> {
        self.threads.values().filter(|thread| thread.is_loop()).flat_map(|thread| &thread.places)
    }
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
            let place = Place { pid: (1 << 23) + pid, nr: 56, ip: 1, word: 0, image: 0 };
            let creation = Creation { place, copy_ns, ..creation(CallerWaits::default()) };
            loops.created(&creation);
        }
        assert!(loops.threads.len() <= MAX_THREADS);
        assert!(loops.threads.keys().any(|(program, _)| program.pid == 1 << 23));
        assert_eq!(loops.iter().count(), 0, "nobody was seen in epoll");
    }

    /// Regression: each round went through all threads, and looked a thousand times at each that
    /// had ended.
    #[test]
    fn looks_are_few_and_in_turns_and_end_with_their_thread() {
        let mut loops = Loops::default();
        let mut create = |pid: u32, tid: u32| {
            let place = Place { pid, nr: 56, ip: 1, word: 0, image: 0 };
            let waits = creation(CallerWaits::default());
            loops.created(&Creation { place, caller_thread: tid, ..waits });
        };
        // Threads that have ended, and this one, which runs.
        (0..100).for_each(|pid| create((1 << 23) + pid, (1 << 23) + pid));
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        create(std::process::id(), tid);
        assert_eq!(loops.unknown.len(), 1, "one has not ended");
        assert!(loops.look_again().is_some());
        let now = Instant::now();
        for round in 0..MAX_LOOKS_BETWEEN {
            loops.look(now + round * BETWEEN);
        }
        assert_eq!((loops.unknown.len(), loops.look_again()), (0, None), "it is no loop's");
    }

    #[test]
    fn of_many_threads_each_has_its_turn() {
        let mut loops = Loops::default();
        let pid = std::process::id();
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        // The same thread under other programs' keys: the tier cannot tell them apart.
        for image in 0..3 * MAX_LOOKS as u64 {
            let program = ProgramKey { pid, image: ProgramKey::MADE_UP + image };
            loops
                .threads
                .insert((program, tid), Thread { ns: LOOKED_AT_FROM, queued: true, ..Thread::default() });
            loops.unknown.push_back((program, tid));
        }
        let looks = |loops: &Loops| {
            let all = loops.threads.values().map(|thread| thread.looks);
            all.fold((u32::MAX, 0), |(least, most), looks| (least.min(looks), most.max(looks)))
        };
        let now = Instant::now();
        loops.look(now);
        // After a creation, soon after the round before.
        loops.look(now + BETWEEN / 2);
        assert_eq!(looks(&loops), (0, 1));
        loops.look(now + BETWEEN);
        loops.look(now + 2 * BETWEEN);
        assert_eq!(looks(&loops), (1, 1), "three rounds for three times as many threads");
    }
}
