//! Standard output of a command's runs, compared byte for byte.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, remedy};

/// What comparing the standard output of the runs showed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum OutputComparison {
    /// Nobody asked for it, or fewer than two runs have ended.
    #[default]
    NotCompared,
    /// Every run wrote these.
    Same {
        /// Bytes.
        bytes: u64,
    },
    /// Plain runs differ among themselves, so a difference says nothing.
    PlainVaries(Difference),
    /// Plain runs are alike, and a run with the library differs.
    Differs(Difference),
}

/// The first difference of two outputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The line, from 1.
    pub line: u64,
    /// What the first plain run wrote there, or `None` where its output had ended. Of a long line
    /// it is a part, from before the difference on, after `...`. The line's end is shown where it
    /// is all that differs.
    pub expected: Option<String>,
    /// What the other run wrote there.
    pub found: Option<String>,
}

/// The outputs of a trial, in a directory that goes away.
#[derive(Debug)]
pub(super) struct Outputs {
    first: PathBuf,
    latest: PathBuf,
    has_first: bool,
    comparison: OutputComparison,
}

impl Outputs {
    pub(super) fn new(directory: &Path) -> Outputs {
        Outputs {
            first: directory.join("first"),
            latest: directory.join("latest"),
            has_first: false,
            comparison: OutputComparison::NotCompared,
        }
    }

    /// The file that the next run writes.
    pub(super) fn create(&self) -> Result<File, Error> {
        File::create(&self.latest).map_err(|error| self.no_room(&error))
    }

    /// Fails if the file that the last run has written may have had no room: its program may have
    /// failed of that, or have lost a part of its output without a word.
    pub(super) fn check_room(&self) -> Result<(), Error> {
        /// A write of usual programs. A file system may refuse one of that size as a whole, and
        /// still have less.
        const LEAST: usize = 128 << 10;
        let tried = (|| {
            let mut file = fs::OpenOptions::new().append(true).open(&self.latest)?;
            let length = file.metadata()?.len();
            // At a limit of the size (EFBIG) not even a byte fits; below, the rest says nothing.
            let tried = file.write_all(&[0]).and_then(|()| match file.write_all(&[0; LEAST]) {
                Err(error) if error.raw_os_error() == Some(libc::EFBIG) => Ok(()),
                other => other,
            });
            file.set_len(length)?;
            tried
        })();
        tried.map_err(|error| self.no_room(&error))
    }

    fn no_room(&self, error: &io::Error) -> Error {
        let place = self.latest.parent().and_then(Path::parent).unwrap_or(&self.latest).display();
        let what = "no room for the command's output, which is compared";
        // A limit goes wherever the file goes.
        let is_limit = error.raw_os_error() == Some(libc::EFBIG);
        let elsewhere = if is_limit { "" } else { ", or name another directory by TMPDIR" };
        Error::Missing(format!("{place}: {what}: {error}{}{elsewhere}", remedy(error)))
    }

    /// Compares what the run has written with the first plain run's.
    pub(super) fn take(&mut self, is_plain: bool) -> io::Result<()> {
        if !self.has_first {
            self.has_first = true;
            return fs::rename(&self.latest, &self.first);
        }
        let difference = difference(&self.first, &self.latest)?;
        let comparison = match difference {
            Some(difference) if is_plain => OutputComparison::PlainVaries(difference),
            Some(difference) => OutputComparison::Differs(difference),
            None => OutputComparison::Same { bytes: fs::metadata(&self.first)?.len() },
        };
        // The first of the gravest stays.
        if rank(&comparison) > rank(&self.comparison) {
            self.comparison = comparison;
        }
        Ok(())
    }

    pub(super) fn comparison(self) -> OutputComparison {
        self.comparison
    }
}

fn rank(comparison: &OutputComparison) -> u8 {
    match comparison {
        OutputComparison::NotCompared => 0,
        OutputComparison::Same { .. } => 1,
        OutputComparison::Differs(_) => 2,
        OutputComparison::PlainVaries(_) => 3,
    }
}

/// The first difference of two files.
fn difference(expected: &Path, found: &Path) -> io::Result<Option<Difference>> {
    /// Bytes of a line that a message shows.
    const SHOWN: u64 = 80;
    /// Bytes before the difference that it shows at least, where there are as many.
    const BEFORE: u64 = 40;
    let open = |path: &Path| File::open(path).map(BufReader::new);
    let (mut a, mut b) = (open(expected)?, open(found)?);
    let (mut line, mut same, mut line_begins) = (1, 0, 0);
    loop {
        let (x, y) = (a.fill_buf()?, b.fill_buf()?);
        let length = x.len().min(y.len());
        let alike = x.iter().zip(y).take_while(|(x, y)| x == y).count();
        for (at, byte) in (1_u64..).zip(&x[..alike]) {
            if *byte == b'\n' {
                line += 1;
                line_begins = same + at;
            }
        }
        same += alike as u64;
        if alike < length || length == 0 {
            if x.is_empty() && y.is_empty() {
                return Ok(None);
            }
            let is_near = same - line_begins < SHOWN - BEFORE;
            let from = if is_near { line_begins } else { same - BEFORE };
            let shown = |path: &Path, with_end: bool| -> io::Result<Option<String>> {
                let mut file = File::open(path)?;
                io::Seek::seek(&mut file, io::SeekFrom::Start(from))?;
                let mut bytes = Vec::new();
                file.take(SHOWN).read_to_end(&mut bytes)?;
                let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
                let has_line = !bytes.is_empty();
                bytes.truncate(if with_end { end + 1 } else { end });
                let begin = if is_near { "" } else { "..." };
                Ok(has_line.then(|| begin.to_owned() + &readable(&bytes)))
            };
            // Where the line's end is all that differs, it is shown.
            let is_seen = shown(expected, false)? != shown(found, false)?;
            let shown = |path| shown(path, !is_seen);
            return Ok(Some(Difference { line, expected: shown(expected)?, found: shown(found)? }));
        }
        a.consume(length);
        b.consume(length);
    }
}

/// Bytes as text. Two that are no UTF-8 must not look alike.
fn readable(bytes: &[u8]) -> String {
    let chunks = bytes.utf8_chunks();
    chunks.map(|chunk| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private_directory::PrivateDirectory;

    fn compared(first: &[u8], others: &[(bool, &[u8])]) -> OutputComparison {
        let directory = PrivateDirectory::make(&std::env::temp_dir(), PrivateDirectory::CLOSED, None);
        let directory = directory.unwrap();
        let mut outputs = Outputs::new(directory.path());
        for &(is_plain, bytes) in [(true, first)].iter().chain(others) {
            io::Write::write_all(&mut outputs.create().unwrap(), bytes).unwrap();
            outputs.take(is_plain).unwrap();
        }
        outputs.comparison()
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(compared(b"a\nb\n", &[]), OutputComparison::NotCompared);
        let same = compared(b"a\nb\n", &[(false, b"a\nb\n"), (true, b"a\nb\n")]);
        assert_eq!(same, OutputComparison::Same { bytes: 4 });
        assert_eq!(compared(b"", &[(false, b"")]), OutputComparison::Same { bytes: 0 });
        let differs = |first: &[u8], other: &[u8], line, expected, found| {
            let difference = Difference { line, expected, found };
            assert_eq!(compared(first, &[(false, other)]), OutputComparison::Differs(difference));
        };
        differs(b"a\nb\nc\n", b"a\nx\nc\n", 2, text("b"), text("x"));
        differs(b"a\n", b"a\nmore\n", 2, None, text("more"));
        differs(b"one", b"on", 1, text("one"), text("on"));
        // Two strings that look alike tell nothing.
        differs(b"one\n", b"one", 1, text("one\n"), text("one"));
        differs(b"a\n\n", b"a\nb\n", 2, text(""), text("b"));
        differs(b"\xff\n", b"\xfe\n", 1, text("\\xff"), text("\\xfe"));
        let far = |end: &str| format!("{}{end}", "0123456789".repeat(9));
        let part = |end: &str| Some(format!("...{}{end}", "0123456789".repeat(4)));
        differs(far("a\n").as_bytes(), far("b").as_bytes(), 1, part("a"), part("b"));
        // Past a buffer.
        let long = [b"0123456789abcde\n".repeat(2000), b"end".to_vec()].concat();
        let other = [&long[..], b"!"].concat();
        differs(&long, &other, 2001, text("end"), text("end!"));
    }

    #[test]
    fn a_file_that_may_have_been_cut_names_its_place() {
        let directory =
            PrivateDirectory::make(&std::env::temp_dir(), PrivateDirectory::CLOSED, None).unwrap();
        let outputs = Outputs::new(directory.path());
        io::Write::write_all(&mut outputs.create().unwrap(), b"all of it").unwrap();
        outputs.check_room().unwrap();
        assert_eq!(fs::read(directory.path().join("latest")).unwrap(), b"all of it", "as it was");
        // A device without room in its place.
        let full = std::path::Path::new("/dev/full");
        if !full.exists() {
            println!("skipped: there is no /dev/full");
            return;
        }
        fs::remove_file(directory.path().join("latest")).unwrap();
        std::os::unix::fs::symlink(full, directory.path().join("latest")).unwrap();
        let error = outputs.check_room().unwrap_err();
        let base = std::env::temp_dir().display().to_string();
        assert!(
            matches!(&error, Error::Missing(text) if text.starts_with(&base) && text.contains("TMPDIR")),
            "{error}"
        );
    }

    #[test]
    fn plain_runs_that_differ_outrank_a_run_with_the_library_that_does() {
        let varies = compared(b"a", &[(false, b"b"), (true, b"c"), (true, b"a")]);
        assert!(matches!(varies, OutputComparison::PlainVaries(_)), "{varies:?}");
    }
}
