//! Property: nobody can tell whether a program that executed `sh -c LINE`, or had it spawned, got
//! the shell or the line's command. That holds for each function that executes or spawns, after
//! fork and after vfork, in speculative children, and with each shell as `/bin/sh`.
//!
//! `FORKLESS_LINES=10000` goes on until so many lines were run without a shell, from the line
//! `FORKLESS_FIRST_SEED` on. A failure prints the seed of its line.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::asking::{runs_its_own_commands, with_shell};
use crate::shell_lines::{
    self, ASSIGNED, PROGRAMS, RARE_PROGRAMS, RARE_WORDS, REDIRECTIONS, Random, SHELL_LINES, WORDS,
    environment, prepare,
};
use crate::support::{
    FORKLESS, PATIENT, allow_seconds, compile, observe, plain, reported, reported_by, temporary,
    without_dispatch,
};

static EXEC_CASES: LazyLock<PathBuf> = LazyLock::new(|| compile("exec_shell_cases.c", &["-lpthread"]));

/// The counters of the lines of a report: without a shell, and kept for each of the reasons.
const COUNTERS: [&str; 4] = ["exec_shells_skipped", "exec_lines_kept", "exec_waits_kept", "exec_states_kept"];

/// The way (a letter of shell_lines.c) and the conditions, and the line. Most lines begin with
/// `exec`, which every shell carries out in its own place.
fn line(random: &mut Random, is_root: bool) -> (String, String) {
    let mut setup = random.pick(&["E", "V", "O", "L", "D", "T", "S", "P", "Q"]).to_owned();
    if random.one_in(4) {
        setup += random.pick(&["a", "n", "m", "0", "2", "f", "l", "k", "b", "h", "C", "B"]);
    }
    if is_root && random.one_in(12) {
        setup += random.pick(&["i", "I", "g", "u", "u"]);
    }
    let mut line = String::new();
    if random.one_in(5) {
        let _ = write!(line, "{} ", random.pick(ASSIGNED));
    }
    let program = if random.one_in(8) { random.pick(RARE_PROGRAMS) } else { random.pick(PROGRAMS) };
    if !program.starts_with("exec") && line.is_empty() && !random.one_in(4) {
        line += "exec ";
    }
    // busybox looks at names only after its own commands.
    if program == "obs" && random.one_in(2) {
        line += "$BIN/";
    }
    line += program;
    for _ in 0..[0, 0, 1, 2, 4][random.below(5)] {
        let words = if random.one_in(40) { RARE_WORDS } else { WORDS };
        let word = random.pick(words);
        let _ = write!(line, " {word}");
    }
    if random.one_in(12) {
        let _ = write!(line, " {}", random.pick(REDIRECTIONS));
    }
    (setup, line)
}

/// Fewer lines than this have a shell, for each one without.
const KEPT: u64 = 4;

/// Runs lines from a seed on, until `wanted` of them had no shell. For each of these, fewer than
/// `kept` have one. `wrap` makes the command that runs a command. Returns how many forks committed.
fn compare(name: &str, wanted: u64, kept: u64, options: &[&str], wrap: &dyn Fn(&[&str]) -> Command) -> u64 {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let wanted = number("FORKLESS_LINES").unwrap_or(wanted);
    const BATCH: u64 = 300;
    allow_seconds(1200);
    let is_root = rustix::process::geteuid().is_root();
    let (base, bin, work) = prepare(name);
    let program = SHELL_LINES.to_str().expect("UTF-8");
    let folder = work.to_str().expect("UTF-8");
    let (mut counts, mut committed) = ([0; COUNTERS.len()], 0);
    let mut seed = number("FORKLESS_FIRST_SEED").unwrap_or(1);
    while counts[0] < wanted {
        let report = shell_lines::compare(
            &base,
            seed..seed + BATCH,
            |random| {
                let (setup, line) = line(random, is_root);
                let mut entries = environment(random, &bin);
                entries.push(format!("BIN={}", bin.display()));
                (setup, line, entries)
            },
            &format!("{name} {options:?}: "),
            wrap(&[program, folder]),
            |more| {
                let run = [&[FORKLESS, "run", "--quiet", PATIENT], options, more, &["--", program, folder]];
                wrap(&run.concat())
            },
        );
        for (count, counter) in counts.iter_mut().zip(COUNTERS) {
            *count += report.count(counter);
        }
        committed += report.count("committed");
        seed += BATCH;
    }
    println!("{name} {options:?}: {COUNTERS:?} {counts:?}; the next is FORKLESS_FIRST_SEED={seed}");
    assert!(counts[0] * kept > counts[1] + counts[3], "the generator makes lines that only a shell can run");
    std::fs::remove_dir_all(&base).expect("removed");
    committed
}

/// A command by itself, with the library's path for `forkless run`.
fn here(command: &[&str]) -> Command {
    let mut all = plain(command[0].as_ref(), &command[1..]);
    all.env("FORKLESS_LIBRARY", &*crate::support::LIBRARY);
    all
}

#[test]
fn random_executed_lines_look_the_same_with_and_without_a_shell() {
    compare("exec_lines", 150, KEPT, &[], &here);
}

/// Children of fork speculate.
#[test]
fn random_lines_of_speculative_children_look_the_same() {
    let committed = compare("exec_lines_speculate", 150, KEPT, &["--fork-minimum=0", "--fork-always"], &here);
    assert!(without_dispatch() || committed > 100, "{committed} committed");
}

/// bash and busybox execute the last command of a line in their own place.
#[test]
fn random_executed_lines_of_other_shells_look_the_same() {
    for name in ["bash", "busybox"] {
        let shell = Path::new("/bin").join(name);
        let tried = observe(&mut with_shell(&shell, &["true"]));
        if tried.0 != Some(0) {
            println!("skipped: {name} cannot be made /bin/sh here: {}", tried.2.trim());
            continue;
        }
        let kept = if runs_its_own_commands(&shell) { 4 * KEPT } else { KEPT };
        compare(&format!("exec_lines_{name}"), 100, kept, &[], &|command| with_shell(&shell, command));
    }
}

/// Regression: bash makes a relative path of `exec` absolute, and joins no second slash to a folder
/// of PATH. busybox exports a PATH where there is none.
#[test]
fn a_program_has_the_path_that_its_shell_finds() {
    let folder = temporary(&format!("paths.{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of the test's own");
    let program = EXEC_CASES.to_str().expect("UTF-8");
    for name in ["dash", "bash", "busybox"] {
        let shell = Path::new("/bin").join(name);
        let in_folder = |command: &[&str]| {
            let mut all = with_shell(&shell, command);
            all.current_dir(&folder);
            all
        };
        let without = observe(&mut in_folder(&[program, "paths"]));
        if without.0 != Some(0) {
            println!("skipped: {name} cannot be made /bin/sh here: {}", without.2.trim());
            continue;
        }
        let (with, report) = reported_by(|options| {
            in_folder(&[&[FORKLESS, "run"], options, &["--", program, "paths"]].concat())
        });
        assert_eq!(without, with, "{name}");
        let counts = ["exec_shells_skipped", "exec_lines_kept", "shells_skipped", "shells_kept"]
            .map(|counter| report.count(counter));
        // A busybox may have its own programs, and gets the line with a name then.
        let expected: &[[u64; 4]] = match name {
            "dash" => &[[3, 2, 2, 1]],
            "bash" => &[[0, 5, 0, 3]],
            _ => &[[3, 2, 2, 1], [2, 3, 1, 2]],
        };
        assert!(expected.contains(&counts), "{name}: {counts:?}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// Each case prints the same with and without the library. The numbers are those of [`COUNTERS`].
#[test]
fn executed_shells_are_skipped_or_kept() {
    let cases: &[(&str, [u64; 4])] = &[
        // Each function, after fork and after vfork.
        ("every_function", [18, 0, 0, 0]),
        ("arguments", [2, 0, 0, 0]),
        ("pointers_to_nowhere", [0, 0, 0, 1]),
        ("lists_and_builtins", [0, 4, 0, 0]),
        ("a_shell_that_waits", [0, 0, 1, 0]),
        ("a_command_that_cannot_be_executed", [0, 0, 0, 6]),
        ("a_small_stack", [0, 0, 0, 1]),
        ("a_signal_stack", [0, 0, 0, 1]),
        ("a_traced_child", [0, 0, 0, 1]),
        ("file_actions", [2, 0, 0, 3]),
        ("a_filter", [0, 0, 0, 2]),
        ("beside_threads", [200, 0, 0, 0]),
        ("a_long_line", [1, 1, 0, 0]),
        ("a_parents_memory", [1, 1, 0, 0]),
        ("a_stack_limit", [1, 0, 0, 1]),
        ("a_large_environment", [2, 0, 0, 2]),
        ("in_its_own_place", [1, 0, 0, 0]),
        ("a_removed_directory", [0, 0, 0, 1]),
        ("no_proc", [0, 0, 0, 1]),
        ("ignores_children", [0, 0, 0, 1]),
    ];
    for &(case, counts) in cases {
        let without = observe(&mut plain(&EXEC_CASES, &[case]));
        if without.0 == Some(77) {
            println!("skipped: {case}: a mount namespace cannot be made here");
            continue;
        }
        assert_eq!(without.0, Some(0), "{case}: {without:?}");
        for options in [&[][..], &["--fork-minimum=0", "--fork-always"]] {
            let (with, report) = reported(options, &EXEC_CASES, &[case]);
            assert_eq!(without, with, "{case} {options:?}");
            assert_eq!(COUNTERS.map(|counter| report.count(counter)), counts, "{case} {options:?}");
        }
    }
}

/// A process that asks for itself asks when it spawns, never in a child.
#[test]
fn a_program_alone_asks_when_it_spawns() {
    let without = observe(&mut plain(&EXEC_CASES, &["every_function"]));
    let (with, report) = reported(&["--children=no"], &EXEC_CASES, &["every_function"]);
    assert_eq!(without, with);
    let [skipped, lines, waits, states] = COUNTERS.map(|counter| report.count(counter));
    assert_eq!((lines, waits, states), (0, 0, 0));
    assert!(skipped >= 2, "{skipped}: at least those that are spawned");
}

#[test]
fn with_shells_off_no_executed_shell_is_looked_at() {
    let (_, report) = reported(&["--shell=off"], &EXEC_CASES, &["every_function"]);
    assert_eq!(COUNTERS.map(|counter| report.count(counter)), [0; 4]);
}

/// A command that is executed in a speculative child is a commit.
#[test]
fn a_speculative_child_commits_with_its_command() {
    if without_dispatch() {
        println!("skipped: without syscall user dispatch (Linux 5.11) nothing is speculated");
        return;
    }
    let options = ["--fork-minimum=0", "--fork-always"];
    let (_, report) = reported(&options, &EXEC_CASES, &["every_function"]);
    assert_eq!((report.count("committed"), report.count("aborted")), (7, 0), "{:?}", report.reasons());
}
