//! `--huge-pages`: for forks that cannot be avoided, fewer and larger pages to copy. Settings of the allocators, not of the system.

use std::env;
use std::fs;

use forkless_run::HUGETLB_TUNABLE;

use super::HugePages;

/// What to set, and what to say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// Variables and their whole new values.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) warnings: Vec<String>,
    /// Whether the library must keep the setting from children.
    pub(super) hugetlb: bool,
}

/// The facts of the system that decide.
#[derive(Debug, Clone)]
struct System {
    /// The bracketed word of transparent_hugepage/enabled.
    thp: Option<String>,
    free: u64,
    overcommit: u64,
}

impl System {
    fn read() -> System {
        let number = |name: &str| {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
            fs::read_to_string(path).ok().and_then(|t| t.trim().parse().ok()).unwrap_or(0)
        };
        let thp = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok().and_then(|t| {
            t.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']').map(str::to_owned))
        });
        System { thp, free: number("free_hugepages"), overcommit: number("nr_overcommit_hugepages") }
    }
}

/// Clears a THP-disable inherited through exec, and decides the settings.
pub(super) fn settings(mode: HugePages) -> Settings {
    if mode == HugePages::Off {
        return Settings::default();
    }
    let mut settings = decide(mode, &System::read(), &env::var("GLIBC_TUNABLES").unwrap_or_default());
    if thp_was_disabled() {
        settings
            .warnings
            .push("transparent huge pages were disabled for this process; enabled again".to_owned());
    }
    settings
}

/// PR_GET_THP_DISABLE, and its undoing: the flag survives exec, so whoever started us decided for PROGRAM.
fn thp_was_disabled() -> bool {
    let disabled = rustix::thread::transparent_huge_pages_are_disabled().unwrap_or(false);
    disabled && rustix::thread::disable_transparent_huge_pages(false).is_ok()
}

fn decide(mode: HugePages, system: &System, tunables: &str) -> Settings {
    let mut s = Settings::default();
    let mut mode = mode;
    if mode == HugePages::Off {
        return s;
    }
    // A setting of the user's own would reach every program that is executed later, and a size of 1 GiB its first child's SIGBUS.
    let (asked, own): (Vec<&str>, Vec<&str>) =
        tunables.split(':').filter(|t| !t.is_empty()).partition(|t| t.starts_with("glibc.malloc.hugetlb="));
    let own = own.join(":");
    let pages = |t: &&str| t.rsplit('=').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    if let Some(large) = asked.iter().find(|t| pages(t) > 2 << 20) {
        s.warnings
            .push(format!("{large} in GLIBC_TUNABLES: taking 2 MiB pages, of which a child can get one"));
    }
    if mode == HugePages::Hugetlb && system.free == 0 && system.overcommit == 0 {
        // One line is enough: this one says what is used instead.
        s.warnings.clear();
        s.warnings.push(
            "no free 2 MiB huge pages, and none may be added (sysctl vm.nr_hugepages, \
                 vm.nr_overcommit_hugepages): using transparent ones"
                .to_owned(),
        );
        mode = HugePages::Thp;
    }
    match mode {
        HugePages::Off => return s,
        HugePages::Thp => {
            match system.thp.as_deref() {
                Some("never") => s.warnings.push(
                    "transparent huge pages are off on this system \
                     (/sys/kernel/mm/transparent_hugepage/enabled): madvise is enough"
                        .to_owned(),
                ),
                None => s.warnings.push("this kernel has no transparent huge pages".to_owned()),
                Some(_) => {}
            }
            // madvise for what malloc gets from the kernel, and large blocks from the heap too, which a threshold of 128 KiB would
            // put into mappings of their own, too small for a huge page.
            let tunables = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432";
            s.variables.push(("GLIBC_TUNABLES", joined(&own, tunables)));
            s.variables.push(("MALLOC_CONF", appended("MALLOC_CONF", ",", "thp:always")));
            s.variables.push(("MIMALLOC_ALLOW_THP", "1".to_owned()));
        }
        HugePages::Hugetlb => {
            // Last, where the library finds it. Two MiB by size: a default size of 1 GiB would hand the only such page to whoever
            // comes first.
            s.variables.push(("GLIBC_TUNABLES", joined(&own, HUGETLB_TUNABLE)));
            s.hugetlb = true;
        }
    }
    s
}

/// Tunables, ours last.
fn joined(own: &str, ours: &str) -> String {
    if own.is_empty() { ours.to_owned() } else { format!("{own}:{ours}") }
}

fn appended(name: &str, separator: &str, value: &str) -> String {
    match env::var(name) {
        Ok(old) if !old.is_empty() => format!("{old}{separator}{value}"),
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{HugePages, System, decide};

    fn system(thp: &str, free: u64, overcommit: u64) -> System {
        System { thp: Some(thp.to_owned()), free, overcommit }
    }

    #[test]
    fn an_empty_pool_that_cannot_grow_means_transparent_pages() {
        let s = decide(HugePages::Hugetlb, &system("madvise", 0, 0), "");
        assert!(!s.hugetlb);
        assert_eq!(s.warnings.len(), 1);
        assert!(s.variables.iter().any(|(n, v)| *n == "GLIBC_TUNABLES" && v.contains("hugetlb=1")));
    }

    #[test]
    fn pages_of_a_gibibyte_are_not_asked_for() {
        let tunables = "glibc.malloc.check=0:glibc.malloc.hugetlb=1073741824";
        let s = decide(HugePages::Hugetlb, &system("madvise", 100, 0), tunables);
        assert_eq!(s.warnings.len(), 1, "{:?}", s.warnings);
        let (_, value) = s.variables.iter().find(|(n, _)| *n == "GLIBC_TUNABLES").unwrap();
        assert_eq!(value, "glibc.malloc.check=0:glibc.malloc.hugetlb=2097152");
        assert!(s.hugetlb);
        let s = decide(HugePages::Hugetlb, &system("madvise", 0, 0), tunables);
        assert_eq!(s.warnings.len(), 1, "{:?}", s.warnings);
        assert!(!s.variables.iter().any(|(_, v)| v.contains("1073741824")), "{:?}", s.variables);
    }

    #[test]
    fn thp_switched_off_is_said() {
        assert!(decide(HugePages::Thp, &system("madvise", 0, 0), "").warnings.is_empty());
        assert!(
            decide(HugePages::Thp, &system("never", 0, 0), "").warnings[0].contains("off on this system")
        );
        assert_eq!(decide(HugePages::Off, &system("never", 0, 0), ""), super::Settings::default());
    }
}
