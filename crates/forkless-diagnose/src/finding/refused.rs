//! Creations that the kernel refuses: which limit was reached, and how to raise it or do with less.
//! A refused fork is a failure of its program, so every one is a finding, whatever it costs.

use std::collections::HashMap;
use std::path::Path;

use super::forks::unread_evidence;
use super::{Context, Cost, Finding, FindingKind, diagnose_again, evidence, label, living, mib, time};
use crate::collect::{LineCounts, Refused};
use crate::creation::ProgramKey;
use crate::estimate::Estimate;
use crate::invocation::quoted;
use crate::program::ProcessName;
use crate::refusal::{ReachedLimit, RefusalKey};
use crate::remedy::{FollowUp, Remedy, Treatment};
use crate::stack::Frame;

/// Refusals of one program at one stack, by one limit.
struct Merged {
    process: ProcessName,
    programs: Vec<ProgramKey>,
    stack: Vec<Frame>,
    key: RefusalKey,
    refused: Refused,
}

/// Refusals of one place.
struct Seen<'c> {
    key: &'c RefusalKey,
    refused: &'c Refused,
    process: ProcessName,
    native: Vec<Frame>,
}

impl Seen<'_> {
    /// The user's lines, of an interpreter that waited to try again. `fork` of Perl returns, unlike
    /// its `system`: what was read is what came after.
    fn lines(&self) -> &[Frame] {
        let returns = |frame: &Frame| frame.function.as_deref() == Some("Perl_pp_fork");
        if self.native.iter().any(returns) { &[] } else { self.refused.lines.most() }
    }
}

/// By program and native stack: the user's line, if only one was read there.
type KnownLines<'a> = HashMap<(String, &'a [Frame]), Option<&'a [Frame]>>;

fn known_lines<'a>(all: &'a [Seen<'_>]) -> KnownLines<'a> {
    let mut known = KnownLines::new();
    for seen in all.iter().filter(|seen| !seen.lines().is_empty()) {
        let lines = seen.lines();
        let of_place = known.entry((label(&seen.process), &seen.native[..])).or_insert(Some(lines));
        *of_place = of_place.filter(|one| *one == lines);
    }
    known
}

/// The user's lines of a place: its own, else the only one of other processes there, else the only
/// one of creations that were not refused.
fn lines_of<'a>(
    seen: &'a Seen<'_>,
    known: &KnownLines<'a>,
    not_refused: Option<&'a LineCounts>,
) -> &'a [Frame] {
    let own = seen.lines();
    if !own.is_empty() {
        return own;
    }
    if let Some(one) = known.get(&(label(&seen.process), &seen.native[..])) {
        return one.unwrap_or_default();
    }
    match not_refused.map(LineCounts::stacks) {
        Some([(one, _)]) => one,
        _ => &[],
    }
}

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    type Key = (String, Option<String>, Vec<Frame>, i32, bool, bool, ReachedLimit);
    let mut merged: HashMap<Key, Merged> = HashMap::new();
    let of_any = context.collected.refused.iter().filter(|(_, refused)| refused.count > 0);
    let all: Vec<Seen<'_>> = of_any
        .map(|(key, refused)| Seen {
            key,
            refused,
            process: context.name(key.place.program(), &refused.comm),
            native: context.stack(&key.place),
        })
        .collect();
    let known = known_lines(&all);
    for seen in &all {
        let Seen { key, refused, process, native } = seen;
        let limit = with_directory(context, &refused.limit);
        let program = key.place.program();
        let not_refused = context.collected.lines_at.get(&key.place);
        let stack = [lines_of(seen, &known, not_refused), native].concat();
        let id = (
            label(process),
            process.cgroup.clone(),
            stack.clone(),
            key.errno,
            key.is_thread,
            key.shares_memory,
            limit.clone(),
        );
        let known = merged.entry(id).or_insert_with(|| Merged {
            process: process.clone(),
            programs: Vec::new(),
            stack,
            key: **key,
            refused: refused.without_counts(limit),
        });
        if !known.programs.contains(&program) {
            known.programs.push(program);
        }
        known.refused.merge(refused);
    }
    merged.into_values().map(|merged| finding(context, &merged)).collect()
}

/// The limit with the directory of its cgroup, if that was seen at another refusal. Some are told
/// when the program has ended and its cgroup is gone: they are no finding of their own.
fn with_directory(context: &Context<'_>, limit: &ReachedLimit) -> ReachedLimit {
    match limit {
        ReachedLimit::Cgroup { inode, directory: None, limit } => ReachedLimit::Cgroup {
            inode: *inode,
            directory: context.collected.refused.directory(*inode).map(Path::to_owned),
            limit: *limit,
        },
        known => known.clone(),
    }
}

fn finding(context: &Context<'_>, merged: &Merged) -> Finding {
    let Merged { process, programs, stack, key, refused } = merged;
    let count = refused.count;
    let each = cost_of_one(context, merged);
    let cost_ns = each.mid * count as f64;
    let what = match (key.is_thread, count) {
        (true, 1) => "new thread",
        (true, _) => "new threads",
        (false, 1) => "new process",
        (false, _) => "new processes",
    };
    let error = if key.errno == libc::ENOMEM { "ENOMEM" } else { "EAGAIN" };
    let how = if refused.timed > 0 { "each refusal took its caller" } else { "each refusal (predicted)" };
    let mut list = vec![evidence(how, time(each.mid))];
    if throws_a_copy_away(merged) {
        list.push(evidence(
            "this limit is looked at when the caller's memory has been copied",
            if refused.anon > 0 { mib(refused.anon as f64) } else { "how much is not known".to_owned() },
        ));
    }
    if let ReachedLimit::Cgroup { directory: Some(directory), .. } = &refused.limit {
        list.push(evidence("the cgroup", directory.display().to_string()));
    }
    let is_placed = stack.iter().any(Frame::is_of_script);
    list.extend(if is_placed { None } else { unread_evidence(context, programs) });
    let Advice { remedy, explanation, check } = advice(context, merged);
    Finding {
        title: format!(
            "{} is refused {count} {what} ({error}): {}",
            process.name,
            reached(&refused.limit, key.is_thread)
        ),
        stack: stack.clone(),
        cost: Cost { caller_ns: Some(cost_ns), cpu_share: context.share(cost_ns), ..Cost::default() },
        evidence: list,
        reason: reason(&refused.limit).to_owned(),
        explanation,
        remedy,
        check,
        counts_at_any_cost: true,
        ..context.finding(FindingKind::ForkRefused, process, programs, count, each)
    }
}

/// Whether the kernel copies the caller's memory before it looks at the limit.
fn throws_a_copy_away(merged: &Merged) -> bool {
    merged.refused.limit.is_behind_the_copy() && !merged.key.shares_memory
}

/// A number of processes and threads in words, as an object.
fn tasks(limit: u64, all: &str) -> String {
    match limit {
        1 => format!("the one process or thread {all}"),
        _ => format!("the {limit} processes and threads {all}"),
    }
}

/// The time that one refusal takes. The kernel throws a finished copy away for some limits, and its
/// caller waits for that, too.
fn cost_of_one(context: &Context<'_>, merged: &Merged) -> Estimate {
    let refused = &merged.refused;
    if refused.timed > 0 {
        let mean = refused.ns as f64 / refused.timed as f64;
        return Estimate::exact(mean);
    }
    if throws_a_copy_away(merged) {
        let entries = refused.anon / 4096;
        let teardown = context.model.teardown_per_entry.times(entries as f64);
        return context.model.fork(entries, 0).plus(teardown);
    }
    // The kernel has made at most a task without memory by then.
    Estimate { low: context.model.system_call.low, ..context.model.create }
}

/// The limit in words.
fn reached(limit: &ReachedLimit, is_thread: bool) -> String {
    match limit {
        ReachedLimit::User { uid, limit: 0 } => format!("RLIMIT_NPROC permits user {uid} no process"),
        ReachedLimit::User { uid, limit } => {
            format!("user {uid} has {}", tasks(*limit, "that RLIMIT_NPROC permits"))
        }
        ReachedLimit::Cgroup { directory, limit, .. } => {
            let name =
                directory.as_ref().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
            let cgroup = name.map_or_else(|| "its cgroup".to_owned(), |name| format!("cgroup {name}"));
            match limit {
                0 => format!("pids.max permits {cgroup} no process"),
                _ => format!("{cgroup} has {}", tasks(*limit, "that pids.max permits")),
            }
        }
        ReachedLimit::Threads { limit } => {
            format!("the machine has the {limit} threads that kernel.threads-max permits")
        }
        ReachedLimit::Numbers { limit } => {
            format!("no process number below kernel.pid_max, {limit}, is free")
        }
        ReachedLimit::NamespaceEnded => {
            "the first process of the pid namespace for its children has ended".to_owned()
        }
        ReachedLimit::Promised { wanted, limit } => format!(
            "a copy of its memory needs up to {} more than vm.overcommit_memory=2 promises, {} in all",
            mib(*wanted as f64),
            mib(*limit as f64)
        ),
        ReachedLimit::Memory { wanted, limit } => format!(
            "the memory that it may write to, {}, is larger than memory and swap, {}",
            mib(*wanted as f64),
            mib(*limit as f64)
        ),
        ReachedLimit::Unknown if is_thread => "the limit that was reached is not known".to_owned(),
        ReachedLimit::Unknown => "which limit was reached is not known".to_owned(),
    }
}

fn reason(limit: &ReachedLimit) -> &'static str {
    match limit {
        ReachedLimit::User { .. } => {
            "The kernel counts the processes and threads of a user, zombies too, and compares them with the limit of the process that forks."
        }
        ReachedLimit::Cgroup { .. } => {
            "The kernel counts the processes and threads of a cgroup and of all below it, zombies too."
        }
        ReachedLimit::Threads { .. } | ReachedLimit::Numbers { .. } => {
            "The kernel has a limit for the whole machine, and all programs share it."
        }
        ReachedLimit::NamespaceEnded => {
            "A pid namespace ends with its first process, and nothing can be created in it any more."
        }
        ReachedLimit::Promised { .. } | ReachedLimit::Memory { .. } => {
            "A fork must be promised a copy of all memory that it may write to, though an exec throws it away at once."
        }
        ReachedLimit::Unknown => {
            "The call failed, and neither the limits of user, cgroup and machine nor its memory explain it."
        }
    }
}

struct Advice {
    remedy: Remedy,
    /// A sentence without its full stop.
    explanation: String,
    check: FollowUp,
}

fn advice(context: &Context<'_>, merged: &Merged) -> Advice {
    let Merged { process, programs, key, refused, .. } = merged;
    let again = || diagnose_again(programs);
    let change = |explanation: &str, check: FollowUp| Advice {
        remedy: Remedy::Change,
        explanation: explanation.to_owned(),
        check,
    };
    let setting = |name: &str, value: u64| FollowUp::Command(format!("sysctl -w kernel.{name}={value}"));
    match &refused.limit {
        ReachedLimit::User { limit, .. } => {
            let raised = limit.saturating_mul(2).max(64);
            change(
                "Wait for children that have ended, or raise the limit where the program is started (ulimit -u, LimitNPROC= of a unit, nproc in limits.conf)",
                living(programs).map_or_else(again, |pid| {
                    FollowUp::Command(format!("prlimit -p {pid} -u{raised}:{raised}"))
                }),
            )
        }
        ReachedLimit::Cgroup { directory, limit, .. } => {
            let raised = limit.saturating_mul(2).max(64);
            // systemd writes its own value again.
            // Any user may name a cgroup so: it would be an option.
            let of_unit = process.unit.as_deref().filter(|unit| !unit.starts_with('-')).and_then(quoted);
            let of_unit = of_unit.map(|unit| format!("systemctl set-property {unit} TasksMax={raised}"));
            let of_directory = || {
                let file = directory.as_ref()?.join("pids.max");
                Some(format!("echo {raised} >{}", quoted(file.to_str()?)?))
            };
            change(
                "Wait for children that have ended, or raise the cgroup's limit (TasksMax= of a unit, --pids-limit of a container)",
                of_unit.or_else(of_directory).map_or_else(again, FollowUp::Command),
            )
        }
        ReachedLimit::Threads { limit } => change(
            "Find the program that has so many threads (ps -eo nlwp,pid,args --sort=-nlwp), or raise the limit",
            setting("threads-max", limit.saturating_mul(2)),
        ),
        ReachedLimit::Numbers { .. } => change(
            "Find the program that has so many processes (ps -eo nlwp,pid,args --sort=-nlwp), or raise the limit",
            setting("pid_max", 1 << 22),
        ),
        ReachedLimit::NamespaceEnded => change(
            "Keep the first child alive, such as an init that waits for the others (unshare -p -f), and create no child before it",
            again(),
        ),
        ReachedLimit::Promised { .. } | ReachedLimit::Memory { .. } if !key.is_thread => {
            let runs = context.everywhere.in_forks(context.reach(programs), refused.anon).is_ok();
            let remedy = match process.exe.as_deref().filter(|_| runs) {
                Some(exe) => Remedy::Run {
                    treatment: Treatment::SpeculateForks,
                    program: Some(context.program(programs, exe)),
                },
                None => Remedy::Change,
            };
            Advice {
                remedy,
                explanation:
                    "Start programs with posix_spawn or vfork (libraries: forkless), which copy no memory"
                        .to_owned(),
                check: again(),
            }
        }
        _ => change("Ask the kernel's log (dmesg), and watch again while it happens", again()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::Collected;
    use crate::event::RefusalCount;
    use crate::finding::look;
    use crate::model::CostModel;
    use crate::refusal::RefusedCreation;

    fn frame(function: &str, line: Option<u32>) -> Frame {
        Frame { function: Some(function.to_owned()), line, ..Frame::default() }
    }

    /// Refusals at a native function, of a program whose line was read.
    fn placed(function: &str, line: Option<u32>) -> (Vec<Frame>, Refused) {
        let mut lines = LineCounts::default();
        line.into_iter().for_each(|line| lines.add(&[frame("start", Some(line))], 1));
        (vec![frame(function, None)], Refused::read_at(lines))
    }

    #[test]
    fn a_line_that_one_process_was_read_at_is_that_of_the_others() {
        let place = crate::creation::Place { pid: 1, nr: 56, ip: 1, word: 0, image: 0 };
        let key = RefusalKey { place, errno: libc::EAGAIN, is_thread: false, shares_memory: false };
        let places = [
            placed("make_child", None),
            placed("make_child", Some(7)),
            placed("spawn", Some(8)),
            placed("spawn", Some(9)),
            placed("spawn", None),
            placed("Perl_pp_fork", Some(10)),
            placed("Perl_pp_system", Some(11)),
        ];
        let seen = places.iter().map(|(native, refused)| Seen {
            key: &key,
            refused,
            process: ProcessName::default(),
            native: native.clone(),
        });
        let all: Vec<Seen<'_>> = seen.collect();
        let known = known_lines(&all);
        let line = |seen, not_refused| {
            lines_of(seen, &known, not_refused).first().and_then(|frame: &Frame| frame.line)
        };
        let lines: Vec<_> = all.iter().map(|seen| line(seen, None)).collect();
        assert_eq!(lines, [Some(7), Some(7), Some(8), Some(9), None, None, Some(11)]);
        let (_, one) = placed("", Some(20));
        assert_eq!(line(&all[5], Some(&one.lines)), Some(20), "of another fork at the place");
        let mut two = one.lines.clone();
        two.add(&[frame("stop", Some(21))], 1);
        assert_eq!(line(&all[5], Some(&two)), None, "of one of two");
    }

    #[test]
    fn every_limit_has_words_of_its_own() {
        let limits = [
            ReachedLimit::User { uid: 1, limit: 2 },
            ReachedLimit::Cgroup { inode: 7, directory: Some("/sys/fs/cgroup/a.slice".into()), limit: 2 },
            ReachedLimit::Threads { limit: 2 },
            ReachedLimit::Numbers { limit: 2 },
            ReachedLimit::NamespaceEnded,
            ReachedLimit::Promised { wanted: 1 << 30, limit: 1 << 31 },
            ReachedLimit::Memory { wanted: 1 << 31, limit: 1 << 30 },
            ReachedLimit::Unknown,
        ];
        let mut said: Vec<String> = limits.iter().map(|limit| reached(limit, false)).collect();
        assert_eq!(said[1], "cgroup a.slice has the 2 processes and threads that pids.max permits");
        let one = ReachedLimit::Cgroup { inode: 7, directory: None, limit: 1 };
        assert_eq!(reached(&one, false), "its cgroup has the one process or thread that pids.max permits");
        said.sort();
        said.dedup();
        assert_eq!(said.len(), limits.len());
    }

    fn cgroup(directory: Option<&str>) -> ReachedLimit {
        ReachedLimit::Cgroup { inode: 7, directory: directory.map(Into::into), limit: 2 }
    }

    fn met(word: u64, shares_memory: bool, limit: ReachedLimit) -> RefusedCreation {
        let place = crate::creation::Place { pid: 1 << 23, nr: 56, ip: 1, word, image: 0 };
        let key = RefusalKey { place, errno: libc::EAGAIN, is_thread: false, shares_memory };
        RefusedCreation { key, thread: 1, comm: "web".into(), cgroup: 0, limit, anon: 400 << 20 }
    }

    fn found(refusals: Vec<RefusedCreation>) -> Vec<Finding> {
        let mut collected = Collected::new();
        let counted: Vec<_> = refusals.iter().map(|refused| refused.key).collect();
        refusals.into_iter().for_each(|refused| collected.refused.met(refused));
        let one = RefusalCount { count: 1, timed: 0, ns: 0 };
        collected.refused.follow(counted.into_iter().map(|key| (key, one)));
        let model = CostModel {
            fork_fixed: Estimate::exact(60e3),
            fork_per_entry: Estimate::exact(100.0),
            teardown_per_entry: Estimate::exact(50.0),
            create: Estimate::exact(30e3),
            ..CostModel::default()
        };
        look(&collected, &HashMap::new(), &model, find)
    }

    /// Regression: a spawn of a program of 500 MiB was said to cost 19 ms, and took 0.08.
    #[test]
    fn a_refused_spawn_copies_no_memory() {
        let cost = |shares| {
            let all = found(vec![met(1, shares, cgroup(None))]);
            let copied = |said: &crate::finding::Evidence| said.what.contains("has been copied");
            (all[0].saving_each_ns.mid, all[0].evidence.iter().any(copied))
        };
        assert_eq!(cost(true), (30e3, false));
        assert_eq!(cost(false), (60e3 + 102_400.0 * 150.0, true), "the copy is made and thrown away");
    }

    /// Regression: the last refusals were told when the cgroup was gone, and were a second finding.
    #[test]
    fn a_cgroup_that_is_gone_meanwhile_is_the_same() {
        let known = || cgroup(Some("/sys/fs/cgroup/a.slice"));
        for limits in [[known(), cgroup(None)], [cgroup(None), known()]] {
            let all = found(limits.into_iter().zip(1..).map(|(limit, at)| met(at, true, limit)).collect());
            let [one] = &all[..] else { panic!("{all:?}") };
            assert_eq!(one.count, 2);
            assert!(one.title.contains("cgroup a.slice"), "{}", one.title);
        }
        let [one] = &found(vec![met(1, true, known()), met(1, true, cgroup(None))])[..] else { panic!() };
        assert!(one.title.contains("cgroup a.slice"), "{}", one.title);
    }
}
