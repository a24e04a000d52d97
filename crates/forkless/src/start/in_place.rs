//! Executing the program in this process, without a child: `CommandExt::exec`.
#![expect(unsafe_code, reason = "the plan's pointers are handed to the child's code")]

use super::explain;
use super::moves::{self, MoveOptions, Moves, Table};
use super::wiring::{move_options, wire};
use crate::error::SpawnError;
use crate::kernel::facilities;
use crate::plan::Plan;
use crate::spec::{Defaults, Spec};
use forkless_child::{Action, Launch, Phase};
use forkless_sys::process;
use forkless_sys::signal::{self, SigSet};

/// Execs in this process; returns only to say why not.
pub(crate) fn exec(spec: &Spec, plan: &Plan) -> SpawnError {
    let wiring = match wire(spec, Defaults::Inherit, None) {
        Ok(w) => w,
        Err(e) => return e,
    };
    let facilities = facilities::get();
    let options = MoveOptions {
        close_range: facilities.close_range_cloexec.works(),
        ..move_options(facilities, false, false)
    };
    let table = Table::InPlace { close_others: !spec.inherit_descriptors };
    let mut moves = Moves::default();
    moves::resolve(&wiring.targets, table, options, &mut moves);
    let caller_mask = signal::mask().unwrap_or(SigSet::EMPTY);
    let report = forkless_child::Report::new();
    // SAFETY: the plan outlives the launch below, which ends in this function.
    let exec = unsafe { plan.exec(facilities, caller_mask) };
    // No other process shares this memory. The death of this process's own parent counts.
    let exec = forkless_child::Exec { no_core_dump: false, ..exec };
    let mut actions = plan.actions().to_vec();
    for action in &mut actions {
        if let Action::DeathSignal { parent, .. } = action {
            *parent = process::getppid();
        }
    }
    let launch = Launch { files: &moves.actions, actions: &actions, exec, hint: 0, report: &report };
    let f = forkless_child::carry_out(&launch);
    let _ = signal::set_mask(caller_mask);
    match f.phase {
        Phase::Files => explain::failed_action(moves.actions.get(f.index), f.errno),
        _ => explain::failure(plan, f),
    }
}
