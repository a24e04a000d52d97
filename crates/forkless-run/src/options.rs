//! The options that the launcher gives the preloaded library, as one value of the environment.
//!
//! `KEY=VALUE` pairs separated by commas. [`Options::encode`] writes them and [`Options::parse`]
//! reads them; nothing else knows their words. Programs of the tree inherit the text. So a reader
//! passes by unknown keys, and keeps the default where a value is malformed: a program must never
//! fail for it.

use core::num::{NonZeroU32, NonZeroU64};

use forkless_shell::ShellTraits;

macro_rules! fork_modes {
    ($($(#[$about:meta])* $name:ident = $value:literal, $pair:literal;)*) => {
        /// Which processes speculate.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[repr(u8)]
        pub enum ForkMode {
            $($(#[$about])* $name = $value,)*
        }

        impl ForkMode {
            /// All modes, in the order of their numbers.
            pub const ALL: &'static [ForkMode] = &[$(ForkMode::$name,)*];

            /// The mode with this number.
            pub const fn from_raw(raw: u8) -> Option<ForkMode> {
                match raw { $($value => Some(ForkMode::$name),)* _ => None }
            }

            /// The pair by which options have this mode. [`Options::encode`] begins with it.
            pub fn pair(self) -> &'static [u8] {
                match self { $(ForkMode::$name => $pair,)* }
            }
        }
    };
}
fork_modes! {
    /// None: forks stay as they are.
    Off = 0, b"fork=off";
    /// Processes with a single thread.
    Strict = 1, b"fork=strict";
    /// All processes. Beside threads, a child may read memory as it is after the fork.
    Speculate = 2, b"fork=speculate";
    /// All processes. Beside threads, a child commits only if it has read no memory late.
    #[default]
    Exact = 3, b"fork=exact";
}

impl ForkMode {
    /// Whether processes with threads speculate.
    pub const fn serves_threads(self) -> bool {
        matches!(self, ForkMode::Speculate | ForkMode::Exact)
    }
}

/// Huge pages for the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// As the program has it.
    #[default]
    Off,
    /// Transparent: the kernel joins pages where it can. Memory that malloc does not reach is
    /// merged before the forks of a program that is starting, and after the forks of one that
    /// serves.
    Transparent,
    /// From the pool of the system (`vm.nr_hugepages`); never passed on to executed programs, for
    /// which [`HUGETLB_TUNABLE`](crate::HUGETLB_TUNABLE) ends `GLIBC_TUNABLES`.
    Pool,
}

impl HugePages {
    /// The pair by which options have this kind.
    pub fn pair(self) -> &'static [u8] {
        match self {
            HugePages::Off => b"huge-pages=off",
            HugePages::Transparent => b"huge-pages=thp",
            HugePages::Pool => b"huge-pages=hugetlb",
        }
    }
}

/// What the library is told of `/bin/sh`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shell {
    /// Nothing: every line is the shell's.
    #[default]
    Unknown,
    /// To ask the shell by itself, when the first line depends on it.
    Ask,
    /// The same, when so many lines depended on it that the next ones are worth the question.
    AskInTime,
    /// What the shell is.
    Known(KnownShell),
}

/// What `/bin/sh` is, as long as it is this file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownShell {
    /// How the shell treats a line.
    pub traits: ShellTraits,
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
}

/// The seccomp filters that were in force when the launcher started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Filters {
    /// No launcher has counted them.
    #[default]
    Uncounted,
    /// So many. They kill for no call of the library's; by their number a program can tell that one
    /// came later.
    Counted(u32),
    /// One may kill: they count as the program's own, and the library makes no call that libc would
    /// not.
    MayKill,
}

/// The path of a record, in a form that the options can carry: without comma and NUL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordPath<'a>(&'a [u8]);

impl<'a> RecordPath<'a> {
    /// `None` for a path that the options cannot carry.
    pub fn new(path: &'a [u8]) -> Option<RecordPath<'a>> {
        if path.iter().any(|byte| matches!(byte, b',' | 0)) { None } else { Some(RecordPath(path)) }
    }

    /// The path.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// What the launcher asks of the preloaded library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options<'a> {
    /// Which processes speculate.
    pub fork: ForkMode,
    /// Below this much private memory a fork is left alone, in bytes.
    pub minimum: u64,
    /// How long a child may speculate, in milliseconds. Time in which it waits for a processor does
    /// not count.
    pub limit_ms: u32,
    /// Whether call sites whose children do not exec are left alone after a while. Off only in
    /// tests.
    pub learn: bool,
    /// What is known of `/bin/sh`.
    pub shell: Shell,
    /// What is known of seccomp filters.
    pub filters: Filters,
    /// User-level context switches without system calls for the signal mask.
    pub fast_context: bool,
    /// Huge pages for memory.
    pub huge_pages: HugePages,
    /// Do not say why huge pages could not be used.
    pub quiet: bool,
    /// Whether programs that the program executes get the same treatment.
    pub children: bool,
    /// The process that ends with a report: the number that the launcher had when it became the
    /// program.
    pub root: Option<NonZeroU32>,
    /// The root's PID namespace, by inode: another namespace has a process of the same number.
    pub root_namespace: Option<NonZeroU64>,
    /// Where to count.
    pub record: Option<RecordPath<'a>>,
    /// Whether the record is the user's: a program makes it where there is none.
    pub makes_record: bool,
}

/// What a program has whose environment names no options.
impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            fork: ForkMode::default(),
            minimum: 8 << 20,
            limit_ms: 50,
            learn: true,
            shell: Shell::default(),
            filters: Filters::default(),
            fast_context: false,
            huge_pages: HugePages::Off,
            quiet: false,
            children: true,
            root: None,
            root_namespace: None,
            record: None,
            makes_record: false,
        }
    }
}

impl<'a> Options<'a> {
    /// Reads what [`encode`](Self::encode) has written. Of a key that comes twice the later value
    /// counts.
    pub fn parse(text: &'a [u8]) -> Options<'a> {
        let mut options = Options::default();
        for pair in text.split(|byte| *byte == b',') {
            if let Some(equals) = pair.iter().position(|byte| *byte == b'=') {
                options.read(&pair[..equals], &pair[equals + 1..]);
            }
        }
        options
    }

    /// Whether the pair was understood.
    pub(crate) fn read(&mut self, key: &[u8], value: &'a [u8]) -> bool {
        // Once for all keys: each call would be more code in a page that every program of the tree
        // runs through.
        let number = decimal(value);
        match (key, value, number) {
            (b"fork", b"off", _) => self.fork = ForkMode::Off,
            (b"fork", b"strict", _) => self.fork = ForkMode::Strict,
            (b"fork", b"speculate", _) => self.fork = ForkMode::Speculate,
            (b"fork", b"exact", _) => self.fork = ForkMode::Exact,
            (b"min", _, Some(n)) => self.minimum = n,
            (b"limit", _, Some(n)) => self.limit_ms = n as u32,
            (b"learn", b"no", _) => self.learn = false,
            (b"sh", b"ask", _) => self.shell = Shell::Ask,
            (b"sh", b"in-time", _) => self.shell = Shell::AskInTime,
            (b"sh", _, _) => self.shell = known(value).map_or(self.shell, Shell::Known),
            (b"filters", b"all", _) => self.filters = Filters::MayKill,
            (b"filters", _, Some(n)) => self.filters = Filters::Counted(n as u32),
            (b"context", b"fast", _) => self.fast_context = true,
            (b"huge-pages", _, _) => match value {
                b"off" => self.huge_pages = HugePages::Off,
                b"thp" => self.huge_pages = HugePages::Transparent,
                b"hugetlb" => self.huge_pages = HugePages::Pool,
                _ => return false,
            },
            (b"quiet", b"yes", _) => self.quiet = true,
            (b"children", b"no", _) => self.children = false,
            (b"root", _, Some(n)) => self.root = NonZeroU32::new(n as u32),
            (b"ns", _, Some(n)) => self.root_namespace = NonZeroU64::new(n),
            // No comma is in it, and no NUL is in the environment.
            (b"record", _, _) => self.record = Some(RecordPath(value)),
            (b"makes-record", b"yes", _) => self.makes_record = true,
            _ => return false,
        }
        true
    }

    /// Appends the options as a text of ASCII, but for the record's path, which may hold any byte.
    pub fn encode(&self, into: &mut impl Extend<u8>) {
        into.extend(self.fork.pair().iter().copied());
        let mut put = |word: &[u8]| into.extend(word.iter().copied());
        let number = |put: &mut dyn FnMut(&[u8]), key: &[u8], n: u64| {
            put(key);
            put(digits(n, &mut [0; 20]));
        };
        number(&mut put, b",min=", self.minimum);
        number(&mut put, b",limit=", u64::from(self.limit_ms));
        if !self.learn {
            put(b",learn=no");
        }
        match self.shell {
            Shell::Unknown => {}
            Shell::Ask => put(b",sh=ask"),
            Shell::AskInTime => put(b",sh=in-time"),
            Shell::Known(KnownShell { traits, device, inode }) => {
                number(&mut put, b",sh=", u64::from(traits.to_bits()));
                number(&mut put, b":", device);
                number(&mut put, b":", inode);
            }
        }
        match self.filters {
            Filters::Uncounted => {}
            Filters::Counted(n) => number(&mut put, b",filters=", u64::from(n)),
            Filters::MayKill => put(b",filters=all"),
        }
        if self.huge_pages != HugePages::Off {
            put(b",");
            put(self.huge_pages.pair());
        }
        let switches: [(bool, &[u8]); 4] = [
            (self.fast_context, b",context=fast"),
            (self.quiet, b",quiet=yes"),
            (!self.children, b",children=no"),
            (self.makes_record, b",makes-record=yes"),
        ];
        for (is_set, word) in switches {
            if is_set {
                put(word);
            }
        }
        if let Some(root) = self.root {
            number(&mut put, b",root=", u64::from(root.get()));
        }
        if let Some(namespace) = self.root_namespace {
            number(&mut put, b",ns=", namespace.get());
        }
        if let Some(record) = self.record {
            put(b",record=");
            put(record.bytes());
        }
    }
}

/// `TRAITS:DEVICE:INODE`, all three numbers. What follows them is ignored.
fn known(value: &[u8]) -> Option<KnownShell> {
    let mut parts = value.split(|byte| *byte == b':');
    let mut number = || decimal(parts.next()?);
    let (traits, device, inode) = (number()?, number()?, number()?);
    Some(KnownShell { traits: ShellTraits::from_bits(traits as u8), device, inode })
}

/// A number of decimal digits. By hand, for `parse` first makes sure of UTF-8, in another page of
/// the preloaded library.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    let digit = |n: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}

/// The digits of a number, at the end of a buffer that holds those of the largest.
#[must_use]
pub fn digits(mut n: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut start = buffer.len();
    loop {
        start -= 1;
        buffer[start] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &buffer[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// Random numbers by SplitMix64, the same in every run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }

        fn bit(&mut self) -> bool {
            self.next() & 1 == 1
        }

        /// A number of any length, the ends of the range among them.
        fn number(&mut self) -> u64 {
            match self.next() % 8 {
                0 => 0,
                1 => u64::MAX,
                _ => self.next() >> (self.next() % 64),
            }
        }

        fn options<'a>(&mut self, path: &'a [u8]) -> Options<'a> {
            Options {
                fork: ForkMode::ALL[self.next() as usize % ForkMode::ALL.len()],
                minimum: self.number(),
                limit_ms: self.number() as u32,
                learn: self.bit(),
                shell: match self.next() % 4 {
                    0 => Shell::Unknown,
                    1 => Shell::Ask,
                    2 => Shell::AskInTime,
                    _ => Shell::Known(KnownShell {
                        traits: ShellTraits::from_bits(self.next() as u8),
                        device: self.number(),
                        inode: self.number(),
                    }),
                },
                filters: match self.next() % 3 {
                    0 => Filters::Uncounted,
                    1 => Filters::Counted(self.number() as u32),
                    _ => Filters::MayKill,
                },
                fast_context: self.bit(),
                huge_pages: [HugePages::Off, HugePages::Transparent, HugePages::Pool]
                    [self.next() as usize % 3],
                quiet: self.bit(),
                children: self.bit(),
                root: NonZeroU32::new(self.number() as u32),
                root_namespace: NonZeroU64::new(self.number()),
                record: if self.bit() { RecordPath::new(path) } else { None },
                makes_record: self.bit(),
            }
        }
    }

    fn encoded(options: &Options<'_>) -> Vec<u8> {
        let mut text = Vec::new();
        options.encode(&mut text);
        text
    }

    #[test]
    fn what_was_written_is_read_back() {
        let mut random = Random(22);
        for _ in 0..20_000 {
            let length = random.next() as usize % 40;
            let path: Vec<u8> =
                (0..length).map(|_| random.next() as u8).filter(|byte| !matches!(byte, b',' | 0)).collect();
            let options = random.options(&path);
            let text = encoded(&options);
            assert_eq!(Options::parse(&text), options, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn the_words_are_those_of_the_environment() {
        let text = |options: &Options<'_>| std::string::String::from_utf8(encoded(options)).unwrap();
        assert_eq!(text(&Options::default()), "fork=exact,min=8388608,limit=50");
        let all = Options {
            fork: ForkMode::Speculate,
            minimum: 0,
            limit_ms: 60_000,
            learn: false,
            shell: Shell::Known(KnownShell { traits: ShellTraits::from_bits(1), device: 8, inode: 9 }),
            filters: Filters::Counted(2),
            fast_context: true,
            huge_pages: HugePages::Pool,
            quiet: true,
            children: false,
            root: NonZeroU32::new(7),
            root_namespace: NonZeroU64::new(4_026_531_836),
            record: RecordPath::new(b"/dev/shm/x"),
            makes_record: true,
        };
        assert_eq!(
            text(&all),
            "fork=speculate,min=0,limit=60000,learn=no,sh=1:8:9,filters=2,huge-pages=hugetlb,context=fast,\
             quiet=yes,children=no,makes-record=yes,root=7,ns=4026531836,record=/dev/shm/x"
        );
    }

    #[test]
    fn unknown_words_are_passed_by() {
        for text in [
            "",
            ",",
            ",,,",
            "fork",
            "=",
            "=off",
            "fork=",
            "fork=OFF",
            "fork=off ",
            " fork=off",
            "forks=off",
            "learn=yes",
            "learn",
            "context=off",
            "huge-pages=no",
            "huge-pages=THP",
            "huge-pages=1",
            "quiet=no",
            "children=yes",
            "color=red",
            "sh=",
        ] {
            assert_eq!(Options::parse(text.as_bytes()), Options::default(), "{text:?}");
        }
        // Those around them count.
        let options = Options::parse(b"color=red,fork=off,,nonsense,min=1,=,learn=no");
        assert_eq!(options, Options { fork: ForkMode::Off, minimum: 1, learn: false, ..Options::default() });
    }

    #[test]
    fn malformed_values_leave_the_default() {
        for text in [
            "min=",
            "min=x",
            "min=-1",
            "min=+1",
            "min=1k",
            "min= 1",
            "min=18446744073709551616",
            "limit=",
            "limit=5ms",
            "filters=-0",
            "filters=ALL",
            "root=x",
            "ns=0x10",
            "sh=1:2",
            "sh=1:2:",
            "sh=::",
            "sh=a:2:3",
            "sh=ask ",
        ] {
            assert_eq!(Options::parse(text.as_bytes()), Options::default(), "{text:?}");
        }
    }

    /// Only a value that is well formed takes the place of an earlier one.
    #[test]
    fn of_a_key_that_comes_twice_the_later_value_counts() {
        assert_eq!(Options::parse(b"min=1,min=2,min=x").minimum, 2);
        assert_eq!(Options::parse(b"fork=off,fork=speculate,fork=no").fork, ForkMode::Speculate);
        assert_eq!(Options::parse(b"root=7,root=0").root, None);
        assert_eq!(Options::parse(b"record=/a,record=").record, RecordPath::new(b""));
    }

    #[test]
    fn numbers_of_32_bits_keep_their_low_bits() {
        let options = Options::parse(b"limit=4294967297,filters=4294967298,root=4294967296");
        assert_eq!((options.limit_ms, options.filters, options.root), (1, Filters::Counted(2), None));
    }

    #[test]
    fn a_shell_is_three_numbers_and_what_follows_is_passed_by() {
        let known = |traits| Shell::Known(KnownShell { traits, device: 2, inode: 3 });
        assert_eq!(Options::parse(b"sh=1:2:3:4").shell, known(ShellTraits::from_bits(1)));
        assert_eq!(Options::parse(b"sh=255:2:3").shell, known(ShellTraits::UNKNOWN));
        assert_eq!(Options::parse(b"sh=ask").shell, Shell::Ask);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_written_as_they_were_understood() {
        let mut random = Random(3);
        let words: &[&[u8]] =
            &[b"fork=off", b"min=", b"sh=1:2:3", b"sh=", b"=", b",", b",", b"record=", b"root=", b"99999999"];
        for _ in 0..20_000 {
            let mut text = Vec::new();
            for _ in 0..random.next() % 12 {
                match random.next() % 4 {
                    0 => text.push(random.next() as u8),
                    _ => text.extend_from_slice(words[random.next() as usize % words.len()]),
                }
            }
            let options = Options::parse(&text);
            assert_eq!(Options::parse(&encoded(&options)), options, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_path_with_a_comma_or_a_nul_cannot_be_carried() {
        assert!(RecordPath::new(b"/a,b").is_none() && RecordPath::new(b"/a\0b").is_none());
        assert_eq!(RecordPath::new(b"/\xff").unwrap().bytes(), b"/\xff");
    }
}
