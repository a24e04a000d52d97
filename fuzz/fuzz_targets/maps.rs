//! `/proc/self/maps` as text: the answer does not depend on the pieces in which it is read.
#![no_main]

use forkless_speculate::maps;
use libfuzzer_sys::fuzz_target;

/// All answers about a text that is read in pieces of some size.
fn answers(text: &[u8], piece: usize) -> impl PartialEq + std::fmt::Debug {
    let reader = || {
        let mut rest = text;
        move |into: &mut [u8]| {
            let n = piece.min(rest.len()).min(into.len());
            into[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            Ok(n)
        }
    };
    let mut writable = Vec::new();
    let count = maps::each_writable(&mut reader(), &mut |mapping| {
        writable.push(mapping);
        true
    });
    let private = maps::are_private(&mut reader(), 0x1000, usize::MAX / 2);
    let file = maps::file_at(&mut reader(), 0x2000).map(|(name, start)| (name.bytes().to_vec(), start));
    (count, writable, private, file, maps::has_ring(&mut reader()))
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, text)) = input.split_first() else { return };
    // The kernel hands out whole lines. Of a longer one the middle of the path is left out.
    if text.split(|byte| *byte == b'\n').any(|line| line.len() > 1000) || !text.ends_with(b"\n") {
        return;
    }
    let whole = answers(text, usize::MAX);
    assert_eq!(whole, answers(text, usize::from(piece) + 1));
    #[cfg(feature = "planted")]
    assert_ne!(
        maps::has_ring(&mut {
            let mut rest = Some(text);
            move |into: &mut [u8]| {
                let text = rest.take().unwrap_or_default();
                let n = text.len().min(into.len());
                into[..n].copy_from_slice(&text[..n]);
                Ok(n)
            }
        }),
        Some(true),
        "planted: no ring is ever mapped"
    );
});
