//! Why a line is left to the shell.

use core::fmt;

/// A range of bytes of the analysed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset past the last byte.
    pub end: usize,
}

impl Span {
    /// The bytes of `line` this span covers (empty when `line` is not the line that was analysed).
    #[must_use]
    pub fn of<'l>(&self, line: &'l [u8]) -> &'l [u8] {
        line.get(self.start..self.end).unwrap_or_default()
    }
}

/// Something that only the shell can do, or that this crate does not prove to be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The caller's buffer cannot hold the result.
    BufferTooSmall,
    /// The line is longer than an argument of a shell may be: 131,071 bytes.
    LineTooLong,
    /// The line holds a NUL byte, which no C string can.
    Nul,
    /// The behaviour of this `/bin/sh` is not known (see
    /// [`ShellTraits::UNKNOWN`](crate::ShellTraits::UNKNOWN)).
    UnknownShell,
    /// A variable of the environment changes what the shell does (`SHELLOPTS`, exported functions,
    /// `IFS`, ...).
    EnvironmentVariable,
    /// The same name appears twice in the environment.
    DuplicateVariable,
    /// The locale decides what bash does: it may warn about it, or read bytes as other characters.
    Locale,
    /// An unquoted `*`, `?` or `[`.
    Glob,
    /// An unquoted `~` where a home directory may be meant.
    Tilde,
    /// An unquoted `{` that bash may expand.
    BraceExpansion,
    /// `$(...)` or backquotes.
    CommandSubstitution,
    /// `$((...))` or `$[...]`.
    Arithmetic,
    /// `${...}` with an operator.
    ParameterOperator,
    /// `$?`, `$$`, `$1`, `$@` and their like.
    SpecialParameter,
    /// A variable whose value the shell makes itself.
    ShellVariable,
    /// An unset variable for which a shell may have a default.
    UnsetVariable,
    /// A variable that the same command assigns.
    AssignedVariable,
    /// An unquoted expansion whose value may be split, globbed or removed.
    UnquotedExpansion,
    /// `$'...'` or `$"..."`.
    DollarQuote,
    /// A `$` whose meaning differs between shells.
    Dollar,
    /// A builtin with effects in the shell, or with output that may differ from the program's.
    Builtin,
    /// Operands this crate does not carry out for a builtin it otherwise knows.
    BuiltinOperand,
    /// A reserved word (loops, conditions, groups).
    ReservedWord,
    /// Parentheses: a subshell, a function or an extended pattern.
    Parenthesis,
    /// `&`: a background job.
    Background,
    /// `<<`: a here-document or here-string.
    HereDocument,
    /// Assignments without a command change the shell itself.
    AssignmentOnly,
    /// Redirections without a command.
    RedirectionOnly,
    /// An assignment to a variable the shell acts on (`PATH`, `IFS`, ...).
    AssignmentEffect,
    /// The same variable assigned twice before one command.
    AssignedTwice,
    /// A file-descriptor number of more than one digit.
    DescriptorNumber,
    /// A duplication whose operand is not one digit or `-`.
    DuplicationOperand,
    /// A redirection target that means the opening process (`/proc/self`, `/dev/fd`) or that bash
    /// treats specially.
    RedirectionTarget,
    /// A line that begins with `-` or `+`, which `sh -c` takes for an option.
    ShellOption,
    /// A `!` that is not plainly the negation of a pipeline.
    Negation,
    /// A line the shell would refuse, or read otherwise than expected.
    Syntax,
    /// A control character outside quotes, or one that shells use internally.
    ControlCharacter,
    /// A byte above 127 where the shell's handling is not established.
    NonAscii,
    /// A line continuation inside an operator, a name or before a comment.
    Continuation,
    /// An empty command name.
    EmptyCommand,
    /// A job specification (`%1`) as a command.
    JobSpecification,
    /// A command name that busybox may run from within itself.
    Applet,
    /// An environment without `PATH`: a shell may export its own. Or a command name to be searched
    /// for along a `PATH` with relative entries, or for bash with entries that end with a slash.
    SearchPath,
    /// More commands, stages or words than this crate carries out.
    TooMany,
}

impl Reason {
    /// One line, fit to follow "because".
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Reason::BufferTooSmall => "the analysis does not fit in the buffer given for it",
            Reason::LineTooLong => "the line is too long",
            Reason::Nul => "a NUL byte cannot be part of a command line",
            Reason::UnknownShell => "it is not known what this /bin/sh does",
            Reason::EnvironmentVariable => "a variable of the environment changes what the shell does",
            Reason::DuplicateVariable => "the environment has the same name twice",
            Reason::Locale => "what bash does depends on this locale",
            Reason::Glob => "unquoted `*`, `?` and `[` are matched against file names",
            Reason::Tilde => "an unquoted `~` may stand for a home directory",
            Reason::BraceExpansion => "bash may expand these braces",
            Reason::CommandSubstitution => "command substitution needs a shell",
            Reason::Arithmetic => "arithmetic needs a shell",
            Reason::ParameterOperator => "`${...}` with an operator needs a shell",
            Reason::SpecialParameter => "special and positional parameters belong to the shell",
            Reason::ShellVariable => "the shell makes this variable's value itself",
            Reason::UnsetVariable => "the shell may have a default for this unset variable",
            Reason::AssignedVariable => "shells disagree on a variable that the same command assigns",
            Reason::UnquotedExpansion => {
                "an unquoted expansion of this value may be split, matched or removed"
            }
            Reason::DollarQuote => "`$'...'` and `$\"...\"` differ between shells",
            Reason::Dollar => "what follows this `$` is read differently by different shells",
            Reason::Builtin => {
                "this is a builtin: it acts on the shell, or differs from the program of that name"
            }
            Reason::BuiltinOperand => "this use of the builtin is left to the shell",
            Reason::ReservedWord => "reserved words (loops, conditions, groups) need a shell",
            Reason::Parenthesis => "parentheses (subshells, functions, patterns) need a shell",
            Reason::Background => "background jobs need a shell",
            Reason::HereDocument => "here-documents need a shell",
            Reason::AssignmentOnly => "an assignment without a command changes the shell's own variables",
            Reason::RedirectionOnly => "a redirection without a command is left to the shell",
            Reason::AssignmentEffect => "assigning this variable changes what the shell does",
            Reason::AssignedTwice => "the same variable is assigned twice",
            Reason::DescriptorNumber => "shells disagree on descriptor numbers of more than one digit",
            Reason::DuplicationOperand => "only one digit or `-` may follow `<&` and `>&`",
            Reason::RedirectionTarget => "this path means something else in the process that opens it",
            Reason::ShellOption => "`sh -c` takes a line that begins like this for an option",
            Reason::Negation => "`!` is only understood before a pipeline",
            Reason::Syntax => "the shell reports this as a syntax error, or reads it differently",
            Reason::ControlCharacter => "shells disagree on control characters",
            Reason::NonAscii => "how bytes above 127 are read depends on the shell and its locale",
            Reason::Continuation => {
                "a line continuation in this place is read differently by different shells"
            }
            Reason::EmptyCommand => "the command name is empty",
            Reason::JobSpecification => "a word that begins with `%` names a job in bash",
            Reason::Applet => "busybox may run this command from within itself",
            Reason::SearchPath => "PATH is unset, or has entries that shells read differently",
            Reason::TooMany => "the line has more parts than are carried out directly",
        }
    }

    /// A name for machine-readable output: the variant's, in snake case.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Reason::BufferTooSmall => "buffer_too_small",
            Reason::LineTooLong => "line_too_long",
            Reason::Nul => "nul",
            Reason::UnknownShell => "unknown_shell",
            Reason::EnvironmentVariable => "environment_variable",
            Reason::DuplicateVariable => "duplicate_variable",
            Reason::Locale => "locale",
            Reason::Glob => "glob",
            Reason::Tilde => "tilde",
            Reason::BraceExpansion => "brace_expansion",
            Reason::CommandSubstitution => "command_substitution",
            Reason::Arithmetic => "arithmetic",
            Reason::ParameterOperator => "parameter_operator",
            Reason::SpecialParameter => "special_parameter",
            Reason::ShellVariable => "shell_variable",
            Reason::UnsetVariable => "unset_variable",
            Reason::AssignedVariable => "assigned_variable",
            Reason::UnquotedExpansion => "unquoted_expansion",
            Reason::DollarQuote => "dollar_quote",
            Reason::Dollar => "dollar",
            Reason::Builtin => "builtin",
            Reason::BuiltinOperand => "builtin_operand",
            Reason::ReservedWord => "reserved_word",
            Reason::Parenthesis => "parenthesis",
            Reason::Background => "background",
            Reason::HereDocument => "here_document",
            Reason::AssignmentOnly => "assignment_only",
            Reason::RedirectionOnly => "redirection_only",
            Reason::AssignmentEffect => "assignment_effect",
            Reason::AssignedTwice => "assigned_twice",
            Reason::DescriptorNumber => "descriptor_number",
            Reason::DuplicationOperand => "duplication_operand",
            Reason::RedirectionTarget => "redirection_target",
            Reason::ShellOption => "shell_option",
            Reason::Negation => "negation",
            Reason::Syntax => "syntax",
            Reason::ControlCharacter => "control_character",
            Reason::NonAscii => "non_ascii",
            Reason::Continuation => "continuation",
            Reason::EmptyCommand => "empty_command",
            Reason::JobSpecification => "job_specification",
            Reason::Applet => "applet",
            Reason::SearchPath => "search_path",
            Reason::TooMany => "too_many",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

/// "Ask the shell": the thing that stopped the analysis, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rejection {
    /// Why only the shell can run the line.
    pub reason: Reason,
    /// The bytes of the line that are the cause; empty (0..0) when the line is not the cause.
    pub span: Span,
    /// The string of the environment that is the cause, if one is.
    pub variable: Option<usize>,
}

impl Rejection {
    pub(crate) const fn at(reason: Reason, start: usize, end: usize) -> Self {
        Self { reason, span: Span { start, end }, variable: None }
    }

    pub(crate) const fn whole(reason: Reason) -> Self {
        Self::at(reason, 0, 0)
    }

    pub(crate) const fn environment(reason: Reason, index: usize) -> Self {
        Self { reason, span: Span { start: 0, end: 0 }, variable: Some(index) }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.span.end > self.span.start {
            write!(f, "byte {}: ", self.span.start)?;
        }
        f.write_str(self.reason.describe())
    }
}

impl core::error::Error for Rejection {}
