//! The record: a file that every process of the tree maps, and counts into with relaxed atomic
//! additions.

use core::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::AbortReason;

/// First word of a record; the last digit is the version of the layout.
const RECORD_MAGIC: u64 = 0x666f_726b_6c65_7305;

macro_rules! counters {
    ($($name:ident, $key:literal, $text:literal;)*) => {
        /// A number of the record.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Counter { $(#[doc = $text] $name,)* }
        impl Counter {
            /// All of them, in the order of the record.
            pub const ALL: &'static [Counter] = &[$(Counter::$name,)*];
            /// Name in JSON.
            pub const fn key(self) -> &'static str { match self { $(Counter::$name => $key,)* } }
            /// The line of the report.
            pub const fn text(self) -> &'static str { match self { $(Counter::$name => $text,)* } }
        }
    };
}
counters! {
    Processes, "processes", "processes that loaded the library";
    Forks, "forks", "forks seen";
    Speculated, "speculated", "speculated";
    Committed, "committed", "committed (the child executed a program)";
    Aborted, "aborted", "aborted and done again as a plain fork";
    Plain, "plain", "left alone";
    Retried, "retried", "speculated once more (the first child had read memory late)";
    BytesSpared, "bytes_spared", "memory not copied by committed forks";
    PagesFetched, "pages_fetched", "pages fetched by speculative children";
    Traps, "traps", "system calls judged by the signal handler";
    Direct, "direct", "system calls judged without a signal";
    Shells, "shells_skipped", "shells skipped";
    ShellsKept, "shells_kept", "lines left to the shell";
    ExecShells, "exec_shells_skipped", "shells skipped where a program executes them";
    ExecLines, "exec_lines_kept", "executed shells kept: more than a command";
    ExecWaits, "exec_waits_kept", "executed shells kept: this shell waits for the command";
    ExecStates, "exec_states_kept", "executed shells kept: for the state of the process";
    Switches, "context_switches", "context switches without a mask call";
    Declined, "huge_pages_declined", "forks of programs that turned transparent huge pages off for themselves";
    Closes, "closes_answered", "closes past the last descriptor, answered without the kernel";
    Merged, "huge_pages_merged", "huge pages merged, or found whole, after forks";
    NanosSaved, "nanos_saved_estimate", "nanoseconds saved (estimate)";
}

const COUNTERS: usize = Counter::ALL.len();
const SITES: usize = 128;
const REASONS: usize = 8;
const NAME: usize = 104;

/// How often a reason occurred at a site.
#[repr(C)]
#[derive(Debug)]
struct SiteReason {
    reason: AtomicU32,
    count: AtomicU32,
}

/// One place in one program that forks.
#[repr(C)]
#[derive(Debug)]
pub struct SiteCounters {
    key: AtomicU64,
    /// Forks seen here.
    pub forks: AtomicU64,
    /// Speculations begun.
    pub speculated: AtomicU64,
    /// Speculations that ended in an exec.
    pub committed: AtomicU64,
    /// Speculations aborted.
    pub aborted: AtomicU64,
    reasons: [SiteReason; REASONS],
    name: [AtomicU8; NAME],
}

/// The whole record. A fresh file of [`Record::SIZE`] zeros becomes a valid empty record when
/// [`Record::format`] stores the magic number.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    magic: AtomicU64,
    /// Announced ends of the root process, and of others with its memory.
    endings: AtomicU32,
    /// Not 0: one of the announced ends is the root's own.
    certain: AtomicU32,
    /// How many announced ends have been answered: nobody waits for those any more.
    answered: AtomicU32,
    counters: [AtomicU64; COUNTERS],
    sites: [SiteCounters; SITES],
}

/// An announced end of the root process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnouncedEnd(u32);

impl Record {
    /// Bytes of the file.
    pub const SIZE: usize = size_of::<Record>();

    /// Marks a zeroed record as one.
    pub fn format(&self) {
        self.magic.store(RECORD_MAGIC, Relaxed);
    }

    /// Whether the same version of this layout made the record.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Relaxed) == RECORD_MAGIC
    }

    /// Says that the root process is about to end: the report may be written now. The result names
    /// this end in [`Record::answer`].
    ///
    /// `certain`: the root itself ends, not another process that shares its memory.
    pub fn announce(&self, certain: bool) -> AnnouncedEnd {
        if certain {
            self.certain.store(1, Relaxed);
        }
        AnnouncedEnd(self.endings.fetch_add(1, Release).wrapping_add(1))
    }

    /// The last end that was announced and not answered.
    pub fn announced(&self) -> Option<AnnouncedEnd> {
        let last = self.endings.load(Acquire);
        (last != self.answered.load(Relaxed)).then_some(AnnouncedEnd(last))
    }

    /// Whether an end was announced that is certain.
    pub fn is_certain(&self) -> bool {
        self.certain.load(Relaxed) != 0
    }

    /// Ends the wait of the process that announced this end, or an earlier one: the report has been
    /// written, or will be written later.
    pub fn answer(&self, ending: AnnouncedEnd) {
        let is_later = |before: u32| ending.0.wrapping_sub(before).cast_signed() > 0;
        let _ = self.answered.fetch_update(Release, Relaxed, |before| is_later(before).then_some(ending.0));
    }

    /// Whether this end has been answered.
    pub fn is_answered(&self, ending: AnnouncedEnd) -> bool {
        self.answered.load(Acquire).wrapping_sub(ending.0).cast_signed() >= 0
    }

    /// Adds to a counter.
    pub fn add(&self, counter: Counter, n: u64) {
        self.counters[counter as usize].fetch_add(n, Relaxed);
    }

    /// A counter's value.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }

    /// The site with this key, made when new and named by `name`; `None` when the table is full.
    ///
    /// The key tells program and place apart, so it must not be 0.
    pub fn site(&self, key: u64, name: impl FnOnce(&mut [u8]) -> usize) -> Option<&SiteCounters> {
        let start = (key ^ key >> 17) as usize;
        for i in 0..SITES {
            let site = &self.sites[(start + i) % SITES];
            match site.key.compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => {
                    let mut text = [0u8; NAME];
                    let len = name(&mut text).min(NAME);
                    for (to, from) in site.name.iter().zip(&text[..len]) {
                        to.store(*from, Relaxed);
                    }
                    return Some(site);
                }
                Err(present) if present == key => return Some(site),
                Err(_) => {}
            }
        }
        None
    }

    /// The sites in use.
    pub fn sites(&self) -> impl Iterator<Item = &SiteCounters> {
        self.sites.iter().filter(|s| s.key.load(Relaxed) != 0)
    }
}

impl SiteCounters {
    /// Counts a reason; the ninth different one is counted with the eighth.
    pub fn because(&self, reason: AbortReason) {
        for slot in &self.reasons {
            let now = slot.reason.compare_exchange(0, reason.raw(), Relaxed, Relaxed).unwrap_or_else(|r| r);
            if now == 0 || now == reason.raw() {
                slot.count.fetch_add(1, Relaxed);
                return;
            }
        }
        self.reasons[REASONS - 1].count.fetch_add(1, Relaxed);
    }

    /// Reasons seen and how often.
    pub fn reasons(&self) -> impl Iterator<Item = (AbortReason, u32)> {
        self.reasons
            .iter()
            .filter_map(|s| Some((AbortReason::from_raw(s.reason.load(Relaxed))?, s.count.load(Relaxed))))
    }

    /// Copies the name and returns its length.
    pub fn name(&self, into: &mut [u8]) -> usize {
        let mut len = 0;
        for (to, from) in into.iter_mut().zip(&self.name) {
            *to = from.load(Relaxed);
            if *to == 0 {
                break;
            }
            len += 1;
        }
        len
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "a zeroed record, as a fresh file is")]
mod tests {
    use super::{Counter, NAME, Record, SITES};
    use crate::{AbortKind, AbortReason};

    use core::sync::atomic::Ordering::Relaxed;

    fn zeros() -> Record {
        // SAFETY: a record is made of atomic numbers, for which zero is a value.
        unsafe { core::mem::zeroed() }
    }

    #[test]
    fn zeros_become_a_record_by_their_magic_number() {
        let record = zeros();
        assert!(!record.is_valid());
        record.format();
        assert!(record.is_valid());
        for &counter in Counter::ALL {
            assert_eq!(record.get(counter), 0);
        }
    }

    #[test]
    fn each_counter_has_a_place_and_a_key_of_its_own() {
        let record = zeros();
        for (at, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(counter as usize, at);
            record.add(counter, at as u64);
            record.add(counter, 1);
            assert!(Counter::ALL[..at].iter().all(|other| other.key() != counter.key()));
        }
        for (at, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(record.get(counter), at as u64 + 1);
        }
    }

    #[test]
    fn an_end_is_announced_until_it_or_a_later_one_is_answered() {
        let record = zeros();
        assert_eq!(record.announced(), None);
        let first = record.announce(false);
        assert_eq!(record.announced(), Some(first));
        assert!(!record.is_certain() && !record.is_answered(first));
        let second = record.announce(true);
        assert_ne!(first, second);
        assert!(record.is_certain());
        record.answer(second);
        assert!(record.is_answered(first) && record.is_answered(second));
        assert_eq!(record.announced(), None);
        // An answer that comes late takes nothing back.
        record.answer(first);
        assert!(record.is_answered(second));
    }

    #[test]
    fn a_site_is_named_once_and_found_by_its_key() {
        let record = zeros();
        let make = record.site(7, |into| {
            into[..4].copy_from_slice(b"make");
            4
        });
        let again = record.site(7, |_| unreachable!("named already"));
        assert!(core::ptr::eq(make.unwrap(), again.unwrap()));
        record.site(8, |_| 0).unwrap();
        assert_eq!(record.sites().count(), 2);
        let mut name = [0; 16];
        assert_eq!((make.unwrap().name(&mut name), &name[..4]), (4, &b"make"[..]));
    }

    #[test]
    fn a_name_longer_than_its_place_is_cut() {
        let record = zeros();
        let site = record.site(7, |into| {
            into.fill(b'x');
            usize::MAX
        });
        assert_eq!(site.unwrap().name(&mut [0; 256]), NAME);
    }

    #[test]
    fn a_full_table_gives_no_site_to_a_new_key() {
        let record = zeros();
        for key in 1..=SITES as u64 {
            assert!(record.site(key << 20, |_| 0).is_some());
        }
        assert!(record.site(1, |_| 0).is_none());
        assert!(record.site(1 << 20, |_| 0).is_some());
    }

    #[test]
    fn the_ninth_different_reason_counts_with_the_eighth() {
        let record = zeros();
        let site = record.site(7, |_| 0).unwrap();
        site.forks.fetch_add(9, Relaxed);
        for number in 0..9 {
            site.because(AbortReason::new(AbortKind::Call, number));
        }
        site.because(AbortReason::new(AbortKind::Call, 0));
        assert_eq!(site.reasons().count(), 8);
        assert_eq!(site.reasons().next(), Some((AbortReason::new(AbortKind::Call, 0), 2)));
        assert_eq!(site.reasons().last(), Some((AbortReason::new(AbortKind::Call, 7), 2)));
    }
}
