//! Free pages, and those that FreeBSD and macOS reuse before they page anything out.

use std::ffi::CStr;

use crate::machine::page_size;
use crate::sysctl;

/// FreeBSD's counters (vm.stats.vm, sys/vm/vm_meter.c), then macOS's; without the first of a pair
/// the system is not that one.
const COUNTERS: [[&CStr; 2]; 2] = [
    [c"vm.stats.vm.v_free_count", c"vm.stats.vm.v_inactive_count"],
    [c"vm.page_free_count", c"vm.page_purgeable_count"],
];

pub(super) fn available() -> Option<u64> {
    let pages = COUNTERS
        .into_iter()
        .find_map(|[free, reusable]| Some(sysctl::number(free)? + sysctl::number(reusable).unwrap_or(0)));
    Some(pages? * page_size())
}
