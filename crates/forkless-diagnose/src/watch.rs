//! Loads the BPF programs, hands out their records, and takes everything out of the kernel again
//! when dropped.
//!
//! Nothing is pinned: programs, links and maps live by this process's descriptors, so that even
//! SIGKILL leaves nothing behind.

use std::cell::Cell;
use std::os::fd::AsFd as _;
use std::process::Child;
use std::time::Duration;

use aya::maps::{HashMap as BpfHashMap, Map, MapData, PerCpuArray, PerCpuHashMap, RingBuf};
use aya::{Btf, Ebpf, EbpfLoader};
use forkless_frames::Next;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::command::Started;
use crate::creation::{Creation, ProgramKey};
use crate::error::WatchError;
use crate::event::{
    BlockReads, CallCount, CreatingThread, ErodedPages, Event, RefusalCount, SeenProgram, StackTop,
    ThreadLook, Totals,
};
use crate::load::{self, OBJECT, Timing, in_first_pid_namespace, load_error, map_error, missing_map};
use crate::refusal::{RefusalKey, RefusedCreation};
use crate::ring::{
    NOT_THERE, RawAfterFork, RawBlockReads, RawCall, RawCallKey, RawCreation, RawEroded, RawErosionKey,
    RawLook, RawRefusalKey, RawRefusals, RawReturnAt, RawReturnKey, RawTotals, RingItem,
};
use crate::stack::ReturnAt;
use crate::target::{ResolvedTarget, WatchTarget, WatchedCommand};
use crate::tier::Tier;
use crate::{answering, map_batch};

/// The processes to watch, and how closely.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// The processes.
    pub target: WatchTarget,
    /// Count system calls, too, and find what is wrong with them. Costs every system call of the
    /// machine some 110 nanoseconds.
    pub system_calls: bool,
    /// Time every creation from its system call to the caller's return. Without fentry this costs
    /// every system call of the machine some 100 nanoseconds. If `false`, a full fork is timed from
    /// the copy of its memory on, at no cost, and a vfork's waiting time is not known.
    pub exact_times: bool,
    /// Count write-protect faults from the start. This costs every page fault and page allocation
    /// of the machine some 60 nanoseconds. If `false`, a [`Diagnosis`](crate::Diagnosis) begins to
    /// count at the first full fork of much memory.
    pub faults: bool,
    /// Use this tier and no other; `None` takes the best that works.
    pub tier: Option<Tier>,
    /// Call stacks a second and CPU, at most: so many of creations, as many of pages that children
    /// make private, and as many of other system calls.
    pub stacks_per_second: u32,
}

impl WatchOptions {
    /// Everything on but the exact times, 64 stacks a second and CPU.
    pub fn new(target: WatchTarget) -> Self {
        Self {
            target,
            system_calls: true,
            exact_times: false,
            faults: true,
            tier: None,
            stacks_per_second: 64,
        }
    }
}

/// A running watch. Dropping it detaches and unloads all BPF programs. A command that it started
/// runs on.
pub struct Watch {
    // Programs and links live in here.
    bpf: Ebpf,
    ring: RingBuf<MapData>,
    tier: Tier,
    command: Option<Started>,
    tracks_copies: bool,
    /// Whether threads that wait behind a fork can be seen.
    sees_stalls: bool,
    /// Whether it is seen what a creation's caller waits for.
    sees_parents: bool,
    counts_calls: bool,
    /// Whether to read maps in batches. `false` once the kernel has refused it.
    batches: Cell<bool>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("tier", &self.tier)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

impl Watch {
    /// Loads and attaches, then starts the command if the target is one.
    ///
    /// # Errors
    /// [`WatchError`]: the target is not there, BPF is not permitted or a program is refused.
    pub fn start(options: &WatchOptions) -> Result<Self, WatchError> {
        let target = options.target.resolve()?;
        in_first_pid_namespace()?;
        let btf = load::kernel_types()?;
        let tier = match options.tier {
            Some(tier @ (Tier::BpfFentry | Tier::BpfTracepoints)) => tier,
            Some(Tier::Perf | Tier::Procfs) => return Err(WatchError::TierTooWeak),
            None if load::try_fentry(&btf).is_ok() => Tier::BpfFentry,
            None => Tier::BpfTracepoints,
        };
        match Self::start_in(options, &target, &btf, tier, true) {
            // It may be that alone which this kernel's verifier refuses.
            Err(WatchError::Program { .. }) => Self::start_in(options, &target, &btf, tier, false),
            started => started,
        }
    }

    fn start_in(
        options: &WatchOptions,
        target: &ResolvedTarget,
        btf: &Btf,
        tier: Tier,
        sees_parents: bool,
    ) -> Result<Self, WatchError> {
        let own = std::process::id();
        let (all, calls) = (u32::from(target.all), u32::from(options.system_calls));
        let (cgroup, level) = target.cgroup.unwrap_or((0, 0));
        let timing = match tier {
            Tier::BpfFentry => Timing::Fentry,
            Tier::BpfTracepoints | Tier::Perf | Tier::Procfs => Timing::without_fentry(options.exact_times),
        };
        let timing_number = timing as u32;
        let answering = answering_calls();
        let parents = u32::from(sees_parents);
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(btf))
            .override_global("own_tgid", &own, true)
            .override_global("watch_all", &all, true)
            .override_global("watch_cgroup", &cgroup, true)
            .override_global("watch_level", &level, true)
            .override_global("want_calls", &calls, true)
            .override_global("timing", &timing_number, true)
            .override_global("sees_parents", &parents, true)
            .override_global("answering", &answering[..], true)
            .override_global("stacks_per_second", &options.stacks_per_second, true);
        if !options.system_calls {
            loader.map_max_entries("calls", 1);
        }
        let mut bpf = loader.load(OBJECT).map_err(load_error)?;

        // Fill the watched set before the programs run: the first event must find it.
        let mut watched = open_watched(&mut bpf)?;
        for pid in &target.pids {
            watched.insert(pid, 1, 0).map_err(map_error("watched"))?;
        }
        load::start(&mut bpf, btf, timing, options.system_calls)?;
        let sees_stalls = load::load_stalls(&mut bpf, btf);

        let ring = bpf.take_map("ring").ok_or_else(|| missing_map("ring"))?;
        let ring = RingBuf::try_from(ring).map_err(map_error("ring"))?;
        let mut watch = Self {
            bpf,
            ring,
            tier,
            command: None,
            tracks_copies: false,
            sees_stalls,
            sees_parents,
            counts_calls: options.system_calls,
            batches: Cell::new(true),
        };
        if options.faults {
            watch.track_copies()?;
        }
        if let Some(command) = &target.command {
            watch.command = Some(watch.run(command)?);
        } else if let WatchTarget::Pid(pid) = options.target {
            // Add the children made between the first look at /proc and the attachment.
            let mut watched = open_watched(&mut watch.bpf)?;
            for pid in crate::procfs::with_descendants(pid) {
                watched.insert(pid, 1, 0).map_err(map_error("watched"))?;
            }
        }
        Ok(watch)
    }

    /// Starts the command so that it is watched from its first instruction: while our own process
    /// is in the watched set, the kernel side adds each child that we create.
    fn run(&mut self, command: &WatchedCommand) -> Result<Started, WatchError> {
        let own = std::process::id();
        let mut watched = open_watched(&mut self.bpf)?;
        watched.insert(own, 1, 0).map_err(map_error("watched"))?;
        let command = Started::start(command);
        watched.remove(&own).map_err(map_error("watched"))?;
        command
    }

    /// Begins to count write-protect faults and waits behind a fork, if not yet begun. On aarch64
    /// no tracepoint reports such faults. Counting costs every page fault and page allocation of
    /// the machine some 60 nanoseconds, and every wait for a lock. So it is only for when a
    /// process forks in full.
    ///
    /// # Errors
    /// [`WatchError::Program`] or [`WatchError::NotPermitted`].
    pub(crate) fn track_copies(&mut self) -> Result<(), WatchError> {
        if self.tracks_copies {
            return Ok(());
        }
        if load::sees_faults(&self.bpf) {
            for (name, _) in load::FAULTS {
                load::attach(&mut self.bpf, name)?;
            }
        }
        if self.sees_stalls {
            for (name, _) in load::STALLS {
                load::attach(&mut self.bpf, name)?;
            }
        }
        self.tracks_copies = true;
        Ok(())
    }

    /// Tells the kernel side where the C library has a return address: the callers of a function
    /// are then places of their own.
    ///
    /// # Errors
    /// [`WatchError::Map`].
    pub(crate) fn tell_return(&mut self, found: &ReturnAt) -> Result<(), WatchError> {
        let map = self.bpf.map_mut("returns").ok_or_else(|| missing_map("returns"))?;
        let mut map: BpfHashMap<_, RawReturnKey, RawReturnAt> =
            BpfHashMap::try_from(map).map_err(map_error("returns"))?;
        let key = RawReturnKey { ip: found.ip, tgid: found.program.pid, pad: 0 };
        let at = RawReturnAt {
            image: found.program.image,
            above_sp: found.above_sp,
            low: found.code.start,
            high: found.code.end,
        };
        // Where there is no room, the next stack tells it again.
        let _ = map.insert(key, at, 0);
        Ok(())
    }

    /// Tells the kernel side where a thread's interpreter has its frames: they are then copied at
    /// the thread's next creations.
    ///
    /// # Errors
    /// [`WatchError::Map`].
    pub(crate) fn tell_look(&mut self, found: &ThreadLook) -> Result<(), WatchError> {
        let map = self.bpf.map_mut("looks").ok_or_else(|| missing_map("looks"))?;
        let mut map: BpfHashMap<_, u32, RawLook> = BpfHashMap::try_from(map).map_err(map_error("looks"))?;
        let look = &found.look;
        let (next, stride, last) = match look.next {
            Next::Pointer(offset) => (offset, 0, NOT_THERE),
            Next::Array(stride) => (NOT_THERE, stride, NOT_THERE),
            Next::Reversed { stride, last } => (NOT_THERE, stride, last),
        };
        let raw = RawLook {
            image: found.image,
            head: look.head,
            through: look.through.unwrap_or(NOT_THERE),
            next,
            stride,
            last,
            word: look.words.map(Option::unwrap_or_default),
        };
        // Without room, lines are read while the caller waits.
        let _ = map.insert(found.thread, raw, 0);
        Ok(())
    }

    /// Facts that this machine hides though its tier shows them elsewhere, for the report.
    pub(crate) fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if !load::sees_faults(&self.bpf) {
            limits.push(
                "no tracepoint tells write-protect faults on this architecture: those after a fork are not counted"
                    .to_owned(),
            );
        }
        if !self.sees_stalls {
            limits.push(
                "this kernel has no tracepoints of locks (Linux 5.19): threads that wait behind a fork are not seen"
                    .to_owned(),
            );
        }
        if !self.sees_parents {
            limits.push(
                "this kernel does not tell what the callers of creations wait for: an event loop that waits for its children is not found"
                    .to_owned(),
            );
        }
        limits
    }

    /// The tier in use.
    pub(crate) fn tier(&self) -> Tier {
        self.tier
    }

    /// The command, if the target is a command.
    pub fn command(&mut self) -> Option<&mut Child> {
        self.command.as_mut().map(|command| &mut command.child)
    }

    /// Whether the target is a command that has ended. It is left unreaped, so that /proc still
    /// knows its times; call [`command`](Self::command) to collect its status.
    pub fn command_ended(&self) -> bool {
        self.command.as_ref().is_some_and(Started::has_ended)
    }

    /// How long the command has run, or ran, if the target is one.
    pub(crate) fn command_ran(&self) -> Option<Duration> {
        self.command.as_ref().map(Started::ran)
    }

    /// Waits up to `timeout` and hands over the events that have arrived. A signal ends the wait
    /// early.
    ///
    /// # Errors
    /// [`WatchError::Wait`] if poll(2) fails.
    pub fn poll(&mut self, timeout: Duration, mut sink: impl FnMut(Event)) -> Result<(), WatchError> {
        let mut fds = [PollFd::from_borrowed_fd(self.ring.as_fd(), PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(WatchError::Wait(errno.into())),
        }
        while let Some(item) = self.ring.next() {
            match RingItem::decode(&item) {
                Some(RingItem::Creation(raw)) => sink(Event::Created(Box::new(Creation::from_raw(&raw)))),
                Some(RingItem::Program(raw)) => sink(Event::Program(SeenProgram::from_raw(&raw))),
                Some(RingItem::Refused(raw)) => {
                    sink(Event::Refused(Box::new(RefusedCreation::from_raw(&raw))))
                }
                Some(RingItem::Caller(raw)) => sink(Event::Caller(Box::new(CreatingThread::from_raw(&raw)))),
                Some(RingItem::Stack(head, top)) => sink(Event::Stack(StackTop::new(&head, top))),
                None => {}
            }
        }
        Ok(())
    }

    /// The creations whose child still lives (or whose caller still waits).
    ///
    /// # Errors
    /// [`WatchError::Map`].
    pub fn living(&self) -> Result<Vec<Creation>, WatchError> {
        let map = self.bpf.map("live").ok_or_else(|| missing_map("live"))?;
        let map: BpfHashMap<_, u32, RawCreation> = BpfHashMap::try_from(map).map_err(map_error("live"))?;
        // A deleted entry restarts the iteration: an entry may come twice.
        let mut found: Vec<Creation> =
            map.iter().flatten().map(|(_, raw)| Creation::from_raw(&raw)).collect();
        found.sort_by_key(|c| (c.at_ns, c.child));
        found.dedup_by_key(|c| (c.at_ns, c.child));
        Ok(found)
    }

    /// The counts so far.
    ///
    /// # Errors
    /// [`WatchError::Map`].
    pub fn totals(&self) -> Result<Totals, WatchError> {
        let map = self.bpf.map("totals").ok_or_else(|| missing_map("totals"))?;
        let map: PerCpuArray<_, RawTotals> = PerCpuArray::try_from(map).map_err(map_error("totals"))?;
        let values = map.get(&0, 0).map_err(map_error("totals"))?;
        let sum = |field: fn(&RawTotals) -> u64| values.iter().map(field).sum::<u64>();
        Ok(Totals {
            creations: sum(|raw| raw.creations),
            threads: Some(sum(|raw| raw.threads)),
            lost_ring: sum(|raw| raw.ring_full),
            lost_live: sum(|raw| raw.live_full),
            lost_calls: self.counts_calls.then(|| sum(|raw| raw.calls_full)),
            stacks_skipped: sum(|raw| raw.stacks_skipped),
        })
    }

    /// Write-protect faults of a process since its first full fork that was seen: (pages copied,
    /// pages reused).
    pub(crate) fn faults_after_fork(&self, pid: u32) -> Option<(u64, u64)> {
        let map: BpfHashMap<_, u32, RawAfterFork> =
            BpfHashMap::try_from(self.bpf.map("after_forks")?).ok()?;
        let raw = map.get(&pid, 0).ok()?;
        Some(((raw.copied as i64).max(0) as u64, (raw.reused as i64).max(0) as u64))
    }

    /// Device reads that a process waited for because of its partial writes.
    pub(crate) fn block_reads(&self, pid: u32) -> Option<BlockReads> {
        let map: BpfHashMap<_, u32, RawBlockReads> =
            BpfHashMap::try_from(self.bpf.map("block_reads")?).ok()?;
        let RawBlockReads { reads, timed, ns } = map.get(&pid, 0).ok()?;
        Some(BlockReads { reads, timed, ns })
    }

    /// The pages that children have made private so far.
    pub(crate) fn erosion(&self) -> Result<Vec<ErodedPages>, WatchError> {
        let map = self.bpf.map("erosion").ok_or_else(|| missing_map("erosion"))?;
        let map: BpfHashMap<_, RawErosionKey, RawEroded> =
            BpfHashMap::try_from(map).map_err(map_error("erosion"))?;
        // An evicted entry restarts the iteration.
        let mut found: Vec<ErodedPages> = map
            .iter()
            .take(2 * EROSION_PLACES)
            .flatten()
            .map(|(key, eroded)| {
                let creator = ProgramKey { pid: key.tgid, image: key.image };
                ErodedPages { creator, ip: key.ip, pages: eroded.pages }
            })
            .collect();
        found.sort_by_key(|one| (one.creator, one.ip));
        found.dedup_by_key(|one| (one.creator, one.ip));
        Ok(found)
    }

    /// The refused creations so far.
    pub(crate) fn refusals(&self) -> Result<Vec<(RefusalKey, RefusalCount)>, WatchError> {
        let map = self.bpf.map("refusals").ok_or_else(|| missing_map("refusals"))?;
        let map: BpfHashMap<_, RawRefusalKey, RawRefusals> =
            BpfHashMap::try_from(map).map_err(map_error("refusals"))?;
        let one = |(key, raw): (RawRefusalKey, RawRefusals)| {
            let key = RefusalKey::from_raw(&key);
            (key, RefusalCount { count: raw.count, timed: raw.timed, ns: raw.ns })
        };
        // An evicted entry restarts the iteration.
        Ok(map.iter().take(2 * REFUSAL_PLACES).flatten().map(one).collect())
    }

    /// The system calls counted so far, by place and class, unordered.
    pub(crate) fn calls(&self) -> Result<Vec<CallCount>, WatchError> {
        if self.batches.get() {
            match self.calls_in_batches(map_batch::AT_ONCE) {
                Ok(found) => return Ok(found),
                // Whatever the reason: reading one by one needs less of the kernel.
                Err(_) => self.batches.set(false),
            }
        }
        self.calls_one_by_one()
    }

    fn calls_in_batches(&self, at_once: usize) -> std::io::Result<Vec<CallCount>> {
        let Some(Map::PerCpuLruHashMap(map)) = self.bpf.map("calls") else {
            return Err(std::io::ErrorKind::NotFound.into());
        };
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
        let mut found = Vec::new();
        map_batch::for_each(map.fd().as_fd(), cpus, at_once, |key, values| {
            found.push(CallCount::sum(key, values));
        })?;
        Ok(found)
    }

    fn calls_one_by_one(&self) -> Result<Vec<CallCount>, WatchError> {
        let map = self.bpf.map("calls").ok_or_else(|| missing_map("calls"))?;
        let map: PerCpuHashMap<_, RawCallKey, RawCall> =
            PerCpuHashMap::try_from(map).map_err(map_error("calls"))?;
        // The iteration restarts when its present entry is deleted. On a busy machine it would
        // never end.
        let mut found: Vec<CallCount> = map
            .iter()
            .take(2 * CALL_PLACES)
            .flatten()
            .map(|(key, values)| CallCount::sum(key, &values))
            .collect();
        found.sort_by_key(|c| (c.key.tgid, c.key.image, c.key.nr, c.key.class, c.key.ip));
        found.dedup_by_key(|c| c.key);
        Ok(found)
    }
}

/// Entries of the map `erosion`.
const EROSION_PLACES: usize = 8192;
/// Entries of the map `refusals`.
const REFUSAL_PLACES: usize = 1024;
/// Entries of the map `calls`.
const CALL_PLACES: usize = 16_384;

/// The system calls whose successes the kernel side counts, one bit each: its variable `answering`.
fn answering_calls() -> [u64; 8] {
    let mut bits = [0u64; 8];
    for number in (0..512u16).filter(|number| answering::only_answers(*number)) {
        bits[usize::from(number / 64)] |= 1 << (number % 64);
    }
    bits
}

fn open_watched(bpf: &mut Ebpf) -> Result<BpfHashMap<&mut MapData, u32, u32>, WatchError> {
    let map = bpf.map_mut("watched").ok_or_else(|| missing_map("watched"))?;
    BpfHashMap::try_from(map).map_err(map_error("watched"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_goes_through_bpf_alone() {
        let own = WatchTarget::Pid(std::process::id());
        let options = WatchOptions { tier: Some(Tier::Procfs), ..WatchOptions::new(own) };
        let error = Watch::start(&options).expect_err("refused");
        assert!(matches!(error, WatchError::TierTooWeak | WatchError::Unsupported { .. }), "{error}");
    }

    /// Runs in its own process: loading the kernel's type information takes more memory than the
    /// memory tests allow.
    #[test]
    fn a_table_read_in_batches_of_any_size_and_one_by_one_says_the_same() {
        crate::test_process::run_in_own_process("watch::tests::read_in_batches_and_one_by_one");
    }

    /// Makes more places than fit in one batch. Their counts no longer change.
    #[test]
    #[ignore = "run by the test before it"]
    fn read_in_batches_and_one_by_one() {
        let line = "i=0; while [ $i -lt 700 ]; do (cd /nowhere 2>/dev/null); i=$((i + 1)); done";
        let command = WatchedCommand::new(["sh", "-c", line]);
        let mut watch = match Watch::start(&WatchOptions::new(WatchTarget::Command(command))) {
            Ok(watch) => watch,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        while !watch.command_ended() {
            watch.poll(Duration::from_millis(50), drop).expect("poll");
        }
        let sorted = |mut calls: Vec<CallCount>| {
            calls.sort_by_key(|c| (c.key.tgid, c.key.image, c.key.nr, c.key.class, c.key.ip));
            calls
        };
        watch.batches.set(false);
        let one_by_one = sorted(watch.calls().expect("the map is there"));
        assert!(one_by_one.len() > map_batch::AT_ONCE, "{} places", one_by_one.len());
        let failed =
            |c: &&CallCount| c.key.nr == libc::SYS_chdir as u16 && c.last == -i64::from(libc::ENOENT);
        assert_eq!(one_by_one.iter().filter(failed).map(|c| c.count).sum::<u64>(), 700);
        match watch.calls_in_batches(map_batch::AT_ONCE) {
            Ok(found) => assert_eq!(sorted(found), one_by_one),
            Err(error) => return eprintln!("skipped: no batches: {error}"),
        }
        // With room for one entry, the kernel first refuses every bucket of two.
        assert_eq!(sorted(watch.calls_in_batches(1).expect("as before")), one_by_one);
        drop(watch.command().map(Child::wait));
    }
}
