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

use core::ffi::CStr;

mod abort_reason;
#[cfg(feature = "launcher")]
mod launcher;
mod options;
mod record;
mod words;

pub use abort_reason::{AbortKind, AbortReason, CommandOf};
#[cfg(feature = "launcher")]
pub use launcher::*;
pub use options::{Filters, ForkMode, HugePages, KnownShell, Options, RecordPath, Shell, digits};
pub use record::{AnnouncedEnd, Counter, Record, SiteCounters};
pub use words::{LONGEST_LIMIT_MS, size, words};

/// The [`Options`] of the preloaded library, in the environment.
pub const OPTIONS_VARIABLE: &str = "FORKLESS_RUN";

/// The [`Options`] of programs that no launcher has started, in words for people: those of
/// `forkless run`'s flags. Where [`OPTIONS_VARIABLE`] is set, this one is ignored.
pub const WORDS_VARIABLE: &str = "FORKLESS_OPTIONS";

/// The off switch: any of `off`, `0`, `no`, `false`, in capitals or not, leaves every program of
/// the tree as it is.
pub const SWITCH_VARIABLE: &str = "FORKLESS";

/// The other off switch: while a file of this name exists, in the root directory that the program
/// starts with, programs start with the library switched off.
pub const SWITCH_FILE: &CStr = c"/etc/forkless/off";

/// Whether a value of [`SWITCH_VARIABLE`] switches the library off.
///
/// Out of line: few programs have the variable, and the preloaded library starts in few pages.
#[must_use]
#[cold]
#[inline(never)]
pub fn is_off(value: &[u8]) -> bool {
    const WORDS: [u64; 4] = [number(b"off"), number(b"0"), number(b"no"), number(b"false")];
    WORDS.contains(&number(value))
}

/// The last eight bytes of a text, in small letters, as a number. Texts without NUL bytes share the
/// number of a text of seven bytes or fewer only if they are that text.
const fn number(text: &[u8]) -> u64 {
    let (mut number, mut at) = (0, 0);
    while at < text.len() {
        number = number << 8 | text[at].to_ascii_lowercase() as u64;
        at += 1;
    }
    number
}

/// File name of the preloaded library where it is built.
pub const LIBRARY_NAME: &str = "libforkless_preload.so";

/// File name of the preloaded library where it is installed, for people to type.
pub const INSTALLED_NAME: &str = "libforkless-run.so";

/// Whether an entry of `LD_PRELOAD` or of `/etc/ld.so.preload` names the library.
#[must_use]
pub fn names_library(entry: &[u8]) -> bool {
    let name = entry.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name == LIBRARY_NAME.as_bytes() || name == INSTALLED_NAME.as_bytes()
}

/// The tunable that the launcher appends to `GLIBC_TUNABLES` for memory from the pool of huge
/// pages. The library takes it out again before any child can inherit it.
pub const HUGETLB_TUNABLE: &str = "glibc.malloc.hugetlb=2097152";

#[cfg(test)]
mod tests {
    #[test]
    fn the_library_is_known_by_both_names_in_any_folder() {
        for entry in ["libforkless-run.so", "/usr/lib/libforkless-run.so", "/x/libforkless_preload.so"] {
            assert!(super::names_library(entry.as_bytes()), "{entry}");
        }
        for entry in ["", "/", "libc.so.6", "/usr/lib/mylibforkless-run.so", "libforkless-run.so/"] {
            assert!(!super::names_library(entry.as_bytes()), "{entry}");
        }
    }

    #[test]
    fn four_words_switch_off_in_capitals_too_and_nothing_else() {
        for word in ["off", "0", "no", "false", "OFF", "No", "False", "oFF"] {
            assert!(super::is_off(word.as_bytes()), "{word}");
        }
        for word in ["", "on", "off ", "1", "yes", "falsely", "n"] {
            assert!(!super::is_off(word.as_bytes()), "{word}");
        }
    }
}
