//! Finding 3: shells started for lines that need none.

use std::collections::HashMap;

use super::{Context, Cost, Finding, FindingKind, advice, evidence, interval, label, lines_evidence};
use crate::collect::{LineCounts, ShellGroup};
use crate::creation::ProgramKey;
use crate::estimate::Estimate;
use crate::invocation::quoted;
use crate::program::ProcessName;
use crate::remedy::{FollowUp, Remedy, Treatment};
use crate::shell::Fate;
use crate::stack::Frame;

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    // By process name: (processes, lines without need, lines with, reasons of need).
    let mut callers: HashMap<(String, Option<String>), Caller> = HashMap::new();
    for ((program, fate), group) in &context.collected.shells {
        let process = context.name(*program, &group.comm);
        let caller = callers.entry((label(&process), process.cgroup.clone())).or_insert_with(|| Caller {
            process,
            programs: Vec::new(),
            needless: Vec::new(),
            several: 0,
            needed: 0,
            unknown: 0,
        });
        if !caller.programs.contains(program) {
            caller.programs.push(*program);
        }
        match fate {
            Fate::OneProgram => caller.needless.push(group),
            Fate::Programs => {
                caller.needless.push(group);
                caller.several += group.count;
            }
            Fate::NeedsShell(_) => caller.needed += group.count,
            Fate::Unknown => caller.unknown += group.count,
        }
    }
    callers.into_values().filter_map(|caller| needless(context, &caller)).collect()
}

/// Whether the C library's system() or popen() has started the shell. [`Treatment::SpareShells`]
/// knows their lines; a program that executes `/bin/sh -c` itself (Perl, Node.js, Python's
/// subprocess) gets its shell there, too.
fn is_libcs(stack: &[Frame]) -> bool {
    let names = [
        "system",
        "do_system",
        "__libc_system",
        "popen",
        "_IO_popen",
        "_IO_new_popen",
        "_IO_proc_open",
        "_IO_new_proc_open",
    ];
    let named = |frame: &Frame| frame.function.as_deref().is_some_and(|function| names.contains(&function));
    // A stripped libc has names only for its exports. There a nameless function of libc calls
    // posix_spawn.
    let nameless = |pair: &[Frame]| {
        pair[0].function.as_deref() == Some("posix_spawn")
            && pair[1].function.is_none()
            && pair[0].module == pair[1].module
    };
    stack.iter().any(named) || stack.windows(2).any(nameless)
}

struct Caller<'c> {
    process: ProcessName,
    programs: Vec<ProgramKey>,
    needless: Vec<&'c ShellGroup>,
    /// Those of them that are of several programs.
    several: u64,
    needed: u64,
    unknown: u64,
}

fn needless(context: &Context<'_>, caller: &Caller<'_>) -> Option<Finding> {
    let count: u64 = caller.needless.iter().map(|group| group.count).sum();
    let mut lines: Vec<(String, u64)> = caller.needless.iter().flat_map(|group| group.lines.top(3)).collect();
    lines.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut overhead = crate::estimate::Times::default();
    for group in &caller.needless {
        overhead.merge(&group.overhead);
    }
    // Measured if the shell's programs were seen to end, else the price of a shell on this machine.
    let saving_each: Estimate = if overhead.count() > 0 {
        overhead.median().at_least_zero()
    } else {
        context.model.shell.at_least_zero()
    };
    let saving_share = context.shares(saving_each, count);
    if count == 0 || saving_share.mid < context.thresholds.share {
        return None;
    }
    let (line, _) = lines.first()?;
    let mut read = LineCounts::default();
    caller.needless.iter().for_each(|group| read.merge(&group.read));
    let sites = caller.needless.iter().flat_map(|group| group.sites.each());
    let stack = context.stack_behind(read.most(), sites);
    let (remedy, obstacle) = if is_libcs(&stack) {
        context.run(Treatment::SpareShells, &caller.programs, caller.process.exe.as_deref())
    } else {
        (Remedy::Change, None)
    };
    let explanation = advice::for_shells(&caller.process, &stack, caller.several * 2 > count);
    let name = label(&caller.process);
    let total = count + caller.needed + caller.unknown;
    let shells_ns = saving_each.mid * count as f64;
    let mut list = vec![
        evidence(
            "shells for one line",
            format!("{total}: {count} need none, {} do, {} too long to tell", caller.needed, caller.unknown),
        ),
        evidence(
            "most frequent lines",
            lines
                .iter()
                .take(3)
                .map(|(line, times)| format!("{line:?} ({times})"))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        evidence("the shell's own part of each", interval(saving_each)),
    ];
    list.extend(lines_evidence(&read, "readings"));
    Some(Finding {
        title: format!("{name} starts a shell {:.1} times a second for lines that need none, such as {line:?}", context.per_second(count)),
        call_site: stack,
        cost: Cost { child_ns: Some(shells_ns), cpu_share: context.share(shells_ns), ..Cost::default() },
        evidence: list,
        reason: "The line is plain words, pipes and redirections: the shell is loaded, linked and started only to start them.".to_owned(),
        explanation,
        remedy,
        obstacle,
        check: quoted(line).map_or_else(|| super::diagnose_again(&caller.programs), FollowUp::ShellLine),
        ..context.finding(FindingKind::NeedlessShell, &caller.process, &caller.programs, count, saving_each)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The remedy for shells of Node.js and Python's subprocess was the preloaded library, which
    /// does not spare them.
    #[test]
    fn only_the_c_librarys_shells_are_spared_by_run() {
        let stack = |functions: &[&str]| -> Vec<Frame> {
            let frame = |name: &&str| Frame {
                function: Some((*name).to_owned()),
                offset: 0,
                module: "/x".to_owned(),
                ..Frame::default()
            };
            functions.iter().map(frame).collect()
        };
        assert!(is_libcs(&stack(&["__clone3", "__spawni", "posix_spawn", "do_system", "main"])));
        assert!(is_libcs(&stack(&["posix_spawn", "_IO_new_proc_open", "_IO_new_popen", "main"])));
        // A stripped libc's system(), and a program's own posix_spawn beside it.
        let mut stripped = stack(&["posix_spawn", "", "main"]);
        stripped[1].function = None;
        assert!(is_libcs(&stripped));
        stripped[1].module = "/program".to_owned();
        assert!(!is_libcs(&stripped));
        assert!(!is_libcs(&stack(&["__libc_fork", "Perl_pp_system", "main"])));
        assert!(!is_libcs(&stack(&["__libc_fork", "uv_spawn"])) && !is_libcs(&[]));
    }

    /// Regression: the line of a `spawn('true')`, which the place has most often, was said to start
    /// the shells.
    #[test]
    fn the_place_is_where_shells_were_started() {
        let frame = |function: &str, line| Frame {
            function: Some(function.to_owned()),
            line,
            module: "server".to_owned(),
            ..Frame::default()
        };
        let place = crate::creation::Place { pid: 1, nr: 56, ip: 1, word: 0, image: 0 };
        let call_site = |read: &[Frame]| {
            let mut group = ShellGroup { count: 1000, ..ShellGroup::default() };
            group.sites.add(place, 1000);
            group.lines.add("uname -a");
            group.overhead.add(2e6);
            if !read.is_empty() {
                group.read.add(read, 1);
            }
            let mut collected = crate::collect::Collected::new();
            collected.shells.insert((place.program(), Fate::OneProgram), group);
            collected.stacks.insert(place, vec![(vec![frame("uv_spawn", None)], 1)]);
            collected.lines_at.entry(place).or_default().add(&[frame("spawnOne", Some(13))], 99);
            let model = crate::model::CostModel::default();
            crate::finding::look(&collected, &HashMap::new(), &model, find).remove(0).call_site
        };
        assert_eq!(
            call_site(&[frame("gitLog", Some(10))]),
            [frame("gitLog", Some(10)), frame("uv_spawn", None)]
        );
        assert_eq!(call_site(&[]), [frame("uv_spawn", None)], "none was read at a shell");
    }
}
