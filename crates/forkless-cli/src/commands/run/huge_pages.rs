//! `--huge-pages`: for forks that cannot be avoided, fewer and larger pages to copy. Settings of the allocators, not of the system.

use std::env;
use std::fs;

use forkless_record::HUGETLB_TUNABLE;

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
    let mut settings = decide(mode, &System::read());
    if mode != HugePages::Off && thp_was_disabled() {
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

fn decide(mode: HugePages, system: &System) -> Settings {
    let mut s = Settings::default();
    let mut mode = mode;
    if mode == HugePages::Hugetlb {
        if system.free == 0 && system.overcommit == 0 {
            s.warnings.push(
                "no free 2 MiB huge pages, and none may be added (sysctl vm.nr_hugepages, \
                 vm.nr_overcommit_hugepages): using transparent ones"
                    .to_owned(),
            );
            mode = HugePages::Thp;
        } else if system.overcommit == 0 {
            s.warnings.push(
                "vm.nr_overcommit_hugepages is 0: when the pool runs out, a forked child that shares its \
                 parent's huge pages may be killed by SIGBUS; a value above 0 lets the pool grow instead"
                    .to_owned(),
            );
        }
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
            s.variables.push(("GLIBC_TUNABLES", appended("GLIBC_TUNABLES", ":", tunables)));
            s.variables.push(("MALLOC_CONF", appended("MALLOC_CONF", ",", "thp:always")));
            s.variables.push(("MIMALLOC_ALLOW_THP", "1".to_owned()));
        }
        HugePages::Hugetlb => {
            // Last, where the library finds it. Two MiB by size: a default size of 1 GiB would hand the only such page to whoever
            // comes first.
            s.variables.push(("GLIBC_TUNABLES", appended("GLIBC_TUNABLES", ":", HUGETLB_TUNABLE)));
            s.hugetlb = true;
        }
    }
    s
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
        let s = decide(HugePages::Hugetlb, &system("madvise", 0, 0));
        assert!(!s.hugetlb);
        assert_eq!(s.warnings.len(), 1);
        assert!(s.variables.iter().any(|(n, v)| *n == "GLIBC_TUNABLES" && v.contains("hugetlb=1")));
    }

    #[test]
    fn a_pool_that_cannot_grow_is_warned_about() {
        let s = decide(HugePages::Hugetlb, &system("madvise", 100, 0));
        assert!(s.hugetlb);
        assert!(s.warnings[0].contains("SIGBUS"), "{:?}", s.warnings);
        assert!(decide(HugePages::Hugetlb, &system("madvise", 100, 10)).warnings.is_empty());
    }

    #[test]
    fn thp_switched_off_is_said() {
        assert!(decide(HugePages::Thp, &system("madvise", 0, 0)).warnings.is_empty());
        assert!(decide(HugePages::Thp, &system("never", 0, 0)).warnings[0].contains("off on this system"));
        assert_eq!(decide(HugePages::Off, &system("never", 0, 0)), super::Settings::default());
    }
}
