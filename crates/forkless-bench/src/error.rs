//! Errors of setting a suite up and of measuring it. Every variant names the step that failed and
//! the thing it failed on; its message names the next thing to do. The library prints nothing.

use std::fmt;
use std::io;

/// Why a suite could not be set up or measured.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A system call or file operation failed: what was being done, and the system's answer.
    Os {
        /// The step, as a verb phrase: "create the child program in /tmp".
        step: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A measured child did not end as its program does; its time would be the time of something
    /// else.
    Child {
        /// The method that started it.
        method: String,
        /// `exited with 127`, `was killed by signal 2`.
        outcome: String,
    },
    /// The specification asks for what cannot be: an unknown method, zero threads, no run at all.
    Spec(String),
    /// The user wants no more. What whole rounds gave is kept.
    Interrupted,
    /// No file and no saved result has this name.
    NotSaved(String),
    /// The machine has not got what the specification asks for: memory, descriptors, a facility, a
    /// privilege.
    Missing(String),
}

impl Error {
    /// Wraps the calling thread's `errno`.
    pub fn last_os(step: impl Into<String>) -> Error {
        Error::Os { step: step.into(), source: io::Error::last_os_error() }
    }

    /// Wraps an error number returned by a call that does not set `errno`.
    pub(crate) fn errno(step: impl Into<String>, errno: i32) -> Error {
        Error::Os { step: step.into(), source: io::Error::from_raw_os_error(errno) }
    }

    /// Wraps an `io::Error`; made for `map_err`.
    pub fn io(step: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let step = step.into();
        move |source| Error::Os { step, source }
    }

    /// Why a thread could not be started; made for `map_err`. glibc has one answer for all: EAGAIN
    /// also where its stack cannot be mapped.
    #[must_use]
    pub fn no_thread(source: io::Error) -> Error {
        Error::Missing(format!(
            "cannot start a thread: {source}; raise the limit of processes (ulimit -u), or of memory (ulimit -v, \
             ulimit -d)"
        ))
    }

    /// Judges a wait status: only a child that exited with 0 did what was timed.
    pub fn check_status(method: &str, status: i32) -> Result<(), Error> {
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
            return Ok(());
        }
        let outcome = if libc::WIFSIGNALED(status) {
            format!("was killed by signal {}", libc::WTERMSIG(status))
        } else {
            format!("exited with {}", libc::WEXITSTATUS(status))
        };
        Err(Error::Child { method: method.to_owned(), outcome })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Os { step, source } => write!(f, "cannot {step}: {source}{}", remedy(source)),
            Error::Child { method, outcome } => {
                write!(
                    f,
                    "{method}: the child {outcome}, so its time would mean nothing; the run is abandoned"
                )
            }
            Error::Interrupted => f.write_str("interrupted"),
            Error::NotSaved(name) => write!(f, "{name}: no such file, and no saved result begins so"),
            Error::Spec(text) | Error::Missing(text) => f.write_str(text),
        }
    }
}

impl Error {
    /// Whether the system refused for want of a resource that a limit or the machine sets: room,
    /// memory, processes, descriptors.
    #[must_use]
    pub fn is_of_a_limit(&self) -> bool {
        matches!(self, Error::Os { source, .. } if !remedy(source).is_empty())
    }
}

/// What to do about a limit, to be put after the system's words.
#[must_use]
pub fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EFBIG) => "; raise the limit of a file's size (ulimit -f)",
        Some(libc::EAGAIN) => "; raise the limit of processes (ulimit -u)",
        Some(libc::EMFILE) => "; raise the limit of descriptors (ulimit -n)",
        Some(libc::ENFILE) => "; all descriptors of the machine are taken: end other programs",
        Some(libc::ENOMEM) => "; free memory, or raise its limit (ulimit -v)",
        Some(libc::ENOSPC | libc::EDQUOT) => "; make room there",
        _ => "",
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The source is part of the message; naming it again would print it twice in a chain.
        None
    }
}
