//! Findings: problems with their cost, place and remedy. Each module holds a family of findings,
//! made from the collected sums and the cost model. Nothing below the thresholds is reported: a
//! healthy machine has no findings.

mod advice;
mod bystanders;
mod calls;
mod erosion;
mod execs;
mod forks;
mod gathering;
mod loops;
mod recipes;
mod refused;
mod shells;
mod storms;

use std::collections::HashMap;

use serde::Serialize;

use crate::collect::{Collected, Group, LineCounts, LineShare, Outcome, PageHistory, Starters};
use crate::creation::{Place, ProgramKey};
use crate::estimate::Estimate;
use crate::interpreter::Family;
use crate::mappings::MappingCount;
use crate::model::{CostModel, Speculation};
use crate::procfs;
use crate::program::{KnownProgram, ProcessName};
use crate::reach::{Everywhere, Obstacle, Reach};
use crate::remedy::{FollowUp, Remedy, StartedProgram, Treatment};
use crate::stack::{Frame, NoLine, frames_of_linked_c_library};

/// Declares the kinds with the name that each has in JSON and in metrics.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// The kinds of findings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        #[non_exhaustive]
        pub enum FindingKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)*
        }

        impl FindingKind {
            /// The name it has in JSON and in metrics.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// The page tables are copied only to be thrown away by an exec.
    FullForkThenExec = "full_fork_then_exec",
    /// An intended fork (a snapshot, a worker) copies more page-table entries than necessary.
    ForkOfSmallPages = "fork_of_small_pages",
    /// An intended fork copies very many mappings.
    ForkOfManyMappings = "fork_of_many_mappings",
    /// A shell is started for a line that does not need one.
    NeedlessShell = "needless_shell",
    /// rt_sigprocmask calls that change nothing.
    NeedlessSignalMask = "needless_signal_mask",
    /// /etc/localtime is looked at again and again.
    LocaltimeLookups = "localtime_lookups",
    /// Descriptors that nobody opened are closed one by one.
    CloseLoop = "close_loop",
    /// Programs are searched along PATH by failing execs.
    PathSearch = "path_search",
    /// A program that does not exist is executed again and again.
    MissingProgram = "missing_program",
    /// Execs fail because the file is still open for writing.
    TextFileBusy = "text_file_busy",
    /// A system call that takes a large share of a process's time and always returns the same.
    ConstantSystemCall = "constant_system_call",
    /// Buffered writes of parts of blocks to a device, which make the kernel read.
    PartialBlockWrites = "partial_block_writes",
    /// A script, xargs, find or make starts many short programs, one after another or beside each
    /// other.
    StartStorm = "start_storm",
    /// The kernel refuses to create processes or threads: a limit was reached.
    ForkRefused = "fork_refused",
    /// An event loop's thread creates processes itself, or waits for them.
    LoopBlocked = "loop_blocked",
    /// Other threads of a process wait while it forks.
    Bystanders = "bystanders",
    /// Forked workers make pages private that they could share.
    CowErosion = "cow_erosion",
}

/// The cost of a finding, summed over the watch. `None` is a part that was neither measured nor
/// priced.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Cost {
    /// Nanoseconds spent in the calling threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller_ns: Option<f64>,
    /// Nanoseconds spent in the children, before they did anything of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_ns: Option<f64>,
    /// Nanoseconds of the write-protect faults that followed in the caller: their count times the
    /// model's price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_ns: Option<f64>,
    /// Nanoseconds that other threads of the caller waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others_ns: Option<f64>,
    /// All of it as a share of one CPU over the watch.
    pub cpu_share: f64,
}

/// The times of one full fork, in nanoseconds. Medians, since preemption makes some forks longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ForkTimes {
    /// fork() in its caller, from the system call's entry until the caller runs on.
    pub call: Estimate,
    /// From the finished copy to the new program in place, in the child.
    pub until_exec: Option<Estimate>,
    /// The exec's part of it, which also tears the copied page tables down.
    pub exec: Option<Estimate>,
}

/// A measured fact behind a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evidence {
    /// The name of the fact.
    pub what: String,
    /// The value, with its unit.
    pub value: String,
}

/// A problem with its cost, place and remedy.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The finding in one line.
    pub title: String,
    /// The process.
    pub process: ProcessName,
    /// One of the processes, for commands that take a pid.
    pub pid: u32,
    /// Number of processes of that name.
    pub processes: u64,
    /// The place's stack, innermost frame first; empty if it could not be read.
    pub stack: Vec<Frame>,
    /// The user's lines, the most frequent first, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineShare>,
    /// Number of occurrences.
    pub count: u64,
    /// Occurrences a second.
    pub per_second: f64,
    /// Its cost.
    pub cost: Cost,
    /// Times of one fork, for forks.
    pub fork_times: Option<ForkTimes>,
    /// The facts.
    pub evidence: Vec<Evidence>,
    /// The reason of the cost, in a sentence.
    pub reason: String,
    /// The change to the program that removes the cost: a sentence without its full stop.
    #[serde(skip)]
    pub explanation: String,
    /// What removes the cost without such a change.
    #[serde(skip)]
    pub remedy: Remedy,
    /// What keeps the preloaded library from removing it, where it removes the cost of others of
    /// this kind.
    #[serde(skip)]
    pub obstacle: Option<Obstacle>,
    /// Nanoseconds that the remedy saves at each occurrence, in the caller and the child together.
    pub saving_each_ns: Estimate,
    /// The caller's part of it, where it is known: its pause in the call, and its faults
    /// afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saving_in_caller_ns: Option<Estimate>,
    /// Saved over the watch, as a share of one CPU.
    pub saving_share: Estimate,
    /// What shows whether it is gone.
    #[serde(skip)]
    pub check: FollowUp,
    /// Its finder says so of a failure, and where it looks at the sum of the costs itself, since a
    /// pause counts, too.
    #[serde(skip)]
    pub(crate) counts_at_any_cost: bool,
}

impl Finding {
    /// The place in the program: the innermost frame of its stack that is the user's code, and no
    /// standard library's.
    ///
    /// The frames of a script come first, before those of its interpreter. A shared library's code
    /// without a line is believed to be the user's only if no other frame has a line: then it is
    /// debug information that tells the user's code.
    ///
    /// Of an interpreter that writes it is the function that does so, with a name or without: none
    /// of its callers does.
    pub fn place(&self) -> Option<&Frame> {
        let own = self.stack.iter().find(|frame| !frame.is_of_library());
        let writes = own.filter(|frame| self.kind == FindingKind::CowErosion && frame.is_of_interpreter());
        writes.or_else(|| place_in(&self.stack))
    }

    /// What is missing at the place of an interpreter: "the line of its Python code". The evidence
    /// of that name says why.
    #[must_use]
    pub fn unread_line(&self) -> Option<&str> {
        let is_of_script = |what: &&str| what.starts_with(forks::LINE_OF) || *what == METHOD;
        self.evidence.iter().map(|said| said.what.as_str()).find(is_of_script)
    }

    /// Whether the place is, or may be, that of other forks. The evidence of that name says why.
    #[must_use]
    pub fn is_place_of_others(&self) -> bool {
        self.evidence.iter().any(|said| said.what.starts_with(forks::ITS_PLACE))
    }

    /// Why there is no place.
    #[must_use]
    pub fn unknown_place(&self) -> Option<&str> {
        let said = self.evidence.iter().find(|said| said.what == PLACE)?;
        said.value.strip_prefix(NOT_KNOWN)
    }

    /// The same as a fact, where the finder knows no other reason.
    fn place_evidence(&self) -> Option<Evidence> {
        if self.place().is_some() || self.unknown_place().is_some() {
            return None;
        }
        Some(no_place(if self.stack.is_empty() {
            "no stack was read, as the process was gone or the calls were too few"
        } else if self.stack.iter().any(Frame::is_of_forkless) {
            "the stack ends in Forkless's library, which forks on a stack of its own"
        } else {
            "the stack that was read ends in the C library"
        }))
    }

    /// Why the place has no line of a script, if it could have one and the finder has not said.
    fn script_evidence(&self, context: &Context<'_>) -> Option<Evidence> {
        let creates = match self.kind {
            FindingKind::FullForkThenExec
            | FindingKind::ForkOfSmallPages
            | FindingKind::ForkOfManyMappings
            | FindingKind::NeedlessShell
            | FindingKind::PathSearch
            | FindingKind::MissingProgram
            | FindingKind::TextFileBusy
            | FindingKind::StartStorm
            | FindingKind::LoopBlocked
            | FindingKind::Bystanders => true,
            // Their functions are the interpreter's.
            _ => false,
        };
        let place = self.place().filter(|place| creates && !place.is_of_script())?;
        if self.unread_line().is_some() || !(place.is_of_interpreter() || place.is_of_shared_library()) {
            return None;
        }
        // A library of the language's own calls for its script, too (_posixsubprocess.so).
        let language = self.stack.iter().find_map(|frame| Family::of_file(&frame.module)?.language())?;
        let readings = context.collected.lines.unread(self.pid);
        let why = readings.map_or_else(
            || "not known: the program had gone on before it was read".to_owned(),
            |unread| format!("not known after {} readings: {}", unread.count, unread.why),
        );
        Some(evidence(&format!("{} {language} code", forks::LINE_OF), why))
    }

    /// Why the place has no line, if it could have one.
    fn line_evidence(&self) -> Option<Evidence> {
        let place = self.place().filter(|place| place.line.is_none() && !place.is_of_interpreter())?;
        // Java's own library forks for a method. The place is then what its stack has below that.
        if !place.is_compiled() && self.stack.iter().any(|frame| frame.module.ends_with("/libjava.so")) {
            let how =
                "run java with -XX:+PreserveFramePointer, and jcmd PID Compiler.perfmap before the watch";
            return Some(evidence(METHOD, format!("{NOT_KNOWN}{how}")));
        }
        let why = match place.no_line? {
            NoLine::NotInstalled => {
                "no debug information: build it with -g, or install its package of symbols (-dbgsym, -debuginfo)"
            }
            NoLine::NotCovered => "its debug information does not cover this code",
            NoLine::TooLarge => "its debug information is too large to be read here",
            NoLine::Broken => "its debug information cannot be read",
            NoLine::TooSlow => "its debug information takes too long to read",
        };
        Some(evidence("the line of the place", format!("not known: {}: {why}", place.module)))
    }
}

/// The name of the fact about a place that is not known, and how its value begins.
const PLACE: &str = "the place";
const NOT_KNOWN: &str = "not known: ";
/// The name of the fact about a method of Java that is not known.
const METHOD: &str = "the method of the place";

/// The fact that there is no place, for this reason.
fn no_place(why: &str) -> Evidence {
    evidence(PLACE, format!("{NOT_KNOWN}{why}"))
}

/// The frame of a stack that is the user's code; see [`Finding::place`].
fn place_in(stack: &[Frame]) -> Option<&Frame> {
    let of_linked = frames_of_linked_c_library(stack);
    let stack = || stack[of_linked..].iter();
    let of_user = |frame: &&Frame| !frame.is_of_library();
    let of_program = |frame: &&Frame| !frame.is_of_c_library() && !frame.is_of_forkless();
    let named = |frame: &&Frame| frame.function.is_some();
    let first = stack().filter(of_user).find(named);
    let with_line = || {
        let known = |frame: &&Frame| frame.line.is_some() && !frame.is_of_shared_library();
        stack().filter(of_user).filter(named).find(known)
    };
    first
        .filter(|frame| frame.is_of_shared_library() && frame.line.is_none())
        .and_then(|_| with_line())
        .or(first)
        .or_else(|| stack().filter(of_program).find(named))
        .or_else(|| stack().find(of_program))
}

/// The least costs of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Thresholds {
    /// Saved share of one CPU.
    pub share: f64,
    /// Or: pause of the caller at each occurrence, nanoseconds (for forks).
    pub pause_ns: f64,
    /// Findings about system calls: share of the process's CPU time.
    pub process_share: f64,
    /// And, unless it is for a pause or a failure: cost of all occurrences together, nanoseconds.
    pub total_ns: f64,
}

impl Thresholds {
    /// Those for a share of one CPU: pauses of 1 ms, ten times the share of a process's time, and
    /// that share of ten seconds in all.
    #[must_use]
    pub fn of(share: f64) -> Self {
        Self { share, pause_ns: 1e6, process_share: 10.0 * share, total_ns: 10e9 * share }
    }
}

impl Default for Thresholds {
    /// Those for 0.1 % of a CPU.
    fn default() -> Self {
        Self::of(0.001)
    }
}

/// A process that still runs, and still is the program. A zombie does not, such as a watched
/// command after its end.
fn living(programs: &[ProgramKey]) -> Option<u32> {
    let runs = |program: &ProgramKey| procfs::runs(program.pid) && procfs::is_still(*program) != Some(false);
    programs.iter().find(|program| runs(program)).map(|program| program.pid)
}

/// The processes of these programs.
fn processes(programs: &[ProgramKey]) -> Vec<u32> {
    let mut pids: Vec<u32> = programs.iter().map(|program| program.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Another diagnosis, of a process that still runs.
fn diagnose_again(programs: &[ProgramKey]) -> FollowUp {
    FollowUp::Diagnose { pid: living(programs) }
}

/// By thread leader's name: the program of all processes of that name, or `None` if they differ.
pub(crate) type Namesakes<'c> = HashMap<&'c str, Option<&'c ProcessName>>;

/// Finds the programs of processes by the thread leader's name.
pub(crate) fn namesakes(collected: &Collected) -> Namesakes<'_> {
    let mut by_name: Namesakes<'_> = HashMap::new();
    for name in collected.programs.names().filter(|name| name.exe.is_some()) {
        let alike = |first: &&ProcessName| {
            (&first.exe, &first.name, &first.cgroup) == (&name.exe, &name.name, &name.cgroup)
        };
        by_name.entry(&name.comm).and_modify(|known| *known = known.filter(alike)).or_insert(Some(name));
    }
    by_name
}

/// The input of the finders.
pub(crate) struct Context<'c> {
    pub(crate) collected: &'c Collected,
    pub(crate) groups: &'c HashMap<(Place, Outcome), Group>,
    pub(crate) namesakes: &'c Namesakes<'c>,
    pub(crate) starters: &'c Starters,
    pub(crate) model: &'c CostModel,
    /// What decides about the preloaded library in all programs.
    pub(crate) everywhere: &'c Everywhere,
    /// The command that is watched: a remedy is applied to it, and reaches what it starts.
    pub(crate) command: Option<&'c StartedProgram>,
    pub(crate) thresholds: Thresholds,
    pub(crate) window_ns: f64,
}

impl Context<'_> {
    /// A finding about some processes that occurred `count` times, and whose remedy saves
    /// `saving_each` at each occurrence. The finder fills in the words, the cost and the evidence.
    fn finding(
        &self,
        kind: FindingKind,
        process: &ProcessName,
        programs: &[ProgramKey],
        count: u64,
        saving_each: Estimate,
    ) -> Finding {
        Finding {
            kind,
            title: String::new(),
            process: process.clone(),
            pid: programs.first().map_or(0, |program| program.pid),
            processes: processes(programs).len() as u64,
            stack: Vec::new(),
            lines: Vec::new(),
            count,
            per_second: self.per_second(count),
            cost: Cost::default(),
            fork_times: None,
            evidence: Vec::new(),
            reason: String::new(),
            explanation: String::new(),
            remedy: Remedy::Change,
            obstacle: None,
            saving_each_ns: saving_each,
            saving_in_caller_ns: None,
            saving_share: self.shares(saving_each, count),
            check: diagnose_again(programs),
            counts_at_any_cost: false,
        }
    }

    pub(crate) fn name(&self, program: ProgramKey, comm: &str) -> ProcessName {
        match self.collected.programs.name(program) {
            Some(name) if name.exe.is_some() || !name.arguments.is_empty() => name.clone(),
            // The process was gone. Others of its name tell its program if all of them have the
            // same.
            gone => {
                let comm = gone.map_or(comm, |name| name.comm.as_str());
                let alike = self.namesakes.get(comm).copied().flatten();
                alike.cloned().unwrap_or_else(|| {
                    KnownProgram { comm: comm.to_owned(), ..KnownProgram::default() }.name()
                })
            }
        }
    }

    pub(crate) fn per_second(&self, count: u64) -> f64 {
        count as f64 / (self.window_ns / 1e9)
    }

    pub(crate) fn share(&self, ns: f64) -> f64 {
        ns / self.window_ns
    }

    /// A saving that is taken `count` times, as a share of one CPU.
    pub(crate) fn shares(&self, each: Estimate, count: u64) -> Estimate {
        each.times(count as f64 / self.window_ns)
    }

    /// The program that a remedy starts: the watched command, else the program of these processes,
    /// with the first invocation that can be spelled.
    pub(crate) fn program(&self, programs: &[ProgramKey], name: &str) -> StartedProgram {
        if let Some(command) = self.command {
            return command.clone();
        }
        let known = programs.iter().filter_map(|program| self.collected.programs.invocation(*program));
        let invocation = known.into_iter().find(|invocation| invocation.line("").is_some()).cloned();
        StartedProgram { name: name.to_owned(), invocation }
    }

    /// What is known of the pages of one of these processes.
    fn pages(&self, programs: &[ProgramKey]) -> Option<&PageHistory> {
        programs.iter().find_map(|program| self.collected.pages.get(program))
    }

    /// How many mappings one of these processes has, as far as that was looked at.
    fn mappings(&self, programs: &[ProgramKey]) -> MappingCount {
        self.pages(programs).map_or_else(MappingCount::default, |history| history.mappings)
    }

    /// What is known of the preloaded library in one of these processes.
    fn reach(&self, programs: &[ProgramKey]) -> Option<&Reach> {
        programs.iter().find_map(|program| self.collected.programs.reach(*program))
    }

    /// The price of a fork that the preloaded library speculates in these processes.
    fn speculation(&self, programs: &[ProgramKey]) -> Speculation {
        self.model.speculation().looking(self.reach(programs).map_or(0.0, Reach::looking_ns))
    }

    /// The remedy of a start under the preloaded library, with what keeps it from these processes.
    /// One that is there already is no obstacle to what it does on request alone.
    fn run(
        &self,
        treatment: Treatment,
        programs: &[ProgramKey],
        exe: Option<&str>,
    ) -> (Remedy, Option<Obstacle>) {
        let on_request = matches!(treatment, Treatment::SwitchContexts | Treatment::UseHugePages);
        match self.everywhere.in_program(self.reach(programs)) {
            Err(obstacle) if !(on_request && matches!(obstacle, Obstacle::Loaded(_))) => {
                (Remedy::Change, Some(obstacle))
            }
            _ => (Remedy::Run { treatment, program: exe.map(|exe| self.program(programs, exe)) }, None),
        }
    }

    /// The most frequent stack of the most frequent place that has one, behind the user's lines.
    pub(crate) fn stack_of<'s>(&self, places: impl Iterator<Item = (&'s Place, u64)>) -> Vec<Frame> {
        let lines = |place: &Place| self.collected.lines_at.get(place).map_or(&[][..], LineCounts::most);
        first_stack(places, |place| [lines(place), &self.stack(place)].concat())
    }

    /// The same behind lines that belong to the finding. Starts of an interpreter have one native
    /// place, whatever line of a script they come from.
    pub(crate) fn stack_behind<'s>(
        &self,
        lines: &[Frame],
        places: impl Iterator<Item = (&'s Place, u64)>,
    ) -> Vec<Frame> {
        [lines, &first_stack(places, |place| self.stack(place))].concat()
    }

    /// The user's lines in compiled code, each with the creations of its places, which samples
    /// divide where a place has several. Starts of an interpreter have one place in it, whatever
    /// line of a script they come from.
    pub(crate) fn compiled_lines<'s>(&self, places: impl Iterator<Item = (&'s Place, u64)>) -> LineCounts {
        let mut lines = LineCounts::default();
        for (place, count) in places {
            let stacks = self.collected.stacks.get(place).map_or(&[][..], Vec::as_slice);
            let samples: u64 = stacks.iter().map(|(_, samples)| samples).sum();
            for (stack, of_stack) in stacks {
                if let Some(frame) = place_in(stack).filter(|frame| !frame.is_of_interpreter()) {
                    lines.add(std::slice::from_ref(frame), (count * of_stack).div_ceil(samples.max(1)));
                }
            }
        }
        lines
    }

    /// What is the same at all places of one finding of a program: the [`site`] in native code,
    /// whatever lines of a script were read at each. Without such a stack, the lines.
    pub(crate) fn native_or_lines(&self, place: &Place) -> Vec<Frame> {
        let native = self.stack(place);
        if native.is_empty() { self.stack_of(std::iter::once((place, 1))) } else { site(&native) }
    }

    /// The most frequent stack of a place.
    pub(crate) fn stack(&self, place: &Place) -> Vec<Frame> {
        let stacks = self.collected.stacks.get(place);
        stacks
            .and_then(|stacks| stacks.iter().max_by_key(|(_, count)| *count))
            .map_or_else(Vec::new, |s| s.0.clone())
    }
}

/// What tells one place of native code from another: the stack, without what changes from call
/// to call. fork of the C library has a branch for threads, and an interpreter calls a function
/// in other ways once it has run it a few times (PEP 659).
fn site(stack: &[Frame]) -> Vec<Frame> {
    /// How functions of interpreters begin that lead from a script to a function of their own.
    const CALLS: &[&str] = &[
        "_PyEval_",
        "_PyObject_",
        "PyObject_",
        "cfunction_",
        "rb_vm_exec",
        "vm_exec",
        "vm_call",
        "Perl_runops",
        "execute_ex",
    ];
    let calls = |frame: &&Frame| {
        let name = frame.function.as_deref().filter(|_| frame.is_of_interpreter());
        name.is_some_and(|name| CALLS.iter().any(|begin| name.starts_with(begin)))
    };
    let inner = stack.iter().take_while(|frame| !calls(frame)).cloned();
    let of_library =
        |frame: Frame| if frame.is_of_c_library() { Frame { offset: 0, ..frame } } else { frame };
    inner.map(|frame| of_library(frame).without_offset()).collect()
}

/// The stack of the most frequent place that has one.
fn first_stack<'s>(
    places: impl Iterator<Item = (&'s Place, u64)>,
    stack: impl Fn(&Place) -> Vec<Frame>,
) -> Vec<Frame> {
    let mut places: Vec<_> = places.collect();
    places.sort_by_key(|(place, count)| (std::cmp::Reverse(*count), **place));
    let mut stacks = places.into_iter().map(|(place, _)| stack(place));
    stacks.find(|stack| !stack.is_empty()).unwrap_or_default()
}

/// Looks at what a watch of a minute has collected.
#[cfg(test)]
fn look<T>(
    collected: &Collected,
    groups: &HashMap<(Place, Outcome), Group>,
    model: &CostModel,
    at: impl FnOnce(&Context<'_>) -> T,
) -> T {
    at(&Context {
        collected,
        groups,
        namesakes: &namesakes(collected),
        starters: &crate::collect::Starters::default(),
        model,
        everywhere: &Everywhere::default(),
        command: None,
        thresholds: Thresholds::default(),
        window_ns: 60e9,
    })
}

pub(crate) fn evidence(what: &str, value: impl Into<String>) -> Evidence {
    Evidence { what: what.to_owned(), value: value.into() }
}

/// The user's lines and what is not known of them, last, where both are not one line.
fn several(lines: &LineCounts) -> Vec<LineShare> {
    /// Less is 0 % in a report.
    const LEAST: f64 = 0.005;
    let unread = lines.unread_share();
    let mut shares = lines.shares();
    if unread >= LEAST {
        shares.push(LineShare { place: LineShare::NOT_KNOWN.to_owned(), share: unread });
    }
    if shares.len() > 1 { shares } else { Vec::new() }
}

/// The same as a fact, by readings or by samples.
fn lines_evidence(lines: &[LineShare], by: &str) -> Option<Evidence> {
    let each = |LineShare { place, share }: &LineShare| format!("{place} {:.0} %", share * 100.0);
    let all = lines.iter().map(each).collect::<Vec<_>>();
    (!all.is_empty()).then(|| evidence(&format!("lines of the user's code, by {by}"), all.join(", ")))
}

pub(crate) fn mib(bytes: f64) -> String {
    if bytes >= 1024.0 * 1024.0 * 1024.0 {
        format!("{:.2} GiB", bytes / (1024.0 * 1024.0 * 1024.0))
    } else if bytes >= 1024.0 * 1024.0 {
        format!("{:.1} MiB", bytes / (1024.0 * 1024.0))
    } else {
        format!("{:.0} KiB", bytes / 1024.0)
    }
}

pub(crate) fn time(ns: f64) -> String {
    match ns.abs() {
        0.0..1e3 => format!("{ns:.0} ns"),
        1e3..1e6 => format!("{:.1} us", ns / 1e3),
        1e6..1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// With its interval, if that says something.
pub(crate) fn interval(estimate: Estimate) -> String {
    if !estimate.has_interval() {
        return time(estimate.mid);
    }
    format!("{} ({} to {})", time(estimate.mid), time(estimate.low), time(estimate.high))
}

/// A process's name in reports.
pub(crate) fn label(name: &ProcessName) -> String {
    name.name.clone()
}

/// Whether it costs too little, whatever its share: a command of 2 ms had one failing exec of 14 us
/// as a finding.
fn is_trifle(context: &Context<'_>, finding: &Finding) -> bool {
    let total = finding.cost.cpu_share * context.window_ns;
    !finding.counts_at_any_cost && total < context.thresholds.total_ns
}

/// All findings: refused creations first, then the largest saving.
pub(crate) fn all(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = forks::find(context);
    findings.extend(shells::find(context));
    findings.extend(execs::find(context));
    findings.extend(calls::find(context));
    findings.extend(storms::find(context));
    findings.extend(refused::find(context));
    findings.extend(loops::find(context));
    findings.extend(bystanders::find(context));
    findings.extend(erosion::find(context));
    findings.retain(|finding| !is_trifle(context, finding));
    for finding in &mut findings {
        let unknown = [finding.place_evidence(), finding.script_evidence(context)];
        finding.evidence.extend(unknown.into_iter().flatten());
        // Of an interpreter nobody wants a line: it is said why its script has none.
        if finding.unread_line().is_none() {
            let why = finding.line_evidence();
            finding.evidence.extend(why);
        }
    }
    // A program that fails comes before those that are slow.
    findings.sort_by(|a, b| {
        let is_slow = |finding: &Finding| finding.kind != FindingKind::ForkRefused;
        is_slow(a).cmp(&is_slow(b)).then(b.saving_share.mid.total_cmp(&a.saving_share.mid))
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, module: &str) -> Frame {
        let (function, module) = (Some(function.to_owned()), module.to_owned());
        Frame { function, module, offset: 4, ..Frame::default() }
    }

    /// Regression: under run the place of Perl's shells was
    /// `forkless_preload::fork::parent::clone`.
    #[test]
    fn forkless_is_no_place() {
        let clone = || frame("forkless_preload::fork::parent::clone", "/x/libforkless_preload.so");
        assert_eq!(place_in(&[clone(), frame("rust_eh_personality", "/x/libforkless_preload.so")]), None);
        let perl = frame("Perl_pp_system", "/usr/bin/perl");
        assert_eq!(place_in(&[clone(), perl.clone()]), Some(&perl));
    }

    /// Regression: `_Fork` of a static musl, which has no unwind tables, and `do_system` of a
    /// static glibc, which `system` ends in by a jump.
    #[test]
    fn the_c_library_is_no_place() {
        let own = |function| frame(function, "/srv/app");
        for stack in [vec![own("_Fork")], vec![own("__clone"), own("posix_spawn")]] {
            assert_eq!(place_in(&stack), None);
        }
        assert_eq!(place_in(&[frame("_Fork", "/lib/libc.so.6")]), None);
        let line = |function| Frame { line: Some(7), ..own(function) };
        let by_system = [own("posix_spawn"), own("do_system"), line("run")];
        assert_eq!(place_in(&by_system), Some(&by_system[2]));
        // A program's own of that name has a line as its other functions, or none has.
        let its_own = [own("posix_spawn"), line("do_system"), line("run")];
        assert_eq!(place_in(&its_own), Some(&its_own[1]));
        let stripped = [own("posix_spawn"), own("do_system"), own("run")];
        assert_eq!(place_in(&stripped), Some(&stripped[1]));
    }

    /// Regression: nothing said that a line of JavaScript was missing, nor that a place was.
    #[test]
    fn what_is_not_known_is_said() {
        look(&Collected::new(), &HashMap::new(), &CostModel::default(), |context| {
            let of = |kind, stack: Vec<Frame>| {
                let process = ProcessName::default();
                let program = ProgramKey { pid: 1, image: 0 };
                let finding = context.finding(kind, &process, &[program], 1, Estimate::default());
                Finding { stack, ..finding }
            };
            let node = || vec![frame("uv_spawn", "/usr/bin/node")];
            let said = of(FindingKind::NeedlessShell, node()).script_evidence(context);
            assert_eq!(said.expect("a creation").what, "the line of its JavaScript code");
            assert_eq!(of(FindingKind::CowErosion, node()).script_evidence(context), None);
            assert_eq!(of(FindingKind::NeedlessShell, node()).place_evidence(), None);
            let none = of(FindingKind::StartStorm, Vec::new());
            let said = none.place_evidence().expect("no place");
            let told = Finding { evidence: vec![said], ..none };
            assert!(told.unknown_place().is_some_and(|why| why.starts_with("no stack was read")));
            assert_eq!(told.place_evidence(), None);
            // Regression: the place of java's forks was JavaMain, and nothing said more.
            let forks = |frame| vec![frame, super::tests::frame("JavaMain", "/jvm/lib/libjli.so")];
            let java = of(FindingKind::FullForkThenExec, forks(frame("startChild", "/jvm/lib/libjava.so")));
            assert_eq!(java.line_evidence().expect("no method").what, METHOD);
            assert_eq!(
                of(FindingKind::FullForkThenExec, forks(frame("run", "/srv/a.so"))).line_evidence(),
                None
            );
        });
    }

    /// Regression: of code without a name that wrote to pages the place was its caller,
    /// `PyObject_Vectorcall`.
    #[test]
    fn the_place_of_a_write_is_no_caller() {
        look(&Collected::new(), &HashMap::new(), &CostModel::default(), |context| {
            let python = "/usr/bin/python3.11";
            let writes = Frame { function: None, ..frame("", python) };
            let stack = vec![
                frame("memmove", "/lib/libc.so.6"),
                writes.clone(),
                frame("PyObject_Vectorcall", python),
            ];
            let of = |kind| {
                let program = ProgramKey { pid: 1, image: 0 };
                let process = ProcessName::default();
                let finding = context.finding(kind, &process, &[program], 1, Estimate::default());
                Finding { stack: stack.clone(), ..finding }.place().cloned()
            };
            assert_eq!(of(FindingKind::CowErosion), Some(writes.clone()));
            assert_eq!(of(FindingKind::FullForkThenExec), stack.last().cloned());
        });
    }

    /// A command of 2 ms had one failing exec of 14 us as a finding.
    #[test]
    fn what_costs_little_in_all_is_none() {
        let (collected, groups) = (Collected::new(), HashMap::new());
        look(&collected, &groups, &CostModel::default(), |context| {
            let program = ProgramKey { pid: 1, image: 0 };
            let costs = |ns: f64| Finding {
                cost: Cost { cpu_share: context.share(ns), ..Cost::default() },
                ..context.finding(
                    FindingKind::PathSearch,
                    &ProcessName::default(),
                    &[program],
                    1,
                    Estimate::default(),
                )
            };
            let is = |context: &Context<'_>, ns| is_trifle(context, &costs(ns));
            assert!(is(context, 9.9e6));
            assert!(!is(context, 10.1e6));
            assert!(!is_trifle(context, &Finding { counts_at_any_cost: true, ..costs(1e3) }));
            let all = Context { thresholds: Thresholds::of(0.0), ..*context };
            assert!(!is(&all, 1.0));
        });
    }
}
