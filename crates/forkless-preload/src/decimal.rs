//! Numbers in text.

/// A number of decimal digits. By hand, for `parse` first makes sure of UTF-8, in another page of the library.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    let digit = |n: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}
