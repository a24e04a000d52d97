//! Sums up events as they arrive, by place and outcome, in bounded memory. It judges nothing.

mod bounded;
mod cgroup;
mod group;
mod line_counts;
mod lines;
mod loops;
mod moments;
mod naming;
mod origins;
mod process;
mod programs;
mod refused;
mod spent;
mod start;
mod starters;
mod stood;
mod sums;
mod walk;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

#[cfg(test)]
pub(crate) use self::bounded::TopNames;
use self::bounded::{LatestCounts, forget_the_least, forget_the_least_of};
use self::cgroup::CgroupNames;
pub(crate) use self::group::Group;
pub use self::group::Outcome;
use self::group::place_the_unplaced;
pub(crate) use self::line_counts::LineCounts;
pub use self::line_counts::LineShare;
use self::lines::{Ended, Lines, Read, Whose};
use self::loops::Loops;
pub(crate) use self::loops::{Blocked, ReadLine};
pub(crate) use self::moments::Moments;
use self::naming::{Named, Naming};
use self::origins::OriginKey;
pub(crate) use self::origins::Origins;
pub(crate) use self::process::{CpuTime, PageHistory};
use self::programs::{MAX_PROGRAMS, Programs};
pub(crate) use self::refused::{Refusals, Refused};
pub(crate) use self::spent::Spent;
pub(crate) use self::start::{FailedExecs, ShellGroup, UNKNOWN};
pub(crate) use self::starters::{Starter, Starters};
pub(crate) use self::sums::KINDS;
use self::sums::{ByCgroup, Sums};
use self::walk::Walk;
use crate::creation::{Creation, CreationKind, Place, ProgramKey};
use crate::error::WatchError;
use crate::estimate::Times;
use crate::event::{BlockReads, CallCount, CpuSamples, ErodedPages, Event, StackTop, ThreadLook, Totals};
use crate::file_name::file_name;
use crate::procfs;
use crate::reach::speculated_from;
use crate::ring::{
    CLASS_ANY, CLASS_BLOCK_WRITE_PARTIAL, CLASS_CREATION, CLASS_LOCALTIME, CLASS_SIGMASK_NEEDLESS,
    CLASS_ZONEINFO, NR_EROSION, RawCallKey,
};
use crate::shell;
use crate::stack::{Frame, ReturnAt, Sighting, Unwinder};
use crate::watch::Watch;

/// Calls of one place and class.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Calls {
    pub(crate) count: u64,
    pub(crate) same: u64,
    pub(crate) bytes: u64,
    /// One of the results.
    pub(crate) last: i64,
    /// The kernel side's figures at the last look. Its entry may be evicted and begin again at
    /// zero.
    seen: (u64, u64, u64),
}

impl Calls {
    /// Adds the calls since the last look and returns their number.
    fn follow(&mut self, now: &CallCount) -> u64 {
        let (count, same, bytes) = if now.count < self.seen.0 { (0, 0, 0) } else { self.seen };
        self.count += now.count - count;
        self.same += now.same.saturating_sub(same);
        self.bytes += now.bytes.saturating_sub(bytes);
        self.last = now.last;
        self.seen = (now.count, now.same, now.bytes);
        now.count - count
    }
}

fn program_of(key: &RawCallKey) -> ProgramKey {
    ProgramKey { pid: key.tgid, image: key.image }
}

/// The stacks seen at one place.
pub(crate) type Stacks = Vec<(Vec<Frame>, u64)>;

/// Private pages for which stacks stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SampledPages {
    pub(crate) all: u64,
    /// Pages made private when the worker had begun to end.
    pub(crate) at_end: u64,
}

/// Whether two stacks are of the same lines. A compiler may have made many calls of one line.
fn have_same_lines(one: &[Frame], other: &[Frame]) -> bool {
    let is_same = |(one, other): (&Frame, &Frame)| one.without_offset() == other.without_offset();
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

/// Whether the process runs its exit handlers, or its interpreter takes itself down: then nobody
/// needs its memory any more. PHP takes down each request, so that its function is the last one.
fn is_at_end(stack: &[Frame]) -> bool {
    const TAKES_DOWN: [&str; 8] = [
        "Py_FinalizeEx",
        "Py_Finalize",
        "ruby_cleanup",
        "ruby_finalize",
        "ruby_vm_destruct",
        "perl_destruct",
        "php_module_shutdown",
        "__run_exit_handlers",
    ];
    stack.iter().any(|frame| {
        let Some(function) = frame.function.as_deref() else { return false };
        TAKES_DOWN.contains(&function) || function == "exit" && frame.is_of_c_library()
    })
}

const MAX_GROUPS: usize = 16_384;
const MAX_NAMES: usize = 16_384;
/// Different stacks of one place.
const MAX_STACKS: usize = 16;
/// Least memory, in bytes, of a forking process whose page kinds are read.
const PAGE_KINDS_FROM: u64 = 16 << 20;
/// The mappings of a process with less memory are read only if its fork took so long, nanoseconds:
/// they may be many.
const MAPPINGS_FROM_NS: u64 = 1_000_000;
/// Everything collected in a watch.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) groups: HashMap<(Place, Outcome), Group>,
    pub(crate) failed: HashMap<ProgramKey, FailedExecs>,
    pub(crate) shells: HashMap<(ProgramKey, shell::Fate), ShellGroup>,
    pub(crate) refused: Refusals,
    pub(crate) erosion: Vec<ErodedPages>,
    pub(crate) programs: Programs,
    pub(crate) stacks: HashMap<Place, Stacks>,
    /// By place of private pages: those that its stacks stand for.
    pub(crate) made_private: HashMap<Place, SampledPages>,
    /// The user's lines at each place, of all its creations.
    pub(crate) lines_at: HashMap<Place, LineCounts>,
    pub(crate) pages: HashMap<ProgramKey, PageHistory>,
    pub(crate) faults: HashMap<u32, (u64, u64)>,
    /// By program, system call, class and place.
    pub(crate) calls: HashMap<(ProgramKey, u16, u16, u64), Calls>,
    /// By process: the reads that its partial writes to devices waited for.
    pub(crate) block_reads: HashMap<u32, BlockReads>,
    pub(crate) cpu: HashMap<u32, CpuTime>,
    /// By process, if the CPU clock is sampled.
    pub(crate) samples: HashMap<u32, CpuSamples>,
    pub(crate) totals: Totals,
    pub(crate) creations: u64,
    /// Creations that had no room in `groups`.
    pub(crate) ungrouped: u64,
    /// All creations, those without a group included.
    pub(crate) outcomes: HashMap<Outcome, u64>,
    pub(crate) by_cgroup: ByCgroup,
    starters: Starters,
    /// By child: calls of its close loops that the preloaded library would answer.
    pub(crate) answered: LatestCounts,
    pub(crate) loops: Loops,
    origins: Origins,
    moments: Moments,
    /// The measured costs of creations.
    pub(crate) each: Times,
    cgroups: CgroupNames,
    pub(crate) sums: Sums,
    /// The beginning of the watch, in the unit of processes' start times.
    began_ticks: u64,
    /// Through the kernel side's table of system calls.
    calls_walk: Walk,
    /// Through the mappings of processes with little memory.
    mappings_walk: Walk,
    judge: shell::Judge,
    unwinder: Unwinder,
    returns: Vec<ReturnAt>,
    pub(crate) lines: Lines,
    /// The thread that names stacks. Their processes may be gone by then. It starts with the first
    /// stack.
    naming: Option<Naming>,
    /// Stacks lost because no thread could be started.
    never_named: u64,
    /// By living shell: the summed lives of the programs it started.
    shell_children: HashMap<u32, f64>,
}

impl Collected {
    pub(crate) fn new() -> Self {
        Self {
            groups: HashMap::new(),
            failed: HashMap::new(),
            shells: HashMap::new(),
            refused: Refusals::default(),
            erosion: Vec::new(),
            programs: Programs::default(),
            stacks: HashMap::new(),
            made_private: HashMap::new(),
            lines_at: HashMap::new(),
            pages: HashMap::new(),
            faults: HashMap::new(),
            calls: HashMap::new(),
            block_reads: HashMap::new(),
            cpu: HashMap::new(),
            samples: HashMap::new(),
            totals: Totals::default(),
            creations: 0,
            ungrouped: 0,
            outcomes: HashMap::new(),
            by_cgroup: ByCgroup::default(),
            starters: Starters::default(),
            answered: LatestCounts::default(),
            loops: Loops::default(),
            origins: Origins::default(),
            moments: Moments::new(),
            each: Times::default(),
            cgroups: CgroupNames::default(),
            sums: Sums::default(),
            began_ticks: procfs::ticks_since_boot(),
            calls_walk: Walk::default(),
            mappings_walk: Walk::default(),
            judge: shell::Judge::new(),
            unwinder: Unwinder::new(),
            returns: Vec::new(),
            lines: Lines::default(),
            naming: None,
            never_named: 0,
            shell_children: HashMap::new(),
        }
    }

    /// Says that the watch begins now.
    pub(crate) fn begins(&mut self) {
        self.moments = Moments::new();
    }

    /// Has the threads of processes looked at, so that the lines of their first creations are
    /// known. Returns where the threads have their frames, as far as this is found within the time.
    pub(crate) fn prepare(&mut self, pids: &[u32], at_most: Duration) -> Vec<ThreadLook> {
        let begin = Instant::now();
        pids.iter().for_each(|pid| self.lines.prepare(*pid));
        let mut looks = self.take_looks();
        while self.lines.look_again().is_some() && begin.elapsed() < at_most {
            std::thread::sleep(Duration::from_millis(1));
            looks.extend(self.take_looks());
        }
        looks
    }

    /// Takes one event in. Returns whether it is a fork of so much memory that its write-protect
    /// faults should be counted.
    pub(crate) fn event(&mut self, event: Event) -> bool {
        match event {
            Event::Created(creation) => {
                self.created(&creation);
                creation.kind == CreationKind::FullFork && creation.memory.anon >= PAGE_KINDS_FROM
            }
            Event::Stack(stack) => {
                self.stack(stack);
                false
            }
            Event::Caller(caller) => {
                self.lines.look(*caller);
                false
            }
            Event::Program(seen) => {
                self.make_room_for_programs();
                self.programs.seen(seen);
                false
            }
            Event::Refused(refused) => {
                // First of all: its interpreter waits for a second at most.
                self.lines.look_at_refused(&refused);
                let program = refused.key.place.program();
                self.meet(program, Some(refused.comm.as_str()).filter(|comm| !comm.is_empty()));
                let told = self.programs.name(program).and_then(|name| name.cgroup.as_deref());
                if told.is_none()
                    && let Some(cgroup) = self.cgroups.name(refused.cgroup, None).map(str::to_owned)
                {
                    self.programs.in_cgroup(program, &cgroup);
                }
                self.programs.invoked(program);
                self.refused.met(*refused);
                false
            }
        }
    }

    /// Does only the work that needs the living process: reads its maps and opens its files, and
    /// finds return addresses, for its next creations. Another thread reads symbols.
    fn stack(&mut self, stack: StackTop) {
        let program = stack.place.program();
        let creates = stack.class == CLASS_CREATION;
        let Some(sighting) = self.unwinder.meet(stack) else { return };
        if creates {
            self.returns.extend(sighting.return_at());
        }
        self.meet(program, None);
        if self.naming.is_none() {
            self.naming = Naming::start(Sighting::frames).ok();
        }
        match &mut self.naming {
            Some(naming) => naming.add(sighting),
            None => self.never_named += 1,
        }
    }

    /// Where the C library has its return addresses, by the stacks that came since the last call.
    pub(crate) fn take_returns(&mut self) -> Vec<ReturnAt> {
        std::mem::take(&mut self.returns)
    }

    /// What was found since the last call: places where threads have their frames.
    pub(crate) fn take_looks(&mut self) -> Vec<ThreadLook> {
        let placed = self.lines.take_answers();
        self.place_lines(placed);
        self.lines.take_looks()
    }

    /// How soon names are to be taken back again, at the latest.
    pub(crate) fn look_again(&self) -> Option<Duration> {
        [self.loops.look_again(), self.lines.look_again()].into_iter().flatten().min()
    }

    /// Takes back the stacks that already have names. Never waits.
    pub(crate) fn take_names(&mut self) {
        self.loops.look(Instant::now());
        while let Some(named) = self.naming.as_mut().and_then(Naming::ready) {
            self.named(named);
        }
    }

    /// Waits until every stack taken in has its names.
    pub(crate) fn take_all_names(&mut self) {
        while let Some(named) = self.naming.as_mut().and_then(Naming::next) {
            self.named(named);
        }
    }

    /// Stacks that will have no names because too many waited.
    pub(crate) fn stacks_left_out(&self) -> u64 {
        self.never_named + self.naming.as_ref().map_or(0, Naming::left_out)
    }

    fn named(&mut self, (place, frames, stands_for): Named) {
        if place.nr == NR_EROSION {
            let at_end = is_at_end(&frames);
            if self.made_private.len() < MAX_GROUPS || self.made_private.contains_key(&place) {
                let sampled = self.made_private.entry(place).or_default();
                sampled.all += stands_for;
                sampled.at_end += if at_end { stands_for } else { 0 };
            }
            if at_end {
                return;
            }
        }
        if frames.is_empty() || self.stacks.len() >= MAX_GROUPS && !self.stacks.contains_key(&place) {
            return;
        }
        // Pages have their own sum.
        let count = if place.nr == NR_EROSION { 1 } else { stands_for };
        let seen = self.stacks.entry(place).or_default();
        if let Some((_, known)) = seen.iter_mut().find(|(known, _)| have_same_lines(known, &frames)) {
            *known += count;
        } else if seen.len() < MAX_STACKS {
            seen.push((frames, count));
        }
    }

    /// Remembers a program while /proc has it.
    fn meet(&mut self, program: ProgramKey, comm: Option<&str>) {
        self.make_room_for_programs();
        self.programs.met(program, comm);
    }

    fn make_room_for_programs(&mut self) {
        if self.programs.len() >= MAX_PROGRAMS {
            self.forget_programs();
        }
    }

    /// Forgets the programs that no table refers to; all programs if that is not enough.
    fn forget_programs(&mut self) {
        let mut wanted: HashSet<ProgramKey> = self.groups.keys().map(|(place, _)| place.program()).collect();
        wanted.extend(self.shells.keys().map(|(program, _)| *program));
        wanted.extend(self.failed.keys());
        wanted.extend(self.refused.iter().map(|(key, _)| key.place.program()));
        wanted.extend(self.loops.iter().map(|(place, _)| place.program()));
        wanted.extend(self.calls.keys().map(|(program, ..)| *program));
        self.programs.forget_all_but(&wanted);
    }

    /// Forgets the stacks of forgotten places. Otherwise the table would be full and later
    /// places have no stack.
    fn forget_stacks(&mut self) {
        let Self { stacks, lines_at, groups, shells, failed, calls, origins, refused, loops, .. } = self;
        let mut wanted: HashSet<(u32, u64)> = groups.keys().map(|(place, _)| (place.pid, place.ip)).collect();
        let of_shells = shells.values().flat_map(|group| group.places.each());
        let of_failed = failed.values().flat_map(FailedExecs::places);
        wanted.extend(of_shells.chain(of_failed).map(|(place, _)| (place.pid, place.ip)));
        wanted.extend(calls.keys().map(|(program, _, _, ip)| (program.pid, *ip)));
        wanted.extend(refused.iter().map(|(key, _)| (key.place.pid, key.place.ip)));
        wanted.extend(loops.iter().map(|(place, _)| (place.pid, place.ip)));
        wanted.extend(origins.places().map(|place| (place.pid, place.ip)));
        stacks.retain(|place, _| place.nr == NR_EROSION || wanted.contains(&(place.pid, place.ip)));
        lines_at.retain(|place, _| wanted.contains(&(place.pid, place.ip)));
    }

    fn created(&mut self, creation: &Creation) {
        self.creations += 1;
        let program = creation.place.program();
        self.meet(program, Some(creation.caller_comm.as_str()).filter(|comm| !comm.is_empty()));
        if creation.kind == CreationKind::FullFork {
            self.look_at_fork(program, creation);
        }
        // The remedy is not for smaller ones, so their command lines are not read.
        if creation.kind == CreationKind::FullFork && creation.memory.anon >= speculated_from() {
            self.programs.invoked(program);
        }
        if creation.closes > 0 {
            self.answered.add(creation.child, creation.closes);
        }
        let told = self.programs.name(program).and_then(|name| name.cgroup.as_deref());
        let cgroup = self.cgroups.name(creation.caller_cgroup, told);
        self.by_cgroup.add(cgroup, Outcome::of(creation), creation);
        let found = cgroup.filter(|_| told.is_none()).map(str::to_owned);
        if let Some(cgroup) = found {
            self.programs.in_cgroup(program, &cgroup);
        }
        let called = self.programs.called(program, &creation.caller_comm);
        let spent = Spent::of(creation);
        self.starters.add(called, creation);
        self.moments.add(called, creation, &spent);
        self.origins.add(OriginKey::of(creation), called, &spent);
        if let Some(ns) = spent.measured_ns() {
            self.each.add(ns);
        }
        self.loops.created(creation);
        self.failed_execs(creation);
        let shell = self.shell(creation);
        self.group(creation);
        let placed = self.lines.ended(creation, shell);
        self.place_lines(placed);
    }

    fn group(&mut self, creation: &Creation) {
        let outcome = Outcome::of(creation);
        *self.outcomes.entry(outcome).or_default() += 1;
        // Other outcomes are never a finding, so most of a healthy machine's creations need no
        // group.
        if matches!(outcome, Outcome::ForkThenExec | Outcome::ForkAlone) {
            self.add_to_group(creation, outcome);
        }
    }

    fn add_to_group(&mut self, creation: &Creation, outcome: Outcome) {
        let key = (creation.place, outcome);
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key) {
            let gone = forget_the_least(&mut self.groups, |group| group.caller.mean() * group.count as f64);
            self.ungrouped += gone.iter().map(|group| group.count).sum::<u64>();
            self.origins.forget();
            self.forget_programs();
            self.forget_stacks();
        }
        self.groups.entry(key).or_default().add(creation);
    }

    /// Takes over lines that were read.
    fn place_lines(&mut self, placed: Vec<(Whose, Read)>) {
        for (whose, read) in placed {
            let ended = match whose {
                Whose::Creation(ended) => ended,
                Whose::Refusal(key) => {
                    self.refused.read(&key, &read.frames);
                    continue;
                }
            };
            let Ended { origin, shell, .. } = &ended;
            self.origins.read(origin, &read.frames, read.stands_for);
            // A failed reading does not tell what the thread waited in.
            if !read.frames.is_empty() {
                self.loops.read(&ended, &read);
            }
            if let Some(group) = shell.as_ref().and_then(|key| self.shells.get_mut(key)) {
                group.read.add(&read.frames, read.stands_for);
            }
            if let Some(group) = self.groups.get_mut(&(origin.place, origin.outcome)) {
                group.lines.add(&read.frames, read.stands_for);
            }
            if self.lines_at.len() < MAX_GROUPS || self.lines_at.contains_key(&origin.place) {
                self.lines_at.entry(origin.place).or_default().add(&read.frames, read.stands_for);
            }
        }
    }

    fn failed_execs(&mut self, creation: &Creation) {
        let missing = u64::from(creation.exec_missing);
        let busy = u64::from(creation.exec_busy);
        if missing + busy == 0 {
            return;
        }
        let program = creation.place.program();
        if self.failed.len() >= MAX_NAMES && !self.failed.contains_key(&program) {
            forget_the_least(&mut self.failed, |failed| failed.creations as f64);
        }
        let failed = self.failed.entry(program).or_default();
        failed.creations += 1;
        failed.comm.clone_from(&creation.caller_comm);
        if creation.execed() && missing > 0 {
            failed.searched += missing;
            failed.searching_creations += 1;
            failed.searching_places.add(creation.place, 1);
        } else if missing > 0 {
            failed.missing += missing;
            // After one directory of PATH the child tries the next, and the last one says nothing.
            match creation.exec_failed_path.as_deref() {
                Some(path) if missing > 1 && path.starts_with('/') => {
                    failed.sought.add(file_name(path));
                    failed.sought_paths += missing;
                }
                path => failed.missing_paths.add(path.unwrap_or(UNKNOWN)),
            }
            failed.missing_places.add(creation.place, 1);
        }
        if busy > 0 {
            failed.busy += busy;
            failed.busy_paths.add(creation.exec_failed_path.as_deref().unwrap_or(UNKNOWN));
            failed.busy_places.add(creation.place, 1);
        }
    }

    /// Returns the group of the shell that a creation executed for one line.
    fn shell(&mut self, creation: &Creation) -> Option<(ProgramKey, shell::Fate)> {
        let life = creation.lifetime_ns?;
        // A shell's programs end, and arrive, before the shell itself.
        if self.shell_children.len() < MAX_NAMES || self.shell_children.contains_key(&creation.caller) {
            *self.shell_children.entry(creation.caller).or_default() += life as f64;
        }
        let programs = self.shell_children.remove(&creation.child);
        let line = shell::line_of(creation)?;
        // The preloaded library's own, once in a tree of programs. Its user can do nothing about
        // it.
        if forkless_shell::probe::is_question(line.as_bytes()) {
            return None;
        }
        let shell = creation.exec_path.as_deref().unwrap_or_default();
        let fate = self.judge.fate(line, creation.argv_cut, shell, creation.caller);
        let key = (creation.place.program(), fate);
        if self.shells.len() >= MAX_GROUPS && !self.shells.contains_key(&key) {
            forget_the_least(&mut self.shells, |group| group.count as f64);
        }
        if !matches!(key.1, shell::Fate::NeedsShell(_) | shell::Fate::Unknown) {
            self.programs.invoked(key.0);
        }
        *self.sums.shells.entry(key.1.name()).or_default() += 1;
        let group = self.shells.entry(key.clone()).or_default();
        group.count += 1;
        group.comm.clone_from(&creation.caller_comm);
        group.lines.add(line);
        group.places.add(creation.place, 1);
        group.add_caller(creation);
        // Before its exec it is a copy of its caller. After another exec it is the program itself.
        let as_shell = creation.until_exec_ns.filter(|_| creation.execs == 1);
        if let (Some(programs), Some(until_exec)) = (programs, as_shell) {
            group.overhead.add((life.saturating_sub(until_exec) as f64 - programs).max(0.0));
        }
        Some(key)
    }

    /// Looks at the pages and mappings that a fork copied, as far as that is worth its time.
    fn look_at_fork(&mut self, program: ProgramKey, creation: &Creation) {
        let is_large = creation.memory.anon >= PAGE_KINDS_FROM;
        let ns = creation.caller_waited_ns.or(creation.copy_ns).unwrap_or(0);
        if is_large {
            self.look_at_pages(program, ns);
        }
        if ns < MAPPINGS_FROM_NS || !self.mappings_walk.is_due() {
            return;
        }
        self.mappings_walk.began();
        if !is_large {
            self.look_at_pages(program, ns);
        }
        if let Some(history) = self.pages.get_mut(&program).filter(|history| history.is_outgrown(ns)) {
            history.count_at(program.pid, ns);
        }
        self.mappings_walk.ended();
    }

    fn look_at_pages(&mut self, program: ProgramKey, fork_ns: u64) {
        if let Some(history) = self.pages.get_mut(&program) {
            history.follow(program.pid);
            return;
        }
        if self.pages.len() >= MAX_NAMES {
            forget_the_least(&mut self.pages, |history| history.last.anon as f64);
        }
        if let Some(history) = PageHistory::of(program.pid, fork_ns) {
            self.pages.insert(program, history);
        }
    }

    /// The same for the tiers without BPF.
    pub(crate) fn tick_sampled(&mut self, totals: Totals) {
        self.totals = totals;
    }

    /// Takes over the samples of the CPU clock.
    pub(crate) fn cpu_samples(&mut self, samples: impl Iterator<Item = (u32, CpuSamples)>) {
        self.samples.extend(samples);
    }

    /// Reads the sums of the kernel side. To be called about once a second, and with `end` for a
    /// complete reading.
    pub(crate) fn tick(&mut self, watch: &Watch, end: bool) -> Result<(), WatchError> {
        self.totals = watch.totals()?;
        let placed = self.lines.take_answers();
        self.place_lines(placed);
        if !self.refused.is_empty() {
            self.refused.follow(watch.refusals()?.into_iter());
        }
        let forkers: HashSet<u32> = self
            .groups
            .keys()
            .filter(|(_, outcome)| matches!(outcome, Outcome::ForkThenExec | Outcome::ForkAlone))
            .map(|(place, _)| place.pid)
            .collect();
        self.faults.retain(|pid, _| forkers.contains(pid));
        for pid in forkers {
            if let Some(faults) = watch.faults_after_fork(pid) {
                self.faults.insert(pid, faults);
            }
        }
        if end {
            self.erosion = watch.erosion()?;
        }
        if end || self.calls_walk.is_due() {
            self.calls_walk.began();
            self.take_calls(watch)?;
            self.calls_walk.ended();
        }
        Ok(())
    }

    /// Takes over the counted system calls, and asks /proc about the processes behind those that
    /// may matter.
    fn take_calls(&mut self, watch: &Watch) -> Result<(), WatchError> {
        // Ask once for each process: it may have many places.
        let mut asked = HashSet::new();
        let counted = watch.calls()?;
        for &call in &counted {
            let RawCallKey { tgid, class, .. } = call.key;
            let program = program_of(&call.key);
            if class == CLASS_ANY && call.count < 1000 {
                continue;
            }
            if asked.insert(tgid) {
                if self.cpu.len() >= MAX_NAMES && !self.cpu.contains_key(&tgid) {
                    forget_the_least(&mut self.cpu, |cpu| cpu.used() as f64);
                }
                if let Some(times) = procfs::times_of(tgid) {
                    match times.arguments_at {
                        Some(image) => self.meet(ProgramKey { pid: tgid, image }, None),
                        None => self.meet(program, None),
                    }
                    // A process that began during the watch has used all its CPU time in the watch.
                    let is_new = times.start_ticks >= self.began_ticks;
                    let before = if is_new { 0 } else { times.cpu_ns };
                    self.cpu.entry(tgid).or_insert(CpuTime::since(before)).follow(times.cpu_ns);
                }
            }
            if matches!(class, CLASS_SIGMASK_NEEDLESS | CLASS_LOCALTIME | CLASS_ZONEINFO)
                && call.count >= 1000
            {
                self.programs.invoked(program);
            }
            if class == CLASS_BLOCK_WRITE_PARTIAL
                && (self.block_reads.len() < MAX_NAMES || self.block_reads.contains_key(&tgid))
                && let Some(reads) = watch.block_reads(tgid)
            {
                self.block_reads.insert(tgid, reads);
            }
            self.call(&call, &counted);
        }
        Ok(())
    }

    /// `counted` is the kernel side's whole table.
    fn call(&mut self, call: &CallCount, counted: &[CallCount]) {
        let key = |call: &CallCount| (program_of(&call.key), call.key.nr, call.key.class, call.key.ip);
        if self.calls.len() >= MAX_GROUPS && !self.calls.contains_key(&key(call)) {
            // Forget only entries that the kernel side has forgotten too: any other would be
            // counted again at the next look. The kernel side's table is no larger than this one.
            let there: HashSet<_> = counted.iter().map(key).collect();
            forget_the_least_of(&mut self.calls, |key, _| !there.contains(key), |calls| calls.count as f64);
        }
        let new = self.calls.entry(key(call)).or_default().follow(call);
        let sum = match call.key.class {
            CLASS_SIGMASK_NEEDLESS => &mut self.sums.signal_mask_unchanged,
            CLASS_LOCALTIME | CLASS_ZONEINFO => &mut self.sums.localtime,
            _ => return,
        };
        *sum += new;
    }

    /// Adds the creations whose children still live, for a report; they will come again when they
    /// end.
    pub(crate) fn groups_with(&self, living: &[Creation]) -> HashMap<(Place, Outcome), Group> {
        let mut groups = self.groups.clone();
        for creation in living {
            groups.entry((creation.place, Outcome::of(creation))).or_default().add(creation);
        }
        place_the_unplaced(&mut groups);
        groups
    }

    /// The same for the programs that were started.
    pub(crate) fn starters_with(&self, living: &[Creation]) -> Starters {
        let mut starters = self.starters.clone();
        for creation in living {
            starters.add(self.programs.called(creation.place.program(), &creation.caller_comm), creation);
        }
        starters
    }

    /// The same for the pictures: where creations come from, and when they happened.
    pub(crate) fn pictures_with(&self, living: &[Creation]) -> (Origins, Moments) {
        let (mut origins, mut moments) = (self.origins.clone(), self.moments.clone());
        for creation in living {
            let called = self.programs.called(creation.place.program(), &creation.caller_comm);
            let spent = Spent::of(creation);
            origins.add(OriginKey::of(creation), called, &spent);
            moments.add(called, creation, &spent);
        }
        (origins, moments)
    }

    /// Notes the CPU time that processes had used before the watch, so that shares refer to the
    /// watch.
    pub(crate) fn baseline_cpu(&mut self, pids: &[u32]) {
        for &pid in pids {
            if let Some(now) = procfs::cpu_ns(pid) {
                self.cpu.insert(pid, CpuTime::since(now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::RecvTimeoutError;

    use super::*;

    /// Memory of this process, bytes.
    fn resident() -> u64 {
        let own = procfs::memory_of(std::process::id());
        own.resident()
    }

    /// Every creation by another process, at another place, of a shell with another line.
    fn flood(creations: u32) {
        let mut collected = Collected::new();
        let before = resident();
        for i in 0..creations {
            let pid = (1 << 23) + i;
            let mut creation = Creation {
                caller: pid,
                child: (1 << 24) + i,
                place: Place { pid, nr: 56, ip: u64::from(i), word: u64::from(i), image: 0 },
                flags: crate::CloneFlags(0),
                kind: CreationKind::FullFork,
                caller_comm: format!("c{i}"),
                lifetime_ns: Some(5),
                exec_missing: 1,
                ..Creation::unseen()
            };
            creation.execs = 1;
            creation.exec_path = Some("/bin/sh".to_owned());
            creation.argv = vec!["sh".to_owned(), "-c".to_owned(), format!("/bin/true {i}")];
            collected.event(Event::Created(Box::new(creation)));
        }
        assert_eq!(collected.creations, u64::from(creations));
        assert!(collected.groups.len() <= MAX_GROUPS && collected.programs.len() <= MAX_NAMES);
        assert!(collected.shells.len() <= MAX_GROUPS && collected.failed.len() <= MAX_NAMES);
        assert!(collected.shell_children.len() <= MAX_NAMES);
        // Creations without room are counted.
        let grouped: u64 = collected.groups.values().map(|group| group.count).sum();
        assert_eq!(grouped + collected.ungrouped, u64::from(creations));
        let grown = resident().saturating_sub(before) >> 20;
        println!("{creations} creations of as many processes and places: {grown} MiB");
        assert!(grown < 128, "{grown} MiB");
    }

    /// Regression: the copy of the caller's 400 MiB was counted as the shell's, and so was the life
    /// of a program that the shell had become. The fork's finding has the copy.
    #[test]
    fn a_shells_own_part_begins_at_its_exec_and_ends_at_another() {
        let mut collected = Collected::new();
        let (perl, shell, uname) = (1 << 23, (1 << 23) + 1, (1 << 23) + 2);
        let mut line = |until_exec_ns, execs| {
            let ended = |caller, child, life| Creation {
                place: Place { pid: caller, nr: 56, ip: 1, word: 0, image: 0 },
                caller,
                child,
                lifetime_ns: Some(life),
                ..Creation::unseen()
            };
            collected.created(&ended(shell, uname, 1_000));
            collected.created(&Creation {
                until_exec_ns,
                execs,
                exec_path: Some("/bin/sh".to_owned()),
                argv: ["sh", "-c", "uname -a >/dev/null"].map(str::to_owned).to_vec(),
                ..ended(perl, shell, 75_000)
            });
            let group = collected.shells.values().next().expect("a shell");
            (group.count, group.overhead.count(), group.overhead.mean())
        };
        assert_eq!(line(Some(72_000), 1), (1, 1, 2_000.0));
        assert_eq!(line(Some(10), 2), (2, 1, 2_000.0), "it became its last program");
        assert_eq!(line(None, 1), (3, 1, 2_000.0), "nobody saw when it became a shell");
    }

    /// Regression: all starts of Node.js have one place, and the line of a `spawn` was said to
    /// start the shell.
    #[test]
    fn lines_belong_to_the_creation_at_which_they_were_read() {
        let mut collected = Collected::new();
        let place = Place { pid: 1 << 23, nr: 56, ip: 1, word: 0, image: 0 };
        let frame = |function: &str| Frame { function: Some(function.to_owned()), ..Frame::default() };
        let mut create = |program: &str, function: &str, in_own_loop| {
            let creation = Creation {
                place,
                caller_thread: 7,
                copy_ns: Some(10),
                lifetime_ns: Some(100),
                execs: 1,
                exec_path: Some(program.to_owned()),
                argv: ["sh", "-c", "uname -a"].map(str::to_owned).to_vec(),
                ..Creation::unseen()
            };
            collected.created(&creation);
            let shell = collected.shell(&creation);
            let ended = Ended {
                origin: OriginKey::of(&creation),
                shell,
                thread: creation.caller_thread,
                asked: (creation.caller_thread, creation.asked),
                stood: stood::Stood::of(&creation),
            };
            let frames = vec![frame(function)];
            let read = Read { frames, in_own_loop, in_event_loop: false, stands_for: 1 };
            collected.place_lines(vec![(Whose::Creation(ended), read)]);
        };
        (0..5).for_each(|_| create("/bin/true", "spawnOne", false));
        create("/bin/true", "thumbnail", true);
        create("/bin/sh", "gitLog", false);
        assert_eq!(collected.lines_at[&place].most(), [frame("spawnOne")]);
        let of_shells: Vec<_> = collected.shells.values().map(|group| group.read.most()).collect();
        assert_eq!(of_shells, [[frame("gitLog")]]);
        let mut blocked = collected.loops.all_at(&place).expect("a thread").clone();
        assert_eq!(blocked.line(Some(true)).map(|line| &line.frames[..]), Some(&[frame("thumbnail")][..]));
        assert_eq!((blocked.end_waits, blocked.end_ns), (0, 0));
        blocked.count_told_waits();
        assert_eq!((blocked.end_waits, blocked.end_ns), (1, 90));
    }

    /// Runs in its own process, so that the memory of other tests is not counted.
    #[test]
    fn memory_is_bounded_whatever_comes() {
        crate::test_process::run_in_own_process("collect::tests::fifty_thousand_processes_and_places");
    }

    #[test]
    #[ignore = "run by the test before it"]
    fn fifty_thousand_processes_and_places() {
        flood(50_000);
    }

    /// The full size of the requirement. Takes half a minute unoptimized.
    #[test]
    #[ignore = "slow; cargo test -p forkless-diagnose --release -- --ignored a_million"]
    fn a_million_processes_and_places_take_no_more() {
        flood(1_000_000);
    }

    /// An entry that the kernel side evicted begins again at zero. Its earlier counts stay.
    #[test]
    fn calls_whose_entry_began_again_are_added_up() {
        let key = RawCallKey { ip: 1, image: 5, tgid: 2, nr: 3, class: 0 };
        let mut calls = Calls::default();
        for (count, sum) in [(5000, 5000), (7000, 7000), (100, 7100), (6000, 13_000), (6000, 13_000)] {
            calls.follow(&CallCount { key, count, same: count, bytes: 2 * count, last: 9 });
            assert_eq!((calls.count, calls.same, calls.bytes, calls.last), (sum, sum, 2 * sum, 9));
        }
    }

    /// `needless_system_calls` fell when the table made room, and an entry forgotten too early was
    /// counted twice.
    #[test]
    fn sums_of_calls_neither_fall_nor_count_twice_when_places_are_forgotten() {
        let mut collected = Collected::new();
        let call = |tgid: u32, count| CallCount {
            key: RawCallKey { ip: 1, image: 5, tgid, nr: 14, class: CLASS_SIGMASK_NEEDLESS },
            count,
            same: 0,
            bytes: 0,
            last: 0,
        };
        // The kernel side keeps the first process, and replaces all others at each look.
        let places = MAX_GROUPS as u32 / 2;
        let mut made = 0;
        for look in 1..=6_u32 {
            let mut counted = vec![call(1, u64::from(look))];
            counted.extend((0..places).map(|i| call(10 + look * places + i, 3)));
            made = u64::from(look) + u64::from(look * places) * 3;
            counted.iter().for_each(|now| collected.call(now, &counted));
            assert_eq!(collected.sums.signal_mask_unchanged, made);
            assert!(collected.calls.len() <= MAX_GROUPS);
        }
        let kept: u64 = collected.calls.values().map(|calls| calls.count).sum();
        assert!(kept < made, "places were forgotten");
    }

    #[test]
    fn an_end_is_told_by_its_stack_and_has_its_part_of_a_place() {
        let frames = |names: &[(&str, &str)]| -> Vec<Frame> {
            let frame = |&(function, module): &(&str, &str)| Frame {
                function: Some(function.to_owned()),
                module: module.to_owned(),
                ..Frame::default()
            };
            names.iter().map(frame).collect()
        };
        let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        let served = frames(&[("_int_free", libc), ("rb_vm_exec", "/usr/bin/ruby")]);
        let ended = frames(&[("_int_free", libc), ("ruby_vm_destruct", "/usr/bin/ruby")]);
        let of_handlers = frames(&[("_int_free", libc), ("exit", libc)]);
        let namesake = frames(&[("_int_free", libc), ("exit", "/srv/app")]);
        assert_eq!(
            [&served, &ended, &of_handlers, &namesake].map(|stack| is_at_end(stack)),
            [false, true, true, false]
        );
        let mut collected = Collected::new();
        let place = Place { pid: 1, nr: NR_EROSION, ip: 1, word: 0, image: 0 };
        for (stack, pages) in [(&served, 300), (&ended, 200), (&of_handlers, 500)] {
            collected.named((place, stack.clone(), pages));
        }
        assert_eq!(collected.made_private[&place], SampledPages { all: 1000, at_end: 700 });
        assert_eq!(collected.stacks[&place], [(served, 1)]);
    }

    /// Regression: forty calls of an unrolled loop were as many stacks, and left no room for those
    /// of the next lines.
    #[test]
    fn many_calls_of_one_line_are_one_stack() {
        let frame = |offset, line| Frame {
            function: Some("main".into()),
            offset,
            module: "/srv/app".into(),
            line,
            ..Frame::default()
        };
        let mut collected = Collected::new();
        let place = Place { pid: 1, nr: 56, ip: 1, word: 0, image: 0 };
        let many = 3 * MAX_STACKS as u64;
        (0..many).for_each(|at| collected.named((place, vec![frame(at, Some(7))], 2)));
        collected.named((place, vec![frame(1, Some(8))], 1));
        collected.named((place, vec![frame(1, None)], 0));
        collected.named((place, vec![frame(2, None)], 1));
        let counts: Vec<u64> = collected.stacks[&place].iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2 * many, 1, 0, 1]);
    }

    /// The thread that empties the ring spent seconds on the symbols of rustc's libraries, and
    /// thousands of records were lost.
    #[test]
    fn events_are_taken_in_while_symbols_are_read() {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let mut collected = Collected::new();
        let slow = move |_: &Sighting| {
            // The gate opens, or a failed test drops it: then no stack gets a name.
            let opened =
                gate.recv_timeout(std::time::Duration::from_secs(20)) != Err(RecvTimeoutError::Timeout);
            let frame =
                Frame { function: Some("slow".into()), offset: 0, module: "/x".into(), ..Frame::default() };
            if opened { vec![frame] } else { Vec::new() }
        };
        collected.naming = Some(Naming::start(slow).expect("a thread"));
        let ip = std::process::id as fn() -> u32 as usize as u64;
        let place = Place { pid: std::process::id(), nr: 56, ip, word: 0, image: 0 };
        let left_out = 7;
        for _ in 0..naming::MAX_UNNAMED + left_out {
            collected.event(Event::Stack(StackTop::empty(place)));
            collected.take_names();
        }
        collected.event(Event::Created(Box::new(Creation { place, ..Creation::unseen() })));
        assert_eq!((collected.creations, collected.stacks.len()), (1, 0));
        assert_eq!(collected.stacks_left_out(), left_out as u64);

        drop(open);
        collected.take_all_names();
        let named: Vec<u64> = collected.stacks[&place].iter().map(|(_, count)| *count).collect();
        assert_eq!(named, [naming::MAX_UNNAMED as u64]);
    }

    #[test]
    fn a_panic_in_a_parser_costs_names_and_nothing_else() {
        let mut collected = Collected::new();
        collected.naming = Some(Naming::start(|_| panic!("as a parser might")).expect("a thread"));
        let ip = std::process::id as fn() -> u32 as usize as u64;
        let place = Place { pid: std::process::id(), nr: 56, ip, word: 0, image: 0 };
        for _ in 0..3 {
            collected.event(Event::Stack(StackTop::empty(place)));
            collected.take_all_names();
        }
        assert_eq!((collected.stacks.len(), collected.stacks_left_out()), (0, 3));
    }

    /// Three million creations in an hour filled the table with cheap places, and later ones
    /// were lost.
    #[test]
    fn what_costs_most_is_seen_however_late_it_comes() {
        let mut collected = Collected::new();
        let mut fork = |pid: u32, ns: u64| {
            let place = Place { pid, nr: 56, ip: 1, word: 0, image: 0 };
            let flags = crate::CloneFlags(0);
            let (caller, child, kind) = (pid, pid + (1 << 22), CreationKind::FullFork);
            let copy_ns = Some(ns);
            let creation = Creation { place, flags, kind, caller, child, copy_ns, ..Creation::unseen() };
            collected.event(Event::Created(Box::new(creation)));
        };
        let late = (1 << 23) + 40_000;
        fork(1 << 23, 5_000_000);
        (1..40_000).for_each(|i| fork((1 << 23) + i, 1000));
        (0..3).for_each(|_| fork(late, 9_000_000));
        let count = |pid| {
            collected
                .groups
                .iter()
                .filter(|((place, _), _)| place.pid == pid)
                .map(|(_, group)| group.count)
                .sum::<u64>()
        };
        assert_eq!((count(1 << 23), count(late)), (1, 3));
        assert_eq!(collected.outcomes[&Outcome::ForkAlone], 40_003);
    }
}
