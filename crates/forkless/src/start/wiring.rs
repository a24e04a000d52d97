//! The descriptors of one start: the connection of each of the child's numbers, the pipes made for
//! them, and the way in which the child gets its table.

use super::moves::{FIRST_NOT_COPIED, MoveOptions, Source, Table};
use super::request::WaitFor;
use crate::error::{SpawnError, Step};
use crate::kernel::descriptor::pipe;
use crate::kernel::facilities::Facilities;
use crate::kernel::fd_count;
use crate::spec::stdio::{Kind, Stdio};
use crate::spec::{Defaults, Spec};
use forkless_sys::{fd, process, sched};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The descriptors of one start.
pub(super) struct Wiring {
    pub targets: Vec<(RawFd, Source)>,
    pub parent_ends: Vec<(RawFd, OwnedFd)>,
    pub child_ends: Vec<OwnedFd>,
    /// The child's number of the descriptor that it holds until exec and no longer. An action of
    /// the child's marks it close-on-exec.
    pub child_until_exec: Option<RawFd>,
    /// The same for the directory in which the program starts.
    pub child_directory: Option<RawFd>,
}

/// Connects the descriptors, and makes the pipes. `held_until_exec` is this process's number of a
/// descriptor that the child holds until exec.
pub(super) fn wire(
    spec: &Spec,
    defaults: Defaults,
    held_until_exec: Option<RawFd>,
) -> Result<Wiring, SpawnError> {
    let mut w = Wiring {
        targets: Vec::new(),
        parent_ends: Vec::new(),
        child_ends: Vec::new(),
        child_until_exec: None,
        child_directory: None,
    };
    if held_until_exec.is_none() && spec.connects_nothing(defaults) {
        return Ok(w);
    }
    check(spec, defaults)?;
    for (number, stdio) in spec.descriptors(defaults) {
        let source = match &stdio.0 {
            // 0, 1 and 2 stay as they are; higher numbers must be named to be kept.
            Kind::Inherit if number < 3 => continue,
            Kind::Inherit => Source::Fd(number),
            Kind::Null => Source::Open {
                path: c"/dev/null".into(),
                // The first three as std opens them.
                flags: match number {
                    0 => libc::O_RDONLY,
                    1 | 2 => libc::O_WRONLY,
                    _ => libc::O_RDWR,
                } as u32,
                mode: 0,
            },
            Kind::Closed => Source::Closed,
            Kind::SameAs(other) => Source::SameAs(*other),
            kind @ (Kind::Piped | Kind::PipedInput) => {
                let (r, w_end) = pipe()?;
                let (parent, child) =
                    if number == 0 || matches!(kind, Kind::PipedInput) { (w_end, r) } else { (r, w_end) };
                let source = Source::Fd(child.as_raw_fd());
                w.parent_ends.push((number, parent));
                w.child_ends.push(child);
                source
            }
            Kind::Owned(fd) => Source::Fd(fd.as_raw_fd()),
            Kind::Raw(fd) => Source::Fd(*fd),
        };
        w.targets.push((number, source));
    }
    w.child_until_exec = held_until_exec.map(|fd| above_all(&mut w.targets, fd));
    w.child_directory = spec.directory.map(|fd| above_all(&mut w.targets, fd));
    for i in 0..w.targets.len() {
        if let (number, Source::SameAs(other)) = w.targets[i] {
            let end = same_as(number, other, &w.targets, spec.inherit_descriptors)?;
            w.targets[i].1 = Source::SameAs(end);
        }
    }
    Ok(w)
}

/// Gives the child a descriptor under a number above all others. Returns the number.
fn above_all(targets: &mut Vec<(RawFd, Source)>, fd: RawFd) -> RawFd {
    let to = targets.iter().map(|t| t.0).max().unwrap_or(0).max(2) + 1;
    targets.push((to, Source::Fd(fd)));
    to
}

/// Fails where a number cannot be a descriptor's, and where a descriptor named by its number is not
/// open.
///
/// To be called before a pipe or a pidfd is made: it would take the number of a descriptor that is
/// not open, and the child would get it instead of an error.
fn check(spec: &Spec, defaults: Defaults) -> Result<(), SpawnError> {
    // No table reaches it (sysctl_nr_open_max, fs/file.c). Numbers just above a target are used on
    // the way.
    const BEYOND_ANY_TABLE: RawFd = 1 << 30;
    for (number, stdio) in spec.descriptors(defaults) {
        if !(0..BEYOND_ANY_TABLE).contains(&number) {
            let why = format!("no table of descriptors has the number {number}");
            return Err(SpawnError::new(Step::Command, why, libc::EBADF));
        }
        let from = match &stdio.0 {
            Kind::Inherit if number >= 3 => number,
            Kind::Raw(from) => *from,
            Kind::SameAs(other) => match spec.descriptors(defaults).find(|d| d.0 == *other) {
                Some((0..3, Stdio(Kind::Inherit))) => *other,
                None if spec.inherit_descriptors => *other,
                _ => continue,
            },
            _ => continue,
        };
        fd::get_fd_flags(from)
            .map_err(|e| SpawnError::at(Step::Descriptors, format_args!("{number} from {from}"), e))?;
    }
    Ok(())
}

/// Follows a chain of numbers that are the same as another, to a number that is connected itself.
fn same_as(
    number: RawFd,
    mut other: RawFd,
    targets: &[(RawFd, Source)],
    inherits: bool,
) -> Result<RawFd, SpawnError> {
    let fail = |why: String| Err(SpawnError::new(Step::Command, why, libc::EBADF));
    for _ in 0..=targets.len() {
        match targets.iter().find(|t| t.0 == other).map(|t| t.1) {
            Some(Source::SameAs(next)) => other = next,
            Some(Source::Closed) => {
                return fail(format!("descriptor {number} the same as {other}, which is closed"));
            }
            Some(_) => return Ok(other),
            None if (0..3).contains(&other) || inherits => return Ok(other),
            None => {
                return fail(format!(
                    "descriptor {number} the same as {other}, which the child does not get"
                ));
            }
        }
    }
    fail(format!("descriptor {number} the same as itself"))
}

/// Whether the child gets a descriptor by `pidfd_getfd`, since its number is high.
pub(super) fn gets_any_from_parent(targets: &[(RawFd, Source)]) -> bool {
    targets.iter().any(|(_, s)| matches!(s, Source::Fd(n) if *n >= FIRST_NOT_COPIED))
}

/// Whether the facilities that the child will use have worked before.
pub(super) fn proven(facilities: &Facilities, spec: &Spec, wiring: &Wiring) -> bool {
    spec.inherit_descriptors
        || (facilities.unshare_range.confirmed()
            && (!gets_any_from_parent(&wiring.targets) || facilities.pidfd_getfd.confirmed()))
}

/// Chooses the way in which the child gets its table.
pub(super) fn choose_table(
    facilities: &Facilities,
    spec: &Spec,
    wiring: &Wiring,
    wait_for: WaitFor,
) -> Table {
    if spec.inherit_descriptors {
        return Table::Copy { close_others: false };
    }
    // A caller that waits for exec or for the end waits for the unsharing anyway.
    let worth_waiting = || wait_for != WaitFor::Clone || fd_count::many_open();
    if facilities.unshare_range.works()
        && worth_waiting()
        && (!gets_any_from_parent(&wiring.targets) || facilities.pidfd_getfd.works())
    {
        Table::Share
    } else {
        Table::Copy { close_others: true }
    }
}

/// The options for the actions on descriptors, by the facilities that work.
pub(super) fn move_options(facilities: &Facilities, announce: bool, from_parent: bool) -> MoveOptions {
    let close_range = facilities.close_range.works();
    let limit = if close_range {
        0
    } else {
        // The table may hold numbers above a limit that was lowered later, so the highest open
        // number counts, too.
        let highest = std::fs::read_dir("/proc/thread-self/fd")
            .map(|d| {
                d.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()).max().unwrap_or(0) + 1
            })
            .unwrap_or(0);
        let limit = sched::getrlimit(7).map_or(1024, |l| l.soft.min(1 << 20) as u32);
        limit.max(highest)
    };
    let caller = if from_parent { (process::getpid(), process::gettid()) } else { (0, 0) };
    MoveOptions { close_range, limit, caller, announce }
}
