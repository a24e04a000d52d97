//! Running a program under the preloaded library of Forkless, without the command.
//!
//! One part is for both sides of the border between the process that starts a program and the
//! library in the program: the environment variables, the [`Options`] and the [`Record`]. It is
//! `no_std` and allocates nothing, because the preloaded library is so; the feature `launcher` is
//! off there. Nothing in it acts.
//!
//! The other part is the launcher: a [`Launcher`] finds and examines a program, prepares its
//! environment, and executes it in this process or in a child. It says in types why a program
//! cannot be helped; how to word that, with which flags, is the caller's.
#![cfg_attr(not(feature = "launcher"), no_std)]

mod abort_reason;
#[cfg(feature = "launcher")]
mod launcher;
mod options;
mod record;

pub use abort_reason::{AbortKind, AbortReason, CommandOf};
#[cfg(feature = "launcher")]
pub use launcher::*;
pub use options::{ForkMode, KnownShell, Options, RecordPath, Shell};
pub use record::{AnnouncedEnd, Counter, Record, SiteCounters};

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

/// The tunable that the launcher appends to `GLIBC_TUNABLES` for memory from the pool of huge
/// pages. The library takes it out again before any child can inherit it.
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
