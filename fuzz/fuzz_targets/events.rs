//! The kernel's records as `diagnose` reads them: BPF's ring, perf's buffers, a process's mappings.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let understood = forkless_diagnose::fuzzing::read(bytes);
    let _ = understood;
    #[cfg(feature = "planted")]
    assert!(understood < 7, "planted: no bytes are a record of more than one source of perf");
});
