//! Why there are no frames.

/// Why a thread's frames could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The process has ended, or executes another program now.
    #[error("the process has gone on to another program or has ended")]
    Gone,
    /// The kernel refuses: another user's process, or a security module.
    #[error("the process's memory may not be read; run as its user or as root")]
    Denied,
    /// No two readings agreed: the thread runs.
    #[error("the thread does not stand still; read it while it waits for its child")]
    Changing,
    /// The limits were reached before the innermost frames were read.
    #[error("the stack needs more than the limits of one reading")]
    TooMuch,
    /// The interpreter's memory is not as its version lays it out.
    #[error("the interpreter's memory is not as expected")]
    Strange,
    /// The interpreter runs no code in this thread.
    #[error("the thread runs none of the interpreter's code")]
    NoFrames,
    /// A version whose memory layout is not known here.
    #[error("{0}: the memory layout of this version is not known")]
    Version(String),
}
