//! The last lines that a program printed, for the sentence about its failure.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// How much of a file is read, from its end: a server may have written a line for each request.
const TAIL: u64 = 4096;
/// How many lines are shown, and how long one may be.
const LINES: usize = 3;
const LENGTH: usize = 300;

/// The last lines of the files of a program's complaints, one after the other.
pub(crate) fn last_words<'a>(files: impl IntoIterator<Item = &'a Path>) -> String {
    let lines: Vec<String> = files.into_iter().flat_map(|file| last_lines(&tail(file))).collect();
    if lines.is_empty() { "without a word".to_owned() } else { lines.join(" | ") }
}

/// The last lines of a program's output.
pub(crate) fn last_words_of(said: &[u8]) -> String {
    let lines = last_lines(said);
    if lines.is_empty() { "without a word".to_owned() } else { lines.join(" | ") }
}

fn last_lines(said: &[u8]) -> Vec<String> {
    // Programs write what they like; a name that is not UTF-8 must not hide the rest.
    let text = String::from_utf8_lossy(said);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut last: Vec<String> =
        lines.rev().take(LINES).map(|line| line.chars().take(LENGTH).collect()).collect();
    last.reverse();
    last
}

fn tail(path: &Path) -> Vec<u8> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = vec![0; usize::try_from(length.min(TAIL)).unwrap_or(0)];
    let count = file.read_at(&mut bytes, length.saturating_sub(TAIL)).unwrap_or(0);
    bytes.truncate(count);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_whatever_their_bytes() {
        assert_eq!(last_words_of(b"\n  \n"), "without a word");
        assert_eq!(last_words_of(b"one\ntwo\n\nthree\nfour \xff\n"), "two | three | four \u{fffd}");
        assert_eq!(last_words_of(&b"x".repeat(1 << 20)).len(), LENGTH);
    }

    #[test]
    fn of_a_long_file_the_end_is_read_and_one_that_is_not_there_is_passed_by() {
        let path = std::env::temp_dir().join(format!("forkless-words-{}", std::process::id()));
        std::fs::write(&path, "a line\n".repeat(10_000) + "the last\n").unwrap();
        let words = last_words([Path::new("/nonexistent"), &path]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(words, "a line | a line | the last");
    }
}
