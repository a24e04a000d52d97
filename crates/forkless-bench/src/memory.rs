//! The amount of memory that a measurement may take: the system's available memory, further limited
//! by every control group of this process. Without this question, a memory sweep would drive a
//! machine into its out-of-memory killer.

use crate::error::Error;

#[cfg(target_os = "linux")]
#[path = "memory/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "memory/sysctl.rs"]
mod system;

/// Left to the rest of the system, whatever is asked for.
const RESERVE: u64 = 256 << 20;

/// Bytes that can be allocated and touched now without pushing others out; `None` where the system
/// does not tell.
#[must_use]
pub(crate) fn available() -> Option<u64> {
    system::available()
}

/// Fails with one clear line unless `wanted` bytes can be touched with a reserve left over.
///
/// # Errors
/// [`Error::Missing`], naming what is wanted, what there is, and the largest size that would pass.
pub fn require(wanted: u64) -> Result<(), Error> {
    let largest = largest_safe();
    if wanted <= largest {
        return Ok(());
    }
    Err(Error::Missing(format!(
        "{} MiB of memory asked for, but only {} MiB can be taken safely here: ask for at most {} MiB",
        wanted >> 20,
        largest >> 20,
        largest >> 20
    )))
}

/// The most that `require` grants now; no limit where the system does not tell.
#[must_use]
pub fn largest_safe() -> u64 {
    // A 32nd of the memory goes into page tables of the parent and of forked children, and into the
    // harness.
    available().map_or(u64::MAX, |bytes| bytes.saturating_sub(RESERVE) / 32 * 31)
}

/// `wanted`, or what will still be safe in a while: the harness grows, and so do other programs.
#[must_use]
pub fn lasting(wanted: u64) -> u64 {
    wanted.min(lasting_of(largest_safe()))
}

fn lasting_of(largest: u64) -> u64 {
    /// Results of all restarts, and what other programs take meanwhile.
    const LEAST: u64 = 8 << 20;
    largest.saturating_sub(LEAST.max(largest / 8)) >> 20 << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_leaves_room_to_grow_and_is_whole_mebibytes() {
        for (largest, lasts) in [(0, 0), (4, 0), (39, 31), (64, 56), (800, 700), (100_000, 87_500)] {
            assert_eq!(lasting_of((largest << 20) + 4096), lasts << 20, "{largest}");
        }
        assert_eq!(lasting(1 << 20), 1 << 20);
    }

    #[test]
    fn asking_for_more_than_there_is_says_how_much_there_is() {
        let Some(available) = available() else {
            println!("skipped: the system does not tell how much memory is available");
            return;
        };
        assert!(require(1 << 20).is_ok());
        let message = require(available * 2).unwrap_err().to_string();
        assert!(message.contains("ask for at most"), "{message}");
    }
}
