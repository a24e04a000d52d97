//! When creations happened, for pictures.

use serde::Serialize;

use crate::collect::{Moments, Outcome};
use crate::model::CostModel;

/// The creations of a watch in time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// The width of a column, nanoseconds.
    pub column_ns: u64,
    /// All creations, in columns from the beginning of the watch to the last creation.
    pub columns: Vec<TimelineColumn>,
    /// The creations one by one, by time: all of them, or the costliest.
    #[serde(skip)]
    pub seen: Vec<SeenCreation>,
    /// How many creations are in the columns alone.
    #[serde(skip)]
    pub left_out: u64,
}

/// The creations that began in one column of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TimelineColumn {
    /// How many began.
    pub count: u64,
    /// Their cost with that of the execs, nanoseconds.
    pub cost_ns: f64,
}

/// One creation.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenCreation {
    /// The beginning of the call, nanoseconds since that of the watch.
    pub at_ns: u64,
    /// Its cost with that of the exec, nanoseconds.
    pub cost_ns: f64,
    /// The program that created.
    pub program: String,
    /// The process that created.
    pub caller: u32,
    /// The new process.
    pub child: u32,
    /// What it led to.
    pub outcome: Outcome,
    /// The file's name of the program that the child executed, or could not execute.
    pub started: Option<String>,
}

pub(crate) fn of(moments: &Moments, model: &CostModel) -> Timeline {
    let (column_ns, columns) = moments.columns();
    let columns = columns
        .iter()
        .map(|spent| TimelineColumn { count: spent.creations, cost_ns: spent.cost_ns(model) })
        .collect();
    let mut seen: Vec<SeenCreation> = moments
        .kept()
        .iter()
        .map(|moment| SeenCreation {
            at_ns: moment.at_ns,
            cost_ns: moment.spent.cost_ns(model),
            program: moment.program.to_string(),
            caller: moment.caller,
            child: moment.child,
            outcome: moment.outcome,
            started: moment.started.as_deref().map(str::to_owned),
        })
        .collect();
    seen.sort_by_key(|creation| (creation.at_ns, creation.child));
    Timeline { column_ns, columns, seen, left_out: moments.left_out() }
}
