//! Calls with needless costs that do not depend on memory: shells, signal masks, time zones.

use forkless_bench::error::Error;
use forkless_bench::results::Metric;
use forkless_run::{Counter, Settings};

use super::stage::{Asked, NS, Stage, Subject, US, params};

const SWITCH: Metric = Metric { name: "switch", unit: "ns", estimate: false };
const CALL: Metric = Metric { name: "call", unit: "ns", estimate: false };

pub(super) fn system(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    shell(name, "system", Counter::Shells, stage)
}

pub(super) fn popen(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    shell(name, "popen", Counter::Shells, stage)
}

/// `sh -c LINE`, executed by a child of vfork.
pub(super) fn sh_exec(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    shell(name, "shexec", Counter::ExecShells, stage)
}

/// The same by posix_spawn.
pub(super) fn sh_spawn(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    shell(name, "shspawn", Counter::ExecShells, stage)
}

/// A line that names a program, in a way of which this counter tells.
fn shell(
    name: &'static str,
    order: &'static str,
    counter: Counter,
    stage: &mut Stage<'_>,
) -> Result<(), Error> {
    let child = [stage.child()];
    let plain = stage.c(name, None, 0, &child)?;
    let run = stage.c(name, Some(Settings::default()), 0, &child)?;
    let params = params(name, 0);
    let series = stage.measure(vec![
        Subject::order("plain", &params, &Metric::WALL, &plain, order, US),
        Subject::order("run", &params, &Metric::WALL, &run, order, US),
        Subject::order("vfork", &params, &Metric::WALL, &plain, "vfork", US),
    ])?;
    let run = run.into_inner();
    let asked = run.asked(order);
    let evidence = run.finish()?.most(counter, asked);
    let figure = stage.ratio(&series[0][0], &series[1][0]);
    stage.check(&params, Asked::SPEEDUP, figure, evidence);
    Ok(())
}

pub(super) fn swapcontext(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let child = [stage.child()];
    let plain = stage.c(name, None, 0, &child)?;
    let run = stage.c(name, Some(Settings { fast_context: true, ..Settings::default() }), 0, &child)?;
    let params = params(name, 0);
    let series = stage.measure(vec![
        Subject::order("plain", &params, &SWITCH, &plain, "swap", NS),
        Subject::order("run", &params, &SWITCH, &run, "swap", NS),
    ])?;
    let run = run.into_inner();
    // parent.c switches so often in one repetition.
    let switches = 2000 * run.asked("swap");
    let evidence = run.finish()?.most(Counter::Switches, switches);
    let figure = stage.ratio(&series[0][0], &series[1][0]);
    stage.check(&params, Asked::SPEEDUP, figure, evidence);
    Ok(())
}

pub(super) fn localtime(name: &'static str, stage: &mut Stage<'_>) -> Result<(), Error> {
    let child = [stage.child()];
    let plain = stage.c(name, None, 0, &child)?;
    let run = stage.c(name, Some(Settings { time_zone: true, ..Settings::default() }), 0, &child)?;
    let params = params(name, 0);
    let series = stage.measure(vec![
        Subject::order("plain", &params, &CALL, &plain, "localtime", NS),
        Subject::order("run", &params, &CALL, &run, "localtime", NS),
    ])?;
    let is_set = |process: &std::cell::RefCell<super::coprocess::Coprocess>| {
        process.borrow_mut().ask("tz", 1).map(|answer| answer.first().is_some_and(|&set| set > 0.0))
    };
    let evidence = match (is_set(&plain)?, is_set(&run)?) {
        (false, true) => Ok("TZ set by run, unset without".to_owned()),
        (plain, run) => Err(format!("TZ set: {plain} without run, {run} with")),
    };
    let figure = stage.ratio(&series[0][0], &series[1][0]);
    stage.check(&params, Asked::SPEEDUP, figure, evidence);
    Ok(())
}
