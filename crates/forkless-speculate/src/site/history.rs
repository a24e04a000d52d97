//! Whether a call site's children execute programs.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The history of one call site. All zeros at first.
pub struct History {
    /// Aborts since the last commit.
    streak: AtomicU32,
    /// Forks to leave alone before the next speculation.
    pause: AtomicU32,
    /// Children since the last commit whose exec failed.
    failed: AtomicU32,
    /// Commits since the last child that acted, at most [`PAID`].
    commits: AtomicU32,
}

/// What an abort says of the children of a call site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// They work instead of executing: the child ended, or its memory was used up by its work.
    Works,
    /// The child did something that may be noticed. Other children of the site may not do it, and
    /// this one may have executed a program afterwards.
    Acts,
    /// The same, and the attempt has cost much: it has reached a limit.
    Costs,
    /// The child's exec failed. Others of the site may find their programs: the absent one may be
    /// an optional tool.
    Tries,
    /// Nothing: the reason lies outside, such as a signal, or the child had read memory late.
    Nothing,
}

/// Forks left alone after the first abort.
const FIRST_PAUSE: u32 = 4;
/// Pauses grow fourfold, so often: to 4,096 forks where children work.
const LONGEST: u32 = 5;
/// To 256 forks where they may execute programs. An undone child costs as much as a small fork. So
/// that is less than 1 us a fork.
const LONGEST_OF_ACTS: u32 = 3;
/// So many children in a row may fail to execute before the site pauses. Each costs as much as a
/// small fork.
const FAILED: u32 = 8;
/// So many commits have paid for a child that acts. Each saves more than a small fork, which is the
/// cost of that child.
const PAID: u32 = 2;

impl History {
    /// The history of a site without forks.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> History {
        History {
            streak: AtomicU32::new(0),
            pause: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            commits: AtomicU32::new(0),
        }
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
        // All are so nearly always, and the page need not be written then.
        for word in [&self.streak, &self.pause, &self.failed] {
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
        let commits = self.commits.load(Relaxed);
        if commits < PAID {
            self.commits.store(commits + 1, Relaxed);
        }
    }

    /// The child had to be replaced. The site pauses. So the forks of workers pay next to nothing
    /// for attempts, and a program that changes its ways is still noticed.
    pub fn aborted(&self, said: Said) {
        let streak = self.streak.load(Relaxed);
        let longest = match said {
            Said::Works => LONGEST,
            Said::Acts => {
                if self.commits.swap(0, Relaxed) == PAID {
                    return;
                }
                LONGEST_OF_ACTS
            }
            Said::Costs => LONGEST_OF_ACTS,
            Said::Tries => {
                let failed = (self.failed.load(Relaxed) + 1).min(FAILED);
                self.failed.store(failed, Relaxed);
                if failed == FAILED {
                    self.pause.store(FIRST_PAUSE, Relaxed);
                }
                return;
            }
            // The site is tried again soon, and is believed what it was believed to be.
            Said::Nothing => {
                self.pause.store(FIRST_PAUSE, Relaxed);
                return;
            }
        };
        if streak <= longest {
            self.streak.store(streak + 1, Relaxed);
        }
        self.pause.store(FIRST_PAUSE << (2 * streak.min(longest)), Relaxed);
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
            history.aborted(Said::Works);
            pause(&history)
        });
        assert_eq!(pauses, [4, 16, 64, 256, 1024, 4096, 4096, 4096]);
    }

    #[test]
    fn a_site_whose_children_may_exec_is_tried_once_in_256_forks_at_least() {
        let history = History::new();
        let pauses = [(); 6].map(|()| {
            history.aborted(Said::Acts);
            pause(&history)
        });
        assert_eq!(pauses, [4, 16, 64, 256, 256, 256]);
        history.aborted(Said::Works);
        assert_eq!(pause(&history), 1024, "longer where children work");
    }

    /// A Ruby server that asks for an absent program at each request: every other fork was left
    /// alone.
    #[test]
    fn a_child_that_acts_is_paid_for_by_those_that_committed_before() {
        let history = History::new();
        for _ in 0..20 {
            (0..PAID).for_each(|_| history.committed());
            history.aborted(Said::Acts);
            assert_eq!(pause(&history), 0);
        }
        history.aborted(Said::Acts);
        assert_eq!(pause(&history), 4, "the second in a row");
        for _ in 0..20 {
            history.committed();
            history.aborted(Said::Acts);
            assert_eq!(pause(&history), 4, "one is too few");
        }
        (0..100).for_each(|_| history.committed());
        history.aborted(Said::Costs);
        assert_eq!(pause(&history), 4, "a limit was reached");
        history.aborted(Said::Works);
        assert_eq!(pause(&history), 16, "children that work are not paid for");
    }

    #[test]
    fn a_passing_reason_is_no_lesson() {
        let history = History::new();
        for _ in 0..20 {
            history.aborted(Said::Nothing);
            assert_eq!(pause(&history), 4);
        }
        (0..3).for_each(|_| history.aborted(Said::Works));
        history.aborted(Said::Nothing);
        assert_eq!(pause(&history), 4);
        history.aborted(Said::Works);
        assert_eq!(pause(&history), 256, "the earlier lessons hold");
    }

    #[test]
    fn programs_that_are_absent_cost_the_others_nothing() {
        let history = History::new();
        for _ in 0..20 {
            (0..FAILED - 1).for_each(|_| history.aborted(Said::Tries));
            assert_eq!(pause(&history), 0);
            history.committed();
        }
        for _ in 1..FAILED {
            history.aborted(Said::Tries);
            assert_eq!(pause(&history), 0);
        }
        for _ in 0..20 {
            history.aborted(Said::Tries);
            assert_eq!(pause(&history), 4, "no program is found");
        }
        history.aborted(Said::Works);
        assert_eq!(pause(&history), 4, "a first lesson");
    }

    #[test]
    fn a_commit_ends_the_pause_and_its_growth() {
        let history = History::new();
        (0..4).for_each(|_| history.aborted(Said::Works));
        history.committed();
        assert_eq!(pause(&history), 0);
        history.aborted(Said::Works);
        assert_eq!(pause(&history), 4);
    }
}
