//! Waiting for an event of another process.

use std::time::{Duration, Instant};

/// Looks until `done` says so. Returns `false` after a time that only a hang takes: five minutes,
/// and longer in an emulator.
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let slower = if std::env::var_os("FORKLESS_TEST_EMULATED").is_some() { 20 } else { 1 };
    let end = Instant::now() + Duration::from_secs(300 * slower);
    while Instant::now() < end {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    done()
}
