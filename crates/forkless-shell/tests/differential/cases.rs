//! The lines: fixed ones first, random ones then.

use std::time::{Duration, Instant};

use crate::compare::{Bench, Verdict};
use crate::generator::{self, Random};
use crate::shells::Shell;

type Case = fn(&mut Bench, &Shell) -> Result<String, String>;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("the_probe_recognises_the_shell", the_probe_recognises_the_shell),
    ("usual_lines_run_directly_and_alike", usual_lines),
    ("regressions_run_alike_or_not_at_all", regressions),
    ("random_lines_run_alike_or_not_at_all", random_lines),
];

fn the_probe_recognises_the_shell(_: &mut Bench, shell: &Shell) -> Result<String, String> {
    if shell.traits.kind() != shell.kind {
        return Err(format!("found {:?}", shell.traits));
    }
    Ok(if shell.runs_applets { "it runs applets from within itself" } else { "" }.to_owned())
}

/// Lines that programs really hand to system() and popen(): none may need the shell.
const USUAL: &[&str] = &[
    "obs",
    "obs -c file.c -o file.o",
    "obs 'a b' \"c d\" e\\ f",
    ": && obs -o x a.o b.o && :",
    "cd sub && obs -j2",
    "cd sub && obs && cd deep && obs",
    "cd .. && obs; cd work && exec obs",
    "obs > out 2>&1",
    "obs >/dev/null 2>&1",
    "obs 2>/dev/null | copy",
    "both 2>&1 >out | copy",
    "obs | copy | copy > out",
    "exec obs a",
    "A=1 B=2 obs",
    "LC_ALL=C obs | copy",
    "obs \"$PLAIN\" \"$SPACED\" $PLAIN",
    "no || obs",
    "no && obs",
    "ok && obs || no",
    "no; rc3",
    "rc3 && obs; no || exit 5",
    "! no",
    "! ok | no",
    "copy < input2 >> out",
    "obs 3>&- 4>out5 5<>out6",
    "ok; t15",
    "t15",
    "t9; rc3",
    "t15 >out 2>&1; ok",
    "t13 | t9 | t15",
    "t15 || rc3",
    "ok\nobs\n",
    "sub/obs",
    "exit 7",
    "true",
    "false || exit",
    "",
    "# nothing",
];

/// Lines of which the shell has to take over a part, since something in them fails.
const FAILING: &[&str] = &[
    "missing",
    "missing 2>/dev/null",
    "ok; missing; obs",
    "missing | obs",
    "obs | missing || obs",
    "obs < missing; rc3",
    "ok && obs > missing/x; obs",
    "./plainfile",
    "./sub",
    "script a",
    "ok; script > out",
    "badinterp",
    "ok; badinterp | obs",
    "noexec",
    "cd missing && obs",
    "cd sub; ok; cd missing; obs",
    "cd sub; missing; obs",
    "obs >&9",
];

fn usual_lines(bench: &mut Bench, shell: &Shell) -> Result<String, String> {
    for extra in [
        &[][..],
        &["SHLVL=3", "_=/x", "OLDPWD=/nonexistent", "not.valid=1", "PWD=/wrong"],
        &["OLDPWD=/", "_=y"],
    ] {
        let environment = bench.environment(extra);
        let lines = USUAL.iter().map(|line| (line, false)).chain(FAILING.iter().map(|line| (line, true)));
        for (line, fails) in lines {
            match bench.compare(shell, &environment, line.as_bytes())? {
                Verdict::Alike(handed_over) if (handed_over > 0) != fails => {
                    return Err(format!("{line:?}: the shell took over {handed_over} times"));
                }
                Verdict::Alike(_) => {}
                Verdict::Race => return Err(format!("{line:?} is a race")),
                Verdict::Rejected(rejection) => {
                    return Err(format!("{line:?} is left to the shell: {rejection}"));
                }
            }
        }
    }
    Ok(format!("{} lines", (USUAL.len() + FAILING.len()) * 3))
}

/// Lines that once differed, by cause.
const REGRESSIONS: &[(&str, &str)] = &[
    ("exec ends the line wherever it stands", "exec obs && no >'out 3'\nobs if ;\n"),
    ("bash decrements SHLVL for a waited-for script, too", "true\nobs | script 22;"),
    ("the rest handed over may look like an option", "missing || \\\n --long=value"),
    ("bash appends OLDPWD behind _ once a program ran", "both >out2\ncd sub/. || cd sub/.; obs"),
    ("a cd that fails after a program", "ok; cd missing; obs"),
    ("a line that begins like an option", "-TERM=a=b both"),
    ("bash runs a script without #! in place, and trips over what follows it", "script then \\\n"),
    ("bash handed a rest must not take _ for inherited", "true && obs >out2 7>&7 && obs"),
    ("the newline at the end does not make bash forget its nested list", "obs; true && obs;\n"),
    ("bash does so in a child, too", "no || script >&2 \\\n"),
    ("a variable of the line that is inherited twice", "A=3 obs"),
    ("a continuation before the end is no newline", "t15; \\\n"),
];

fn regressions(bench: &mut Bench, shell: &Shell) -> Result<String, String> {
    let (mut alike, mut rejected) = (0, 0);
    // The last: what is there twice was exported twice, where the shell or the line sets it.
    for extra in [
        &["OLDPWD=/nonexistent", "SHLVL=1"][..],
        &["_=/usr/bin/before"],
        &["PWD=/wrong", "SHLVL=2", "A=1", "PWD=/", "SHLVL=3", "A=2"],
    ] {
        let environment = bench.environment(extra);
        for (cause, line) in REGRESSIONS {
            match bench
                .compare(shell, &environment, line.as_bytes())
                .map_err(|text| format!("{cause}\n{text}"))?
            {
                Verdict::Alike(_) => alike += 1,
                Verdict::Rejected(_) | Verdict::Race => rejected += 1,
            }
        }
    }
    Ok(format!("{alike} alike; {rejected} left to the shell"))
}

/// How many random lines a plain test run compares with each shell.
const LINES: u64 = 300;

fn random_lines(bench: &mut Bench, shell: &Shell) -> Result<String, String> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("FORKLESS_SHELL_FUZZ_SECONDS").map(Duration::from_secs);
    let first = number("FORKLESS_SHELL_SEED").unwrap_or(1);
    let begin = Instant::now();
    let (mut alike, mut handed_over, mut rejected, mut races) = (0_u64, 0_usize, 0_u64, 0_u64);
    for seed in first.. {
        match seconds {
            Some(limit) if begin.elapsed() >= limit => break,
            None if alike >= LINES => break,
            _ => {}
        }
        let mut random = Random::new(seed);
        let extra = generator::environment(&mut random);
        let environment = bench.environment(&extra);
        let line = generator::line(&mut random);
        match bench
            .compare(shell, &environment, &line)
            .map_err(|text| format!("FORKLESS_SHELL_SEED={seed}\n{text}"))?
        {
            Verdict::Alike(count) => {
                alike += 1;
                handed_over += usize::from(count > 0);
            }
            Verdict::Rejected(_) => rejected += 1,
            Verdict::Race => races += 1,
        }
    }
    Ok(format!(
        "{alike} alike, of which {handed_over} with the shell's help; {rejected} left to the shell; {races} not compared, being races"
    ))
}
