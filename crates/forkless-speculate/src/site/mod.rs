//! Call sites: the lessons of earlier forks from one place in the program.
//!
//! - [`history`]: whether children made there execute programs, and so whether to speculate;
//! - [`resident`]: which memory they need, and so is left to the kernel;
//! - [`threshold`]: whether the process has enough memory for a speculation to gain anything.
//!
//! Sites are private to a process and lost at exec. Only the thread in the window changes them.

pub mod history;
pub mod resident;
pub mod threshold;

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use history::{History, Said};
use resident::Resident;

/// Call sites remembered. Further ones share the last entry.
const SITES: usize = 64;

/// The call sites of a process. All zeros at first.
pub struct Sites([ForkSite; SITES]);

/// One call site.
pub struct ForkSite {
    /// The return address of the program's call. 0: the entry is free.
    address: AtomicUsize,
    /// Whether its children execute programs.
    pub history: History,
    /// The memory that its children need.
    pub resident: Resident,
}

impl Sites {
    /// The sites of a process that has not forked.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Sites {
        Sites(
            [const {
                ForkSite { address: AtomicUsize::new(0), history: History::new(), resident: Resident::new() }
            }; SITES],
        )
    }

    /// The site with this return address.
    pub fn of(&self, address: usize) -> &ForkSite {
        let Sites([sites @ .., last]) = self;
        for site in sites {
            // Read first: the exchange writes to its page, whether it succeeds or not.
            let mut known = site.address.load(Relaxed);
            if known == 0 {
                known = site.address.compare_exchange(0, address, Relaxed, Relaxed).err().unwrap_or(address);
            }
            if known == address {
                return site;
            }
        }
        last
    }
}

impl ForkSite {
    /// The child of a fork here would lack `absent` bytes, fewer than `minimum`. The reason may be
    /// the resident memory alone: children once needed nearly everything. Then the resident memory
    /// is forgotten, and the site pauses as one whose children do not exec. Returns whether that
    /// was so.
    pub fn forgot_resident(&self, absent: usize, minimum: usize) -> bool {
        let is_why = absent + self.resident.bytes() >= minimum;
        if is_why {
            self.resident.forget();
            self.history.aborted(Said::Works);
        }
        is_why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_found_again_and_a_65th_shares_the_last_entry() {
        let sites = Sites::new();
        sites.of(0x1000).history.aborted(Said::Works);
        assert!(sites.of(0x2000).history.worth_trying());
        assert!(!sites.of(0x1000).history.worth_trying());
        for i in 1..100 {
            let _ = sites.of(i << 12);
        }
        sites.of(90 << 12).history.aborted(Said::Works);
        assert!(!sites.of(91 << 12).history.worth_trying());
        assert!(sites.of(0x2000).history.worth_trying());
    }

    #[test]
    fn a_site_whose_children_need_nearly_everything_is_paused_and_forgotten() {
        let sites = Sites::new();
        let site = sites.of(0x1000);
        let lesson = resident::Lesson { came_to_exec: false, trials: resident::Trials::Usual };
        site.resident.learn(0, [(0, 6 << 20)].into_iter(), lesson);
        assert!(!site.forgot_resident(1 << 20, 8 << 20), "too small even with it");
        assert!(site.forgot_resident(4 << 20, 8 << 20));
        assert_eq!(site.resident.bytes(), 0);
        assert!(!site.history.worth_trying());
    }
}
