//! From perf records to process creations, in the order of their times.
//!
//! A FORK record does not tell whether memory was copied; a tracepoint does. If that may not be
//! read, the child's page faults tell. A fork does not copy the mappings of file pages
//! (`vma_needs_copy()` in the kernel's mm/memory.c), so a forked child's first instruction faults
//! on its own address. A child that shares its parent's memory runs on pages that the parent has
//! just used. The child's stack at that first fault is a copy of its parent's, and gives the call
//! place.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::record::{PerfRecord, PerfRecordKind, UserStack};
use crate::creation::{CallerMemory, ChildEnd, CloneFlags, Creation, CreationKind, Place, ProgramKey};
use crate::event::{CpuSamples, CreatingThread, Event, SeenProgram, StackTop, Totals};
use crate::procfs;
use crate::program::KnownProgram;
use crate::ring::CLASS_CREATION;
use crate::stack::ReturnAt;

/// Children followed at one time. Further ones are counted as lost.
const MAX_CHILDREN: usize = 16_384;
/// Callers whose places, and threads whose allocations, are remembered.
const MAX_CALLERS: usize = 16_384;
/// A child with this many faults before its exec has its own memory, even if its first fault was
/// missed. With stack samples each fault comes twice.
const FAULTS_OF_A_COPY: u32 = 16;
/// `syscall`, or `svc #0`.
#[cfg(target_arch = "x86_64")]
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
#[cfg(target_arch = "aarch64")]
const SYSTEM_CALL: [u8; 4] = 0xd400_0001_u32.to_le_bytes();
/// `CLONE_VM`. It also marks creations of which it is not known whether memory was copied: they are
/// never a finding.
const SHARED: u64 = 0x100;
/// `CLONE_VFORK` without `CLONE_VM`: the flags of a speculated fork.
const SPECULATED: u64 = 0x4000;

/// The code that tells the callers of a process apart.
#[derive(Debug)]
struct KnownCode {
    program: Range<u64>,
    /// One for each system call of the C library that creates processes.
    returns: Vec<ReturnAt>,
}

/// A child from its creation to its end.
#[derive(Debug)]
struct Tracked {
    creation: Creation,
    /// The flags, by the tracepoint or the child's faults.
    flags: Option<u64>,
    /// The caller's last allocation before it.
    allocated: Option<u64>,
    faults: u32,
    awaits_path: bool,
}

/// The program of a process.
#[derive(Debug, Clone)]
struct Running {
    image: u64,
    known: Arc<KnownProgram>,
    awaits_path: bool,
    /// Creations so far, each of which may be by a process that has renamed itself.
    creations: u64,
}

#[derive(Debug, Default)]
pub(super) struct Follow {
    children: HashMap<u32, Tracked>,
    /// By process: the place of its last known creation.
    places: HashMap<u32, Place>,
    /// By thread: the time of its last allocation for a memory descriptor.
    allocations: HashMap<u32, u64>,
    /// By thread: the process it has just created, `None` for a thread. The tracepoint comes right
    /// after the record (copy_process() and kernel_clone() in kernel/fork.c).
    made: HashMap<u32, Option<u32>>,
    /// By process: since its exec.
    known_code: HashMap<u32, KnownCode>,
    /// By caller: its memory when last seen since its exec. A short program's last forks are read
    /// after its end.
    memories: HashMap<u32, CallerMemory>,
    /// By process: the program that it is.
    programs: HashMap<u32, Running>,
    /// The last image that was made up.
    made_up: u64,
    /// By process and address: whether a system call returns there.
    returns: HashMap<(u32, u64), bool>,
    samples: HashMap<u32, CpuSamples>,
    totals: Totals,
    /// Page-fault samples lost for want of room.
    pub(super) lost_samples: u64,
    /// Full forks whose copied memory is unknown because their callers were gone.
    pub(super) unpriced: u64,
    /// The kernel's `kernel_clone`, if its address may be known.
    kernel_clone: Option<std::ops::Range<u64>>,
}

impl Follow {
    pub(super) fn new(kernel_clone: Option<std::ops::Range<u64>>) -> Self {
        let totals = Totals { threads: Some(0), ..Totals::default() };
        Self { kernel_clone, totals, ..Self::default() }
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn samples(&self) -> &HashMap<u32, CpuSamples> {
        &self.samples
    }

    /// The creations whose children still live, the oldest first.
    pub(super) fn living(&self) -> Vec<Creation> {
        let mut found: Vec<Creation> = self.children.values().map(|tracked| self.settled(tracked)).collect();
        found.sort_by_key(|creation| (creation.at_ns, creation.child));
        found
    }

    /// Counts lost records of tasks.
    pub(super) fn lost(&mut self, records: u64) {
        self.totals.lost_ring += records;
    }

    /// Takes the next record in; records come in the order of their times.
    pub(super) fn take(&mut self, record: PerfRecord, sink: &mut impl FnMut(Event)) {
        let PerfRecord { time, process, thread, what } = record;
        match what {
            PerfRecordKind::Fork { child, child_process, .. } if child != child_process => {
                self.made_by_child(process);
                *self.totals.threads.get_or_insert(0) += 1;
                self.made.insert(thread, None);
            }
            PerfRecordKind::Fork { child, memory, .. } => {
                self.made_by_child(process);
                let memory = self.memory_of(process, memory);
                let (image, comm) = self.creates(process, sink);
                self.forked(Creation { memory, ..creation(time, process, thread, child, image, comm) });
            }
            PerfRecordKind::Exec { comm, argv, image } => {
                self.became(process, comm.clone(), argv.clone(), image);
                self.known_code.remove(&process);
                self.places.remove(&process);
                self.memories.remove(&process);
                self.allocations.remove(&thread);
                if let Some(tracked) = self.children.get_mut(&process) {
                    tracked.executed(time, thread, comm, argv);
                }
            }
            PerfRecordKind::Map { path } => {
                if let Some(program) = self.programs.get_mut(&process)
                    && std::mem::take(&mut program.awaits_path)
                {
                    Arc::make_mut(&mut program.known).exe = Some(path.clone());
                }
                if let Some(tracked) = self.children.get_mut(&process)
                    && std::mem::take(&mut tracked.awaits_path)
                {
                    tracked.creation.exec_path = Some(path);
                }
            }
            PerfRecordKind::Renamed { comm } => {
                // Threads have names of their own.
                if let Some(program) = self.programs.get_mut(&process).filter(|_| process == thread) {
                    Arc::make_mut(&mut program.known).comm = comm;
                    program.creations = 0;
                }
            }
            PerfRecordKind::Exit => {
                self.allocations.remove(&thread);
                self.made.remove(&thread);
                if process == thread {
                    self.ended(time, process, sink);
                }
            }
            PerfRecordKind::Fault { ip, address, stack } => self.fault(process, ip, address, stack, sink),
            PerfRecordKind::NewTask { flags, stack } => {
                if let Some(Some(child)) = self.made.remove(&thread) {
                    self.told(child, flags, stack, sink);
                }
            }
            PerfRecordKind::Allocation => {
                if self.allocations.len() < MAX_CALLERS || self.allocations.contains_key(&thread) {
                    self.allocations.insert(thread, time);
                }
            }
            PerfRecordKind::Running { kernel } => self.running(process, &kernel),
            PerfRecordKind::Lost(_) => {}
        }
    }

    /// A caller's memory; the last known one if the caller was gone.
    fn memory_of(&mut self, caller: u32, seen: CallerMemory) -> CallerMemory {
        if seen == CallerMemory::default() {
            return self.memories.get(&caller).copied().unwrap_or_default();
        }
        if self.memories.len() < MAX_CALLERS || self.memories.contains_key(&caller) {
            self.memories.insert(caller, seen);
        }
        seen
    }

    /// Notes an exec.
    fn became(&mut self, process: u32, comm: String, arguments: Vec<String>, image: Option<u64>) {
        let image = image.unwrap_or_else(|| self.make_up());
        let known = Arc::new(KnownProgram { comm, arguments, ..KnownProgram::default() });
        self.remember(process, Running { image, known, awaits_path: true, creations: 0 });
    }

    fn make_up(&mut self) -> u64 {
        self.made_up += 1;
        ProgramKey::MADE_UP + self.made_up
    }

    fn remember(&mut self, process: u32, program: Running) {
        if self.programs.len() >= MAX_CALLERS && !self.programs.contains_key(&process) {
            self.programs.clear();
        }
        self.programs.insert(process, program);
    }

    /// The program that creates, and its name. At the 1st, 2nd, 4th, 8th ... creation the program
    /// is told to `sink`, with the title that it has by then.
    fn creates(&mut self, process: u32, sink: &mut impl FnMut(Event)) -> (u64, String) {
        if !self.programs.contains_key(&process) {
            // It began before the watch.
            let image = procfs::arguments_at(process).unwrap_or_else(|| self.make_up());
            let known = Arc::new(procfs::program_of(process).unwrap_or_default());
            self.remember(process, Running { image, known, awaits_path: false, creations: 0 });
        }
        let Some(program) = self.programs.get_mut(&process) else { return Default::default() };
        program.creations += 1;
        if program.creations.is_power_of_two() {
            let key = ProgramKey { pid: process, image: program.image };
            // Otherwise what the records have told is all that is known.
            if procfs::is_still(key) == Some(true) {
                let known = Arc::make_mut(&mut program.known);
                known.arguments = procfs::arguments(process);
                known.cgroup = procfs::cgroup_of(process);
            }
            let known = KnownProgram::clone(&program.known);
            sink(Event::Program(SeenProgram { key, known, cut: false }));
        }
        (program.image, program.known.comm.clone())
    }

    /// This process creates a thread or a process. It may be a child that has executed nothing.
    fn made_by_child(&mut self, process: u32) {
        if let Some(Tracked { creation, .. }) = self.children.get_mut(&process)
            && creation.execs == 0
        {
            creation.child_made += 1;
        }
    }

    fn forked(&mut self, creation: Creation) {
        let (thread, child) = (creation.caller_thread, creation.child);
        self.totals.creations += 1;
        if self.children.len() >= MAX_CHILDREN || self.made.len() >= MAX_CALLERS {
            self.totals.lost_live += 1;
            return;
        }
        self.made.insert(thread, Some(child));
        // Forget the pid's last owner, in case its exit was lost.
        self.places.remove(&child);
        self.known_code.remove(&child);
        self.memories.remove(&child);
        // Until its exec a child is its parent's program.
        match self.programs.get(&creation.caller).cloned() {
            Some(program) => self.remember(child, Running { awaits_path: false, creations: 0, ..program }),
            None => drop(self.programs.remove(&child)),
        }
        let allocated = self.allocations.remove(&thread);
        self.children
            .insert(child, Tracked { creation, flags: None, allocated, faults: 0, awaits_path: false });
    }

    /// Takes in the tracepoint of a creation.
    fn told(&mut self, child: u32, flags: u64, stack: UserStack, sink: &mut impl FnMut(Event)) {
        let Some(caller) = self.children.get(&child).map(|tracked| tracked.creation.caller) else { return };
        let place = self.place(caller, stack, sink);
        let Some(tracked) = self.children.get_mut(&child) else { return };
        tracked.flags = Some(flags);
        tracked.creation.place = place;
        // A creation that shares memory makes no memory descriptor: its allocation was for
        // something else.
        if flags & SHARED == 0
            && let Some(began) = tracked.allocated
        {
            let copied = tracked.creation.at_ns;
            tracked.creation.at_ns = began;
            tracked.creation.copy_ns = Some(copied.saturating_sub(began));
        }
    }

    /// Makes a place of a caller's stack, and hands the stack on.
    fn place(&mut self, caller: u32, stack: UserStack, sink: &mut impl FnMut(Event)) -> Place {
        let word = self.word_of_caller(caller, &stack);
        let image = self.programs.get(&caller).map_or(0, |program| program.image);
        let place = Place { pid: caller, nr: 0, ip: stack.ip, word, image };
        if self.places.len() < MAX_CALLERS || self.places.contains_key(&caller) {
            self.places.insert(caller, place);
        }
        if stack.ip != 0 && !stack.top.is_empty() {
            let UserStack { fp, lr, sp, top, .. } = stack;
            // First of all: the caller does not wait long.
            sink(Event::Caller(Box::new(CreatingThread {
                pid: caller,
                thread: 0,
                stack_pointer: sp,
                asked: 0,
                moment: None,
                stands_for: 1,
            })));
            sink(Event::Stack(StackTop { place, class: CLASS_CREATION, stands_for: 1, sp, fp, lr, top }));
        }
        place
    }

    /// `word` of the BPF tiers' `struct place`.
    fn word_of_caller(&mut self, caller: u32, stack: &UserStack) -> u64 {
        if self.known_code.len() >= MAX_CALLERS {
            self.known_code.clear();
        }
        let known = self.known_code.entry(caller).or_insert_with(|| KnownCode {
            program: procfs::text_range(caller).unwrap_or_default(),
            returns: Vec::new(),
        });
        let words = stack.top.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        let told = known.returns.iter().find(|told| told.ip == stack.ip).and_then(|told| {
            let word = words.clone().nth(told.above_sp as usize / 8)?;
            told.code.contains(&word).then_some(word)
        });
        told.or_else(|| words.take(48).find(|word| known.program.contains(word))).unwrap_or(0)
    }

    pub(super) fn tell_return(&mut self, found: ReturnAt) {
        let Some(known) = self.known_code.get_mut(&found.program.pid) else { return };
        known.returns.retain(|told| told.ip != found.ip);
        known.returns.push(found);
    }

    fn fault(
        &mut self,
        process: u32,
        ip: u64,
        address: u64,
        stack: Option<UserStack>,
        sink: &mut impl FnMut(Event),
    ) {
        let page_mask = !(rustix::param::page_size() as u64 - 1);
        let Some(tracked) = self.children.get(&process).filter(|tracked| !tracked.creation.execed()) else {
            return;
        };
        let undecided = tracked.flags.is_none() || tracked.creation.place.nr == UNPLACED;
        // The fault must be where the creation returned: a child that shares memory may be the
        // first to run another page.
        let is_first = ip & page_mask == address & page_mask
            && undecided
            && self.is_after_system_call(tracked.creation.caller, process, ip);
        let Some(tracked) = self.children.get_mut(&process) else { return };
        tracked.faults += 1;
        if tracked.flags.is_none() && (is_first || tracked.faults >= FAULTS_OF_A_COPY) {
            tracked.flags = Some(if is_speculating(tracked.creation.caller) { SPECULATED } else { 0 });
        }
        if let Some(stack) = stack {
            // Only the first fault's stack: later ones belong to the child's own calls.
            if is_first && tracked.creation.place.nr == UNPLACED {
                let caller = tracked.creation.caller;
                let place = self.place(caller, stack, sink);
                if let Some(tracked) = self.children.get_mut(&process) {
                    tracked.creation.place = place;
                }
            }
        }
    }

    /// Whether the instruction before this address is a system call. If the memory cannot be read,
    /// it is assumed.
    fn is_after_system_call(&mut self, caller: u32, child: u32, ip: u64) -> bool {
        if self.returns.len() >= MAX_CALLERS {
            self.returns.clear();
        }
        let answer = self.returns.entry((caller, ip));
        *answer.or_insert_with(|| {
            // The caller may have ended; the child's code is the same.
            let before = [caller, child]
                .into_iter()
                .find_map(|pid| procfs::code_before::<{ SYSTEM_CALL.len() }>(pid, ip));
            before.is_none_or(|code| code == SYSTEM_CALL)
        })
    }

    fn ended(&mut self, time: u64, process: u32, sink: &mut impl FnMut(Event)) {
        self.known_code.remove(&process);
        self.memories.remove(&process);
        self.programs.remove(&process);
        let last_place = self.places.remove(&process);
        let Some(mut tracked) = self.children.remove(&process) else {
            // It may still be the caller of its own children.
            if let Some(place) = last_place {
                self.places.insert(process, place);
            }
            return;
        };
        tracked.creation.lifetime_ns = Some(time.saturating_sub(tracked.creation.at_ns));
        tracked.creation.end = ChildEnd::Unknown;
        let creation = self.settled(&tracked);
        if creation.kind == CreationKind::FullFork && creation.memory == CallerMemory::default() {
            self.unpriced += 1;
        }
        sink(Event::Created(Box::new(creation)));
    }

    /// The creation as far as it is known. A missed place is replaced by its caller's last one.
    fn settled(&self, tracked: &Tracked) -> Creation {
        let mut creation = tracked.creation.clone();
        creation.flags = CloneFlags(tracked.flags.unwrap_or(SHARED));
        creation.kind = creation.flags.kind();
        if creation.place.nr == UNPLACED {
            let known = self.places.get(&creation.caller).copied();
            creation.place = known.unwrap_or(Place { nr: 0, ..creation.place });
        }
        creation
    }

    fn running(&mut self, process: u32, kernel: &[u64]) {
        if self.samples.len() >= MAX_CALLERS && !self.samples.contains_key(&process) {
            return;
        }
        let samples = self.samples.entry(process).or_default();
        samples.all += 1;
        samples.in_kernel += u64::from(!kernel.is_empty());
        if let Some(clone) = &self.kernel_clone {
            samples.creating += u64::from(kernel.iter().any(|address| clone.contains(address)));
        }
    }
}

/// `Place::nr` of a creation whose place is not known yet.
const UNPLACED: u32 = u32::MAX;

impl Tracked {
    fn executed(&mut self, time: u64, thread: u32, comm: String, argv: Vec<String>) {
        let creation = &mut self.creation;
        creation.execs += 1;
        if creation.execs > 1 {
            return;
        }
        creation.until_exec_ns = Some(time.saturating_sub(creation.at_ns));
        creation.exec_thread = Some(thread);
        creation.child_comm = comm;
        creation.argv = argv;
        self.awaits_path = true;
    }
}

/// Whether the preloaded library is in the process: then its forks are speculated.
fn is_speculating(pid: u32) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|&byte| byte == 0)
        .filter(|variable| variable.starts_with(b"LD_PRELOAD="))
        .any(|variable| String::from_utf8_lossy(variable).contains("forkless_preload"))
}

fn creation(time: u64, caller: u32, thread: u32, child: u32, image: u64, comm: String) -> Creation {
    Creation {
        caller,
        caller_thread: thread,
        caller_comm: comm,
        place: Place { pid: caller, nr: UNPLACED, ip: 0, word: 0, image },
        child,
        at_ns: time,
        ..Creation::unseen()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Above pid_max: nothing in /proc answers for it.
    const CALLER: u32 = 1 << 23;
    const CHILD: u32 = CALLER + 1;

    fn run(records: &[(u64, u32, PerfRecordKind)]) -> (Follow, Vec<Creation>) {
        let mut follow = Follow::new(Some(0x1000..0x2000));
        let mut created = Vec::new();
        for (time, process, what) in records {
            let record = PerfRecord { time: *time, process: *process, thread: *process, what: what.clone() };
            follow.take(record, &mut |event| {
                if let Event::Created(creation) = event {
                    created.push(*creation);
                }
            });
        }
        (follow, created)
    }

    fn fork() -> PerfRecordKind {
        fork_of(CallerMemory::default())
    }

    fn fork_of(memory: CallerMemory) -> PerfRecordKind {
        PerfRecordKind::Fork { child: CHILD, child_process: CHILD, memory }
    }

    fn fault(ip: u64, address: u64) -> PerfRecordKind {
        PerfRecordKind::Fault { ip, address, stack: None }
    }

    #[test]
    fn a_child_that_faults_on_its_own_instruction_has_copied_memory() {
        let exec = PerfRecordKind::Exec { comm: "true".into(), argv: Vec::new(), image: None };
        let map = PerfRecordKind::Map { path: "/bin/true".into() };
        let (_, created) = run(&[
            (10, CALLER, fork()),
            (11, CHILD, fault(0x7000_0123, 0x7000_0123)),
            (15, CHILD, exec),
            (16, CHILD, map),
            (17, CHILD, PerfRecordKind::Map { path: "/lib/ld.so".into() }),
            (30, CHILD, PerfRecordKind::Exit),
        ]);
        assert_eq!(created.len(), 1);
        assert_eq!(created[0].kind, crate::CreationKind::FullFork);
        assert_eq!(created[0].exec_path.as_deref(), Some("/bin/true"));
        assert_eq!((created[0].until_exec_ns, created[0].lifetime_ns), (Some(5), Some(20)));
        assert_eq!(created[0].end, ChildEnd::Unknown);
    }

    #[test]
    fn a_fault_on_another_instruction_than_the_first_is_no_copy() {
        let here = std::process::id();
        let function = a_child_on_a_fresh_stack_shares_memory as fn() as usize as u64;
        let (_, created) = run(&[
            (10, here, fork()),
            (11, CHILD, fault(function, function)),
            (30, CHILD, PerfRecordKind::Exit),
        ]);
        assert_eq!(created[0].kind, crate::CreationKind::SharedMemory);
    }

    #[test]
    fn a_child_on_a_fresh_stack_shares_memory() {
        let (_, created) = run(&[
            (10, CALLER, fork()),
            (11, CHILD, fault(0x7000_0123, 0x5000_0ff8)),
            (12, CHILD, fault(0x7000_0130, 0x5000_2ff8)),
            (30, CHILD, PerfRecordKind::Exit),
        ]);
        assert_eq!(created[0].kind, crate::CreationKind::SharedMemory);
        assert!(!created[0].execed());
    }

    #[test]
    fn faults_after_the_exec_say_nothing_about_the_creation() {
        let exec = PerfRecordKind::Exec { comm: "true".into(), argv: Vec::new(), image: None };
        let records = [
            (10, CALLER, fork()),
            (11, CHILD, exec),
            (12, CHILD, fault(1, 1)),
            (13, CHILD, PerfRecordKind::Exit),
        ];
        assert_eq!(run(&records).1[0].kind, crate::CreationKind::SharedMemory);
    }

    #[test]
    fn the_tracepoint_tells_flags_and_the_length_of_the_copy() {
        let task = PerfRecordKind::NewTask { flags: 0x0120_0000, stack: UserStack::default() };
        let (_, created) = run(&[
            (5, CALLER, PerfRecordKind::Allocation),
            (105, CALLER, fork()),
            (106, CALLER, task),
            (200, CHILD, PerfRecordKind::Exit),
        ]);
        assert_eq!(created[0].flags, CloneFlags(0x0120_0000));
        assert_eq!((created[0].at_ns, created[0].copy_ns), (5, Some(100)));
    }

    #[test]
    fn what_the_tracepoint_tells_of_a_thread_is_not_the_last_processs() {
        let task = PerfRecordKind::NewTask { flags: 0x0001_0100, stack: UserStack::default() };
        let thread =
            PerfRecordKind::Fork { child: CHILD + 1, child_process: CALLER, memory: CallerMemory::default() };
        let (follow, created) = run(&[
            (1, CALLER, fork()),
            (2, CALLER, thread),
            (3, CALLER, task),
            (4, CHILD, PerfRecordKind::Exit),
        ]);
        assert_eq!((follow.totals().threads, follow.totals().creations), (Some(1), 1));
        assert_eq!(created[0].flags, CloneFlags(SHARED));
    }

    #[test]
    fn what_a_child_makes_before_its_exec_is_counted() {
        let thread = || PerfRecordKind::Fork {
            child: CHILD + 1,
            child_process: CHILD,
            memory: CallerMemory::default(),
        };
        let exec = PerfRecordKind::Exec { comm: "true".to_owned(), argv: Vec::new(), image: None };
        let (_, created) = run(&[
            (1, CALLER, fork()),
            (2, CHILD, thread()),
            (3, CHILD, exec),
            (4, CHILD, thread()),
            (5, CHILD, PerfRecordKind::Exit),
        ]);
        assert_eq!(created[0].child_made, 1);
    }

    #[test]
    fn what_lives_is_bounded_and_what_does_not_fit_is_counted() {
        let mut follow = Follow::new(None);
        let mut take = |process, what| {
            follow.take(PerfRecord { time: 1, process, thread: process, what }, &mut |_| {});
        };
        for child in 0..20_000 {
            let memory = CallerMemory { anon: 4096, ..CallerMemory::default() };
            take(CALLER, PerfRecordKind::Fork { child: CHILD + child, child_process: CHILD + child, memory });
            take(CHILD + child, PerfRecordKind::Running { kernel: Vec::new() });
            take(CHILD + child, PerfRecordKind::Allocation);
        }
        assert_eq!(follow.totals().creations, 20_000);
        assert_eq!(follow.totals().lost_live, 20_000 - MAX_CHILDREN as u64);
        assert!(follow.samples.len() <= MAX_CALLERS && follow.allocations.len() <= MAX_CALLERS);
    }

    #[test]
    fn a_caller_that_was_gone_had_the_memory_that_it_last_had_since_its_exec() {
        let memory = CallerMemory { anon: 64 << 20, ..CallerMemory::default() };
        let exec = PerfRecordKind::Exec { comm: "true".into(), argv: Vec::new(), image: None };
        let copied = || fault(0x7000_0123, 0x7000_0123);
        let (follow, created) = run(&[
            (10, CALLER, fork_of(memory)),
            (20, CHILD, PerfRecordKind::Exit),
            (30, CALLER, fork()),
            (31, CHILD, copied()),
            (40, CHILD, PerfRecordKind::Exit),
            (50, CALLER, exec),
            (60, CALLER, fork()),
            (61, CHILD, copied()),
            (70, CHILD, PerfRecordKind::Exit),
        ]);
        let memories: Vec<_> = created.iter().map(|creation| creation.memory).collect();
        assert_eq!(memories, [memory, memory, CallerMemory::default()]);
        assert_eq!(follow.unpriced, 1);
    }

    #[test]
    fn samples_below_kernel_clone_are_told_from_others() {
        let (follow, _) = run(&[
            (1, CALLER, PerfRecordKind::Running { kernel: vec![0x9000, 0x1800, 0x9100] }),
            (2, CALLER, PerfRecordKind::Running { kernel: vec![0x9000] }),
            (3, CALLER, PerfRecordKind::Running { kernel: Vec::new() }),
        ]);
        assert_eq!(follow.samples()[&CALLER], CpuSamples { all: 3, in_kernel: 2, creating: 1 });
    }
}
