//! Values on the command line: sizes (`0`, `4096`, `512K`, `200M`, `1G`, `1.5GiB`) and percentages
//! (`10`, `0.5`).

use std::time::Duration;

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

/// Parses an amount of memory or of a file: a size that some machine of today can have.
pub(crate) fn amount(text: &str) -> Result<u64, String> {
    /// The memory that x86-64 can address with page tables of four levels.
    const MOST: u64 = 64 << 40;
    let bytes = size(text)?;
    if bytes <= MOST { Ok(bytes) } else { Err("is more than 64T, which no machine has".to_owned()) }
}

/// The same, of at least so many MiB.
pub(crate) fn amount_from<const MIB: u64>(text: &str) -> Result<u64, String> {
    let bytes = amount(text)?;
    if bytes >> 20 >= MIB { Ok(bytes) } else { Err(format!("is less than {MIB}M, which shows nothing")) }
}

/// Parses a number of seconds of 0 or more. Longer than 30 years would overflow sums of times.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.0..=1e9).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "not a number of seconds from 0 to 1e9, for example 0.5".to_owned())
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
    use std::time::Duration;

    use super::{amount, amount_from, percent, percent_up_to, seconds, size};

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
    fn no_amount_or_time_is_absurd() {
        assert_eq!(amount("64T"), Ok(64 << 40));
        for text in ["65T", "100T", "18446744073709551615"] {
            assert!(amount(text).is_err_and(|error| error.contains("64T")), "{text}");
        }
        assert!(amount("1X").is_err_and(|error| error.contains("unknown unit")));
        assert_eq!(amount_from::<16>("16M"), Ok(16 << 20));
        assert!(amount_from::<16>("0").is_err_and(|error| error.contains("16M")));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!((seconds("0").is_ok(), seconds("1e9").is_ok()), (true, true));
        for text in ["", "-1", "nan", "inf", "1e10", "1e300", "1h"] {
            assert!(seconds(text).is_err_and(|error| error.contains("0 to 1e9")), "{text}");
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
