//! The decision as text for people: the programs that would run, or the reason of the rejection.

use core::ffi::CStr;
use core::fmt::{self, Write};

use crate::reason::Rejection;
use crate::script::{Command, CommandKind, Connector, RedirectionKind, Script};

/// Displays the result of an analysis together with its line.
#[derive(Debug, Clone, Copy)]
pub struct Explanation<'a, 'b> {
    /// The line that was analysed.
    pub line: &'a [u8],
    /// The result of its analysis.
    pub decision: &'a Result<Script<'b>, Rejection>,
}

impl fmt::Display for Explanation<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decision {
            Ok(script) => write!(f, "direct: {script}"),
            Err(rejection) => {
                write!(f, "shell: {rejection}")?;
                if rejection.span.end > rejection.span.start {
                    caret(f, self.line, rejection)
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// The source line the span begins in, with carets under the bytes it covers.
fn caret(f: &mut fmt::Formatter<'_>, line: &[u8], rejection: &Rejection) -> fmt::Result {
    let span = rejection.span;
    let before = line.get(..span.start).unwrap_or_default();
    let from = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let rest = line.get(from..).unwrap_or_default();
    let len = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    let shown = rest.get(..len).unwrap_or_default();
    f.write_str("\n  ")?;
    printable(f, shown)?;
    f.write_str("\n  ")?;
    let lead = span.start - from;
    for _ in 0..columns(shown.get(..lead).unwrap_or_default()) {
        f.write_char(' ')?;
    }
    let covered = shown.get(lead..(span.end - from).min(len)).unwrap_or_default();
    for _ in 0..columns(covered).max(1) {
        f.write_char('^')?;
    }
    Ok(())
}

/// Text as it is, control characters as `?` so that carets stay in place, bytes that are not UTF-8
/// as U+FFFD.
fn printable(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            f.write_char(if c.is_control() { '?' } else { c })?;
        }
        if !chunk.invalid().is_empty() {
            f.write_char(char::REPLACEMENT_CHARACTER)?;
        }
    }
    Ok(())
}

/// The number of characters that [`printable`] writes for `text`.
fn columns(text: &[u8]) -> usize {
    text.utf8_chunks()
        .map(|chunk| chunk.valid().chars().count() + usize::from(!chunk.invalid().is_empty()))
        .sum()
}

impl fmt::Display for Script<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pipeline) in self.pipelines().enumerate() {
            if index > 0 {
                f.write_str(match pipeline.connector() {
                    Connector::Always => "; ",
                    Connector::And => " && ",
                    Connector::Or => " || ",
                })?;
            }
            if pipeline.is_negated() {
                f.write_str("! ")?;
            }
            for (index, command) in pipeline.stages().enumerate() {
                if index > 0 {
                    f.write_str(" | ")?;
                }
                command.fmt(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut next = |f: &mut fmt::Formatter<'_>| {
            f.write_str(separator)?;
            separator = " ";
            Ok::<(), fmt::Error>(())
        };
        for assignment in self.assignments() {
            next(f)?;
            let text = assignment.to_bytes();
            let at = text.iter().position(|&byte| byte == b'=').map_or(text.len(), |at| at + 1);
            printable(f, text.get(..at).unwrap_or_default())?;
            quoted(f, text.get(at..).unwrap_or_default(), true)?;
        }
        if self.kind() == CommandKind::Exec {
            next(f)?;
            f.write_str("exec")?;
        }
        for word in self.words() {
            next(f)?;
            quoted(f, word.to_bytes(), false)?;
        }
        for redirection in self.redirections() {
            next(f)?;
            let fd = redirection.descriptor;
            let target = |f: &mut fmt::Formatter<'_>, operator: &str, path: &CStr| {
                write!(f, "{fd}{operator}")?;
                quoted(f, path.to_bytes(), false)
            };
            match redirection.kind {
                RedirectionKind::Read(path) => target(f, "<", path)?,
                RedirectionKind::Write(path) => target(f, ">", path)?,
                RedirectionKind::Append(path) => target(f, ">>", path)?,
                RedirectionKind::ReadWrite(path) => target(f, "<>", path)?,
                RedirectionKind::Duplicate(from) => write!(f, "{fd}>&{from}")?,
                RedirectionKind::Close => write!(f, "{fd}>&-")?,
            }
        }
        Ok(())
    }
}

/// A word in the form in which a user types it: single quotes where they are needed.
fn quoted(f: &mut fmt::Formatter<'_>, text: &[u8], may_be_empty: bool) -> fmt::Result {
    let plain = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'=' | b':' | b',' | b'+' | b'@' | b'%' | 0x80..)
    };
    if (may_be_empty || !text.is_empty()) && text.iter().all(plain) {
        return printable(f, text);
    }
    f.write_char('\'')?;
    for (index, part) in text.split(|&byte| byte == b'\'').enumerate() {
        if index > 0 {
            f.write_str("'\\''")?;
        }
        printable(f, part)?;
    }
    f.write_char('\'')
}
