//! The clocks of a measurement: monotonic time between two points, and processor time of this
//! process and its reaped children. What reading the monotonic clock costs is measured, so that
//! results can subtract and state it.

#![expect(unsafe_code, reason = "clock_gettime and getrusage are C functions")]

use std::hint::black_box;

/// Nanoseconds of `CLOCK_MONOTONIC`, read through the vDSO.
#[inline]
#[must_use]
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; CLOCK_MONOTONIC exists on every supported system, so the call
    // cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// What one reading of the clock adds to the interval it ends, in nanoseconds: the median distance
/// of two readings with nothing between them.
#[must_use]
pub fn overhead() -> f64 {
    const PAIRS: usize = 2001;
    const READINGS: u64 = 16;
    let mut distances: Vec<u64> = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        let start = now();
        for _ in 1..READINGS {
            black_box(now());
        }
        distances.push(now() - start);
    }
    distances.sort_unstable();
    // A single pair would be rounded to the clock's nanosecond; sixteen readings average that out.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a few readings fit a double exactly")]
    let median = distances[PAIRS / 2] as f64;
    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    let readings = READINGS as f64;
    median / readings
}

/// Processor time used so far, in microseconds.
///
/// Under tick-based accounting (`CONFIG_TICK_CPU_ACCOUNTING`, the usual kernel) the *sum* is exact
/// to the nanosecond. The kernel divides it into user and system time by sampling at the timer tick
/// (`kernel/sched/cputime.c`, `cputime_adjust`). So the parts are estimates even over long batches;
/// the total is not.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpuTime {
    /// Estimated share spent in user mode.
    pub user: f64,
    /// Estimated share spent in the kernel.
    pub system: f64,
}

impl CpuTime {
    /// User and system together: exact.
    #[must_use]
    pub fn total(self) -> f64 {
        self.user + self.system
    }

    /// This process with all its threads, and every descendant waited for so far.
    #[must_use]
    pub fn of_self_and_children() -> CpuTime {
        let own = usage(libc::RUSAGE_SELF);
        let children = usage(libc::RUSAGE_CHILDREN);
        CpuTime { user: own.user + children.user, system: own.system + children.system }
    }

    /// This process with all its threads alone.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn of_self() -> CpuTime {
        usage(libc::RUSAGE_SELF)
    }

    /// What was used between `earlier` and `self`.
    #[must_use]
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

fn usage(who: i32) -> CpuTime {
    // SAFETY: rusage is plain integers; all zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable memory of the right type; both `who` values used exist.
    unsafe { libc::getrusage(who, &raw mut usage) };
    CpuTime { user: microseconds(usage.ru_utime), system: microseconds(usage.ru_stime) }
}

#[expect(clippy::cast_precision_loss, reason = "a double holds centuries of microseconds exactly")]
fn microseconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 * 1e6 + time.tv_usec as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back_and_reading_it_costs_something() {
        let first = now();
        assert!(now() >= first);
        let cost = overhead();
        assert!(cost > 0.0 && cost < 100_000.0, "{cost} ns");
    }

    #[test]
    fn processor_time_grows_with_work() {
        let before = CpuTime::of_self_and_children();
        let mut sum = 0_u64;
        while CpuTime::of_self_and_children().since(before).total() < 2_000.0 {
            sum = black_box(sum.wrapping_add(1));
        }
        assert!(sum > 0);
    }
}
