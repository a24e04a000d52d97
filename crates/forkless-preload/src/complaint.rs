//! Lines on standard error, and other writes that the program has not asked for.

use forkless_sys::{Result, quiet_write};

use crate::filters;

/// Writes a line of at most `PIPE_BUF` bytes to standard error. It is lost where a write would wait
/// or bring a signal: the program goes on as if there were no line.
#[cold]
#[inline(never)]
pub(crate) fn say(line: &[u8]) {
    // A filter may kill for calls that the program does not make.
    if !filters::are_in_force() {
        let _ = write(2, line);
    }
}

/// [`quiet_write::write`], once in this object.
#[cold]
#[inline(never)]
pub(crate) fn write(file: i32, text: &[u8]) -> Result<usize> {
    quiet_write::write(file, text)
}
