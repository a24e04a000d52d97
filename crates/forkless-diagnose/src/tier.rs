//! How much this kernel and our privileges let us see, found out by trying.

use std::fmt;

use aya::Btf;
use serde::Serialize;

use crate::load;

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

/// One tier, and whether it works here.
#[derive(Debug, Clone, Serialize)]
pub struct TierProbe {
    /// The tier.
    pub tier: Tier,
    /// `None` if it works, else why not.
    pub refused: Option<String>,
}

/// Tries each tier. Loads and unloads small BPF programs; needs the same privileges as a watch.
pub fn probe_tiers() -> Vec<TierProbe> {
    let attempt = |tier, try_it: fn(&Btf) -> Result<(), crate::WatchError>| {
        let outcome = match Btf::from_sys_fs() {
            Ok(btf) => try_it(&btf).map_err(|e| e.to_string()),
            Err(e) => Err(format!("no type information in /sys/kernel/btf/vmlinux ({e})")),
        };
        TierProbe { tier, refused: outcome.err() }
    };
    let tracepoints = attempt(Tier::BpfTracepoints, load::try_tracepoint);
    let mut fentry = attempt(Tier::BpfFentry, load::try_fentry);
    // It is the other tier's programs, timed in another way.
    fentry.refused = fentry.refused.or_else(|| tracepoints.refused.clone());
    vec![
        fentry,
        tracepoints,
        TierProbe { tier: Tier::Perf, refused: crate::perf::refused() },
        TierProbe { tier: Tier::Procfs, refused: procfs_refused() },
    ]
}

fn procfs_refused() -> Option<String> {
    let children = format!("/proc/self/task/{}/children", rustix::thread::gettid().as_raw_nonzero());
    std::fs::read(&children).err().map(|e| format!("{children}: {e} (needs /proc and CONFIG_PROC_CHILDREN)"))
}

pub(crate) fn fentry_works(btf: &Btf) -> bool {
    load::try_fentry(btf).is_ok()
}
