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
mod builtin;
mod collect;
mod command;
mod creation;
mod diagnosis;
mod error;
mod estimate;
mod event;
mod file_name;
mod finding;
mod forecast;
mod interpreter;
mod invocation;
mod load;
mod map_batch;
mod mappings;
mod metrics;
mod model;
mod origin;
mod perf;
mod probe;
mod procfs;
mod program;
mod reach;
mod refusal;
mod regular_file;
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

pub use collect::{LineShare, Outcome};
pub use creation::{CallerMemory, ChildEnd, CloneFlags, CreatingCall, Creation, CreationKind, Place};
pub use diagnosis::{CreationCounts, Diagnosis, DiagnosisReport};
pub use error::{CAPABILITIES, ThreadOf, WatchError};
pub use estimate::Estimate;
pub use event::{CreatingThread, Event, SeenProgram, StackTop, Totals};
pub use finding::{Cost, Evidence, Finding, FindingKind, ForkTimes, Thresholds};
pub use forecast::{Alternative, ForecastError, ForkForecast};
pub use mappings::MappingCount;
pub use model::{CostModel, ForkProbe, probe_fork};
pub use origin::Origin;
pub use probe::{TierProbe, probe_tiers};
pub use procfs::PageKinds;
pub use program::ProcessName;
pub use reach::Obstacle;
pub use refusal::RefusedCreation;
pub use remedy::{FollowUp, Remedy, StartedProgram, Treatment};
pub use repair::{
    RepairError, RepairOptions, RepairReport, Repairable, probe_repair, repair, repair_privilege,
};
pub use stack::{Frame, Sighting, Unwinder};
pub use summary::{StartSummary, StarterSummary};
pub use target::{ResolvedTarget, WatchTarget, WatchedCommand};
pub use tier::Tier;
pub use timeline::{SeenCreation, Timeline, TimelineColumn};
pub use watch::{Watch, WatchOptions};

/// For `fuzz/` alone. Tests compile it too, since nothing else does on each push.
#[cfg(any(fuzzing, test))]
pub mod fuzzing {
    use crate::creation::Creation;
    use crate::event::{CreatingThread, SeenProgram, StackTop};
    use crate::ring::{LENGTHS, RingItem};

    /// Reads bytes as a record of each kind there is, cut or filled up to its length. Returns for
    /// how many kinds they are one.
    pub fn read(bytes: &[u8]) -> usize {
        let ring = LENGTHS.iter().filter(|(kind, length)| {
            let mut record = kind.to_ne_bytes().to_vec();
            record.extend_from_slice(bytes);
            record.resize(*length, 0);
            RingItem::decode(&record)
                .map(|item| match item {
                    RingItem::Creation(raw) => drop(Creation::from_raw(&raw)),
                    RingItem::Program(raw) => drop(SeenProgram::from_raw(&raw)),
                    // Nothing in it is a length or an offset, and /proc is slow.
                    RingItem::Refused(_) => {}
                    RingItem::Caller(raw) => drop(CreatingThread::from_raw(&raw)),
                    RingItem::Stack(head, top) => drop(StackTop::new(&head, top)),
                })
                .is_some()
        });
        ring.count() + crate::perf::decoded(bytes)
    }

    #[cfg(test)]
    #[test]
    fn any_bytes_are_records_of_every_kind_of_the_ring() {
        assert!([0, b'0', 0xff].iter().all(|byte| read(&[*byte; 4096]) >= LENGTHS.len()));
    }
}
