//! Standard output and standard error: the width that tables are laid out for, and writing without
//! a panic.

use std::io::{IsTerminal as _, Write as _, stdout};

use anyhow::Context as _;

/// Writes a line to standard error. Unlike `eprintln!` it does not panic where that cannot be
/// written: the subcommand goes on, and its exit code stays its own.
macro_rules! complain {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
pub(crate) use complain;

/// Writes a whole output. `print!` would panic on a full disk.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// The same for an output that may be no text.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes a value as JSON, a line of its own.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Whether standard output is a terminal whose screen can be drawn over.
#[cfg(target_os = "linux")]
pub(crate) fn can_redraw() -> bool {
    let plain = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    stdout().is_terminal() && !plain
}

/// The width of the terminal, or what fits a mail, a log and a page of code.
pub(crate) fn width() -> u16 {
    if stdout().is_terminal() { console::Term::stdout().size().1 } else { 100 }
}
