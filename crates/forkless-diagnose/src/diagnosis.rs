//! A watch with the sums it collects, and the report made of them.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::collect::{Collected, Outcome};
use crate::error::WatchError;
use crate::event::{Event, Totals};
use crate::finding::{self, Context, Finding, Thresholds};
use crate::model::CostModel;
use crate::origin::{self, Origin};
use crate::perf::PerfWatch;
use crate::probe::TierProbe;
use crate::procfs;
use crate::reach::Everywhere;
use crate::remedy::StartedProgram;
use crate::sampler::Sampler;
use crate::summary::{self, StartSummary};
use crate::target::{WatchTarget, WatchedCommand};
use crate::tier::Tier;
use crate::timeline::{self, Timeline};
use crate::watch::{Watch, WatchOptions};

/// Time between two readings of the kernel side's sums.
const TICK: Duration = Duration::from_secs(1);

/// How long it may take at most to find where the watched threads have their frames.
const PREPARATION: Duration = Duration::from_secs(2);

/// A watch that is turned into findings.
#[derive(Debug)]
pub struct Diagnosis {
    source: TierWatch,
    limits: Vec<String>,
    refused: Vec<TierProbe>,
    /// The command that the watch runs.
    command: Option<StartedProgram>,
    everywhere: Everywhere,
    collected: Collected,
    model: CostModel,
    thresholds: Thresholds,
    system_calls: bool,
    begin: Instant,
    ticked: Instant,
}

/// Where events come from.
#[derive(Debug)]
enum TierWatch {
    Bpf(Box<Watch>),
    Perf(Box<PerfWatch>),
    Procfs(Box<Sampler>),
}

impl TierWatch {
    /// Starts the best tier that works, or the tier asked for. Also returns what it cannot see, and
    /// adds the better tiers that were refused to `refused`.
    fn start(
        options: &WatchOptions,
        refused: &mut Vec<TierProbe>,
    ) -> Result<(Self, Vec<String>), WatchError> {
        if !matches!(options.tier, Some(Tier::Perf | Tier::Procfs)) {
            match Watch::start(options) {
                Ok(watch) => {
                    let limits = watch.limits();
                    return Ok((Self::Bpf(Box::new(watch)), limits));
                }
                // No lower tier would help.
                Err(WatchError::ForeignProc) => return Err(WatchError::ForeignProc),
                Err(error) if error.is_missing_facility() && options.tier.is_none() => {
                    refused.push(TierProbe { tier: Tier::BpfTracepoints, refused: Some(error.to_string()) });
                }
                Err(error) => return Err(error),
            }
        }
        let own = matches!(options.target, WatchTarget::Pid(_) | WatchTarget::Command(_));
        if options.tier != Some(Tier::Procfs) {
            match PerfWatch::start(&options.target) {
                Ok(watch) => {
                    let limits = watch.limits();
                    return Ok((Self::Perf(Box::new(watch)), limits));
                }
                // Without privileges only one's own processes can be watched, not the machine or a
                // cgroup.
                Err(error) if error.is_missing_facility() && options.tier.is_none() && own => {
                    refused.push(TierProbe { tier: Tier::Perf, refused: Some(error.to_string()) });
                }
                Err(error) => return Err(error),
            }
        }
        if !own {
            return Err(WatchError::TierTooWeak);
        }
        let limits = [
            "counts are lower bounds, and costs are predicted; system calls and stacks are not seen",
            "short-lived children are missed, or count as sharing memory",
        ];
        let sampler = Sampler::start(&options.target.resolve()?)?;
        Ok((Self::Procfs(Box::new(sampler)), limits.map(str::to_owned).to_vec()))
    }
}

/// Creations by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CreationCounts {
    /// Full forks whose child executed a program (or tried to).
    pub full_fork_then_exec: u64,
    /// Full forks whose child did not.
    pub full_fork_alone: u64,
    /// Creations that shared the caller's memory: vfork, posix_spawn, clone(CLONE_VM).
    pub shared_memory: u64,
    /// Speculated forks, which copied little.
    pub speculated: u64,
}

/// The outcome of a diagnosis.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DiagnosisReport {
    /// The tier that was used.
    pub tier: Tier,
    /// The better tiers, and why they are not here. [`probe_tiers`](crate::probe_tiers) has all.
    pub refused: Vec<TierProbe>,
    /// Facts that this tier cannot see, the widest first; empty for a complete tier.
    pub limits: Vec<String>,
    /// Facts that were missed in this watch, beside the lost events of `totals`.
    pub losses: Vec<String>,
    /// Length of the watch, nanoseconds. A command is watched from its start to its end.
    pub window_ns: u64,
    /// Everything counted and lost.
    pub totals: Totals,
    /// Creations by kind, those whose child still runs included.
    pub creations: CreationCounts,
    /// Descendants of a watched command that has ended which still run: what they do is not in the
    /// report.
    pub still_running: Vec<u32>,
    /// How many programs were started, by whom, and what that cost.
    pub starts: StartSummary,
    /// Where the creations come from, the costliest first; empty in a report so far.
    pub origins: Vec<Origin>,
    /// When they happened; empty in a report so far.
    pub timeline: Timeline,
    /// Whether system calls were counted. If not, there are no findings about them.
    pub system_calls: bool,
    /// The least costs of a finding.
    pub thresholds: Thresholds,
    /// The prices the predictions rest on.
    pub model: CostModel,
    /// The largest saving first.
    pub findings: Vec<Finding>,
    /// The command that was run and watched, if one was.
    pub command: Option<StartedProgram>,
}

impl Diagnosis {
    /// Begins to watch through BPF. If BPF is refused, it takes perf events; if these are refused
    /// too and the target is a process or a command, /proc. [`DiagnosisReport::limits`] says what
    /// is then missing.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn start(
        options: &WatchOptions,
        model: CostModel,
        thresholds: Thresholds,
    ) -> Result<Self, WatchError> {
        let mut collected = Collected::new();
        if let WatchTarget::Pid(pid) = options.target {
            collected.baseline_cpu(&procfs::with_descendants(pid));
        }
        let words = match &options.target {
            WatchTarget::Command(WatchedCommand { argv, .. }) => Some(argv.as_slice()),
            _ => None,
        };
        let command = words.map(StartedProgram::of_command);
        // Before the command runs: a short one has ended by the first poll otherwise, and its
        // stacks have no names.
        let everywhere = Everywhere::look(words);
        let mut refused = Vec::new();
        let (mut source, limits) = TierWatch::start(options, &mut refused)?;
        if let (TierWatch::Bpf(watch), WatchTarget::Pid(pid)) = (&mut source, &options.target) {
            let pids = procfs::with_descendants(*pid);
            for found in collected.prepare(&pids, PREPARATION) {
                watch.tell_look(&found)?;
            }
        }
        collected.begins();
        let system_calls = options.system_calls && matches!(source, TierWatch::Bpf(_));
        let now = Instant::now();
        Ok(Self {
            source,
            limits,
            refused,
            command,
            everywhere,
            collected,
            model,
            thresholds,
            system_calls,
            begin: now,
            ticked: now,
        })
    }

    /// Whether the target is a command that has ended.
    pub fn command_ended(&self) -> bool {
        match &self.source {
            TierWatch::Bpf(watch) => watch.command_ended(),
            TierWatch::Perf(watch) => watch.command_ended(),
            TierWatch::Procfs(sampler) => sampler.command_ended(),
        }
    }

    /// How long the watch is: where it runs a command, as long as that. A short command's shares
    /// and rates would otherwise be those of the tool's own waits.
    fn window(&self) -> Duration {
        let ran = match &self.source {
            TierWatch::Bpf(watch) => watch.command_ran(),
            TierWatch::Perf(watch) => watch.command_ran(),
            TierWatch::Procfs(sampler) => sampler.command_ran(),
        };
        ran.unwrap_or_else(|| self.begin.elapsed())
    }

    /// Waits up to `timeout` for events and takes them in.
    ///
    /// # Errors
    /// As [`Watch::poll`].
    pub fn poll(&mut self, timeout: Duration) -> Result<(), WatchError> {
        let timeout = self.collected.look_again().map_or(timeout, |soon| timeout.min(soon));
        self.take_in(timeout)?;
        self.collected.take_names();
        if self.ticked.elapsed() >= TICK {
            self.ticked = Instant::now();
            self.tick(false)?;
        }
        Ok(())
    }

    fn take_in(&mut self, timeout: Duration) -> Result<(), WatchError> {
        let Self { source, collected, .. } = self;
        match source {
            TierWatch::Bpf(watch) => {
                let mut copies_much = false;
                watch.poll(timeout, |event: Event| copies_much |= collected.event(event))?;
                for found in collected.take_returns() {
                    watch.tell_return(&found)?;
                }
                for found in collected.take_looks() {
                    watch.tell_look(&found)?;
                }
                if copies_much {
                    watch.track_copies()?;
                }
            }
            TierWatch::Perf(watch) => {
                watch.poll(timeout, |event| {
                    collected.event(event);
                })?;
                for found in collected.take_returns() {
                    watch.tell_return(found);
                }
            }
            TierWatch::Procfs(sampler) => sampler.poll(timeout, |event| {
                collected.event(event);
            }),
        }
        Ok(())
    }

    /// Takes over the sums of the kernel side: those that are due, or all.
    fn tick(&mut self, everything: bool) -> Result<(), WatchError> {
        match &self.source {
            TierWatch::Bpf(watch) => self.collected.tick(watch, everything)?,
            TierWatch::Perf(watch) => {
                self.collected.tick_sampled(watch.totals());
                self.collected.cpu_samples(watch.samples());
            }
            TierWatch::Procfs(sampler) => self.collected.tick_sampled(sampler.totals()),
        }
        Ok(())
    }

    /// Makes a report of everything collected so far. It waits until every stack has its names:
    /// with large libraries that takes seconds, in which no events are taken in. The watch goes on.
    /// For reports during a watch use [`report_so_far`](Self::report_so_far).
    ///
    /// # Errors
    /// [`WatchError::Map`] if the kernel side cannot be read.
    pub fn report(&mut self) -> Result<DiagnosisReport, WatchError> {
        self.tick(true)?;
        let window = self.window();
        self.collected.take_all_names();
        self.judge(window, true)
    }

    /// The same without the wait. Places whose symbols are still being read are missing from
    /// it.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    pub fn report_so_far(&mut self) -> Result<DiagnosisReport, WatchError> {
        self.tick(true)?;
        let window = self.window();
        self.collected.take_names();
        self.judge(window, false)
    }

    fn judge(&self, window: Duration, with_pictures: bool) -> Result<DiagnosisReport, WatchError> {
        let (living, tier) = match &self.source {
            TierWatch::Bpf(watch) => (watch.living()?, watch.tier()),
            TierWatch::Perf(watch) => (watch.living(), Tier::Perf),
            TierWatch::Procfs(_) => (Vec::new(), Tier::Procfs),
        };
        let losses = match &self.source {
            TierWatch::Perf(watch) => watch.losses(),
            _ => Vec::new(),
        };
        let mut totals = self.collected.totals;
        totals.stacks_skipped += self.collected.stacks_left_out();
        let groups = self.collected.groups_with(&living);
        let count = |outcome| {
            let alive = living.iter().filter(|creation| Outcome::of(creation) == outcome).count() as u64;
            self.collected.outcomes.get(&outcome).copied().unwrap_or(0) + alive
        };
        let creations = CreationCounts {
            full_fork_then_exec: count(Outcome::ForkThenExec),
            full_fork_alone: count(Outcome::ForkAlone),
            shared_memory: count(Outcome::Shared),
            speculated: count(Outcome::Speculated),
        };
        let window_ns = window.as_nanos() as f64;
        let starters = self.collected.starters_with(&living);
        let starts = summary::of(&starters, &self.collected.each, &self.model, window_ns, tier);
        let (origins, timeline) = if with_pictures {
            let (origins, moments) = self.collected.pictures_with(&living);
            (origin::of(&self.collected, &origins, &self.model), timeline::of(&moments, &self.model))
        } else {
            (Vec::new(), Timeline::default())
        };
        let namesakes = finding::namesakes(&self.collected);
        let context = Context {
            collected: &self.collected,
            groups: &groups,
            namesakes: &namesakes,
            starters: &starters,
            model: &self.model,
            everywhere: &self.everywhere,
            command: self.command.as_ref(),
            thresholds: self.thresholds,
            window_ns,
        };
        let has_ended = self.command.is_some() && self.command_ended();
        let children = living.iter().map(|creation| creation.child);
        let still_running = children.filter(|child| has_ended && procfs::runs(*child)).collect();
        Ok(DiagnosisReport {
            tier,
            still_running,
            refused: self.refused.clone(),
            limits: self.limits.clone(),
            losses,
            window_ns: window.as_nanos() as u64,
            totals,
            creations,
            starts,
            origins,
            timeline,
            system_calls: self.system_calls,
            thresholds: self.thresholds,
            model: self.model,
            findings: finding::all(&context),
            command: self.command.clone(),
        })
    }

    /// The totals, and the findings of `report`, in the OpenMetrics text format. Bounded: a few
    /// kinds for each of at most 201 cgroups, never a pid.
    pub fn metrics(&self, report: &DiagnosisReport) -> String {
        crate::metrics::encode(&self.collected, &report.findings, self.system_calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(target: WatchTarget) -> Result<Diagnosis, WatchError> {
        let options = WatchOptions { tier: Some(Tier::Procfs), ..WatchOptions::new(target) };
        Diagnosis::start(&options, CostModel::default(), Thresholds::default())
    }

    #[test]
    fn the_lowest_tier_counts_a_child_and_says_what_it_misses() {
        let mut diagnosis = sampled(WatchTarget::Pid(std::process::id())).expect("our own process");
        let before = diagnosis.report_so_far().expect("a report").totals.creations;
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
        diagnosis.poll(Duration::from_millis(10)).expect("a look");
        let report = diagnosis.report().expect("a report");
        child.kill().expect("it is ours");
        child.wait().expect("it ended");
        // Other tests of this process may have children, too.
        assert!(report.totals.creations > before, "{report:?}");
        assert!(report.limits.iter().any(|limit| limit.contains("lower bounds")), "{report:?}");
        assert!(diagnosis.metrics(&report).contains("forkless_events_lost_total 0\n"));
    }

    /// `sh -c` of three programs ran for 3.5 ms, and its shares were those of 116 ms.
    #[test]
    fn a_commands_watch_is_as_long_as_the_command() {
        let mut diagnosis =
            sampled(WatchTarget::Command(WatchedCommand::new(["true"]))).expect("our own command");
        let until = Instant::now() + Duration::from_secs(60);
        while !diagnosis.command_ended() && Instant::now() < until {
            diagnosis.poll(Duration::from_millis(10)).expect("a look");
        }
        let window = diagnosis.report_so_far().expect("a report").window_ns;
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(diagnosis.report().expect("a report").window_ns, window);
        assert!(diagnosis.command_ended() && window > 0);
    }

    #[test]
    fn a_command_that_cannot_be_run_is_an_error() {
        let refused = sampled(WatchTarget::Command(WatchedCommand::new(["/nonexistent"])));
        assert!(matches!(refused, Err(WatchError::Command { .. })));
        assert!(
            !WatchError::EmptyCommand.is_missing_facility() && WatchError::LockedDown.is_missing_facility()
        );
    }
}
