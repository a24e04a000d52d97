//! A file's debug information that is installed apart from it: by build id below
//! /usr/lib/debug/.build-id, or by the name in its section `.gnu_debuglink`.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use object::Object as _;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use super::elf;
use crate::regular_file;
use crate::symbol::hexadecimal;

/// What names a file's separate debug information.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DebugLink {
    build_id: Option<Vec<u8>>,
    /// A file name, and the CRC-32 of that file.
    name: Option<(String, u32)>,
}

/// Larger files are not summed up.
const LARGEST_SUMMED: u64 = 512 << 20;

impl DebugLink {
    pub(super) fn of(file: &object::File<'_>) -> Self {
        let build_id = file.build_id().ok().flatten().filter(|id| id.len() > 1).map(<[u8]>::to_vec);
        let name = file.gnu_debuglink().ok().flatten().and_then(|(name, sum)| {
            let name = std::str::from_utf8(name).ok()?;
            // A path would lead anywhere.
            let is_name = !name.is_empty() && !name.contains('/') && name != "..";
            is_name.then(|| (name.to_owned(), sum))
        });
        Self { build_id, name }
    }

    pub(super) fn build_id(&self) -> Option<String> {
        self.build_id.as_deref().map(hexadecimal)
    }

    /// The separate file of `module`, a path below `root`. Without a root it is this process's.
    pub(super) fn find(&self, module: &Path, root: Option<&Root>) -> Option<File> {
        let by_id = self.build_id.as_deref().and_then(|id| {
            let (first, rest) = id.split_first()?;
            let file = format!("/usr/lib/debug/.build-id/{first:02x}/{}.debug", hexadecimal(rest));
            Some(PathBuf::from(file))
        });
        let by_name = self.name.iter().filter_map(|(name, _)| {
            let folder = module.parent()?;
            let central = Path::new("/usr/lib/debug").join(folder.strip_prefix("/").ok()?);
            Some([folder.join(name), folder.join(".debug").join(name), central.join(name)])
        });
        by_id.into_iter().chain(by_name.flatten()).find_map(|path| {
            // Packages of symbols may be installed outside of the container only.
            let inside = root.and_then(|root| root.open(&path)).filter(|file| self.is_of(file));
            inside.or_else(|| regular_file::open(&path).filter(|file| self.is_of(file)))
        })
    }

    /// Whether a file belongs to this one: it has the same build id. Without one, its sum tells.
    fn is_of(&self, file: &File) -> bool {
        let Ok(parts) = elf::parts(file, &[BUILD_ID]) else { return false };
        let found = object::File::parse(&*parts).ok();
        let found = found.as_ref().and_then(|found| found.build_id().ok().flatten());
        match (&self.build_id, found) {
            (Some(own), Some(found)) => own == found,
            (_, _) => self.name.as_ref().is_some_and(|(_, sum)| crc32(file) == Some(*sum)),
        }
    }
}

/// The section with the build id.
pub(super) const BUILD_ID: &str = ".note.gnu.build-id";

fn crc32(mut file: &File) -> Option<u32> {
    if file.metadata().ok()?.len() > LARGEST_SUMMED {
        return None;
    }
    let mut sum = crc32fast::Hasher::new();
    let mut block = vec![0; 64 << 10];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Some(sum.finalize()),
            Ok(read) => sum.update(block.get(..read)?),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Device and inode of a process's root, if it is not ours.
pub(super) fn other_root(pid: u32) -> Option<(u64, u64)> {
    let id = |path: &str| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let theirs = id(&format!("/proc/{pid}/root"))?;
    (Some(theirs) != id("/")).then_some(theirs)
}

/// A root that is not ours. It stays when the process has ended.
#[derive(Debug)]
pub(super) struct Root {
    folder: File,
    /// Where it is in its mount namespace: under chroot(2) the paths of mappings begin with that.
    path: PathBuf,
}

impl Root {
    pub(super) fn of(pid: u32) -> Option<Self> {
        let link = format!("/proc/{pid}/root");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = File::from(openat(CWD, &link, flags, Mode::empty()).ok()?);
        Some(Self { folder, path: std::fs::read_link(link).ok()? })
    }

    /// The path of a mapping as the process has it.
    pub(super) fn inside(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.path).map_or_else(|_| path.to_owned(), |below| Path::new("/").join(below))
    }

    /// Opens a file, and nothing else. Links lead nowhere else.
    pub(super) fn open(&self, path: &Path) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(openat2(&self.folder, path, flags, Mode::empty(), resolve).ok()?);
        regular_file::is_one(&file).then_some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_with_a_path_is_none() {
        let link = DebugLink { build_id: None, name: None };
        assert!(link.find(Path::new("/bin/true"), None).is_none());
    }
}
