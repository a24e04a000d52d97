//! Starting and awaiting programs with exact descriptors, argument strings and environment.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// What descriptors 0 to 9 of a program are; `None` is closed.
pub(crate) type Table = [Option<Rc<File>>; 10];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Code(u8),
    Signal(u8, bool),
}

/// Takes the numbers below 20 out of use, so that no file of the test gets into a program's table
/// by accident.
pub(crate) fn reserve_low_descriptors() -> Vec<File> {
    let mut held = Vec::new();
    loop {
        let file = File::open("/dev/null").expect("open /dev/null");
        let number = file.as_raw_fd();
        held.push(file);
        if number >= 20 {
            return held;
        }
    }
}

/// Starts `path`; the current directory is the caller's.
pub(crate) fn start(path: &CStr, argv: &[CString], envp: &[CString], table: &Table) -> nix::Result<Pid> {
    let mut actions = PosixSpawnFileActions::init()?;
    for (number, file) in (0..).zip(table) {
        match file {
            Some(file) => actions.add_dup2(file.as_raw_fd(), number)?,
            None => actions.add_close(number)?,
        }
    }
    let mut attributes = PosixSpawnAttr::init()?;
    let mut defaults = SigSet::empty();
    defaults.add(Signal::SIGPIPE);
    attributes.set_sigdefault(&defaults)?;
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
    posix_spawn(path, &actions, &attributes, argv, envp)
}

/// What is started inherits that it is ignored: posix_spawn has no attribute for it.
#[expect(unsafe_code, reason = "signal(2) takes a handler")]
pub(crate) fn ignoring_sigquit<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: no handler, so no code of ours can run in a signal's context.
    let before =
        unsafe { signal(Signal::SIGQUIT, SigHandler::SigIgn) }.expect("a signal that can be ignored");
    let result = start();
    // SAFETY: what it was.
    unsafe { signal(Signal::SIGQUIT, before) }.expect("what it was");
    result
}

pub(crate) fn wait(pid: Pid) -> Outcome {
    match waitpid(pid, None).expect("a child of ours") {
        WaitStatus::Exited(_, code) => Outcome::Code(u8::try_from(code).expect("an exit code")),
        WaitStatus::Signaled(_, signal, core) => Outcome::Signal(signal as u8, core),
        other => panic!("neither exited nor killed: {other:?}"),
    }
}
