//! Names of code that a run-time compiler has put into memory, from /tmp/perf-PID.map. Java
//! (`jcmd PID Compiler.perfmap`), Node.js (`--perf-basic-prof`) and others write it. Its lines are:
//! start and size in hexadecimal, and a name.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::debug_file::Root;
use crate::regular_file;

/// The map of a process, which may be gone when it is read.
#[derive(Debug)]
pub(super) struct PerfMap {
    pid: u32,
    /// As the process has it: in a container it is another.
    own_number: u32,
    user: u32,
    root: Option<Arc<Root>>,
    read: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    at: Option<Instant>,
    /// Length and time of change.
    version: (u64, i64, i64),
    /// Sorted by start.
    functions: Vec<Function>,
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    size: u64,
    name: String,
}

const LARGEST: u64 = 64 << 20;
const MAX_FUNCTIONS: usize = 1 << 20;
const LONGEST_NAME: usize = 512;
/// A map grows while its program compiles. It is read again only this often.
const BETWEEN_READINGS: Duration = Duration::from_secs(1);

impl PerfMap {
    /// Where the map of a process would be. `None` if the process is gone.
    pub(super) fn of(pid: u32, root: Option<Arc<Root>>) -> Option<Self> {
        let user = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let own_number = forkless_frames::own_number(pid)?;
        Some(Self { pid, own_number, user, root, read: Mutex::default() })
    }

    pub(super) fn path(&self) -> PathBuf {
        format!("/tmp/perf-{}.map", self.own_number).into()
    }

    /// The function at an address, and the offset into it.
    pub(super) fn find(&self, address: u64) -> Option<(String, u64)> {
        let mut contents = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        contents.find(address).or_else(|| {
            if contents.at.is_some_and(|at| at.elapsed() < BETWEEN_READINGS) {
                return None;
            }
            contents.at = Some(Instant::now());
            self.read_again(&mut contents)?;
            contents.find(address)
        })
    }

    fn read_again(&self, contents: &mut Contents) -> Option<()> {
        let file = self.open()?;
        let found = file.metadata().ok()?;
        let version = (found.len(), found.mtime(), found.mtime_nsec());
        // Anybody may put a file there. Only what the process could write itself is believed.
        if found.uid() != self.user || found.len() > LARGEST || version == contents.version {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        contents.version = version;
        contents.functions = parse(&bytes);
        Some(())
    }

    fn open(&self) -> Option<File> {
        let path = self.path();
        if let Some(root) = &self.root {
            return root.open(&path);
        }
        // A service may have a /tmp of its own. When the process is gone, there is this one.
        let own = format!("/proc/{}/root{}", self.pid, path.display());
        regular_file::open(own).or_else(|| regular_file::open(path))
    }
}

impl Contents {
    fn find(&self, address: u64) -> Option<(String, u64)> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let nearest = self.functions.get(..after)?.last()?;
        let offset = address - nearest.start;
        (offset < nearest.size).then(|| (nearest.name.clone(), offset))
    }
}

fn parse(bytes: &[u8]) -> Vec<Function> {
    let text = String::from_utf8_lossy(bytes);
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let functions = text.lines().filter_map(|line| {
        let (start, rest) = line.trim_start().split_once(' ')?;
        let (size, name) = rest.trim_start().split_once(' ')?;
        let name: String = name.trim().chars().take(LONGEST_NAME).collect();
        Some(Function { start: number(start)?, size: number(size)?, name })
    });
    let mut functions: Vec<Function> = functions.take(MAX_FUNCTIONS).collect();
    // Of code in the same place the last is there now.
    functions.reverse();
    functions.sort_by_key(|function| function.start);
    functions.dedup_by_key(|function| function.start);
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_function_in_a_place_is_there() {
        let map =
            "7f00 10 old\n0x7f00 0x20 int Shop.first(int)\n\nnonsense\nzz 1 a\n8000 8 \n7f80 8 last one";
        let contents = Contents { functions: parse(map.as_bytes()), ..Contents::default() };
        assert_eq!(contents.find(0x7f1f), Some(("int Shop.first(int)".into(), 0x1f)));
        assert_eq!(contents.find(0x7f87), Some(("last one".into(), 7)));
        assert_eq!(
            [0x7eff, 0x7f20, 0x7f88, 0x9000].map(|address| contents.find(address)),
            [const { None }; 4]
        );
        assert_eq!(parse(b"\xff\xff \xff \0\n1 2"), []);
        let lying =
            Contents { functions: parse(b"ffffffffffffffff ffffffffffffffff a"), ..Contents::default() };
        assert_eq!(lying.find(u64::MAX), Some(("a".into(), 0)));
    }

    #[test]
    fn a_map_that_another_user_has_written_is_not_believed() {
        let own = std::process::id();
        let map = PerfMap::of(own, None).expect("we are there");
        let path = map.path();
        fs::write(&path, "1000 10 ours\n").expect("/tmp can be written");
        let other =
            PerfMap { user: map.user + 1, read: Mutex::default(), ..PerfMap::of(own, None).expect("still") };
        let found = (map.find(0x1008), other.find(0x1008));
        fs::remove_file(&path).expect("ours");
        assert_eq!(found, (Some(("ours".into(), 8)), None));
        assert_eq!(map.find(0x1008), Some(("ours".into(), 8)), "it was read before");
    }
}
