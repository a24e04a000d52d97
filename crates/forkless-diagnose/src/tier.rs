//! The ways to watch.

use std::fmt;

use serde::Serialize;

/// The ways to watch, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tier {
    /// BPF with fentry: creations are timed around `kernel_clone`, other system calls pay for nothing.
    BpfFentry,
    /// BPF on tracepoints with type information: complete, some nanoseconds on every system call.
    BpfTracepoints,
    /// Perf events: creations, execs and exits; full forks told by tracepoint or by page faults. No system calls.
    Perf,
    /// /proc, for one's own processes: counts are lower bounds, nothing is timed, costs are predicted.
    Procfs,
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
