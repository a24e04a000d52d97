//! Finding 6, its exec part: searches along PATH, programs that are not there, files still open for
//! writing.

use std::collections::HashMap;

use super::{Context, Cost, Evidence, Finding, FindingKind, evidence, label, several};
use crate::collect::{FailedExecs, LineShare};
use crate::creation::ProgramKey;
use crate::estimate::Estimate;
use crate::invocation::quoted;
use crate::program::ProcessName;
use crate::remedy::FollowUp;
use crate::stack::Frame;

/// From this many execs of a missing program on, it is a loop and no accident.
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

/// A command about a file. Any program may have made up its path, so it is quoted.
fn about_file(command: &str, path: &str, programs: &[ProgramKey]) -> FollowUp {
    quoted(path).map_or_else(
        || super::diagnose_again(programs),
        |path| FollowUp::Command(format!("{command} {path}")),
    )
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
        stack: context.stack_of(failed.places.each()),
        lines: several(&context.compiled_lines(failed.places.each())),
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
    let (path, count) = failed.missing_paths.top(1).into_iter().next()?;
    if count < MISSING_FROM {
        return None;
    }
    let text = Text {
        title: format!("{} executes {path}, which does not exist: {count} times", label(process)),
        stack: context.stack_of(failed.places.each()),
        lines: several(&context.compiled_lines(failed.places.each())),
        evidence: vec![evidence("children that could execute nothing", failed.missing.to_string())],
        reason: "A whole process is created each time only to find that its program is missing.",
        explanation: "Install the program or correct its path; check for it before creating a process",
        check: about_file("ls -l", &path, programs),
        is_failure: true,
    };
    // The whole creation is wasted.
    let each = context.model.spawn.plus(context.model.failed_exec);
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
    let path = failed.busy_paths.top(1).into_iter().next().map_or_else(|| "?".to_owned(), |(path, _)| path);
    let text = Text {
        title: format!(
            "{} executes files that are still open for writing: {} times ETXTBSY",
            label(process),
            failed.busy
        ),
        stack: context.stack_of(failed.places.each()),
        lines: several(&context.compiled_lines(failed.places.each())),
        evidence: vec![evidence("most frequent file", path.clone())],
        reason: "A writing descriptor of the file was inherited by another child, which holds it open until its own exec.",
        explanation: "Open files with O_CLOEXEC, and create children without copying descriptors (forkless, posix_spawn with close-on-exec)",
        check: about_file("fuser -v", &path, programs),
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
}
