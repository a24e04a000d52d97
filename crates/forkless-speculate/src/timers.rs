//! The numbers of a speculative child's POSIX timers.
//!
//! The library has a timer of its own in the child, made first. The kernel numbers timers one after
//! the other (kernel/time/posix-timers.c, `posix_timer_add`). Since Linux 6.15 the library's timer
//! has the last number, and the next is 0, as in a plain child. Before, the library's has 0, and
//! each number that the program sees is one lower than the kernel's.

/// Numbers as the program sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// The kernel's number of the library's timer.
    pub ours: i32,
}

impl Numbers {
    /// The kernel's number of a timer that the program names. `None`: the program has no such
    /// timer.
    #[must_use]
    pub fn kernels(self, programs: i32) -> Option<i32> {
        match programs {
            ..0 => None,
            _ if programs < self.ours => Some(programs),
            _ => programs.checked_add(1),
        }
    }

    /// The number that the program gets for a new timer.
    #[must_use]
    pub fn programs(self, kernels: i32) -> i32 {
        if kernels > self.ours { kernels - 1 } else { kernels }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_timer_has_number_0_on_old_kernels_and_new_ones() {
        assert_eq!(Numbers { ours: 0 }.programs(1), 0);
        assert_eq!(Numbers { ours: i32::MAX }.programs(0), 0);
    }

    proptest! {
        #[test]
        fn a_number_leads_back_to_its_timer_and_none_to_the_librarys(
            timer in 0..i32::MAX, ours in prop::sample::select(&[0, i32::MAX][..]), any in any::<i32>()
        ) {
            let numbers = Numbers { ours };
            if timer != ours {
                prop_assert_eq!(numbers.kernels(numbers.programs(timer)), Some(timer));
            }
            prop_assert_ne!(numbers.kernels(any), Some(ours));
            prop_assert!(numbers.kernels(any).is_none_or(|timer| timer >= 0));
        }
    }
}
