//! The options in the words of `forkless run`'s flags, as people write them into
//! `FORKLESS_OPTIONS`.
//!
//! Commas or white space separate the words: a unit file, a Dockerfile and a YAML file each quote
//! in their own way. [`Options::encode_words`] writes them and [`Options::parse_words`] reads them.
//!
//! Flags that only the launcher can follow have no word here: `--tz`, and `--report`, whose
//! collector it starts.

use crate::options::{decimal, digits};
use crate::{Options, RecordPath, Shell};

/// How long a child may speculate at most, in milliseconds.
pub const LONGEST_LIMIT_MS: u32 = 60_000;

/// The words of a text.
pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| is_separator(*byte)).filter(|word| !word.is_empty())
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t' | b'\r' | b'\n')
}

impl<'a> Options<'a> {
    /// What a program has that no launcher has started, and whose environment has no words.
    #[must_use]
    pub fn without_launcher() -> Options<'a> {
        Options { shell: Shell::AskInTime, ..Options::default() }
    }

    /// Reads words. Of a word that comes twice the later one counts. The second value says whether
    /// each was understood: the default stands where one was not.
    #[must_use]
    pub fn parse_words(text: &'a [u8]) -> (Options<'a>, bool) {
        let mut options = Options::without_launcher();
        let mut understood = true;
        for word in words(text) {
            understood &= options.read_word(word);
        }
        (options, understood)
    }

    /// Takes over one word. `false`: it is unknown, or its value is.
    pub fn read_word(&mut self, word: &'a [u8]) -> bool {
        // As it stands on the command line.
        let word = word.strip_prefix(b"--").unwrap_or(word);
        let (key, value) = match word.iter().position(|byte| *byte == b'=') {
            Some(equals) => (&word[..equals], &word[equals + 1..]),
            None => (word, &b""[..]),
        };
        match (key, value) {
            (b"fork" | b"huge-pages", _) => return self.read(key, value),
            (b"fork-minimum", _) => match size(value) {
                Some(bytes) => self.minimum = bytes,
                None => return false,
            },
            (b"fork-limit", _) => match decimal(value).map(u32::try_from) {
                Some(Ok(ms @ 1..=LONGEST_LIMIT_MS)) => self.limit_ms = ms,
                _ => return false,
            },
            (b"shell", b"bypass") => self.shell = Shell::AskInTime,
            (b"shell", b"off") => self.shell = Shell::Unknown,
            (b"context", b"fast") => self.fast_context = true,
            (b"context", b"off") => self.fast_context = false,
            (b"children", b"follow") => self.children = true,
            (b"children", b"no") => self.children = false,
            (b"quiet", b"") => self.quiet = true,
            // A relative path would name another file in each directory.
            (b"record", [b'/', ..]) => {
                self.record = RecordPath::new(value);
                self.makes_record = true;
            }
            _ => return false,
        }
        true
    }

    /// Appends the words that [`Options::parse_words`] reads back, separated by commas. Options
    /// that only the launcher gives are left out.
    pub fn encode_words(&self, into: &mut impl Extend<u8>) {
        let mut put = |word: &[u8]| into.extend(word.iter().copied());
        put(self.fork.pair());
        put(b",fork-minimum=");
        put(digits(self.minimum, &mut [0; 20]));
        put(b",fork-limit=");
        put(digits(u64::from(self.limit_ms), &mut [0; 20]));
        put(if self.shell == Shell::Unknown { b",shell=off" } else { b",shell=bypass" });
        put(b",");
        put(self.huge_pages.pair());
        put(if self.fast_context { b",context=fast" } else { b",context=off" });
        put(if self.children { b",children=follow" } else { b",children=no" });
        if self.quiet {
            put(b",quiet");
        }
        if let Some(record) = self.record {
            put(b",record=");
            put(record.bytes());
        }
    }
}

/// A size in bytes, in words and in the command's flags: `0`, `4096`, `512K`, `1.5GiB`. K, M, G and
/// T are powers of 1024, with or without `B` or `iB`. Of a fraction six digits count.
#[must_use]
pub fn size(text: &[u8]) -> Option<u64> {
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let end = text.iter().position(|byte| !is_number(byte)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (prefix, rest) = match unit {
        [prefix, rest @ ..] if !prefix.eq_ignore_ascii_case(&b'b') => (*prefix, rest),
        _ => (b' ', unit),
    };
    let shift = match prefix.to_ascii_lowercase() {
        b' ' => 0,
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        b't' => 40,
        _ => return None,
    };
    let is_unit = matches!(rest, b"" | b"B" | b"b") || shift > 0 && rest.eq_ignore_ascii_case(b"ib");
    if !is_unit {
        return None;
    }
    let mut parts = number.splitn(2, |byte| *byte == b'.');
    let whole = decimal(parts.next()?)?.checked_mul(1 << shift)?;
    let Some(fraction) = parts.next() else { return Some(whole) };
    // Six digits are less than 2^20, which 40 bits more leave room for. The others make no byte.
    let fraction = fraction.get(..6).unwrap_or(fraction);
    let scale = 10u64.pow(fraction.len() as u32);
    whole.checked_add((decimal(fraction)? << shift) / scale)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::String;
    use std::vec::Vec;

    use super::*;
    use crate::{ForkMode, HugePages};

    fn encoded(options: &Options<'_>) -> String {
        String::from_utf8(encoded_bytes(options)).unwrap()
    }

    #[test]
    fn nothing_said_is_the_default_with_the_shell_asked_in_time() {
        for text in ["", ",", " , \t\n"] {
            assert_eq!(
                Options::parse_words(text.as_bytes()),
                (Options::without_launcher(), true),
                "{text:?}"
            );
        }
        assert_eq!(
            encoded(&Options::without_launcher()),
            [
                core::str::from_utf8(ForkMode::default().pair()).unwrap(),
                ",fork-minimum=8388608,fork-limit=50,shell=bypass,huge-pages=off,context=off,children=follow",
            ]
            .concat()
        );
    }

    #[test]
    fn commas_and_white_space_separate_words_as_the_flags_have_them() {
        let expected = Options {
            fork: ForkMode::Speculate,
            minimum: 3 << 19,
            limit_ms: 7,
            shell: Shell::Unknown,
            fast_context: true,
            huge_pages: HugePages::Pool,
            quiet: true,
            children: false,
            record: RecordPath::new(b"/run/forkless"),
            makes_record: true,
            ..Options::without_launcher()
        };
        let words = [
            "fork=speculate",
            "fork-minimum=1.5M",
            "fork-limit=7",
            "shell=off",
            "huge-pages=hugetlb",
            "context=fast",
            "children=no",
            "quiet",
            "record=/run/forkless",
        ];
        for text in [words.join(","), words.join(" "), words.join(" ,\n\t"), words.join(" --")] {
            assert_eq!(Options::parse_words(text.as_bytes()), (expected, true), "{text}");
        }
        assert_eq!(Options::parse_words(encoded(&expected).as_bytes()), (expected, true));
    }

    /// Each combination of what words can say is written and read back.
    #[test]
    fn what_was_written_is_read_back() {
        for bits in 0..ForkMode::ALL.len() as u32 * 256 {
            let bit = |at: u32| bits >> at & 1 == 1;
            let huge_pages = match (bit(4), bit(5)) {
                (false, _) => HugePages::Off,
                (true, false) => HugePages::Transparent,
                (true, true) => HugePages::Pool,
            };
            let options = Options {
                fork: ForkMode::ALL[bits as usize / 256],
                minimum: if bit(0) { u64::MAX } else { 0 },
                limit_ms: if bit(1) { 60_000 } else { 1 },
                shell: if bit(2) { Shell::Unknown } else { Shell::AskInTime },
                fast_context: bit(3),
                huge_pages,
                quiet: bit(6),
                children: bit(5),
                record: if bit(7) { RecordPath::new(b"/a=b") } else { None },
                makes_record: bit(7),
                ..Options::without_launcher()
            };
            let text = encoded(&options);
            assert_eq!(Options::parse_words(text.as_bytes()), (options, true), "{text}");
        }
    }

    #[test]
    fn a_word_that_is_not_understood_leaves_the_default_and_those_around_it() {
        for word in [
            "fork",
            "fork=",
            "fork=OFF",
            "fork=perhaps",
            "forks=off",
            "fork-minimum=",
            "fork-minimum=-1",
            "fork-minimum=1X",
            "fork-minimum=1.2.3M",
            "fork-minimum=.M",
            "fork-minimum=1e3",
            "fork-minimum=99999999999T",
            "fork-limit=0",
            "fork-limit=60001",
            "fork-limit=5ms",
            "shell",
            "shell=on",
            "huge-pages",
            "huge-pages=1g",
            "context=slow",
            "children=yes",
            "quiet=yes",
            "record",
            "record=",
            "record=relative",
            "tz",
            "report=/x",
            // Those of the launcher are its own.
            "min=1",
            "sh=ask",
            "learn=no",
            "root=7",
            "filters=9",
            "filters=all",
            "=",
            "-",
            "--",
        ] {
            let text = [word, "fork-limit=9"].join(",");
            let expected = Options { limit_ms: 9, ..Options::without_launcher() };
            assert_eq!(Options::parse_words(text.as_bytes()), (expected, false), "{word}");
        }
    }

    #[test]
    fn of_a_word_that_comes_twice_the_later_counts() {
        let (options, _) = Options::parse_words(b"huge-pages=hugetlb,fork=off,huge-pages=thp,fork=strict");
        assert_eq!((options.fork, options.huge_pages), (ForkMode::Strict, HugePages::Transparent));
    }

    #[test]
    fn sizes_are_those_of_the_command() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1k", 1024),
            ("1kb", 1024),
            ("5b", 5),
            ("200M", 200 << 20),
            ("1GiB", 1 << 30),
            ("2TB", 2 << 40),
            ("1.5G", 3 << 29),
            ("0.25M", 1 << 18),
            // Of a fraction six digits count.
            ("0.0000009T", 0),
        ] {
            assert_eq!(size(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in ["", "G", "1ib", "1X", "-1", "1 M", "16777216T"] {
            assert_eq!(size(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let pieces: [&[u8]; 12] = [
            b"fork",
            b"=",
            b",",
            b" ",
            b"-minimum",
            b"1",
            b".",
            b"G",
            b"record",
            b"/",
            b"\xff",
            b"huge-pages=thp",
        ];
        let mut state = 7_u64;
        for _ in 0..50_000 {
            let mut text = Vec::new();
            for _ in 0..8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.extend_from_slice(pieces[(state >> 33) as usize % pieces.len()]);
            }
            let (options, _) = Options::parse_words(&text);
            assert_eq!(Options::parse_words(encoded_bytes(&options).as_slice()), (options, true));
        }
    }

    fn encoded_bytes(options: &Options<'_>) -> Vec<u8> {
        let mut text = Vec::new();
        options.encode_words(&mut text);
        text
    }
}
