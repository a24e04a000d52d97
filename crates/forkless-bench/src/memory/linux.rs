//! Linux's count of available memory, and the limits of control groups.

use std::fs;
use std::path::Path;

pub(super) fn available() -> Option<u64> {
    let system = meminfo(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = groups.lines().filter_map(|line| group_headroom(line, Path::new("/sys/fs/cgroup"))).min();
    Some(limit.map_or(system, |limit| limit.min(system)))
}

fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line =
        text.lines().find(|line| line.strip_prefix(field).is_some_and(|rest| rest.starts_with(':')))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The smallest headroom on the way from a group to the root: any ancestor's limit binds. `line` is
/// one of `/proc/self/cgroup`: `0::/a/b` in version 2, `5:memory:/a/b` in version 1.
fn group_headroom(line: &str, root: &Path) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (root, limit, usage) = if id == "0" && controllers.is_empty() {
        (root.to_owned(), "memory.max", "memory.current")
    } else if controllers.split(',').any(|name| name == "memory") {
        (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
    } else {
        return None;
    };
    let mut headroom: Option<u64> = None;
    let inside = root.join(path.trim_start_matches('/'));
    for group in inside.ancestors().take_while(|group| group.starts_with(&root)) {
        let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        // "max" does not parse: no limit here.
        let (Some(limit), Some(usage)) = (number(limit), number(usage)) else { continue };
        // Page cache counts as usage but is given back under pressure.
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cache =
            stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok());
        let free = limit.saturating_sub(usage.saturating_sub(cache.unwrap_or(0)));
        headroom = Some(headroom.map_or(free, |least| least.min(free)));
    }
    headroom
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_fields_are_found_by_their_whole_name() {
        let text = "MemTotal: 10 kB\nMemAvailableX: 1 kB\nMemAvailable:   7 kB\n";
        assert_eq!(meminfo(text, "MemAvailable"), Some(7 * 1024));
        assert_eq!(meminfo(text, "MemFree"), None);
    }

    #[test]
    fn the_tightest_group_on_the_way_to_the_root_binds() {
        let root = std::env::temp_dir().join(format!("forkless-cgroup-test-{}", std::process::id()));
        let inner = root.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let put = |directory: &Path, limit: &str, current: &str, cache: &str| {
            fs::write(directory.join("memory.max"), limit).unwrap();
            fs::write(directory.join("memory.current"), current).unwrap();
            fs::write(directory.join("memory.stat"), format!("anon 1\ninactive_file {cache}\n")).unwrap();
        };
        put(&inner, "max\n", "500\n", "0");
        put(&root.join("a"), "1000\n", "900\n", "300");
        assert_eq!(group_headroom("0::/a/b", &root), Some(400));
        put(&inner, "600\n", "500\n", "0");
        assert_eq!(group_headroom("0::/a/b", &root), Some(100));
        assert_eq!(group_headroom("3:cpu:/a/b", &root), None);
        fs::remove_dir_all(root).unwrap();
    }
}
