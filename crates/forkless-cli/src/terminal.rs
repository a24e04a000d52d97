//! The width tables are laid out for.

use std::io::{IsTerminal as _, stdout};

/// The width of the terminal, or one wide enough for a file.
pub(crate) fn width() -> u16 {
    if stdout().is_terminal() { console::Term::stdout().size().1 } else { 160 }
}
