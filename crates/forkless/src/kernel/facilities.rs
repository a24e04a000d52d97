//! The facilities that this kernel, and every filter above it, lets the library use.
//!
//! Each process finds that out once, by trying. No trial shows: its child has no exit signal, so no
//! handler for SIGCHLD and no wait for any child is told of it. A facility that is refused later,
//! by a seccomp filter installed meanwhile, is noted as refused when the refusal shows.

use super::emulated_vm;
use super::namespace::children_leave;
use super::process_state::PerProcess;
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

/// Whether a facility works: the errno that refused it, 0 for works, -1 for untried.
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

    /// Whether the facility was tried, and worked.
    #[inline]
    pub(crate) fn confirmed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    #[inline]
    pub(crate) fn is_untried(&self) -> bool {
        self.0.load(Ordering::Relaxed) == -1
    }

    /// Notes the refusal: later starts go without the facility.
    #[cold]
    pub(crate) fn refuse(&self, e: Errno) {
        self.0.store(e.raw(), Ordering::Relaxed);
    }

    /// Notes that the facility worked.
    #[inline]
    pub(crate) fn confirm(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn state(&self) -> Facility {
        match self.0.load(Ordering::Relaxed) {
            0 => Facility::Works,
            -1 => Facility::Untried,
            e => Facility::Refused(e),
        }
    }
}

/// The facilities, one switch for each.
pub(crate) struct Facilities {
    pub clone3: Switch,
    pub clear_sighand: Switch,
    /// To be read by [`Facilities::share_memory`], which tries it.
    pub shared_memory: Switch,
    pub pidfd: Switch,
    pub wait_pidfd: Switch,
    pub signal_pidfd: Switch,
    pub close_range: Switch,
    pub close_range_cloexec: Switch,
    pub unshare_range: Switch,
    pub pidfd_getfd: Switch,
    pub into_cgroup: Switch,
    pub pidfd_info: Switch,
    pub core_dump_kills_sharers: bool,
}

/// The facilities of this process.
pub(crate) fn get() -> &'static Facilities {
    static FACILITIES: PerProcess<Facilities> = PerProcess::new();
    FACILITIES.get()
}

impl Facilities {
    /// Whether a child made with `CLONE_VM` shares this process's memory.
    ///
    /// Tried by the first start that needs to know, not by an exec in place. It takes a child of
    /// its own.
    #[inline]
    pub(crate) fn share_memory(&self) -> bool {
        if self.shared_memory.is_untried() {
            self.try_shared_memory();
        }
        self.shared_memory.works()
    }

    #[cold]
    fn try_shared_memory(&self) {
        // The child would be the init of a new namespace, and end it: the program's child could
        // not be made there. A real kernel made the namespace, and shares memory.
        if children_leave() {
            return;
        }
        match emulated_vm::shares_memory() {
            Ok(()) => self.shared_memory.confirm(),
            Err(e) => self.shared_memory.refuse(e),
        }
    }
}

impl Default for Facilities {
    /// Finds out.
    fn default() -> Facilities {
        probe()
    }
}

fn probe() -> Facilities {
    let clone3 = clone::clone3_allowed();
    // No table has these numbers, so nothing is closed.
    let range = fd::close_range(u32::MAX, u32::MAX, 0);
    let cloexec = fd::close_range(u32::MAX, u32::MAX, fd::CLOSE_RANGE_CLOEXEC);
    Facilities {
        // CLEAR_SIGHAND (5.5) and INTO_CGROUP (5.7) came after clone3 (5.3). A kernel between says
        // EINVAL when they are used.
        clear_sighand: clone3.err().map_or_else(Switch::untried, |e| Switch::known(Err(e))),
        into_cgroup: clone3.err().map_or_else(Switch::untried, |e| Switch::known(Err(e))),
        shared_memory: clone3.map_or_else(|_| Switch::untried(), |()| Switch::known(Ok(()))),
        clone3: Switch::known(clone3),
        pidfd: Switch::known(process::pidfd_open(process::getpid()).and_then(fd::close)),
        wait_pidfd: Switch::untried(),
        signal_pidfd: Switch::untried(),
        close_range: Switch::known(range),
        close_range_cloexec: Switch::known(cloexec),
        unshare_range: range.err().map_or_else(Switch::untried, |e| Switch::known(Err(e))),
        pidfd_getfd: Switch::untried(),
        pidfd_info: Switch::untried(),
        core_dump_kills_sharers: core_dump_kills_sharers(),
    }
}

/// Whether a child that dumps core while it shares memory takes its parent with it, as before Linux
/// 5.16 (`zap_threads`).
fn core_dump_kills_sharers() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // An unreadable version counts as old: the guard costs no more than a system call.
    version < (5, 16)
}
