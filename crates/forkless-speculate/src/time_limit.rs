//! The time limit of a speculative child, whose parent waits for it.
//!
//! The limit counts the time in which the child runs or sleeps. On a busy machine a child waits for
//! a processor for most of the time. A plain fork would take as much longer there, so that time is
//! the machine's, up to a multiple of the limit.

/// So many times its limit a child may take in all.
const MOST: u64 = 20;

/// The next look at a child comes after this time at least, in nanoseconds.
const LEAST: u64 = 2_000_000;

/// How much longer a child may take that has begun at `begun` and executed no program until `now`,
/// and waited for a processor for `waited` of that time. All in nanoseconds. `None`: no longer.
///
/// `now` is the clock's time, and not that for which a timer was set: the child waits for a
/// processor when the timer has expired, too.
#[must_use]
pub fn more(limit: u64, begun: u64, now: u64, waited: u64) -> Option<u64> {
    let elapsed = now.saturating_sub(begun);
    let used = elapsed.saturating_sub(waited);
    let may_go_on = used < limit && elapsed < limit.saturating_mul(MOST);
    may_go_on.then(|| (limit - used).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const LIMIT: u64 = 50 * MS;
    const BEGUN: u64 = 7_000 * MS;

    #[test]
    fn a_child_that_ran_or_slept_has_used_its_time() {
        assert_eq!(more(LIMIT, BEGUN, BEGUN + LIMIT, 0), None);
        assert_eq!(more(LIMIT, BEGUN, BEGUN + 70 * MS, 20 * MS), None);
    }

    #[test]
    fn time_without_a_processor_does_not_count() {
        assert_eq!(more(LIMIT, BEGUN, BEGUN + LIMIT, 40 * MS), Some(40 * MS));
        assert_eq!(more(LIMIT, BEGUN, BEGUN + 300 * MS, 280 * MS), Some(30 * MS));
        assert_eq!(
            more(LIMIT, BEGUN, BEGUN + LIMIT, MS / 2),
            Some(LEAST),
            "not a look after each instruction"
        );
        assert_eq!(more(LIMIT, BEGUN, BEGUN + LIMIT, 60 * MS), Some(LIMIT), "clocks differ a little");
    }

    #[test]
    fn but_not_for_ever() {
        assert_eq!(more(LIMIT, BEGUN, BEGUN + 999 * MS, 999 * MS), Some(LIMIT));
        assert_eq!(more(LIMIT, BEGUN, BEGUN + 1000 * MS, 1000 * MS), None);
        assert_eq!(more(0, BEGUN, BEGUN, 0), None);
        assert_eq!(more(u64::MAX, 0, u64::MAX - 1, 0), Some(LEAST));
    }

    /// Regression: the sum of what a timer was set to was taken for the time that had passed. Each
    /// look of 2 ms came after a wait of 90 ms. So a child that never ended had ever more time
    /// left, and held up its parent for half a minute.
    #[test]
    fn a_child_that_never_ends_is_undone_on_a_busy_machine_too() {
        // It gets 10 ms of each 100 ms.
        let ran = |now: u64| (now - BEGUN) / 10;
        let mut now = BEGUN;
        let mut left = Some(LIMIT);
        while let Some(more) = left {
            // The timer expires, and the child has the processor again at the next multiple.
            now = (now + more).next_multiple_of(100 * MS) + 5 * MS;
            left = super::more(LIMIT, BEGUN, now, now - BEGUN - ran(now));
        }
        assert!((LIMIT..2 * LIMIT).contains(&ran(now)), "{} ms", ran(now) / MS);
    }
}
