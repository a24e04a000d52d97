//! Lines on standard error that the program, which this process becomes, must not notice.

use forkless_sys::quiet_write;

/// Writes a line to standard error. It is lost where a write would wait or bring a signal: the
/// program runs as if there were no line. What is longer than `PIPE_BUF` is cut.
pub fn complain(line: &str) {
    let line = &line.as_bytes()[..line.len().min(libc::PIPE_BUF - 1)];
    let _ = quiet_write::write(2, &[line, b"\n"].concat());
}
