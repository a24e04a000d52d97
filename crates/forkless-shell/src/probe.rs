//! Finding out what `/bin/sh` is: the question, and what its answer means.
//!
//! The caller asks, by running `/bin/sh -c` [`LINE`] with exactly [`ENVIRONMENT`], standard output into a pipe; the
//! answer is good for as long as `/bin/sh` is the same file (device, inode, modification time). Nothing is taken on
//! trust: the shell is known only if the model of one of the known shells reproduces the environment it exported, byte
//! for byte and in order.

use core::ffi::CStr;

use crate::effect::{Directory, EnvSlot, EnvString, PreviousDirectory};
use crate::parse::analyze_unchecked;
use crate::traits::{ReplacesShell, ShellTraits};

/// The line to run: it prints who runs it and what it was given.
pub const LINE: &CStr = c"/bin/cat /proc/self/stat /proc/self/environ";

/// The environment to run it with.
///
/// Among the names are: one no shell can hold, a level, directories that are wrong, a variable that bash puts its
/// version into, and pairs that share a bucket of the Almquist shells' table with a variable those have built in.
pub const ENVIRONMENT: [&CStr; 17] = [
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

/// The second question, asked only of busybox ([`ShellTraits::needs_applet_probe`]): run with
/// [`APPLET_ENVIRONMENT`], the exit code is 127 unless busybox runs commands from within itself.
pub const APPLET_LINE: &CStr = c"cat /dev/null";

/// The environment of [`APPLET_LINE`]: a `PATH` without programs.
pub const APPLET_ENVIRONMENT: [&CStr; 1] = [c"PATH=/nonexistent/forkless"];

/// bash versions whose rules for replacing themselves were tested.
const TESTED_BASH: &[u8] = b"BASH_VERSION=5.2.";

impl ShellTraits {
    /// What this `/bin/sh` is, from its answer to [`LINE`](crate::probe::LINE): `output` is what it printed, `shell` the
    /// process id it was started with, `directory` what getcwd(3) gives where it was started.
    ///
    /// [`ShellTraits::UNKNOWN`] when the answer is not exactly what one of the known shells gives.
    ///
    /// ```
    /// use forkless_shell::{ShellKind, ShellTraits, probe};
    /// let mut ask = std::process::Command::new("env"); // which puts strings in their order
    /// ask.arg("-i").args(probe::ENVIRONMENT.map(|string| string.to_str().unwrap()));
    /// ask.args(["/bin/sh", "-c", probe::LINE.to_str().unwrap()]).current_dir("/");
    /// let sh = ask.stdout(std::process::Stdio::piped()).spawn().unwrap();
    /// let (pid, answer) = (sh.id(), sh.wait_with_output().unwrap().stdout);
    /// let traits = ShellTraits::from_probe(&answer, pid, b"/");
    /// if std::fs::canonicalize("/bin/sh").unwrap().ends_with("dash") {
    ///     assert_eq!(traits.kind(), ShellKind::Dash);
    /// }
    /// assert_eq!(ShellTraits::from_probe(&answer, 0, b"/"), ShellTraits::UNKNOWN); // another process's
    /// ```
    #[must_use]
    pub fn from_probe(output: &[u8], shell: u32, directory: &[u8]) -> Self {
        Self::read_probe(output, shell, directory).unwrap_or(Self::UNKNOWN)
    }

    fn read_probe(output: &[u8], shell: u32, directory: &[u8]) -> Option<Self> {
        let newline = output.iter().position(|&byte| byte == b'\n')?;
        let (stat, exported) = (output.get(..newline)?, output.get(newline + 1..)?);
        // pid (comm) state ppid: the name may hold anything, so the fields after it are counted from its end.
        let pid = number(stat.split(|&byte| byte == b' ').next()?)?;
        let after_name = stat.get(stat.iter().rposition(|&byte| byte == b')')? + 2..)?;
        let parent = number(after_name.split(|&byte| byte == b' ').nth(1)?)?;
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
        let candidates = [
            Self { replaces_shell: ash, ..Self::DASH },
            Self { replaces_shell: ash, may_run_applets: true, ..Self::BUSYBOX },
            Self { replaces_shell: ash, may_run_applets: true, exports_any_name: true, ..Self::BUSYBOX },
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

    /// Whether [`APPLET_LINE`](crate::probe::APPLET_LINE) has to be asked, too, before names without `/` can be run
    /// directly.
    ///
    /// ```
    /// use forkless_shell::ShellTraits;
    /// assert!(!ShellTraits::DASH.needs_applet_probe() && !ShellTraits::UNKNOWN.needs_applet_probe());
    /// assert!(ShellTraits::BUSYBOX.with_applet_probe(0).needs_applet_probe());
    /// ```
    #[must_use]
    pub const fn needs_applet_probe(&self) -> bool {
        self.may_run_applets && !matches!(self.kind, crate::ShellKind::Unknown)
    }

    /// These traits with the answer to [`APPLET_LINE`](crate::probe::APPLET_LINE): its exit code.
    ///
    /// ```
    /// use forkless_shell::{Reason, ShellTraits, analyze};
    /// let env: [&[u8]; 1] = [b"PATH=/bin"];
    /// let decide = |shell| analyze(b"cat x", &env, &shell, &mut [0; 256]).map(|_| ()).map_err(|e| e.reason);
    /// assert_eq!(decide(ShellTraits::BUSYBOX.with_applet_probe(127)), Ok(())); // `cat` was not found
    /// assert_eq!(decide(ShellTraits::BUSYBOX.with_applet_probe(0)), Err(Reason::Applet));
    /// ```
    #[must_use]
    pub const fn with_applet_probe(mut self, exit_code: i32) -> Self {
        self.may_run_applets = exit_code != 127;
        self
    }
}

fn number(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text).ok()?.parse().ok()
}
