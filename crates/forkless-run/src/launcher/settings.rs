//! How a program is to be run: what a caller chooses. [`Options`] is what becomes of it for the
//! library in the program.

use crate::{ForkMode, HugePages, Options};

/// How a program is to be run. The default is what suits any program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Which processes speculate.
    pub fork: ForkMode,
    /// Forks of processes with less private memory than this are left alone; in bytes.
    pub minimum: u64,
    /// A child that has run or slept for this many milliseconds, and has not executed a program, is
    /// aborted. Time in which it waits for a processor does not count, up to 20 times the limit.
    pub limit_ms: u32,
    /// Whether call sites whose children do not exec are left alone after a while. Off only in
    /// tests.
    pub learn: bool,
    /// Whether lines of `system`, `popen` and `sh -c` that need no shell run without one.
    pub skip_shells: bool,
    /// Huge pages for the heap.
    pub huge_pages: HugePages,
    /// User-level context switches without system calls for the signal mask: a context then has no
    /// mask of its own.
    pub fast_context: bool,
    /// Whether `TZ` is set where it is unset, so that `localtime` does not look at `/etc/localtime`
    /// every time.
    pub time_zone: bool,
    /// Whether programs that the program executes get the same treatment.
    pub children: bool,
    /// Whether the library says nothing on standard error.
    pub quiet: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let Options { fork, minimum, limit_ms, learn, fast_context, children, quiet, .. } =
            Options::default();
        Settings {
            fork,
            minimum,
            limit_ms,
            learn,
            skip_shells: true,
            huge_pages: HugePages::Off,
            fast_context,
            time_zone: false,
            children,
            quiet,
        }
    }
}
