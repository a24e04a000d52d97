//! execve itself. The standard library's would set SIGPIPE to its default action and empty the signal mask, both of which PROGRAM is to
//! inherit.
#![expect(unsafe_code, reason = "execve")]

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null;

/// Executes `program`; returns only to say why not.
pub(super) fn exec(program: &Path, command: &[OsString], environment: &[CString]) -> io::Error {
    // Arguments come from our own argument vector, so none holds a NUL.
    let c = |text: &[u8]| CString::new(text).unwrap_or_default();
    let path = c(program.as_os_str().as_bytes());
    let arguments: Vec<CString> = command.iter().map(|a| c(a.as_bytes())).collect();
    let pointers = |all: &[CString]| all.iter().map(|e| e.as_ptr()).chain([null()]).collect::<Vec<_>>();
    let (argv, envp) = (pointers(&arguments), pointers(environment));
    // SAFETY: NUL-terminated strings in null-terminated vectors, all alive.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}
