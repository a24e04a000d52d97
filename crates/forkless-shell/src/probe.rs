//! Finding out which shell `/bin/sh` is: the questions, the driver that asks them, and the meaning
//! of the answers.
//!
//! [`ask`] runs `/bin/sh -c LINE` with exactly the strings of `ENVIRONMENT` and reads its output.
//! The caller only starts processes and reads from them ([`Asker`]). The answer is good for as long
//! as `/bin/sh` is the same file (device, inode, modification time). Nothing is taken on trust: the
//! shell is known only if the model of one of the known shells reproduces the environment that it
//! exported, byte for byte and in order.

use core::ffi::CStr;

use crate::effect::{Directory, EnvSlot, EnvString, PreviousDirectory};
use crate::parse::analyze_unchecked;
use crate::traits::{ReplacesShell, ShellTraits};

/// The line to run: it prints which process runs it and the environment it was given.
const LINE: &CStr = c"/bin/cat /proc/self/stat /proc/self/environ";

/// Whether a shell's line is the one by which it is asked.
#[must_use]
pub fn is_question(line: &[u8]) -> bool {
    line == LINE.to_bytes()
}

/// The environment to run it with.
///
/// Among the names are: one no shell can hold, a level, directories that are wrong, a variable that
/// bash puts its version into, and pairs that share a bucket of the Almquist shells' table with a
/// variable those have built in.
const ENVIRONMENT: [&CStr; 17] = [
    c"C4=before PATH",
    c"PATH=/usr/bin:/bin",
    c"not.a.name=1",
    c"SHLVL=5",
    c"CX=before TERM",
    c"TERM=dumb",
    c"CH=before MAIL",
    c"MAIL=",
    c"DS=before MAILPATH",
    c"MAILPATH=",
    c"DV=before PWD and LC_ALL",
    c"LC_ALL=C",
    c"PWD=/nonexistent/forkless",
    c"OLDPWD=/nonexistent/forkless",
    c"_=forkless",
    c"BASH_VERSION=0",
    c"Z=",
];

/// The second line, for busybox only ([`ShellTraits::needs_applet_question`]). With
/// [`APPLET_ENVIRONMENT`] it exits with 127 unless busybox runs commands from within itself.
const APPLET_LINE: &CStr = c"cat /dev/null";

/// The environment of [`APPLET_LINE`]: a `PATH` without programs.
const APPLET_ENVIRONMENT: [&CStr; 1] = [c"PATH=/nonexistent/forkless"];

/// The bit of the signal in a set.
const SIGQUIT: u32 = 1 << 2;

/// The beginning of bash versions whose rules for replacing themselves were tested.
const TESTED_BASH: &[u8] = b"BASH_VERSION=5.2.";

/// The most strings that a question's environment has.
pub const ENVIRONMENT_LEN: usize = ENVIRONMENT.len();

/// A line to give to `/bin/sh`.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// The line: `sh -c LINE`.
    pub line: &'static CStr,
    /// The strings of its environment, all of them, in this order.
    pub environment: &'static [&'static CStr],
}

/// The answer of a shell to a [`Question`].
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// All that it wrote to its standard output.
    pub output: &'a [u8],
    /// Its process id, as its own /proc has it.
    pub shell: u32,
    /// The directory it was started in, as getcwd(3) gives it.
    pub directory: &'a [u8],
    /// Its exit code. `None`: a signal ended it, or its status is lost, as where the caller ignores
    /// SIGCHLD.
    pub exit_code: Option<i32>,
}

/// Starts shells for [`ask`] and reads their answers.
pub trait Asker {
    /// A shell that was started.
    type Shell;

    /// Starts `/bin/sh` under the name `sh`, with the null device for its input and its errors, and
    /// SIGQUIT not ignored.
    /// `None`: it cannot be started now.
    fn start(&mut self, question: &Question) -> Option<Self::Shell>;

    /// Reads the shell's output to its end, then waits for the shell. `None`: its output could not
    /// be read.
    fn hear(&mut self, shell: Self::Shell) -> Option<Answer<'_>>;
}

/// Asks `/bin/sh` which shell it is. `None` when it cannot be started, which may be otherwise
/// later; [`ShellTraits::UNKNOWN`] when it does not answer as one of the known shells does.
pub fn ask<A: Asker>(asker: &mut A) -> Option<ShellTraits> {
    let shell = start(asker)?;
    Some(hear(asker, shell))
}

/// The first half of [`ask`], for a caller that does other things while the shell runs.
pub fn start<A: Asker>(asker: &mut A) -> Option<A::Shell> {
    asker.start(&Question { line: LINE, environment: &ENVIRONMENT })
}

/// The second half of [`ask`].
pub fn hear<A: Asker>(asker: &mut A, shell: A::Shell) -> ShellTraits {
    let Some(answer) = asker.hear(shell) else { return ShellTraits::UNKNOWN };
    let traits = ShellTraits::from_answer(answer.output, answer.shell, answer.directory);
    if !traits.needs_applet_question() {
        return traits;
    }
    let question = Question { line: APPLET_LINE, environment: &APPLET_ENVIRONMENT };
    let Some(shell) = asker.start(&question) else { return ShellTraits::UNKNOWN };
    match asker.hear(shell) {
        None => ShellTraits::UNKNOWN,
        // Without an exit code it stays open whether busybox runs its own commands: lines that name
        // one are left to it.
        Some(answer) => answer.exit_code.map_or(traits, |code| traits.with_applet_answer(code)),
    }
}

impl ShellTraits {
    /// The traits of a `/bin/sh`, from its answer to the first question of
    /// [`probe::ask`](crate::probe::ask): its output, the process id it was started with, and its
    /// directory as getcwd(3) gives it.
    ///
    /// [`ShellTraits::UNKNOWN`] when no known shell answers exactly so.
    #[must_use]
    pub fn from_answer(output: &[u8], shell: u32, directory: &[u8]) -> Self {
        Self::read_answer(output, shell, directory).unwrap_or(Self::UNKNOWN)
    }

    fn read_answer(output: &[u8], shell: u32, directory: &[u8]) -> Option<Self> {
        let newline = output.iter().position(|&byte| byte == b'\n')?;
        let (stat, exported) = (output.get(..newline)?, output.get(newline + 1..)?);
        // pid (comm) state ppid: the name may hold anything, so the fields after it are counted
        // from its end.
        let pid = number(stat.split(|&byte| byte == b' ').next()?)?;
        let after_name = stat.get(stat.iter().rposition(|&byte| byte == b')')? + 2..)?;
        let parent = number(after_name.split(|&byte| byte == b' ').nth(1)?)?;
        // `sigignore` (proc(5), field 33).
        let ignored = number(after_name.split(|&byte| byte == b' ').nth(30)?)?;
        let replaced = if pid == shell {
            true
        } else if parent == shell {
            false
        } else {
            return None;
        };
        let ash = if replaced { ReplacesShell::AtEndOfInput } else { ReplacesShell::Never };
        let is_tested_bash = exported.split(|&byte| byte == 0).any(|entry| entry.starts_with(TESTED_BASH));
        let bash = if is_tested_bash {
            ReplacesShell::WhereBashSuppressesFork
        } else {
            ReplacesShell::KnownForLoneCommand
        };
        let busybox = Self {
            replaces_shell: ash,
            may_run_applets: true,
            leaves_sigquit_ignored: replaced && ignored & SIGQUIT != 0,
            ..Self::BUSYBOX
        };
        let candidates = [
            Self { replaces_shell: ash, ..Self::DASH },
            busybox,
            Self { exports_any_name: true, ..busybox },
            Self { replaces_shell: bash, ..Self::BASH },
        ];
        candidates.into_iter().find(|candidate| candidate.explains(exported, replaced, directory))
    }

    /// Whether a shell with these traits would have exported exactly this.
    fn explains(&self, exported: &[u8], replaced: bool, directory: &[u8]) -> bool {
        let environment = ENVIRONMENT.map(CStr::to_bytes);
        let environment = environment.as_slice();
        let mut script = [0; 256];
        let mut text = [0; 4352];
        let mut slots = [EnvSlot::EMPTY; ENVIRONMENT.len() + 4];
        let Ok(script) = analyze_unchecked(LINE.to_bytes(), &environment, self, &mut script) else {
            return false;
        };
        let Some(command) = script.single() else { return false };
        if command.replaces_shell() != replaced {
            return false;
        }
        let directory = Directory { current: directory, previous: PreviousDirectory::Stale };
        let Ok(count) =
            self.environment(environment, &command, &directory, b"/bin/cat", &mut text, &mut slots)
        else {
            return false;
        };
        let mut rest = exported;
        for slot in slots.iter().take(count) {
            let expected = match slot.string() {
                EnvString::Inherited(index) => environment.get(index).copied().unwrap_or_default(),
                EnvString::Own(text) => text.to_bytes(),
            };
            let Some(end) = rest.iter().position(|&byte| byte == 0) else { return false };
            let (actual, left) = rest.split_at(end);
            // bash sets its version.
            if actual != expected && !(expected == b"BASH_VERSION=0" && actual.starts_with(b"BASH_VERSION="))
            {
                return false;
            }
            rest = left.get(1..).unwrap_or_default();
        }
        rest.is_empty()
    }

    /// Whether it is open that the shell runs commands from within itself. Until the second
    /// question of [`probe::ask`](crate::probe::ask) says that it does not, lines that name such a
    /// command are left to it.
    #[must_use]
    pub const fn needs_applet_question(&self) -> bool {
        self.may_run_applets && !matches!(self.kind, crate::ShellKind::Unknown)
    }

    /// These traits with the answer to the second question of [`probe::ask`](crate::probe::ask):
    /// its exit code.
    #[must_use]
    pub const fn with_applet_answer(mut self, exit_code: i32) -> Self {
        self.may_run_applets = exit_code != 127;
        self
    }
}

fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u32, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(digit.into()) }
    })
}
