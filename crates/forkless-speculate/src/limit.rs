//! How much memory the limits of a process's cgroups leave, and how much of it a speculative child
//! may take.
//!
//! A plain fork would not take the memory that a child fetches. Near the limit of its cgroup the
//! kernel makes room by killing the largest process, and that is the parent (decision 19).

use core::ffi::CStr;

use forkless_sys::{Errno, Result};

use crate::fetch::UNASKED;
use crate::text::decimal;

/// Bytes of the longest name of a file below the mount.
const PATH: usize = 1024;

/// Which of the two cgroup file systems has the memory controller (cgroups(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// It has a hierarchy of its own.
    First,
    /// All controllers have one hierarchy.
    Second,
}

impl Version {
    /// The files of a group that have its limit and its usage.
    const fn files(self) -> [&'static [u8]; 2] {
        match self {
            Version::First => [b"/memory.limit_in_bytes", b"/memory.usage_in_bytes"],
            Version::Second => [b"/memory.max", b"/memory.current"],
        }
    }

    /// Bytes of a group and of all below it that the kernel takes back before it kills: pages of
    /// files. `stat`: its `memory.stat`.
    fn reclaimable(self, stat: &[u8]) -> Option<u64> {
        let name: &[u8] = match self {
            Version::First => b"total_inactive_file ",
            Version::Second => b"inactive_file ",
        };
        stat.split(|b| *b == b'\n').find_map(|line| decimal(line.strip_prefix(name)?))
    }
}

/// The cgroups of the calling process. Files are read as far as `into` has room, and the answer is
/// the number of bytes.
pub trait Groups {
    /// Reads `/proc/self/cgroup`. `ENOENT`: the kernel has no cgroups.
    fn list(&self, into: &mut [u8]) -> Result<usize>;
    /// Finds the hierarchy that [`read`](Groups::read) reads. `ENOENT`: it is not mounted.
    fn find(&mut self, version: Version) -> Result<()>;
    /// Reads a file of the hierarchy, by its name without a slash at the beginning.
    fn read(&self, path: &CStr, into: &mut [u8]) -> Result<usize>;
}

/// Bytes left below every limit of a process's cgroup and of the cgroups above it. `u64::MAX`:
/// there is no limit, or no file that would tell it. `None`: a file could not be read.
///
/// File pages count as free, for the kernel gives them up first. They are counted only where fewer
/// than `enough` bytes are left without them: that file takes the kernel longest.
pub fn room(groups: &mut impl Groups, enough: u64) -> Option<u64> {
    let mut text = [0u8; 4096];
    let Some(n) = there(groups.list(&mut text))? else { return Some(u64::MAX) };
    // Of a list that did not fit, the end is not known.
    let listed = text.get(..n).filter(|listed| listed.len() < text.len())?;
    let Some((version, group)) = memory_group(listed) else { return Some(u64::MAX) };
    let mut path = [0u8; PATH];
    let length = group.len();
    path.get_mut(..length)?.copy_from_slice(group);
    match there(groups.find(version))? {
        Some(()) => upwards(groups, version, &mut path, length, &mut text, enough),
        None => Some(u64::MAX),
    }
}

/// The group that limits memory. A controller is in one hierarchy.
fn memory_group(listed: &[u8]) -> Option<(Version, &[u8])> {
    let groups = listed.split(|b| *b == b'\n').filter_map(|line| {
        // ID:CONTROLLERS:PATH; the second version has no controllers (cgroups(7)).
        let mut fields = line.splitn(3, |b| *b == b':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let version = if controllers.is_empty() {
            Version::Second
        } else if controllers.split(|b| *b == b',').any(|c| c == b"memory") {
            Version::First
        } else {
            return None;
        };
        Some((version, group.strip_prefix(b"/").unwrap_or(group)))
    });
    groups.min_by_key(|(version, _)| *version == Version::Second)
}

/// `Some(None)` for an error that says that there is no such file, and `None` for other errors. A
/// group above the root of a cgroup namespace has a name that leaves the mount (`EXDEV`).
fn there<T>(read: Result<T>) -> Option<Option<T>> {
    match read {
        Ok(it) => Some(Some(it)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EXDEV) => Some(None),
        Err(_) => None,
    }
}

/// The least room from a group, whose name is the first `length` bytes of `path`, up to the root of
/// the hierarchy, as far as this process sees it.
fn upwards(
    groups: &impl Groups,
    version: Version,
    path: &mut [u8; PATH],
    mut length: usize,
    text: &mut [u8],
    enough: u64,
) -> Option<u64> {
    // The first version has a number that is larger than any memory, the second one "max".
    const NONE: u64 = 1 << 62;
    let [limit, usage] = version.files();
    let mut room = u64::MAX;
    loop {
        let limit = at(groups, path, length, limit, text)?.and_then(number).filter(|limit| *limit < NONE);
        if let Some(limit) = limit {
            let usage = at(groups, path, length, usage, text)?.and_then(number)?;
            let mut left = limit.saturating_sub(usage);
            if left < enough {
                let stat = at(groups, path, length, b"/memory.stat", text)?;
                left = left.saturating_add(stat.and_then(|stat| version.reclaimable(stat)).unwrap_or(0));
            }
            room = room.min(left);
        }
        if length == 0 {
            return Some(room);
        }
        length = path[..length].iter().rposition(|b| *b == b'/').unwrap_or(0);
    }
}

fn number(text: &[u8]) -> Option<u64> {
    decimal(text.trim_ascii_end())
}

/// The text of a group's file. `Some(None)`: there is no such file.
fn at<'a>(
    groups: &impl Groups,
    path: &mut [u8; PATH],
    length: usize,
    file: &[u8],
    text: &'a mut [u8],
) -> Option<Option<&'a [u8]>> {
    // The root has an empty name, and its files are no absolute paths.
    let file = if length == 0 { &file[1..] } else { file };
    let end = length + file.len();
    path.get_mut(length..end)?.copy_from_slice(file);
    path.get_mut(end..)?.fill(0);
    let path = CStr::from_bytes_until_nul(path).ok()?;
    Some(match there(groups.read(path, text))? {
        Some(n) => text.get(..n),
        None => None,
    })
}

/// Whether a child may be made that writes `left` bytes which the kernel copies unasked, where
/// `room` bytes are left. Half of them are for the plain fork.
#[must_use]
pub fn suffices(room: u64, left: usize) -> bool {
    room / 2 >= left as u64 + UNASKED
}

/// So much room that it suffices for `left` bytes after a tick of the clock (10 ms), too.
#[must_use]
pub fn plenty(left: usize) -> u64 {
    (left as u64).saturating_mul(4).saturating_add(256 << 20)
}

/// Whether `room` bytes, found so many nanoseconds ago, are plenty still. In a nanosecond the
/// processes below a limit take 20 bytes at most: a thread that touches new memory takes 1 to 10.
#[must_use]
pub fn is_plenty(room: u64, age: u64, left: usize) -> bool {
    const MOST: u64 = 100_000_000;
    const TAKEN: u64 = 20;
    age <= MOST && room >= plenty(left).saturating_add(age * TAKEN)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::string::{String, ToString as _};
    use std::vec::Vec;

    use super::*;

    /// Files by their names. A name in place of a text that is an error.
    struct Files {
        files: Vec<(String, Result<String>)>,
        mount: Option<&'static str>,
    }

    impl Files {
        fn text(&self, name: &str, into: &mut [u8]) -> Result<usize> {
            let (_, text) = self.files.iter().find(|(known, _)| known == name).ok_or(Errno::ENOENT)?;
            let text = text.as_ref().map_err(|e| *e)?;
            let n = text.len().min(into.len());
            into[..n].copy_from_slice(&text.as_bytes()[..n]);
            Ok(n)
        }
    }

    impl Groups for Files {
        fn list(&self, into: &mut [u8]) -> Result<usize> {
            self.text("/proc/self/cgroup", into)
        }
        fn find(&mut self, version: Version) -> Result<()> {
            let mount = match version {
                Version::First => "/sys/fs/cgroup/memory",
                Version::Second => "/sys/fs/cgroup",
            };
            self.mount = Some(mount);
            self.files.iter().any(|(name, _)| name.starts_with(mount)).then_some(()).ok_or(Errno::ENOENT)
        }
        fn read(&self, path: &CStr, into: &mut [u8]) -> Result<usize> {
            let path = path.to_str().unwrap();
            assert!(!path.starts_with('/') && !path.contains("//"), "{path}");
            self.text(&format!("{}/{path}", self.mount.unwrap()), into)
        }
    }

    fn files(files: &[(&str, &str)]) -> Files {
        let files = files.iter().map(|(name, text)| (name.to_string(), Ok(text.to_string()))).collect();
        Files { files, mount: None }
    }

    fn room_of(all: &[(&str, &str)]) -> Option<u64> {
        room(&mut files(all), u64::MAX)
    }

    #[test]
    fn the_least_room_of_all_groups_up_to_the_root_counts() {
        let group = "/sys/fs/cgroup/a/b";
        let files = [
            ("/proc/self/cgroup", "0::/a/b\n"),
            (&format!("{group}/memory.max"), "max\n"),
            (&format!("{group}/memory.current"), "500\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a/memory.current", "900\n"),
            ("/sys/fs/cgroup/a/memory.stat", "anon 800\ninactive_file 70\nactive_file 30\n"),
            ("/sys/fs/cgroup/memory.max", "300\n"),
            ("/sys/fs/cgroup/memory.current", "131\n"),
        ];
        assert_eq!(room_of(&files[..6]), Some(170));
        assert_eq!(room_of(&files), Some(169), "the root's");
        assert_eq!(room_of(&files[..4]), None, "usage is not known");
        assert_eq!(room_of(&[]), Some(u64::MAX));
        assert_eq!(room_of(&files[..1]), Some(u64::MAX), "not mounted");
    }

    #[test]
    fn the_first_version_has_its_limits_elsewhere() {
        let group = "/sys/fs/cgroup/memory/x";
        let files = [
            ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n0::/y\n"),
            (&format!("{group}/memory.limit_in_bytes"), "4096\n"),
            (&format!("{group}/memory.usage_in_bytes"), "5000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(room_of(&files), Some(0), "above its limit");
        assert_eq!(room_of(&[files[0], files[3]]), Some(u64::MAX), "none");
        // Its own pages of files, and those of the groups below it.
        let stat = (&*format!("{group}/memory.stat"), "inactive_file 7\ntotal_inactive_file 1000\n");
        let files = [files[0], files[1], (&*format!("{group}/memory.usage_in_bytes"), "4000\n"), stat];
        assert_eq!(room_of(&files), Some(1096));
    }

    #[test]
    fn file_pages_are_counted_where_they_matter() {
        let all = [
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "1000\n"),
            ("/sys/fs/cgroup/memory.current", "900\n"),
            ("/sys/fs/cgroup/memory.stat", "inactive_file 70\n"),
        ];
        assert_eq!(room(&mut files(&all), 101), Some(170));
        assert_eq!(room(&mut files(&all), 100), Some(100));
    }

    #[test]
    fn what_cannot_be_read_is_not_unlimited() {
        for (nr, errno) in [(0, Errno::EMFILE), (1, Errno::EACCES), (2, Errno::ENFILE)] {
            let mut groups = files(&[
                ("/proc/self/cgroup", "0::/\n"),
                ("/sys/fs/cgroup/memory.max", "1000\n"),
                ("/sys/fs/cgroup/memory.current", "900\n"),
            ]);
            groups.files[nr].1 = Err(errno);
            assert_eq!(room(&mut groups, 0), None, "{nr}");
        }
        for name in ["x".repeat(1100), "x".repeat(5000)] {
            let listed = format!("0::/{name}\n");
            assert_eq!(room_of(&[("/proc/self/cgroup", &listed), ("/sys/fs/cgroup/x", "")]), None);
        }
    }

    #[test]
    fn a_child_that_may_be_made_leaves_half_to_the_plain_fork() {
        let left = 10 << 20;
        assert!(suffices(2 * (left as u64 + UNASKED), left));
        assert!(!suffices(2 * (left as u64 + UNASKED) - 1, left));
        assert!(suffices(u64::MAX, usize::MAX / 4));
        assert!(!suffices(0, 0));
        assert!(suffices(plenty(left), left) && suffices(plenty(left) - (200 << 20), left));
    }

    #[test]
    fn an_answer_holds_as_long_as_the_room_lasts() {
        const MS: u64 = 1_000_000;
        let room = |left: usize, ms| 4 * left as u64 + (256 << 20) + ms * MS * 20;
        for (left, ms) in [(0, 0), (3 << 20, 10), (1 << 30, 100)] {
            assert!(is_plenty(room(left, ms), ms * MS, left), "{left} {ms}");
            assert!(!is_plenty(room(left, ms) - 1, ms * MS, left), "{left} {ms}");
        }
        assert!(is_plenty(u64::MAX, 100 * MS, 1 << 30));
        assert!(!is_plenty(u64::MAX, 101 * MS, 0));
        assert!(!is_plenty(u64::MAX, u64::MAX, 0));
    }
}
