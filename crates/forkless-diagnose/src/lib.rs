//! Which programs pay for process creation, how much, and why.
//!
//! A [`Watch`] loads the BPF programs of `bpf/` and hands out [`Event`]s. An event is a process
//! creation, from the system call to the child's exit, or the call stack behind a system call. A
//! [`Diagnosis`] sums events up and makes a [`DiagnosisReport`] of [`Finding`]s. It predicts what a
//! finding's remedy saves from a [`CostModel`] measured on the same machine.
//!
//! [`repair()`] puts a running process's memory into huge pages. The library prints nothing, and
//! only `repair` changes a watched process. Linux on x86-64 and aarch64.

mod answering;
mod collect;
mod command;
mod creation;
mod diagnosis;
mod error;
mod estimate;
mod event;
mod finding;
mod forecast;
mod invocation;
mod load;
mod map_batch;
mod metrics;
mod model;
mod origin;
mod perf;
mod probe;
mod procfs;
mod program;
mod refusal;
mod remedy;
mod repair;
mod ring;
mod sampler;
mod shell;
mod stack;
mod summary;
mod symbol;
mod target;
#[cfg(test)]
mod test_process;
mod tier;
mod timeline;
mod watch;

pub use collect::Outcome;
pub use creation::{CallerMemory, ChildEnd, CloneFlags, CreatingCall, Creation, CreationKind, Place};
pub use diagnosis::{CreationCounts, Diagnosis, DiagnosisReport};
pub use error::{CAPABILITIES, WatchError};
pub use estimate::Estimate;
pub use event::{Event, SeenProgram, StackTop, Totals};
pub use finding::{Cost, Evidence, Finding, FindingKind, ForkTimes, Thresholds};
pub use forecast::{Alternative, ForecastError, ForkForecast};
pub use model::{CostModel, ForkProbe, probe_fork};
pub use origin::Origin;
pub use probe::{TierProbe, probe_tiers};
pub use procfs::PageKinds;
pub use program::ProcessName;
pub use refusal::RefusedCreation;
pub use remedy::{FollowUp, Remedy, StartedProgram, Treatment};
pub use repair::{RepairError, RepairOptions, RepairReport, probe_repair, repair};
pub use stack::{Frame, Sighting, Unwinder};
pub use summary::{StartSummary, StarterSummary};
pub use target::{ResolvedTarget, WatchTarget};
pub use tier::Tier;
pub use timeline::{SeenCreation, Timeline, TimelineColumn};
pub use watch::{Watch, WatchOptions};
