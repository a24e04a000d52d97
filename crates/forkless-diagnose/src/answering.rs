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

/// What a failing call does before it fails, as far as that has a price of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failing {
    /// It looks a path up.
    Path,
    /// The same, with a file that it opens.
    Open,
    /// It looks a path up, and finds no symbolic link.
    Readlink,
    /// The kernel refuses it at once, or after work that is not known.
    Other,
}

impl Failing {
    /// A call with this negative result.
    pub(crate) fn of(nr: u16, result: i64) -> Self {
        use syscalls::Sysno as S;
        const OPENS: &[S] = &[
            #[cfg(target_arch = "x86_64")]
            S::open,
            S::openat,
            S::openat2,
        ];
        const READ_LINKS: &[S] = &[
            #[cfg(target_arch = "x86_64")]
            S::readlink,
            S::readlinkat,
        ];
        #[cfg(target_arch = "x86_64")]
        const OLDER: &[S] = &[S::newfstatat, S::stat, S::lstat, S::access, S::unlink, S::rmdir];
        // The same call by its generic name.
        #[cfg(not(target_arch = "x86_64"))]
        const OLDER: &[S] = &[S::fstatat];
        const PATHS: &[S] = &[
            S::faccessat,
            S::faccessat2,
            S::statx,
            S::statfs,
            S::unlinkat,
            S::chdir,
            S::getxattr,
            S::lgetxattr,
        ];
        const WALKED: [i32; 7] = [
            libc::ENOENT,
            libc::ENOTDIR,
            libc::EACCES,
            libc::ELOOP,
            libc::EINVAL,
            libc::ENODATA,
            libc::EOPNOTSUPP,
        ];
        let is_of = |calls: &[S]| calls.iter().any(|call| call.id() == i32::from(nr));
        if !WALKED.iter().any(|&errno| result == -i64::from(errno)) {
            Self::Other
        } else if is_of(OPENS) {
            Self::Open
        } else if is_of(READ_LINKS) {
            if result == -i64::from(libc::EINVAL) { Self::Readlink } else { Self::Path }
        } else if is_of(PATHS) || is_of(OLDER) {
            Self::Path
        } else {
            Self::Other
        }
    }
}

/// Whether a system call does nothing but answer. The kernel side counts only these and failures,
/// so only they can be a finding.
pub(crate) fn only_answers(nr: u16) -> bool {
    asks_only(nr) || clock_call(nr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_call_is_priced_by_what_it_does_first() {
        use syscalls::Sysno as S;
        let of = |call: S, errno: i32| Failing::of(call.id() as u16, -i64::from(errno));
        assert_eq!(of(S::statx, libc::ENOENT), Failing::Path);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(of(S::newfstatat, libc::ENOENT), Failing::Path);
        assert_eq!(of(S::openat, libc::ENOENT), Failing::Open);
        assert_eq!(of(S::readlinkat, libc::EINVAL), Failing::Readlink);
        assert_eq!(of(S::readlinkat, libc::ENOENT), Failing::Path);
        assert_eq!(of(S::statx, libc::EBADF), Failing::Other, "no path is looked up");
        assert_eq!(of(S::ioctl, libc::ENOTTY), Failing::Other);
    }
}
