//! Finding 6, its exec part: searches along PATH, programs that are not there, files still open for
//! writing.

use std::collections::HashMap;

use super::{Context, Cost, Evidence, Finding, FindingKind, evidence, label, several};
use crate::collect::{FailedExecs, LineShare, UNKNOWN};
use crate::creation::ProgramKey;
use crate::estimate::Estimate;
use crate::invocation::quoted;
use crate::program::ProcessName;
use crate::remedy::FollowUp;
use crate::stack::Frame;

/// From this many children without a program on, it is a loop and no accident.
const MISSING_FROM: u64 = 3;

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    type Sum = (ProcessName, Vec<ProgramKey>, FailedExecs);
    let mut by_name: HashMap<(String, Option<String>), Sum> = HashMap::new();
    for (program, failed) in &context.collected.failed {
        let process = context.name(*program, &failed.comm);
        let (_, programs, sum) = by_name
            .entry((label(&process), process.cgroup.clone()))
            .or_insert_with(|| (process, Vec::new(), FailedExecs::default()));
        programs.push(*program);
        sum.merge(failed);
    }
    by_name
        .into_values()
        .flat_map(|(process, programs, failed)| {
            [
                path_search(context, &process, &programs, &failed),
                missing(context, &process, &programs, &failed),
                busy(context, &process, &programs, &failed),
            ]
        })
        .flatten()
        .collect()
}

struct Text {
    title: String,
    stack: Vec<Frame>,
    lines: Vec<LineShare>,
    evidence: Vec<Evidence>,
    reason: &'static str,
    explanation: &'static str,
    check: FollowUp,
    /// A program that cannot be executed is more than its cost.
    is_failure: bool,
}

fn finding(
    context: &Context<'_>,
    kind: FindingKind,
    process: &ProcessName,
    programs: &[ProgramKey],
    count: u64,
    saving_each: Estimate,
    text: Text,
) -> Finding {
    let ns = saving_each.mid * count as f64;
    Finding {
        title: text.title,
        stack: text.stack,
        lines: text.lines,
        cost: Cost { child_ns: Some(ns), cpu_share: context.share(ns), ..Cost::default() },
        evidence: text.evidence,
        reason: text.reason.to_owned(),
        explanation: text.explanation.to_owned(),
        check: text.check,
        counts_at_any_cost: text.is_failure,
        ..context.finding(kind, process, programs, count, saving_each)
    }
}

/// A command about the first of these files. Any program may have made up a path, so it is quoted.
/// One that does not begin with `/` names nothing in the reader's directory, and may be an option:
/// `fuser -v -km` kills.
fn about_files(command: &str, files: &[(String, u64)], programs: &[ProgramKey]) -> FollowUp {
    const MOST: usize = 4;
    let absolute = files.iter().filter(|(path, _)| path.starts_with('/'));
    let words: Vec<_> = absolute.take(MOST).filter_map(|(path, _)| quoted(path)).collect();
    if words.is_empty() {
        return super::diagnose_again(programs);
    }
    FollowUp::Command(format!("{command} {}", words.join(" ")))
}

/// A command that seeks it in the same way.
fn about_sought(name: &str, programs: &[ProgramKey]) -> FollowUp {
    match quoted(name).filter(|_| !name.starts_with('-')) {
        Some(name) => FollowUp::Command(format!("command -v {name}")),
        None => super::diagnose_again(programs),
    }
}

/// Files with their counts: all that have room.
fn listed(files: &[(String, u64)], others: u64) -> String {
    let mut words: Vec<String> = files.iter().map(|(path, count)| format!("{path} ({count})")).collect();
    if others > 0 {
        words.push(format!("others ({others})"));
    }
    words.join(", ")
}

fn path_search(
    context: &Context<'_>,
    process: &ProcessName,
    programs: &[ProgramKey],
    failed: &FailedExecs,
) -> Option<Finding> {
    let count = failed.searched;
    let each = context.model.failed_exec;
    if count == 0 || context.share(each.mid * count as f64) < context.thresholds.share {
        return None;
    }
    let per_creation = count as f64 / failed.searching_creations.max(1) as f64;
    let text = Text {
        title: format!(
            "{} finds its programs by failing execs: {per_creation:.1} misses before each",
            label(process)
        ),
        stack: context.stack_of(failed.searching_places.each()),
        lines: several(&context.compiled_lines(failed.searching_places.each())),
        evidence: vec![evidence(
            "execs of files that are not there",
            format!("{count}, before {} that succeeded", failed.searching_creations),
        )],
        reason: "The child tries each directory of PATH by an exec, and does so again for every child.",
        explanation: if super::storms::is_starter(process) {
            "Give it the full path of the program, or put its directory first in PATH"
        } else {
            "Look the program up once in the parent and execute its full path (the library forkless does), or put its directory first in PATH"
        },
        check: FollowUp::Log { pid: super::living(programs) },
        is_failure: false,
    };
    Some(finding(context, FindingKind::PathSearch, process, programs, count, each, text))
}

fn missing(
    context: &Context<'_>,
    process: &ProcessName,
    programs: &[ProgramKey],
    failed: &FailedExecs,
) -> Option<Finding> {
    let (paths, sought) = (failed.missing_paths.all(), failed.sought.all());
    let others = failed.missing_paths.others() + failed.sought.others();
    // Of several kinds the most frequent are the first.
    let mut files = [&paths[..], &sought].concat();
    files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let count = files.iter().map(|(_, count)| count).sum::<u64>() + others;
    if count < MISSING_FROM {
        return None;
    }
    let name = label(process);
    let title = match &files[..] {
        [(sought, times)] if paths.is_empty() => {
            let each = (failed.sought_paths as f64 / *times as f64).round();
            format!("{name} tries {each} paths for {sought}, and none exists: {count} times")
        }
        [(path, _)] if path == UNKNOWN => {
            format!("{name} executes a program that does not exist, whose name is not known: {count} times")
        }
        [(path, _)] => format!("{name} executes {path}, which does not exist: {count} times"),
        [first, second] => {
            let both = listed(&[first.clone(), second.clone()], 0);
            format!("{name} executes programs that do not exist, {count} times: {both}")
        }
        [first, ..] => {
            let most = listed(std::slice::from_ref(first), 0);
            let more = files.len() - 1;
            format!("{name} executes programs that do not exist, {count} times: {most} and {more} more")
        }
        [] => return None,
    };
    let text = Text {
        title,
        stack: context.stack_of(failed.missing_places.each()),
        lines: several(&context.compiled_lines(failed.missing_places.each())),
        evidence: vec![
            evidence("programs that do not exist", listed(&files, others)),
            evidence("children that could execute nothing", count.to_string()),
            evidence("their execs that failed", failed.missing.to_string()),
        ],
        reason: "A whole process is created each time only to find that its program is missing.",
        explanation: "Install the program or correct its path; check for it before creating a process",
        check: match &files[..] {
            [(sought, _)] if paths.is_empty() => about_sought(sought, programs),
            _ => about_files("ls -l", &files, programs),
        },
        is_failure: true,
    };
    // The whole creation is wasted.
    let execs = failed.missing as f64 / count as f64;
    let each = context.model.spawn.plus(context.model.failed_exec.times(execs));
    Some(finding(context, FindingKind::MissingProgram, process, programs, count, each, text))
}

fn busy(
    context: &Context<'_>,
    process: &ProcessName,
    programs: &[ProgramKey],
    failed: &FailedExecs,
) -> Option<Finding> {
    if failed.busy == 0 {
        return None;
    }
    let (files, others) = (failed.busy_paths.all(), failed.busy_paths.others());
    let text = Text {
        title: format!(
            "{} executes files that are still open for writing: {} times ETXTBSY",
            label(process),
            failed.busy
        ),
        stack: context.stack_of(failed.busy_places.each()),
        lines: several(&context.compiled_lines(failed.busy_places.each())),
        evidence: vec![evidence("files, by children", listed(&files, others))],
        reason: "A writing descriptor of the file was inherited by another child, which holds it open until its own exec.",
        explanation: "Open files with O_CLOEXEC, and create children without copying descriptors (forkless, posix_spawn with close-on-exec)",
        check: about_files("fuser -v", &files, programs),
        is_failure: true,
    };
    Some(finding(
        context,
        FindingKind::TextFileBusy,
        process,
        programs,
        failed.busy,
        context.model.failed_exec,
        text,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::Collected;
    use crate::creation::Creation;
    use crate::event::Event;
    use crate::finding::{Thresholds, look};
    use crate::model::CostModel;

    /// A search along PATH is told by its cost, a failure from the first on.
    #[test]
    fn a_failure_counts_whatever_it_costs() {
        let mut failed =
            FailedExecs { searched: 9, searching_creations: 3, busy: 1, ..FailedExecs::default() };
        (0..MISSING_FROM).for_each(|_| failed.missing_paths.add("/bin/absent"));
        let mut collected = Collected::new();
        collected.failed.insert(ProgramKey { pid: 1, image: 0 }, failed);
        let model = CostModel { failed_exec: Estimate::exact(1e9), ..CostModel::default() };
        let mut found = look(&collected, &HashMap::new(), &model, find);
        found.sort_by_key(|finding| finding.kind.name());
        let counts: Vec<_> =
            found.iter().map(|finding| (finding.kind.name(), finding.counts_at_any_cost)).collect();
        assert_eq!(counts, [("missing_program", true), ("path_search", false), ("text_file_busy", true)]);
    }

    /// With a least share of 0, execs of a file that is nowhere were a search with "0.0 misses".
    #[test]
    fn no_search_is_no_finding() {
        let mut failed = FailedExecs { missing: 20, creations: 20, ..FailedExecs::default() };
        failed.missing_paths.add("/nope");
        let mut collected = Collected::new();
        collected.failed.insert(ProgramKey { pid: 1, image: 0 }, failed);
        let found = look(&collected, &HashMap::new(), &CostModel::default(), |context| {
            find(&Context { thresholds: Thresholds::of(0.0), ..*context })
        });
        assert!(found.iter().all(|finding| finding.kind != FindingKind::PathSearch), "{found:?}");
    }

    /// Regression: of a program that executes a busy file named `-km`, the report said
    /// `fuser -v -km`, which kills.
    #[test]
    fn a_name_is_no_option_of_a_command() {
        let files = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1)).collect::<Vec<_>>();
        let FollowUp::Command(line) = about_files("fuser -v", &files(&["-km", "a", "/srv/-x"]), &[]) else {
            panic!("no command");
        };
        assert_eq!(line, "fuser -v /srv/-x");
        assert_eq!(about_files("fuser -v", &files(&["-km"]), &[]), FollowUp::Diagnose { pid: None });
    }

    /// "executes /bin/no-such-prog, which does not exist" was said of a name that was sought along
    /// PATH.
    #[test]
    fn a_name_that_was_tried_at_several_paths_is_told_so() {
        // Each path that a child tries, and their number.
        let found = |path: Option<&str>, missing: u32| {
            let mut collected = Collected::new();
            for _ in 0..3 {
                let exec_failed_path = path.map(str::to_owned);
                let failed = Creation { exec_missing: missing, exec_failed_path, ..Creation::unseen() };
                collected.event(Event::Created(Box::new(failed)));
            }
            let found = look(&collected, &HashMap::new(), &CostModel::default(), find);
            let missing = found.into_iter().find(|found| found.kind == FindingKind::MissingProgram);
            missing.map(|found| (found.title, found.check)).expect("it is a failure")
        };
        let is_command = |check: &FollowUp, line: &str| *check == FollowUp::Command(line.to_owned());
        let (title, check) = found(Some("/bin/no-such-prog"), 9);
        assert!(title.ends_with(" tries 9 paths for no-such-prog, and none exists: 3 times"), "{title}");
        assert!(is_command(&check, "command -v no-such-prog"), "{check:?}");
        let (title, check) = found(Some("/bin/such prog"), 2);
        assert!(title.ends_with(" tries 2 paths for such prog, and none exists: 3 times"), "{title}");
        assert!(is_command(&check, "command -v 'such prog'"), "{check:?}");
        // One that names a file of the program's directory was sought nowhere.
        let (title, check) = found(Some("no-such-prog"), 1);
        assert!(title.ends_with(" executes no-such-prog, which does not exist: 3 times"), "{title}");
        assert_eq!(check, FollowUp::Diagnose { pid: None });
        let (title, _) = found(None, 2);
        assert!(title.ends_with(" that does not exist, whose name is not known: 3 times"), "{title}");
        assert_eq!(about_sought("-v", &[]), FollowUp::Diagnose { pid: None }, "it would be an option");
    }

    /// Regression: of three programs that are missing, 200 times each, one was named, and its 200
    /// were the count.
    #[test]
    fn every_missing_program_is_named_and_counted() {
        let mut failed = FailedExecs { missing: 12, ..FailedExecs::default() };
        for (path, count) in [("/a", 5), ("/b", 4), ("/c", 1)] {
            (0..count).for_each(|_| failed.missing_paths.add(path));
        }
        let mut collected = Collected::new();
        collected.failed.insert(ProgramKey { pid: 1, image: 0 }, failed);
        let found = look(&collected, &HashMap::new(), &CostModel::default(), find);
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(finding.count, 10);
        assert!(finding.title.ends_with("do not exist, 10 times: /a (5) and 2 more"), "{}", finding.title);
        assert_eq!(finding.evidence[0].value, "/a (5), /b (4), /c (1)");
        assert!(matches!(&finding.check, FollowUp::Command(line) if line == "ls -l /a /b /c"));
    }
}
