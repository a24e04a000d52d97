//! Which files a speculative child may open, and how the hidden descriptor stays out of
//! directories.
//!
//! Reading a plain file or a directory leaves no trace that another process could act on. The other
//! effects of `open` may not happen twice: creating, truncating, waking the other end of a FIFO,
//! taking a terminal, starting a tape.

use core::ffi::CStr;

use forkless_sys::process::{S_IFCHR, S_IFMT};
pub use forkless_sys::process::{S_IFDIR, S_IFREG, S_IFSOCK};
use linux_raw_sys::general as k;

// Kinds of file systems (include/uapi/linux/magic.h).
/// procfs.
pub const PROC: usize = 0x9fa0;
const SYSFS: usize = 0x6265_6572;
const TRACEFS: usize = 0x7472_6163;
const DEBUGFS: usize = 0x6462_6720;
const FUSE: usize = 0x6573_5546;
const BPF: usize = 0xcafe_4a11;
const CGROUP2: usize = 0x6367_7270;
const CGROUP: usize = 0x27_e0eb;

/// The kind of a file, of its `st_mode`.
#[must_use]
pub fn kind(mode: u32) -> u32 {
    mode & S_IFMT
}

/// The kind of file that a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A device without memory or effect: null, zero, full, random, urandom.
    Null,
    /// A regular file.
    Plain {
        /// Whether reading it has no effect on others. In /proc and similar file systems it may
        /// have.
        is_usable: bool,
    },
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

impl Found {
    /// Tells the kind by the file's mode, its device number if it is a device, and the kind of its
    /// file system.
    #[must_use]
    pub fn of(mode: u32, device: u64, file_system: usize) -> Found {
        if file_system == FUSE {
            // Its server sees every open.
            return Found::Other;
        }
        match kind(mode) {
            S_IFREG => Found::Plain {
                is_usable: !matches!(file_system, PROC | SYSFS | TRACEFS | DEBUGFS | BPF | CGROUP | CGROUP2),
            },
            S_IFDIR => Found::Directory,
            // Major 1: 3 null, 5 zero, 7 full, 8 random, 9 urandom
            // (Documentation/admin-guide/devices.txt).
            S_IFCHR if matches!(device, 0x103 | 0x105 | 0x107 | 0x108 | 0x109) => Found::Null,
            _ => Found::Other,
        }
    }
}

/// Whether a file may be opened with these flags. `found` is the file that its name leads to.
/// `None`: it does not exist, or cannot be reached. Returns whether the child may read and write it
/// afterwards. `None`: it may not be opened.
#[must_use]
pub fn may_open(flags: u32, found: Option<Found>) -> Option<bool> {
    let writes = flags & k::O_ACCMODE != k::O_RDONLY
        || flags & (k::O_CREAT | k::O_TRUNC | (k::O_TMPFILE & !k::O_DIRECTORY)) != 0;
    match found {
        Some(Found::Null) => Some(true),
        Some(Found::Plain { is_usable }) if !writes => Some(is_usable),
        Some(Found::Directory) if !writes => Some(false),
        Some(_) => None,
        // The real call may say so, unless it would create something.
        None => (flags & (k::O_CREAT | k::O_TMPFILE) == 0).then_some(false),
    }
}

/// A file of /proc, below that directory, whose text says nothing of the process that reads it.
/// Reading it has no effect either (kernel/sysctl.c, proc_dointvec). libc and libcap read these for
/// `initgroups`, for malloc, and for sets of capabilities.
#[must_use]
pub fn constant(path: &[u8]) -> Option<&'static CStr> {
    const ALL: [&CStr; 3] =
        [c"sys/kernel/ngroups_max", c"sys/kernel/cap_last_cap", c"sys/vm/overcommit_memory"];
    let below = path.strip_prefix(b"/proc/")?;
    ALL.into_iter().find(|known| known.to_bytes() == below)
}

/// The name in an address of a named local socket (`struct sockaddr_un`, unix(7)), without its NUL.
/// `None` for every other address, and for a name that ends with the address.
#[must_use]
pub fn socket_name(address: &[u8]) -> Option<&[u8]> {
    const AF_UNIX: u16 = 1;
    let (family, name) = address.split_first_chunk()?;
    let end = name.iter().position(|byte| *byte == 0)?;
    (u16::from_ne_bytes(*family) == AF_UNIX && end > 0).then(|| &name[..end])
}

/// Takes the entry with the number of a descriptor out of a buffer of `struct linux_dirent64`.
/// Returns the length that is left.
pub fn hide(entries: &mut [u8], descriptor: i32) -> usize {
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut at = 0;
    while let Some(&[low, high]) = entries.get(at + LENGTH..at + LENGTH + 2) {
        let record = usize::from(u16::from_ne_bytes([low, high]));
        let Some(end) = at.checked_add(record).filter(|end| record != 0 && *end <= entries.len()) else {
            break;
        };
        let name = entries.get(at + NAME..end).unwrap_or_default();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        if crate::text::decimal(name) == u64::try_from(descriptor).ok() {
            entries.copy_within(end.., at);
            return entries.len() - record;
        }
        at = end;
    }
    entries.len()
}

/// The name of a link to a descriptor, `/proc/self/fd/NUMBER`, with a NUL.
#[must_use]
pub fn link_to(descriptor: u32) -> [u8; 25] {
    const BEGINNING: &[u8] = b"/proc/self/fd/";
    let mut link = [0; 25];
    let (beginning, number) = link.split_at_mut(BEGINNING.len());
    beginning.copy_from_slice(BEGINNING);
    let digits = descriptor.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = descriptor;
    for digit in number.iter_mut().take(digits).rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    link
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString as _;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const EXT4: usize = 0xef53;

    #[test]
    fn files_are_told_by_mode_device_and_file_system() {
        assert_eq!(Found::of(S_IFREG | 0o644, 0, EXT4), Found::Plain { is_usable: true });
        assert_eq!(Found::of(S_IFREG | 0o444, 0, PROC), Found::Plain { is_usable: false });
        assert_eq!(Found::of(S_IFREG | 0o644, 0, FUSE), Found::Other);
        assert_eq!(Found::of(S_IFDIR | 0o755, 0, EXT4), Found::Directory);
        assert_eq!(Found::of(S_IFCHR | 0o666, 0x103, EXT4), Found::Null);
        assert_eq!(Found::of(S_IFCHR | 0o666, 0x500, EXT4), Found::Other, "/dev/tty");
        assert_eq!(Found::of(0o010_644, 0, EXT4), Found::Other, "a FIFO");
    }

    #[test]
    fn only_null_devices_are_opened_for_writing() {
        let plain = Some(Found::Plain { is_usable: true });
        for flags in [k::O_WRONLY, k::O_RDWR, k::O_CREAT, k::O_TRUNC, k::O_TMPFILE] {
            assert_eq!(may_open(flags, plain), None, "{flags:o}");
            assert_eq!(may_open(flags, Some(Found::Directory)), None, "{flags:o}");
            assert_eq!(may_open(flags, Some(Found::Null)), Some(true), "{flags:o}");
        }
        assert_eq!(may_open(k::O_RDONLY | k::O_CLOEXEC, plain), Some(true));
        assert_eq!(may_open(k::O_RDONLY | k::O_DIRECTORY, Some(Found::Directory)), Some(false));
        assert_eq!(may_open(k::O_RDONLY, Some(Found::Other)), None);
    }

    #[test]
    fn what_does_not_exist_is_for_the_kernel_to_say_unless_it_would_be_made() {
        assert_eq!(may_open(k::O_WRONLY, None), Some(false));
        assert_eq!(may_open(k::O_WRONLY | k::O_CREAT, None), None);
        assert_eq!(may_open(k::O_RDWR | k::O_TMPFILE, None), None);
    }

    #[test]
    fn constants_are_told_by_their_whole_path() {
        assert_eq!(constant(b"/proc/sys/kernel/ngroups_max"), Some(c"sys/kernel/ngroups_max"));
        for path in [
            &b"/proc/sys/kernel/ngroups_max2"[..],
            b"/proc/sys/kernel/ns_last_pid",
            b"/proc/self/status",
            b"/x",
            b"",
        ] {
            assert_eq!(constant(path), None);
        }
    }

    #[test]
    fn only_local_sockets_in_directories_have_a_name() {
        assert_eq!(socket_name(b"\x01\0/run/s\0"), Some(&b"/run/s"[..]));
        assert_eq!(socket_name(b"\x01\0/run/s\0x"), Some(&b"/run/s"[..]));
        for address in
            [&b"\x01\0/run/s"[..], b"\x01\0\0abstract\0", b"\x01\0", b"\x01", b"", b"\x02\0/run/s\0"]
        {
            assert_eq!(socket_name(address), None, "{address:?}");
        }
    }

    fn entries(names: &[std::string::String]) -> Vec<u8> {
        let mut all = Vec::new();
        for name in names {
            let record = (19 + name.len() + 1).next_multiple_of(8);
            let mut entry = std::vec![0; record];
            entry[16..18].copy_from_slice(&(record as u16).to_ne_bytes());
            entry[19..19 + name.len()].copy_from_slice(name.as_bytes());
            all.extend(entry);
        }
        all
    }

    proptest! {
        #[test]
        fn one_entry_is_hidden_and_the_others_stay(
            names in prop::collection::vec("[0-9]{1,5}|[a-z.]{1,20}", 0..20), hidden in 0i32..100_000
        ) {
            let is_hidden = |name: &std::string::String| *name == hidden.to_string();
            let mut names: Vec<_> = names.into_iter().filter(|n| n.parse::<i32>() != Ok(hidden)).collect();
            let expected = entries(&names);
            names.insert(names.len() / 2, hidden.to_string());
            let mut all = entries(&names);
            let left = hide(&mut all, hidden);
            prop_assert_eq!(&all[..left], &expected[..]);
            prop_assert!(names.iter().any(is_hidden));
            let again = hide(&mut all[..left], hidden);
            prop_assert_eq!(again, left);
        }

        #[test]
        fn no_buffer_is_too_strange(mut bytes in prop::collection::vec(any::<u8>(), 0..200), fd in 0i32..300) {
            let len = bytes.len();
            prop_assert!(hide(&mut bytes, fd) <= len);
        }

        #[test]
        fn links_have_the_descriptors_number(fd in any::<u32>()) {
            let link = link_to(fd);
            let text = core::ffi::CStr::from_bytes_until_nul(&link).expect("a NUL").to_str().expect("digits");
            prop_assert_eq!(text, std::format!("/proc/self/fd/{fd}"));
        }
    }
}
