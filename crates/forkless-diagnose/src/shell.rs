//! Judges shells that were started for one line: does the line need a shell?

use std::collections::HashMap;
use std::fs;

use forkless_shell::{Script, ShellTraits, analyze};

use crate::creation::Creation;
use crate::file_name::file_name;
use crate::interpreter::is_shell;

/// Whether a line can be carried out without a shell.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// The line starts no program: `true`, `exit 0`.
    NoProgram,
    /// The line is one program: a spawn carries it out.
    OneProgram(ByRun),
    /// The line is several programs: a pipeline or a list.
    Programs,
    /// Only a shell can carry it out, for this reason.
    NeedsShell(String),
    /// The record holds only the beginning of the line.
    Unknown,
}

/// What decides about the preloaded library at a line of one program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ByRun {
    /// The library can start the program itself (`without_shell` of forkless-preload).
    pub(crate) proven: bool,
    /// The shell makes way for the program. Other shells wait for it.
    pub(crate) replaces: bool,
    /// The line redirects something.
    pub(crate) redirects: bool,
}

impl ByRun {
    fn of(script: &Script<'_>) -> Self {
        let Some(command) = script.single() else { return Self::default() };
        Self {
            proven: command.is_program()
                && !command.assignments().any(|assigned| assigned.to_bytes().starts_with(b"PATH=")),
            replaces: command.replaces_shell(),
            redirects: command.redirections().next().is_some(),
        }
    }

    /// Whether a line of system() or popen() has no shell. `sees_its_end`: the caller could learn
    /// what becomes of a shell that waits.
    pub(crate) fn spares_libcs(self, sees_its_end: bool) -> bool {
        self.proven && (self.replaces || !sees_its_end)
    }

    /// Whether a shell that a program executes has its command executed in its place
    /// (decision 51).
    pub(crate) fn spares_executed(self) -> bool {
        self.proven && self.replaces && !self.redirects
    }
}

impl Fate {
    /// The name in metrics, without the reason.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::NoProgram | Self::OneProgram(_) | Self::Programs => "needless",
            Self::NeedsShell(_) => "needed",
            Self::Unknown => "unknown",
        }
    }
}

/// The analysis, for the shells that this machine has.
#[derive(Debug)]
pub(crate) struct Judge {
    traits: HashMap<String, ShellTraits>,
    /// The callers' environments, as they were at their start.
    environments: HashMap<u32, Vec<u8>>,
    buffer: Vec<u8>,
}

/// Recorded lines are shorter than 384 bytes; a script takes up to 25 times its line, and the
/// values it expands.
const BUFFER: usize = 64 << 10;
const MAX_ENVIRONMENTS: usize = 1024;

impl Judge {
    pub(crate) fn new() -> Self {
        Self { traits: HashMap::new(), environments: HashMap::new(), buffer: vec![0; BUFFER] }
    }

    /// Judges `line` as `shell` would be given it by process `caller`. For a caller that is gone,
    /// an environment with PATH alone is assumed: a line that expands variables then needs the
    /// shell.
    pub(crate) fn fate(&mut self, line: &str, cut: bool, shell: &str, caller: u32) -> Fate {
        if cut {
            return Fate::Unknown;
        }
        let traits = self.traits.entry(shell.to_owned()).or_insert_with(|| traits_of(shell));
        if self.environments.len() >= MAX_ENVIRONMENTS {
            self.environments.clear();
        }
        let environment = self.environments.entry(caller).or_insert_with(|| {
            fs::read(format!("/proc/{caller}/environ"))
                .ok()
                .filter(|environment| !environment.is_empty())
                .unwrap_or_else(|| b"PATH=/usr/local/bin:/usr/bin:/bin".to_vec())
        });
        let variables: Vec<&[u8]> =
            environment.split(|&byte| byte == 0).filter(|variable| !variable.is_empty()).collect();
        match analyze(line.as_bytes(), variables.as_slice(), traits, &mut self.buffer) {
            Ok(script) if script.program_count() == 0 => Fate::NoProgram,
            Ok(script) if script.program_count() == 1 => Fate::OneProgram(ByRun::of(&script)),
            Ok(_) => Fate::Programs,
            Err(rejection) => Fate::NeedsShell(rejection.reason.to_string()),
        }
    }
}

/// Goes by the name of the file behind the path: /bin/sh of Debian and Alpine is a link.
fn traits_of(shell: &str) -> ShellTraits {
    let file = fs::canonicalize(shell).ok();
    match (file.as_deref().and_then(|path| path.file_name()?.to_str()), file_name(shell)) {
        (Some("dash"), _) => ShellTraits::DASH,
        // bash under its own name has more syntax than these traits know.
        (Some("bash"), "sh") => ShellTraits::BASH,
        (Some("busybox"), _) => ShellTraits::BUSYBOX,
        _ => ShellTraits::UNKNOWN,
    }
}

/// The line of a `sh -c LINE`, where nothing but `-c` stands before it.
pub(crate) fn line_of(creation: &Creation) -> Option<&str> {
    let program = file_name(creation.exec_path.as_deref()?);
    if !is_shell(program) && program != "busybox" {
        return None;
    }
    match creation.argv.as_slice() {
        [_, dash_c, line] if dash_c == "-c" => Some(line),
        // system() and popen() of newer C libraries end the options first.
        [_, dash_c, dashes, line] if dash_c == "-c" && dashes == "--" => Some(line),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of ksh, mksh and zsh were not counted among the shells for one line.
    #[test]
    fn every_shell_has_a_line() {
        let of = |path: &str, words: &[&str]| {
            let argv = words.iter().map(|word| (*word).to_owned()).collect();
            let creation = Creation { exec_path: Some(path.to_owned()), argv, ..Creation::unseen() };
            line_of(&creation).map(str::to_owned)
        };
        for shell in ["/bin/sh", "/bin/busybox", "/bin/ksh93", "/bin/mksh", "/usr/bin/zsh"] {
            assert_eq!(of(shell, &["sh", "-c", "true"]).as_deref(), Some("true"), "{shell}");
        }
        assert_eq!(of("/bin/sh", &["sh", "-c", "--", "true"]).as_deref(), Some("true"));
        assert_eq!(of("/usr/bin/python3", &["python3", "-c", "pass"]), None);
    }

    #[test]
    fn lines_are_judged_in_the_environment_of_their_caller() {
        let mut judge = Judge::new();
        let own = std::process::id();
        if traits_of("/bin/sh") == ShellTraits::UNKNOWN {
            println!("skipped: /bin/sh is another shell than those that are analysed: everything needs it");
            return;
        }
        let mut by_run = |line| match judge.fate(line, false, "/bin/sh", own) {
            Fate::OneProgram(by_run) => by_run,
            other => panic!("{line}: {other:?}"),
        };
        assert!(by_run("/bin/true a b").spares_libcs(false));
        let exec = by_run("exec /bin/true");
        assert!(exec.spares_libcs(true) && exec.spares_executed());
        let redirected = by_run("exec /bin/true >/dev/null");
        assert!(redirected.spares_libcs(true) && !redirected.spares_executed());
        assert!(!by_run("! /bin/true").spares_libcs(false), "the shell inverts the status");
        for none in ["true", "false", ":", "exit 0", "true && exit"] {
            assert_eq!(judge.fate(none, false, "/bin/sh", own), Fate::NoProgram, "{none}");
        }
        assert_eq!(judge.fate("/bin/true | cat", false, "/bin/sh", own), Fate::Programs);
        assert!(matches!(judge.fate("for i in a; do :; done", false, "/bin/sh", own), Fate::NeedsShell(_)));
        assert_eq!(judge.fate("tru", true, "/bin/sh", own), Fate::Unknown);
    }
}
