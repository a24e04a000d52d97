//! Who pays for process creation, how much, and why.
//!
//! A [`Watch`] loads the BPF programs of `bpf/` and hands out [`Event`]s: every process creation of the watched
//! processes from the system call to the exit of the child, and samples of the call stacks behind them.
//!
//! The library prints nothing, and changes nothing in what it watches. Linux on x86-64 only.

mod creation;
mod error;
mod procfs;
mod record;
mod target;
mod tier;
mod watch;

pub use creation::{CallerMemory, CloneFlags, CreatingCall, Creation, CreationKind, End, Site};
pub use error::WatchError;
pub use procfs::{PageKinds, ProcessName};
pub use target::{ResolvedTarget, Target};
pub use tier::{Probe, Tier, probe};
pub use watch::{Event, StackTop, Totals, Watch, WatchOptions};
