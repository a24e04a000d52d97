//! Property: a program cannot tell whether a line by system() or popen() had a shell. That holds
//! for any ids, signals, limits, descriptors and standard error of the program, and for names that
//! are there twice.
//!
//! A test run takes seconds. `FORKLESS_LINES=100000` goes on until so many lines were run *without*
//! a shell, from the line `FORKLESS_FIRST_SEED` on. A failure prints the seed of its line.

use std::fmt::Write as _;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::support::{Report, allow_seconds, compile, observe, plain, reported_by, run, temporary};

pub(crate) static SHELL_LINES: LazyLock<PathBuf> = LazyLock::new(|| compile("shell_lines.c", &[]));

/// The conditions under which the program runs.
const NAMES: &[&str] = &["obs", "ok", "no", "rc3", "both", "copy", "t1", "t2", "t9", "t11", "t13", "t15"];
pub(crate) const PROGRAMS: &[&str] =
    &["obs", "obs", "obs", "obs", "ok", "no", "rc3", "both", "copy", "t9", "t15"];
pub(crate) const RARE_PROGRAMS: &[&str] = &[
    "t1", "t2", "t11", "t13", "exec obs", "exec t15", "missing", "\"obs\"", "$TOOL", "./input", "echo", "!",
];
pub(crate) const WORDS: &[&str] = &[
    "a",
    "-x",
    "'single quoted'",
    "\"double $PLAIN\"",
    "back\\ slash",
    "$PLAIN",
    "\"$SPACED\"",
    "\"${EMPTY}\"",
    "''",
    "a=b",
    "a#b",
    "{x}",
    "\\*",
    "\"$UNSET\"",
    "a:b",
    "%",
    "]",
    "\u{e9}",
];
pub(crate) const RARE_WORDS: &[&str] =
    &["*", "$SPACED", "~", "$?", "$(ok)", "`ok`", "&& ok", "; ok", "#", "'"];
pub(crate) const ASSIGNED: &[&str] =
    &["A=1", "B='a b'", "PLAIN=other", "LC_ALL=C", "A=$PLAIN", "PWD=/x", "OLDPWD=/"];
pub(crate) const REDIRECTIONS: &[&str] = &[
    "> out1",
    ">> out2",
    "< input",
    "> /dev/null",
    "3> out3",
    "<&-",
    ">&-",
    "3<&-",
    "0<> input",
    "5<&0",
    "1>| out1",
    "4>&1",
    "1>&1",
    "> out1 > out2",
    "< missing",
    "> missing/x",
    "3>&9",
];
pub(crate) const OF_ERRORS: &[&str] = &["2>&1", "2> err1", "2>/dev/null", "2>&-", ">out1 2>&1", "1>&2"];
const ENTRIES: &[&str] = &[
    "PWD=/nonexistent",
    "PWD=/",
    "OLDPWD=/tmp",
    "OLDPWD=/nonexistent",
    "SHLVL=3",
    "_=/x",
    "not.valid=1",
    "9x=1",
    "A=outer",
    "A=again",
    "HOME=/root",
    "LANG=C",
    "TERM=dumb",
    "ZZ=",
    "PLAIN=twice",
    "LINENO=3",
    "=nameless",
    "no-equals-sign",
];

/// xorshift64*: the same lines for the same seed on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).expect("31 bits") % bound
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }
}

/// The conditions (the letters of shell_lines.c), and the line. Most lines need no shell.
fn line(random: &mut Random, is_root: bool) -> (String, String) {
    let mut setup = random.pick(&["s", "s", "r", "r", "w"]).to_owned();
    // A signal for the group, while the line's program waits.
    if random.one_in(250) {
        let with = random.pick(&["Gh", "Gh3", "Gb", "G3s"]);
        let line = "/bin/sh -c 'echo >&9; exec 9>&-; exec sleep 20'";
        // system() ignores SIGQUIT; at its default anything else would be the program's own death.
        let by = if with.contains('h') { random.pick(&["s", "r"]) } else { "s" };
        return (format!("{by}{with}"), line.to_owned());
    }
    let for_all = ["p", "a", "n", "m", "0", "2", "f", "l", "f0", "pa"];
    let for_shells = ["k", "b", "h", "bk"];
    let for_root = ["i", "I", "g", "u", "u"];
    if random.one_in(4) {
        setup += random.pick(&for_all);
    }
    if random.one_in(20) {
        setup += random.pick(&for_shells);
    }
    // A message that is missing kills no process, either.
    if setup.starts_with('r') && !setup.contains(['l', 'p']) && random.one_in(15) {
        setup += "c";
    }
    if is_root && random.one_in(12) {
        setup += random.pick(&for_root);
    }
    let mut line = String::new();
    if random.one_in(5) {
        let _ = write!(line, "{} ", random.pick(ASSIGNED));
    }
    let program = if random.one_in(8) { random.pick(RARE_PROGRAMS) } else { random.pick(PROGRAMS) };
    // In system() a SIGINT counts as the terminal's (docs/guide/noticed.md).
    line += if program == "t2" && setup.starts_with('s') { "t1" } else { program };
    for _ in 0..[0, 0, 1, 2, 4][random.below(5)] {
        let _ =
            write!(line, " {}", if random.one_in(40) { random.pick(RARE_WORDS) } else { random.pick(WORDS) });
    }
    for _ in 0..[0, 0, 0, 1, 2][random.below(5)] {
        let errors = random.one_in(5);
        let _ = write!(line, " {}", random.pick(if errors { OF_ERRORS } else { REDIRECTIONS }));
    }
    (setup, line)
}

/// The environment: variables that lines need, among others that each shell treats in its own way.
pub(crate) fn environment(random: &mut Random, bin: &Path) -> Vec<String> {
    let mut entries = vec![
        format!("PATH={}:/usr/bin:/bin", bin.display()),
        "PLAIN=plain".to_owned(),
        "SPACED=two  words".to_owned(),
        "EMPTY=".to_owned(),
        "TOOL=obs".to_owned(),
    ];
    for _ in 0..random.below(6) {
        let entry = random.pick(ENTRIES);
        let name = entry.split('=').next().expect("a name");
        let is_there = entries.iter().any(|other| other.split('=').next() == Some(name));
        // Now and then a name is there twice: such lines are the shell's.
        if !is_there || random.one_in(6) {
            entries.insert(random.below(entries.len() + 1), entry.to_owned());
        }
    }
    entries
}

/// A folder in which lines run, and the programs that they run.
pub(crate) fn prepare(name: &str) -> (PathBuf, PathBuf, PathBuf) {
    let base = temporary(&format!("{name}.{}", std::process::id()));
    let (bin, work) = (base.join("bin"), base.join("work"));
    std::fs::create_dir_all(&bin).expect("a folder");
    std::fs::create_dir_all(&work).expect("a folder");
    for folder in [&base, &work] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).expect("for everybody");
    }
    for name in NAMES {
        symlink(&*SHELL_LINES, bin.join(name)).expect("a program");
    }
    (base, bin, work)
}

/// Runs a line for each of the seeds, plainly and with the library, and compares what each of them
/// prints. `case` makes the setup, the line and the environment. `label` stands before the case in
/// a failure.
pub(crate) fn compare(
    base: &Path,
    seeds: Range<u64>,
    case: impl Fn(&mut Random) -> (String, String, Vec<String>),
    label: &str,
    plainly: Command,
    with: impl Fn(&[&str]) -> Command,
) -> Report {
    let mut cases = Vec::new();
    let mut script = Vec::new();
    for seed in seeds {
        let (setup, line, entries) = case(&mut Random::new(seed));
        for string in [&setup, &line].into_iter().chain(&entries).chain([&String::new()]) {
            script.extend(string.bytes().chain([0]));
        }
        cases.push(format!("FORKLESS_FIRST_SEED={seed} {setup} {line:?} {entries:?}"));
    }
    let input = base.join("cases");
    std::fs::write(&input, &script).expect("written");
    let from = |mut command: Command| {
        command.stdin(Stdio::from(File::open(&input).expect("there")));
        command
    };
    let without = observe(&mut from(plainly));
    assert_eq!(without.0, Some(0), "{}", without.2);
    let (with, report) = reported_by(|more| from(with(more)));
    for ((plainly, run), case) in without.1.split("case ").zip(with.1.split("case ")).skip(1).zip(&cases) {
        assert_eq!(plainly, run, "{label}{case}");
    }
    assert_eq!(without, with);
    report
}

#[test]
fn random_lines_look_the_same_with_and_without_a_shell() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let wanted = number("FORKLESS_LINES").unwrap_or(300);
    let first = number("FORKLESS_FIRST_SEED").unwrap_or(1);
    const BATCH: u64 = 500;
    allow_seconds(1200);
    let is_root = rustix::process::geteuid().is_root();
    let (base, bin, work) = prepare("shell_lines");
    let folder = work.to_str().expect("UTF-8");
    let (mut skipped, mut kept, mut seed) = (0, 0, first);
    while skipped < wanted {
        let report = compare(
            &base,
            seed..seed + BATCH,
            |random| {
                let (setup, line) = line(random, is_root);
                (setup, line, environment(random, &bin))
            },
            "",
            plain(&SHELL_LINES, &[folder]),
            |more| run(&[more, &["--quiet"]].concat(), &SHELL_LINES, &[folder]),
        );
        skipped += report.count("shells_skipped");
        kept += report.count("shells_kept");
        seed += BATCH;
    }
    println!("{skipped} lines without a shell, {kept} with one; the next is FORKLESS_FIRST_SEED={seed}");
    assert!(skipped * 4 > kept, "the generator makes lines that only a shell can run");
    std::fs::remove_dir_all(&base).expect("removed");
}
