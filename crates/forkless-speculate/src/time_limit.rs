//! The time limit of a speculative child, whose parent waits for it.
//!
//! The limit counts the time in which the child runs or sleeps. On a busy machine a child waits for
//! a processor for most of the time. A plain fork would take as much longer there, so that time is
//! the machine's, up to a multiple of the limit.

/// So many times its limit a child may take in all.
const MOST: u64 = 20;

/// The next look at a child comes after this time at least, in nanoseconds.
const LEAST: u64 = 2_000_000;

/// How much longer a child may take that has not executed a program after `elapsed`, `waited` of
/// which it waited for a processor. All in nanoseconds. `None`: no longer.
#[must_use]
pub fn more(limit: u64, elapsed: u64, waited: u64) -> Option<u64> {
    let used = elapsed.saturating_sub(waited);
    let may_go_on = used < limit && elapsed < limit.saturating_mul(MOST);
    may_go_on.then(|| (limit - used).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const LIMIT: u64 = 50 * MS;

    #[test]
    fn a_child_that_ran_or_slept_has_used_its_time() {
        assert_eq!(more(LIMIT, LIMIT, 0), None);
        assert_eq!(more(LIMIT, 70 * MS, 20 * MS), None);
    }

    #[test]
    fn time_without_a_processor_does_not_count() {
        assert_eq!(more(LIMIT, LIMIT, 40 * MS), Some(40 * MS));
        assert_eq!(more(LIMIT, 300 * MS, 280 * MS), Some(30 * MS));
        assert_eq!(more(LIMIT, LIMIT, MS / 2), Some(LEAST), "not a look after each instruction");
        assert_eq!(more(LIMIT, LIMIT, 60 * MS), Some(LIMIT), "clocks differ a little");
    }

    #[test]
    fn but_not_for_ever() {
        assert_eq!(more(LIMIT, 999 * MS, 999 * MS), Some(LIMIT));
        assert_eq!(more(LIMIT, 1000 * MS, 1000 * MS), None);
        assert_eq!(more(0, 0, 0), None);
        assert_eq!(more(u64::MAX, u64::MAX - 1, 0), Some(LEAST));
    }
}
