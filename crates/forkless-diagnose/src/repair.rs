//! Puts the small pages of a running process into huge ones, from outside:
//! `process_madvise(MADV_COLLAPSE)`, in pieces, at a limited share of the time. Afterwards its
//! forks copy one entry where they copied 512.
//!
//! The kernel takes the target's mmap lock anew for each huge page (mm/khugepaged.c,
//! `collapse_huge_page`). A thread of the target that faults or maps then waits for the copy of one
//! huge page, under a millisecond on an idle machine. A call also makes every CPU drain its page
//! lists once, and a thread that maps may wait for that too. So calls are kept short: see [`Pace`].
//! Nothing else of the target is touched. The kernel leaves excluded memory alone
//! (`MADV_NOHUGEPAGE`, `PR_SET_THP_DISABLE`). Regions mostly unused are left alone too, since
//! filling them would cost memory.

#![expect(unsafe_code, reason = "process_madvise has no safe wrapper")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;

use crate::error::{FOREIGN_PROC, ThreadOf};
use crate::mappings::{self, Mapping};
use crate::model;
use crate::procfs::{self, PageKinds};

/// include/uapi/asm-generic/mman-common.h. The libc crate has it for glibc alone.
const MADV_COLLAPSE: libc::c_int = 25;

/// How gently to repair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RepairOptions {
    /// Aim for the longest call to the kernel. The size of each call follows from the time of the
    /// call before. Even a call for one huge page may take longer on a busy machine.
    pub longest_call: Duration,
    /// Share of the time spent in such calls, above 0 and up to 1.
    pub duty: f64,
    /// Least used share of a huge page that is put together. The rest of it is new memory.
    pub populated: f64,
    /// Change nothing; only report the plan.
    pub dry_run: bool,
}

impl Default for RepairOptions {
    /// 50 ms, a quarter of the time, half populated.
    fn default() -> Self {
        Self { longest_call: Duration::from_millis(50), duty: 0.25, populated: 0.5, dry_run: false }
    }
}

/// The result of a repair.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RepairReport {
    /// Page kinds before.
    pub before: PageKinds,
    /// Page kinds after.
    pub after: PageKinds,
    /// Bytes asked for, in whole huge pages.
    pub asked: u64,
    /// Bytes that the kernel reports as collapsed, those that were huge already included.
    pub collapsed: u64,
    /// Bytes that the kernel refused for now (busy or pinned pages, no free huge page).
    pub refused: u64,
    /// Bytes left out because the program excludes them from huge pages.
    pub excluded: u64,
    /// Bytes left out because too little of them is in use.
    pub sparse: u64,
    /// Bytes left out because their mapping has no whole huge page, or is one of a file or of
    /// memory that may not be written.
    pub unfit: u64,
    /// Calls to the kernel.
    pub calls: u64,
    /// Bytes of the largest call.
    pub largest_call: u64,
    /// CPU time in these calls, nanoseconds.
    pub busy_ns: u64,
    /// The longest call, nanoseconds.
    pub longest_call_ns: u64,
    /// From the first call to the last, nanoseconds.
    pub elapsed_ns: u64,
    /// Stopped before the end, and why.
    pub stopped: Option<String>,
}

/// The reason why nothing could be repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// There is no such process.
    #[error("no process {pid} (it may have ended); see `ps -e`")]
    NoProcess {
        /// The pid asked for.
        pid: u32,
    },
    /// The number is one of a thread.
    #[error(transparent)]
    Thread(#[from] ThreadOf),
    /// It has no memory of its own.
    #[error("process {pid} has no memory of its own: it is a thread of the kernel, or has ended")]
    NoMemory {
        /// The pid asked for.
        pid: u32,
    },
    /// /proc belongs to another pid namespace: its numbers mean other processes.
    #[error("{FOREIGN_PROC}")]
    ForeignProc,
    /// The kernel or the permissions do not allow it.
    #[error("cannot repair process {pid}: {what}: {source}; {hint}")]
    Refused {
        /// The process.
        pid: u32,
        /// What failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
}

impl RepairError {
    /// Whether a privilege or a newer kernel is missing, rather than the process.
    pub fn is_missing_facility(&self) -> bool {
        matches!(self, Self::ForeignProc | Self::Refused { .. })
    }
}

const HUGE: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// The number of huge pages that the next call asks for. The first asks for one. A call under an
/// eighth of the longest allowed time doubles the number; a call over a quarter lowers it in
/// proportion. The distance to the longest time is room for load that comes between two calls.
#[derive(Debug)]
struct Pace {
    longest: Duration,
    pages: u64,
    most: u64,
}

impl Pace {
    /// The cost of a huge page on a busy machine: twenty times that on an idle one. At this cost no
    /// call takes longer than allowed, however fast the calls before were.
    const BUSY: Duration = Duration::from_millis(8);
    /// No copy of a huge page is faster than this: 40 GB/s.
    const COPY: Duration = Duration::from_micros(50);
    const MOST: u64 = 256;

    fn new(longest: Duration) -> Self {
        let most = (longest.as_nanos() / Self::BUSY.as_nanos()).clamp(1, u128::from(Self::MOST)) as u64;
        Self { longest, pages: 1, most }
    }

    /// Notes the time that a call for `pages` took.
    fn took(&mut self, pages: u64, time: Duration) {
        // Pages that were huge already cost nothing and predict nothing.
        if time < Self::COPY * pages as u32 {
            return;
        }
        if time * 4 > self.longest {
            let fewer = pages as f64 * self.longest.as_secs_f64() / 4.0 / time.as_secs_f64();
            self.pages = (fewer as u64).clamp(1, self.pages);
        } else if time * 8 < self.longest {
            self.pages = (pages * 2).clamp(self.pages, self.most);
        }
    }

    /// Notes a failed call. One bad page fails the whole piece, so the next calls ask for single
    /// pages to lose only that one.
    fn failed(&mut self) {
        self.pages = 1;
    }
}

/// Repairs process `pid`. `progress` is told (bytes done, bytes planned) after each piece and
/// returns `false` to stop.
///
/// # Errors
/// [`RepairError`] if the process is not there, or the first piece shows that it is not permitted
/// or not known to the kernel.
pub fn repair(
    pid: u32,
    options: &RepairOptions,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<RepairReport, RepairError> {
    // The number would be of one process, and the ranges of another.
    if procfs::is_foreign() {
        return Err(RepairError::ForeignProc);
    }
    procfs::no_thread(pid)?;
    let pidfd = open(pid)?;
    let mut report = RepairReport::default();
    let refused = |what, source| RepairError::Refused { pid, what, source, hint: repair_privilege() };
    let mappings = match Mapping::of(pid) {
        Ok(mappings) if mappings.is_empty() => return Err(RepairError::NoMemory { pid }),
        Ok(mappings) => mappings,
        // It ended meanwhile.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
            return Err(RepairError::NoProcess { pid });
        }
        Err(error) => return Err(refused("its mappings cannot be read", error)),
    };
    report.before = mappings::page_kinds(&mappings);
    report.after = report.before;
    let plan = Plan::of_process(pid, &mappings, options.populated)
        .map_err(|error| refused("its pages cannot be looked at", error))?;
    (report.excluded, report.sparse, report.unfit) = (plan.excluded, plan.sparse, plan.unfit);
    report.asked = plan.bytes();
    if options.dry_run {
        return Ok(report);
    }
    let begin = Instant::now();
    let call = |at, length| {
        let begin = Instant::now();
        let outcome = collapse(&pidfd, at, length);
        (outcome, begin.elapsed())
    };
    let outcome = collapse_all(&plan.ranges, options, &mut report, &mut progress, call, std::thread::sleep);
    report.elapsed_ns = begin.elapsed().as_nanos() as u64;
    if let Err(source) = outcome {
        let hint = match source.raw_os_error() {
            Some(libc::EPERM) => repair_privilege(),
            Some(libc::EINVAL | libc::ENOSYS) => "needs Linux 6.1 with transparent huge pages",
            _ => "try again",
        };
        if report.collapsed == 0 {
            return Err(RepairError::Refused { pid, what: "process_madvise(MADV_COLLAPSE)", source, hint });
        }
        report.stopped = Some(format!("{source}; {hint}"));
    }
    if let Some(after) = procfs::page_kinds(pid) {
        report.after = after;
    } else {
        report.stopped = Some("the process ended".to_owned());
    }
    Ok(report)
}

fn open(pid: u32) -> Result<OwnedFd, RepairError> {
    let none = || RepairError::NoProcess { pid };
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(none)?;
    pidfd_open(raw, PidfdFlags::empty()).map_err(|errno| match errno {
        rustix::io::Errno::SRCH | rustix::io::Errno::INVAL => none(),
        errno => {
            RepairError::Refused { pid, what: "pidfd_open", source: errno.into(), hint: "needs Linux 5.3" }
        }
    })
}

/// What a repair asks for, and what it leaves out. Amounts in bytes, pages of 4 KiB.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Whole huge pages of written private memory that is used enough.
    ranges: Vec<Range<u64>>,
    /// Pages in these ranges that are there, those of huge pages included.
    pub(crate) present: u64,
    /// Pages in these ranges that are swapped out.
    pub(crate) swapped: u64,
    /// As in [`RepairReport`].
    pub(crate) excluded: u64,
    pub(crate) sparse: u64,
    pub(crate) unfit: u64,
    /// Huge pages of mappings in which nothing is asked for.
    pub(crate) huge_already: u64,
}

/// Pages of a huge page's range by their state.
#[derive(Debug, Clone, Copy, Default)]
struct Populated {
    present: u64,
    swapped: u64,
}

impl Plan {
    /// The plan for some mappings of a process. A huge page is asked for from this share in use.
    pub(crate) fn of_process<'m>(
        pid: u32,
        mappings: impl IntoIterator<Item = &'m Mapping>,
        populated: f64,
    ) -> io::Result<Self> {
        Self::if_refusing(pid, mappings, populated, procfs::refuses_huge_pages(pid))
    }

    /// The same, for a process that has excluded all its memory, or has not.
    pub(crate) fn if_refusing<'m>(
        pid: u32,
        mappings: impl IntoIterator<Item = &'m Mapping>,
        populated: f64,
        refuses: bool,
    ) -> io::Result<Self> {
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        let look = |start| Populated::at(&pagemap, start);
        let next = |range| Populated::next(&pagemap, range);
        Self::of(mappings, refuses, populated, look, next)
    }

    /// `refuses`: the process has excluded all its memory. `next` gives an address in a range below
    /// which nothing of it is populated.
    fn of<'m>(
        mappings: impl IntoIterator<Item = &'m Mapping>,
        refuses: bool,
        populated: f64,
        mut look: impl FnMut(u64) -> io::Result<Populated>,
        mut next: impl FnMut(Range<u64>) -> u64,
    ) -> io::Result<Self> {
        let mut plan = Self::default();
        for mapping in mappings {
            let small = mapping.anon.saturating_sub(mapping.anon_huge);
            let there = plan.present + plan.swapped;
            let whole = mapping.range.start.next_multiple_of(HUGE)..mapping.range.end / HUGE * HUGE;
            let fits = mapping.is_private_writable && mapping.is_anonymous && !mapping.is_special;
            if small == 0 {
            } else if !fits || whole.is_empty() {
                plan.unfit += small;
            } else if refuses || mapping.is_excluded {
                plan.excluded += small;
            } else {
                plan.ask(whole, populated, &mut look, &mut next)?;
            }
            if plan.present + plan.swapped == there {
                plan.huge_already += mapping.anon_huge;
            }
        }
        Ok(plan)
    }

    /// Asks for those huge pages of a mapping that are used enough.
    fn ask(
        &mut self,
        whole: Range<u64>,
        populated: f64,
        look: &mut impl FnMut(u64) -> io::Result<Populated>,
        next: &mut impl FnMut(Range<u64>) -> u64,
    ) -> io::Result<()> {
        let mut start = whole.start;
        while start < whole.end {
            let end = start + HUGE;
            let Populated { present, swapped } = look(start)?;
            match present + swapped {
                // A sanitizer maps terabytes, and uses little of them.
                0 => {
                    start = next(end..whole.end) / HUGE * HUGE;
                    continue;
                }
                pages if (pages as f64) < populated * (HUGE / PAGE) as f64 => self.sparse += pages * PAGE,
                _ => {
                    self.present += present;
                    self.swapped += swapped;
                    match self.ranges.last_mut() {
                        Some(last) if last.end == start => last.end = end,
                        _ => self.ranges.push(start..end),
                    }
                }
            }
            start = end;
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}

impl Populated {
    /// By bits 63 and 62 of /proc/PID/pagemap.
    fn at(pagemap: &File, start: u64) -> io::Result<Self> {
        let mut entries = [0u8; (HUGE / PAGE * 8) as usize];
        pagemap.read_exact_at(&mut entries, start / PAGE * 8)?;
        // The entry's highest byte holds both bits (the kernel writes native words; this is
        // little-endian only).
        let count = |bit: u8| entries.chunks_exact(8).filter(|entry| entry[7] & bit != 0).count() as u64;
        Ok(Self { present: count(0x80), swapped: count(0x40) })
    }

    /// The first address in a range with a page that is there or swapped out; else the range's end.
    /// Before Linux 6.7 it is the range's begin, for nothing skips what is empty.
    fn next(pagemap: &File, range: Range<u64>) -> u64 {
        let mut region = PageRegion::default();
        let mut scan = PagemapScan {
            size: size_of::<PagemapScan>() as u64,
            start: range.start,
            end: range.end,
            vec: (&raw mut region).expose_provenance() as u64,
            vec_len: 1,
            max_pages: 1,
            category_anyof_mask: PagemapScan::PRESENT | PagemapScan::SWAPPED,
            return_mask: PagemapScan::PRESENT | PagemapScan::SWAPPED,
            ..PagemapScan::default()
        };
        // SAFETY: `scan` has the layout that the kernel expects, and `vec` is room for one region.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PagemapScan::CALL, &raw mut scan) };
        match found {
            0 => range.end,
            1.. => region.start,
            _ => range.start,
        }
    }
}

/// `struct pm_scan_arg` of include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct PagemapScan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

impl PagemapScan {
    /// `_IOWR('f', 16, struct pm_scan_arg)`.
    const CALL: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
    const PRESENT: u64 = 1 << 3;
    const SWAPPED: u64 = 1 << 4;
}

/// `struct page_region`, the same.
#[repr(C)]
#[derive(Debug, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// Asks for every range by `call`, which says how long it took, and rests between by `rest`.
fn collapse_all(
    plan: &[Range<u64>],
    options: &RepairOptions,
    report: &mut RepairReport,
    progress: &mut impl FnMut(u64, u64) -> bool,
    mut call: impl FnMut(u64, u64) -> (io::Result<()>, Duration),
    mut rest: impl FnMut(Duration),
) -> io::Result<()> {
    let mut pace = Pace::new(options.longest_call);
    let mut done = 0;
    for range in plan {
        let mut at = range.start;
        while at < range.end {
            let length = (pace.pages * HUGE).min(range.end - at);
            let (outcome, took) = call(at, length);
            report.calls += 1;
            report.largest_call = report.largest_call.max(length);
            report.busy_ns += took.as_nanos() as u64;
            report.longest_call_ns = report.longest_call_ns.max(took.as_nanos() as u64);
            match outcome {
                Ok(()) => {
                    report.collapsed += length;
                    at += length;
                    done += length;
                    pace.took(length / HUGE, took);
                }
                Err(error) if retryable(&error) && length > HUGE => pace.failed(),
                Err(error) if retryable(&error) => {
                    report.refused += length;
                    at += length;
                    done += length;
                }
                Err(error) => return Err(error),
            }
            if !progress(done, report.asked) {
                report.stopped = Some("interrupted".to_owned());
                return Ok(());
            }
            let duty = options.duty.clamp(0.001, 1.0);
            rest(took.mul_f64(1.0 / duty - 1.0));
        }
    }
    Ok(())
}

/// EAGAIN: pages pinned or on their way; ENOMEM: no free huge page, or unmapped meanwhile; EBUSY,
/// EINVAL: a mapping that has changed. Only this piece is lost.
fn retryable(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::ENOMEM | libc::EBUSY | libc::EINVAL | libc::EINTR)
    )
}

fn collapse(pidfd: &OwnedFd, at: u64, length: u64) -> io::Result<()> {
    let vector =
        libc::iovec { iov_base: std::ptr::without_provenance_mut(at as usize), iov_len: length as usize };
    match collapse_each(pidfd, &[vector])? {
        bytes if bytes == length => Ok(()),
        // Only part was done. The next call will report why the rest failed.
        _ => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
    }
}

/// Asks for several ranges of a process; the bytes that were done.
fn collapse_each(pidfd: &OwnedFd, ranges: &[libc::iovec]) -> io::Result<u64> {
    // SAFETY: the slice is valid for the time of the call; the addresses in it are the other
    // process's and are never dereferenced here.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            ranges.as_ptr(),
            ranges.len(),
            MADV_COLLAPSE,
            0u32,
        )
    };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(done as u64) }
}

/// What a caller needs to whom the kernel refuses a repair with `EPERM` or `EACCES` (mm/madvise.c,
/// `process_madvise`).
pub fn repair_privilege() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "root of a user namespace may not: it needs CAP_SYS_NICE and CAP_SYS_PTRACE of the machine"
    } else {
        "run as root, or as its owner with CAP_SYS_NICE"
    }
}

/// The processes that this user may repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repairable {
    /// Those of every user.
    All,
    /// This user's own.
    Own,
}

/// Tries the call on a child with an empty list of ranges. This changes nothing, and succeeds where
/// the kernel knows call and advice and the caller may.
///
/// # Errors
/// Why [`repair`] cannot work here: `EPERM` without `CAP_SYS_NICE`.
pub fn probe_repair() -> io::Result<Repairable> {
    let (reader, writer) = io::pipe()?;
    // Of itself a process may always ask it (since Linux 6.13).
    let (pid, _) = model::fork_child(Some(reader.as_raw_fd()))?;
    let child = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    let tried = pidfd_open(child, PidfdFlags::empty())
        .map_err(io::Error::from)
        .and_then(|pidfd| collapse_each(&pidfd, &[]));
    // One byte releases the child.
    io::Write::write_all(&mut &writer, &[0])?;
    model::reap(pid)?;
    tried?;
    let looks_at_all = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::SYS_PTRACE));
    Ok(if looks_at_all { Repairable::All } else { Repairable::Own })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_the_kernel_merges_is_asked_for() {
        // Each mapping begins in the middle of a huge page and holds whole ones, all written.
        let of = |pages: u64, change: fn(&mut Mapping)| {
            let (start, end) = (HUGE * 100 - PAGE, HUGE * (100 + pages));
            let mut mapping = Mapping {
                range: start..end,
                is_private_writable: true,
                is_anonymous: true,
                anon: end - start,
                ..Mapping::default()
            };
            change(&mut mapping);
            mapping
        };
        let full = |_| Ok(Populated { present: 512, swapped: 0 });
        let plan = |mapping: Mapping, refuses| {
            Plan::of([&mapping], refuses, 0.5, full, |range| range.start).unwrap()
        };
        let all = plan(of(3, |_| {}), false);
        assert_eq!((all.ranges.len(), all.ranges[0].start, all.bytes()), (1, HUGE * 100, HUGE * 3));
        assert_eq!((all.present, all.excluded, all.unfit), (3 * 512, 0, 0));

        let none = |change, refuses| {
            let plan = plan(of(3, change), refuses);
            assert_eq!((plan.bytes(), plan.present), (0, 0), "{plan:?}");
            (plan.excluded / HUGE, plan.unfit / HUGE)
        };
        assert_eq!(none(|_| {}, true), (3, 0));
        assert_eq!(none(|mapping| mapping.is_excluded = true, false), (3, 0));
        for change in [
            (|mapping| mapping.is_anonymous = false) as fn(&mut Mapping),
            |mapping| mapping.is_private_writable = false,
            |mapping| mapping.is_special = true,
        ] {
            assert_eq!(none(change, false), (0, 3));
        }
        let small = plan(of(0, |_| {}), false);
        assert_eq!((small.bytes(), small.unfit), (0, PAGE));
        let huge = plan(of(3, |mapping| mapping.anon_huge = mapping.anon), false);
        assert_eq!((huge.bytes(), huge.huge_already), (0, 3 * HUGE + PAGE));
    }

    #[test]
    fn a_huge_page_is_asked_for_from_half_in_use() {
        let mapping = Mapping {
            range: 0..HUGE * 4,
            is_private_writable: true,
            is_anonymous: true,
            anon: HUGE,
            ..Mapping::default()
        };
        let used = |start| {
            let present = [255, 100, 0, 256][(start / HUGE) as usize];
            Ok(Populated { present, swapped: if start == HUGE { 156 } else { 0 } })
        };
        let mut skipped = Vec::new();
        let next = |range: Range<u64>| {
            skipped.push(range.start / HUGE..range.end / HUGE);
            range.start + PAGE
        };
        let plan = Plan::of([&mapping], false, 0.5, used, next).unwrap();
        assert_eq!(plan.ranges, [HUGE..HUGE * 2, HUGE * 3..HUGE * 4]);
        assert_eq!((plan.present, plan.swapped, plan.sparse), (356, 156, 255 * PAGE));
        assert_eq!(skipped, vec![3..4; 1], "what is used is looked at one by one");
    }

    #[test]
    fn the_next_page_in_use_is_found_behind_emptiness() {
        let size = 64 << 20;
        let mut memory = Vec::<u8>::with_capacity(size);
        let begin = (memory.as_mut_ptr().addr() as u64).next_multiple_of(HUGE);
        let used = 9 * HUGE + 5 * PAGE;
        let at = usize::try_from(used + begin).unwrap() - memory.as_ptr().addr();
        memory.spare_capacity_mut()[at].write(1);
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let range = begin + HUGE..begin + 12 * HUGE;
        // A machine may give huge pages unasked.
        let found = [begin + used, begin + 9 * HUGE];
        match Populated::next(&pagemap, range.clone()) {
            next if next == range.start => println!("skipped: Linux before 6.7"),
            next => assert!(found.contains(&next), "{next:x} {begin:x}"),
        }
        let behind = begin + 10 * HUGE..range.end;
        assert!([behind.start, behind.end].contains(&Populated::next(&pagemap, behind.clone())));
        let Populated { present, swapped } = Populated::at(&pagemap, begin + 9 * HUGE).unwrap();
        assert!(present + swapped > 0);
    }

    /// The huge pages that each call asks for. `cost` gives a page's time by the number of the page
    /// and of the call.
    fn calls(pages: u64, cost: impl Fn(u64, usize) -> Duration) -> Vec<(u64, Duration)> {
        let plan = [HUGE..HUGE * (pages / 2), HUGE * pages..HUGE * (pages + pages / 2)];
        let planned: u64 = plan.iter().map(|range| (range.end - range.start) / HUGE).sum();
        let options = RepairOptions::default();
        let mut report = RepairReport::default();
        let mut made: Vec<(u64, Duration)> = Vec::new();
        let mut at = Vec::new();
        let call = |start: u64, length: u64| {
            let (first, number) = (start / HUGE, made.len());
            at.extend(first..first + length / HUGE);
            let time = (first..first + length / HUGE).map(|page| cost(page, number)).sum();
            made.push((length / HUGE, time));
            (Ok(()), time)
        };
        collapse_all(&plan, &options, &mut report, &mut |_, _| true, call, |_| {}).unwrap();
        assert!(at.is_sorted() && at.len() as u64 == planned, "each page is asked for once");
        assert_eq!(report.calls, made.len() as u64);
        assert_eq!(Some(report.largest_call), made.iter().map(|call| call.0 * HUGE).max());
        made
    }

    /// A call asked for 512 MiB and took 456 ms instead of 50, because the calls before, for memory
    /// already huge, had cost nothing.
    #[test]
    fn calls_that_cost_nothing_do_not_make_the_next_one_long() {
        let free_then_slow =
            |page, _| if page < 2000 { Duration::from_nanos(10) } else { Duration::from_micros(1800) };
        let made = calls(4000, free_then_slow);
        assert!(made.iter().all(|call| call.1 <= Duration::from_millis(50)), "{made:?}");
    }

    #[test]
    fn calls_grow_from_one_page_and_stay_short_of_what_a_busy_machine_makes_too_long() {
        let sizes = |made: &[(u64, Duration)]| made.iter().map(|call| call.0).collect::<Vec<_>>();
        let quick = calls(400, |_, _| Duration::from_micros(400));
        assert_eq!(sizes(&quick)[..6], [1, 2, 4, 6, 6, 6]);
        // Load comes and goes.
        let loaded =
            calls(400, |_, number| Duration::from_micros(if (6..9).contains(&number) { 8000 } else { 400 }));
        assert_eq!(sizes(&loaded)[4..14], [6, 6, 6, 1, 1, 1, 2, 4, 6, 6]);
        // Nothing is shorter than one page.
        let slow = calls(40, |_, _| Duration::from_millis(70));
        assert!(sizes(&slow).iter().all(|&pages| pages == 1), "{slow:?}");
        // A longer aim allows more, and none allows less than a page.
        let most = [1000, 50, 3].map(|aim| Pace::new(Duration::from_millis(aim)).most);
        assert_eq!(most, [125, 6, 1]);
    }

    #[test]
    fn a_page_that_fails_is_the_only_one_lost() {
        let plan = [0..HUGE * 20, HUGE * 20..HUGE * 40];
        let options = RepairOptions::default();
        let mut report = RepairReport::default();
        let call = |start: u64, length: u64| {
            let bad = (start..start + length).contains(&(HUGE * 21));
            let outcome = if bad { Err(io::Error::from_raw_os_error(libc::EAGAIN)) } else { Ok(()) };
            (outcome, Duration::from_micros(400))
        };
        collapse_all(&plan, &options, &mut report, &mut |_, _| true, call, |_| {}).unwrap();
        assert_eq!((report.refused, report.collapsed), (HUGE, HUGE * 39));
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = repair(1 << 23, &RepairOptions::default(), |_, _| true).expect_err("no such process");
        assert!(error.to_string().contains("8388608"), "{error}");
        assert!(!error.is_missing_facility());
    }
}
