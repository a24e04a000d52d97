//! Failures in the form for a C program: a number, the step, the thing, a sentence.
#![expect(unsafe_code, reason = "exported C symbols")]

use forkless::{SpawnError, Step, WaitError};
use libc::{c_char, c_int};
use std::ffi::{CStr, CString};
use std::io;
use std::ptr::null;

/// `const forkless_error *`: why a call failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) number: c_int,
    step: c_int,
    step_name: CString,
    thing: Option<CString>,
    message: CString,
}

/// Text for C. A NUL, of which no text here has one, would end it.
pub(crate) fn text(s: &str) -> CString {
    let end = s.find('\0').unwrap_or(s.len());
    CString::new(&s[..end]).unwrap_or_default()
}

impl Failure {
    /// A failure that is not a step of a start.
    pub(crate) fn plain(number: c_int, message: &str) -> Failure {
        Failure { number, step: 0, step_name: CString::default(), thing: None, message: text(message) }
    }

    /// A pointer was NULL that must not be.
    pub(crate) fn null(what: &str) -> Failure {
        Failure::plain(libc::EINVAL, &format!("{what} is NULL"))
    }

    fn at(step: Step, thing: Option<&str>, number: c_int, message: &str) -> Failure {
        Failure {
            number,
            step: step_number(step),
            step_name: text(step.name()),
            thing: thing.map(text),
            message: text(message),
        }
    }
}

impl From<SpawnError> for Failure {
    fn from(e: SpawnError) -> Failure {
        Failure::at(e.step(), e.what(), e.raw_os_error().unwrap_or(libc::EIO), &e.to_string())
    }
}

impl From<WaitError> for Failure {
    fn from(e: WaitError) -> Failure {
        let number = match e {
            WaitError::Start(e) => return e.into(),
            WaitError::Unknown => libc::ECHILD,
            WaitError::Deadline => libc::ETIMEDOUT,
            WaitError::Os(ref e) => e.raw_os_error().unwrap_or(libc::EIO),
            _ => libc::EIO,
        };
        Failure::at(Step::Wait, Some("the child"), number, &e.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        let number = e.raw_os_error().unwrap_or(match e.kind() {
            io::ErrorKind::InvalidInput => libc::EINVAL,
            _ => libc::EIO,
        });
        Failure::plain(number, &e.to_string())
    }
}

/// `enum forkless_step`. These numbers are ABI: they never change, and 99 stands for steps younger
/// than this table.
pub fn step_number(step: Step) -> c_int {
    match step {
        Step::Command => 1,
        Step::Pipe => 2,
        Step::Stack => 3,
        Step::Clone => 4,
        Step::Descriptors => 5,
        Step::Signals => 6,
        Step::Setsid => 7,
        Step::ProcessGroup => 8,
        Step::Terminal => 9,
        Step::Cgroup => 10,
        Step::Rlimit => 11,
        Step::Nice => 12,
        Step::Scheduler => 13,
        Step::Affinity => 14,
        Step::Chroot => 15,
        Step::Groups => 16,
        Step::Gid => 17,
        Step::Uid => 18,
        Step::Chdir => 19,
        Step::NoNewPrivs => 20,
        Step::DeathSignal => 21,
        Step::PreExec => 22,
        Step::Exec => 23,
        Step::Wait => 24,
        _ => 99,
    }
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_error_number(error: Option<&Failure>) -> c_int {
    error.map_or(0, |e| -e.number)
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_error_step(error: Option<&Failure>) -> c_int {
    error.map_or(0, |e| e.step)
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_error_step_name(error: Option<&Failure>) -> *const c_char {
    error.map_or(c"".as_ptr(), |e| e.step_name.as_ptr())
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_error_thing(error: Option<&Failure>) -> *const c_char {
    error.and_then(|e| e.thing.as_deref()).map_or(null(), CStr::as_ptr)
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_error_message(error: Option<&Failure>) -> *const c_char {
    error.map_or(c"no error".as_ptr(), |e| e.message.as_ptr())
}
