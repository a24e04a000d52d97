//! What `forkless run` and the library it preloads agree on: the environment variables, the [`Options`] and the [`Record`] that
//! every process of the tree counts into. Nothing here acts; it is `no_std` because the preloaded library is.
#![no_std]

mod abort_reason;
mod options;
pub mod protocol;
mod record;

pub use abort_reason::{AbortKind, AbortReason};
pub use options::{ForkMode, KnownShell, Options, RecordPath, Shell};
pub use record::{Counter, Ending, Record, Site};

/// The [`Options`] of the preloaded library, in the environment.
pub const OPTIONS_VARIABLE: &str = "FORKLESS_RUN";

/// The off switch: any of `off`, `0`, `no` leaves every program of the tree as it is.
pub const SWITCH_VARIABLE: &str = "FORKLESS";

/// Whether a value of [`SWITCH_VARIABLE`] switches the library off.
#[must_use]
pub fn is_off(value: &[u8]) -> bool {
    matches!(value, b"off" | b"0" | b"no")
}

/// File name of the preloaded library.
pub const LIBRARY_NAME: &str = "libforkless_preload.so";

/// The tunable that the launcher appends to `GLIBC_TUNABLES` for memory from the pool of huge pages. The library takes it out
/// again before any child can inherit it.
pub const HUGETLB_TUNABLE: &str = "glibc.malloc.hugetlb=2097152";

#[cfg(test)]
mod tests {
    #[test]
    fn three_words_switch_off_and_nothing_else() {
        for word in ["off", "0", "no"] {
            assert!(super::is_off(word.as_bytes()), "{word}");
        }
        for word in ["", "on", "OFF", "off ", "1", "yes"] {
            assert!(!super::is_off(word.as_bytes()), "{word}");
        }
    }
}
