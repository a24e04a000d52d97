//! Progress on standard error, drawn only where that is a terminal.

use std::io::{IsTerminal as _, stderr};

use forkless_bench::engine::Observer;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar of rounds, or nothing.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// How the bar was last laid out: whether a round was done. `None` before the first.
    has_estimate: Option<bool>,
}

impl Progress {
    /// A bar named after what runs; hidden unless standard error is a terminal.
    pub(crate) fn new(name: &str) -> Progress {
        let bar = if stderr().is_terminal() { ProgressBar::no_length() } else { ProgressBar::hidden() };
        // Until it is known how many rounds there are, a bar would show 0 of 0: all of them.
        if let Ok(style) = ProgressStyle::with_template("{prefix}: getting ready") {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        Progress { bar, has_estimate: None }
    }
}

impl Observer for Progress {
    fn progress(&mut self, done: usize, total: usize) {
        // An estimate needs a round to go by.
        let template = match done {
            0 => "{prefix} {wide_bar} {pos}/{len} rounds",
            _ => "{prefix} {wide_bar} {pos}/{len} rounds, {eta} left",
        };
        // Before the template: it would show an estimate that goes by no round.
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        if let Ok(style) = ProgressStyle::with_template(template)
            && self.has_estimate != Some(done > 0)
        {
            self.bar.set_style(style);
            self.has_estimate = Some(done > 0);
        }
    }

    fn note(&mut self, text: &str) {
        self.bar.suspend(|| crate::terminal::complain!("forkless: {text}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
