//! The result of an analysis, laid out in the caller's buffer: the records, their writer and their
//! readers.
//!
//! One stream of records in source order: a pipeline header, for each of its stages a command
//! header, for each command its items (words, assignments, redirections). Each header has the
//! length of its record, so that an iterator needs neither recursion nor memory. Nothing outside
//! this file knows the layout.

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

/// How a pipeline follows the pipeline before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connector {
    /// After `;`, a newline, or nothing: run always.
    Always,
    /// After `&&`: run when the status so far is zero.
    And,
    /// After `||`: run when the status so far is not zero.
    Or,
}

/// The kind of a simple command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// A program to run: its words are `argv`.
    External,
    /// `exec PROGRAM`: as [`External`](CommandKind::External) (the words are without the `exec`),
    /// and nothing after it is ever run.
    Exec,
    /// `true`, `:` or `false`: nothing to run, this status.
    Status(u8),
    /// `exit` (the status so far) or `exit N`: nothing after it is run.
    Exit(Option<u8>),
    /// `cd DIRECTORY`: see [`Command::operand`] and
    /// [`resolve_directory`](crate::resolve_directory).
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

/// The effect of a redirection on its descriptor.
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

/// One redirection. The redirections of a command take effect in order, after the ends of the
/// pipeline's pipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Redirection<'b> {
    /// The descriptor, 0 to 9.
    pub descriptor: u8,
    /// The effect on it.
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

    /// The bytes written since `start`.
    pub(crate) fn since(&self, start: usize) -> &[u8] {
        self.buf.get(start..self.len).unwrap_or_default()
    }

    /// The bytes written from `start` to `end`.
    pub(crate) fn range(&self, start: usize, end: usize) -> &[u8] {
        self.buf.get(start..end).unwrap_or_default()
    }

    /// Forgets the bytes written since `start`.
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

    // The analysis refuses lines of more than 2^30 bytes, and a record is at most a few times its
    // source.
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

    /// Ends the item begun at `at`.
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
#[derive(Debug, Clone, Copy)]
pub struct Script<'b> {
    records: &'b [u8],
}

impl<'b> Script<'b> {
    /// The pipelines in order.
    #[must_use]
    pub fn pipelines(&self) -> Pipelines<'b> {
        Pipelines { records: self.records }
    }

    /// The line as a single command, where it is one command: one stage, not negated.
    #[must_use]
    pub fn single(&self) -> Option<Command<'b>> {
        let mut pipelines = self.pipelines();
        let only = pipelines.next()?;
        if pipelines.next().is_some() || only.stage_count() != 1 || only.is_negated() {
            return None;
        }
        only.stages().next()
    }

    /// The number of its commands that are programs. Not all programs of an and-or list need run.
    #[must_use]
    pub fn program_count(&self) -> usize {
        self.pipelines().flat_map(|pipeline| pipeline.stages()).filter(Command::is_program).count()
    }

    /// The number of bytes that it takes of the buffer.
    #[must_use]
    pub fn size(&self) -> usize {
        self.records.len()
    }
}

/// Iterator over the pipelines of a [`Script`].
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
#[derive(Debug, Clone, Copy)]
pub struct Pipeline<'b> {
    record: &'b [u8],
}

impl<'b> Pipeline<'b> {
    /// When to run it.
    #[must_use]
    pub fn connector(&self) -> Connector {
        match self.record.first() {
            Some(1) => Connector::And,
            Some(2) => Connector::Or,
            _ => Connector::Always,
        }
    }

    /// Whether `!` stands before it: a status of zero becomes 1, any other 0.
    #[must_use]
    pub fn is_negated(&self) -> bool {
        self.record.get(1).is_some_and(|flags| flags & FLAG_NEGATED != 0)
    }

    /// The number of its commands, at least one.
    #[must_use]
    pub fn stage_count(&self) -> usize {
        u32_at(self.record, 4).unwrap_or(0)
    }

    /// Its source, `!` included. `&line[span.start..]` is a line that does all the rest from here
    /// on.
    #[must_use]
    pub fn span(&self) -> Span {
        Span { start: u32_at(self.record, 8).unwrap_or(0), end: u32_at(self.record, 12).unwrap_or(0) }
    }

    /// Its commands, first to last.
    #[must_use]
    pub fn stages(&self) -> Stages<'b> {
        Stages { records: self.record.get(PIPELINE_HEADER..).unwrap_or_default() }
    }
}

/// Iterator over the commands of a [`Pipeline`].
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
#[derive(Debug, Clone, Copy)]
pub struct Command<'b> {
    record: &'b [u8],
}

impl<'b> Command<'b> {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> CommandKind {
        match self.record {
            [kind, status, ..] => CommandKind::decode(*kind, *status),
            _ => CommandKind::External,
        }
    }

    /// Whether a program is to be run: [`External`](CommandKind::External) or
    /// [`Exec`](CommandKind::Exec).
    #[must_use]
    pub fn is_program(&self) -> bool {
        matches!(self.kind(), CommandKind::External | CommandKind::Exec)
    }

    /// Whether this shell would replace itself by the program instead of waiting for it.
    ///
    /// If so, a death by signal is the line's own; if not, it becomes the status 128 + n, with
    /// [`signal_message`](crate::ShellTraits::signal_message) on the standard error the command
    /// had.
    #[must_use]
    pub fn replaces_shell(&self) -> bool {
        self.record.get(2).is_some_and(|flags| flags & FLAG_REPLACES_SHELL != 0)
    }

    /// Whether bash's `_` is still the environment's when this command begins.
    pub(crate) fn keeps_underscore(&self) -> bool {
        self.record.get(2).is_some_and(|flags| flags & FLAG_KEEPS_UNDERSCORE != 0)
    }

    /// Its source, assignments and redirections included: as a line it does the same as this stage.
    #[must_use]
    pub fn span(&self) -> Span {
        Span { start: u32_at(self.record, 8).unwrap_or(0), end: u32_at(self.record, 12).unwrap_or(0) }
    }

    /// The number of its words.
    #[must_use]
    pub fn word_count(&self) -> usize {
        u32_at(self.record, 4).unwrap_or(0)
    }

    fn items(&self) -> Items<'b> {
        Items { records: self.record.get(COMMAND_HEADER..).unwrap_or_default() }
    }

    /// Its words: `argv` of a program. Those of a builtin begin with its name.
    pub fn words(&self) -> impl Iterator<Item = &'b CStr> + Clone + use<'b> {
        self.items().filter(|item| item.tag == ITEM_WORD).map(|item| item.text)
    }

    /// The directory of a `cd`.
    #[must_use]
    pub fn operand(&self) -> Option<&'b CStr> {
        if self.kind() == CommandKind::ChangeDirectory { self.words().nth(1) } else { None }
    }

    /// The `NAME=VALUE` strings before the command name, in order.
    pub fn assignments(&self) -> impl Iterator<Item = &'b CStr> + Clone + use<'b> {
        self.items().filter(|item| item.tag == ITEM_ASSIGNMENT).map(|item| item.text)
    }

    /// Its redirections in order.
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
