//! Progress on standard error, drawn only where that is a terminal.

use std::io::{IsTerminal as _, stderr};

use forkless_bench::engine::Observer;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar of rounds, or nothing.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar named after what runs; hidden unless standard error is a terminal.
    pub(crate) fn new(name: &str) -> Progress {
        let bar = if stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} rounds, {eta} left")
        {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        Progress { bar }
    }
}

impl Observer for Progress {
    fn progress(&mut self, done: usize, total: usize) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
    }

    fn note(&mut self, text: &str) {
        self.bar.suspend(|| eprintln!("forkless: {text}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
