//! What a fork of a running process costs now, and what it would cost under the preloaded library
//! and with huge pages: by the process's memory and the prices of this machine. The process is not
//! touched.

use std::io;

use serde::Serialize;

use crate::creation::CallerMemory;
use crate::error::FOREIGN_PROC;
use crate::estimate::Estimate;
use crate::invocation::{self, Invocation};
use crate::model::CostModel;
use crate::procfs;
use crate::program::ProcessName;
use crate::reach::{Everywhere, Obstacle, Reach};
use crate::remedy::StartedProgram;

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
    /// Reads the process's memory, and measures the prices of this machine, which takes some 0.3 s.
    /// `installed` is whether the preloaded library can be found, or why not.
    ///
    /// # Errors
    /// [`ForecastError`].
    pub fn of(pid: u32, installed: Result<(), String>) -> Result<Self, ForecastError> {
        if procfs::is_foreign() {
            return Err(ForecastError::ForeignProc);
        }
        // Before the prices: a wrong number fails at once.
        Self::observe(pid, &CostModel::default(), Ok(()))?;
        let model = CostModel::calibrate().map_err(ForecastError::Prices)?;
        Self::observe(pid, &model, installed)
    }

    fn observe(pid: u32, model: &CostModel, installed: Result<(), String>) -> Result<Self, ForecastError> {
        let process = procfs::program_of(pid).ok_or(ForecastError::NoProcess { pid })?.name();
        let memory = procfs::memory_of(pid);
        if memory.resident() + memory.swap == 0 {
            return Err(ForecastError::NoMemory { pid });
        }
        let kinds = procfs::page_kinds(pid);
        let marked = procfs::marked_memory(pid);
        let memory = CallerMemory {
            anon: memory.anon.saturating_sub(marked.anon),
            swap: memory.swap.saturating_sub(marked.swap),
            ..memory
        };
        let huge = kinds.map_or(0, |kinds| kinds.anon_huge.saturating_sub(marked.anon_huge).min(memory.anon));
        let (small_pages, huge_pages) = ((memory.anon - huge + memory.swap) / 4096, huge >> 21);
        let program = StartedProgram {
            name: match &process.exe {
                Some(exe) if !invocation::is_found_as(pid, &process.name) => exe.clone(),
                _ => process.name.clone(),
            },
            invocation: Invocation::of(pid),
        };
        let share = kinds.map_or(0.0, |kinds| kinds.huge_share());
        let with_huge_pages = if share >= HUGE_ENOUGH {
            Err(format!("{:.0} % of its memory is in huge pages already", share * 100.0))
        } else if procfs::refuses_huge_pages(pid) {
            Err("the program has turned transparent huge pages off for itself".to_owned())
        } else if memory.anon < 2 << 20 {
            Err("its memory would not fill one".to_owned())
        } else if model.fork_per_huge_page.is_none() {
            Err("none could be had here for a try".to_owned())
        } else {
            Ok(model.fork(memory.swap / 4096, memory.anon >> 21))
        };
        let now = model.fork(small_pages, huge_pages);
        let gains = |cost: &Estimate| cost.mid < now.mid;
        let under_run = under_run(pid, memory.anon, model, installed)
            .and_then(|cost| gains(&cost).then_some(cost).ok_or_else(|| Obstacle::Cheap.to_string()));
        Ok(Self {
            process,
            pid,
            threads: procfs::threads_of(pid),
            anon: memory.anon,
            anon_huge: kinds.map(|kinds| kinds.anon_huge),
            entries: small_pages + huge_pages,
            now,
            under_run: Alternative::of(under_run),
            with_huge_pages: Alternative::of(with_huge_pages),
            program,
        })
    }
}

/// As the findings have it: the caller still pays for a speculation. The library's own rules decide
/// whether it does anything for this process. `installed` is whether it is here.
fn under_run(
    pid: u32,
    anon: u64,
    model: &CostModel,
    installed: Result<(), String>,
) -> Result<Estimate, String> {
    installed?;
    let reach = Reach::of(pid);
    let obstacle = Everywhere::look(None).in_forks(reach.as_ref(), anon);
    obstacle.map_err(|obstacle| obstacle.to_string())?;
    let looking = reach.map_or(0.0, |reach| reach.looking_ns());
    Ok(model.speculation().looking(looking).in_caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> CostModel {
        let price = |ns| Estimate { low: ns, mid: ns, high: ns };
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
}
