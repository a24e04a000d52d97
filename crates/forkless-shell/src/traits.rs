//! The traits of this machine's `/bin/sh`, as far as the analysis depends on them.

use core::fmt;

use crate::environment::{Environment, name_of};
use crate::names;
use crate::reason::{Reason, Rejection};
use crate::script::{Command, CommandKind};

/// Which shell `/bin/sh` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShellKind {
    /// None of the shells below, or not established: every line is left to it.
    Unknown,
    /// The Debian Almquist shell.
    Dash,
    /// bash under the name `sh`, hence in POSIX mode.
    Bash,
    /// busybox ash.
    Busybox,
}

/// Its name, in small letters.
impl fmt::Display for ShellKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShellKind::Unknown => "unknown",
            ShellKind::Dash => "dash",
            ShellKind::Bash => "bash",
            ShellKind::Busybox => "busybox",
        })
    }
}

/// When a shell replaces itself by the last program of the line instead of waiting for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ReplacesShell {
    /// dash of Debian 12 and before.
    Never,
    /// Almquist shells whose `evalstring` passes `EV_EXIT`: the last command of the list, when no
    /// newline follows it.
    AtEndOfInput,
    /// bash 5.1 and 5.2: `should_suppress_fork` and `can_optimize_connection` of
    /// builtins/evalstring.c.
    WhereBashSuppressesFork,
    /// Other versions of bash: a lone command without redirections and newlines, like the line of
    /// the probe.
    KnownForLoneCommand,
}

/// The behaviour of this machine's `/bin/sh`, as far as it is known.
///
/// The constants describe the shells this crate was tested against. A program should use the result
/// of [`probe::ask`](crate::probe::ask).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShellTraits {
    pub(crate) kind: ShellKind,
    pub(crate) replaces_shell: ReplacesShell,
    pub(crate) may_run_applets: bool,
    /// Whether it exports strings whose name no variable can have, at the place of their hash:
    /// busybox as its authors release it (shell/ash.c, `init`). Debian's drops them.
    pub(crate) exports_any_name: bool,
    /// Whether it ignores SIGQUIT, and leaves that to the program that takes its place: busybox
    /// before 1.38 (shell/ash.c, `setsignal`).
    pub(crate) leaves_sigquit_ignored: bool,
}

impl ShellTraits {
    /// Nothing is known: every analysis answers with a rejection.
    pub const UNKNOWN: Self = Self { kind: ShellKind::Unknown, may_run_applets: true, ..Self::DASH };
    /// dash 0.5.12 as Debian 12 builds it.
    pub const DASH: Self = Self {
        kind: ShellKind::Dash,
        replaces_shell: ReplacesShell::Never,
        may_run_applets: false,
        exports_any_name: false,
        leaves_sigquit_ignored: false,
    };
    /// bash 5.2 called `sh`.
    pub const BASH: Self =
        Self { kind: ShellKind::Bash, replaces_shell: ReplacesShell::WhereBashSuppressesFork, ..Self::DASH };
    /// busybox ash 1.35 of Debian 12, built so that it looks for programs in `PATH` before its own
    /// applets.
    pub const BUSYBOX: Self = Self {
        kind: ShellKind::Busybox,
        replaces_shell: ReplacesShell::AtEndOfInput,
        leaves_sigquit_ignored: true,
        ..Self::DASH
    };

    /// Which shell it is.
    #[must_use]
    pub const fn kind(&self) -> ShellKind {
        self.kind
    }

    /// These traits as a number from 1 to 127, for another process that has this version of the
    /// crate; 0 for [`UNKNOWN`](ShellTraits::UNKNOWN). The meaning of the bits is not promised.
    #[must_use]
    pub const fn to_bits(&self) -> u8 {
        let kind = match self.kind {
            ShellKind::Unknown => return 0,
            ShellKind::Dash => 1,
            ShellKind::Bash => 2,
            ShellKind::Busybox => 3,
        };
        let replaces_shell = match self.replaces_shell {
            ReplacesShell::Never => 0,
            ReplacesShell::AtEndOfInput => 1,
            ReplacesShell::WhereBashSuppressesFork => 2,
            ReplacesShell::KnownForLoneCommand => 3,
        };
        let flags = [self.may_run_applets, self.exports_any_name, self.leaves_sigquit_ignored];
        kind | replaces_shell << 2 | (flags[0] as u8) << 4 | (flags[1] as u8) << 5 | (flags[2] as u8) << 6
    }

    /// The traits that [`to_bits`](ShellTraits::to_bits) made a number;
    /// [`UNKNOWN`](ShellTraits::UNKNOWN) for any other number.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        let kind = match bits & 3 {
            1 => ShellKind::Dash,
            2 => ShellKind::Bash,
            3 => ShellKind::Busybox,
            _ => return Self::UNKNOWN,
        };
        let replaces_shell = match bits >> 2 & 3 {
            0 => ReplacesShell::Never,
            1 => ReplacesShell::AtEndOfInput,
            2 => ReplacesShell::WhereBashSuppressesFork,
            _ => ReplacesShell::KnownForLoneCommand,
        };
        if bits >> 7 != 0 {
            return Self::UNKNOWN;
        }
        Self {
            kind,
            replaces_shell,
            may_run_applets: bits & 1 << 4 != 0,
            exports_any_name: bits & 1 << 5 != 0,
            leaves_sigquit_ignored: bits & 1 << 6 != 0,
        }
    }

    /// Whether the program of `command` starts with SIGQUIT ignored, whatever its disposition at
    /// the start of the line.
    ///
    /// busybox before 1.38 ignores that signal. It restores it in children that it forks, and
    /// before `exec`, but not in the program that takes its place at the end of a line
    /// (shell/ash.c: `setsignal`, `execcmd`).
    #[must_use]
    pub fn ignores_sigquit(&self, command: &Command<'_>) -> bool {
        self.leaves_sigquit_ignored && command.replaces_shell() && command.kind() == CommandKind::External
    }

    pub(crate) fn expands_braces(&self) -> bool {
        self.kind == ShellKind::Bash
    }

    pub(crate) fn passes_non_ascii(&self) -> bool {
        matches!(self.kind, ShellKind::Dash | ShellKind::Busybox)
    }
}

impl ShellTraits {
    /// Refuses environments that change the shell's reading of every line, or to which the shell
    /// adds a variable: busybox exports a `PATH` of its own where there is none, bash has one that
    /// it does not export, dash has none.
    pub(crate) fn check_environment<E: Environment + ?Sized>(
        &self,
        environment: &E,
    ) -> Result<(), Rejection> {
        let mut index = 0;
        let mut has_path = false;
        while let Some(entry) = environment.entry(index) {
            index += 1;
            // The Almquist shells react to few names; their first byte excludes nearly all of an
            // environment.
            let may_react = match entry.first() {
                Some(b'E' | b'F' | b'I' | b'L' | b'O' | b'P' | b'R' | b'S') => true,
                _ => self.kind == ShellKind::Bash,
            };
            if !may_react {
                continue;
            }
            let name = name_of(entry).unwrap_or(entry);
            let value = entry.get(name.len() + 1..).unwrap_or_default();
            has_path |= name == b"PATH" && name.len() < entry.len();
            if self.reacts_to(name, value) {
                return Err(Rejection::environment(Reason::EnvironmentVariable, index - 1));
            }
        }
        if has_path { Ok(()) } else { Err(Rejection::whole(Reason::SearchPath)) }
    }

    fn reacts_to(&self, name: &[u8], value: &[u8]) -> bool {
        match self.kind {
            // Reset, computed or counted at start, and exported again because they came from the
            // environment.
            ShellKind::Dash => matches!(name, b"IFS" | b"LINENO" | b"OPTIND" | b"PPID"),
            ShellKind::Busybox => match name {
                b"IFS" | b"LINENO" | b"OPTIND" | b"PPID" | b"RANDOM" | b"FUNCNAME" | b"EPOCHSECONDS"
                | b"EPOCHREALTIME" => true,
                b"SHLVL" => parse_level(value).is_none(),
                _ => false,
            },
            ShellKind::Bash => match name {
                b"SHLVL" => parse_level(value).is_none(),
                b"PWD" => !crate::directory::is_canonical(value),
                b"_" | b"OLDPWD" | b"TERM" | b"HISTSIZE" | b"HISTFILE" | b"HISTFILESIZE" | b"HISTCONTROL"
                | b"HISTTIMEFORMAT" | b"PS3" | b"PROMPT_COMMAND" => false,
                // bash warns on standard error when the locale does not exist.
                b"LC_ALL" => !matches!(value, b"" | b"C" | b"POSIX" | b"C.UTF-8" | b"C.utf8"),
                _ => names::is_managed(name),
            },
            ShellKind::Unknown => false,
        }
    }
}

/// The value of a `SHLVL` that shells agree on: a plain number.
pub(crate) fn parse_level(value: &[u8]) -> Option<u16> {
    if value.is_empty() || value.len() > 3 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let level = value.iter().fold(0, |level, digit| level * 10 + u16::from(digit - b'0'));
    (level < 998).then_some(level)
}
