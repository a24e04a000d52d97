//! Shared by the tests of `bench` and `reproduce`: a directory that goes away, and waiting.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[path = "../wait/mod.rs"]
mod wait;

pub(crate) use wait::wait_until;

/// A directory for one test's home and temporary files.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        // Tests of one process run side by side, and may call theirs the same.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (pid, n) = (std::process::id(), MADE.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("forkless-cli-{name}-{pid}-{n}"));
        fs::create_dir_all(path.join("tmp")).unwrap();
        Scratch(path)
    }

    /// How many there are in the directory that is the command's TMPDIR.
    pub(crate) fn temporary_files(&self) -> usize {
        fs::read_dir(self.0.join("tmp")).unwrap().count()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
