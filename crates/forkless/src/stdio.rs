//! What a descriptor of the child is connected to.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout};

/// What a descriptor of the child is connected to. Like [`std::process::Stdio`], and made from the same things.
///
/// An owned descriptor stays open in the parent until the [`Command`](crate::Command) is dropped, and can be used for
/// several children.
///
/// ```
/// use forkless::{Command, Stdio};
/// let out = Command::new("cat").stdin(Stdio::null()).stdout(Stdio::piped()).output().unwrap();
/// assert!(out.stdout.is_empty());
/// ```
#[derive(Debug)]
pub struct Stdio(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Inherit,
    Null,
    Piped,
    PipedInput,
    Closed,
    Owned(OwnedFd),
    Raw(RawFd),
    SameAs(RawFd),
}

impl Stdio {
    /// The parent's descriptor of the same number.
    pub fn inherit() -> Stdio {
        Stdio(Kind::Inherit)
    }

    /// `/dev/null`, opened by the child.
    pub fn null() -> Stdio {
        Stdio(Kind::Null)
    }

    /// A new pipe; the parent's end is in [`Child`](crate::Child).
    pub fn piped() -> Stdio {
        Stdio(Kind::Piped)
    }

    /// A new pipe that the child reads from, whatever the number; [`Stdio::piped`] does so for 0 only.
    pub fn piped_input() -> Stdio {
        Stdio(Kind::PipedInput)
    }

    /// Nothing: the number is closed in the child. Most programs do not expect that of 0, 1 and 2.
    pub fn closed() -> Stdio {
        Stdio(Kind::Closed)
    }

    /// The same as another number of the child: `stderr(Stdio::same_as(1))` is the shell's `2>&1`.
    pub fn same_as(number: RawFd) -> Stdio {
        Stdio(Kind::SameAs(number))
    }

    /// A descriptor of the parent that the caller keeps.
    ///
    /// # Safety
    /// `fd` must be open, and mean what the caller thinks, whenever the command is started.
    #[expect(unsafe_code, reason = "I/O safety: a number is not ownership")]
    pub unsafe fn from_raw_borrowed(fd: RawFd) -> Stdio {
        Stdio(Kind::Raw(fd))
    }

    /// Whether a pipe will be made.
    pub fn makes_pipe(&self) -> bool {
        matches!(self.0, Kind::Piped | Kind::PipedInput)
    }
}

macro_rules! from_owned {
    ($($t:ty),*) => {$(
        impl From<$t> for Stdio {
            fn from(v: $t) -> Stdio {
                Stdio(Kind::Owned(v.into()))
            }
        }
    )*};
}
from_owned!(
    OwnedFd,
    File,
    ChildStdin,
    ChildStdout,
    ChildStderr,
    std::net::TcpStream,
    std::os::unix::net::UnixStream,
    std::io::PipeReader,
    std::io::PipeWriter
);

impl From<std::io::Stdout> for Stdio {
    fn from(_: std::io::Stdout) -> Stdio {
        Stdio(Kind::Raw(1))
    }
}

impl From<std::io::Stderr> for Stdio {
    fn from(_: std::io::Stderr) -> Stdio {
        Stdio(Kind::Raw(2))
    }
}

#[expect(unsafe_code, reason = "the trait is std's")]
impl FromRawFd for Stdio {
    unsafe fn from_raw_fd(fd: RawFd) -> Stdio {
        // SAFETY: the caller hands over ownership, as the trait says.
        Stdio(Kind::Owned(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// A pipe whose ends close themselves: read end, write end, both close-on-exec.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), crate::SpawnError> {
    let (r, w) = forkless_sys::fd::pipe2(forkless_sys::fd::O_CLOEXEC)
        .map_err(|e| crate::SpawnError::new(crate::Step::Pipe, None, e.raw()))?;
    Ok((owned(r), owned(w)))
}

/// Takes ownership of a number the kernel just gave.
#[expect(unsafe_code, reason = "the one place where a number from the kernel becomes ownership")]
pub(crate) fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a descriptor the kernel has just made for them and that nothing else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
