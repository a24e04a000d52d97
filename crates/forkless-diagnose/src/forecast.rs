//! What a fork of a running process costs now, and what it would cost under the preloaded library
//! and with huge pages: by the process's memory and the prices of this machine. The process is not
//! touched.

use std::io;

use serde::Serialize;

use crate::creation::CallerMemory;
use crate::error::{FOREIGN_PROC, ThreadOf};
use crate::estimate::Estimate;
use crate::invocation::{self, Invocation};
use crate::mappings::{Mapping, MappingCount};
use crate::model::{CostModel, sparse_tables};
use crate::procfs;
use crate::program::ProcessName;
use crate::reach::{Everywhere, Obstacle, Reach};
use crate::remedy::StartedProgram;
use crate::repair::{Plan, RepairOptions, probe_repair};

/// Share of anonymous memory in huge pages above which nothing is gained.
pub(crate) const HUGE_ENOUGH: f64 = 0.9;

/// The cost of a fork of a process, in its caller, nanoseconds.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ForkForecast {
    /// The process.
    pub process: ProcessName,
    /// Its number.
    pub pid: u32,
    /// Its threads; `None` if that cannot be read.
    pub threads: Option<u64>,
    /// Anonymous memory, bytes, without what the program keeps from its children
    /// (`MADV_DONTFORK`, `MADV_WIPEONFORK`). A fork copies its page-table entries.
    pub anon: u64,
    /// Its part in huge pages, bytes; `None` if that may not be looked at: then none is assumed.
    pub anon_huge: Option<u64>,
    /// Page-table entries that a fork copies, those of huge pages and of swap included.
    pub entries: u64,
    /// Mappings that a fork copies; `None` if they may not be looked at.
    pub mappings: Option<MappingCount>,
    /// A fork now.
    pub now: Estimate,
    /// A fork that only leads to an exec, under the preloaded library.
    pub under_run: Alternative,
    /// A fork with the same memory in huge pages.
    pub with_huge_pages: Alternative,
    /// The program, to start it again.
    #[serde(skip)]
    pub program: StartedProgram,
}

/// The cost with a remedy, or why the remedy would change nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// Nanoseconds.
    pub cost: Option<Estimate>,
    /// Why there is no cost.
    pub why_not: Option<String>,
}

impl Alternative {
    fn of(cost: Result<Estimate, String>) -> Self {
        match cost {
            Ok(cost) => Self { cost: Some(cost), why_not: None },
            Err(why) => Self { cost: None, why_not: Some(why) },
        }
    }
}

/// Why there is no forecast.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForecastError {
    /// There is no such process.
    #[error("no process {pid} (it may have ended); see `ps -e`")]
    NoProcess {
        /// The number asked for.
        pid: u32,
    },
    /// The number is one of a thread.
    #[error(transparent)]
    Thread(#[from] ThreadOf),
    /// A kernel thread, or a zombie.
    #[error("process {pid} has no memory that a fork could copy: it has ended, or is one of the kernel's")]
    NoMemory {
        /// The number asked for.
        pid: u32,
    },
    /// /proc belongs to another pid namespace: its numbers mean other processes.
    #[error("{FOREIGN_PROC}")]
    ForeignProc,
    /// The prices could not be measured.
    #[error("cannot measure this machine's prices: {0}; free some memory, or raise the limit of processes")]
    Prices(io::Error),
}

impl ForkForecast {
    /// Reads the process's memory, and measures the prices of this machine, which takes some 0.4 s.
    /// `installed` is whether the preloaded library can be found, or why not.
    ///
    /// # Errors
    /// [`ForecastError`].
    pub fn of(pid: u32, installed: Result<(), String>) -> Result<Self, ForecastError> {
        if procfs::is_foreign() {
            return Err(ForecastError::ForeignProc);
        }
        // Before the prices: a wrong number fails at once.
        look_at(pid)?;
        let model = CostModel::calibrate().map_err(ForecastError::Prices)?;
        Self::observe(pid, &model, installed)
    }

    fn observe(pid: u32, model: &CostModel, installed: Result<(), String>) -> Result<Self, ForecastError> {
        let (process, memory) = look_at(pid)?;
        let shape = Mapping::of(pid).ok().map(|mappings| Shape::of(pid, &mappings));
        let kept = shape.as_ref().map_or(Kept::default(), |shape| shape.kept);
        let memory = CallerMemory {
            anon: memory.anon.saturating_sub(kept.anon),
            swap: memory.swap.saturating_sub(kept.swap),
            ..memory
        };
        let huge = shape.as_ref().map(|shape| shape.anon_huge.min(memory.anon));
        let small_pages = (memory.anon - huge.unwrap_or(0) + memory.swap) / 4096;
        let huge_pages = huge.unwrap_or(0) >> 21;
        let program = StartedProgram {
            name: match &process.exe {
                Some(exe) if !invocation::is_found_as(pid, &process.name) => exe.clone(),
                _ => process.name.clone(),
            },
            invocation: Invocation::of(pid),
        };
        let mappings = shape.as_ref().map(|shape| shape.mappings);
        let of_mappings = model.mappings(mappings.unwrap_or_default());
        let tables = shape.as_ref().map_or(u64::MAX, |shape| shape.sparse_tables);
        let tables = model.tables(tables.min(sparse_tables(&memory, huge_pages)));
        let now = model.fork(small_pages, huge_pages).plus(of_mappings).plus(tables);
        let gains = |cost: &Estimate| cost.mid < now.mid;
        let with_huge_pages = match &shape {
            None => Err("its memory may not be looked at: that needs CAP_SYS_PTRACE, or its user and no fewer capabilities".to_owned()),
            Some(shape) => with_huge_pages(pid, &memory, shape, model),
        };
        // Tables with so few pages are left as they are.
        let beside = of_mappings.plus(tables);
        let with_huge_pages = with_huge_pages.map(|cost| cost.plus(beside)).and_then(|cost| {
            gains(&cost).then_some(cost).ok_or_else(|| "its small pages cost no more".to_owned())
        });
        let under_run = under_run(pid, memory.anon, model, installed)
            .map(|(cost, left)| {
                let copied = model.fork_per_entry.times((small_pages + huge_pages) as f64 * left);
                let copied = copied.plus(tables.times(left));
                // A child that lacks a mapping's memory costs its mapping all the same.
                cost.plus(copied).plus(of_mappings)
            })
            .and_then(|cost| gains(&cost).then_some(cost).ok_or_else(|| Obstacle::Cheap.to_string()));
        Ok(Self {
            process,
            pid,
            threads: procfs::threads_of(pid),
            anon: memory.anon,
            anon_huge: huge,
            entries: small_pages + huge_pages,
            mappings,
            now,
            under_run: Alternative::of(under_run),
            with_huge_pages: Alternative::of(with_huge_pages),
            program,
        })
    }
}

/// A process that could fork, and its memory.
fn look_at(pid: u32) -> Result<(ProcessName, CallerMemory), ForecastError> {
    procfs::no_thread(pid)?;
    let process = procfs::program_of(pid).ok_or(ForecastError::NoProcess { pid })?.name();
    let memory = procfs::memory_of(pid);
    if memory.resident() + memory.swap == 0 {
        return Err(ForecastError::NoMemory { pid });
    }
    Ok((process, memory))
}

/// Memory that a fork does not copy, bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    anon: u64,
    swap: u64,
}

/// What a process's mappings say about its forks.
#[derive(Debug)]
struct Shape {
    kept: Kept,
    mappings: MappingCount,
    /// Memory in huge pages that a fork copies, bytes.
    anon_huge: u64,
    /// At most so many page tables that a fork copies are nearly empty.
    sparse_tables: u64,
    /// What [`repair`](crate::repair()) would merge of what a fork copies. `None` if the pages may
    /// not be looked at.
    plan: Option<Plan>,
}

impl Shape {
    fn of(pid: u32, mappings: &[Mapping]) -> Self {
        let sum = |kept: bool, of: fn(&Mapping) -> u64| {
            mappings.iter().filter(|mapping| mapping.is_kept == kept).map(of).sum()
        };
        let copied = mappings.iter().filter(|mapping| !mapping.is_kept);
        Self {
            mappings: MappingCount::of(mappings),
            kept: Kept { anon: sum(true, |one| one.anon), swap: sum(true, |one| one.swap) },
            anon_huge: sum(false, |one| one.anon_huge),
            sparse_tables: sum(false, most_tables),
            plan: Plan::of_process(pid, copied, RepairOptions::default().populated).ok(),
        }
    }
}

/// Page tables of a mapping's small pages, at most: one for each page, and one for each 2 MiB.
fn most_tables(mapping: &Mapping) -> u64 {
    const OF_ONE: u64 = 2 << 20;
    let pages = (mapping.anon.saturating_sub(mapping.anon_huge) + mapping.swap) / 4096;
    let begun = mapping.range.end.div_ceil(OF_ONE).saturating_sub(mapping.range.start / OF_ONE);
    pages.min(begun)
}

/// A fork after a repair, or why that would change nothing.
fn with_huge_pages(
    pid: u32,
    memory: &CallerMemory,
    shape: &Shape,
    model: &CostModel,
) -> Result<Estimate, String> {
    let share = if memory.anon == 0 { 0.0 } else { shape.anon_huge as f64 / memory.anon as f64 };
    if share >= HUGE_ENOUGH {
        return Err(format!("{:.0} % of its memory is in huge pages already", share * 100.0));
    }
    if procfs::refuses_huge_pages(pid) {
        return Err("the program has turned transparent huge pages off for itself".to_owned());
    }
    let Some(plan) = &shape.plan else { return Err("its pages may not be looked at".to_owned()) };
    if plan.bytes() == 0 {
        let left = [
            (plan.excluded, "the program keeps its memory out of them (MADV_NOHUGEPAGE)"),
            (plan.sparse, "less than half of each would be in use"),
            (plan.unfit, "its mappings are too small for one, or are of files"),
        ];
        let most = left.iter().max_by_key(|left| left.0).filter(|left| left.0 >= 2 << 20);
        return Err(most.map_or("its memory would not fill one", |left| left.1).to_owned());
    }
    if model.fork_per_huge_page.is_none() {
        return Err("none could be had here for a try".to_owned());
    }
    // Refused for another reason, it may be done by another user, or at another time.
    if let Err(error) = probe_repair()
        && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
    {
        return Err(format!("this kernel merges no pages of another process ({error})"));
    }
    let (small, huge) = entries_after(plan, memory.anon, memory.swap);
    Ok(model.fork(small, huge))
}

/// Entries of small and of huge pages that a fork copies after a repair.
fn entries_after(plan: &Plan, anon: u64, swap: u64) -> (u64, u64) {
    let small = (anon.saturating_sub(plan.huge_already) / 4096).saturating_sub(plan.present);
    let swapped = (swap / 4096).saturating_sub(plan.swapped);
    (small + swapped, (plan.bytes() + plan.huge_already) >> 21)
}

/// How much of a process's memory could be in huge pages, by the plan that a repair would carry
/// out. Of what the program excludes by [`refuses_huge_pages`](procfs::refuses_huge_pages), it
/// tells how it would be without that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mergeable {
    /// Anonymous memory that a fork copies, bytes.
    anon: u64,
    /// Entries of a fork after a repair.
    small: u64,
    huge: u64,
    /// Whether a repair would merge anything.
    merges: bool,
}

impl Mergeable {
    /// Above so much memory, bytes, its pages are not looked at one by one.
    const MOST: u64 = 64 << 30;

    /// `None` where the pages may not be looked at.
    pub(crate) fn of(pid: u32, mappings: &[Mapping]) -> Option<Self> {
        let copied = || mappings.iter().filter(|mapping| !mapping.is_kept);
        let anon: u64 = copied().map(|mapping| mapping.anon).sum();
        let swap: u64 = copied().map(|mapping| mapping.swap).sum();
        if anon + swap > Self::MOST {
            return None;
        }
        let plan = Plan::if_refusing(pid, copied(), RepairOptions::default().populated, false).ok()?;
        let (small, huge) = entries_after(&plan, anon, swap);
        Some(Self { anon, small, huge, merges: plan.bytes() > 0 })
    }

    /// A fork of `anon` bytes after a repair; `None` if it would merge nothing.
    pub(crate) fn fork(&self, anon: f64, model: &CostModel) -> Option<Estimate> {
        let grown = anon / (self.anon as f64).max(1.0);
        let entries = |count: u64| (count as f64 * grown) as u64;
        self.merges.then(|| model.fork(entries(self.small), entries(self.huge)))
    }

    /// Whether memory of so many bytes is too different for this to hold.
    pub(crate) fn is_outgrown(&self, anon: u64) -> bool {
        anon > self.anon + self.anon / 4
    }
}

/// As the findings have it: the caller still pays for a speculation. The library's own rules decide
/// whether it does anything for this process. `installed` is whether it is here. Also the share of
/// the memory that is copied all the same.
fn under_run(
    pid: u32,
    anon: u64,
    model: &CostModel,
    installed: Result<(), String>,
) -> Result<(Estimate, f64), String> {
    installed?;
    let reach = Reach::of(pid);
    let obstacle = Everywhere::look(None).in_forks(reach.as_ref(), anon);
    obstacle.map_err(|obstacle| obstacle.to_string())?;
    let (looking, left) = reach.map_or((0.0, 0.0), |reach| (reach.looking_ns(), reach.left(anon)));
    Ok((model.speculation().looking(looking).in_caller, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> CostModel {
        let price = Estimate::exact;
        CostModel {
            fork_fixed: price(60e3),
            fork_per_entry: price(25.0),
            fork_per_huge_page: Some(price(1000.0)),
            spawn: price(80e3),
            ..CostModel::default()
        }
    }

    #[test]
    fn a_fork_costs_what_its_memory_says() {
        let pid = std::process::id();
        let forecast = ForkForecast::observe(pid, &model(), Ok(())).expect("our own process");
        assert_eq!(forecast.pid, pid);
        assert!(forecast.threads.is_some_and(|threads| threads > 0));
        let least = 60e3 + 25.0 * (forecast.anon - forecast.anon_huge.unwrap_or(0)) as f64 / 4096.0;
        assert!(forecast.now.mid >= least - 25.0, "{forecast:?}");
        let run = &forecast.under_run;
        assert!(run.cost.is_some() != run.why_not.is_some(), "{run:?}");
        let refused = ForkForecast::observe(pid, &model(), Err("no".to_owned())).expect("as before");
        assert_eq!(refused.under_run.why_not.as_deref(), Some("no"));
    }

    #[test]
    fn what_cannot_fork_is_an_error() {
        assert!(matches!(ForkForecast::of(1 << 23, Ok(())), Err(ForecastError::NoProcess { .. })));
        let mut child = std::process::Command::new("true").spawn().expect("true runs");
        let pid = child.id();
        while procfs::runs(pid) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(matches!(ForkForecast::of(pid, Ok(())), Err(ForecastError::NoMemory { .. })));
        child.wait().expect("it ended");
    }

    #[test]
    fn a_mapping_has_no_more_tables_than_pages() {
        let mapping = |start: u64, end: u64, anon| Mapping { range: start..end, anon, ..Mapping::default() };
        assert_eq!(most_tables(&mapping(0, 1 << 30, 40 << 12)), 40);
        assert_eq!(most_tables(&mapping(0, 1 << 30, 1 << 30)), 512);
        assert_eq!(most_tables(&mapping((2 << 20) - 4096, (2 << 20) + 4096, 8192)), 2);
        let huge = Mapping { anon_huge: 1 << 30, ..mapping(0, 1 << 30, 1 << 30) };
        assert_eq!(most_tables(&huge), 0);
    }
}
