//! Command lines as system(3) and popen(3) take them, run without a shell where that makes no difference.

mod child;
mod line;
mod output;
mod place;
mod run;
mod traits;
mod wiring;

pub use child::ShellChild;
pub use line::{ShellLine, shell};
pub use traits::shell_traits;
