//! The result of an analysis, laid out in the caller's buffer: what is written there, and how it is read back.
//!
//! One stream of records in source order: a pipeline header, for each of its stages a command header, for each command
//! its items (words, assignments, redirections). Headers carry the length of what follows, so that iterating needs
//! neither recursion nor memory. Nothing outside this file knows the layout.

use core::ffi::CStr;

use crate::reason::{Reason, Rejection, Span};

const PIPELINE_HEADER: usize = 20;
const COMMAND_HEADER: usize = 20;
const ITEM_HEADER: usize = 8;

pub(crate) const ITEM_WORD: u8 = b'w';
pub(crate) const ITEM_ASSIGNMENT: u8 = b'a';
pub(crate) const ITEM_REDIRECTION: u8 = b'r';

const FLAG_NEGATED: u8 = 1;
const FLAG_REPLACES_SHELL: u8 = 2;
const FLAG_KEEPS_UNDERSCORE: u8 = 4;

/// How a pipeline follows what came before it.
///
/// ```
/// # use forkless_shell::{Connector, ShellTraits, analyze};
/// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
/// let script = analyze(b"make && ls || date; id", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// let connectors = script.pipelines().map(|pipeline| pipeline.connector());
/// assert!(connectors.eq([Connector::Always, Connector::And, Connector::Or, Connector::Always]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connector {
    /// After `;`, a newline, or nothing: run always.
    Always,
    /// After `&&`: run when the status so far is zero.
    And,
    /// After `||`: run when the status so far is not zero.
    Or,
}

/// What a simple command is.
///
/// ```
/// # use forkless_shell::{CommandKind, ShellTraits, analyze};
/// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
/// let script = analyze(b"cd /; false || exit 3", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// let kinds = script.pipelines().map(|pipeline| pipeline.stages().next().unwrap().kind());
/// assert!(kinds.eq([CommandKind::ChangeDirectory, CommandKind::Status(1), CommandKind::Exit(Some(3))]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// A program to run: its words are `argv`.
    External,
    /// `exec PROGRAM`: as [`External`](CommandKind::External) (the words are without the `exec`), and nothing after it
    /// is ever run.
    Exec,
    /// `true`, `:` or `false`: nothing to run, this status.
    Status(u8),
    /// `exit` (the status so far) or `exit N`: nothing after it is run.
    Exit(Option<u8>),
    /// `cd DIRECTORY`: see [`Command::operand`] and [`resolve_directory`](crate::resolve_directory).
    ChangeDirectory,
}

impl CommandKind {
    fn encode(self) -> (u8, u8) {
        match self {
            CommandKind::External => (0, 0),
            CommandKind::Exec => (1, 0),
            CommandKind::Status(status) => (2, status),
            CommandKind::Exit(None) => (3, 0),
            CommandKind::Exit(Some(status)) => (4, status),
            CommandKind::ChangeDirectory => (5, 0),
        }
    }

    fn decode(kind: u8, status: u8) -> Self {
        match kind {
            1 => CommandKind::Exec,
            2 => CommandKind::Status(status),
            3 => CommandKind::Exit(None),
            4 => CommandKind::Exit(Some(status)),
            5 => CommandKind::ChangeDirectory,
            _ => CommandKind::External,
        }
    }
}

/// What a redirection does with its descriptor.
///
/// ```
/// # use forkless_shell::{RedirectionKind, ShellTraits, analyze};
/// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
/// let script = analyze(b"sort <in >>out 2>&1", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// let kinds = script.single().unwrap().redirections().map(|redirection| redirection.kind);
/// assert!(kinds.eq([
///     RedirectionKind::Read(c"in"),
///     RedirectionKind::Append(c"out"),
///     RedirectionKind::Duplicate(1),
/// ]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RedirectionKind<'b> {
    /// `<`: `O_RDONLY`.
    Read(&'b CStr),
    /// `>` and `>|`: `O_WRONLY | O_CREAT | O_TRUNC`, mode 0666.
    Write(&'b CStr),
    /// `>>`: `O_WRONLY | O_CREAT | O_APPEND`, mode 0666.
    Append(&'b CStr),
    /// `<>`: `O_RDWR | O_CREAT`, mode 0666.
    ReadWrite(&'b CStr),
    /// `<&N` and `>&N`: a duplicate of descriptor N as the redirections before this one left it.
    Duplicate(u8),
    /// `<&-` and `>&-`: closed.
    Close,
}

/// One redirection; those of a command take effect in order, after the pipeline's own.
///
/// ```
/// # use forkless_shell::{Redirection, RedirectionKind, ShellTraits, analyze};
/// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
/// let script = analyze(b"ls 3<&-", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// let close = Redirection { descriptor: 3, kind: RedirectionKind::Close };
/// assert_eq!(script.single().unwrap().redirections().next(), Some(close));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Redirection<'b> {
    /// The descriptor it is about, 0 to 9.
    pub descriptor: u8,
    /// What becomes of it.
    pub kind: RedirectionKind<'b>,
}

/// How a redirection is written in the buffer.
#[derive(Clone, Copy)]
pub(crate) enum RedirectionCode {
    Read,
    Write,
    Append,
    ReadWrite,
    Duplicate,
    Close,
}

/// Writes records into the caller's buffer.
pub(crate) struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
}

impl<'b> Writer<'b> {
    pub(crate) fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, byte: u8) -> Result<(), Rejection> {
        let slot = self.buf.get_mut(self.len).ok_or(Rejection::whole(Reason::BufferTooSmall))?;
        *slot = byte;
        self.len += 1;
        Ok(())
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), Rejection> {
        let end = self.len.checked_add(bytes.len()).ok_or(Rejection::whole(Reason::BufferTooSmall))?;
        let slot = self.buf.get_mut(self.len..end).ok_or(Rejection::whole(Reason::BufferTooSmall))?;
        slot.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// What was written since `start`.
    pub(crate) fn since(&self, start: usize) -> &[u8] {
        self.buf.get(start..self.len).unwrap_or_default()
    }

    /// What was written from `start` to `end`.
    pub(crate) fn range(&self, start: usize, end: usize) -> &[u8] {
        self.buf.get(start..end).unwrap_or_default()
    }

    /// Forgets what was written since `start`.
    pub(crate) fn truncate(&mut self, start: usize) {
        self.len = self.len.min(start);
    }

    fn reserve(&mut self, bytes: usize) -> Result<usize, Rejection> {
        let start = self.len;
        let end = start + bytes;
        self.buf.get_mut(start..end).ok_or(Rejection::whole(Reason::BufferTooSmall))?.fill(0);
        self.len = end;
        Ok(start)
    }

    fn patch(&mut self, at: usize, bytes: &[u8]) {
        if let Some(slot) = self.buf.get_mut(at..at + bytes.len()) {
            slot.copy_from_slice(bytes);
        }
    }

    // The analysis refuses lines of 2^31 bytes and more, and what a record holds is at most a few times its source.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "lengths are bounded by the check on the line's length"
    )]
    fn patch_u32(&mut self, at: usize, value: usize) {
        self.patch(at, &(value as u32).to_le_bytes());
    }

    pub(crate) fn begin_item(&mut self) -> Result<usize, Rejection> {
        self.reserve(ITEM_HEADER)
    }

    /// Ends the item begun at `at`, returning where its payload starts.
    pub(crate) fn end_item(&mut self, at: usize, tag: u8, first: u8, second: u8) -> Result<(), Rejection> {
        let payload = self.len - at - ITEM_HEADER;
        self.push(0)?;
        self.patch(at, &[tag, first, second]);
        self.patch_u32(at + 4, payload);
        Ok(())
    }

    /// Where the item begins whose payload begins at `payload`.
    pub(crate) fn item_of(payload: usize) -> usize {
        payload.saturating_sub(ITEM_HEADER)
    }

    pub(crate) fn begin_command(&mut self) -> Result<usize, Rejection> {
        self.reserve(COMMAND_HEADER)
    }

    pub(crate) fn end_command(
        &mut self,
        at: usize,
        kind: CommandKind,
        keeps_underscore: bool,
        words: usize,
        span: Span,
    ) {
        let (kind, status) = kind.encode();
        self.patch(at, &[kind, status, if keeps_underscore { FLAG_KEEPS_UNDERSCORE } else { 0 }]);
        self.patch_u32(at + 4, words);
        self.patch_u32(at + 8, span.start);
        self.patch_u32(at + 12, span.end);
        self.patch_u32(at + 16, self.len - at - COMMAND_HEADER);
    }

    pub(crate) fn begin_pipeline(&mut self) -> Result<usize, Rejection> {
        self.reserve(PIPELINE_HEADER)
    }

    pub(crate) fn end_pipeline(
        &mut self,
        at: usize,
        connector: Connector,
        negated: bool,
        stages: usize,
        span: Span,
    ) {
        let connector = match connector {
            Connector::Always => 0,
            Connector::And => 1,
            Connector::Or => 2,
        };
        self.patch(at, &[connector, if negated { FLAG_NEGATED } else { 0 }]);
        self.patch_u32(at + 4, stages);
        self.patch_u32(at + 8, span.start);
        self.patch_u32(at + 12, span.end);
        self.patch_u32(at + 16, self.len - at - PIPELINE_HEADER);
    }

    /// Marks the only stage of the pipeline at `at` as taking the shell's place.
    pub(crate) fn mark_replaces_shell(&mut self, at: usize) {
        if let Some(flags) = self.buf.get_mut(at + PIPELINE_HEADER + 2) {
            *flags |= FLAG_REPLACES_SHELL;
        }
    }

    pub(crate) fn finish(self) -> Script<'b> {
        let buf: &'b [u8] = self.buf;
        Script { records: buf.get(..self.len).unwrap_or_default() }
    }
}

fn u32_at(records: &[u8], at: usize) -> Option<usize> {
    let bytes = records.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

/// A line that can be run without a shell: and-or lists of pipelines, in order.
///
/// Empty (a line of blanks and comments) means: nothing to run, status 0.
///
/// ```
/// # use forkless_shell::{ShellTraits, analyze};
/// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
/// let script = analyze(b"ls | sort && date", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// assert_eq!((script.pipelines().count(), script.program_count()), (2, 3));
/// let nothing = analyze(b" # a comment", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// assert!(nothing.pipelines().next().is_none());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Script<'b> {
    records: &'b [u8],
}

impl<'b> Script<'b> {
    /// The pipelines in order.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"ls | sort && date", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert!(script.pipelines().map(|pipeline| pipeline.stage_count()).eq([2, 1]));
    /// ```
    #[must_use]
    pub fn pipelines(&self) -> Pipelines<'b> {
        Pipelines { records: self.records }
    }

    /// The line as a single command, when it is one: one stage, not negated.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let env: [&[u8]; 1] = [b"PATH=/bin"];
    /// let mut buf = [0; 512];
    /// let script = analyze(b"ls -l", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert_eq!(script.single().unwrap().words().count(), 2);
    /// let script = analyze(b"ls && ls", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert!(script.single().is_none());
    /// ```
    #[must_use]
    pub fn single(&self) -> Option<Command<'b>> {
        let mut pipelines = self.pipelines();
        let only = pipelines.next()?;
        if pipelines.next().is_some() || only.stage_count() != 1 || only.is_negated() {
            return None;
        }
        only.stages().next()
    }

    /// How many of its commands are programs; of an and-or list not all of them need run.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"cd /tmp && ls | sort", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert_eq!(script.program_count(), 2); // not cd
    /// ```
    #[must_use]
    pub fn program_count(&self) -> usize {
        self.pipelines().flat_map(|pipeline| pipeline.stages()).filter(Command::is_program).count()
    }

    /// How many bytes of the buffer it takes.
    ///
    /// ```
    /// # use forkless_shell::{Reason, ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let size = analyze(b"ls -l", &env, &ShellTraits::DASH, &mut buf).unwrap().size();
    /// let fits = |len| analyze(b"ls -l", &env, &ShellTraits::DASH, &mut vec![0; len]).is_ok();
    /// assert!(!fits(size - 1) && fits(512));
    /// ```
    #[must_use]
    pub fn size(&self) -> usize {
        self.records.len()
    }
}

/// Iterator over the pipelines of a [`Script`].
///
/// ```
/// # use forkless_shell::{Pipelines, ShellTraits, analyze};
/// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
/// let script = analyze(b"ls; date", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// let mut left: Pipelines = script.pipelines();
/// left.next();
/// assert_eq!((left.clone().count(), left.next().unwrap().span().start), (1, 4));
/// ```
#[derive(Debug, Clone)]
pub struct Pipelines<'b> {
    records: &'b [u8],
}

impl<'b> Iterator for Pipelines<'b> {
    type Item = Pipeline<'b>;

    fn next(&mut self) -> Option<Pipeline<'b>> {
        let end = PIPELINE_HEADER + u32_at(self.records, 16)?;
        let record = self.records.get(..end)?;
        self.records = self.records.get(end..)?;
        Some(Pipeline { record })
    }
}

/// One or more commands connected by `|`.
///
/// ```
/// # use forkless_shell::{ShellTraits, analyze};
/// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
/// let line = b"ls | sort -u";
/// let script = analyze(line, &env, &ShellTraits::DASH, &mut buf).unwrap();
/// let pipeline = script.pipelines().next().unwrap();
/// assert!(pipeline.stages().map(|stage| stage.span().of(line)).eq([&b"ls"[..], b"sort -u"]));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Pipeline<'b> {
    record: &'b [u8],
}

impl<'b> Pipeline<'b> {
    /// When it is run.
    ///
    /// ```
    /// # use forkless_shell::{Connector, ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"make || date", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert_eq!(script.pipelines().last().unwrap().connector(), Connector::Or);
    /// ```
    #[must_use]
    pub fn connector(&self) -> Connector {
        match self.record.first() {
            Some(1) => Connector::And,
            Some(2) => Connector::Or,
            _ => Connector::Always,
        }
    }

    /// Whether `!` stands before it: a status of zero becomes 1, any other 0.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"! cmp a b; ls", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert!(script.pipelines().map(|pipeline| pipeline.is_negated()).eq([true, false]));
    /// ```
    #[must_use]
    pub fn is_negated(&self) -> bool {
        self.record.get(1).is_some_and(|flags| flags & FLAG_NEGATED != 0)
    }

    /// How many commands it has, at least one.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"ls | sort | wc", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert_eq!(script.pipelines().next().unwrap().stage_count(), 3);
    /// ```
    #[must_use]
    pub fn stage_count(&self) -> usize {
        u32_at(self.record, 4).unwrap_or(0)
    }

    /// Its source, `!` included. `&line[span.start..]` is a line that does what is left to do from here on.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let line = b"make && ls | wc; date";
    /// let script = analyze(line, &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// let span = script.pipelines().nth(1).unwrap().span();
    /// assert_eq!((span.of(line), &line[span.start..]), (&b"ls | wc"[..], &b"ls | wc; date"[..]));
    /// ```
    #[must_use]
    pub fn span(&self) -> Span {
        Span { start: u32_at(self.record, 8).unwrap_or(0), end: u32_at(self.record, 12).unwrap_or(0) }
    }

    /// Its commands, first to last.
    ///
    /// ```
    /// # use forkless_shell::{Command, ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"ls | wc -l", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// let stages = script.pipelines().next().unwrap().stages();
    /// assert!(stages.flat_map(|stage| stage.words()).eq([c"ls", c"wc", c"-l"]));
    /// ```
    #[must_use]
    pub fn stages(&self) -> Stages<'b> {
        Stages { records: self.record.get(PIPELINE_HEADER..).unwrap_or_default() }
    }
}

/// Iterator over the commands of a [`Pipeline`].
///
/// ```
/// # use forkless_shell::{ShellTraits, Stages, analyze};
/// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
/// let script = analyze(b"ls | wc", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// let mut left: Stages = script.pipelines().next().unwrap().stages();
/// left.next();
/// assert!(left.next().unwrap().words().eq([c"wc"]) && left.next().is_none());
/// ```
#[derive(Debug, Clone)]
pub struct Stages<'b> {
    records: &'b [u8],
}

impl<'b> Iterator for Stages<'b> {
    type Item = Command<'b>;

    fn next(&mut self) -> Option<Command<'b>> {
        let end = COMMAND_HEADER + u32_at(self.records, 16)?;
        let record = self.records.get(..end)?;
        self.records = self.records.get(end..)?;
        Some(Command { record })
    }
}

/// A simple command.
///
/// ```
/// # use forkless_shell::{ShellTraits, analyze};
/// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
/// let script = analyze(b"CC=gcc make all >log", &env, &ShellTraits::DASH, &mut buf).unwrap();
/// let make = script.single().unwrap();
/// assert!(make.is_program() && make.words().eq([c"make", c"all"]));
/// assert_eq!((make.assignments().next(), make.redirections().count()), (Some(c"CC=gcc"), 1));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Command<'b> {
    record: &'b [u8],
}

impl<'b> Command<'b> {
    /// What it is.
    ///
    /// ```
    /// # use forkless_shell::{CommandKind, ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"exec ls", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert_eq!(script.single().unwrap().kind(), CommandKind::Exec);
    /// ```
    #[must_use]
    pub fn kind(&self) -> CommandKind {
        match self.record {
            [kind, status, ..] => CommandKind::decode(*kind, *status),
            _ => CommandKind::External,
        }
    }

    /// Whether a program is to be run: [`External`](CommandKind::External) or [`Exec`](CommandKind::Exec).
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"true && ls", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert!(script.pipelines().flat_map(|p| p.stages()).map(|stage| stage.is_program()).eq([false, true]));
    /// ```
    #[must_use]
    pub fn is_program(&self) -> bool {
        matches!(self.kind(), CommandKind::External | CommandKind::Exec)
    }

    /// Whether this shell would replace itself by the program instead of waiting for it.
    ///
    /// If so, a death by signal is the line's own; if not, it becomes the status 128 + n, with
    /// [`signal_message`](crate::ShellTraits::signal_message) on the standard error the command had.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let mut replaces = |line: &str, shell| {
    ///     let script = analyze(line.as_bytes(), &env, &shell, &mut buf).unwrap();
    ///     script.pipelines().last().unwrap().stages().last().unwrap().replaces_shell()
    /// };
    /// assert!(replaces("ls", ShellTraits::BASH) && !replaces("ls | wc", ShellTraits::BASH));
    /// assert!(!replaces("ls", ShellTraits::DASH) && replaces("exec ls", ShellTraits::DASH));
    /// ```
    #[must_use]
    pub fn replaces_shell(&self) -> bool {
        self.record.get(2).is_some_and(|flags| flags & FLAG_REPLACES_SHELL != 0)
    }

    /// Whether bash's `_` is still the environment's when this command begins.
    pub(crate) fn keeps_underscore(&self) -> bool {
        self.record.get(2).is_some_and(|flags| flags & FLAG_KEEPS_UNDERSCORE != 0)
    }

    /// Its source, assignments and redirections included: a line that does what this stage does.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let line = b"A=1 ls -l >out | wc";
    /// let script = analyze(line, &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// let ls = script.pipelines().next().unwrap().stages().next().unwrap();
    /// assert_eq!(ls.span().of(line), b"A=1 ls -l >out");
    /// ```
    #[must_use]
    pub fn span(&self) -> Span {
        Span { start: u32_at(self.record, 8).unwrap_or(0), end: u32_at(self.record, 12).unwrap_or(0) }
    }

    /// How many words it has.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"A=1 ls -l '' >out", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert_eq!(script.single().unwrap().word_count(), 3);
    /// ```
    #[must_use]
    pub fn word_count(&self) -> usize {
        u32_at(self.record, 4).unwrap_or(0)
    }

    fn items(&self) -> Items<'b> {
        Items { records: self.record.get(COMMAND_HEADER..).unwrap_or_default() }
    }

    /// Its words: `argv` of a program; a builtin's begin with its name.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(br#"grep 'a b' "$PATH" >out"#, &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert!(script.single().unwrap().words().eq([c"grep", c"a b", c"/bin"]));
    /// ```
    pub fn words(&self) -> impl Iterator<Item = &'b CStr> + Clone + use<'b> {
        self.items().filter(|item| item.tag == ITEM_WORD).map(|item| item.text)
    }

    /// The directory of a `cd`.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 0], _) = ([], [0; 512]);
    /// let script = analyze(b"cd /usr/lib", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert_eq!(script.single().unwrap().operand(), Some(c"/usr/lib"));
    /// ```
    #[must_use]
    pub fn operand(&self) -> Option<&'b CStr> {
        if self.kind() == CommandKind::ChangeDirectory { self.words().nth(1) } else { None }
    }

    /// The `NAME=VALUE` strings before the command name, in order.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"A=1 B='2 3' env", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// assert!(script.single().unwrap().assignments().eq([c"A=1", c"B=2 3"]));
    /// ```
    pub fn assignments(&self) -> impl Iterator<Item = &'b CStr> + Clone + use<'b> {
        self.items().filter(|item| item.tag == ITEM_ASSIGNMENT).map(|item| item.text)
    }

    /// Its redirections in order.
    ///
    /// ```
    /// # use forkless_shell::{ShellTraits, analyze};
    /// # let (env, mut buf): ([&[u8]; 1], _) = ([b"PATH=/bin"], [0; 512]);
    /// let script = analyze(b"make 2>log <in", &env, &ShellTraits::DASH, &mut buf).unwrap();
    /// let redirections = script.single().unwrap().redirections();
    /// assert!(redirections.map(|redirection| redirection.descriptor).eq([2, 0]));
    /// ```
    pub fn redirections(&self) -> impl Iterator<Item = Redirection<'b>> + Clone + use<'b> {
        self.items().filter(|item| item.tag == ITEM_REDIRECTION).map(|item| {
            let kind = match item.second {
                code if code == RedirectionCode::Read as u8 => RedirectionKind::Read(item.text),
                code if code == RedirectionCode::Write as u8 => RedirectionKind::Write(item.text),
                code if code == RedirectionCode::Append as u8 => RedirectionKind::Append(item.text),
                code if code == RedirectionCode::ReadWrite as u8 => RedirectionKind::ReadWrite(item.text),
                code if code == RedirectionCode::Duplicate as u8 => {
                    RedirectionKind::Duplicate(item.text.to_bytes().first().map_or(0, |digit| digit - b'0'))
                }
                _ => RedirectionKind::Close,
            };
            Redirection { descriptor: item.first, kind }
        })
    }
}

#[derive(Clone, Copy)]
struct Item<'b> {
    tag: u8,
    first: u8,
    second: u8,
    text: &'b CStr,
}

/// The assignments among a command's items written so far.
pub(crate) fn assignments_in(records: &[u8]) -> impl Iterator<Item = &CStr> {
    Items { records }.filter(|item| item.tag == ITEM_ASSIGNMENT).map(|item| item.text)
}

/// The words among `records`.
pub(crate) fn words_in(records: &[u8]) -> impl Iterator<Item = &CStr> {
    Items { records }.filter(|item| item.tag == ITEM_WORD).map(|item| item.text)
}

#[derive(Clone)]
struct Items<'b> {
    records: &'b [u8],
}

impl<'b> Iterator for Items<'b> {
    type Item = Item<'b>;

    fn next(&mut self) -> Option<Item<'b>> {
        let &[tag, first, second, ..] = self.records else { return None };
        let end = ITEM_HEADER + u32_at(self.records, 4)? + 1;
        let text = CStr::from_bytes_with_nul(self.records.get(ITEM_HEADER..end)?).ok()?;
        self.records = self.records.get(end..)?;
        Some(Item { tag, first, second, text })
    }
}
