//! Numbers in text.

/// A number of decimal digits. Not by `parse`, which first checks that the text is UTF-8, in
/// another page of the library.
#[must_use]
pub fn decimal(text: &[u8]) -> Option<u64> {
    let digit = |n: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_that_fit_are_a_number() {
        assert_eq!(decimal(b"0018446744073709551615"), Some(u64::MAX));
        for text in [&b""[..], b"18446744073709551616", b"-1", b"1 ", b"max"] {
            assert_eq!(decimal(text), None);
        }
    }
}
