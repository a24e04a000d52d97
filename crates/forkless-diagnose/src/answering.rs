//! System calls that do nothing but answer a question. The kernel side counts only their successes,
//! and a process that asks again and again for the same answer is a finding.

/// System calls whose whole result is the number they return, and that have no effect.
pub(crate) fn asks_only(nr: u16) -> bool {
    use syscalls::Sysno as S;
    const CALLS: &[S] = &[
        S::getpid,
        S::getppid,
        S::gettid,
        S::getuid,
        S::geteuid,
        S::getgid,
        S::getegid,
        // Only older architectures have it. Elsewhere libc calls getpgid(0).
        #[cfg(target_arch = "x86_64")]
        S::getpgrp,
        S::getpgid,
        S::getsid,
        S::getpriority,
        S::sched_getscheduler,
        S::sched_get_priority_max,
        S::sched_get_priority_min,
        S::personality,
        S::uname,
    ];
    CALLS.iter().any(|call| call.id() == i32::from(nr))
}

/// System calls that read a clock, which the vDSO answers without entering the kernel.
pub(crate) fn clock_call(nr: u16) -> bool {
    use syscalls::Sysno as S;
    const CALLS: &[S] = &[
        S::clock_gettime,
        S::gettimeofday,
        // Only the older architectures have it.
        #[cfg(target_arch = "x86_64")]
        S::time,
    ];
    CALLS.iter().any(|call| call.id() == i32::from(nr))
}

/// Whether a system call does nothing but answer. The kernel side counts only these and failures,
/// so only they can be a finding.
pub(crate) fn only_answers(nr: u16) -> bool {
    asks_only(nr) || clock_call(nr)
}
