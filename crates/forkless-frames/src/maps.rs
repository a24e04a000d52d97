//! /proc/PID/maps: a line of it, and the file behind it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A line of /proc/PID/maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) range: Range<u64>,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
    pub(crate) offset: u64,
    pub(crate) inode: u64,
    pub(crate) path: PathBuf,
}

impl Mapping {
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let mut field = || fields.next().and_then(|field| std::str::from_utf8(field).ok());
        let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
        let (start, end) = field()?.split_once('-')?;
        let range = hexadecimal(start)?..hexadecimal(end)?;
        let rights = field()?.as_bytes();
        let (writable, executable) = (rights.get(1) == Some(&b'w'), rights.get(2) == Some(&b'x'));
        let offset = hexadecimal(field()?)?;
        field()?;
        let inode = field()?.parse().ok()?;
        let path = fields.next().unwrap_or_default().trim_ascii_start();
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let path = Path::new(std::ffi::OsStr::from_bytes(path)).to_owned();
        Some(Self { range, writable, executable, offset, inode, path })
    }

    pub(crate) fn file_name(&self) -> &[u8] {
        self.path.file_name().map_or(&[], |name| name.as_bytes())
    }

    /// Opens the mapped file: first exactly, which the kernel permits to few, then by its path in
    /// the process's own view.
    pub(crate) fn open(&self, pid: u32) -> Option<File> {
        let Range { start, end } = self.range;
        let exact = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
        let mut by_path = PathBuf::from(format!("/proc/{pid}/root"));
        by_path.push(self.path.strip_prefix("/").ok()?);
        [exact, by_path].into_iter().find_map(|path| {
            // Another file may be at the path by now: an open of a FIFO must not wait.
            let file =
                File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
            let metadata = file.metadata().ok()?;
            (metadata.is_file() && metadata.ino() == self.inode).then_some(file)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_keeps_blanks_in_its_path_and_bytes_that_are_no_text() {
        let line = b"55d0c0000000-55d0c0001000 r-xp 00002000 08:01 1234          /opt/a \xff (deleted)";
        let mapping = Mapping::parse(line).expect("well formed");
        assert_eq!(mapping.path.as_os_str().as_bytes(), b"/opt/a \xff");
        assert_eq!((mapping.offset, mapping.inode), (0x2000, 1234));
        assert!(mapping.executable && !mapping.writable);
        assert_eq!(Mapping::parse(b"nonsense"), None);
    }
}
