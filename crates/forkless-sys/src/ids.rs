//! Users and groups. **These act on the calling thread alone**, unlike libc's, which signal every thread of the process:
//! right for a child between clone and exec, wrong anywhere else.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;

/// Leaves an id as it is, for the `setres*` calls.
pub const KEEP: u32 = u32::MAX;

/// `setresuid(2)`, this thread only. Clears the *shared* dumpable flag when memory is shared (`commit_creds`).
///
/// ```
/// # use forkless_sys::{Errno, ids};
/// match ids::setresuid(ids::KEEP, ids::getuid(), ids::KEEP) {
///     Ok(()) => assert_eq!(ids::geteuid(), ids::getuid()),
///     Err(e) => assert_eq!(e, Errno::EINVAL), // an id that this user namespace does not map
/// }
/// ```
#[inline(always)]
pub fn setresuid(real: u32, effective: u32, saved: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_setresuid, real, effective, saved) }.map(drop)
}

/// `setresgid(2)`, this thread only.
///
/// ```
/// # use forkless_sys::{Errno, ids};
/// match ids::setresgid(ids::KEEP, ids::getgid(), ids::KEEP) {
///     Ok(()) => assert_eq!(ids::getegid(), ids::getgid()),
///     Err(e) => assert_eq!(e, Errno::EINVAL), // an id that this user namespace does not map
/// }
/// ```
#[inline(always)]
pub fn setresgid(real: u32, effective: u32, saved: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_setresgid, real, effective, saved) }.map(drop)
}

/// `setgroups(2)`, this thread only.
///
/// ```
/// # use forkless_sys::{Errno, ids};
/// match ids::setgroups(&[]) {
///     Ok(()) => {
///         let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
///         assert!(status.lines().any(|line| line.trim_end() == "Groups:"));
///     }
///     Err(e) => assert_eq!(e, Errno::EPERM), // without CAP_SETGID
/// }
/// ```
#[inline(always)]
pub fn setgroups(groups: &[u32]) -> Result<()> {
    // SAFETY: the kernel reads `len` ids.
    unsafe { call!(__NR_setgroups, groups.len(), groups.as_ptr()) }.map(drop)
}

/// `setuid(2)`, this thread only: all three ids with CAP_SETUID, the effective one without.
///
/// ```
/// # use forkless_sys::{Errno, ids};
/// match ids::setuid(ids::getuid()) {
///     Ok(()) => assert_eq!(ids::geteuid(), ids::getuid()),
///     Err(e) => assert_eq!(e, Errno::EINVAL), // an id that this user namespace does not map
/// }
/// assert_eq!(ids::setuid(u32::MAX), Err(Errno::EINVAL)); // no user's
/// ```
#[inline(always)]
pub fn setuid(uid: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_setuid, uid) }.map(drop)
}

/// `setgid(2)`, this thread only.
///
/// ```
/// # use forkless_sys::{Errno, ids};
/// match ids::setgid(ids::getgid()) {
///     Ok(()) => assert_eq!(ids::getegid(), ids::getgid()),
///     Err(e) => assert_eq!(e, Errno::EINVAL), // an id that this user namespace does not map
/// }
/// assert_eq!(ids::setgid(u32::MAX), Err(Errno::EINVAL)); // no group's
/// ```
#[inline(always)]
pub fn setgid(gid: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { call!(__NR_setgid, gid) }.map(drop)
}

macro_rules! getter {
    ($($(#[$doc:meta])* $name:ident = $nr:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: cannot fail, writes no memory.
            unsafe { call!($nr) }.unwrap_or(0) as u32
        }
    )*};
}
getter! {
    /// `getuid(2)`.
    ///
    /// ```
    /// # use forkless_sys::ids;
    /// let status = std::fs::read_to_string("/proc/self/status").unwrap();
    /// assert!(status.contains(&format!("Uid:\t{}\t{}\t", ids::getuid(), ids::geteuid())));
    /// ```
    getuid = __NR_getuid;
    /// `geteuid(2)`.
    ///
    /// ```
    /// # use std::os::unix::fs::MetadataExt as _;
    /// assert_eq!(forkless_sys::ids::geteuid(), std::fs::metadata("/proc/self").unwrap().uid());
    /// ```
    geteuid = __NR_geteuid;
    /// `getgid(2)`.
    ///
    /// ```
    /// # use forkless_sys::ids;
    /// let status = std::fs::read_to_string("/proc/self/status").unwrap();
    /// assert!(status.contains(&format!("Gid:\t{}\t{}\t", ids::getgid(), ids::getegid())));
    /// ```
    getgid = __NR_getgid;
    /// `getegid(2)`.
    ///
    /// ```
    /// # use std::os::unix::fs::MetadataExt as _;
    /// assert_eq!(forkless_sys::ids::getegid(), std::fs::metadata("/proc/self").unwrap().gid());
    /// ```
    getegid = __NR_getegid;
}
