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

/// Writes a whole output, as [`plain`] text. `print!` would panic on a full disk.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(plain(text).as_bytes())
}

/// Names, paths and lines of other processes, and words of results that others made, may be
/// anything: none of it may control the terminal.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain
}

/// The same as it is: for what programs read, and for what is no text.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let print = || {
        let mut out = open_stdout()?;
        out.write_all(bytes)?;
        out.flush()
    };
    print().context("cannot write to standard output")
}

/// Standard output; the error of a write where it was closed. Rust's runtime opens /dev/null in its
/// place, and all that is written would be lost without a word.
pub(crate) fn open_stdout() -> std::io::Result<std::io::StdoutLock<'static>> {
    #[cfg(target_os = "linux")]
    if crate::inherited::was_closed(1) {
        return Err(std::io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(stdout().lock())
}

/// Text of another process inside of a line: a newline would begin another line of the output.
pub(crate) fn in_line(text: &str) -> String {
    text.replace('\n', "\\n")
}

/// Writes a value as JSON, a line of its own.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print_bytes((serde_json::to_string_pretty(value)? + "\n").as_bytes())
}

/// Whether standard output is a terminal whose screen can be drawn over.
#[cfg(target_os = "linux")]
pub(crate) fn can_redraw() -> bool {
    let plain = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    stdout().is_terminal() && !plain
}

/// What fits a mail, a log and a page of code.
pub(crate) const WIDE: u16 = 100;

/// The width of the terminal, or [`WIDE`].
pub(crate) fn width() -> u16 {
    if stdout().is_terminal() { console::Term::stdout().size().1 } else { WIDE }
}

/// The pieces of a text between which a line may be broken: at single blanks. Several blanks belong
/// to what they stand in, such as a quoted argument.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split(' ') {
        match pieces.last_mut() {
            Some(last) if is_open || word.is_empty() => {
                last.push(' ');
                last.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
        is_open = word.is_empty();
    }
    pieces
}

/// A text behind `head`, in lines of this width, if its words allow it. The others begin below the
/// text of the first.
#[cfg(target_os = "linux")]
pub(crate) fn fold(head: &str, text: &str, width: usize) -> String {
    fold_below(head, text, head.chars().count(), width)
}

/// The same, with the other lines below this column.
#[cfg(target_os = "linux")]
pub(crate) fn fold_below(head: &str, text: &str, indent: usize, width: usize) -> String {
    let (mut lines, mut column) = (head.to_owned(), head.chars().count());
    for (number, piece) in pieces(text).iter().enumerate() {
        let length = piece.chars().count();
        if number > 0 && column + 1 + length > width && column > indent {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            column = indent;
        } else if number > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(piece);
        column += length;
    }
    lines + "\n"
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Regression: `"a  b"` of a folded line had other blanks in it.
    #[test]
    fn a_line_is_broken_at_single_blanks_only() {
        assert_eq!(pieces("say \"a   b\" now"), ["say", "\"a   b\"", "now"]);
        assert_eq!(pieces("a  b c"), ["a  b", "c"]);
        assert_eq!(fold("x: ", "one two  three four", 10), "x: one\n   two  three\n   four\n");
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(in_line("a\nb"), "a\\nb");
        assert_eq!(plain("a\x1b[2Jb\u{9b}c\td\n"), "a\\u{1b}[2Jb\\u{9b}c\\td\n");
    }
}
