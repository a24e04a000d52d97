//! Records that no launcher has made, so that the first program does: one that the user has named
//! (`record=FILE` in `FORKLESS_OPTIONS`), and that stays; and beside a launcher's record one for
//! each other user of the tree.
#![expect(unsafe_code, reason = "writes the C environment")]

use core::ffi::CStr;

use forkless_run::{Record, digits};
use forkless_sys::process::{S_IFMT, S_IFREG};
use forkless_sys::{CPtr, Errno, fd};

use crate::{complaint, config, environment, loader};

const AT_EUID: usize = 12;

/// Opens the record of this process's user beside a launcher's of another user, or makes it.
///
/// Whoever may write a record may cut it, and so end each program that has it mapped. So each user
/// has one, in a folder in which all may make files. `path`: the launcher's, and then this one's.
#[cold]
#[inline(never)]
pub(crate) fn open_own(path: &mut [u8; 256]) -> Option<(i32, bool)> {
    let mut buffer = [0; 20];
    let digits = digits(loader::auxiliary(AT_EUID)? as u64, &mut buffer);
    let len = path.iter().position(|&byte| byte == 0)?;
    *path.get_mut(len)? = b'.';
    path.get_mut(len + 1..len + 1 + digits.len())?.copy_from_slice(digits);
    open(CPtr::from(CStr::from_bytes_until_nul(path).ok()?))
}

/// Opens a record that the user has named, or makes it: the second value then is `true`. `None` for
/// a file that could do harm: whoever may shorten it ends each program that has it mapped.
#[cold]
#[inline(never)]
pub(crate) fn open(path: CPtr<'_>) -> Option<(i32, bool)> {
    const BY_OTHERS: u32 = 0o022;
    // A FIFO or a device is not waited for. A link may be another user's.
    let careful = fd::O_NOFOLLOW | fd::O_NONBLOCK | fd::O_NOCTTY;
    if let Some(file) = at(path, careful | fd::O_CREAT | fd::O_EXCL) {
        // Written and not left as a hole: to touch one is a bus error where the disk is full.
        let zeros = [0u8; 512];
        let mut left = Record::SIZE;
        while left > 0 {
            match complaint::write(file, zeros.get(..left).unwrap_or(&zeros)) {
                Ok(n @ 1..) => left -= n,
                error => {
                    // No program would count into a part of one, or make it whole.
                    let _ = fd::unlink(path);
                    let _ = fd::close(file);
                    if error == Err(Errno::EFBIG) {
                        without_record();
                    }
                    return None;
                }
            }
        }
        return Some((file, true));
    }
    let file = at(path, careful)?;
    let is_fine = fd::about(file).is_ok_and(|(mode, owner, size)| {
        let trusted = owner == 0 || loader::auxiliary(AT_EUID) == Some(owner as usize);
        mode & S_IFMT == S_IFREG && mode & BY_OTHERS == 0 && trusted && size == Record::SIZE as u64
    });
    if is_fine {
        return Some((file, false));
    }
    let _ = fd::close(file);
    None
}

/// The limit of file sizes holds in the whole tree: one line is enough for it.
#[inline(always)]
fn without_record() {
    // A launcher's record is not named by those words.
    if let Some((path, len)) = config::record_place().filter(|_| config::makes_record()) {
        // SAFETY: a path that is to be made comes from the words of the variable, which is the
        // process's own writable string; the record is asked for as the library is loaded
        // (`tally::begin`), when the string is ours alone.
        unsafe { environment::strike_record(path, len) };
    }
    if !config::quiet() {
        complaint::say(b"forkless: no room for a record (ulimit -f): nothing is recorded\n");
    }
}

fn at(path: CPtr<'_>, flags: u32) -> Option<i32> {
    fd::openat(fd::AT_FDCWD, path, fd::O_RDWR | fd::O_CLOEXEC | flags, 0o644).ok()
}
