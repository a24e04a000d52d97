//! Programs with little memory, to which `run` can only be a cost: the time it takes to start them,
//! and the time its library adds to every program they start.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use forkless_bench::check::Quantity;
use forkless_bench::engine::Schedule;
use forkless_bench::error::Error;
use forkless_bench::results::Metric;
use forkless_bench::stats::bootstrap::{Samples, round_medians};
use forkless_run::{Counter, Settings};

use super::coprocess::Order;
use super::stage::{Asked, MS, Stage, Subject, US, params};
use crate::install;
use crate::last_lines::last_words_of;
use crate::run_command::run_command;

const WHOLE: Metric = Metric { name: "whole", unit: "ms", estimate: false };

/// A script of a thousand commands.
pub(super) fn shell(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let script = stage.write("script.sh", &"/bin/true\n".repeat(1000))?;
    small(name, stage, |_| Ok(vec!["/bin/sh".into(), script.clone().into()]))
}

/// A C project of a dozen files.
pub(super) fn make(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let make = stage.need("make", "make")?;
    stage.need("cc", "gcc libc6-dev")?;
    small(name, stage, |stage| {
        let project = stage.directory_in_memory("project")?;
        write_project(&project)?;
        let project = project.into_os_string();
        Ok(vec![make.clone().into(), "-j2".into(), "-B".into(), "-s".into(), "-C".into(), project])
    })
}

fn write_project(project: &Path) -> Result<(), Error> {
    let put = |file: String, text: String| {
        let path = project.join(file);
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))
    };
    let mut objects = String::new();
    for n in 0..12 {
        let text = format!("#include <stdio.h>\nint part{n}(int x) {{ return printf(\"%d\", x + {n}); }}\n");
        put(format!("part{n}.c"), text)?;
        objects.push_str(&format!(" part{n}.o"));
    }
    put("main.c".into(), "int main(void) { return 0; }\n".into())?;
    put("Makefile".into(), format!("all: main.o{objects}\n\tcc -o all main.o{objects}\n"))
}

/// The life of a small repository.
pub(super) fn git(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    stage.need("git", "git")?;
    let script = stage.write("git.sh", include_str!("programs/git.sh"))?;
    small(name, stage, |stage| {
        let repository = stage.directory_in_memory("repositories")?.join("repository");
        Ok(vec!["/bin/sh".into(), script.clone().into(), repository.into()])
    })
}

const METHODS: [&str; 4] = ["plain", "children=no", "follow", "empty library"];

/// Without run; with it for this program only; with it for all; and with an empty library for all.
/// They run in turns of [`TURN_MS`], so each has a program of its own, of which no two work in the
/// same place.
fn small(
    name: &'static str,
    stage: &mut Stage<'_>,
    mut program: impl FnMut(&mut Stage<'_>) -> Result<Vec<OsString>, Error>,
) -> Result<(), Error> {
    let first = program(stage)?;
    let programs = programs(stage, &first)?;
    let empty = stage.compile("empty", "", &["-shared", "-fPIC", "-nostdlib"])?;
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(empty);
    // Programs that are not asked about `run` say nothing of it.
    let run = |flags: &[&str]| run_command(stage.forkless(), &[&["--quiet"], flags].concat());
    // The measured library and the empty one come after the same start: both go through `run` and
    // through env, whose costs are not asked about. For the empty one, env takes the library out of
    // the programs that follow and puts the empty one in.
    let env = OsString::from("/usr/bin/env");
    let before = [
        vec![],
        run(&["--children=no"]),
        [run(&[]), vec![env.clone()]].concat(),
        [run(&[]), vec![env, preload]].concat(),
    ];
    let mut lines = vec![OsString::from(TURN_MS)];
    for mut line in before {
        line.extend(program(stage)?);
        lines.push(line.len().to_string().into());
        lines.extend(line);
    }
    let in_turns = stage.compile("in_turns", include_str!("programs/in_turns.c"), &[])?;
    let launcher = stage.start(name, None, in_turns.as_os_str(), &lines)?;
    let params = params(name, 0);
    let arm = Order::arm(&launcher, "turns", METHODS.len(), MS);
    let series = stage.measure_as_one(&longer(stage.spec.schedule), &METHODS, &params, &WHOLE, arm)?;
    launcher.into_inner().finish()?;
    let [plain, alone, follow, empty] = &series[..] else {
        return Err(Error::Missing("a method without samples".into()));
    };
    let evidence = if programs > 0 {
        Ok(format!("{programs} programs with the library, one without"))
    } else {
        Err("the library was in no program".to_owned())
    };
    let figure = stage.ratio(alone, plain);
    stage.check(&params, Asked::of("children=no / plain", "times"), figure, evidence.clone());
    let figure = a_program(follow, empty, programs, stage.seed());
    let asked_for = Asked::of("follow - empty library, a program", "us");
    stage.check(&params, asked_for, figure, evidence);
    Ok(())
}

/// How long a turn is. A machine is faster or slower for a while. A program was started 30,000
/// times on a virtual machine. The starts of every other second differed by 17 us (a standard
/// error), those of every other 20 ms by 4 us.
const TURN_MS: &str = "3";

/// Small differences between long runs take more of them.
fn longer(schedule: Schedule) -> Schedule {
    Schedule { time: schedule.time.map(|time| time * 3), ..schedule }
}

/// The same program once more with a record: the number of programs, it and those it starts.
fn programs(stage: &mut Stage<'_>, program: &[OsString]) -> Result<u64, Error> {
    let (program, arguments) = program.split_first().ok_or_else(|| Error::Spec("no program".into()))?;
    let (mut command, counts) =
        stage.keep("--on-input", Some(Settings::default()), program, arguments, &[])?;
    let output = command.output().map_err(Error::io("start a program with the preloaded library"))?;
    if !output.status.success() {
        let outcome = format!("ended with {} ({})", output.status, last_words_of(&output.stderr));
        return Err(Error::Child { method: Path::new(program).display().to_string(), outcome });
    }
    Ok(counts.counted().count(Counter::Processes))
}

/// What one costs more than the other, divided by so many programs, in microseconds.
#[expect(clippy::cast_precision_loss, reason = "a number of programs")]
fn a_program(one: &Samples, other: &Samples, programs: u64, seed: u64) -> Option<Quantity> {
    let pairs = round_medians(one).into_iter().zip(round_medians(other));
    let differences = pairs.map(|(one, other)| 1e3 * (one - other) / programs.max(1) as f64);
    Quantity::of_rounds(&Samples::one_a_round(differences.collect()), seed)
}

/// What the library adds to the start of one program, against an empty library: the loader maps
/// either.
pub(super) fn load(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let program = install::find("true").ok_or_else(|| Error::Missing("there is no program true".into()))?;
    let empty = stage.compile("empty", "", &["-shared", "-fPIC", "-nostdlib"])?;
    let mut preload = OsString::from("LD_PRELOAD=");
    preload.push(empty);
    let program = OsString::from(program);
    let processes = programs(stage, std::slice::from_ref(&program))?;
    // A launcher has the library that the programs it starts are to load. No report: mapping its
    // record is not asked about.
    let victim = [stage.parent()?.into_os_string(), "0".into(), program];
    let (forkless, env) = (stage.forkless().to_owned(), OsString::from("/usr/bin/env"));
    let with_run = [&run_command(&forkless, &["--quiet"])[1..], &victim[..]].concat();
    let with_empty = [&[preload], &victim[..]].concat();
    let plain = stage.c(name, None, 0, &victim[2..])?;
    let run = stage.start(name, None, forkless.as_os_str(), &with_run)?;
    let empty = stage.start(name, None, &env, &with_empty)?;
    let params = params(name, 0);
    let series = stage.measure(vec![
        Subject::order("plain", &params, &Metric::WALL, &plain, "launch", US),
        Subject::order("run", &params, &Metric::WALL, &run, "launch", US),
        Subject::order("empty library", &params, &Metric::WALL, &empty, "launch", US),
    ])?;
    for launcher in [plain, run, empty] {
        launcher.into_inner().finish()?;
    }
    let evidence = match processes {
        1 => Ok("the library was in the program".to_owned()),
        n => Err(format!("the library was in {n} programs instead of one")),
    };
    let pairs = round_medians(&series[1][0]).into_iter().zip(round_medians(&series[2][0]));
    let differences = Samples::one_a_round(pairs.map(|(run, empty)| run - empty).collect());
    let figure = Quantity::of_rounds(&differences, stage.seed());
    stage.check(&params, Asked::of("run - empty library", "us"), figure, evidence);
    Ok(())
}

/// What it takes to start a program through `run`.
pub(super) fn start(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let program = install::find("true").ok_or_else(|| Error::Missing("there is no program true".into()))?;
    let plain = stage.c(name, None, 0, &[program.clone().into()])?;
    let line = [run_command(stage.forkless(), &[]), vec![program.into()]].concat();
    let run = stage.c(name, None, 0, &line)?;
    let params = params(name, 0);
    stage.measure(vec![
        Subject::order("plain", &params, &Metric::WALL, &plain, "launch", US),
        Subject::order("run", &params, &Metric::WALL, &run, "launch", US),
    ])?;
    Ok(())
}
