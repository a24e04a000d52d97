//! The tables of speculations: mapped before a process's first one, private to it and its
//! children's copies.
#![expect(unsafe_code, reason = "all of it is valid when zeroed")]

use core::ops::Deref as _;

use forkless_speculate::descriptors::Descriptors;
use forkless_speculate::exclusions::{Pins, Ranges};
use forkless_speculate::fetch::Clusters;
use forkless_speculate::marks::Seen;
use forkless_speculate::signals::Actions;
use forkless_speculate::site::Sites;
use forkless_speculate::status_flags::StatusFlags;

use crate::lazy_mapping::LazyMapping;
use crate::reserve;

use super::slot::ThreadSlot;
use super::stacks::{LookStack, SLOTS, Stacks};

/// What a child writes comes first, beside what the parent writes for each child. After a fork each
/// written page costs the parent a fault, and the child a fault and a copy (1 us together).
#[repr(C)]
pub(super) struct State {
    pub(super) actions: Actions,
    pub(super) descriptors: Descriptors,
    pub(super) status_flags: StatusFlags,
    pub(super) slots: [ThreadSlot; SLOTS],
    pub(super) absent: Ranges,
    pub(super) shared: Ranges,
    pub(super) fetched: Clusters,
    pub(super) sites: Sites,
    pub(super) pins: Pins,
    pub(super) seen: Seen,
    pub(super) stacks: Stacks,
    pub(super) looking: LookStack,
}

// SAFETY: made of atomics, and of bytes for stacks.
static STATE: LazyMapping<State> = unsafe { LazyMapping::new(reserve::TABLES) };

/// Maps them, if they are not there yet; whether they are.
pub(super) fn map() -> bool {
    STATE.map()
}

/// Only after [`map`].
pub(super) fn get() -> &'static State {
    STATE.deref()
}

/// `None`: nothing has been speculated.
pub(super) fn known() -> Option<&'static State> {
    STATE.get()
}
