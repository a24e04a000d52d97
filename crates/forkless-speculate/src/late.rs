//! Memory that a speculative child reads late.
//!
//! A plain fork is a snapshot, also for threads that write meanwhile. The kernel copies under
//! `mmap_lock`, a thread that writes to a page already copied waits for that lock, and the flush at
//! the end of `dup_mmap` (kernel/fork.c) closes the cut. So memory that is left to the kernel is as
//! it was at the fork. An absent page is read later: it shows what other threads have written
//! since. Together, both may show a state that never was.
//!
//! So beside threads, a child that has fetched anything does not commit ([`ForkMode::Exact`]). It
//! is undone, and the fork is speculated once more at once. The forking thread has not moved: the
//! second child runs the same code on the same memory. What the first child fetched is left to the
//! kernel, so the second child finds it as it was at its own fork.
//!
//! No page is excepted. A page that no other thread writes cannot be told from one that is written:
//! the stack of the forking thread, too, may be written through a pointer. What surely matters of
//! that stack is never absent (`exclusions::Pins`).
//!
//! [`ForkMode::Exact`]: https://docs.rs/forkless-run

/// The most children of one fork. The fourth is the last, and a plain fork follows it.
pub const CHILDREN: u32 = 4;

/// Whether a fork is speculated once more, after `made` children of which the last was undone for
/// what it had read late.
///
/// `carried` are the ranges that were to be left to the kernel for this child, because earlier
/// children had fetched them. `late` are the ranges that it fetched all the same. If one of them
/// was carried, the kernel could not be left with it, and another child would fetch it again.
pub fn again(
    made: u32,
    carried: impl Iterator<Item = (usize, usize)> + Clone,
    late: impl Iterator<Item = (usize, usize)>,
) -> bool {
    let mut some = false;
    for (start, end) in late {
        some = true;
        if carried.clone().any(|(s, e)| s <= start && end <= e) {
            return false;
        }
    }
    some && made < CHILDREN
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn after(made: u32, carried: &[(usize, usize)], late: &[(usize, usize)]) -> bool {
        again(made, carried.iter().copied(), late.iter().copied())
    }

    #[test]
    fn a_child_that_read_nothing_late_has_no_second_child() {
        assert!(!after(1, &[], &[]));
        assert!(!after(2, &[(0, 9)], &[]));
    }

    #[test]
    fn new_ranges_make_another_child_and_known_ranges_do_not() {
        assert!(after(1, &[], &[(0, 9)]));
        assert!(after(2, &[(0, 9)], &[(9, 12)]));
        assert!(!after(2, &[(0, 9)], &[(9, 12), (3, 9)]));
    }

    #[test]
    fn the_fourth_child_is_the_last() {
        assert!(after(3, &[(0, 9)], &[(9, 12)]));
        assert!(!after(4, &[(0, 9)], &[(9, 12)]));
    }

    proptest! {
        /// Children that touch more each time: a fork ends with a child that fetched nothing, or
        /// after four children. What a child finds late was absent when it was made.
        #[test]
        fn a_fork_ends_exact_or_plain(
            touched in prop::collection::vec(prop::collection::vec(0usize..40, 0..6), 1..8),
            refused in prop::collection::btree_set(0usize..40, 0..3),
        ) {
            let mut carried: Vec<(usize, usize)> = Vec::new();
            let mut left = BTreeSet::new();
            let mut made = 0;
            loop {
                let touches: BTreeSet<usize> =
                    touched.iter().take(made as usize + 1).flatten().copied().collect();
                let late: Vec<_> = touches.difference(&left).map(|&page| (page, page + 1)).collect();
                made += 1;
                if late.is_empty() {
                    break;
                }
                if !after(made, &carried, &late) {
                    let is_known = late.iter().any(|range| carried.contains(range));
                    prop_assert!(made == CHILDREN || is_known);
                    break;
                }
                carried.extend(&late);
                // The kernel keeps what may be split from its mapping.
                left.extend(late.iter().map(|(page, _)| *page).filter(|page| !refused.contains(page)));
            }
            prop_assert!(made <= CHILDREN);
        }
    }
}
