//! Findings 4, 5, 7, 8 and the descriptor part of 6: needless system calls.

use std::collections::HashMap;

use super::{Context, Cost, Finding, FindingKind, evidence, interval, label, time};
use crate::answering::{Failing, asks_only, clock_call};
use crate::collect::Calls;
use crate::creation::{Place, ProgramKey};
use crate::estimate::Estimate;
use crate::event::BlockReads;
use crate::procfs;
use crate::program::ProcessName;
use crate::reach::{CLOSE_LOOP_SPEEDUP, Obstacle};
use crate::remedy::{FollowUp, Remedy, StartedProgram, Treatment};
use crate::ring::{
    CLASS_ANY, CLASS_BLOCK_WRITE_PARTIAL, CLASS_CLOSE_UNUSED, CLASS_LOCALTIME, CLASS_SIGMASK_NEEDLESS,
    CLASS_ZONEINFO,
};
use crate::stack::Frame;

/// Calls of one process name, class and system call.
struct Merged {
    process: ProcessName,
    programs: Vec<ProgramKey>,
    calls: Calls,
    /// CPU time of these processes over the watch, nanoseconds; 0 if it could not be read.
    cpu_ns: u64,
    /// The place with most calls.
    place: (u64, Place),
    nr: u16,
    class: u16,
}

impl Merged {
    /// Of calls on descriptors that are not open: those that the preloaded library answers. The
    /// kernel side counts such closes in place of bytes.
    fn answered(&self) -> u64 {
        self.calls.bytes
    }
}

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    let mut merged: HashMap<(String, Option<String>, u16, u16), Merged> = HashMap::new();
    let mut all: Vec<_> = context.collected.calls.iter().collect();
    all.sort_by_key(|(key, _)| **key);
    for ((program, nr, class, ip), calls) in all {
        let (program, pid) = (*program, program.pid);
        let process = context.name(program, "?");
        // open and stat of the zone file are one finding.
        let (family, number) = match *class {
            CLASS_LOCALTIME | CLASS_ZONEINFO => (CLASS_LOCALTIME, 0),
            CLASS_ANY if is_of_close_loop(*nr, calls) => (CLASS_CLOSE_UNUSED, *nr),
            class => (class, *nr),
        };
        let place = Place { pid, nr: u32::from(*nr), ip: *ip, word: 0, image: program.image };
        let entry =
            merged.entry((label(&process), process.cgroup.clone(), family, number)).or_insert_with(|| {
                Merged {
                    process,
                    programs: Vec::new(),
                    calls: Calls::default(),
                    cpu_ns: 0,
                    place: (0, place),
                    nr: *nr,
                    class: family,
                }
            });
        if !entry.programs.contains(&program) {
            // The kernel counts CPU time by process, whatever programs it was.
            if !entry.programs.iter().any(|known| known.pid == pid) {
                entry.cpu_ns += context.collected.cpu.get(&pid).map_or(0, |cpu| cpu.used());
            }
            entry.programs.push(program);
        }
        entry.calls.count += calls.count;
        entry.calls.same += calls.same;
        entry.calls.bytes += match family {
            // Such a call is told with its own process, and the child's creation has the sum.
            CLASS_CLOSE_UNUSED if *class == CLASS_ANY => context.collected.answered.of(pid).min(calls.count),
            _ => calls.bytes,
        };
        entry.calls.last = calls.last;
        if calls.count > entry.place.0 {
            entry.place = (calls.count, place);
        }
    }
    merged
        .into_iter()
        .filter_map(|((_, _, class, _), merged)| match class {
            CLASS_SIGMASK_NEEDLESS => signal_mask(context, &merged),
            CLASS_LOCALTIME => localtime(context, &merged),
            CLASS_CLOSE_UNUSED => close_loop(context, &merged),
            CLASS_BLOCK_WRITE_PARTIAL => block_writes(context, &merged),
            CLASS_ANY => constant(context, &merged),
            _ => None,
        })
        .collect()
}

struct Text {
    kind: FindingKind,
    title: String,
    reason: String,
    explanation: String,
    remedy: Remedy,
    obstacle: Option<Obstacle>,
    check: FollowUp,
}

/// A finding, if the calls take enough of the process's CPU time and of a CPU.
fn finding(
    context: &Context<'_>,
    merged: &Merged,
    each: Estimate,
    text: impl FnOnce(&[Frame]) -> Text,
) -> Option<Finding> {
    priced(context, merged, MEASURED, each, text)
}

/// The name of the fact about a call's price.
const MEASURED: &str = "each costs (measured here)";

/// The same, with what the price is of.
fn priced(
    context: &Context<'_>,
    merged: &Merged,
    measured: &str,
    each: Estimate,
    text: impl FnOnce(&[Frame]) -> Text,
) -> Option<Finding> {
    /// Fewer calls are no habit, and found only where every share counts.
    const LEAST: u64 = 100;
    let count = merged.calls.count;
    // CPU time comes in ticks of 10 ms: for a process that used little, the watch's length is taken
    // instead.
    let is_known = merged.cpu_ns >= 50_000_000;
    let cpu_ns = if is_known { merged.cpu_ns as f64 } else { context.window_ns };
    // A price that is noisy, or of a deeper path, is no more than the process has used.
    let used = cpu_ns / count.max(1) as f64;
    let mid = if is_known { each.mid.min(used) } else { each.mid };
    let each = Estimate { low: each.low.min(mid), mid, high: each.high.min(used.max(mid)) };
    let ns = each.mid * count as f64;
    let process_share = ns / cpu_ns;
    if count < LEAST
        || context.share(ns) < context.thresholds.share
        || process_share < context.thresholds.process_share
    {
        return None;
    }
    let stack = context.stack(&merged.place.1);
    let text = text(&stack);
    let mut list = vec![
        evidence("calls", format!("{count}, {:.0} a second", context.per_second(count))),
        evidence(measured, interval(each)),
        evidence("share of the process's CPU time", format!("{:.1} %", process_share.min(1.0) * 100.0)),
        evidence("from the place with most of them", merged.place.0.to_string()),
    ];
    if merged.calls.bytes > 0 && merged.class != CLASS_CLOSE_UNUSED {
        list.push(evidence("bytes a call", (merged.calls.bytes / count.max(1)).to_string()));
    }
    Some(Finding {
        title: text.title,
        stack,
        cost: Cost { caller_ns: Some(ns), cpu_share: context.share(ns), ..Cost::default() },
        evidence: list,
        reason: text.reason,
        explanation: text.explanation,
        remedy: text.remedy,
        obstacle: text.obstacle,
        saving_in_caller_ns: Some(each),
        check: text.check,
        ..context.finding(text.kind, &merged.process, &merged.programs, count, each)
    })
}

/// The innermost named function: for these calls, a function of the C library.
fn function(stack: &[Frame]) -> Option<&str> {
    stack.iter().find_map(|frame| frame.function.as_deref())
}

fn program(context: &Context<'_>, merged: &Merged) -> StartedProgram {
    context.program(&merged.programs, merged.process.exe.as_deref().unwrap_or(&merged.process.comm))
}

fn diagnose_again(merged: &Merged) -> FollowUp {
    super::diagnose_again(&merged.programs)
}

fn signal_mask(context: &Context<'_>, merged: &Merged) -> Option<Finding> {
    let model = context.model;
    let stack = context.stack(&merged.place.1);
    let names = || stack.iter().take(2).filter_map(|frame| frame.function.as_deref());
    let switching = names().any(|name| name.contains("context"));
    // A switch without the mask saves more than the call: glibc also saves the floating-point
    // environment.
    let switch =
        if names().any(|name| name.contains("swapcontext")) { model.swapcontext } else { model.getcontext };
    let each = switch.filter(|_| switching).unwrap_or(model.sigprocmask);
    finding(context, merged, each, |stack| {
        let by = function(stack).unwrap_or("rt_sigprocmask");
        let (remedy, obstacle) = if switching {
            let exe = merged.process.exe.as_deref().unwrap_or(&merged.process.comm);
            context.run(Treatment::SwitchContexts, &merged.programs, Some(exe))
        } else {
            (Remedy::Change, None)
        };
        Text {
            kind: FindingKind::NeedlessSignalMask,
            title: format!(
                "{} sets its signal mask to what it is, {:.0} times a second, in {by}",
                label(&merged.process),
                context.per_second(merged.calls.count)
            ),
            reason: if switching {
                "ucontext's switches save and restore the signal mask by a system call each, though it never changes.".to_owned()
            } else {
                "Each of these calls enters the kernel and leaves the mask as it was.".to_owned()
            },
            explanation: if switching {
                "Switch stacks without the mask (_setjmp/_longjmp, an assembly switch)"
            } else {
                "Use the forms that leave the mask alone (_setjmp, sigsetjmp with 0), or keep the mask in the program"
            }.to_owned(),
            remedy,
            obstacle,
            check: diagnose_again(merged),
        }
    })
}

fn localtime(context: &Context<'_>, merged: &Merged) -> Option<Finding> {
    finding(context, merged, context.model.stat_localtime, |_| {
        Text {
        kind: FindingKind::LocaltimeLookups,
        title: format!("{} looks at /etc/localtime {:.0} times a second", label(&merged.process), context.per_second(merged.calls.count)),
        reason: "With TZ unset, the C library's localtime() and mktime() check on every call whether the zone file has changed.".to_owned(),
        explanation: "Set TZ=:/etc/localtime in the program's environment (the zone is then read once), or use localtime_r".to_owned(),
        remedy: Remedy::SetVariable { name: "TZ", value: ":/etc/localtime", program: program(context, merged) },
        obstacle: None,
        check: diagnose_again(merged),
    }
    })
}

/// Whether these calls of fcntl are part of a loop over descriptor numbers: it asks for each
/// whether it is open, or marks each close-on-exec.
fn is_of_close_loop(nr: u16, calls: &Calls) -> bool {
    let is_fcntl = i32::from(nr) == syscalls::Sysno::fcntl.id();
    is_fcntl && calls.last == -i64::from(libc::EBADF) && always_same(calls)
}

/// A CPU's first result has no predecessor to compare with.
fn always_same(calls: &Calls) -> bool {
    calls.same as f64 >= calls.count as f64 * 0.99
}

/// Calls of fcntl for one descriptor that is no longer open look the same, unless they were counted
/// as a loop.
fn close_loop_advice(is_fcntl: bool, is_loop: bool) -> &'static str {
    match (is_fcntl, is_loop) {
        (false, _) => "Use close_range(2) or closefrom(3), or open descriptors close-on-exec",
        (true, true) => {
            "Use close_range(2), which closes or marks (CLOSE_RANGE_CLOEXEC) those that are open, or open descriptors close-on-exec"
        }
        (true, false) => {
            "If it goes over all numbers, use close_range(2), which closes or marks (CLOSE_RANGE_CLOEXEC) those that are open; if it asks for one descriptor, stop asking once that is closed"
        }
    }
}

fn close_loop(context: &Context<'_>, merged: &Merged) -> Option<Finding> {
    let is_fcntl = i32::from(merged.nr) == syscalls::Sysno::fcntl.id();
    let each = if is_fcntl { context.model.system_call } else { context.model.unused_close };
    let count = merged.calls.count;
    let found = finding(context, merged, each, |stack| {
        let (remedy, obstacle) = match closes_answered(context, merged, stack) {
            Ok(()) => {
                let program = merged.process.exe.as_deref().map(|exe| context.program(&merged.programs, exe));
                (Remedy::Run { treatment: Treatment::AnswerCloses, program }, None)
            }
            Err(obstacle) => (Remedy::Change, Some(obstacle)),
        };
        Text {
            kind: FindingKind::CloseLoop,
            title: format!(
                "{} {} descriptors that are not open, {:.0} a second",
                label(&merged.process),
                if is_fcntl { "calls fcntl for" } else { "closes" },
                context.per_second(count)
            ),
            reason: if is_fcntl && obstacle.is_some() {
                "Each of these calls enters the kernel, and finds that the descriptor is not open."
            } else {
                "A loop over all possible descriptor numbers makes a system call for each, open or not."
            }
            .to_owned(),
            explanation: close_loop_advice(is_fcntl, obstacle.is_none()).to_owned(),
            remedy,
            obstacle,
            check: diagnose_again(merged),
        }
    })?;
    if !matches!(found.remedy, Remedy::Run { .. }) {
        return Some(found);
    }
    let answered = evidence(ANSWERED, format!("{} of {count} (predicted)", merged.answered()));
    let evidence = [found.evidence, vec![answered]].concat();
    let saved = 1.0 - 1.0 / CLOSE_LOOP_SPEEDUP as f64;
    let each = each.times(saved * merged.answered() as f64 / count as f64);
    Some(Finding {
        evidence,
        saving_each_ns: each,
        saving_in_caller_ns: None,
        saving_share: context.shares(each, count),
        ..found
    })
}

/// The name of the fact about the closes that would not enter the kernel.
const ANSWERED: &str = "answered by the preloaded library";

/// What keeps the preloaded library from most of these closes.
fn closes_answered(context: &Context<'_>, merged: &Merged, stack: &[Frame]) -> Result<(), Obstacle> {
    context.everywhere.in_close_loops(context.reach(&merged.programs))?;
    if !is_by_libcs_close(stack) {
        return Err(Obstacle::Closes("the loop makes its system calls by another function than libc's"));
    }
    if merged.answered() * 2 >= merged.calls.count {
        return Ok(());
    }
    Err(Obstacle::Closes(
        "the loop makes another system call between its closes, or skips numbers, or ends below 1024, or is in no child of a fork",
    ))
}

/// Whether the library can be in the place of the function that makes these calls. What libc calls
/// within itself (`__close_nocancel`, `syscall`) does not come to it.
fn is_by_libcs_close(stack: &[Frame]) -> bool {
    let Some(innermost) = stack.first() else { return true };
    const NAMES: [&str; 6] = ["close", "libc_close", "fcntl", "fcntl64", "libc_fcntl", "libc_fcntl64"];
    let is_name = |name: &str| NAMES.contains(&name.trim_start_matches('_'));
    // glibc's fcntl has its system call in a function of its own (__fcntl64_nocancel_adjusted).
    let own = stack.iter().take_while(|frame| frame.is_of_c_library()).take(2);
    let is_named = |frame: &Frame| frame.function.as_deref().is_some_and(is_name);
    innermost.is_of_c_library() && (innermost.function.is_none() || own.into_iter().any(is_named))
}

/// Whether the preloaded library answers the loops of closes of these programs' children, as far as
/// they are of numbers that it answers.
pub(super) fn are_closes_answered(context: &Context<'_>, programs: &[ProgramKey]) -> bool {
    let calls = context.collected.calls.iter();
    let of_these = calls
        .filter(|((program, _, class, _), _)| *class == CLASS_CLOSE_UNUSED && programs.contains(program));
    // Marks (F_SETFD) are no such calls.
    let by_libc =
        of_these.max_by_key(|(key, calls)| (calls.bytes, **key)).is_none_or(|((program, nr, _, ip), _)| {
            let place =
                Place { pid: program.pid, nr: u32::from(*nr), ip: *ip, word: 0, image: program.image };
            is_by_libcs_close(&context.stack(&place))
        });
    by_libc && context.everywhere.in_close_loops(context.reach(programs)).is_ok()
}

/// Counts the writer's waiting for the reads that it causes, from each read's submission until the
/// writer runs again. A block written in full is not read first, so all the waiting is saved.
fn block_writes(context: &Context<'_>, merged: &Merged) -> Option<Finding> {
    let count = merged.calls.count;
    let reads = merged
        .programs
        .iter()
        .filter_map(|program| context.collected.block_reads.get(&program.pid))
        .fold(BlockReads::default(), |sum, reads| BlockReads {
            reads: sum.reads + reads.reads,
            timed: sum.timed + reads.timed,
            ns: sum.ns + reads.ns,
        });
    // Without reads the blocks were cached, and the writes do no harm.
    if count < 100 || reads.reads == 0 {
        return None;
    }
    let each_read = reads.ns as f64 / reads.timed.max(1) as f64;
    let reads_a_write = reads.reads as f64 / count as f64;
    // The number of reads is a count. Its interval is two standard deviations.
    let margin = 1.0 / (reads.timed.max(1) as f64).sqrt();
    let wait = each_read * reads_a_write;
    let saving_each = Estimate { low: wait * (1.0 - margin), mid: wait, high: wait * (1.0 + margin) };
    let ns = each_read * reads.reads as f64;
    if context.share(ns) < context.thresholds.share {
        return None;
    }
    let bytes = merged.calls.bytes / count;
    Some(Finding {
        title: format!(
            "{} writes parts of blocks to a block device: {count} writes of {bytes} bytes made it wait for {} reads of {} each",
            label(&merged.process),
            reads.reads,
            time(each_read)
        ),
        stack: context.stack(&merged.place.1),
        cost: Cost { caller_ns: Some(ns), cpu_share: context.share(ns), ..Cost::default() },
        evidence: vec![
            evidence("buffered writes whose size is no multiple of 4096", count.to_string()),
            evidence("bytes a write", bytes.to_string()),
            evidence("reads they caused", format!("{}, {reads_a_write:.2} a write", reads.reads)),
            evidence("the writer's waiting for each read (measured)", time(each_read)),
        ],
        reason: "A buffered write of part of a page-cache block that is not cached makes the kernel read the block first, and the writer wait for it.".to_owned(),
        explanation: "Write multiples of 4096 bytes, aligned (dd: bs=4096 or more), or use O_DIRECT with the sector size".to_owned(),
        saving_in_caller_ns: Some(saving_each),
        check: FollowUp::Command("cat /sys/block/*/stat   # reads grow with the writes".to_owned()),
        ..context.finding(FindingKind::PartialBlockWrites, &merged.process, &merged.programs, count, saving_each)
    })
}

/// Errors that mean "not yet": the program is right to ask again.
fn means_again(result: i64) -> bool {
    [libc::EAGAIN, libc::EINTR, libc::ETIMEDOUT, libc::EINPROGRESS]
        .iter()
        .any(|&errno| result == -i64::from(errno))
}

/// The price of one such call, and what it is of.
fn price_of_constant(context: &Context<'_>, merged: &Merged) -> (&'static str, Estimate) {
    const OF_EMPTY: &str = "each costs at least (an empty call, measured here)";
    let model = context.model;
    if clock_call(merged.nr) {
        return ("each costs more than by the vDSO, if there is one (measured here)", model.clock_call);
    }
    if asks_only(merged.nr) && merged.calls.last >= 0 {
        return (MEASURED, model.system_call);
    }
    match Failing::of(merged.nr, merged.calls.last) {
        Failing::Path => ("each costs (stat of a missing file, measured here)", model.missing_stat),
        Failing::Open => ("each costs (open of a missing file, measured here)", model.missing_open),
        Failing::Readlink => ("each costs (readlink of a directory, measured here)", model.readlink_of_none),
        Failing::Other => (OF_EMPTY, model.system_call),
    }
}

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The machine's source of time; `None` if it is not known.
struct ClockSource(Option<String>);

impl ClockSource {
    fn of_this_machine() -> Self {
        Self(procfs::read(CLOCK_SOURCE).map(|name| name.trim().to_owned()))
    }

    /// Whether the vDSO reads it (`vdso_clock_mode` of each in the kernel).
    fn is_in_vdso(&self) -> bool {
        const READ: [&str; 5] =
            ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "arch_mmio_counter"];
        self.0.as_deref().is_some_and(|name| READ.contains(&name))
    }

    /// What a program does that reads it through the kernel, with its stack innermost first.
    fn remedy(&self, stack: &[Frame]) -> String {
        let Some(name) = self.0.as_deref().filter(|_| self.is_in_vdso()) else {
            return "Choose a clock source with a vDSO (tsc, kvm-clock), or read the clock less often"
                .to_owned();
        };
        let is_syscall = |frame: &Frame| frame.function.as_deref() == Some("syscall");
        let by_itself = stack.first().is_some_and(|frame| is_syscall(frame) || !frame.is_of_library());
        if by_itself {
            return format!(
                "If it reads CLOCK_REALTIME or CLOCK_MONOTONIC, call the C library's clock_gettime, and not syscall(): the clock source ({name}) has a vDSO, which the program does not use"
            );
        }
        format!(
            "Read the clock less often, or another clock: the clock source ({name}) has a vDSO, but that reads no clock of CPU time, nor a clock of a device (/dev/ptp0)"
        )
    }
}

fn constant(context: &Context<'_>, merged: &Merged) -> Option<Finding> {
    let calls = merged.calls;
    let same = always_same(&calls);
    let fails = calls.last < 0 && !means_again(calls.last);
    let clock = clock_call(merged.nr);
    if !(clock || same && (asks_only(merged.nr) || fails)) {
        return None;
    }
    // The threshold is higher: these calls are cheap, and every program makes a few.
    let context =
        &Context { thresholds: super::Thresholds { process_share: 0.05, ..context.thresholds }, ..*context };
    let name =
        syscalls::Sysno::new(usize::from(merged.nr)).map_or("an unknown system call", |call| call.name());
    let (measured, each) = price_of_constant(context, merged);
    let source = clock.then(ClockSource::of_this_machine);
    priced(context, merged, measured, each, |stack| Text {
        kind: FindingKind::ConstantSystemCall,
        title: format!(
            "{} calls {name} {:.0} times a second{}",
            label(&merged.process),
            context.per_second(calls.count),
            if clock { " as a real system call" } else { " and always gets the same" }
        ),
        reason: if clock {
            "The clock is read through the kernel instead of the vDSO.".to_owned()
        } else {
            format!("The result is {} every time, yet each call enters the kernel.", calls.last)
        },
        explanation: if let Some(source) = &source {
            source.remedy(stack)
        } else {
            format!(
                "Call {name} once and keep the result{}",
                if fails { ", or stop asking for what fails" } else { "" }
            )
        },
        remedy: Remedy::Change,
        obstacle: None,
        check: if source.as_ref().is_some_and(|source| !source.is_in_vdso()) {
            FollowUp::Command(format!("cat {CLOCK_SOURCE}"))
        } else {
            diagnose_again(merged)
        },
    })
}
