//! `forkless diagnose compare`: what changed between two reports, finding by finding and in all.
//!
//! Only what has an interval, or is counted exactly, is judged. A sum over one watch has neither.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::duration_ns;
use super::json::SCHEMA;
use crate::exit::{Exit, Usage};
use crate::terminal;

/// Say what a remedy changed: compare two reports of `forkless diagnose --json`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  forkless diagnose --json -o before.json -- make\n  forkless diagnose --json -o after.json -- forkless run \
    -- make\n  forkless diagnose compare before.json after.json\n\nExit codes: 0 no regression; 1 a regression: a new finding, or one that \
    is slower or more frequent beyond the limit, or the comparison could not be written (then standard error says so); 2 usage, and reports that cannot be compared."
)]
pub(super) struct Args {
    /// The report of the first watch.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// The report of the second watch.
    #[arg(value_name = "AFTER")]
    after: PathBuf,

    /// A change for the worse is a regression from this percentage on. A time must be worse with
    /// its whole interval.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = crate::args::percent, allow_negative_numbers = true)]
    fail_on_regression: f64,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A larger file is no report: those of the longest watches have some megabytes.
const LARGEST: u64 = 256 << 20;

/// Findings that need system calls counted.
const OF_CALLS: [&str; 8] = [
    "needless_signal_mask",
    "localtime_lookups",
    "close_loop",
    "path_search",
    "missing_program",
    "text_file_busy",
    "constant_system_call",
    "partial_block_writes",
];

/// The parts of a report that are compared. Fields that reports of this schema once did not have
/// may be absent.
#[derive(Debug, Deserialize)]
struct Report {
    tier: String,
    partial: Option<String>,
    #[serde(default)]
    still_running: Vec<u32>,
    window_ns: f64,
    totals: Totals,
    system_calls: bool,
    thresholds: Thresholds,
    starts: Option<Starts>,
    command: Option<String>,
    findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
struct Totals {
    creations: u64,
    lost_ring: u64,
    lost_live: u64,
}

#[derive(Debug, Deserialize)]
struct Thresholds {
    share: f64,
    pause_ns: f64,
}

#[derive(Debug, Deserialize)]
struct Starts {
    programs: u64,
    without_program: u64,
    cost_ns: f64,
    cpu_share: f64,
    each_ns: Option<Interval>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
struct Interval {
    low: f64,
    mid: f64,
    high: f64,
}

#[derive(Debug, Deserialize)]
struct Finding {
    kind: String,
    title: String,
    process: Process,
    place: Option<String>,
    count: u64,
    per_second: f64,
    cost: Cost,
    fork_times: Option<ForkTimes>,
    saving_each_ns: Interval,
    saving_share: Interval,
}

#[derive(Debug, Deserialize)]
struct Process {
    name: Option<String>,
    comm: String,
}

#[derive(Debug, Deserialize)]
struct Cost {
    cpu_share: f64,
}

#[derive(Debug, Deserialize)]
struct ForkTimes {
    call: Interval,
}

impl Finding {
    fn name(&self) -> &str {
        self.process.name.as_deref().unwrap_or(&self.process.comm)
    }

    /// The place without its line: a change of the program moves lines.
    fn function(&self) -> Option<&str> {
        let place = self.place.as_deref()?;
        let place = place.strip_prefix("waits at ").unwrap_or(place);
        let (front, line) = place.rsplit_once(':').unwrap_or((place, ""));
        let is_line = line.strip_suffix(')').is_some_and(|line| line.parse::<u32>().is_ok());
        Some(if is_line { front } else { place })
    }

    /// What one occurrence takes: a fork in its caller, else what the remedy would save.
    fn each(&self) -> Interval {
        self.fork_times.as_ref().map_or(self.saving_each_ns, |times| times.call)
    }

    /// Whether it is a finding with its whole interval, and not just above a threshold.
    fn is_clear(&self, thresholds: &Thresholds) -> bool {
        let pauses = |times: &ForkTimes| times.call.low > thresholds.pause_ns;
        self.saving_share.low > thresholds.share || self.fork_times.as_ref().is_some_and(pauses)
    }
}

impl Interval {
    /// This one relative to another. The two are of different watches, and so independent.
    fn relative_to(self, before: Self) -> Option<Self> {
        if [self, before].iter().any(|side| side.low <= 0.0 || side.mid < side.low || side.high < side.mid) {
            return None;
        }
        let mid = self.mid / before.mid;
        let down = (self.mid / self.low).ln().hypot((before.high / before.mid).ln());
        let up = (self.high / self.mid).ln().hypot((before.mid / before.low).ln());
        Some(Self { low: mid * (-down).exp(), mid, high: mid * up.exp() })
    }
}

fn load(path: &Path) -> anyhow::Result<Report> {
    let shown = path.display();
    let no_report = |why: String| {
        Usage(format!("{shown} is no report: {why}; give what `forkless diagnose --json --output` wrote"))
    };
    let cannot = |error| Usage(format!("cannot read {shown}: {error}"));
    let mut bytes = Vec::new();
    File::open(path).map_err(cannot)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > LARGEST {
        return Err(no_report("it is larger than 256 MiB".to_owned()).into());
    }
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| {
        let of_log = bytes.starts_with(b"{\"call\":");
        no_report(if of_log { "it has the lines of --log".to_owned() } else { error.to_string() })
    })?;
    if value.get("call").is_some() {
        return Err(no_report("it has a line of --log".to_owned()).into());
    }
    match value.get("schema").and_then(Value::as_u64) {
        None => return Err(no_report("it has no field `schema`".to_owned()).into()),
        Some(schema) if schema != u64::from(SCHEMA) => {
            let why = format!("{shown} has schema {schema}, and this forkless reads {SCHEMA}");
            return Err(Usage(format!("{why}; make the report anew")).into());
        }
        Some(_) => {}
    }
    let report: Report = serde_json::from_value(value).map_err(|error| no_report(error.to_string()))?;
    if report.window_ns <= 0.0 {
        return Err(no_report(format!("a watch of {} ns is none", report.window_ns)).into());
    }
    Ok(report)
}

/// What has become of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// A finding with its whole interval, and not there before.
    New,
    /// Not there before, and just above a threshold: the watch before may have missed it.
    BarelyNew,
    Gone,
    Slower,
    MoreOften,
    Faster,
    LessOften,
    NoDifference,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::BarelyNew => "new, just above the threshold",
            Self::Gone => "gone",
            Self::Slower => "SLOWER",
            Self::MoreOften => "MORE OFTEN",
            Self::Faster => "faster",
            Self::LessOften => "less often",
            Self::NoDifference => "no difference shown",
        }
    }

    fn is_regression(self) -> bool {
        matches!(self, Self::New | Self::Slower | Self::MoreOften)
    }
}

/// A count and a time, before and after.
#[derive(Debug, Serialize)]
struct Change {
    verdict: Verdict,
    regression: bool,
    count: [Option<u64>; 2],
    per_second: [Option<f64>; 2],
    each_ns: [Option<Interval>; 2],
    /// After, relative to before.
    ratio: Option<Interval>,
    cpu_share: [Option<f64>; 2],
}

#[derive(Debug, Serialize)]
struct FindingChange {
    kind: String,
    title: String,
    process: String,
    place: Option<String>,
    #[serde(flatten)]
    change: Change,
}

#[derive(Debug, Serialize)]
struct StartsChange {
    #[serde(flatten)]
    change: Change,
    /// A sum over one watch each: it has no interval.
    cost_ns: [Option<f64>; 2],
}

#[derive(Debug, Serialize)]
struct Comparison {
    schema: u32,
    /// What weakens the comparison.
    notes: Vec<String>,
    /// Whether both watched a command to its end: then numbers are compared, else rates are shown.
    whole_runs: bool,
    starts: StartsChange,
    findings: Vec<FindingChange>,
    regressions: usize,
}

/// From what on a change counts.
#[derive(Debug, Clone, Copy)]
struct Limits {
    percent: f64,
    whole_runs: bool,
}

impl Limits {
    fn verdict(self, count: [u64; 2], ratio: Option<Interval>) -> Verdict {
        let worst = 1.0 + self.percent / 100.0;
        let [before, after] = count.map(|count| count as f64);
        if ratio.is_some_and(|ratio| ratio.low > worst) {
            Verdict::Slower
        } else if self.whole_runs && after > before * worst {
            Verdict::MoreOften
        } else if ratio.is_some_and(|ratio| ratio.high < 1.0 / worst) {
            Verdict::Faster
        } else if self.whole_runs && after * worst < before {
            Verdict::LessOften
        } else {
            Verdict::NoDifference
        }
    }
}

/// Watches of different kinds see different findings.
fn family(tier: &str) -> &str {
    if tier.starts_with("bpf") { "BPF" } else { tier }
}

fn compare(before: &Report, after: &Report, percent: f64) -> anyhow::Result<Comparison> {
    let (one, other) = (family(&before.tier), family(&after.tier));
    if one != other {
        let why = format!("one report is by {one} and the other by {other}, which see different things");
        return Err(Usage(format!("{why}; watch both with the same --tier")).into());
    }
    let ran_whole = |report: &Report| {
        report.command.is_some() && report.partial.is_none() && report.still_running.is_empty()
    };
    let limits = Limits { percent, whole_runs: ran_whole(before) && ran_whole(after) };
    let same_calls = before.system_calls == after.system_calls;
    let compared = |report: &'_ Report| -> Vec<usize> {
        let is_compared = |finding: &Finding| same_calls || !OF_CALLS.contains(&finding.kind.as_str());
        (0..report.findings.len()).filter(|&at| is_compared(&report.findings[at])).collect()
    };
    let mut findings = Vec::new();
    let mut left = compared(before);
    for at in compared(after) {
        let now = &after.findings[at];
        let was = partner(now, &before.findings, &left);
        left.retain(|other| Some(*other) != was);
        findings.push(change_of(was.map(|was| &before.findings[was]), now, &after.thresholds, limits));
    }
    findings.extend(left.into_iter().map(|at| gone(&before.findings[at])));
    findings.sort_by_key(|finding| !finding.change.regression);
    let starts = starts(before.starts.as_ref(), after.starts.as_ref(), limits);
    let regressions = findings
        .iter()
        .map(|f| f.change.regression)
        .chain([starts.change.regression])
        .filter(|is| *is)
        .count();
    Ok(Comparison {
        schema: SCHEMA,
        notes: notes(before, after, same_calls),
        whole_runs: limits.whole_runs,
        starts,
        findings,
        regressions,
    })
}

fn notes(before: &Report, after: &Report, same_calls: bool) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, report) in [("before", before), ("after", after)] {
        if report.partial.is_some() {
            notes.push(format!("the watch {name} was interrupted"));
        }
        if !report.still_running.is_empty() {
            notes.push(format!("the watch {name} ended before descendants of its command"));
        }
        let lost = report.totals.lost_ring + report.totals.lost_live;
        if lost > 0 {
            notes.push(format!("the watch {name} lost {lost} events: its counts are too low"));
        }
        if report.starts.is_none() {
            notes.push(format!("the report {name} is of an older forkless, without a sum of all starts"));
        }
    }
    if !same_calls {
        notes.push(
            "only one of the watches counted system calls: findings about them are left out".to_owned(),
        );
    }
    if before.thresholds.share.total_cmp(&after.thresholds.share).is_ne() {
        notes
            .push("the reports have different --min-share: some findings are in one of them only".to_owned());
    }
    if before.command != after.command && before.command.is_some() && after.command.is_some() {
        notes.push("the commands are not the same".to_owned());
    }
    notes
}

/// The same finding in the other report: at the same function, else the only one of its kind and
/// program.
fn partner(finding: &Finding, others: &[Finding], left: &[usize]) -> Option<usize> {
    let alike = |&at: &usize| (&others[at].kind, others[at].name()) == (&finding.kind, finding.name());
    let alike: Vec<usize> = left.iter().copied().filter(alike).collect();
    let at_place = |&&at: &&usize| others[at].function() == finding.function();
    match alike.as_slice() {
        [only] => Some(*only),
        several => several.iter().find(at_place).copied(),
    }
}

fn change_of(
    before: Option<&Finding>,
    after: &Finding,
    thresholds: &Thresholds,
    limits: Limits,
) -> FindingChange {
    let ratio = before.and_then(|before| after.each().relative_to(before.each()));
    let verdict = match before {
        Some(before) => limits.verdict([before.count, after.count], ratio),
        None if after.is_clear(thresholds) => Verdict::New,
        None => Verdict::BarelyNew,
    };
    let change = Change {
        verdict,
        regression: verdict.is_regression(),
        count: [before.map(|f| f.count), Some(after.count)],
        per_second: [before.map(|f| f.per_second), Some(after.per_second)],
        each_ns: [before.map(Finding::each), Some(after.each())],
        ratio,
        cpu_share: [before.map(|f| f.cost.cpu_share), Some(after.cost.cpu_share)],
    };
    named(after, change)
}

fn gone(before: &Finding) -> FindingChange {
    let change = Change {
        verdict: Verdict::Gone,
        regression: false,
        count: [Some(before.count), None],
        per_second: [Some(before.per_second), None],
        each_ns: [Some(before.each()), None],
        ratio: None,
        cpu_share: [Some(before.cost.cpu_share), None],
    };
    named(before, change)
}

fn named(finding: &Finding, change: Change) -> FindingChange {
    FindingChange {
        kind: finding.kind.clone(),
        title: finding.title.clone(),
        process: finding.name().to_owned(),
        place: finding.place.clone(),
        change,
    }
}

fn starts(before: Option<&Starts>, after: Option<&Starts>, limits: Limits) -> StartsChange {
    let both = [before, after];
    let count = both.map(|side| side.map(|starts| starts.programs + starts.without_program));
    let each_ns = both.map(|side| side.and_then(|starts| starts.each_ns));
    let ratio = match each_ns {
        [Some(before), Some(after)] => after.relative_to(before),
        _ => None,
    };
    let verdict = match count {
        [Some(before), Some(after)] => limits.verdict([before, after], ratio),
        _ => Verdict::NoDifference,
    };
    StartsChange {
        change: Change {
            verdict,
            regression: verdict.is_regression(),
            count,
            per_second: [None, None],
            each_ns,
            ratio,
            cpu_share: both.map(|side| side.map(|starts| starts.cpu_share)),
        },
        cost_ns: both.map(|side| side.map(|starts| starts.cost_ns)),
    }
}

fn print(args: &Args, reports: [&Report; 2], comparison: &Comparison) -> String {
    let mut lines = Vec::new();
    for (name, path, report) in [("before", &args.before, reports[0]), ("after ", &args.after, reports[1])] {
        lines.push(format!(
            "{name}  {}: {:.1} s, {}{}",
            path.display(),
            report.window_ns / 1e9,
            super::creations(report.totals.creations),
            report.command.as_ref().map(|command| format!(", of {command}")).unwrap_or_default()
        ));
    }
    lines.extend(comparison.notes.iter().map(|note| format!("NOTE: {note}")));
    let starts = &comparison.starts;
    lines.push(String::new());
    lines.push(format!("{}: all starts of processes", starts.change.verdict.words()));
    lines.extend(facts(&starts.change, comparison.whole_runs));
    if let [Some(before), Some(after)] = starts.cost_ns {
        let (before, after) = (duration_ns(before), duration_ns(after));
        lines.push(format!("   in all   {before} -> {after} (sums of one watch each: no interval)"));
    }
    for finding in &comparison.findings {
        lines.push(String::new());
        lines.push(format!("{}: {}", finding.change.verdict.words(), finding.title));
        if let Some(place) = &finding.place {
            lines.push(format!("   where    {place}"));
        }
        lines.extend(facts(&finding.change, comparison.whole_runs));
    }
    lines.push(String::new());
    lines.push(match comparison.regressions {
        0 => "No regression.".to_owned(),
        1 => "1 regression.".to_owned(),
        several => format!("{several} regressions."),
    });
    let lines: Vec<String> = lines.iter().map(|line| terminal::in_line(line)).collect();
    lines.join("\n") + "\n"
}

/// How often, how long and at what cost, before and after.
fn facts(change: &Change, whole_runs: bool) -> Vec<String> {
    let pair = |before: Option<String>, after: Option<String>| {
        let shown = |side: Option<String>| side.unwrap_or_else(|| "-".to_owned());
        format!("{} -> {}", shown(before), shown(after))
    };
    let mut facts = Vec::new();
    let counts = change.count.map(|count| count.map(|count| count.to_string()));
    let rates = change.per_second.map(|rate| rate.map(|rate| format!("{rate:.1} a second")));
    let [before, after] = if whole_runs || rates.iter().all(Option::is_none) { counts } else { rates };
    facts.push(format!("   times    {}", pair(before, after)));
    let shown = |side: Interval| {
        format!("{} ({} to {})", duration_ns(side.mid), duration_ns(side.low), duration_ns(side.high))
    };
    let [before, after] = change.each_ns.map(|each| each.map(shown));
    let ratio = change
        .ratio
        .map(|ratio| format!(": {:.2} ({:.2} to {:.2}) of before", ratio.mid, ratio.low, ratio.high));
    if before.is_some() || after.is_some() {
        facts.push(format!("   each     {}{}", pair(before, after), ratio.unwrap_or_default()));
    }
    let [before, after] =
        change.cpu_share.map(|share| share.map(|share| format!("{:.2} % of a CPU", share * 100.0)));
    facts.push(format!("   cost     {}", pair(before, after)));
    facts
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let (before, after) = (load(&args.before)?, load(&args.after)?);
    let comparison = compare(&before, &after, args.fail_on_regression)?;
    if args.json {
        terminal::print_json(&comparison)?;
    } else {
        terminal::print(&print(args, [&before, &after], &comparison))?;
    }
    Ok(if comparison.regressions > 0 { Exit::Finding } else { Exit::Fine })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn interval(low: f64, mid: f64, high: f64) -> Interval {
        Interval { low, mid, high }
    }

    fn finding(place: &str, count: u64, each: Interval) -> Finding {
        Finding {
            kind: "full_fork_then_exec".to_owned(),
            title: "app forks".to_owned(),
            process: Process { name: Some("app".to_owned()), comm: "app".to_owned() },
            place: Some(place.to_owned()),
            count,
            per_second: 1.0,
            cost: Cost { cpu_share: 0.1 },
            fork_times: Some(ForkTimes { call: each }),
            saving_each_ns: each,
            saving_share: interval(0.05, 0.1, 0.2),
        }
    }

    fn report(findings: Vec<Finding>) -> Report {
        Report {
            tier: "bpf_tracepoints".to_owned(),
            partial: None,
            still_running: Vec::new(),
            window_ns: 1e9,
            totals: Totals { creations: 1, lost_ring: 0, lost_live: 0 },
            system_calls: true,
            thresholds: Thresholds { share: 0.001, pause_ns: 1e6 },
            starts: None,
            command: Some("app".to_owned()),
            findings,
        }
    }

    fn verdicts(before: Vec<Finding>, after: Vec<Finding>) -> Vec<Verdict> {
        let comparison = compare(&report(before), &report(after), 10.0).expect("the same tier");
        comparison.findings.iter().map(|finding| finding.change.verdict).collect()
    }

    #[test]
    fn a_change_counts_with_its_whole_interval_beyond_the_limit() {
        let slow = || finding("start (app.py:7)", 10, interval(9e6, 10e6, 11e6));
        let faster = || finding("start (app.py:9)", 10, interval(0.9e6, 1e6, 1.1e6));
        let vague = || finding("start (app.py:7)", 10, interval(2e6, 20e6, 90e6));
        assert_eq!(verdicts(vec![slow()], vec![faster()]), [Verdict::Faster], "the line has moved");
        assert_eq!(verdicts(vec![faster()], vec![slow()]), [Verdict::Slower]);
        assert_eq!(verdicts(vec![slow()], vec![vague()]), [Verdict::NoDifference]);
        assert_eq!(verdicts(vec![slow()], vec![slow()]), [Verdict::NoDifference]);
        let often = finding("start (app.py:7)", 20, interval(9e6, 10e6, 11e6));
        assert_eq!(verdicts(vec![slow()], vec![often]), [Verdict::MoreOften]);
        assert_eq!(verdicts(vec![slow()], vec![]), [Verdict::Gone]);
        assert_eq!(verdicts(vec![], vec![slow()]), [Verdict::New]);
    }

    #[test]
    fn findings_at_several_functions_are_told_apart() {
        let at = |place: &str, ms: f64| finding(place, 10, interval(0.9e6 * ms, 1e6 * ms, 1.1e6 * ms));
        let before = vec![at("one (app.py:7)", 10.0), at("two (app.py:70)", 1.0)];
        let after = vec![at("two (app.py:80)", 1.0), at("one (app.py:8)", 1.0)];
        assert_eq!(verdicts(before, after), [Verdict::NoDifference, Verdict::Faster]);
    }

    /// Reports that were kept have `call_site` for what is `stack` now. Neither is needed.
    #[test]
    fn a_report_from_before_stack_had_its_name_is_read() {
        let read = |key: &str| -> Finding {
            let each = json!({ "low": 9e6, "mid": 10e6, "high": 11e6 });
            let mut value = json!({
                "kind": "full_fork_then_exec",
                "title": "app forks",
                "process": { "name": "app", "comm": "app" },
                "place": "start (app.py:7)",
                "count": 10,
                "per_second": 1.0,
                "cost": { "cpu_share": 0.1 },
                "fork_times": { "call": each.clone() },
                "saving_each_ns": each.clone(),
                "saving_share": each,
            });
            value[key] = json!([{ "function": "start", "offset": 0, "module": "app.py", "line": 7 }]);
            serde_json::from_value(value).expect("a finding")
        };
        assert_eq!(verdicts(vec![read("call_site")], vec![read("stack")]), [Verdict::NoDifference]);
    }

    #[test]
    fn watches_of_other_tiers_are_not_compared() {
        let procfs = Report { tier: "procfs".to_owned(), ..report(vec![]) };
        let error = compare(&report(vec![]), &procfs, 10.0).expect_err("other tiers");
        assert!(error.to_string().contains("--tier"), "{error}");
        // Two numbers of one load are no more than a load.
        let of_process =
            Report { command: None, ..report(vec![finding("f", 90, interval(9.0, 10.0, 11.0))]) };
        let before = Report { command: None, ..report(vec![finding("f", 1, interval(9.0, 10.0, 11.0))]) };
        let comparison = compare(&before, &of_process, 10.0).expect("the same tier");
        assert_eq!(comparison.regressions, 0);
    }

    /// What a command leaves in the background goes on unseen: its numbers are those of a part.
    #[test]
    fn a_watch_that_ended_before_a_descendant_is_no_whole_run() {
        let all = |count| vec![finding("f", count, interval(9.0, 10.0, 11.0))];
        let cut = Report { still_running: vec![7], ..report(all(90)) };
        let comparison = compare(&report(all(1)), &cut, 10.0).expect("the same tier");
        assert!(!comparison.whole_runs && comparison.regressions == 0);
        let note = "the watch after ended before descendants of its command";
        assert!(comparison.notes.iter().any(|said| said == note), "{:?}", comparison.notes);
    }

    #[test]
    fn a_ratio_is_as_uncertain_as_both_of_its_sides() {
        let ratio =
            interval(90.0, 100.0, 110.0).relative_to(interval(45.0, 50.0, 55.0)).expect("all above 0");
        assert!(ratio.low < 1.8 && ratio.mid == 2.0 && ratio.high > 2.2, "{ratio:?}");
        assert_eq!(interval(0.0, 1.0, 2.0).relative_to(interval(1.0, 1.0, 1.0)), None);
    }
}
