//! What `forkless run` and the library it preloads agree on: two environment variables, and the layout of the record that
//! every process of the tree counts into. Nothing here acts; it is `no_std` because the preloaded library is.
#![no_std]

pub mod protocol;
mod reason;
mod record;

pub use reason::{Kind, Reason};
pub use record::{Counter, Ending, Record, Site};

/// Options for the preloaded library: `key=value` pairs separated by commas, written by `forkless run`.
pub const OPTIONS_VARIABLE: &str = "FORKLESS_RUN";

/// The off switch: any of `off`, `0`, `no` leaves every program of the tree as it is.
pub const SWITCH_VARIABLE: &str = "FORKLESS";

/// Whether a value of [`SWITCH_VARIABLE`] switches the library off.
///
/// ```
/// assert!(forkless_run::is_off(b"off"));
/// assert!(!forkless_run::is_off(b""));
/// ```
#[must_use]
pub fn is_off(value: &[u8]) -> bool {
    matches!(value, b"off" | b"0" | b"no")
}

/// File name of the preloaded library.
pub const LIBRARY_NAME: &str = "libforkless_preload.so";

/// What `--huge-pages=hugetlb` appends to `GLIBC_TUNABLES`, and the library takes out again before any child can inherit it.
pub const HUGETLB_TUNABLE: &str = "glibc.malloc.hugetlb=2097152";

/// Below this much private memory a fork is left alone, in bytes, unless `min=` says otherwise.
pub const DEFAULT_MINIMUM: usize = 8 << 20;
