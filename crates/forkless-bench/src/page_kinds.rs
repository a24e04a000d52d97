//! The kinds of pages that can stand behind a parent's memory, and the settings under which the
//! kernel gives them.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::Error;
use crate::guard::Guard;
use crate::settings::{Changed, THP};

/// Writing to it has the kernel move what can be moved together
/// (Documentation/admin-guide/sysctl/vm.rst).
const COMPACT: &str = "/proc/sys/vm/compact_memory";

/// Which pages back the parent's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub enum Pages {
    /// The base page size, 4 KiB on x86-64: transparent huge pages are declined with
    /// `MADV_NOHUGEPAGE`.
    #[default]
    Base,
    /// Transparent huge pages of this many KiB: 2048 the classic ones, smaller the multi-size ones
    /// (Linux 6.8).
    Thp(u64),
    /// Pages of this many KiB from a hugetlb pool.
    Hugetlb(u64),
}

impl Pages {
    /// Bytes of one page.
    #[must_use]
    pub(crate) fn size(self) -> u64 {
        match self {
            Pages::Base => crate::machine::page_size(),
            Pages::Thp(kib) | Pages::Hugetlb(kib) => kib << 10,
        }
    }

    /// Every kind this kernel offers, smallest pages first; what of it may be used is another
    /// question.
    #[must_use]
    pub fn offered() -> Vec<Pages> {
        let mut kinds = vec![Pages::Base];
        let mut thp = thp_sizes();
        if thp.is_empty() && PathBuf::from(THP).exists() {
            thp.push(2048);
        }
        kinds.extend(thp.into_iter().map(Pages::Thp));
        kinds.extend(sizes("/sys/kernel/mm/hugepages").into_iter().map(Pages::Hugetlb));
        kinds
    }

    /// Has the kernel give pages of this kind for `bytes` of memory that asks for them, until the
    /// result is dropped.
    pub fn enable(self, bytes: u64, mut guard: Option<&mut Guard>) -> Result<Enabled, Error> {
        let offered = Pages::offered();
        if !offered.contains(&self) {
            let offered: Vec<String> = offered.iter().map(ToString::to_string).collect();
            return Err(Error::Missing(format!(
                "this kernel has no {self} pages: it offers {}",
                offered.join(", ")
            )));
        }
        let mut settings = Vec::new();
        let mut compacted = false;
        if self != Pages::Base
            && let Some(guard) = &guard
        {
            guard.lock_settings()?;
        }
        match self {
            Pages::Base => {}
            Pages::Thp(wanted) => {
                let mut set = |path: String, value: &str| -> Result<(), Error> {
                    settings.extend(Changed::set(&PathBuf::from(path), value, guard.as_deref_mut())?);
                    Ok(())
                };
                let path = format!("{THP}/enabled");
                let enabled = fs::read_to_string(&path).map_err(|error| {
                    Error::Missing(format!("no transparent huge pages here: {path}: {error}"))
                })?;
                if crate::settings::selected(&enabled) == "never" {
                    set(path, "madvise")?;
                }
                for size in thp_sizes() {
                    // The kernel takes the largest size allowed that fits; only the wanted one may
                    // be allowed.
                    let value = if size == wanted { "madvise" } else { "never" };
                    let path = format!("{THP}/hugepages-{size}kB/enabled");
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    let now = crate::settings::selected(text.trim());
                    let allowed = matches!(now, "always" | "madvise" | "inherit");
                    if allowed != (size == wanted) {
                        set(path, value)?;
                    }
                }
            }
            Pages::Hugetlb(size) => {
                let pool = format!("/sys/kernel/mm/hugepages/hugepages-{size}kB");
                let number = |name: &str| {
                    let text = fs::read_to_string(format!("{pool}/{name}")).unwrap_or_default();
                    text.trim().parse::<u64>().unwrap_or(0)
                };
                let free = || number("free_hugepages").saturating_sub(number("resv_hugepages"));
                // One page more than the memory needs: a child that writes would else be killed.
                let needed = bytes.div_ceil(self.size()) + 1;
                if free() < needed {
                    let total = (number("nr_hugepages") + needed - free()).to_string();
                    let pool = PathBuf::from(format!("{pool}/nr_hugepages"));
                    let changed = Changed::set(&pool, &total, guard)?;
                    // The kernel gives as many as it finds and says nothing. Free memory may be
                    // there, but in smaller pieces.
                    if free() < needed
                        && let Some(changed) = &changed
                    {
                        compacted = fs::write(COMPACT, "1").is_ok();
                        changed.again(&total)?;
                    }
                    settings.extend(changed);
                }
                if free() < needed {
                    let tried = if compacted { ", after compacting memory, too" } else { "" };
                    return Err(Error::Missing(format!(
                        "the kernel found only {} of {needed} pages of {size} KiB{tried}: memory is fragmented by what cannot be \
                         moved (to have them from the start: hugepagesz={size}K hugepages={needed} on the kernel's command line)",
                        free()
                    )));
                }
            }
        }
        let note = compacted.then(|| format!("memory was compacted to have {self} pages ({COMPACT}, once)"));
        Ok(Enabled { _settings: settings, note })
    }
}

/// Settings that make a kind of pages available; dropping it restores them.
#[derive(Debug)]
pub struct Enabled {
    _settings: Vec<Changed>,
    /// What was done to the machine beside settings, to be said with the results.
    pub note: Option<String>,
}

/// The sizes in KiB in which anonymous memory can have transparent huge pages. Some directories are
/// of shared memory alone (8 KiB on x86-64: `shmem_enabled` without `enabled`; mm/huge_memory.c,
/// `thpsize_create`).
fn thp_sizes() -> Vec<u64> {
    let mut sizes = sizes(THP);
    sizes.retain(|size| PathBuf::from(format!("{THP}/hugepages-{size}kB/enabled")).exists());
    sizes
}

/// The sizes in KiB of the `hugepages-NkB` directories below `path`, ascending.
fn sizes(path: &str) -> Vec<u64> {
    let names = fs::read_dir(path).into_iter().flatten().flatten();
    let mut sizes: Vec<u64> = names
        .filter_map(|entry| {
            entry.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |kib: u64| match kib {
            kib if kib >= 1 << 20 => format!("{}g", kib >> 20),
            kib if kib >= 1 << 10 => format!("{}m", kib >> 10),
            kib => format!("{kib}k"),
        };
        match self {
            Pages::Base => f.write_str("base"),
            Pages::Thp(kib) => write!(f, "thp-{}", size(*kib)),
            Pages::Hugetlb(kib) => write!(f, "hugetlb-{}", size(*kib)),
        }
    }
}

impl FromStr for Pages {
    type Err = Error;

    /// `base` (or `4k`), `thp`, `thp-64k`, `hugetlb-2m`, `hugetlb-1g`.
    fn from_str(name: &str) -> Result<Pages, Error> {
        let bad = || {
            Error::Spec(format!(
                "no kind of pages {name:?}: write base, thp, thp-64k, hugetlb-2m or hugetlb-1g"
            ))
        };
        let kib = |text: &str| {
            let (number, shift) = match text.as_bytes().last().ok_or_else(bad)? {
                b'k' => (text.trim_end_matches('k'), 0),
                b'm' => (text.trim_end_matches('m'), 10),
                b'g' => (text.trim_end_matches('g'), 20),
                _ => return Err(bad()),
            };
            let number: u64 = number.parse().map_err(|_| bad())?;
            let kib = number.checked_shl(shift).filter(|kib| kib.is_power_of_two() && *kib <= 64 << 20);
            kib.ok_or_else(bad)
        };
        match name {
            "base" | "4k" => Ok(Pages::Base),
            "thp" => Ok(Pages::Thp(2048)),
            "hugetlb" => Ok(Pages::Hugetlb(2048)),
            _ => match name.split_once('-') {
                Some(("thp", size)) => Ok(Pages::Thp(kib(size)?)),
                Some(("hugetlb", size)) => Ok(Pages::Hugetlb(kib(size)?)),
                _ => Err(bad()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_kinds() {
        for kind in
            [Pages::Base, Pages::Thp(64), Pages::Thp(2048), Pages::Hugetlb(2048), Pages::Hugetlb(1 << 20)]
        {
            assert_eq!(kind.to_string().parse::<Pages>().unwrap(), kind, "{kind}");
        }
        for name in ["", "thp-", "thp-3k", "hugetlb-2x", "huge", "thp-999999999999g"] {
            assert!(name.parse::<Pages>().is_err(), "{name}");
        }
        assert_eq!(Pages::offered()[0], Pages::Base);
    }

    #[test]
    fn a_size_that_the_kernel_has_not_got_is_missing_and_those_it_has_are_named() {
        for kind in [Pages::Thp(4), Pages::Hugetlb(1 << 11 << 4)] {
            let error = kind.enable(0, None).unwrap_err();
            assert!(matches!(&error, Error::Missing(text) if text.contains("it offers base")), "{error}");
        }
    }

    /// Linux from 6.11 on has a directory for 8 KiB, of shared memory alone.
    #[test]
    #[cfg(target_os = "linux")]
    fn every_transparent_size_that_is_offered_can_be_asked_for() {
        for kind in Pages::offered() {
            if let Pages::Thp(size) = kind
                && !sizes(THP).is_empty()
            {
                let path = format!("{THP}/hugepages-{size}kB/enabled");
                assert!(fs::exists(&path).unwrap(), "{kind}: {path}");
            }
        }
    }
}
