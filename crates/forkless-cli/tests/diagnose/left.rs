//! None of the other tests leaves a program or a map in the kernel, however its watch ended.

use std::sync::OnceLock;

use libtest_mimic::Trial;

use crate::support::{alone, bpf_maps, bpf_programs, settled};

/// What was there before the first test.
static BEFORE: OnceLock<(Vec<u32>, Vec<u32>)> = OnceLock::new();

pub(crate) fn begin() {
    BEFORE.get_or_init(|| (bpf_programs(), bpf_maps()));
}

/// The last test: it begins when all others have ended.
pub(crate) fn add(trials: &mut Vec<Trial>) {
    trials.push(alone("left::no_program_and_no_map_is_in_the_kernel", || {
        settled(BEFORE.get().expect("begun"));
    }));
}
