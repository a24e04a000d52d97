//! Users and groups. **These act on the calling thread alone**, unlike libc's, which signal every
//! thread of the process: right for a child between clone and exec, wrong anywhere else.
#![expect(unsafe_code, reason = "each call states why the kernel writes only to memory it is given")]

use crate::Result;
use crate::calls::{self, Id, Len, Op, Word};
use linux_raw_sys::{general as k, prctl as p};

/// Leaves an id as it is, for the `setres*` calls.
pub const KEEP: u32 = u32::MAX;

/// `setresuid(2)`, this thread only. Clears the *shared* dumpable flag when memory is shared
/// (`commit_creds`).
#[inline(always)]
pub fn setresuid(real: u32, effective: u32, saved: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::setresuid(Id(real), Id(effective), Id(saved)) }.map(drop)
}

/// `setgroups(2)`, this thread only.
#[inline(always)]
pub fn setgroups(groups: &[u32]) -> Result<()> {
    // SAFETY: the kernel reads `len` ids.
    unsafe { calls::setgroups(Len(groups.len()), groups.as_ptr()) }.map(drop)
}

/// `setuid(2)`, this thread only: all three ids with CAP_SETUID, the effective one without.
#[inline(always)]
pub fn setuid(uid: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::setuid(Id(uid)) }.map(drop)
}

/// `setgid(2)`, this thread only.
#[inline(always)]
pub fn setgid(gid: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::setgid(Id(gid)) }.map(drop)
}

/// `setreuid(2)`, this thread only. The saved id follows the effective one.
#[inline(always)]
pub fn setreuid(real: u32, effective: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::setreuid(Id(real), Id(effective)) }.map(drop)
}

/// `setregid(2)`, this thread only. The saved id follows the effective one.
#[inline(always)]
pub fn setregid(real: u32, effective: u32) -> Result<()> {
    // SAFETY: writes no memory.
    unsafe { calls::setregid(Id(real), Id(effective)) }.map(drop)
}

macro_rules! getter {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: cannot fail, writes no memory.
            unsafe { calls::$name() }.unwrap_or(0) as u32
        }
    )*};
}
getter! {
    /// `getuid(2)`.
    getuid;
    /// `geteuid(2)`.
    geteuid;
    /// `getgid(2)`.
    getgid;
    /// `getegid(2)`.
    getegid;
}

/// The real, the effective and the saved user of the calling thread: `getresuid(2)`.
#[inline]
pub fn getresuid() -> Result<[u32; 3]> {
    let [mut real, mut effective, mut saved] = [0u32; 3];
    // SAFETY: the kernel writes three ids.
    unsafe { calls::getresuid(&raw mut real, &raw mut effective, &raw mut saved) }?;
    Ok([real, effective, saved])
}

/// The real, the effective and the saved group of the calling thread: `getresgid(2)`.
#[inline]
pub fn getresgid() -> Result<[u32; 3]> {
    let [mut real, mut effective, mut saved] = [0u32; 3];
    // SAFETY: the kernel writes three ids.
    unsafe { calls::getresgid(&raw mut real, &raw mut effective, &raw mut saved) }?;
    Ok([real, effective, saved])
}

/// Capabilities of a thread: bit n for capability n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The capabilities that the kernel checks.
    pub effective: u64,
    /// The capabilities that the thread may make effective.
    pub permitted: u64,
    /// The capabilities that an exec may pass on.
    pub inheritable: u64,
}

/// `capget(2)` of the calling thread.
#[inline]
pub fn capabilities() -> Result<Capabilities> {
    // Version 3 and the calling thread; then effective, permitted and inheritable, the low halves
    // first.
    let header = [k::_LINUX_CAPABILITY_VERSION_3, 0];
    let mut sets = [0u32; 6];
    // SAFETY: the kernel reads the header, whose version it knows, and writes two structures of
    // three words.
    unsafe { calls::capget(&raw const header, &raw mut sets) }?;
    let both = |low: usize| u64::from(sets[low]) | u64::from(sets[low + 3]) << 32;
    Ok(Capabilities { effective: both(0), permitted: both(1), inheritable: both(2) })
}

/// The capabilities that change what a shell does before it executes a program. They decide about
/// searching and opening (`CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`, `CAP_FOWNER`,
/// `CAP_MAC_OVERRIDE`), about a file's mode (`CAP_FSETID`), and about limits reserved for root
/// (`CAP_SYS_ADMIN`, `CAP_SYS_RESOURCE`). All others matter only to the program, which gets them
/// from its exec.
pub const OF_A_SHELL: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 21 | 1 << 24 | 1 << 32;

/// Which of [`OF_A_SHELL`] are in the bounding set (`PR_CAPBSET_READ`), so that an exec may give
/// them. One system call for each.
#[inline]
pub fn bounding_capabilities() -> Result<u64> {
    let mut set = 0;
    for capability in (0..u64::BITS).filter(|capability| OF_A_SHELL >> capability & 1 == 1) {
        set |= (prctl(p::PR_CAPBSET_READ, capability as usize, 0)? as u64) << capability;
    }
    Ok(set)
}

/// The user and the group for file access (`setfsuid(2)`). The calls that set them return the old
/// id; with an invalid id they change nothing.
#[inline]
pub fn file_ids() -> Result<[u32; 2]> {
    // SAFETY: writes no memory.
    let user = unsafe { calls::setfsuid(Id(KEEP)) }?;
    // SAFETY: as above.
    let group = unsafe { calls::setfsgid(Id(KEEP)) }?;
    Ok([user as u32, group as u32])
}

/// Whether a shell would act with the calling thread's credentials, and pass them on.
///
/// False where the ids differ: a shell drops effective ids that are not the real ones (dash since
/// 0.5.11, busybox, bash), and an exec sets the ids for file access to the effective ones. False
/// also where the capabilities differ from those that an exec gives (`capabilities(7)`). An exec
/// gives root the bounding set and the inheritable set, whatever root has now; only [`OF_A_SHELL`]
/// of these counts here. An exec gives other users the ambient set. A set-user-ID program started
/// by a real root has equal ids from the start.
///
/// `bounding` returns [`bounding_capabilities`] or a copy of it; it is called for root alone. Takes
/// five other system calls, six for root.
#[inline]
pub fn are_a_shells(bounding: impl FnOnce() -> Result<u64>) -> bool {
    let same = |ids: Result<[u32; 3]>| match ids {
        Ok([real, effective, saved]) if real == effective && real == saved => Some(real),
        _ => None,
    };
    let (Some(user), Some(group)) = (same(getresuid()), same(getresgid())) else { return false };
    let Ok(own) = capabilities() else { return false };
    if file_ids() != Ok([user, group]) || own.effective != own.permitted {
        return false;
    }
    if user == 0 {
        let same = |all| (own.permitted ^ (all | own.inheritable)) & OF_A_SHELL == 0;
        return root_is_root() && bounding().is_ok_and(same);
    }
    (0..u64::BITS).all(|capability| own.permitted >> capability & 1 == 0 || is_ambient(capability))
}

/// Whether an exec gives user 0 its capabilities.
fn root_is_root() -> bool {
    const SECBIT_NOROOT: usize = 1 << 0;
    prctl(p::PR_GET_SECUREBITS, 0, 0).is_ok_and(|bits| bits & SECBIT_NOROOT == 0)
}

fn is_ambient(capability: u32) -> bool {
    prctl(p::PR_CAP_AMBIENT, p::PR_CAP_AMBIENT_IS_SET as usize, capability as usize) == Ok(1)
}

/// `prctl(2)` for the queries above, whose answer is the return value.
fn prctl(option: u32, a: usize, b: usize) -> Result<usize> {
    // SAFETY: this private function's callers pass PR_CAPBSET_READ, PR_GET_SECUREBITS and
    // PR_CAP_AMBIENT_IS_SET. The kernel writes no memory for these.
    unsafe { calls::prctl(Op(option), Word(a), Word(b), Word(0), Word(0)) }
}
