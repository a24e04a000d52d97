//! Values on the command line: sizes (`0`, `4096`, `512K`, `200M`, `1G`, `1.5GiB`) and percentages
//! (`10`, `0.5`).

/// Parses a size in bytes, as [`forkless_run::size`] reads it, and says what is wrong with another.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    forkless_run::size(text.as_bytes()).ok_or_else(|| {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if forkless_run::size(format!("1{unit}").as_bytes()).is_none() {
            format!("unknown unit {unit:?}: use K, M, G or T (powers of 1024)")
        } else if number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty() {
            format!("{text} is more than 2^64 bytes")
        } else {
            format!("{text:?} is not a size: write for example 0, 200M or 1.5G")
        }
    })
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
        for (text, why) in [
            ("", "is not a size"),
            ("G", "is not a size"),
            ("1X", "unknown unit"),
            ("-1", "unknown unit"),
            ("1 M", "unknown unit"),
            ("1..2M", "is not a size"),
            (".5M", "is not a size"),
            ("99999999999T", "more than 2^64"),
            ("1e3", "unknown unit"),
        ] {
            assert!(size(text).is_err_and(|error| error.contains(why)), "{text}");
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
