//! Threads that wait while another thread of their process forks: the kernel holds the lock of the
//! memory map until the page tables are copied.

use std::collections::HashMap;

use super::{Context, Cost, Finding, FindingKind, evidence, label, time};
use crate::collect::{Group, Outcome};
use crate::creation::{Place, ProgramKey};
use crate::program::ProcessName;
use crate::remedy::{Remedy, Treatment};
use crate::stack::Frame;

/// The waits must be so many times the least share of a finding: by default 2 % of a CPU. Or each
/// is as long as a pause that is a finding.
const SHARE: f64 = 20.0;
/// As for forks: a wait beyond what the memory explains is preemption.
const MARGIN: f64 = 4.0;

struct Merged {
    process: ProcessName,
    programs: Vec<ProgramKey>,
    places: HashMap<Place, u64>,
    outcome: Outcome,
    group: Group,
}

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    type Key = (String, Option<String>, Vec<Frame>, Outcome);
    let mut merged: HashMap<Key, Merged> = HashMap::new();
    for ((place, outcome), group) in context.groups.iter().filter(|(_, group)| group.stalled > 0) {
        let process = context.name(place.program(), &group.comm);
        let key = (label(&process), process.cgroup.clone(), context.native_or_lines(place), *outcome);
        let known = merged.entry(key).or_insert_with(|| Merged {
            process,
            programs: Vec::new(),
            places: HashMap::new(),
            outcome: *outcome,
            group: Group::default(),
        });
        if !known.programs.contains(&place.program()) {
            known.programs.push(place.program());
        }
        *known.places.entry(*place).or_default() += group.stalling;
        known.group.merge(group);
    }
    merged.into_values().filter_map(|merged| finding(context, &merged)).collect()
}

fn finding(context: &Context<'_>, merged: &Merged) -> Option<Finding> {
    let Merged { process, programs, places, outcome, group } = merged;
    let model = context.model;
    let forks = group.stalling;
    let ns = group.stalled_ns as f64;
    let each_thread = ns / group.stalled as f64;
    let entries = (group.anon.mean + group.swap.mean) / 4096.0;
    let tables = super::forks::sparse_tables(context, group, 0.0);
    let explained = MARGIN * model.fork(entries as u64, 0).plus(tables).high;
    let counted = each_thread.min(explained);
    let total = counted * group.stalled as f64;
    let is_much =
        context.share(total) >= context.thresholds.share * SHARE && total >= context.thresholds.total_ns;
    if !is_much && counted < context.thresholds.pause_ns {
        return None;
    }
    let each_fork = ns / forks as f64;
    let all = crate::Estimate::exact(each_fork);
    let is_start = *outcome == Outcome::ForkThenExec;
    // A spawn holds no lock; a fork of huge pages holds it for a part of the time.
    let kept = if is_start {
        0.0
    } else {
        let huge = model.fork(0, (group.anon.mean / f64::from(2 << 20)) as u64);
        (huge.mid / model.fork(entries as u64, 0).mid.max(1.0)).min(1.0)
    };
    let saving_each = all.times(1.0 - kept);
    let threads = (group.stalled as f64 / forks as f64).round().max(1.0);
    let noun = if threads > 1.0 { "threads" } else { "thread" };
    let (treatment, explanation) = if is_start {
        (
            Treatment::SpeculateForks,
            "Start programs with posix_spawn or vfork (libraries: forkless), which lock nothing",
        )
    } else {
        (
            Treatment::UseHugePages,
            "Put the heap into huge pages (madvise(MADV_HUGEPAGE)), or fork before the threads are busy",
        )
    };
    let reach = context.reach(programs);
    let runs = if is_start {
        context.everywhere.in_forks(reach, group.anon.mean as u64).is_ok()
    } else {
        context.everywhere.in_program(reach).is_ok()
    };
    let exe = process.exe.as_deref().filter(|_| runs);
    Some(Finding {
        title: format!(
            "a fork of {} stalls {threads:.0} other {noun} for {}, {:.1} a second",
            process.name,
            time(each_thread),
            context.per_second(forks),
        ),
        stack: context.stack_of(places.iter().map(|(place, count)| (place, *count))),
        cost: Cost { others_ns: Some(ns), cpu_share: context.share(ns), ..Cost::default() },
        evidence: vec![
            evidence("forks that stalled other threads", format!("{forks} of {}", group.count)),
            evidence(
                "threads that waited for the memory map",
                format!("{} in all, {} at most behind one fork", group.stalled, group.most_stalled),
            ),
            evidence("they waited", format!("{} in all, {} each", time(ns), time(each_thread))),
            evidence("the fork itself, in its caller", time(group.caller.mean())),
        ],
        reason: "While a fork copies page tables, no other thread of the process can map memory or have a page fault served.".to_owned(),
        explanation: explanation.to_owned(),
        remedy: exe.map_or(Remedy::Change, |exe| Remedy::Run {
            treatment,
            program: Some(context.program(programs, exe)),
        }),
        // The sum was looked at above.
        counts_at_any_cost: true,
        ..context.finding(FindingKind::Bystanders, process, programs, forks, saving_each)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Estimate;
    use crate::collect::Collected;
    use crate::finding::look;
    use crate::model::CostModel;

    /// The first fork of a program, whose line was read too late, was a finding of its own, at a
    /// line of the interpreter.
    #[test]
    fn forks_of_one_native_stack_are_one_finding() {
        let frame = |function: &str, line| Frame {
            function: Some(function.into()),
            line,
            module: "server".into(),
            ..Frame::default()
        };
        let place = |word| Place { pid: 1, nr: 56, ip: 1, word, image: 0 };
        let group = |stalling| {
            let mut group =
                Group { count: stalling, comm: "server".to_owned(), stalling, ..Group::default() };
            (group.stalled, group.stalled_ns) = (4 * stalling, 80_000_000 * stalling);
            group.caller.add(20e6);
            group.anon.add(f64::from(1 << 30));
            group
        };
        let groups = HashMap::from([
            ((place(0), Outcome::ForkThenExec), group(1)),
            ((place(9), Outcome::ForkThenExec), group(19)),
        ]);
        let mut collected = Collected::new();
        for word in [0, 9] {
            collected.stacks.insert(place(word), vec![(vec![frame("os_fork", None)], 1)]);
        }
        collected.lines_at.entry(place(9)).or_default().add(&[frame("start", Some(7))], 3);
        let each = Estimate { low: 25.0, mid: 25.0, high: 25.0 };
        let model = CostModel { fork_per_entry: each, ..CostModel::default() };
        let found = look(&collected, &groups, &model, find);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.count, &one.stack), (20, &vec![frame("start", Some(7)), frame("os_fork", None)]));
    }
}
