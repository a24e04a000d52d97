//! About how many descriptors the calling thread has open, and so whether copying its table is
//! cheap.
//!
//! Nothing but time depends on the answer, so it may be old.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// From this number on, waiting for the child to unshare (some 10 us) is cheaper than copying (40
/// ns a descriptor, and exec's walk).
const MANY: u32 = 256;

/// How many questions one count answers. A count costs a microsecond or two where the kernel keeps
/// the number, and some fifty where a file of /proc is read for it.
const QUESTIONS_A_COUNT: u32 = 256;

/// Number of the last pidfd: the lowest free one then, so at least as many were open.
///
/// It costs nothing, and sees a table that grows. But one hole at a low number hides all the rest,
/// and servers are full of holes.
static LOWEST_FREE: AtomicU32 = AtomicU32::new(0);
/// The last count.
static COUNTED: AtomicU32 = AtomicU32::new(0);
static QUESTIONS: AtomicU32 = AtomicU32::new(0);

/// Takes note of a number the kernel just gave.
pub(crate) fn note_lowest_free(fd: RawFd) {
    LOWEST_FREE.store(fd.unsigned_abs(), Ordering::Relaxed);
}

/// Whether so many descriptors are open that copying the table is dear.
pub(crate) fn many_open() -> bool {
    if LOWEST_FREE.load(Ordering::Relaxed) >= MANY {
        return true;
    }
    if QUESTIONS.fetch_add(1, Ordering::Relaxed) % QUESTIONS_A_COUNT == 0 {
        COUNTED.store(count().unwrap_or(0), Ordering::Relaxed);
    }
    COUNTED.load(Ordering::Relaxed) >= MANY
}

/// `None` without /proc.
fn count() -> Option<u32> {
    // Since Linux 6.2 the size of the directory (proc_fd_getattr, fs/proc/fd.c); 0 before.
    let open = std::fs::metadata("/proc/thread-self/fd").ok()?.len();
    if open > 0 {
        return Some(u32::try_from(open).unwrap_or(u32::MAX));
    }
    // The table's capacity: no less than what is open, and never smaller again.
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    capacity(&status)
}

fn capacity(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|l| l.strip_prefix("FDSize:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_open_whichever_way_it_is_known() {
        let files: Vec<_> = (0..300).map(|_| std::fs::File::open("/").unwrap()).collect();
        // Tests beside this one open and close descriptors, too: these 300 stay.
        assert!(count().unwrap() >= 300);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(capacity(&status).unwrap() >= 300);
        assert_eq!(capacity("Name:\tx\n"), None);
        drop(files);
    }
}
