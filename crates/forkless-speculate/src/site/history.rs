//! Whether a call site's children execute programs.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The history of one call site. All zeros at first.
pub struct History {
    /// Aborts since the last commit.
    streak: AtomicU32,
    /// Forks to leave alone before the next speculation.
    pause: AtomicU32,
}

/// Forks left alone after the first abort.
const FIRST_PAUSE: u32 = 4;
/// Pauses grow fourfold, so often: to 4,096 forks.
const LONGEST: u32 = 5;

impl History {
    /// The history of a site without forks.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> History {
        History { streak: AtomicU32::new(0), pause: AtomicU32::new(0) }
    }

    /// Whether to speculate now. Counts down the forks that are to be left alone.
    pub fn worth_trying(&self) -> bool {
        let pause = self.pause.load(Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Relaxed);
        }
        pause == 0
    }

    /// The child executed a program.
    pub fn committed(&self) {
        // Both are zero nearly always, and the page need not be written then.
        if self.streak.load(Relaxed) != 0 || self.pause.load(Relaxed) != 0 {
            self.streak.store(0, Relaxed);
            self.pause.store(0, Relaxed);
        }
    }

    /// The fork became a plain one because its children had read memory late, each something else.
    /// That is no sign that children do not exec, so pauses do not grow.
    pub fn read_late(&self) {
        self.pause.store(FIRST_PAUSE, Relaxed);
    }

    /// The child had to be replaced. The site pauses. So the forks of workers pay next to nothing
    /// for attempts, and a program that changes its ways is still noticed.
    pub fn aborted(&self) {
        let streak = self.streak.load(Relaxed).min(LONGEST);
        self.streak.store(streak + 1, Relaxed);
        self.pause.store(FIRST_PAUSE << (2 * streak), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forks left alone until the next attempt.
    fn pause(history: &History) -> u32 {
        (0..).find(|_| history.worth_trying()).expect("an attempt")
    }

    #[test]
    fn pauses_grow_fourfold_to_four_thousand_forks() {
        let history = History::new();
        assert_eq!(pause(&history), 0);
        let pauses = [(); 8].map(|()| {
            history.aborted();
            pause(&history)
        });
        assert_eq!(pauses, [4, 16, 64, 256, 1024, 4096, 4096, 4096]);
    }

    #[test]
    fn late_reads_pause_a_site_for_a_short_time_only() {
        let history = History::new();
        let pauses = [(); 3].map(|()| {
            history.read_late();
            pause(&history)
        });
        assert_eq!(pauses, [4, 4, 4]);
    }

    #[test]
    fn a_commit_ends_the_pause_and_its_growth() {
        let history = History::new();
        (0..4).for_each(|_| history.aborted());
        history.committed();
        assert_eq!(pause(&history), 0);
        history.aborted();
        assert_eq!(pause(&history), 4);
    }
}
