//! What this kernel, and every filter above it, lets the library use. Found out once, by trying; a facility refused later
//! (a seccomp filter installed meanwhile) is struck off when that shows.

use crate::kernel::emulated_vm;
use crate::kernel::process_state;
use forkless_sys::{Errno, clone, fd, process};
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};

/// Whether a facility works here.
///
/// ```
/// use forkless::Facility;
/// assert!(Facility::Works.works() && Facility::Untried.works());
/// assert_eq!(Facility::Refused(1).to_string(), "refused: Operation not permitted");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Facility {
    /// It does.
    Works,
    /// It was refused with this error number.
    Refused(i32),
    /// Not tried yet: it is tried when it is first needed.
    Untried,
}

impl Facility {
    /// Whether it is worth trying.
    ///
    /// ```
    /// let usable = forkless::facilities().iter().filter(|f| f.state.works()).count();
    /// assert!(usable > 0);
    /// ```
    pub fn works(self) -> bool {
        !matches!(self, Facility::Refused(_))
    }
}

impl fmt::Display for Facility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Facility::Works => f.write_str("works"),
            Facility::Refused(e) => write!(f, "refused: {}", crate::error::message(*e)),
            Facility::Untried => f.write_str("not tried yet"),
        }
    }
}

/// One facility as `forkless doctor` shows it.
///
/// ```
/// let clone3 = forkless::facilities().into_iter().find(|f| f.name == "clone3").unwrap();
/// assert_eq!(clone3.fallback, "clone(2) with the same flags");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FacilityReport {
    /// The kernel's name for it.
    pub name: &'static str,
    /// Whether it works here.
    pub state: Facility,
    /// What it is used for.
    pub used_for: &'static str,
    /// What is done without it.
    pub fallback: &'static str,
}

/// The errno that refused it, 0 for works, -1 for untried.
pub(crate) struct Switch(AtomicI32);

impl Switch {
    const fn untried() -> Switch {
        Switch(AtomicI32::new(-1))
    }

    fn known(result: Result<(), Errno>) -> Switch {
        Switch(AtomicI32::new(result.err().map_or(0, Errno::raw)))
    }

    #[inline]
    pub(crate) fn works(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= 0
    }

    /// Tried, and it worked.
    #[inline]
    pub(crate) fn confirmed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Strikes it off.
    #[cold]
    pub(crate) fn refuse(&self, e: Errno) {
        self.0.store(e.raw(), Ordering::Relaxed);
    }

    /// Notes that it worked.
    #[inline]
    pub(crate) fn confirm(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    fn state(&self) -> Facility {
        match self.0.load(Ordering::Relaxed) {
            0 => Facility::Works,
            -1 => Facility::Untried,
            e => Facility::Refused(e),
        }
    }
}

pub(crate) struct All {
    pub clone3: Switch,
    pub clear_sighand: Switch,
    pub shared_memory: Switch,
    pub pidfd: Switch,
    pub wait_pidfd: Switch,
    pub signal_pidfd: Switch,
    pub close_range: Switch,
    pub close_range_cloexec: Switch,
    pub unshare_range: Switch,
    pub fetch: Switch,
    pub into_cgroup: Switch,
    pub pidfd_info: Switch,
    pub core_dump_kills_sharers: bool,
}

pub(crate) fn get() -> &'static All {
    &process_state::state().facilities
}

impl Default for All {
    /// Finds out.
    fn default() -> All {
        probe()
    }
}

fn probe() -> All {
    let clone3 = clone::clone3_allowed();
    // Numbers no table has: nothing is closed.
    let range = fd::close_range(u32::MAX, u32::MAX, 0);
    let cloexec = fd::close_range(u32::MAX, u32::MAX, fd::CLOSE_RANGE_CLOEXEC);
    All {
        // CLEAR_SIGHAND (5.5) and INTO_CGROUP (5.7) came after clone3 (5.3); a kernel between says EINVAL when they are used.
        clear_sighand: clone3.err().map_or_else(Switch::untried, |e| Switch::known(Err(e))),
        into_cgroup: clone3.err().map_or_else(Switch::untried, |e| Switch::known(Err(e))),
        shared_memory: Switch::known(clone3.or_else(|_| emulated_vm::shares_memory())),
        clone3: Switch::known(clone3),
        pidfd: Switch::known(process::pidfd_open(process::getpid()).and_then(fd::close)),
        wait_pidfd: Switch::untried(),
        signal_pidfd: Switch::untried(),
        close_range: Switch::known(range),
        close_range_cloexec: Switch::known(cloexec),
        unshare_range: range.err().map_or_else(Switch::untried, |e| Switch::known(Err(e))),
        fetch: Switch::untried(),
        pidfd_info: Switch::untried(),
        core_dump_kills_sharers: core_dump_kills_sharers(),
    }
}

/// Whether a child that dumps core while it shares memory takes its parent with it: before Linux 5.16 (`zap_threads`).
fn core_dump_kills_sharers() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // An unreadable version counts as old: the guard only costs a system call.
    version < (5, 16)
}

/// What was found, for people. Untried facilities that can be tried without side effects are tried now.
///
/// ```
/// for f in forkless::facilities() {
///     println!("{}: {} (else: {})", f.name, f.state, f.fallback);
/// }
/// ```
pub fn facilities() -> Vec<FacilityReport> {
    crate::facility_report::try_untried();
    let all = get();
    let row = |name, switch: &Switch, used_for, fallback| FacilityReport {
        name,
        state: switch.state(),
        used_for,
        fallback,
    };
    vec![
        row("clone3", &all.clone3, "creating the child in one call", "clone(2) with the same flags"),
        row(
            "CLONE_VM",
            &all.shared_memory,
            "a child that shares memory: nothing is copied, whatever its size",
            "the emulator's copy; report and exec are learnt of through shared memory and a pipe",
        ),
        row(
            "CLONE_CLEAR_SIGHAND",
            &all.clear_sighand,
            "no handler survives into the child",
            "the child resets each handler itself",
        ),
        row(
            "CLONE_PIDFD",
            &all.pidfd,
            "a handle on the child that no other process can inherit by pid reuse",
            "pidfd_open right after the clone, else the pid",
        ),
        row("waitid P_PIDFD", &all.wait_pidfd, "waiting for the child and no other", "waitid by pid"),
        row(
            "pidfd_send_signal",
            &all.signal_pidfd,
            "signalling the child and no other",
            "kill, after a look whether it is still our child",
        ),
        row(
            "CLONE_INTO_CGROUP",
            &all.into_cgroup,
            "being born in a cgroup",
            "the child writes itself into cgroup.procs",
        ),
        row(
            "close_range",
            &all.close_range,
            "closing what the child is not given",
            "one close for each number",
        ),
        row(
            "CLOSE_RANGE_UNSHARE",
            &all.unshare_range,
            "a cost that does not grow with open descriptors",
            "the clone copies the table",
        ),
        row(
            "CLOSE_RANGE_CLOEXEC",
            &all.close_range_cloexec,
            "exec in place without losing descriptors if it fails",
            "one fcntl for each number",
        ),
        row(
            "pidfd_getfd",
            &all.fetch,
            "bringing high-numbered descriptors along without the copy",
            "the clone copies the table",
        ),
        row(
            "PIDFD_GET_INFO",
            &all.pidfd_info,
            "the status of a child that somebody else reaped",
            "WaitError::Unknown",
        ),
    ]
}
