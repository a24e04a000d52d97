//! popen-noshell's splitting of a command: its words, quoted again, give the same words.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|command: &[u8]| {
    let Some(words) = forkless_capi::noshell::fuzzed_split(command) else { return };
    assert!(!words.is_empty() && words.iter().all(|word| !word.is_empty()));
    // A word can have one kind of quotes inside, or both where it was put together of parts.
    if words.iter().all(|word| !(word.to_bytes().contains(&b'\'') && word.to_bytes().contains(&b'"'))) {
        let quoted: Vec<Vec<u8>> = words
            .iter()
            .map(|word| {
                let quote = if word.to_bytes().contains(&b'\'') { b'"' } else { b'\'' };
                [&[quote], word.to_bytes(), &[quote]].concat()
            })
            .collect();
        assert_eq!(forkless_capi::noshell::fuzzed_split(&quoted.join(&b' ')), Some(words.clone()));
    }
    #[cfg(feature = "planted")]
    assert!(words.iter().all(|word| !word.to_bytes().contains(&b'"')), "planted: no word has a quote");
});
