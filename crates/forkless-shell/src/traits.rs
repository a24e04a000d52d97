//! What is known of this machine's `/bin/sh`, and how it is found out.

use crate::environment::{Environment, name_of};
use crate::names;
use crate::reason::{Reason, Rejection};

/// Which shell `/bin/sh` is.
///
/// ```
/// use forkless_shell::{ShellKind, ShellTraits};
/// assert_eq!(ShellTraits::from_probe(b"sh: not found\n", 7, b"/"), ShellTraits::UNKNOWN);
/// assert_eq!(ShellTraits::UNKNOWN.kind(), ShellKind::Unknown);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShellKind {
    /// Not one of the below, or not established: every line is left to it.
    Unknown,
    /// The Debian Almquist shell.
    Dash,
    /// bash under the name `sh`, hence in POSIX mode.
    Bash,
    /// busybox ash.
    Busybox,
}

/// When a shell replaces itself by the last program of the line instead of waiting for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ReplacesShell {
    /// dash of Debian 12 and before.
    Never,
    /// Almquist shells whose `evalstring` passes `EV_EXIT`: the last command of the list, when no newline follows it.
    AtEndOfInput,
    /// bash 5.1 and 5.2: `should_suppress_fork` and `can_optimize_connection` of builtins/evalstring.c.
    WhereBashSuppressesFork,
    /// Other bash: a lone command without redirections and newlines, as the probe is one.
    KnownForLoneCommand,
}

/// What is known of this machine's `/bin/sh`.
///
/// The constants describe the shells this crate was tested against; a program should use what
/// [`ShellTraits::from_probe`] finds.
///
/// ```
/// use forkless_shell::{Reason, ShellTraits, analyze};
/// let env: [&[u8]; 1] = [b"PATH=/bin"];
/// let decide = |shell| analyze(b"ls {a,b}", &env, &shell, &mut [0; 256]).map(|_| ()).map_err(|e| e.reason);
/// assert_eq!(decide(ShellTraits::DASH), Ok(())); // one word as it stands
/// assert_eq!(decide(ShellTraits::BASH), Err(Reason::BraceExpansion));
/// assert_eq!(decide(ShellTraits::UNKNOWN), Err(Reason::UnknownShell));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShellTraits {
    pub(crate) kind: ShellKind,
    pub(crate) replaces_shell: ReplacesShell,
    pub(crate) may_run_applets: bool,
}

impl ShellTraits {
    /// Nothing is known: every analysis answers "ask the shell".
    pub const UNKNOWN: Self =
        Self { kind: ShellKind::Unknown, replaces_shell: ReplacesShell::Never, may_run_applets: true };
    /// dash 0.5.12 as Debian 12 builds it.
    pub const DASH: Self =
        Self { kind: ShellKind::Dash, replaces_shell: ReplacesShell::Never, may_run_applets: false };
    /// bash 5.2 called `sh`.
    pub const BASH: Self = Self {
        kind: ShellKind::Bash,
        replaces_shell: ReplacesShell::WhereBashSuppressesFork,
        may_run_applets: false,
    };
    /// busybox ash 1.35, built so that it looks for programs in `PATH` before its own applets.
    pub const BUSYBOX: Self = Self {
        kind: ShellKind::Busybox,
        replaces_shell: ReplacesShell::AtEndOfInput,
        may_run_applets: false,
    };

    /// Which shell it is.
    ///
    /// ```
    /// use forkless_shell::{ShellKind, ShellTraits};
    /// assert_eq!(ShellTraits::BUSYBOX.kind(), ShellKind::Busybox);
    /// ```
    #[must_use]
    pub const fn kind(&self) -> ShellKind {
        self.kind
    }

    pub(crate) fn expands_braces(&self) -> bool {
        self.kind == ShellKind::Bash
    }

    pub(crate) fn passes_non_ascii(&self) -> bool {
        matches!(self.kind, ShellKind::Dash | ShellKind::Busybox)
    }
}

impl ShellTraits {
    /// Refuses environments that change what the shell does with any line at all.
    pub(crate) fn check_environment<E: Environment + ?Sized>(
        &self,
        environment: &E,
    ) -> Result<(), Rejection> {
        let mut index = 0;
        while let Some(entry) = environment.entry(index) {
            index += 1;
            // The first byte tells nearly all of an environment apart from what the Almquist shells react to.
            let may_react = match entry.first() {
                Some(b'E' | b'F' | b'I' | b'L' | b'O' | b'P' | b'R' | b'S') => true,
                _ => self.kind == ShellKind::Bash,
            };
            if !may_react {
                continue;
            }
            let name = name_of(entry).unwrap_or(entry);
            let value = entry.get(name.len() + 1..).unwrap_or_default();
            if self.reacts_to(name, value) {
                return Err(Rejection::environment(Reason::EnvironmentVariable, index - 1));
            }
        }
        Ok(())
    }

    fn reacts_to(&self, name: &[u8], value: &[u8]) -> bool {
        match self.kind {
            // Reset, computed or counted at start, and exported again because they came from the environment.
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
