//! The programs started in a watch: how many, by whom, and at what cost.

use serde::Serialize;

use crate::collect::{Spent, Starter, Starters};
use crate::estimate::{Estimate, Times};
use crate::model::CostModel;
use crate::tier::Tier;

/// Starters and programs of a summary, at most.
const MOST: usize = 5;

/// All that was started in a watch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StartSummary {
    /// Programs: processes that were created and executed a program.
    pub programs: u64,
    /// Processes that executed none: workers, subshells, and those whose exec failed.
    pub without_program: u64,
    /// Those of them whose exec failed; `None` where the tier does not see that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec_failed: Option<u64>,
    /// Creating all of them and their execs, nanoseconds: measured where the tier measures it, else
    /// by the prices of this machine. Loading of libraries and the end of a program are not in it.
    pub cost_ns: f64,
    /// The same as a share of one CPU.
    pub cpu_share: f64,
    /// The cost of one: the median of the creations whose caller was timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each_ns: Option<Estimate>,
    /// The programs that started most; at most five.
    pub starters: Vec<StarterSummary>,
}

/// What one program has started.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StarterSummary {
    /// The starter, as [`ProcessName::name`](crate::ProcessName::name).
    pub name: String,
    /// Programs that it started.
    pub programs: u64,
    /// Processes that it created and that executed none.
    pub without_program: u64,
    /// Its part of the cost.
    pub cost_ns: f64,
    /// The most frequent programs with their counts; at most five.
    pub started: Vec<(String, u64)>,
}

pub(crate) fn of(
    starters: &Starters,
    each: &Times,
    model: &CostModel,
    window_ns: f64,
    tier: Tier,
) -> StartSummary {
    let one = |name: &str, starter: &Starter| StarterSummary {
        name: name.to_owned(),
        programs: starter.programs,
        without_program: starter.creations() - starter.programs,
        cost_ns: starter.cost_ns(model),
        started: starter.started.top(MOST),
    };
    let mut all: Vec<StarterSummary> = starters.iter().map(|(name, starter)| one(name, starter)).collect();
    all.sort_by(|a, b| (b.programs, &a.name).cmp(&(a.programs, &b.name)));
    let others = one("", &starters.others);
    let sum = |field: fn(&StarterSummary) -> u64| all.iter().map(field).sum::<u64>() + field(&others);
    let programs = sum(|starter| starter.programs);
    let without_program = sum(|starter| starter.without_program);
    let failed = starters.iter().map(|(_, starter)| starter.exec_failed).sum::<u64>();
    let cost_ns = all.iter().map(|starter| starter.cost_ns).sum::<f64>() + others.cost_ns;
    let mut spent: Spent = starters.others.spent();
    starters.iter().for_each(|(_, starter)| spent.merge(&starter.spent()));
    let each_ns = (each.count() > 0).then(|| {
        // What the copy's time leaves out, as in the cost.
        if spent.copies_are_timed() { each.median().plus(model.create) } else { each.median() }
    });
    all.retain(|starter| starter.programs > 0);
    all.truncate(MOST);
    StartSummary {
        programs,
        without_program,
        exec_failed: tier.sees_failed_execs().then_some(failed + starters.others.exec_failed),
        cost_ns,
        cpu_share: cost_ns / window_ns,
        each_ns,
        starters: all,
    }
}
