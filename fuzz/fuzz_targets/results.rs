//! Saved results, as people send them around: no text makes a reader or a page fail.
#![no_main]

use forkless_bench::{html, render, results::Results, suites};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(results) = serde_json::from_slice::<Results>(text) else { return };
    let registry = suites::SUITES;
    let _ = render::terminal(&results, 80, registry);
    let _ = render::markdown(&results, registry);
    let _ = render::csv(&results);
    let _ = html::page("fuzz", &results, registry);
    #[cfg(feature = "planted")]
    assert!(results.suites.is_empty(), "planted: no result has a suite");
});
