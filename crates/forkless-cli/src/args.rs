//! Values on the command line: sizes (`0`, `4096`, `512K`, `200M`, `1G`, `1.5GiB`) and percentages
//! (`10`, `0.5`).

/// Parses a size in bytes; K, M, G and T are powers of 1024, with or without `B` or `iB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
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

/// Parses a percentage of 0 or more. With NaN no limit would ever be passed.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
    percent.ok_or_else(|| "must be 0 or more".to_owned())
}

/// Parses a percentage above 0 and at most `MOST`.
pub(crate) fn percent_up_to<const MOST: u32>(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent: &f64| *percent > 0.0 && *percent <= f64::from(MOST));
    percent.ok_or_else(|| format!("must be above 0 and at most {MOST}"))
}

#[cfg(test)]
mod tests {
    use super::{percent, percent_up_to, size};

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("1k", 1024), ("200M", 200 << 20), ("1GiB", 1 << 30)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!(size("1.5G"), Ok(3 << 29));
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in ["", "G", "1X", "-1", "1..2M", "99999999999T", "1e3"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_have_their_range() {
        assert_eq!(percent("0"), Ok(0.0));
        assert_eq!(percent("12.5"), Ok(12.5));
        assert_eq!(percent_up_to::<100>("100"), Ok(100.0));
        for text in ["", "-1", "nan", "inf", "x", "5 %"] {
            assert!(percent(text).is_err() && percent_up_to::<100>(text).is_err(), "{text}");
        }
        for text in ["0", "100.1"] {
            assert_eq!(percent_up_to::<100>(text), Err("must be above 0 and at most 100".to_owned()));
        }
    }
}
