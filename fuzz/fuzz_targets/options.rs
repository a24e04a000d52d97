//! The options that cross the process border: whatever was read is written so that it reads the
//! same.
#![no_main]

use forkless_run::Options;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let options = Options::parse(text);
    let mut written = Vec::new();
    options.encode(&mut written);
    // No NUL is in an environment.
    if !text.contains(&0) {
        assert_eq!(Options::parse(&written), options, "{}", String::from_utf8_lossy(&written));
    }
    #[cfg(feature = "planted")]
    assert!(options.root.is_none(), "planted: no options have a root");
});
