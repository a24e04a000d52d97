//! Files of other users, whose kind and contents are theirs to choose: an open or a read of some
//! kinds would wait for ever.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file, and nothing else: an open of a FIFO would wait for ever.
pub(crate) fn open(path: impl AsRef<Path>) -> Option<File> {
    // The standard library adds O_CLOEXEC.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    is_one(&file).then_some(file)
}

/// Whether an open file is a regular one with contents. Files of length 0 may be endless:
/// /proc/kmsg and tracefs's trace_pipe are regular, and a read of them waits for a line.
pub(crate) fn is_one(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.len() > 0)
}

/// The text of a file of at most `most` bytes.
pub(crate) fn text(path: impl AsRef<Path>, most: u64) -> Option<String> {
    let file = open(path)?;
    if file.metadata().ok()?.len() > most {
        return None;
    }
    let mut text = String::new();
    // It may grow meanwhile.
    file.take(most).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_with_contents_is_opened() {
        assert!(open("/").is_none() && open("/dev/null").is_none());
        assert!(open("/proc/self/exe").is_some());
        // Regular, of length 0, and with contents: as /proc/kmsg, whose read would wait.
        assert!(open("/proc/self/environ").is_none());
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let length = std::fs::metadata(own).expect("our own").len();
        assert!(text(own, length).is_some_and(|text| text.contains("forkless-diagnose")));
        assert_eq!(text(own, length - 1), None);
        assert_eq!(text("/proc/self/environ", 1 << 20), None);
    }
}
