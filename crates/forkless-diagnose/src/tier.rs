//! The ways to watch: how the kernel is asked.

use std::fmt;

use serde::Serialize;

/// The ways to watch, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tier {
    /// BPF with fentry: times `kernel_clone` itself, so other system calls cost nothing more.
    BpfFentry,
    /// BPF on tracepoints with type information: complete, costs some nanoseconds on every system
    /// call.
    BpfTracepoints,
    /// Perf events: creations, execs and exits. A tracepoint or page faults tell full forks. No
    /// system calls.
    Perf,
    /// /proc, for the user's own processes: counts are lower bounds, nothing is timed, costs are
    /// predicted.
    Procfs,
}

impl Tier {
    /// Whether an exec that fails is seen. Perf events and /proc show only execs that succeed.
    pub(crate) fn sees_failed_execs(self) -> bool {
        matches!(self, Self::BpfFentry | Self::BpfTracepoints)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BpfFentry => "BPF with fentry",
            Self::BpfTracepoints => "BPF with tracepoints (tp_btf)",
            Self::Perf => "perf events and sampling",
            Self::Procfs => "/proc alone (sampled, own processes)",
        })
    }
}
