//! One simple command: assignments, words, redirections, and the kind of command they make.

use crate::environment::Environment;
use crate::names;
use crate::parse::Parser;
use crate::reason::{Reason, Rejection, Span};
use crate::script::{CommandKind, ITEM_ASSIGNMENT, ITEM_REDIRECTION, ITEM_WORD, RedirectionCode, Writer};
use crate::traits::ShellKind;
use crate::word::WordPosition;

/// A command with more assignments is left to the shell: each is compared with all others, and bash
/// enlarges the table whose order it exports them in.
const MAX_ASSIGNMENTS: usize = 7;

/// The result for one command.
pub(crate) struct Parsed {
    pub(crate) kind: CommandKind,
    pub(crate) has_redirections: bool,
    pub(crate) end: usize,
}

impl<E: Environment + ?Sized> Parser<'_, '_, '_, E> {
    pub(crate) fn command(&mut self, keeps_underscore: bool) -> Result<Parsed, Rejection> {
        let start = self.cursor.at;
        let record = self.out.begin_command()?;
        let items = self.out.len();
        self.lexer.assigned = None;
        let mut command = Words { count: 0, assignments: 0, name: None, is_exec: false };
        let mut has_redirections = false;
        let mut end = start;
        loop {
            self.skip_blanks()?;
            match self.cursor.peek() {
                None | Some(b'\n' | b';' | b'&' | b'|') => break,
                Some(b'(' | b')') => return Err(self.cursor.reject(Reason::Parenthesis, 1)),
                Some(b'<' | b'>') => {
                    let fd = if self.cursor.peek() == Some(b'<') { 0 } else { 1 };
                    self.redirection(fd)?;
                    has_redirections = true;
                }
                Some(digit @ b'0'..=b'9') if matches!(self.cursor.peek_at(1), Some(b'<' | b'>')) => {
                    self.cursor.at += 1;
                    self.redirection(digit - b'0')?;
                    has_redirections = true;
                }
                Some(_) => self.next_word(&mut command, items)?,
            }
            end = self.cursor.at;
        }
        let kind = self.classify(&command, start, end, has_redirections)?;
        let words = command.count;
        self.out.end_command(record, kind, keeps_underscore, words, Span { start, end });
        Ok(Parsed { kind, has_redirections, end })
    }

    /// Reads a word of a command: an assignment, its name, or an argument.
    fn next_word(&mut self, command: &mut Words, items: usize) -> Result<(), Rejection> {
        let start = self.cursor.at;
        let position = if command.name.is_none() { WordPosition::Command } else { WordPosition::Argument };
        let before = self.out.len();
        // Up to the command's name only: the list searched for each expansion must not grow with
        // the arguments.
        if command.assignments > 0 && command.name.is_none() {
            self.lexer.assigned = Some((items, before));
        }
        let item = self.out.begin_item()?;
        let word = self.lexer.word(&mut self.cursor, position, &mut self.out)?;
        let span = (start, self.cursor.at);
        if matches!(self.cursor.peek(), Some(b'<' | b'>'))
            && self
                .cursor
                .line
                .get(start..self.cursor.at)
                .is_some_and(|raw| raw.iter().all(u8::is_ascii_digit))
        {
            return Err(Rejection::at(Reason::DescriptorNumber, span.0, span.1));
        }
        if self.cursor.peek() == Some(b'(') {
            return Err(self.cursor.reject(Reason::Parenthesis, 1));
        }
        if let Some(name_len) = word.name_len {
            if command.is_exec {
                // After `exec` this is no assignment, but the name of a program.
                return Err(Rejection::at(Reason::BuiltinOperand, span.0, span.1));
            }
            let text = self.out.since(word.payload);
            let name = text.get(..name_len).unwrap_or_default();
            let value = text.get(name_len + 1..).unwrap_or_default();
            if name == b"PATH"
                || names::is_managed(name)
                || (self.lexer.shell.expands_braces() && names::is_locale(name) && !is_portable_locale(value))
            {
                return Err(Rejection::at(Reason::AssignmentEffect, span.0, span.1));
            }
            if command.assignments == MAX_ASSIGNMENTS {
                return Err(Rejection::at(Reason::TooMany, span.0, span.1));
            }
            if crate::script::assignments_in(self.out.range(items, before)).any(|other| {
                other.to_bytes().strip_prefix(name).is_some_and(|rest| rest.first() == Some(&b'='))
            }) {
                return Err(Rejection::at(Reason::AssignedTwice, span.0, span.1));
            }
            command.assignments += 1;
            return self.out.end_item(item, ITEM_ASSIGNMENT, 0, 0);
        }
        if command.name.is_none() {
            let text = self.out.since(word.payload);
            if text == b"exec" && !command.is_exec {
                if command.assignments > 0 {
                    return Err(Rejection::at(Reason::BuiltinOperand, span.0, span.1));
                }
                command.is_exec = true;
                self.out.truncate(before);
                return Ok(());
            }
            self.check_name(text, command.is_exec, span)?;
            command.name = Some((word.payload, self.out.len(), span));
        }
        command.count += 1;
        self.out.end_item(item, ITEM_WORD, 0, 0)
    }

    /// Refuses command names that are not the names of programs.
    fn check_name(&self, name: &[u8], is_exec: bool, span: (usize, usize)) -> Result<(), Rejection> {
        let reject = |reason| Err(Rejection::at(reason, span.0, span.1));
        if name.is_empty() {
            return reject(Reason::EmptyCommand);
        }
        if is_exec {
            // `exec` looks for programs only, but `exec -a` is an option to bash.
            if name.starts_with(b"-") {
                return reject(Reason::BuiltinOperand);
            }
            // bash puts the current directory before it (builtins/exec.def, `full_pathname`). A
            // script sees that in `$0`.
            if self.lexer.shell.kind() == ShellKind::Bash && name.contains(&b'/') && !name.starts_with(b"/") {
                return reject(Reason::BuiltinOperand);
            }
        } else {
            if names::is_reserved_word(name) {
                return reject(Reason::ReservedWord);
            }
            if names::is_builtin(name) {
                return reject(Reason::Builtin);
            }
            if name.starts_with(b"%") {
                return reject(Reason::JobSpecification);
            }
        }
        if !name.contains(&b'/') && !is_carried_out(name) {
            if self.lexer.shell.may_run_applets {
                return reject(Reason::Applet);
            }
            // bash joins no second slash to a directory that ends with one (lib/sh/makepath.c).
            let joins_slashes = self.lexer.shell.kind() != ShellKind::Bash;
            let is_plain = |path| is_absolute_path_list(path) && (joins_slashes || !has_trailing_slash(path));
            if !self.lexer.environment.variable(b"PATH").is_some_and(is_plain) {
                return reject(Reason::SearchPath);
            }
        }
        Ok(())
    }

    /// The kind of the command, once all of it is read.
    fn classify(
        &self,
        command: &Words,
        start: usize,
        end: usize,
        has_redirections: bool,
    ) -> Result<CommandKind, Rejection> {
        let reject = |reason| Err(Rejection::at(reason, start, end));
        let Some((from, to, name_span)) = command.name else {
            if command.is_exec {
                return reject(Reason::BuiltinOperand);
            }
            if command.assignments > 0 {
                return reject(Reason::AssignmentOnly);
            }
            if has_redirections {
                return reject(Reason::RedirectionOnly);
            }
            return Err(self.cursor.reject(Reason::Syntax, 1));
        };
        if command.is_exec {
            return Ok(CommandKind::Exec);
        }
        let name = self.out.range(from, to);
        if !is_carried_out(name) {
            return Ok(CommandKind::External);
        }
        if command.assignments > 0 || has_redirections {
            return reject(Reason::BuiltinOperand);
        }
        // The name's item ends with a NUL, and the next item's header precedes its text.
        let mut operands = crate::script::words_in(self.out.since(Writer::item_of(from))).skip(1);
        let operand = operands.next().map(core::ffi::CStr::to_bytes);
        let kind = match (name, operand) {
            (b"true" | b":", _) => Some(CommandKind::Status(0)),
            (b"false", _) => Some(CommandKind::Status(1)),
            (b"exit", None) => Some(CommandKind::Exit(None)),
            (b"exit", Some(status)) if command.count == 2 => {
                parse_status(status).map(|status| CommandKind::Exit(Some(status)))
            }
            (b"cd", Some(directory)) if command.count == 2 => {
                let moves = crate::directory::is_plain_operand(directory)
                    && self.lexer.environment.variable(b"CDPATH").is_none_or(<[u8]>::is_empty);
                moves.then_some(CommandKind::ChangeDirectory)
            }
            _ => None,
        };
        kind.ok_or(Rejection::at(Reason::BuiltinOperand, name_span.0, end))
    }

    /// Reads a redirection of descriptor `fd`, the cursor being on its operator.
    fn redirection(&mut self, fd: u8) -> Result<(), Rejection> {
        let operator = self.cursor.at;
        let (len, code) = if self.cursor.starts_with(b"<<") {
            return Err(self.cursor.reject(Reason::HereDocument, 2));
        } else if self.cursor.starts_with(b"<(") || self.cursor.starts_with(b">(") {
            return Err(self.cursor.reject(Reason::Parenthesis, 2));
        } else if self.cursor.starts_with(b"<&") || self.cursor.starts_with(b">&") {
            (2, RedirectionCode::Duplicate)
        } else if self.cursor.starts_with(b"<>") {
            (2, RedirectionCode::ReadWrite)
        } else if self.cursor.starts_with(b">>") {
            (2, RedirectionCode::Append)
        } else if self.cursor.starts_with(b">|") {
            (2, RedirectionCode::Write)
        } else if self.cursor.peek() == Some(b'>') {
            (1, RedirectionCode::Write)
        } else {
            (1, RedirectionCode::Read)
        };
        self.operator(len)?;
        // `>&2` is followed by its operand at once, but blanks are allowed; a comment or the end is
        // an error.
        let after = self.cursor.at;
        while matches!(self.cursor.peek(), Some(b' ' | b'\t')) || self.cursor.starts_with(b"\\\n") {
            self.cursor.at += if self.cursor.peek() == Some(b'\\') { 2 } else { 1 };
        }
        let start = self.cursor.at;
        match self.cursor.peek() {
            None | Some(b'\n' | b';' | b'&' | b'|' | b'<' | b'>') => {
                return Err(Rejection::at(Reason::Syntax, operator, after));
            }
            Some(b'#' | b'(' | b')') => return Err(self.cursor.reject(Reason::Syntax, 1)),
            _ => {}
        }
        let item = self.out.begin_item()?;
        let word = self.lexer.word(&mut self.cursor, WordPosition::Target, &mut self.out)?;
        let reject = |reason, end| Err(Rejection::at(reason, start, end));
        let end = self.cursor.at;
        // `>a>b` is fine, `>2>b` is not: shells disagree on whether the 2 is the target or the next
        // descriptor.
        if matches!(self.cursor.peek(), Some(b'<' | b'>'))
            && self.out.since(word.payload).iter().all(u8::is_ascii_digit)
        {
            return reject(Reason::DescriptorNumber, end);
        }
        if self.cursor.peek() == Some(b'(') {
            return Err(self.cursor.reject(Reason::Parenthesis, 1));
        }
        let target = self.out.since(word.payload);
        let code = if matches!(code, RedirectionCode::Duplicate) {
            match target {
                [b'0'..=b'9'] if !word.is_quoted => RedirectionCode::Duplicate,
                [b'-'] if !word.is_quoted => RedirectionCode::Close,
                _ => return reject(Reason::DuplicationOperand, end),
            }
        } else {
            if target.is_empty() || means_the_opener(target) {
                return reject(Reason::RedirectionTarget, end);
            }
            code
        };
        self.out.end_item(item, ITEM_REDIRECTION, fd, code as u8)
    }
}

/// The words of the command being read.
struct Words {
    count: usize,
    assignments: usize,
    /// Where its text is in the buffer, and where the word is in the line.
    name: Option<(usize, usize, (usize, usize))>,
    is_exec: bool,
}

/// The builtins with a result this crate knows.
fn is_carried_out(name: &[u8]) -> bool {
    matches!(name, b"true" | b":" | b"false" | b"exit" | b"cd")
}

/// `0` to `255` in its plain form; `010` and `300` are left to the shell.
fn parse_status(text: &[u8]) -> Option<u8> {
    let plain =
        matches!(text, [b'0'] | [b'1'..=b'9', ..]) && text.len() <= 3 && text.iter().all(u8::is_ascii_digit);
    if !plain {
        return None;
    }
    let value = text.iter().fold(0_u16, |value, digit| value * 10 + u16::from(digit - b'0'));
    u8::try_from(value).ok()
}

/// Whether every entry of a `PATH` is absolute; an empty entry means the current directory.
fn is_absolute_path_list(path: &[u8]) -> bool {
    path.split(|&byte| byte == b':').all(|entry| entry.first() == Some(&b'/'))
}

/// Whether a directory of a `PATH` ends with a slash.
fn has_trailing_slash(path: &[u8]) -> bool {
    path.split(|&byte| byte == b':').any(|entry| entry.ends_with(b"/"))
}

/// Locales that exist everywhere, so that bash does not warn when it switches to them.
fn is_portable_locale(value: &[u8]) -> bool {
    matches!(value, b"" | b"C" | b"POSIX")
}

/// Whether another process than the command itself, by opening this path, opens something else; or
/// bash treats it specially (`/dev/tcp/HOST/PORT`).
fn means_the_opener(path: &[u8]) -> bool {
    let mut components = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let mut previous: &[u8] = b"";
    components.any(|part| {
        let special = part == b"proc"
            || (previous == b"dev"
                && matches!(part, b"fd" | b"stdin" | b"stdout" | b"stderr" | b"tcp" | b"udp" | b"tty"));
        previous = part;
        special
    })
}
