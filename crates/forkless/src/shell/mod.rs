//! Command lines as system(3) and popen(3) take them, run without a shell where that makes no
//! difference.
//!
//! The `forkless-shell` crate decides the meaning of a line. Here is its runner, which keeps to the
//! contract in that crate's documentation. A line that the analysis does not vouch for is given to
//! `/bin/sh -c`, and so is one that fails before a program has run: every error is the shell's own.

mod between;
mod child;
mod ending;
mod line;
mod line_directory;
mod output;
mod run;
#[doc(hidden)]
pub mod shield;
mod traits;
mod wait;
mod walk;
mod wiring;

/// A redirection can name the descriptors below this one.
const REDIRECTABLE: std::os::fd::RawFd = 10;

pub use child::ShellChild;
#[doc(hidden)]
pub use ending::LineEnd;
pub use line::{ShellLine, shell};
pub use traits::shell_traits;
#[doc(hidden)]
pub use traits::{AskedShell, ShellFile};
