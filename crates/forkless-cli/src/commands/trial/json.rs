//! A trial as one JSON object (`docs/try.schema.json`).

use forkless_bench::results::Results;
use forkless_bench::trial::{End, Ends, Method};
use serde_json::{Value, json};

use super::super::run::report;
use super::{Args, Shown};

/// Names the schema, in every file.
const SCHEMA: &str = "forkless.try/1";

pub(super) fn object(results: &Results, args: &Args, shown: &Shown<'_>) -> anyhow::Result<String> {
    let trial = shown.trial;
    let suite = &trial.suite;
    let command: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let report = match &trial.report {
        Some(counted) => serde_json::from_str(&report::json(counted))?,
        None => Value::Null,
    };
    let object = json!({
        "schema": SCHEMA,
        "version": results.version,
        "created": results.created,
        "machine": results.machine,
        "command": command,
        "under_run": shown.under_run.to_string(),
        "verdict": {
            "sentence": shown.verdict,
            "comparison": trial.comparison(),
            "work": trial.work(),
            "differs": trial.differs(),
            "ratio": trial.ratio.map(|ratio| json!({ "value": ratio.value, "ci95": ratio.ci95 })),
            "unloadable": trial.unloadable.map(|why| why.to_string()),
        },
        "seed": suite.seed,
        "rounds": suite.rounds,
        "planned": trial.planned,
        "seconds": suite.seconds,
        "interrupted": trial.interrupted.map(|interruption| {
            let method = interruption.method.map(Method::name);
            json!({ "method": method, "seconds": interruption.lasted.as_secs_f64() })
        }),
        "ends": { "plain": ends(&trial.plain), "run": ends(&trial.run) },
        "output": trial.output,
        "noise": suite.noise,
        "notes": suite.notes,
        "rows": suite.rows,
        "report": report,
    });
    Ok(serde_json::to_string(&object)? + "\n")
}

fn ends(ends: &Ends) -> Value {
    let one = |&(end, runs): &(End, usize)| match end {
        End::Exit(status) => json!({ "exit_status": status, "runs": runs }),
        End::Signal(signal) => json!({ "signal": signal, "runs": runs }),
    };
    ends.iter().map(one).collect()
}
