//! The driver that asks `/bin/sh` which shell it is, with shells that only pretend.

use std::ffi::CStr;

use forkless_shell::probe::{self, Answer, Question};
use forkless_shell::{Reason, ShellKind, ShellTraits, analyze};

/// One pretended run of a shell: its process id is 7.
#[derive(Clone)]
enum Run {
    DoesNotStart,
    CannotBeRead,
    /// Its output and its exit code.
    Answers(String, Option<i32>),
}

fn answers(output: &str, exit_code: impl Into<Option<i32>>) -> Run {
    Run::Answers(output.to_owned(), exit_code.into())
}

/// Shells in the order in which they are started.
#[derive(Default)]
struct Pretended {
    runs: Vec<Run>,
    output: String,
    lines: Vec<&'static CStr>,
    environments: Vec<&'static [&'static CStr]>,
}

impl probe::Asker for Pretended {
    type Shell = Run;

    fn start(&mut self, question: &Question) -> Option<Run> {
        let run = self.runs[self.lines.len()].clone();
        self.lines.push(question.line);
        self.environments.push(question.environment);
        (!matches!(run, Run::DoesNotStart)).then_some(run)
    }

    fn hear(&mut self, run: Run) -> Option<Answer<'_>> {
        let Run::Answers(output, exit_code) = run else { return None };
        self.output = output;
        Some(Answer { output: self.output.as_bytes(), shell: 7, directory: b"/", exit_code })
    }
}

/// The driver's finding, and how many shells it started.
fn ask(runs: &[Run]) -> (Option<ShellTraits>, usize) {
    let mut asker = Pretended { runs: runs.to_vec(), ..Pretended::default() };
    let found = probe::ask(&mut asker);
    (found, asker.lines.len())
}

/// dash 0.5.12 waits for its program: the environment is exported in the order of its hash table.
const DASH: &str = concat!(
    "9 (cat) R 7 7 6 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 5 5 5 5 1 1 1 1 1 0 0 0 0 0\nMAIL=\0CH=before MAIL\0SHLVL=5\0OLDPWD=/nonexistent/forkless\0Z=\0_=forkless\0",
    "CX=before TERM\0TERM=dumb\0PATH=/usr/bin:/bin\0C4=before PATH\0MAILPATH=\0DS=before MAILPATH\0",
    "DV=before PWD and LC_ALL\0LC_ALL=C\0PWD=/\0BASH_VERSION=0\0"
);
/// busybox of Debian 12, which replaces itself.
const BUSYBOX: &str = concat!(
    "7 (cat) R 6 7 6 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 5 5 5 5 1 1 1 1 1 0 0 4 0 0\nMAIL=\0CH=before MAIL\0SHLVL=6\0OLDPWD=/nonexistent/forkless\0Z=\0_=forkless\0",
    "CX=before TERM\0TERM=dumb\0PATH=/usr/bin:/bin\0C4=before PATH\0MAILPATH=\0DS=before MAILPATH\0",
    "DV=before PWD and LC_ALL\0LC_ALL=C\0PWD=/\0BASH_VERSION=0\0"
);

#[test]
fn dash_is_known_by_its_first_answer() {
    let (found, asked) = ask(&[answers(DASH, 0)]);
    assert_eq!((found.map(|traits| traits.kind()), asked), (Some(ShellKind::Dash), 1));
}

#[test]
fn busybox_is_asked_whether_it_runs_its_own_commands() {
    let decide = |found: Option<ShellTraits>| {
        analyze(b"cat x", &[b"PATH=/bin".as_slice()], &found.unwrap(), &mut [0; 256])
            .map(drop)
            .map_err(|rejection| rejection.reason)
    };
    let (found, asked) = ask(&[answers(BUSYBOX, 0), answers("", 127)]);
    assert_eq!((decide(found), asked), (Ok(()), 2));
    // It found a `cat` where no program is.
    let (found, _) = ask(&[answers(BUSYBOX, 0), answers("", 0)]);
    assert_eq!(decide(found), Err(Reason::Applet));
    // Its exit code is lost.
    let (found, _) = ask(&[answers(BUSYBOX, None), answers("", None)]);
    assert_eq!((found.unwrap().kind(), decide(found)), (ShellKind::Busybox, Err(Reason::Applet)));
}

/// Before 1.38 it leaves SIGQUIT ignored to the program that takes its place. The answer tells.
#[test]
fn a_busybox_that_leaves_sigquit_ignored_says_so() {
    let ignores = |output: &str| {
        let (found, _) = ask(&[answers(output, 0), answers("", 127)]);
        let (shell, mut room) = (found.unwrap(), [0; 256]);
        let script = analyze(b"cat x", &[b"PATH=/bin".as_slice()], &shell, &mut room).unwrap();
        shell.ignores_sigquit(&script.single().unwrap())
    };
    assert!(ignores(BUSYBOX));
    assert!(!ignores(&BUSYBOX.replacen(" 0 0 4 0 0\n", " 0 0 0 0 0\n", 1)));
}

#[test]
fn each_question_has_an_environment_of_its_own() {
    let runs = vec![answers(BUSYBOX, 0), answers("", 127)];
    let mut asker = Pretended { runs, ..Pretended::default() };
    probe::ask(&mut asker).unwrap();
    assert_eq!(asker.environments[0].len(), probe::ENVIRONMENT_LEN);
    assert_eq!(asker.environments[1], [c"PATH=/nonexistent/forkless"]);
    assert_ne!(asker.lines[0], asker.lines[1]);
}

/// A caller may start one later: nothing is found yet.
#[test]
fn a_shell_that_does_not_start_leaves_the_question_open() {
    assert_eq!(ask(&[Run::DoesNotStart]), (None, 1));
}

#[test]
fn a_shell_whose_answers_are_lost_or_broken_is_unknown() {
    let unknown = Some(ShellTraits::UNKNOWN);
    assert_eq!(ask(&[Run::CannotBeRead]), (unknown, 1));
    assert_eq!(ask(&[answers("", 127)]), (unknown, 1));
    assert_eq!(ask(&[answers("sh: not found\n", 0)]), (unknown, 1));
    let (cut, _) = BUSYBOX.split_at(BUSYBOX.len() - 1);
    assert_eq!(ask(&[answers(cut, 0)]), (unknown, 1));
    for second in [Run::DoesNotStart, Run::CannotBeRead] {
        assert_eq!(ask(&[answers(BUSYBOX, 0), second]), (unknown, 2));
    }
}

#[test]
fn the_answer_of_another_process_is_not_the_shells() {
    let other = BUSYBOX.replacen("7 (cat) R 6", "9 (cat) R 8", 1);
    assert_eq!(ask(&[answers(&other, 0)]).0, Some(ShellTraits::UNKNOWN));
}

#[test]
fn the_two_halves_of_a_question_give_the_same() {
    let mut asker = Pretended { runs: vec![answers(DASH, 0)], ..Pretended::default() };
    let shell = probe::start(&mut asker).unwrap();
    assert_eq!(probe::hear(&mut asker, shell).kind(), ShellKind::Dash);
}
