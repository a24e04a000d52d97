//! The connection of one of the child's descriptors.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout};

/// The connection of one of the child's descriptors. It is like [`std::process::Stdio`], and made
/// from the same things.
///
/// An owned descriptor stays open in the parent until the [`Command`](crate::Command) is dropped,
/// or connects the number to something else. It can be used for several children.
///
/// ```
/// use forkless::{Command, Stdio};
/// let out =
///     Command::new("cat").stdin(Stdio::null()).stdout(Stdio::piped()).output().unwrap();
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
    ///
    /// 0, 1 and 2 stay as they are in the parent: where one is closed or close-on-exec, it is
    /// closed in the program. A higher number is handed on even if it is close-on-exec. If it is
    /// not open, the start fails with `EBADF`.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// // For output(), which captures both otherwise.
    /// let out = Command::new("sh")
    ///     .args(["-c", "echo seen >&2"])
    ///     .stderr(Stdio::inherit())
    ///     .output()
    ///     .unwrap();
    /// assert!(out.stderr.is_empty());
    /// ```
    pub fn inherit() -> Stdio {
        Stdio(Kind::Inherit)
    }

    /// `/dev/null`, opened by the child.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// assert!(
    ///     Command::new("echo")
    ///         .arg("unseen")
    ///         .stdout(Stdio::null())
    ///         .status()
    ///         .unwrap()
    ///         .success()
    /// );
    /// ```
    pub fn null() -> Stdio {
        Stdio(Kind::Null)
    }

    /// A new pipe; the parent's end is in [`Child`](crate::Child).
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let mut child = Command::new("echo").stdout(Stdio::piped()).spawn().unwrap();
    /// assert!(child.stdout.is_some() && child.stdin.is_none());
    /// child.wait().unwrap();
    /// ```
    pub fn piped() -> Stdio {
        Stdio(Kind::Piped)
    }

    /// A new pipe that the child reads from, whatever the number. With [`Stdio::piped`] the child
    /// reads from 0 only.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::io::Write as _;
    /// let mut child = Command::new("sh")
    ///     .args(["-c", "read x <&3; test $x = key"])
    ///     .fd(3, Stdio::piped_input())
    ///     .spawn()
    ///     .unwrap();
    /// std::fs::File::from(child.take_pipe(3).unwrap()).write_all(b"key\n").unwrap();
    /// assert!(child.wait().unwrap().success());
    /// ```
    pub fn piped_input() -> Stdio {
        Stdio(Kind::PipedInput)
    }

    /// Closed in the child. Most programs expect 0, 1 and 2 to be open.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let status = Command::new("test")
    ///     .args(["-e", "/proc/self/fd/0"])
    ///     .stdin(Stdio::closed())
    ///     .status()
    ///     .unwrap();
    /// assert_eq!(status.code(), Some(1));
    /// ```
    pub fn closed() -> Stdio {
        Stdio(Kind::Closed)
    }

    /// The same as another number of the child: `stderr(Stdio::same_as(1))` is the shell's `2>&1`.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// let mut c = Command::new("sh");
    /// c.args(["-c", "echo to 7 >&7"]).fd(7, Stdio::same_as(1));
    /// assert_eq!(c.output().unwrap().stdout, b"to 7\n");
    /// ```
    pub fn same_as(number: RawFd) -> Stdio {
        Stdio(Kind::SameAs(number))
    }

    /// A descriptor of the parent that the caller keeps.
    ///
    /// ```
    /// use forkless::{Command, Stdio};
    /// use std::os::fd::AsRawFd as _;
    /// let file = std::fs::File::open("/etc/passwd").unwrap();
    /// let mut c = Command::new("head");
    /// // SAFETY: `file` lives until the start is over.
    /// c.args(["-c", "5"]).stdin(unsafe { Stdio::from_raw_borrowed(file.as_raw_fd()) });
    /// assert_eq!(c.output().unwrap().stdout, b"root:");
    /// ```
    ///
    /// # Safety
    /// Whenever the command is started, `fd` must be open, and must be the file that the caller
    /// means.
    #[expect(unsafe_code, reason = "I/O safety: a number is not ownership")]
    pub unsafe fn from_raw_borrowed(fd: RawFd) -> Stdio {
        Stdio(Kind::Raw(fd))
    }

    /// Whether a pipe will be made.
    ///
    /// ```
    /// use forkless::Stdio;
    /// assert!(Stdio::piped().makes_pipe() && !Stdio::null().makes_pipe());
    /// ```
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
    std::os::unix::net::UnixStream
);

#[cfg(std_pipes)]
#[expect(clippy::incompatible_msrv, reason = "build.rs asks whether std has them, from Rust 1.87 on")]
mod pipes {
    use super::{Kind, Stdio};
    from_owned!(std::io::PipeReader, std::io::PipeWriter);
}

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
