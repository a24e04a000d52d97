//! The settings that decide the cost of a fork of much memory.

use std::fs;

use forkless_diagnose::probe_repair;

use super::{Answer, Entry, Verdict, setting, works, works_or_not};

const THP: &str = "transparent huge pages";
const COLLAPSE: &str = "process_madvise(MADV_COLLAPSE)";

pub(super) fn entries() -> Vec<Entry> {
    let thp = "/sys/kernel/mm/transparent_hugepage";
    let mut entries = vec![
        Entry::new(
            THP,
            setting(&format!("{thp}/enabled")),
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
        works_or_not(probe_repair()),
        "giving a running program huge pages from outside",
        "the program must be restarted with other settings",
    ));
    entries
}

pub(super) fn verdict(entries: &[Entry]) -> Verdict {
    match (works(entries, COLLAPSE), works(entries, THP)) {
        (true, _) => Answer::Yes.because("a running process can be given huge pages"),
        (false, true) => Answer::Partly.because("huge pages for programs that are started with them"),
        (false, false) => Answer::No.because("no huge pages: a fork copies an entry for each 4 KiB"),
    }
}

pub(super) fn path(entries: &[Entry]) -> String {
    if works(entries, COLLAPSE) {
        "a running process can be given huge pages".to_owned()
    } else {
        "a running process's pages stay as they are".to_owned()
    }
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
