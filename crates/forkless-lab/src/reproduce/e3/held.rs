//! What a process holds, and where malloc is to take it from.

use std::ffi::OsString;
use std::fs;

/// malloc from the pool: all of it, and no second arena that would not be.
pub(super) fn tunables(kib: u64) -> Vec<OsString> {
    let pages = if kib == 2048 { "2".to_owned() } else { (kib << 10).to_string() };
    let tunables =
        format!("glibc.malloc.hugetlb={pages}:glibc.malloc.mmap_threshold=33554432:glibc.malloc.arena_max=1");
    vec![format!("GLIBC_TUNABLES={tunables}").into()]
}

/// KiB of a process: in small pages, and from the pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) rss: u64,
    pub(super) pool: u64,
    /// Transparent huge pages; part of `rss`.
    pub(super) huge: u64,
}

impl Held {
    pub(super) fn of(pid: u32) -> Held {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let status = status + &rollup;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        Held { rss: field("VmRSS:"), pool: field("HugetlbPages:"), huge: field("AnonHugePages:") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_holds_memory() {
        let held = Held::of(std::process::id());
        assert!(held.rss > 100 && held.pool == 0, "{held:?}");
    }
}
