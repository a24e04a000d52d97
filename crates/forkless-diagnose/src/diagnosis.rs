//! A watch, what it has collected, and the report made of it.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::collect::{Collected, Outcome};
use crate::error::WatchError;
use crate::finding::{self, Context, Finding, Thresholds};
use crate::model::CostModel;
use crate::target::Target;
use crate::tier::Tier;
use crate::watch::{Event, Totals, Watch, WatchOptions};

/// Between two looks at what the kernel side sums up.
const TICK: Duration = Duration::from_secs(1);

/// A watch that is turned into findings.
///
/// ```no_run
/// use std::time::{Duration, Instant};
/// use forkless_diagnose::{CostModel, Diagnosis, Target, Thresholds, WatchOptions};
///
/// let model = CostModel::calibrate()?;
/// let mut diagnosis = Diagnosis::start(&WatchOptions::new(Target::Pid(4711)), model, Thresholds::default())?;
/// let until = Instant::now() + Duration::from_secs(10);
/// while Instant::now() < until {
///     diagnosis.poll(Duration::from_millis(100))?;
/// }
/// for finding in diagnosis.report()?.findings {
///     println!("{}: {}", finding.title, finding.remedy);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Diagnosis {
    watch: Watch,
    collected: Collected,
    model: CostModel,
    thresholds: Thresholds,
    system_calls: bool,
    begin: Instant,
    ticked: Instant,
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
}

/// The outcome of a diagnosis. Serializes to the JSON that `forkless diagnose --json` prints.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Of this JSON's shape.
    pub schema: u32,
    /// How the kernel was asked.
    pub tier: Tier,
    /// Length of the watch, nanoseconds.
    pub window_ns: u64,
    /// What the kernel side counted and lost.
    pub totals: Totals,
    /// Creations by kind, those whose child still runs included.
    pub creations: CreationCounts,
    /// Whether system calls were counted: without, findings about them cannot appear.
    pub system_calls: bool,
    /// From where on something is a finding.
    pub thresholds: Thresholds,
    /// The prices the predictions rest on.
    pub model: CostModel,
    /// The largest saving first.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Begins to watch.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub fn start(
        options: &WatchOptions,
        model: CostModel,
        thresholds: Thresholds,
    ) -> Result<Self, WatchError> {
        let mut collected = Collected::new();
        if let Target::Pid(pid) = options.target {
            collected.baseline_cpu(&crate::procfs::with_descendants(pid));
        }
        let watch = Watch::start(options)?;
        let now = Instant::now();
        Ok(Self {
            watch,
            collected,
            model,
            thresholds,
            system_calls: options.system_calls,
            begin: now,
            ticked: now,
        })
    }

    /// The watch behind it.
    pub fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// Waits up to `timeout` for events and takes them in.
    ///
    /// # Errors
    /// As [`Watch::poll`].
    pub fn poll(&mut self, timeout: Duration) -> Result<(), WatchError> {
        let Self { watch, collected, .. } = self;
        let mut copies_much = false;
        watch.poll(timeout, |event: Event| copies_much |= collected.event(event))?;
        if copies_much {
            watch.track_faults()?;
        }
        if self.ticked.elapsed() >= TICK {
            self.ticked = Instant::now();
            self.collected.tick(&self.watch)?;
        }
        Ok(())
    }

    /// Judges what has been collected so far. The watch goes on.
    ///
    /// # Errors
    /// [`WatchError::Map`] if the kernel side cannot be read.
    pub fn report(&mut self) -> Result<Report, WatchError> {
        self.collected.tick(&self.watch)?;
        let window = self.begin.elapsed();
        let living = self.watch.living()?;
        let groups = self.collected.groups_with(&living);
        let count = |outcome| {
            groups.iter().filter(|((_, o), _)| *o == outcome).map(|(_, group)| group.count).sum::<u64>()
        };
        let creations = CreationCounts {
            full_fork_then_exec: count(Outcome::ForkThenExec),
            full_fork_alone: count(Outcome::ForkAlone),
            shared_memory: count(Outcome::Shared),
        };
        let context = Context {
            collected: &self.collected,
            groups: &groups,
            model: &self.model,
            thresholds: self.thresholds,
            window_ns: window.as_nanos() as f64,
        };
        Ok(Report {
            schema: 1,
            tier: self.watch.tier(),
            window_ns: window.as_nanos() as u64,
            totals: self.collected.totals,
            creations,
            system_calls: self.system_calls,
            thresholds: self.thresholds,
            model: self.model,
            findings: finding::all(&context),
        })
    }

    /// The totals, and the findings of `report`, in the OpenMetrics text format. Bounded: a few kinds for each of at most
    /// 201 cgroups, never a pid.
    pub fn metrics(&self, report: &Report) -> String {
        crate::metrics::encode(&self.collected, &self.collected.by_cgroup, &report.findings)
    }
}
