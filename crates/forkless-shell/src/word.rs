//! One word: quotes, backslashes and the plain expansions, written out in the form in which the
//! program gets it.

use crate::environment::Environment;
use crate::names;
use crate::reason::{Reason, Rejection};
use crate::script::Writer;
use crate::traits::ShellTraits;

/// The position of a word; some characters have more meanings in some positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordPosition {
    /// Before or as the command name, where `NAME=` is an assignment.
    Command,
    /// After it.
    Argument,
    /// After a redirection operator.
    Target,
}

/// The facts about a word besides its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word {
    /// Where its payload starts in the buffer.
    pub(crate) payload: usize,
    /// For an assignment, the length of its name.
    pub(crate) name_len: Option<usize>,
    /// Whether quotes, a backslash or an expansion were part of it.
    pub(crate) is_quoted: bool,
}

/// The text being read, and the place of the next byte.
pub(crate) struct Cursor<'l> {
    pub(crate) line: &'l [u8],
    pub(crate) at: usize,
}

impl Cursor<'_> {
    pub(crate) fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.line.get(self.at + ahead).copied()
    }

    pub(crate) fn reject(&self, reason: Reason, len: usize) -> Rejection {
        Rejection::at(reason, self.at, (self.at + len).min(self.line.len()))
    }

    pub(crate) fn starts_with(&self, text: &[u8]) -> bool {
        self.line.get(self.at..).is_some_and(|rest| rest.starts_with(text))
    }

    /// Whether a line continuation ends right before the next byte.
    pub(crate) fn follows_continuation(&self) -> bool {
        self.line.get(..self.at).is_some_and(|read| read.ends_with(b"\\\n"))
    }
}

/// Bytes that stand for themselves inside an unquoted word, once it can no longer be an assignment.
const ORDINARY: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let this = byte as u8;
        table[byte] = this.is_ascii_alphanumeric()
            || matches!(
                this,
                b'_' | b'-' | b'.' | b'/' | b'=' | b':' | b',' | b'+' | b'@' | b'%' | b'^' | b']' | b'}'
            );
        byte += 1;
    }
    table
};

/// Whether `byte` ends an unquoted word.
fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')')
}

pub(crate) struct Lexer<'a, E: ?Sized> {
    pub(crate) environment: &'a E,
    pub(crate) shell: &'a ShellTraits,
    /// The names of the assignments of this command, as ranges of the writer; expanding one of them
    /// is rejected.
    pub(crate) assigned: Option<(usize, usize)>,
}

impl<E: Environment + ?Sized> Lexer<'_, E> {
    /// Reads the word at the cursor and appends its text to `out`.
    ///
    /// The cursor stands on a byte that begins a word; it is left on the delimiter that ends it.
    pub(crate) fn word(
        &self,
        cursor: &mut Cursor<'_>,
        position: WordPosition,
        out: &mut Writer<'_>,
    ) -> Result<Word, Rejection> {
        let payload = out.len();
        let start = cursor.at;
        let mut word = Word { payload, name_len: None, is_quoted: false };
        // Whether the text so far may be the NAME of `NAME=`: unquoted name bytes and nothing else.
        let mut in_name = position == WordPosition::Command;
        let mut continued = false;
        let mut braces_checked = false;
        let mut previous = None;
        while let Some(byte) = cursor.peek() {
            if is_delimiter(byte) {
                break;
            }
            if !in_name && ORDINARY[usize::from(byte)] {
                let rest = cursor.line.get(cursor.at..).unwrap_or_default();
                let len = rest.iter().position(|&byte| !ORDINARY[usize::from(byte)]).unwrap_or(rest.len());
                let run = rest.get(..len).unwrap_or_default();
                out.extend(run)?;
                cursor.at += len;
                previous = run.last().copied();
                continue;
            }
            match byte {
                b'\\' => match cursor.peek_at(1) {
                    None => return Err(cursor.reject(Reason::Syntax, 1)),
                    Some(b'\n') => {
                        cursor.at += 2;
                        continued = true;
                        if cursor.peek() == Some(b'#') {
                            return Err(cursor.reject(Reason::Continuation, 1));
                        }
                        continue;
                    }
                    Some(escaped) => {
                        self.check_byte(escaped, cursor)?;
                        out.push(escaped)?;
                        cursor.at += 2;
                        in_name = false;
                        word.is_quoted = true;
                    }
                },
                b'\'' => {
                    self.single_quoted(cursor, out)?;
                    in_name = false;
                    word.is_quoted = true;
                }
                b'"' => {
                    self.double_quoted(cursor, out)?;
                    in_name = false;
                    word.is_quoted = true;
                }
                b'$' => {
                    self.expansion(cursor, false, out)?;
                    in_name = false;
                    word.is_quoted = true;
                }
                b'`' => return Err(cursor.reject(Reason::CommandSubstitution, 1)),
                b'[' if position == WordPosition::Command && previous.is_none() => {
                    return Err(bracket(cursor));
                }
                b'*' | b'?' | b'[' => return Err(cursor.reject(Reason::Glob, 1)),
                b'~' if matches!(previous, None | Some(b'=' | b':')) => {
                    return Err(cursor.reject(Reason::Tilde, 1));
                }
                b'{' if self.shell.expands_braces() && !braces_checked => {
                    check_braces(cursor)?;
                    braces_checked = true;
                    out.push(byte)?;
                    cursor.at += 1;
                    in_name = false;
                }
                _ => {
                    self.check_byte(byte, cursor)?;
                    if in_name && byte == b'=' && out.len() > payload {
                        if continued {
                            return Err(Rejection::at(Reason::Continuation, start, cursor.at));
                        }
                        word.name_len = Some(out.len() - payload);
                        in_name = false;
                    } else if in_name
                        && byte == b'+'
                        && cursor.peek_at(1) == Some(b'=')
                        && out.len() > payload
                    {
                        // bash appends to the variable; the others look for a command of that name.
                        return Err(Rejection::at(Reason::AssignmentEffect, start, cursor.at + 2));
                    } else if in_name {
                        in_name = if out.len() == payload {
                            names::is_name_start(byte)
                        } else {
                            names::is_name_byte(byte)
                        };
                    }
                    out.push(byte)?;
                    cursor.at += 1;
                }
            }
            previous = Some(byte);
        }
        // `2\<newline>>file`: the digit is a descriptor number only for shells that remove the
        // continuation early.
        if cursor.follows_continuation() && matches!(cursor.peek(), Some(b'<' | b'>')) {
            return Err(cursor.reject(Reason::Continuation, 1));
        }
        Ok(word)
    }

    /// Refuses bytes that some shell does not pass through unchanged.
    fn check_byte(&self, byte: u8, cursor: &Cursor<'_>) -> Result<(), Rejection> {
        match byte {
            0 => Err(cursor.reject(Reason::Nul, 1)),
            b'\t' | b'\n' | b' '..=b'~' => Ok(()),
            0x80.. if self.shell.passes_non_ascii() => Ok(()),
            0x80.. => Err(cursor.reject(Reason::NonAscii, 1)),
            _ => Err(cursor.reject(Reason::ControlCharacter, 1)),
        }
    }

    fn single_quoted(&self, cursor: &mut Cursor<'_>, out: &mut Writer<'_>) -> Result<(), Rejection> {
        let open = cursor.at;
        let rest = cursor.line.get(open + 1..).unwrap_or_default();
        let Some(len) = rest.iter().position(|&byte| byte == b'\'') else {
            return Err(Rejection::at(Reason::Syntax, open, open + 1));
        };
        let text = rest.get(..len).unwrap_or_default();
        for &byte in text {
            cursor.at += 1;
            self.check_byte(byte, cursor)?;
        }
        out.extend(text)?;
        cursor.at = open + len + 2;
        Ok(())
    }

    fn double_quoted(&self, cursor: &mut Cursor<'_>, out: &mut Writer<'_>) -> Result<(), Rejection> {
        let open = cursor.at;
        cursor.at += 1;
        loop {
            match cursor.peek() {
                None => return Err(Rejection::at(Reason::Syntax, open, open + 1)),
                Some(b'"') => break,
                Some(b'`') => return Err(cursor.reject(Reason::CommandSubstitution, 1)),
                Some(b'$') => self.expansion(cursor, true, out)?,
                Some(b'\\') => match cursor.peek_at(1) {
                    Some(b'\n') => cursor.at += 2,
                    Some(escaped @ (b'$' | b'`' | b'"' | b'\\')) => {
                        out.push(escaped)?;
                        cursor.at += 2;
                    }
                    // Any other backslash stays.
                    _ => {
                        out.push(b'\\')?;
                        cursor.at += 1;
                    }
                },
                Some(byte) => {
                    self.check_byte(byte, cursor)?;
                    out.push(byte)?;
                    cursor.at += 1;
                }
            }
        }
        cursor.at += 1;
        Ok(())
    }

    /// Reads the expansion that a `$` begins.
    fn expansion(
        &self,
        cursor: &mut Cursor<'_>,
        in_quotes: bool,
        out: &mut Writer<'_>,
    ) -> Result<(), Rejection> {
        let dollar = cursor.at;
        let next = cursor.peek_at(1);
        let (name_start, braced) = match next {
            Some(b'{') => (dollar + 2, true),
            Some(byte) if names::is_name_start(byte) => (dollar + 1, false),
            Some(b'(') if cursor.peek_at(2) == Some(b'(') => return Err(cursor.reject(Reason::Arithmetic, 3)),
            Some(b'(') => return Err(cursor.reject(Reason::CommandSubstitution, 2)),
            Some(b'[') => return Err(cursor.reject(Reason::Arithmetic, 2)),
            Some(b'\'' | b'"') if !in_quotes => return Err(cursor.reject(Reason::DollarQuote, 2)),
            Some(b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => {
                return Err(cursor.reject(Reason::SpecialParameter, 2));
            }
            // Alone, `$` stands for itself: before the end of the word or of the quotes, and before
            // these.
            None
            | Some(b' ' | b'\t' | b'\n' | b'/' | b'.' | b',' | b':' | b'=' | b'%' | b'+' | b'|' | b';') => {
                out.push(b'$')?;
                cursor.at += 1;
                return Ok(());
            }
            Some(b'"') if in_quotes => {
                out.push(b'$')?;
                cursor.at += 1;
                return Ok(());
            }
            Some(_) => return Err(cursor.reject(Reason::Dollar, 2)),
        };
        let name_len = cursor
            .line
            .get(name_start..)
            .unwrap_or_default()
            .iter()
            .take_while(|&&byte| names::is_name_byte(byte))
            .count();
        let name_end = name_start + name_len;
        let name = cursor.line.get(name_start..name_end).unwrap_or_default();
        if braced {
            let close = cursor.line.get(name_end).copied();
            if !names::is_valid_name(name) {
                return Err(Rejection::at(
                    if close == Some(b'}') || name_len == 0 {
                        Reason::SpecialParameter
                    } else {
                        Reason::ParameterOperator
                    },
                    dollar,
                    name_end,
                ));
            }
            if close != Some(b'}') {
                return Err(Rejection::at(
                    Reason::ParameterOperator,
                    dollar,
                    (name_end + 1).min(cursor.line.len()),
                ));
            }
        }
        let end = if braced { name_end + 1 } else { name_end };
        // `$A\<newline>B` is `$AB` to a shell that removes continuations first.
        if !braced && cursor.line.get(name_end..).is_some_and(|rest| rest.starts_with(b"\\\n")) {
            return Err(Rejection::at(Reason::Continuation, dollar, name_end));
        }
        let reject = |reason| Err(Rejection::at(reason, dollar, end));
        if names::is_managed(name) {
            return reject(Reason::ShellVariable);
        }
        if self.assigned.is_some_and(|(from, to)| is_assigned(out.range(from, to), name)) {
            return reject(Reason::AssignedVariable);
        }
        let value = match self.environment.variable(name) {
            Some(value) => value,
            None if names::is_defaulted(name) => return reject(Reason::UnsetVariable),
            None => b"",
        };
        if !in_quotes && !is_plain(value) {
            return reject(Reason::UnquotedExpansion);
        }
        if value.iter().any(|&byte| matches!(byte, 0 | 1 | 0x7f)) {
            return reject(Reason::ControlCharacter);
        }
        if !self.shell.passes_non_ascii() && !value.is_ascii() {
            return reject(Reason::NonAscii);
        }
        out.extend(value)?;
        cursor.at = end;
        Ok(())
    }
}

/// `[` and `[[` as command names are no patterns.
fn bracket(cursor: &Cursor<'_>) -> Rejection {
    match (cursor.peek_at(1), cursor.peek_at(2)) {
        (None, _) => cursor.reject(Reason::Builtin, 1),
        (Some(next), _) if is_delimiter(next) => cursor.reject(Reason::Builtin, 1),
        (Some(b'['), None) => cursor.reject(Reason::ReservedWord, 2),
        (Some(b'['), Some(next)) if is_delimiter(next) => cursor.reject(Reason::ReservedWord, 2),
        _ => cursor.reject(Reason::Glob, 1),
    }
}

/// Whether the unquoted expansion of `value` is exactly one field, `value`: shells start with IFS
/// at its default whatever the environment says, and a value without pattern characters is never
/// matched against file names.
fn is_plain(value: &[u8]) -> bool {
    !value.is_empty()
        && value
            .iter()
            .all(|&byte| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'?' | b'[' | b'\\' | b'~'))
}

/// Whether one of the items in `records` assigns `name`.
fn is_assigned(records: &[u8], name: &[u8]) -> bool {
    crate::script::assignments_in(records)
        .any(|text| text.to_bytes().strip_prefix(name).is_some_and(|rest| rest.first() == Some(&b'=')))
}

/// bash expands `{a,b}` and `{1..9}`. The braces of one word are literal when neither `,` nor `..`
/// follows the first of them, and no quote or expansion hides one.
fn check_braces(cursor: &Cursor<'_>) -> Result<(), Rejection> {
    let rest = cursor.line.get(cursor.at..).unwrap_or_default();
    let len = rest.iter().position(|&byte| is_delimiter(byte)).unwrap_or(rest.len());
    let word = rest.get(..len).unwrap_or_default();
    let suspicious = word.iter().any(|byte| matches!(byte, b',' | b'\'' | b'"' | b'\\' | b'$' | b'`'))
        || word.windows(2).any(|pair| pair == b"..");
    if suspicious { Err(cursor.reject(Reason::BraceExpansion, len)) } else { Ok(()) }
}
