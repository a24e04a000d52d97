//! The report of programs under the preloaded library, as a table for people or as JSON.

use std::fmt::Write as _;

use forkless_run::{AbortKind, AbortReason, Counter, Report};
use serde_json::json;

pub(in crate::commands) fn json(report: &Report) -> String {
    let counters: serde_json::Map<_, _> =
        Counter::ALL.iter().map(|&c| (c.key().to_owned(), report.count(c).into())).collect();
    let sites = report.sites.iter().map(|site| {
        let reasons = site.reasons.iter().map(|&(reason, count)| {
            json!({
                "reason": reason.kind().key(),
                "detail": words(reason),
                "number": reason.detail(),
                "count": count,
            })
        });
        json!({
            "site": site.name,
            "forks": site.forks,
            "speculated": site.speculated,
            "committed": site.committed,
            "aborted": site.aborted,
            "reasons": reasons.collect::<Vec<_>>(),
        })
    });
    let sites: Vec<_> = sites.collect();
    let whole = json!({ "forkless_run": 1, "counters": counters, "sites": sites });
    format!("{whole}\n")
}

pub(in crate::commands) fn text(report: &Report) -> String {
    let mut t = String::from("forkless run report\n");
    for &c in Counter::ALL {
        let n = report.count(c);
        if n != 0 || matches!(c, Counter::Forks | Counter::Committed) {
            let value = match c {
                Counter::BytesSpared => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
                Counter::NanosSaved => format!("{:.1} ms", n as f64 / 1e6),
                _ => n.to_string(),
            };
            let text = if c == Counter::NanosSaved { "time saved (estimate)" } else { c.text() };
            let _ = writeln!(t, "  {value:>12}  {text}");
        }
    }
    if !report.sites.is_empty() {
        t.push_str("call sites: forks, committed, aborted\n");
    }
    for site in &report.sites {
        let _ = writeln!(t, "  {:>8} {:>8} {:>8}  {}", site.forks, site.committed, site.aborted, site.name);
        for &(reason, count) in &site.reasons {
            let _ = writeln!(t, "  {count:>26}  {}", words(reason));
        }
    }
    t
}

/// A reason in words, with the flag that decided it.
pub(in crate::commands) fn words(reason: AbortReason) -> String {
    match reason.kind() {
        AbortKind::Threads => format!("{reason} (--fork=strict)"),
        _ => reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkless_run::RecordFile;

    fn report() -> Report {
        let file = RecordFile::create().unwrap();
        file.record().add(Counter::Forks, 3);
        file.record().add(Counter::BytesSpared, 3 << 19);
        file.record().add(Counter::NanosSaved, 2_500_000);
        let site = file.record().site(1, |into| {
            into[..8].copy_from_slice(b"make+0x1");
            8
        });
        let site = site.unwrap();
        site.forks.fetch_add(3, std::sync::atomic::Ordering::Relaxed);
        site.because(AbortKind::Threads.into());
        site.because(AbortReason::new(AbortKind::Signal, 15));
        file.report()
    }

    #[test]
    fn the_table_names_counters_in_their_units_and_reasons_with_their_flag() {
        let expected = "forkless run report\n             3  forks seen\n             0  committed (the child executed a program)\n\
            \x20      1.5 MiB  memory not copied by committed forks\n        2.5 ms  time saved (estimate)\n\
            call sites: forks, committed, aborted\n         3        0        0  make+0x1\n\
            \x20                          1  more than one thread (--fork=strict)\n\
            \x20                          1  signal arrived 15\n";
        assert_eq!(text(&report()), expected);
    }

    #[test]
    fn the_json_has_every_counter_and_each_reason_by_name() {
        let value: serde_json::Value = serde_json::from_str(&json(&report())).unwrap();
        assert_eq!(value["counters"].as_object().unwrap().len(), Counter::ALL.len());
        assert_eq!((&value["counters"]["forks"], &value["counters"]["plain"]), (&json!(3), &json!(0)));
        let expected = json!([
            {"reason": "Threads", "detail": "more than one thread (--fork=strict)", "number": 0, "count": 1},
            {"reason": "Signal", "detail": "signal arrived 15", "number": 15, "count": 1},
        ]);
        assert_eq!(value["sites"][0]["reasons"], expected);
    }
}
