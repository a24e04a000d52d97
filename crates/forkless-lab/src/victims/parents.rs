//! Parents with much memory that start programs: in C against vfork, and interpreters as they come.

use std::ffi::OsString;

use forkless_bench::check::CheckVerdict;
use forkless_bench::error::Error;
use forkless_bench::memory;
use forkless_bench::results::Metric;
use forkless_run::{Counter, ForkMode, Settings};

use super::coprocess::fill;
use super::stage::{Asked, Stage, Subject, US, params};
use crate::install;

/// Fork, redirect, exec and wait against vfork and execve of the same program.
pub(super) fn c<const MIB: u64>(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let mib = size(stage, MIB);
    memory::require(2 * (mib << 20))?;
    let child = [stage.child()];
    let plain = stage.c(name, None, mib, &child)?;
    let run = stage.c(name, Some(Settings::default()), mib, &child)?;
    fill(&[&plain, &run], mib)?;
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

/// A rough answer takes smaller parents.
pub(super) fn size(stage: &Stage<'_>, mib: u64) -> u64 {
    if stage.spec.quick { mib.min(256) } else { mib }
}

pub(super) fn perl(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let perl = stage.need("perl", "perl")?;
    let script = stage.write("system.pl", include_str!("programs/system.pl"))?;
    interpreter(
        name,
        stage,
        &Interpreter { program: perl.into(), script: script.into(), settings: Settings::default(), heap: 0 },
        Some(Asked::SPEEDUP),
    )
}

pub(super) fn python(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let python = install::python(stage.need("python3", "python3")?);
    stage.note(format!("{name}: {}", install::version(&python, "--version").unwrap_or_default()));
    let script = stage.write("preexec.py", include_str!("programs/preexec.py"))?;
    interpreter(
        name,
        stage,
        &Interpreter {
            program: python.into(),
            script: script.into(),
            settings: Settings::default(),
            heap: 0,
        },
        Some(Asked::SPEEDUP),
    )
}

pub(super) fn node(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let node = node_js(name, stage, 0)?;
    interpreter(name, stage, &node, Some(Asked::SPEEDUP))
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
    Ok(Interpreter {
        program: node.into(),
        script: script.into(),
        settings: Settings { fork: ForkMode::Speculate, ..Settings::default() },
        heap,
    })
}

/// A program with a script that takes MIB, PROGRAM and, where not all of it is to be plain memory,
/// how much of it is to be its heap.
struct Interpreter {
    program: OsString,
    script: OsString,
    settings: Settings,
    heap: u64,
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
    memory::require(2 * (mib << 20))?;
    let child = stage.child();
    let start = |stage: &mut Stage<'_>, settings: Option<Settings>, mib: u64, heap: u64| {
        let mut args = vec![of.script.clone(), (mib - heap).to_string().into(), child.clone()];
        if heap > 0 {
            args.push(heap.to_string().into());
        }
        stage.start(name, settings, &of.program, &args)
    };
    let small = start(stage, None, 1, 0)?;
    // The one that comes last gets the memory that is cheaper to copy (`fill` says more): let it be
    // the plain one.
    let run = start(stage, Some(of.settings), mib, of.heap)?;
    let plain = start(stage, None, mib, of.heap)?;
    let (large, little) = (params(name, mib), params(name, 1));
    let series = stage.measure(vec![
        Subject::order("plain", &large, &Metric::WALL, &plain, "start", US),
        Subject::order("run", &large, &Metric::WALL, &run, "start", US),
        Subject::order("small", &little, &Metric::WALL, &small, "start", US),
    ])?;
    let run = run.into_inner();
    let asked = run.asked("start");
    let evidence = run.finish()?.most(Counter::Committed, asked);
    stage.note(
        "small: the same program with 1 MiB, plain; its figures have no limit, and plain / small is what plain / run would be if \
         the memory cost nothing"
            .into(),
    );
    stage.derive(name, "plain / small", &series[0][0], &series[2][0]);
    if evidence.is_ok() {
        stage.derive(name, "run / small", &series[1][0], &series[2][0]);
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
