//! Lines on standard error that the program, which this process becomes, must not notice.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use forkless_sys::quiet_write;

/// Whether a line could kill this process.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// A seccomp filter kills for a call of [`complain`].
pub(super) fn silence() {
    IS_SILENT.store(true, Relaxed);
}

/// Writes a line to standard error. It is lost where a write would wait or bring a signal, and
/// where a seccomp filter kills for the calls that find that out: the program runs as if there were
/// no line. What is longer than `PIPE_BUF` is cut.
pub fn complain(line: &str) {
    if IS_SILENT.load(Relaxed) {
        return;
    }
    let line = &line.as_bytes()[..line.len().min(libc::PIPE_BUF - 1)];
    let _ = quiet_write::write(2, &[line, b"\n"].concat());
}
