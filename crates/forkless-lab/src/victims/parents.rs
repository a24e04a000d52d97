//! Parents with much memory that start programs: in C against vfork, and interpreters as they come.

use std::cell::RefCell;
use std::ffi::OsString;
use std::process::Command;

use forkless_bench::check::{Bound, CheckVerdict};
use forkless_bench::error::Error;
use forkless_bench::machine::is_root;
use forkless_bench::memory;
use forkless_bench::results::{Metric, Param};
use forkless_run::{Counter, ForkMode, Settings};

use super::coprocess::{Coprocess, fill};
use super::stage::{Asked, Stage, Subject, US, params};
use crate::install;

/// Fork, redirect, exec and wait against vfork and execve of the same program.
pub(super) fn c<const MIB: u64>(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let mib = size(stage, MIB);
    let [plain, run] = pair(name, stage, mib, [None, Some(Settings::default())])?;
    let params = params(name, mib);
    let series = stage.measure(vec![
        Subject::order("plain", &params, &Metric::WALL, &plain, "forkexec", US),
        Subject::order("run", &params, &Metric::WALL, &run, "forkexec", US),
        Subject::order("vfork", &params, &Metric::WALL, &plain, "vfork", US),
    ])?;
    let run = run.into_inner();
    let asked = run.asked("forkexec");
    let evidence = run.finish()?.most(Counter::Committed, asked);
    let asked_for = Asked::of("run / vfork", "times");
    let figure = stage.ratio(&series[1][0], &series[2][0]);
    stage.check(&params, asked_for, figure, evidence);
    Ok(())
}

/// The memory of a victim that holds `mib` usually: less for a rough answer, and where the caller
/// sets a limit.
pub(super) fn size(stage: &Stage<'_>, mib: u64) -> u64 {
    let quick = if stage.spec.quick { 256 } else { u64::MAX };
    let limit = stage.spec.rss.map_or(u64::MAX, |bytes| (bytes >> 20).max(1));
    mib.min(quick).min(limit)
}

/// Two C victims of the same size, with their memory filled by turns.
pub(super) fn pair(
    name: &str,
    stage: &mut Stage<'_>,
    mib: u64,
    [first, second]: [Option<Settings>; 2],
) -> Result<[RefCell<Coprocess>; 2], Error> {
    memory::require(2 * (mib << 20))?;
    let child = [stage.child()];
    let both = [stage.c(name, first, mib, &child)?, stage.c(name, second, mib, &child)?];
    fill(&both.each_ref(), mib)?;
    Ok(both)
}

pub(super) fn perl(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let perl = stage.need("perl", "perl")?;
    let script = stage.write("system.pl", include_str!("programs/system.pl"))?;
    interpreter(name, stage, &Interpreter::new(perl, vec![script.into()]), Some(Asked::SPEEDUP))
}

pub(super) fn python(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    of_python(name, stage, "preexec.py", include_str!("programs/preexec.py"))
}

/// Beside threads that compute and threads that wait.
pub(super) fn python_busy(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let threads = include_str!("programs/busy.py");
    of_python(name, stage, "busy.py", &[threads, include_str!("programs/preexec.py")].concat())
}

fn of_python(name: &'static str, stage: &mut Stage<'_>, file: &str, text: &str) -> Result<(), Error> {
    let python = install::python(stage.need("python3", "python3")?);
    stage.note(format!("{name}: {}", install::version(&python, "--version").unwrap_or_default()));
    let script = stage.write(file, text)?;
    interpreter(name, stage, &Interpreter::new(python, vec![script.into()]), Some(Asked::SPEEDUP))
}

pub(super) fn node(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let node = node_js(name, stage, 0)?;
    let beside = Some(Settings { fork: ForkMode::Speculate, ..Settings::default() });
    interpreter(name, stage, &Interpreter { beside, ..node }, Some(Asked::SPEEDUP))
}

/// A quarter of the memory is JavaScript objects. V8 maps each 256 KiB of them by itself and marks
/// them `MADV_DONTFORK`: a fork copies less, and there are a thousand mappings more to look at.
pub(super) fn node_heap(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let heap = size(stage, 1024) / 4;
    let node = node_js(name, stage, heap)?;
    interpreter(name, stage, &node, None)
}

fn node_js(name: &'static str, stage: &mut Stage<'_>, heap: u64) -> Result<Interpreter, Error> {
    let node = stage.need("node", "nodejs")?;
    stage.note(format!(
        "{name}: Node.js {}",
        install::version(&node, "--version").unwrap_or_else(|| "of an unknown version".into())
    ));
    let script = stage.write("spawn_sync.js", include_str!("programs/spawn_sync.js"))?;
    Ok(Interpreter { heap, ..Interpreter::new(node, vec![script.into()]) })
}

/// Java with the launch mechanism that forks and executes the program itself. The usual one starts
/// a helper by posix_spawn.
pub(super) fn java(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let compiler = stage.need("javac", "default-jdk-headless")?;
    let java = stage.need("java", "default-jdk-headless")?;
    stage.note(format!("{name}: {}", install::version(&java, "-version").unwrap_or_default()));
    let directory = stage.directory("java")?;
    let source = directory.join("Start.java");
    std::fs::write(&source, include_str!("programs/Start.java"))
        .map_err(Error::io(format!("write {}", source.display())))?;
    let compiled = Command::new(compiler).arg("-d").arg(&directory).arg(&source).output();
    let compiled = compiled.map_err(Error::io("start javac"))?;
    if !compiled.status.success() {
        let said = String::from_utf8_lossy(&compiled.stderr).trim().to_owned();
        return Err(Error::Missing(format!("javac cannot compile Start.java: {said}")));
    }
    // Room for the memory and half as much again; all of it is written at the start.
    let heap = size(stage, 1024) * 3 / 2 + 64;
    let mut words: Vec<OsString> = vec!["-Djdk.lang.Process.launchMechanism=FORK".into()];
    words.extend([format!("-Xms{heap}m"), format!("-Xmx{heap}m")].map(OsString::from));
    words.extend(["-cp".into(), directory.into(), "Start".into()]);
    interpreter(name, stage, &Interpreter::new(java, words), Some(Asked::SPEEDUP))
}

/// Ruby's four ways to start a program, one after the other. For a user other than root Ruby uses
/// vfork (`process.c`, `has_privilege`).
pub(super) fn ruby(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let ruby = stage.need("ruby", "ruby")?;
    if !is_root() {
        return Err(Error::Missing("Ruby forks as root alone, and vforks as any other user".into()));
    }
    stage.note(format!("{name}: {}", install::version(&ruby, "--version").unwrap_or_default()));
    let script: OsString = stage.write("start.rb", include_str!("programs/start.rb"))?.into();
    let mib = size(stage, 500);
    memory::require(2 * (mib << 20))?;
    for (order, figure) in [
        ("system", "system: plain / run"),
        ("spawn", "spawn: plain / run"),
        ("backticks", "backticks: plain / run"),
        ("fork_exec", "fork { exec }: plain / run"),
    ] {
        let child = stage.child();
        let start = |stage: &mut Stage<'_>, settings| {
            let args = [script.clone(), mib.to_string().into(), child.clone()];
            stage.start(name, settings, ruby.as_os_str(), &args)
        };
        // The one that comes last gets the memory that is cheaper to copy.
        let run = start(stage, Some(Settings::default()))?;
        let plain = start(stage, None)?;
        let mut params = params(name, mib);
        params.insert("call".to_owned(), Param::Word(order.to_owned()));
        let series = stage.measure(vec![
            Subject::order("plain", &params, &Metric::WALL, &plain, order, US),
            Subject::order("run", &params, &Metric::WALL, &run, order, US),
        ])?;
        let evidence = commits(run.into_inner(), order)?;
        let ratio = stage.ratio(&series[0][0], &series[1][0]);
        stage.check(&params, Asked::beyond_one(figure, Bound::AtLeast), ratio, evidence);
    }
    Ok(())
}

/// Ends a victim; the evidence that its children committed, as many as were asked for.
fn commits(victim: Coprocess, order: &str) -> Result<Result<String, String>, Error> {
    let asked = victim.asked(order);
    Ok(victim.finish()?.commits(asked))
}

/// A program whose last words are MIB, PROGRAM and, where not all of it is to be plain memory, how
/// much of it is to be its heap.
struct Interpreter {
    program: OsString,
    words: Vec<OsString>,
    heap: u64,
    /// One more method, `speculate`, of other settings.
    beside: Option<Settings>,
}

impl Interpreter {
    fn new(program: impl Into<OsString>, words: Vec<OsString>) -> Interpreter {
        Interpreter { program: program.into(), words, heap: 0, beside: None }
    }
}

/// With much memory, plain and under run; and plain with 1 MiB, which is what the program's own
/// ways and its child cost in any case.
fn interpreter(
    name: &'static str,
    stage: &mut Stage<'_>,
    of: &Interpreter,
    speedup: Option<Asked>,
) -> Result<(), Error> {
    let mib = size(stage, 1024);
    let large_ones = 2 + u64::from(of.beside.is_some());
    memory::require(large_ones * (mib << 20))?;
    let child = stage.child();
    let start = |stage: &mut Stage<'_>, settings: Option<Settings>, mib: u64, heap: u64| {
        let mut args = of.words.clone();
        args.extend([(mib - heap).to_string().into(), child.clone()]);
        if heap > 0 {
            args.push(heap.to_string().into());
        }
        stage.start(name, settings, &of.program, &args)
    };
    let small = start(stage, None, 1, 0)?;
    // The one that comes last gets the memory that is cheaper to copy (`fill` says more): let it be
    // the plain one.
    let beside = of.beside.map(|settings| start(stage, Some(settings), mib, of.heap)).transpose()?;
    let run = start(stage, Some(Settings::default()), mib, of.heap)?;
    let plain = start(stage, None, mib, of.heap)?;
    let (large, little) = (params(name, mib), params(name, 1));
    let mut subjects = vec![
        Subject::order("plain", &large, &Metric::WALL, &plain, "start", US),
        Subject::order("run", &large, &Metric::WALL, &run, "start", US),
        Subject::order("small", &little, &Metric::WALL, &small, "start", US),
    ];
    if let Some(beside) = &beside {
        subjects.push(Subject::order("speculate", &large, &Metric::WALL, beside, "start", US));
    }
    let series = stage.measure(subjects)?;
    let evidence = commits(run.into_inner(), "start")?;
    stage.note(
        "small: the same program with 1 MiB, plain; its figures have no limit, and plain / small is what plain / run would be if \
         the memory cost nothing"
            .into(),
    );
    stage.derive(name, "plain / small", &series[0][0], &series[2][0]);
    if evidence.is_ok() {
        stage.derive(name, "run / small", &series[1][0], &series[2][0]);
    }
    if let Some(beside) = beside {
        // Both must have been at work.
        let evidence = commits(beside.into_inner(), "start")?.and(evidence.clone());
        let figure = stage.ratio(&series[1][0], &series[3][0]);
        stage.check(&large, Asked::of("run / speculate", "times"), figure, evidence);
    }
    match (speedup, evidence) {
        (Some(speedup), evidence) => {
            let figure = stage.ratio(&series[0][0], &series[1][0]);
            stage.check(&large, speedup, figure, evidence);
        }
        (None, Ok(evidence)) => {
            stage.derive(name, "plain / run", &series[0][0], &series[1][0]);
            stage.note(format!("{name}: {evidence}"));
        }
        (None, Err(why)) => stage.unmeasured(name, CheckVerdict::NotShown, &why),
    }
    Ok(())
}
