//! Small files that the kernel writes, read at once. Another user may have put a file of its own
//! there (`proc`). Nothing is believed of it that could do harm, and a FIFO is not waited for.

use core::ffi::CStr;

use forkless_sys::signal::{self, SigSet};
use forkless_sys::{CPtr, fd};

use forkless_speculate::retry::retry;

const FLAGS: u32 = fd::O_RDONLY | fd::O_CLOEXEC | fd::O_NONBLOCK;

/// What fits into `text`; `None` where the file cannot be read.
pub(crate) fn read<'a>(path: CPtr<'_>, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let file = fd::openat(fd::AT_FDCWD, path, FLAGS, 0).ok()?;
    let n = fd::read(file, text);
    let _ = fd::close(file);
    text.get(..n.ok()?)
}

/// Calls `go_on` for the lines of /proc/self/status until it says `false`.
pub(crate) fn status_lines(go_on: impl FnMut(&[u8]) -> bool) {
    lines(c"/proc/self/status", go_on);
}

/// Calls `go_on` for the lines of a status file until it says `false`. In small pieces: a fork may
/// come from a handler on a stack of a few KiB.
pub(crate) fn lines(path: &CStr, mut go_on: impl FnMut(&[u8]) -> bool) {
    // A handler would find the lowest number taken. A handler that jumped away would leave it so.
    let Ok(before) = signal::set_mask(SigSet::ALL) else { return };
    if let Ok(file) = fd::openat(fd::AT_FDCWD, CPtr::from(path), FLAGS, 0) {
        lines_of(file, &mut go_on);
    }
    let _ = retry(|| signal::set_mask(before));
}

/// The same for a file that is open, and is closed.
pub(crate) fn lines_of(file: i32, go_on: &mut dyn FnMut(&[u8]) -> bool) {
    let mut text = [0u8; 256];
    let mut len = 0;
    // Another user's file may have no end. The kernel's own is longer where there are tens of
    // thousands of groups.
    const MOST: usize = 1 << 14;
    'file: for _ in 0..MOST {
        let Ok(n @ 1..) = fd::read(file, &mut text[len..]) else { break };
        len += n;
        let mut start = 0;
        while let Some(end) = text[start..len].iter().position(|b| *b == b'\n') {
            if !go_on(&text[start..start + end]) {
                break 'file;
            }
            start += end + 1;
        }
        // A line that does not fit (Groups) is not needed. Its pieces begin like no other line.
        let rest = if len - start == text.len() { len } else { start };
        text.copy_within(rest..len, 0);
        len -= rest;
    }
    let _ = fd::close(file);
}
