//! Call sites: what earlier forks from one place in the program have taught.
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

use history::History;
use resident::Resident;

/// Call sites remembered. Further ones share the last entry.
const SITES: usize = 64;

/// The call sites of a process. All zeros at first.
pub struct Sites([Site; SITES]);

/// One call site.
pub struct Site {
    /// The return address of the program's call. 0: the entry is free.
    address: AtomicUsize,
    /// Whether its children execute programs.
    pub history: History,
    /// What its children need.
    pub resident: Resident,
}

impl Sites {
    /// Of a process that has not forked.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Sites {
        Sites(
            [const { Site { address: AtomicUsize::new(0), history: History::new(), resident: Resident::new() } };
                SITES],
        )
    }

    /// The site with this return address.
    pub fn of(&self, address: usize) -> &Site {
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

impl Site {
    /// A fork here would lack `absent` bytes, which are fewer than `minimum`. Where only the memory left to
    /// the kernel makes them too few, children once needed nearly everything. Then that memory is forgotten,
    /// and the site tried again as one whose children do not exec. Returns whether that was so.
    pub fn forgot_resident(&self, absent: usize, minimum: usize) -> bool {
        let is_why = absent + self.resident.bytes() >= minimum;
        if is_why {
            self.resident.forget();
            self.history.aborted();
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
        sites.of(0x1000).history.aborted();
        assert!(sites.of(0x2000).history.worth_trying());
        assert!(!sites.of(0x1000).history.worth_trying());
        for i in 1..100 {
            let _ = sites.of(i << 12);
        }
        sites.of(90 << 12).history.aborted();
        assert!(!sites.of(91 << 12).history.worth_trying());
        assert!(sites.of(0x2000).history.worth_trying());
    }

    #[test]
    fn a_site_whose_children_need_nearly_everything_is_paused_and_forgotten() {
        let sites = Sites::new();
        let site = sites.of(0x1000);
        site.resident.learn(0, [(0, 6 << 20)].into_iter(), false);
        assert!(!site.forgot_resident(1 << 20, 8 << 20), "too small even with it");
        assert!(site.forgot_resident(4 << 20, 8 << 20));
        assert_eq!(site.resident.bytes(), 0);
        assert!(!site.history.worth_trying());
    }
}
