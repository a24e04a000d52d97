//! Whether a process has enough memory for a speculation to gain anything.
//!
//! Most processes have too little, and their forks should cost the same as without the library
//! (decision 26). So the answer is found out as rarely and as cheaply as can be. A listing of the
//! mappings costs a fork 30 us and its cycle 45 us, a quarter of a small program's. So an answer
//! holds until the process can have grown: by one page with every fault. With huge pages it may
//! have grown more. But then there are as few entries to copy, and copying entries is the cost of a
//! fork.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use forkless_sys::mm::PAGE;
use forkless_sys::process::MemoryUsage;

/// The answer that was found last. All zeros at first.
pub struct Threshold {
    /// The process that it is about: a child counts its faults anew.
    pid: AtomicI32,
    known: AtomicU8,
    /// The call site where a fork copies `bytes`. 0: any.
    site: AtomicUsize,
    bytes: AtomicUsize,
    /// Anonymous memory at that time.
    anonymous: AtomicUsize,
    /// Faults at that time.
    faults: AtomicU64,
}

/// Values of [`Threshold::known`]; 0: nothing.
const SMALL: u8 = 1;
const LARGE: u8 = 2;

impl Threshold {
    /// Nothing is known yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Threshold {
        Threshold {
            pid: AtomicI32::new(0),
            known: AtomicU8::new(0),
            site: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            anonymous: AtomicUsize::new(0),
            faults: AtomicU64::new(0),
        }
    }

    /// Whether a child forked at `site` would lack less than `minimum` bytes, as far as that can be
    /// told without opening a file. Else [`Threshold::is_small`] can tell. `me` returns the
    /// process's number.
    pub fn guess(
        &self,
        usage: MemoryUsage,
        site: usize,
        minimum: usize,
        me: impl FnOnce() -> i32,
    ) -> Option<bool> {
        // The peak, so never too small. It survives exec and counts files, so it may be too large.
        if usage.max_rss_kib as usize * 1024 < minimum {
            return Some(true);
        }
        if self.known.load(Relaxed) == LARGE {
            return Some(false);
        }
        if !self.is_known_small(me) {
            return None;
        }
        let of = self.site.load(Relaxed);
        if of != 0 && of != site {
            return Some(false);
        }
        let faults = usage.faults.saturating_sub(self.faults.load(Relaxed)) as usize;
        (self.bytes.load(Relaxed).saturating_add(faults.saturating_mul(PAGE)) < minimum).then_some(true)
    }

    /// Whether this process was looked at while it was small.
    fn is_known_small(&self, me: impl FnOnce() -> i32) -> bool {
        self.known.load(Relaxed) == SMALL && self.pid.load(Relaxed) == me()
    }

    /// Whether a child would lack less than `minimum` bytes, where the process `me` has `anonymous`
    /// bytes in pages or in swap.
    pub fn is_small(&self, usage: MemoryUsage, anonymous: usize, minimum: usize, me: i32) -> bool {
        let (of, bytes) = if self.is_known_small(|| me) {
            // After a fork most faults copy a page, and add none.
            let more = anonymous.saturating_sub(self.anonymous.load(Relaxed));
            (self.site.load(Relaxed), self.bytes.load(Relaxed).saturating_add(more))
        } else {
            (0, anonymous)
        };
        let is_small = bytes < minimum;
        if is_small {
            self.note_small(me, of, bytes, anonymous, usage.faults);
        }
        is_small
    }

    /// A child forked at `site` would lack too little, `absent` bytes.
    pub fn note_small(&self, me: i32, site: usize, absent: usize, anonymous: usize, faults: u64) {
        self.pid.store(me, Relaxed);
        self.site.store(site, Relaxed);
        self.bytes.store(absent, Relaxed);
        self.anonymous.store(anonymous, Relaxed);
        self.faults.store(faults, Relaxed);
        self.known.store(SMALL, Relaxed);
    }

    /// There is much to gain.
    pub fn note_large(&self) {
        if self.known.load(Relaxed) != LARGE {
            self.known.store(LARGE, Relaxed);
        }
    }
}

/// Adds up the anonymous memory that has entries for a fork to copy, in pages or in swap. Its
/// source is the lines of /proc/self/status (proc(5)).
#[derive(Default)]
pub struct Anonymous {
    kib: usize,
    found: u8,
}

impl Anonymous {
    /// Reads a line. Returns whether more lines are needed.
    pub fn read(&mut self, line: &[u8]) -> bool {
        if line.starts_with(b"RssAnon:") || line.starts_with(b"VmSwap:") {
            let digits = line.iter().filter(|b| b.is_ascii_digit());
            self.kib +=
                digits.fold(0usize, |n, digit| n.wrapping_mul(10).wrapping_add(usize::from(digit - b'0')));
            self.found += 1;
        }
        self.found < 2
    }

    /// In bytes. `None`: the lines did not say.
    #[must_use]
    pub fn bytes(self) -> Option<usize> {
        (self.found == 2).then_some(self.kib * 1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const MINIMUM: usize = 8 * MIB;

    fn usage(peak_mib: u64, faults: u64) -> MemoryUsage {
        MemoryUsage { max_rss_kib: peak_mib * 1024, faults }
    }

    fn guess(threshold: &Threshold, usage: MemoryUsage, site: usize) -> Option<bool> {
        threshold.guess(usage, site, MINIMUM, || 7)
    }

    #[test]
    fn a_peak_below_the_minimum_says_it_all() {
        assert_eq!(guess(&Threshold::new(), usage(7, 0), 1), Some(true));
        assert_eq!(guess(&Threshold::new(), usage(9, 0), 1), None);
    }

    #[test]
    fn an_answer_holds_until_the_faults_since_could_have_made_it_wrong() {
        let threshold = Threshold::new();
        assert!(threshold.is_small(usage(20, 100), 2 * MIB, MINIMUM, 7));
        assert_eq!(guess(&threshold, usage(20, 100 + 1535), 1), Some(true));
        assert_eq!(guess(&threshold, usage(20, 100 + 1536), 1), None);
        // Looked at again, it had grown by 1 MiB only.
        assert!(threshold.is_small(usage(20, 2000), 3 * MIB, MINIMUM, 7));
        assert_eq!(guess(&threshold, usage(20, 2001), 1), Some(true));
    }

    #[test]
    fn an_answer_of_one_site_says_nothing_of_another() {
        let threshold = Threshold::new();
        threshold.note_small(7, 0x1000, MIB, 50 * MIB, 0);
        assert_eq!(guess(&threshold, usage(60, 0), 0x1000), Some(true));
        assert_eq!(guess(&threshold, usage(60, 0), 0x2000), Some(false));
    }

    #[test]
    fn a_forked_process_is_looked_at_anew() {
        let threshold = Threshold::new();
        threshold.note_small(6, 0, MIB, MIB, 0);
        assert_eq!(guess(&threshold, usage(60, 0), 1), None);
    }

    #[test]
    fn a_large_process_is_not_looked_at_again() {
        let threshold = Threshold::new();
        assert!(!threshold.is_small(usage(60, 0), 50 * MIB, MINIMUM, 7));
        threshold.note_large();
        assert_eq!(guess(&threshold, usage(60, 0), 1), Some(false));
    }

    #[test]
    fn memory_in_pages_and_in_swap_is_added_up() {
        let mut anonymous = Anonymous::default();
        let lines: [&[u8]; 4] =
            [b"Name:\tx", b"RssAnon:\t      12 kB", b"RssFile:\t 9 kB", b"VmSwap:\t 3 kB"];
        assert_eq!(lines.map(|line| anonymous.read(line)), [true, true, true, false]);
        assert_eq!(anonymous.bytes(), Some(15 * 1024));
        let mut without = Anonymous::default();
        without.read(b"RssAnon:\t12 kB");
        assert_eq!(without.bytes(), None);
    }
}
