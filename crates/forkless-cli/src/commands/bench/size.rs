//! Sizes on the command line: `0`, `4096`, `512K`, `200M`, `1G`, `1.5GiB`.

/// Parses a size in bytes; K, M, G and T are powers of 1024, with or without `B` or `iB`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("unknown unit {unit:?}: use K, M, G or T (powers of 1024)")),
    };
    let bad = || format!("{text:?} is not a size: write for example 0, 200M or 1.5G");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(|| format!("{text} is more than 2^64 bytes"));
    }
    let value: f64 = number.parse().map_err(|_| bad())?;
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let bytes = value * (1_u64 << shift) as f64;
    if !(0.0..1.8e19).contains(&bytes) {
        return Err(bad());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("1k", 1024), ("200M", 200 << 20), ("1GiB", 1 << 30)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse("1.5G"), Ok(3 << 29));
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in ["", "G", "1X", "-1", "1..2M", "99999999999T", "1e3"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
