//! execve itself. The standard library's would set SIGPIPE to its default action and empty the
//! signal mask; the program is to inherit both.
#![expect(unsafe_code, reason = "execve")]

use std::ffi::{CString, NulError, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::ptr::null;

/// Executes `program`; returns only to say why not.
pub(super) fn exec(program: &Path, command: &[OsString], environment: &[CString]) -> io::Error {
    let (path, arguments) = match strings(program, command) {
        Ok(strings) => strings,
        Err(nul) => return nul.into(),
    };
    let pointers = |all: &[CString]| all.iter().map(|e| e.as_ptr()).chain([null()]).collect::<Vec<_>>();
    let (argv, envp) = (pointers(&arguments), pointers(environment));
    // SAFETY: NUL-terminated strings in null-terminated vectors, all alive.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

fn strings(program: &Path, command: &[OsString]) -> Result<(CString, Vec<CString>), NulError> {
    let arguments =
        command.iter().map(|argument| CString::new(argument.as_bytes())).collect::<Result<_, _>>()?;
    Ok((CString::new(program.as_os_str().as_bytes())?, arguments))
}

/// Has a command's child take back a `PR_SET_THP_DISABLE` that it would inherit.
pub(super) fn enable_huge_pages(command: &mut Command) {
    // SAFETY: one system call, which allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| Ok(rustix::thread::disable_transparent_huge_pages(false)?));
    }
}
