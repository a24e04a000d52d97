//! Becoming the program without a child: what `CommandExt::exec` does.
#![expect(unsafe_code, reason = "the plan's pointers are handed to the child's code")]

use crate::command::{Command, Defaults};
use crate::error::SpawnError;
use crate::explain;
use crate::facilities;
use crate::files::{self, Means, Moves, Table};
use crate::plan::Plan;
use crate::wiring::{means, wire};
use forkless_child::{Action as Step, Launch, Phase};
use forkless_sys::process;
use forkless_sys::signal::{self, SigSet};

/// Execs in this process; returns to say why not.
pub(crate) fn exec(command: &Command, plan: &Plan) -> SpawnError {
    let wiring = match wire(command, Defaults::Inherit, None) {
        Ok(w) => w,
        Err(e) => return e,
    };
    let all = facilities::get();
    let means = Means { close_range: all.close_range_cloexec.works(), ..means(all, false, false) };
    let table = Table::InPlace { close_others: !command.inherit_descriptors };
    let mut moves = Moves::default();
    files::resolve(&wiring.targets, table, means, &mut moves);
    let caller_mask = signal::mask().unwrap_or(SigSet::EMPTY);
    let report = forkless_child::Report::new();
    // SAFETY: the plan outlives the launch below, which ends in this function.
    let exec = unsafe { plan.exec(all, caller_mask) };
    // Nobody shares this memory, and it is this process's own parent whose death counts.
    let exec = forkless_child::Exec { no_core_dump: false, ..exec };
    let mut steps = plan.steps().to_vec();
    for step in &mut steps {
        if let Step::DeathSignal { parent, .. } = step {
            *parent = process::getppid();
        }
    }
    let launch = Launch { files: &moves.steps, actions: &steps, exec, hint: 0, report: &report };
    let f = forkless_child::carry_out(&launch);
    let _ = signal::set_mask(caller_mask);
    match f.phase {
        Phase::Files => explain::failed_step(moves.steps.get(f.index), f.errno),
        _ => explain::failure(plan, f),
    }
}
