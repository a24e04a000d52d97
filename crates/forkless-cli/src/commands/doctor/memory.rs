//! The settings that decide the cost of a fork of much memory.

use std::fs;

use forkless_diagnose::{Repairable, probe_repair, repair_privilege};

use super::{Answer, Entry, State, Verdict, setting, works};

const THP: &str = "transparent huge pages";
const COLLAPSE: &str = "process_madvise(MADV_COLLAPSE)";
/// The detail of [`COLLAPSE`] for a user who may not look at others' processes.
const OWN: &str = "works; other users' processes take CAP_SYS_PTRACE";

pub(super) fn entries() -> Vec<Entry> {
    let thp = "/sys/kernel/mm/transparent_hugepage";
    let mut entries = vec![
        Entry::new(
            THP,
            transparent(thp),
            "memory whose fork copies one entry for 2 MiB",
            "one entry for 4 KiB",
        ),
        Entry::info(
            "THP defragmentation",
            setting(&format!("{thp}/defrag")).unwrap_or_else(|why| why),
            "how hard the kernel tries when a huge page is wanted",
        ),
    ];
    let mut sizes: Vec<String> = fs::read_dir(thp)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|name| {
            let size = name.strip_prefix("hugepages-")?.to_owned();
            let chosen = setting(&format!("{thp}/{name}/enabled")).ok()?;
            let word = chosen.split('[').nth(1)?.split(']').next()?.to_owned();
            Some(format!("{size} {word}"))
        })
        .collect();
    sizes.sort_by_key(|text| text.split("kB").next().and_then(|number| number.parse::<u64>().ok()));
    let outcome =
        if sizes.is_empty() { Err("the kernel offers none".to_owned()) } else { Ok(sizes.join(", ")) };
    entries.push(Entry::new(
        "multi-size THP",
        outcome,
        "pages between 4 KiB and 2 MiB",
        "only 4 KiB and 2 MiB",
    ));
    entries.push(Entry::new("hugetlb pools", pools(), "pages reserved beforehand", "none is reserved"));
    entries.push(Entry::new(
        COLLAPSE,
        match probe_repair() {
            Ok(Repairable::All) => Ok("works".to_owned()),
            Ok(Repairable::Own) => Ok(OWN.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(format!("{error}; {}", repair_privilege()))
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                Err(format!("{error}; needs Linux 6.1"))
            }
            Err(error) => Err(format!("cannot be tried: {error}")),
        },
        "giving a running program huge pages from outside",
        "the program must be restarted with other settings",
    ));
    entries
}

pub(super) fn verdict(entries: &[Entry]) -> Verdict {
    match (works(entries, COLLAPSE), works(entries, THP)) {
        (true, _) => Answer::Yes.because(path(entries)),
        (false, true) => Answer::Partly.because("huge pages for programs that are started with them"),
        (false, false) => Answer::No.because("no huge pages: a fork copies an entry for each 4 KiB"),
    }
}

pub(super) fn path(entries: &[Entry]) -> String {
    let path = match entries.iter().find(|entry| entry.name == COLLAPSE) {
        Some(entry) if entry.detail == OWN => "a running process of this user can be given huge pages",
        Some(entry) if entry.state == State::Works => "a running process can be given huge pages",
        _ => "a running process's pages stay as they are",
    };
    path.to_owned()
}

/// Memory may be huge from its beginning, unless the setting keeps it small for each size.
fn transparent(directory: &str) -> Result<String, String> {
    let chosen = setting(&format!("{directory}/enabled"))?;
    let is_never = |chosen: &str| chosen.contains("[never]");
    // Linux 6.8 has the setting for each size beside.
    let own = setting(&format!("{directory}/hugepages-2048kB/enabled"));
    let is_off = match own.as_deref() {
        Ok(own) if !own.contains("[inherit]") => is_never(own),
        _ => is_never(&chosen),
    };
    if is_off { Err(chosen) } else { Ok(chosen) }
}

fn pools() -> Result<String, String> {
    let mut pools: Vec<String> = fs::read_dir("/sys/kernel/mm/hugepages")
        .map_err(|error| format!("no hugetlb: {error}"))?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = |file: &str| setting(&format!("/sys/kernel/mm/hugepages/{name}/{file}")).ok();
            Some(format!(
                "{} {} of {} free",
                name.strip_prefix("hugepages-")?,
                number("free_hugepages")?,
                number("nr_hugepages")?
            ))
        })
        .collect();
    pools.sort_by_key(|text| text.split("kB").next().and_then(|number| number.parse::<u64>().ok()));
    if pools.is_empty() { Err("none".to_owned()) } else { Ok(pools.join(", ")) }
}
