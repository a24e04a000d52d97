//! Huge pages for a program's heap: for forks that cannot be avoided, fewer and larger pages to
//! copy. The settings are those of the allocators, not of the system.

use std::fmt;
use std::fs;

use super::environment::EnvironmentEntries;
use crate::HUGETLB_TUNABLE;
use crate::HugePages;

/// The settings that give a program huge pages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Allocators {
    /// Variables and their whole new values.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) warnings: Vec<HugePagesWarning>,
    /// The kind that there is.
    pub(super) kind: HugePages,
    /// Whether this process is one without transparent huge pages, which exec hands on.
    pub(super) enable: bool,
}

/// Why huge pages are not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HugePagesWarning {
    /// This tunable of the caller's asks for pages of more than 2 MiB.
    LargeTunable(String),
    /// The pool has no page, and may get none.
    EmptyPool,
    /// The administrator has switched transparent huge pages off.
    TransparentOff,
    /// The kernel has no transparent huge pages.
    NoTransparent,
    /// Whoever started this process disabled them for it.
    WereDisabled,
}

impl fmt::Display for HugePagesWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HugePagesWarning::LargeTunable(tunable) => {
                return write!(
                    f,
                    "{tunable} in GLIBC_TUNABLES: taking 2 MiB pages, of which a child can get one"
                );
            }
            HugePagesWarning::EmptyPool => {
                "no free 2 MiB huge pages, and none may be added (sysctl vm.nr_hugepages, \
                 vm.nr_overcommit_hugepages): using transparent ones"
            }
            HugePagesWarning::TransparentOff => {
                "transparent huge pages are off on this system \
                 (/sys/kernel/mm/transparent_hugepage/enabled): madvise is enough"
            }
            HugePagesWarning::NoTransparent => "this kernel has no transparent huge pages",
            HugePagesWarning::WereDisabled => {
                "transparent huge pages were disabled for this process; enabled again"
            }
        })
    }
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

/// Decides by what this system has and by what this process has inherited.
pub(super) fn decide_here(mode: HugePages, environment: &EnvironmentEntries) -> Allocators {
    if mode == HugePages::Off {
        return Allocators::default();
    }
    let mut allocators = decide(mode, &System::read(), environment);
    // PR_SET_THP_DISABLE survives exec, so whoever started this process decided for the program.
    if rustix::thread::transparent_huge_pages_are_disabled().unwrap_or(false) {
        allocators.enable = true;
        allocators.warnings.push(HugePagesWarning::WereDisabled);
    }
    allocators
}

fn decide(mode: HugePages, system: &System, environment: &EnvironmentEntries) -> Allocators {
    let mut s = Allocators::default();
    let mut mode = mode;
    if mode == HugePages::Off {
        return s;
    }
    let text =
        |name: &str| environment.get(name).and_then(|value| str::from_utf8(value).ok()).unwrap_or_default();
    // A setting of the caller's own would reach every program that is executed later: with pages of
    // 1 GiB the first child would die of SIGBUS.
    let tunables = text("GLIBC_TUNABLES");
    let (asked, own): (Vec<&str>, Vec<&str>) =
        tunables.split(':').filter(|t| !t.is_empty()).partition(|t| t.starts_with("glibc.malloc.hugetlb="));
    let own = own.join(":");
    let pages = |t: &&str| t.rsplit('=').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    if let Some(large) = asked.iter().find(|t| pages(t) > 2 << 20) {
        s.warnings.push(HugePagesWarning::LargeTunable((*large).to_owned()));
    }
    if mode == HugePages::Pool && system.free == 0 && system.overcommit == 0 {
        // One warning is enough: this one says what is used instead.
        s.warnings = vec![HugePagesWarning::EmptyPool];
        mode = HugePages::Transparent;
    }
    s.kind = mode;
    match mode {
        HugePages::Off => return s,
        HugePages::Transparent => {
            match system.thp.as_deref() {
                Some("never") => s.warnings.push(HugePagesWarning::TransparentOff),
                None => s.warnings.push(HugePagesWarning::NoTransparent),
                Some(_) => {}
            }
            // madvise for the memory that malloc gets from the kernel. Large blocks come from the
            // heap, too: a threshold of 128 KiB would put them into mappings of their own, too
            // small for a huge page.
            let tunables = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432";
            s.variables.push(("GLIBC_TUNABLES", joined(&own, tunables)));
            s.variables.push(("MALLOC_CONF", appended(text("MALLOC_CONF"), ",", "thp:always")));
            s.variables.push(("MIMALLOC_ALLOW_THP", "1".to_owned()));
        }
        HugePages::Pool => {
            // Last, where the library finds it. Two MiB by size: a default size of 1 GiB would hand
            // the only such page to the process that comes first. Without a colon before it, the
            // library takes the whole variable out again.
            let value = match environment.get("GLIBC_TUNABLES") {
                Some(_) => format!("{own}:{HUGETLB_TUNABLE}"),
                None => HUGETLB_TUNABLE.to_owned(),
            };
            s.variables.push(("GLIBC_TUNABLES", value));
        }
    }
    s
}

/// Tunables, ours last.
fn joined(own: &str, ours: &str) -> String {
    if own.is_empty() { ours.to_owned() } else { format!("{own}:{ours}") }
}

fn appended(old: &str, separator: &str, value: &str) -> String {
    if old.is_empty() { value.to_owned() } else { format!("{old}{separator}{value}") }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::{Allocators, HUGETLB_TUNABLE, HugePages, HugePagesWarning, System, decide};
    use crate::EnvironmentEntries;

    fn system(thp: &str, free: u64, overcommit: u64) -> System {
        System { thp: Some(thp.to_owned()), free, overcommit }
    }

    fn environment(entries: &[&str]) -> EnvironmentEntries {
        entries.iter().map(|entry| CString::new(*entry).unwrap()).collect()
    }

    #[test]
    fn an_empty_pool_that_cannot_grow_means_transparent_pages() {
        let s = decide(HugePages::Pool, &system("madvise", 0, 0), &environment(&[]));
        assert_eq!(s.kind, HugePages::Transparent);
        assert_eq!(s.warnings, [HugePagesWarning::EmptyPool]);
        assert!(s.variables.iter().any(|(n, v)| *n == "GLIBC_TUNABLES" && v.contains("hugetlb=1")));
    }

    #[test]
    fn pages_of_a_gibibyte_are_not_asked_for() {
        let tunables = environment(&["GLIBC_TUNABLES=glibc.malloc.check=0:glibc.malloc.hugetlb=1073741824"]);
        let s = decide(HugePages::Pool, &system("madvise", 100, 0), &tunables);
        let large = HugePagesWarning::LargeTunable("glibc.malloc.hugetlb=1073741824".into());
        assert_eq!(s.warnings, [large]);
        let (_, value) = s.variables.iter().find(|(n, _)| *n == "GLIBC_TUNABLES").unwrap();
        assert_eq!(value, "glibc.malloc.check=0:glibc.malloc.hugetlb=2097152");
        assert_eq!(s.kind, HugePages::Pool);
        let s = decide(HugePages::Pool, &system("madvise", 0, 0), &tunables);
        assert_eq!(s.warnings, [HugePagesWarning::EmptyPool]);
        assert!(!s.variables.iter().any(|(_, v)| v.contains("1073741824")), "{:?}", s.variables);
    }

    #[test]
    fn a_variable_that_the_caller_set_to_nothing_is_told_from_none() {
        let value = |own: &[&str]| {
            let s = decide(HugePages::Pool, &system("madvise", 100, 0), &environment(own));
            s.variables.into_iter().find(|(n, _)| *n == "GLIBC_TUNABLES").unwrap().1
        };
        assert_eq!(value(&[]), HUGETLB_TUNABLE);
        assert_eq!(value(&["GLIBC_TUNABLES="]), format!(":{HUGETLB_TUNABLE}"));
    }

    #[test]
    fn transparent_pages_that_are_switched_off_are_a_warning() {
        let none = environment(&[]);
        let warnings = |thp: &str| decide(HugePages::Transparent, &system(thp, 0, 0), &none).warnings;
        assert_eq!(warnings("madvise"), []);
        assert_eq!(warnings("never"), [HugePagesWarning::TransparentOff]);
        assert!(HugePagesWarning::TransparentOff.to_string().contains("off on this system"));
        assert_eq!(decide(HugePages::Off, &system("never", 0, 0), &none), Allocators::default());
    }

    #[test]
    fn settings_of_other_allocators_keep_what_is_there() {
        let own = environment(&["MALLOC_CONF=narenas:1"]);
        let s = decide(HugePages::Transparent, &system("madvise", 0, 0), &own);
        assert!(s.variables.contains(&("MALLOC_CONF", "narenas:1,thp:always".to_owned())));
        assert!(s.variables.contains(&("MIMALLOC_ALLOW_THP", "1".to_owned())));
    }
}
