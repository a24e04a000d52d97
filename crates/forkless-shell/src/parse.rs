//! The grammar: and-or lists, pipelines, simple commands.
//!
//! Only what every supported shell reads alike is accepted; the first thing that is not ends the analysis.

use crate::environment::Environment;
use crate::names;
use crate::reason::{Reason, Rejection, Span};
use crate::script::{
    CommandKind, Connector, ITEM_ASSIGNMENT, ITEM_REDIRECTION, ITEM_WORD, RedirectionCode, Script, Writer,
};
use crate::traits::{ReplacesShell, ShellKind, ShellTraits};
use crate::word::{Cursor, Lexer, Place};

/// More assignments than this before one command are left to the shell: each is compared with all others, and
/// bash enlarges the table whose order it exports them in.
const MAX_ASSIGNMENTS: usize = 7;

/// The analysis without the check of the environment.
pub(crate) fn analyze_unchecked<'b, E: Environment + ?Sized>(
    line: &[u8],
    environment: &E,
    shell: &ShellTraits,
    buf: &'b mut [u8],
) -> Result<Script<'b>, Rejection> {
    let mut parser = Parser {
        cursor: Cursor { line, at: 0 },
        lexer: Lexer { environment, shell, assigned: None },
        out: Writer::new(buf),
        last: None,
        shape: Shape::default(),
        keeps_underscore: true,
        underscore_doubt: None,
        ran_program: false,
        has_previous: false,
    };
    if matches!(line.first(), Some(b'-' | b'+')) {
        return Err(Rejection::at(Reason::ShellOption, 0, 1));
    }
    parser.list()?;
    parser.mark_last()?;
    Ok(parser.out.finish())
}

/// What decides whether the last command takes the shell's place.
#[derive(Default)]
struct Shape {
    /// Whether the pipeline before the last, on the same line, was joined to the last one by `&&` or `||` after a `;`:
    /// bash then sees a list whose last element is itself a list.
    nested: bool,
    /// Whether a `;` was seen in this line.
    semicolon_in_line: bool,
}

/// The last pipeline read.
struct Last {
    record: usize,
    is_simple: bool,
    has_redirections: bool,
    kind: CommandKind,
    /// Where the text after the newline that ended it begins.
    next_line: Option<usize>,
}

/// What was learnt of one command.
struct Parsed {
    kind: CommandKind,
    has_redirections: bool,
    end: usize,
}

struct Parser<'a, 'l, 'b, E: ?Sized> {
    cursor: Cursor<'l>,
    lexer: Lexer<'a, E>,
    out: Writer<'b>,
    last: Option<Last>,
    shape: Shape,
    /// bash: no lone simple command was run yet, and none set `_`.
    keeps_underscore: bool,
    /// The command that may or may not have done so.
    underscore_doubt: Option<Span>,
    /// A lone program came before.
    ran_program: bool,
    /// The line began with `cd`: OLDPWD has its place.
    has_previous: bool,
}

impl<E: Environment + ?Sized> Parser<'_, '_, '_, E> {
    fn list(&mut self) -> Result<(), Rejection> {
        let mut connector = Connector::Always;
        loop {
            if connector == Connector::Always {
                if self.skip_lines()? {
                    self.shape = Shape::default();
                }
                if self.cursor.peek().is_none() {
                    return Ok(());
                }
            } else {
                self.skip_lines()?;
            }
            self.pipeline(connector)?;
            self.skip_blanks()?;
            connector = match self.cursor.peek() {
                None => return Ok(()),
                Some(b'\n') => Connector::Always,
                Some(b';') => {
                    self.operator(1)?;
                    if self.cursor.peek() == Some(b';') {
                        return Err(self.cursor.reject(Reason::Syntax, 1));
                    }
                    self.shape.semicolon_in_line = true;
                    Connector::Always
                }
                Some(b'&') if self.cursor.peek_at(1) == Some(b'&') => {
                    self.operator(2)?;
                    Connector::And
                }
                Some(b'|') if self.cursor.peek_at(1) == Some(b'|') => {
                    self.operator(2)?;
                    Connector::Or
                }
                Some(b'&') => return Err(self.cursor.reject(Reason::Background, 1)),
                Some(b'(' | b')') => return Err(self.cursor.reject(Reason::Parenthesis, 1)),
                Some(_) => return Err(self.cursor.reject(Reason::Syntax, 1)),
            };
        }
    }

    /// Steps over an operator of `len` bytes. After it a line continuation may hide that the operator goes on.
    fn operator(&mut self, len: usize) -> Result<(), Rejection> {
        self.cursor.at += len;
        let mut ahead = 0;
        while self.cursor.line.get(self.cursor.at + ahead..).is_some_and(|rest| rest.starts_with(b"\\\n")) {
            ahead += 2;
        }
        if ahead > 0 && matches!(self.cursor.peek_at(ahead), Some(b';' | b'&' | b'|' | b'<' | b'>' | b'-')) {
            return Err(self.cursor.reject(Reason::Continuation, 2));
        }
        Ok(())
    }

    /// Skips blanks, line continuations and a comment, up to the newline that ends it.
    fn skip_blanks(&mut self) -> Result<(), Rejection> {
        loop {
            match self.cursor.peek() {
                Some(b' ' | b'\t') => self.cursor.at += 1,
                Some(b'\\') if self.cursor.peek_at(1) == Some(b'\n') => self.cursor.at += 2,
                Some(b'#') => {
                    if self.cursor.follows_continuation() {
                        return Err(self.cursor.reject(Reason::Continuation, 1));
                    }
                    let rest = self.cursor.line.get(self.cursor.at..).unwrap_or_default();
                    if let Some(nul) = rest.iter().position(|&byte| byte == 0) {
                        return Err(Rejection::at(
                            Reason::Nul,
                            self.cursor.at + nul,
                            self.cursor.at + nul + 1,
                        ));
                    }
                    self.cursor.at += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    /// Skips blanks, comments and newlines; whether there was a newline.
    fn skip_lines(&mut self) -> Result<bool, Rejection> {
        let mut newline = false;
        loop {
            self.skip_blanks()?;
            if self.cursor.peek() != Some(b'\n') {
                return Ok(newline);
            }
            newline = true;
            self.cursor.at += 1;
            if let Some(last) = &mut self.last {
                last.next_line.get_or_insert(self.cursor.at);
            }
        }
    }

    fn pipeline(&mut self, connector: Connector) -> Result<(), Rejection> {
        let start = self.cursor.at;
        if let Some(span) = self.underscore_doubt
            && self.lexer.shell.kind() == ShellKind::Bash
        {
            return Err(Rejection::at(Reason::ShellVariable, span.start, span.end));
        }
        let record = self.out.begin_pipeline()?;
        let negated = self.cursor.peek() == Some(b'!')
            && matches!(
                self.cursor.peek_at(1),
                None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>')
            );
        if negated {
            if !matches!(self.cursor.peek_at(1), Some(b' ' | b'\t')) {
                return Err(self.cursor.reject(Reason::Negation, 1));
            }
            self.cursor.at += 1;
            self.skip_blanks()?;
        }
        let mut stages = 0;
        let mut last;
        loop {
            let command_start = self.cursor.at;
            last = self.command()?;
            stages += 1;
            let is_pipe = self.cursor.peek() == Some(b'|') && self.cursor.peek_at(1) != Some(b'|');
            let is_stage = is_pipe || stages > 1;
            if is_stage && last.kind != CommandKind::External {
                return Err(Rejection::at(Reason::BuiltinOperand, command_start, last.end));
            }
            if !is_pipe {
                break;
            }
            if self.cursor.peek_at(1) == Some(b'&') {
                return Err(self.cursor.reject(Reason::Syntax, 2));
            }
            self.operator(1)?;
            self.skip_lines()?;
        }
        if self.lexer.shell.kind() == ShellKind::Bash && stages == 1 {
            match last.kind {
                // bash has laid out the environment for a program by now, and appends OLDPWD to it instead of putting
                // it in its place (builtins/cd.def, `setpwd`: `update_export_env_inplace`).
                CommandKind::ChangeDirectory if self.last.is_none() => self.has_previous = true,
                CommandKind::ChangeDirectory if self.ran_program && !self.has_previous => {
                    return Err(Rejection::at(Reason::BuiltinOperand, start, last.end));
                }
                CommandKind::External => self.ran_program = true,
                _ => {}
            }
        }
        if negated && last.kind == CommandKind::Exec {
            return Err(Rejection::at(Reason::BuiltinOperand, start, last.end));
        }
        self.out.end_pipeline(record, connector, negated, stages, Span { start, end: last.end });
        if last.kind == CommandKind::Exec {
            self.out.mark_replaces_shell(record);
        }
        self.shape.nested = self.shape.semicolon_in_line && connector != Connector::Always;
        if stages == 1 && self.keeps_underscore {
            // Whether it runs, and sets `_`, is known only for the first pipeline of all.
            if connector != Connector::Always && self.lexer.environment.variable(b"_").is_some() {
                self.underscore_doubt = Some(Span { start, end: last.end });
            }
            self.keeps_underscore = false;
        }
        self.last = Some(Last {
            record,
            is_simple: stages == 1 && !negated,
            has_redirections: last.has_redirections,
            kind: last.kind,
            next_line: None,
        });
        Ok(())
    }

    fn command(&mut self) -> Result<Parsed, Rejection> {
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
        self.out.end_command(record, kind, self.keeps_underscore, words, Span { start, end });
        Ok(Parsed { kind, has_redirections, end })
    }

    /// Reads a word of a command: an assignment, its name, or an argument.
    fn next_word(&mut self, command: &mut Words, items: usize) -> Result<(), Rejection> {
        let start = self.cursor.at;
        let place = if command.name.is_none() { Place::Command } else { Place::Argument };
        let before = self.out.len();
        // Up to the command's name only: what is searched for each expansion must not grow with the arguments.
        if command.assignments > 0 && command.name.is_none() {
            self.lexer.assigned = Some((items, before));
        }
        let item = self.out.begin_item()?;
        let word = self.lexer.word(&mut self.cursor, place, &mut self.out)?;
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
            if !self.lexer.environment.variable(b"PATH").is_some_and(is_absolute_path_list) {
                return reject(Reason::SearchPath);
            }
        }
        Ok(())
    }

    /// Decides what the command is once all of it is read.
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
        // `>&2` is followed by its operand at once, but blanks are allowed; a comment or the end is an error.
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
        let word = self.lexer.word(&mut self.cursor, Place::Target, &mut self.out)?;
        let reject = |reason, end| Err(Rejection::at(reason, start, end));
        let end = self.cursor.at;
        // `>a>b` is fine, `>2>b` is not: shells disagree on whether the 2 is the target or the next descriptor.
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

    /// Marks the last command if this shell would exec it without forking.
    fn mark_last(&mut self) -> Result<(), Rejection> {
        let Some(last) = &self.last else { return Ok(()) };
        if last.kind != CommandKind::External || !last.is_simple {
            return Ok(());
        }
        let replaces = match self.lexer.shell.replaces_shell {
            ReplacesShell::Never => false,
            ReplacesShell::AtEndOfInput => last.next_line.is_none(),
            ReplacesShell::WhereBashSuppressesFork => {
                // bash tests whether its parser has consumed the string, the newline that ended the command included.
                let is_last_line = last.next_line.is_none_or(|at| at == self.cursor.line.len());
                is_last_line && !last.has_redirections && !self.shape.nested
            }
            ReplacesShell::KnownForLoneCommand => {
                if last.record > 0 || last.next_line.is_some() {
                    return Err(Rejection::whole(Reason::UnknownShell));
                }
                !last.has_redirections
            }
        };
        if replaces {
            self.out.mark_replaces_shell(last.record);
        }
        Ok(())
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

/// Locales that exist everywhere, so that bash does not warn when it switches to them.
fn is_portable_locale(value: &[u8]) -> bool {
    matches!(value, b"" | b"C" | b"POSIX")
}

/// Whether opening this path in another process than the command itself opens something else, or bash treats it
/// specially (`/dev/tcp/HOST/PORT`).
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
