//! The grammar: and-or lists, pipelines, simple commands.
//!
//! It accepts only text that every supported shell reads alike; the first other thing ends the
//! analysis.

use crate::environment::Environment;
use crate::reason::{Reason, Rejection, Span};
use crate::script::{CommandKind, Connector, Script, Writer};
use crate::traits::{ReplacesShell, ShellKind, ShellTraits};
use crate::word::{Cursor, Lexer};

/// The analysis without the check of the environment.
pub(crate) fn analyze_unchecked<'b>(
    line: &[u8],
    environment: &dyn Environment,
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
    // This leaves bash's parser in a state that lasts where bash becomes the interpreter of a
    // script without `#!`.
    if shell.kind() == ShellKind::Bash && line.ends_with(b"\\\n") {
        return Err(Rejection::at(Reason::Continuation, line.len() - 2, line.len()));
    }
    parser.list()?;
    parser.mark_last()?;
    Ok(parser.out.finish())
}

/// The facts that decide whether the last command takes the shell's place.
#[derive(Default)]
struct Shape {
    /// Whether the pipeline before the last, on the same line, was joined to the last one by `&&`
    /// or `||` after a `;`: bash then sees a list whose last element is itself a list.
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

pub(crate) struct Parser<'a, 'l, 'b, E: ?Sized> {
    pub(crate) cursor: Cursor<'l>,
    pub(crate) lexer: Lexer<'a, E>,
    pub(crate) out: Writer<'b>,
    last: Option<Last>,
    shape: Shape,
    /// bash: no lone simple command was run yet that set `_`.
    keeps_underscore: bool,
    /// The command that may or may not have set `_`.
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
                    // Do not forget the last pipeline: only this newline may follow it.
                    self.shape.semicolon_in_line = false;
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

    /// Steps over an operator of `len` bytes. After it a line continuation may hide that the
    /// operator goes on.
    pub(crate) fn operator(&mut self, len: usize) -> Result<(), Rejection> {
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
    pub(crate) fn skip_blanks(&mut self) -> Result<(), Rejection> {
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

    /// Skips blanks, comments and newlines. Returns whether there was a newline.
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
        let bash = self.lexer.shell.kind() == ShellKind::Bash;
        if let Some(span) = self.underscore_doubt.filter(|_| bash) {
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
            last = self.command(self.keeps_underscore)?;
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
                // bash has laid out the environment for a program by now. It appends OLDPWD to it
                // instead of inserting it at its place (builtins/cd.def, `setpwd`:
                // `update_export_env_inplace`).
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
            // Only the very first pipeline is certain to run, and so to set `_`.
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
                // bash tests whether its parser has consumed the string, the newline that ended the
                // command included.
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
