//! The mappings of a process, as /proc/PID/smaps has them. To read it walks the process's page
//! tables under its mmap lock, milliseconds per GiB. Ask seldom.

use std::ops::Range;
use std::{fs, io};

use serde::Serialize;

use crate::procfs::{self, PageKinds};

/// The needed facts of a mapping; amounts in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) range: Range<u64>,
    pub(crate) is_private_writable: bool,
    /// No file is behind it. The kernel merges the memory of such mappings alone
    /// (mm/huge_memory.c, `__thp_vma_allowable_orders`).
    pub(crate) is_anonymous: bool,
    /// Anonymous memory. A private mapping of a file has some where it was written to.
    pub(crate) anon: u64,
    /// Its part in transparent huge pages.
    pub(crate) anon_huge: u64,
    pub(crate) swap: u64,
    pub(crate) hugetlb: u64,
    /// The program has excluded it from huge pages (`MADV_NOHUGEPAGE`).
    pub(crate) is_excluded: bool,
    /// hugetlb's, or a driver's: the kernel merges no such memory.
    pub(crate) is_special: bool,
    /// The program keeps it from its children (`MADV_DONTFORK`, `MADV_WIPEONFORK`): a fork does not
    /// copy it.
    pub(crate) is_kept: bool,
}

/// How many mappings of a process a fork copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MappingCount {
    /// All of them.
    pub all: u64,
    /// Those with pages that the program has written to: the kernel copies more for each.
    pub written: u64,
}

impl MappingCount {
    pub(crate) fn of(mappings: &[Mapping]) -> Self {
        let copied = || mappings.iter().filter(|mapping| !mapping.is_kept);
        let written = copied().filter(|mapping| mapping.anon + mapping.swap > 0);
        Self { all: copied().count() as u64, written: written.count() as u64 }
    }

    /// Without those of each program that is dynamically linked. They are in the price of a fork
    /// without memory.
    pub(crate) fn beyond_usual(self) -> Self {
        const USUAL: MappingCount = MappingCount { all: 64, written: 24 };
        let all = self.all.saturating_sub(USUAL.all);
        Self { all, written: self.written.saturating_sub(USUAL.written).min(all) }
    }
}

impl Mapping {
    /// The mappings of a process. None: it has no memory, as a zombie and a thread of the kernel.
    pub(crate) fn of(pid: u32) -> io::Result<Vec<Self>> {
        // The name of a file is any bytes.
        Ok(Self::all(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/smaps"))?)))
    }

    pub(crate) fn all(smaps: &str) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for line in smaps.lines() {
            let Some((first, rest)) = line.split_once(' ') else { continue };
            let Some(name) = first.strip_suffix(':') else {
                found.extend(Self::beginning(first, rest));
                continue;
            };
            let Some(mapping) = found.last_mut() else { continue };
            let bytes = || procfs::bytes(rest).unwrap_or(0);
            match name {
                "Anonymous" => mapping.anon = bytes(),
                "AnonHugePages" => mapping.anon_huge = bytes(),
                "Swap" => mapping.swap = bytes(),
                "Private_Hugetlb" | "Shared_Hugetlb" => mapping.hugetlb += bytes(),
                // fs/proc/task_mmu.c, show_smap_vma_flags.
                "VmFlags" => {
                    let has = |any: &[&str]| rest.split_whitespace().any(|flag| any.contains(&flag));
                    mapping.is_excluded = has(&["nh"]);
                    mapping.is_special = has(&["ht", "pf", "io", "de", "mm"]);
                    mapping.is_kept = has(&["dc", "wf"]);
                }
                _ => {}
            }
        }
        found
    }

    /// From the line that begins a mapping: `range`, then mode, offset, device, inode and name.
    fn beginning(range: &str, rest: &str) -> Option<Self> {
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let mut fields = rest.split_whitespace();
        let (mode, inode, name) = (fields.next()?.as_bytes(), fields.nth(2), fields.next());
        Some(Self {
            range: number(start)?..number(end)?,
            is_private_writable: mode.get(1) == Some(&b'w') && mode.get(3) == Some(&b'p'),
            // A private mapping of /dev/zero is anonymous memory (drivers/char/mem.c, mmap_zero).
            is_anonymous: inode == Some("0") || name == Some("/dev/zero"),
            ..Self::default()
        })
    }
}

/// The page kinds of mappings together.
pub(crate) fn page_kinds(mappings: &[Mapping]) -> PageKinds {
    let sum = |of: fn(&Mapping) -> u64| mappings.iter().map(of).sum();
    PageKinds {
        anon: sum(|mapping| mapping.anon),
        anon_huge: sum(|mapping| mapping.anon_huge),
        hugetlb: sum(|mapping| mapping.hugetlb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_apart() {
        let smaps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n\
                     Anonymous:          4096 kB\nAnonHugePages:      2048 kB\nVmFlags: rd wr mr mw me ac\n\
                     7f1000000000-7f1000400000 r--s 00000000 08:01 7 /a-b c: 9 kB\nAnonymous: 0 kB\n\
                     Shared_Hugetlb: 8 kB\nPrivate_Hugetlb: 4 kB\nVmFlags: rd nh\n\
                     7f2000000000-7f2000400000 rw-p 00000000 00:05 4 /dev/zero\nSwap: 4 kB\nVmFlags: wf pf\n";
        let found = Mapping::all(smaps);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].range, 0x7f00_0000_0000..0x7f00_0040_0000);
        assert_eq!((found[0].anon, found[0].anon_huge), (4 << 20, 2 << 20));
        assert!(found[0].is_private_writable && found[0].is_anonymous);
        assert!(!found[0].is_excluded && !found[0].is_special && !found[0].is_kept);
        assert!(!found[1].is_private_writable && !found[1].is_anonymous && found[1].is_excluded);
        assert!(found[2].is_anonymous && found[2].is_special && found[2].is_kept && found[2].swap == 4096);
        let sum = PageKinds { anon: 4 << 20, anon_huge: 2 << 20, hugetlb: 12 << 10 };
        assert_eq!(page_kinds(&found), sum);
    }

    #[test]
    fn memory_that_no_child_gets_is_told_by_its_flags() {
        let kept = |flags: &str| {
            let smaps = format!("7f00-7f10 rw-p 00000000 00:00 0 \nAnonymous: 200 kB\nVmFlags: {flags} \n");
            Mapping::all(&smaps)[0].is_kept
        };
        assert!(kept("rd wr mr mw me dc ac") && kept("rd wr wf") && !kept("rd wr mr mw me ac sd"));
    }

    #[test]
    fn the_sum_is_that_of_the_kernel() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let pid = child.id();
        // It may still be starting.
        let seen = (0..10_000).find_map(|_| {
            let before = procfs::page_kinds(pid)?;
            let sum = page_kinds(&Mapping::of(pid).ok()?);
            (before.anon > 0 && procfs::page_kinds(pid)? == before).then_some((sum, before))
        });
        child.kill().expect("it is ours");
        child.wait().expect("it ended");
        let (sum, kernels) = seen.expect("it comes to rest");
        assert_eq!(sum, kernels);
    }
}
