//! The record: a file mapped by every process of the tree, which all count into with relaxed atomic additions.

use core::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::Reason;

/// First word of a record; the last digit is the version of the layout.
const RECORD_MAGIC: u64 = 0x666f_726b_6c65_7303;

macro_rules! counters {
    ($($name:ident, $key:literal, $text:literal;)*) => {
        /// A number of the record.
        ///
        /// ```
        /// use forkless_run::Counter;
        /// assert_eq!(Counter::ALL.iter().position(|c| *c == Counter::Forks), Some(Counter::Forks as usize));
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Counter { $(#[doc = $text] $name,)* }
        impl Counter {
            /// All of them, in the order of the record.
            pub const ALL: &'static [Counter] = &[$(Counter::$name,)*];
            /// Name in JSON.
            ///
            /// ```
            /// use forkless_run::Counter;
            /// assert_eq!(Counter::NanosSaved.key(), "nanos_saved_estimate");
            /// ```
            pub const fn key(self) -> &'static str { match self { $(Counter::$name => $key,)* } }
            /// The line of the report.
            ///
            /// ```
            /// use forkless_run::Counter;
            /// assert_eq!(Counter::Forks.text(), "forks seen");
            /// ```
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
    BytesSpared, "bytes_spared", "memory not copied by committed forks";
    PagesFetched, "pages_fetched", "pages fetched by speculative children";
    Traps, "traps", "system calls judged by the signal handler";
    Direct, "direct", "system calls judged without a signal";
    Shells, "shells_skipped", "shells skipped";
    ShellsKept, "shells_kept", "lines left to the shell";
    Switches, "context_switches", "context switches without a mask call";
    Declined, "huge_pages_declined", "forks of programs that turned transparent huge pages off for themselves";
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
///
/// ```
/// # use forkless_run::{Counter, Kind, Reason, Record};
/// # use std::sync::atomic::Ordering::Relaxed;
/// # // SAFETY: made of atomic numbers, for which zero is a value.
/// # let record: Record = unsafe { std::mem::zeroed() };
/// let site = record.site(0x1234, |_| 0).unwrap(); // no name
/// site.forks.fetch_add(1, Relaxed);
/// site.because(Kind::Small.into());
/// let again = record.sites().next().unwrap();
/// assert_eq!(again.forks.load(Relaxed), 1);
/// assert!(again.reasons().eq([(Reason::from(Kind::Small), 1)]));
/// ```
#[repr(C)]
#[derive(Debug)]
pub struct Site {
    key: AtomicU64,
    /// Forks seen here.
    pub forks: AtomicU64,
    /// Speculations begun.
    pub speculated: AtomicU64,
    /// Speculations that ended in an exec.
    pub committed: AtomicU64,
    /// Speculations undone.
    pub aborted: AtomicU64,
    reasons: [SiteReason; REASONS],
    name: [AtomicU8; NAME],
}

/// The whole record. All zero but for its magic number is a valid empty one, so a fresh file of [`Record::SIZE`] bytes is nearly that.
///
/// ```
/// use forkless_run::{Counter, Record};
/// // SAFETY: made of atomic numbers, for which zero is a value; as a file that was only given its size.
/// let record: Record = unsafe { std::mem::zeroed() };
/// assert!(!record.is_valid());
/// record.format();
/// record.add(Counter::Forks, 2);
/// assert!(record.is_valid() && record.get(Counter::Forks) == 2);
/// ```
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    magic: AtomicU64,
    /// Announced ends of the root process, and of others with its memory.
    endings: AtomicU32,
    /// One of them is the root's own.
    certain: AtomicU32,
    /// Of how many nobody waits any more.
    answered: AtomicU32,
    counters: [AtomicU64; COUNTERS],
    sites: [Site; SITES],
}

/// An announced end of the root process.
///
/// ```
/// # use forkless_run::Record;
/// # // SAFETY: made of atomic numbers, for which zero is a value.
/// # let record: Record = unsafe { std::mem::zeroed() };
/// assert_ne!(record.announce(true), record.announce(true));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending(u32);

impl Record {
    /// Bytes of the file.
    pub const SIZE: usize = size_of::<Record>();

    /// Marks a zeroed record as one.
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// record.format();
    /// assert!(record.is_valid());
    /// ```
    pub fn format(&self) {
        self.magic.store(RECORD_MAGIC, Relaxed);
    }

    /// Whether it was made by the same version.
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// assert!(!record.is_valid()); // only zeros
    /// record.format();
    /// assert!(record.is_valid());
    /// ```
    pub fn is_valid(&self) -> bool {
        self.magic.load(Relaxed) == RECORD_MAGIC
    }

    /// The root process is about to end: the report may be written now. Returns what its [`Record::answer`] will be known by.
    ///
    /// `certain`: it is no other process, of the same memory, that ends.
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// let ending = record.announce(true);
    /// assert_eq!(record.announced(), Some(ending));
    /// assert!(record.is_certain() && !record.is_answered(ending));
    /// ```
    pub fn announce(&self, certain: bool) -> Ending {
        if certain {
            self.certain.store(1, Relaxed);
        }
        Ending(self.endings.fetch_add(1, Release).wrapping_add(1))
    }

    /// The last end that was announced and not answered.
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// assert_eq!(record.announced(), None);
    /// let ending = record.announce(false);
    /// record.answer(ending);
    /// assert_eq!(record.announced(), None);
    /// ```
    pub fn announced(&self) -> Option<Ending> {
        let last = self.endings.load(Acquire);
        (last != self.answered.load(Relaxed)).then_some(Ending(last))
    }

    /// Whether an end was announced that is certain.
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// record.announce(false);
    /// assert!(!record.is_certain());
    /// ```
    pub fn is_certain(&self) -> bool {
        self.certain.load(Relaxed) != 0
    }

    /// Whoever has announced this end, or an earlier one, need not wait: the report has been written, or will not be yet.
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// let (first, second) = (record.announce(false), record.announce(true));
    /// record.answer(second);
    /// assert!(record.is_answered(first) && record.is_answered(second));
    /// ```
    pub fn answer(&self, ending: Ending) {
        let is_later = |before: u32| ending.0.wrapping_sub(before).cast_signed() > 0;
        let _ = self.answered.fetch_update(Release, Relaxed, |before| is_later(before).then_some(ending.0));
    }

    /// Whether this end has been answered.
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// let ending = record.announce(true);
    /// assert!(!record.is_answered(ending));
    /// record.answer(ending);
    /// assert!(record.is_answered(ending));
    /// ```
    pub fn is_answered(&self, ending: Ending) -> bool {
        self.answered.load(Acquire).wrapping_sub(ending.0).cast_signed() >= 0
    }

    /// Adds to a counter.
    ///
    /// ```
    /// # use forkless_run::{Counter, Record};
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// record.add(Counter::BytesSpared, 4096);
    /// record.add(Counter::BytesSpared, 4096);
    /// assert_eq!(record.get(Counter::BytesSpared), 8192);
    /// ```
    pub fn add(&self, counter: Counter, n: u64) {
        self.counters[counter as usize].fetch_add(n, Relaxed);
    }

    /// A counter's value.
    ///
    /// ```
    /// # use forkless_run::{Counter, Record};
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// record.add(Counter::Aborted, 1);
    /// assert_eq!((record.get(Counter::Aborted), record.get(Counter::Committed)), (1, 0));
    /// ```
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }

    /// The site with this key, made when new and named by `name`; `None` when the table is full.
    ///
    /// The key tells program and place apart, so it must not be 0.
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// let made = record.site(7, |into| {
    ///     into[..4].copy_from_slice(b"make");
    ///     4
    /// });
    /// let found = record.site(7, |_| unreachable!("named already"));
    /// assert!(std::ptr::eq(made.unwrap(), found.unwrap()));
    /// ```
    pub fn site(&self, key: u64, name: impl FnOnce(&mut [u8]) -> usize) -> Option<&Site> {
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
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// assert_eq!(record.sites().count(), 0);
    /// for key in [7, 8, 7] {
    ///     record.site(key, |_| 0).unwrap();
    /// }
    /// assert_eq!(record.sites().count(), 2);
    /// ```
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().filter(|s| s.key.load(Relaxed) != 0)
    }
}

impl Site {
    /// Counts a reason; the ninth different one is counted with the eighth.
    ///
    /// ```
    /// # use forkless_run::{Kind, Reason, Record};
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// let site = record.site(7, |_| 0).unwrap();
    /// let socket = Reason::new(Kind::Call, 41);
    /// site.because(socket);
    /// site.because(socket);
    /// assert!(site.reasons().eq([(socket, 2)]));
    /// ```
    pub fn because(&self, reason: Reason) {
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
    ///
    /// ```
    /// # use forkless_run::{Kind, Reason, Record};
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// let site = record.site(7, |_| 0).unwrap();
    /// for number in 0..9 {
    ///     site.because(Reason::new(Kind::Call, number));
    /// }
    /// assert_eq!(site.reasons().count(), 8);
    /// assert_eq!(site.reasons().last(), Some((Reason::new(Kind::Call, 7), 2))); // and the ninth
    /// ```
    pub fn reasons(&self) -> impl Iterator<Item = (Reason, u32)> {
        self.reasons
            .iter()
            .filter_map(|s| Some((Reason::from_raw(s.reason.load(Relaxed))?, s.count.load(Relaxed))))
    }

    /// Copies the name and returns its length.
    ///
    /// ```
    /// # use forkless_run::Record;
    /// # // SAFETY: made of atomic numbers, for which zero is a value.
    /// # let record: Record = unsafe { std::mem::zeroed() };
    /// let site = record.site(7, |into| {
    ///     into[..4].copy_from_slice(b"make");
    ///     4
    /// });
    /// let mut name = [0; 16];
    /// assert_eq!((site.unwrap().name(&mut name), &name[..4]), (4, &b"make"[..]));
    /// ```
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
