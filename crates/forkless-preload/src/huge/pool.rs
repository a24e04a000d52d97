//! `--huge-pages=hugetlb` at a fork: memory moves into the system's pool of huge pages where it can
//! stay there, and out again where it cannot.
//!
//! malloc's memory comes from the pool by a setting of malloc's. Programs that map their memory
//! piece by piece never ask malloc, so their memory is moved before a fork.
//!
//! A child shares its parent's huge pages until one of them writes. Then a page is needed. If the
//! pool has none, the kernel takes the page from the child, which dies of SIGBUS (mm/hugetlb.c,
//! `hugetlb_wp`). So a process forks with pages of the pool only while as many are free as it
//! holds. Else its memory goes back to ordinary pages first.
//!
//! Memory is replaced by a copy of itself, so no thread may write meanwhile: only processes with
//! one thread, with signals blocked. A process that starts a thread takes everything out first.
//! What the kernel refuses on a part of a huge page (munmap, mprotect, madvise) is asked for again
//! after that page has been taken out.

use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::maps::{self, Mapping};
use forkless_sys::signal;
use forkless_sys::{CPtr, fd, mm, process};

use crate::complaint;
use crate::lazy_mapping::LazyMapping;
use crate::mappings::{advice, each_writable, unmap_own};
use crate::reserve;
use crate::rt;
use crate::signals;
use crate::small_file;
use crate::speculation::speculating;
use forkless_speculate::retry::retry;
use forkless_speculate::text::decimal;

const HUGE: usize = 2 << 20;

static POOL_WANTED: AtomicBool = AtomicBool::new(false);
static WARN: AtomicBool = AtomicBool::new(false);

/// Device and inode of standard error when the library was loaded. Later the program may have
/// closed it, and have a file of its own by that number.
static STDERR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn standard_error() -> Option<(u64, u64)> {
    fd::identity(2, CPtr::from(c""), fd::AT_EMPTY_PATH).ok()
}

/// Memory of this process may lie in the pool by our doing. Read by the interposers.
pub(crate) static MOVED: AtomicBool = AtomicBool::new(false);

pub(crate) fn configure(wanted: bool, warn: bool) {
    POOL_WANTED.store(wanted && RANGES.map(), Relaxed);
    if warn && let Some((device, inode)) = standard_error() {
        WARN.store(true, Relaxed);
        STDERR[0].store(device, Relaxed);
        STDERR[1].store(inode, Relaxed);
    }
}

/// Ordinary code, before libc's fork takes its locks. `grown`: there may be new memory to move.
pub(crate) fn before_fork(grown: bool) {
    if !POOL_WANTED.load(Relaxed) {
        return;
    }
    let alone = process::thread_count() == Some(1);
    let held = held();
    if held > 0 && free() < held {
        warn(if alone { SMALLER } else { AT_RISK });
        take_out(0, usize::MAX);
        if alone {
            RANGES.remove(0, usize::MAX);
        }
    } else if grown && alone {
        move_in(held);
    }
}

/// The program is about to unmap `addr..addr + len`, which the kernel does for whole huge pages
/// only.
pub(crate) fn before_unmap(addr: usize, len: usize) {
    if !MOVED.load(Acquire) || speculating() || len == 0 {
        return;
    }
    let end = addr.saturating_add(len);
    for edge in [addr, end] {
        if !edge.is_multiple_of(HUGE) {
            take_back(edge, edge + 1);
        }
    }
    // Memory that comes to lie there later is not ours.
    RANGES.remove(addr, end);
}

/// The program is about to do something else to `addr..addr + len`.
pub(crate) fn before_use(addr: usize, len: usize) {
    if MOVED.load(Acquire) && !speculating() && len > 0 {
        take_back(addr, addr.saturating_add(len));
    }
}

/// The program is about to start a thread, which could write while memory is replaced.
pub(crate) fn before_thread() {
    if MOVED.load(Acquire) && !speculating() {
        take_out(0, usize::MAX);
        RANGES.remove(0, usize::MAX);
        MOVED.store(false, Release);
    }
}

/// The program is about to forbid itself system calls, and with them those that take memory out of
/// the pool. So its forks find none there.
pub(crate) fn before_sandbox() {
    if !speculating() {
        before_thread();
        POOL_WANTED.store(false, Relaxed);
    }
}

/// Takes out the huge pages with any byte of `low..high`, if the library put them there. APR gives
/// memory back in ten thousand pieces, so the usual answer, no, must not take a system call.
fn take_back(low: usize, high: usize) {
    let (low, high) = (low & !(HUGE - 1), high.checked_next_multiple_of(HUGE).unwrap_or(usize::MAX));
    if RANGES.overlap(low, high) {
        take_out(low, high);
        RANGES.remove(low, high);
    }
}

/// Ranges that were moved into the pool. Changed by processes with one thread only.
struct Ranges {
    len: AtomicUsize,
    start: [AtomicUsize; MOST],
    end: [AtomicUsize; MOST],
}

/// Ranges kept track of; memory that would take more is not moved, or taken out again.
const MOST: usize = 512;

/// Mapped where the pool is wanted.
#[expect(unsafe_code, reason = "all of it is valid when zeroed")]
// SAFETY: made of atomics.
static RANGES: LazyMapping<Ranges> = unsafe { LazyMapping::new(reserve::POOLED) };

impl Ranges {
    fn get(&self, i: usize) -> (usize, usize) {
        (self.start[i].load(Relaxed), self.end[i].load(Relaxed))
    }

    fn set(&self, i: usize, (start, end): (usize, usize)) {
        self.start[i].store(start, Relaxed);
        self.end[i].store(end, Relaxed);
    }

    fn overlap(&self, low: usize, high: usize) -> bool {
        (0..self.len.load(Relaxed)).map(|i| self.get(i)).any(|(start, end)| start < high && low < end)
    }

    fn is_full(&self) -> bool {
        self.len.load(Relaxed) == MOST
    }

    fn add(&self, start: usize, end: usize) {
        let n = self.len.load(Relaxed);
        self.set(n, (start, end));
        self.len.store(n + 1, Relaxed);
    }

    /// Forgets `low..high`.
    fn remove(&self, low: usize, high: usize) {
        let mut i = 0;
        while i < self.len.load(Relaxed) {
            let (start, end) = self.get(i);
            if start >= high || low >= end {
                i += 1;
                continue;
            }
            let last = self.len.load(Relaxed) - 1;
            self.set(i, self.get(last));
            self.len.store(last, Relaxed);
            for (start, end) in [(start, low), (high, end)] {
                if start < end && !self.is_full() {
                    self.add(start, end);
                } else if start < end {
                    take_out(start, end);
                }
            }
        }
    }
}

fn in_pool(m: &Mapping) -> bool {
    m.page_size == HUGE as u64 && m.flags & maps::SHARED == 0
}

/// Huge pages of this process's private memory.
fn held() -> usize {
    let mut bytes = 0;
    let _ = each_writable(|m| {
        if in_pool(&m) {
            bytes += m.end - m.start;
        }
        true
    });
    bytes / HUGE
}

/// Huge pages that nobody has been promised, with those that may still be added.
fn free() -> usize {
    let number = |path| read_number(path).unwrap_or(0);
    macro_rules! pool {
        ($name:literal) => {
            number(CPtr::from(c_path!($name)))
        };
    }
    let here = pool!("free_hugepages").saturating_sub(pool!("resv_hugepages"));
    here + pool!("nr_overcommit_hugepages").saturating_sub(pool!("surplus_hugepages"))
}

macro_rules! c_path {
    ($name:literal) => {
        match core::ffi::CStr::from_bytes_with_nul(
            concat!("/sys/kernel/mm/hugepages/hugepages-2048kB/", $name, "\0").as_bytes(),
        ) {
            Ok(path) => path,
            Err(_) => c"",
        }
    };
}
use c_path;

fn read_number(path: CPtr<'_>) -> Option<usize> {
    let mut text = [0u8; 32];
    Some(decimal(small_file::read(path, &mut text)?.trim_ascii_end())? as usize)
}

const SMALLER: &[u8] = b"forkless: the pool of huge pages is too small for this fork (vm.nr_hugepages, \
    vm.nr_overcommit_hugepages): going on with smaller pages\n";
const UNMOVABLE: &[u8] = b"forkless: this kernel cannot move memory into the pool of huge pages (Linux 5.16 can): what malloc did not give \
    stays in smaller pages\n";
const AT_RISK: &[u8] = b"forkless: the pool of huge pages is too small for this fork, and memory of a process with threads cannot \
    be moved out of it: the child may be killed by SIGBUS (raise vm.nr_hugepages or vm.nr_overcommit_hugepages)\n";

/// Whether the option is there.
pub(super) fn wanted() -> bool {
    POOL_WANTED.load(Relaxed)
}

/// Says it, and nothing more after it.
pub(super) fn warn(line: &[u8]) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let before = || (STDERR[0].load(Relaxed), STDERR[1].load(Relaxed));
    if WARN.load(Relaxed) && !WARNED.swap(true, Relaxed) && standard_error() == Some(before()) {
        complaint::say(line);
    }
}

/// Mappings handled in one go: listing them while they change would skip some.
const BATCH: usize = 64;

/// Memory of the pool in `low..high` becomes ordinary memory.
fn take_out(low: usize, high: usize) {
    // Threads that were started past us: what the program asks for is refused by the kernel then,
    // but nothing is lost.
    if process::thread_count() != Some(1) {
        return;
    }
    let mut from = low;
    loop {
        let (found, n) = gather(from, |m| in_pool(m).then(|| (m.start.max(low), m.end.min(high))));
        for &(start, end) in &found[..n] {
            replace(start, end, false);
            from = from.max(end);
        }
        if n < BATCH {
            return;
        }
    }
}

/// Ordinary memory that is at least half there moves into the pool, as long as as much stays free
/// for children as is held.
fn move_in(held: usize) {
    let mut held = held;
    let mut free = free();
    let mut from = 0;
    let (mut full, mut unmovable) = (false, false);
    loop {
        let (found, n) =
            gather(from, |m| candidate(m).then(|| (m.start.next_multiple_of(HUGE), m.end & !(HUGE - 1))));
        for &(start, end) in &found[..n] {
            from = end;
            super::dense(start, end, |start, end| {
                let pages = (end - start) / HUGE;
                full = full || free < pages || free - pages < held + pages;
                unmovable = unmovable || !movable();
                if unmovable || full || RANGES.is_full() {
                    if !super::background::has_waited() {
                        super::advise(start, end);
                    }
                } else if replace(start, end, true) {
                    RANGES.add(start, end);
                    free -= pages;
                    held += pages;
                    MOVED.store(true, Release);
                }
            });
        }
        if n < BATCH {
            break;
        }
    }
    if unmovable {
        warn(UNMOVABLE);
    } else if full {
        warn(SMALLER);
    }
}

/// Whether the kernel moves memory of the pool. Before Linux 5.16 mremap refuses to, and only after
/// it has unmapped what lies at the new place (mm/mremap.c, `mremap_to`): the program's memory
/// would be gone.
fn movable() -> bool {
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 2;
    if ANSWER.load(Relaxed) == UNKNOWN {
        ANSWER.store(try_move().into(), Relaxed);
    }
    ANSWER.load(Relaxed) == 1
}

/// Moves a huge page that is not there, and so takes none of the pool, onto memory of our own.
#[expect(unsafe_code, reason = "memory is moved")]
fn try_move() -> bool {
    let flags = mm::MAP_PRIVATE | mm::MAP_NORESERVE;
    let Ok(area) = mm::map_anonymous(2 * HUGE, mm::PROT_NONE, flags) else { return false };
    let to = (area as usize).next_multiple_of(HUGE);
    let moved = mm::map_anonymous(HUGE, mm::PROT_NONE, flags | mm::MAP_HUGETLB | mm::MAP_HUGE_2MB).is_ok_and(
        |page| {
            // SAFETY: both are ours, and nothing refers to either.
            let moved = unsafe { mm::move_onto(page, HUGE, to) }.is_ok();
            if !moved {
                unmap_own(page, HUGE);
            }
            moved
        },
    );
    // The kernel unmaps part of a huge page only with the whole of it: it goes first.
    unmap_own(to as *mut _, HUGE);
    unmap_own(area, to - area as usize);
    unmap_own((to + HUGE) as *mut _, area as usize + 2 * HUGE - (to + HUGE));
    moved
}

/// Readable and writable anonymous memory of the program's that nothing else keeps track of: not
/// what a fork treats in its own way, not the stack we run on, not the thread's own block, not the
/// library.
fn candidate(m: &Mapping) -> bool {
    const NEEDED: u64 = maps::READABLE | maps::WRITABLE;
    let has = |address: usize| m.start <= address && address < m.end;
    let image = rt::image();
    let here = 0u8;
    m.flags & (NEEDED | maps::EXECUTABLE | maps::SHARED) == NEEDED
        && m.inode == 0
        && m.page_size == 4096
        && !has(&raw const here as usize)
        && !has(rt::thread_pointer())
        && (m.end <= image.start || image.end <= m.start)
        && !advice::touches(m.start, m.end)
}

/// The first [`BATCH`] ranges that `pick` makes of mappings from an address on.
fn gather(
    from: usize,
    pick: impl Fn(&Mapping) -> Option<(usize, usize)>,
) -> ([(usize, usize); BATCH], usize) {
    let mut found = [(0, 0); BATCH];
    let mut n = 0;
    let _ = each_writable(|m| {
        if m.end > from
            && let Some((start, end)) = pick(&m)
            && start < end
        {
            found[n] = (start.max(from), end);
            n += 1;
        }
        n < BATCH
    });
    (found, n)
}

/// Puts a copy of a range, in pages of the other kind, in its place. `false`: the kernel has no
/// such memory, and all is as it was.
#[expect(unsafe_code, reason = "memory is replaced by a copy of itself")]
fn replace(start: usize, end: usize, huge: bool) -> bool {
    let len = end - start;
    let (flags, slack) = if huge { (mm::MAP_HUGETLB | mm::MAP_HUGE_2MB, 0) } else { (0, HUGE) };
    // Without MAP_NORESERVE: what cannot be had is refused here, and not by a SIGBUS later.
    let Ok(area) = mm::map_anonymous(len + slack, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE | flags)
    else {
        return false;
    };
    let area = area as usize;
    let copy = area.next_multiple_of(HUGE);
    if !huge {
        // Smaller pages need not be the smallest.
        // SAFETY: fresh memory of our own.
        let _ = unsafe { mm::madvise(copy as *mut _, len, mm::MADV_HUGEPAGE) };
    }
    let Ok(before) = signals::block_others() else {
        unmap_own(area as *mut _, len + slack);
        return false;
    };
    for offset in (0..len).step_by(HUGE) {
        // A huge page that is not there yet stays so: it reads as zero, as the copy does. Ordinary
        // memory that looks absent may be swapped out.
        let mut there = [1u8; 1];
        if huge || mm::mincore(start + offset, &mut there).is_err() || there[0] & 1 != 0 {
            // SAFETY: both ranges are mapped and one does not reach into the other; no thread and
            // no handler runs besides us.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    (start + offset) as *const u8,
                    (copy + offset) as *mut u8,
                    HUGE,
                );
            }
        }
    }
    // SAFETY: the range gets exactly what it had; the copy's own address is forgotten.
    let moved = unsafe { mm::move_onto(copy as *mut _, len, start) }.is_ok();
    let _ = retry(|| signal::set_mask(before));
    if !moved {
        unmap_own(area as *mut _, len + slack);
        return false;
    }
    if copy > area {
        unmap_own(area as *mut _, copy - area);
    }
    if area + slack > copy {
        unmap_own((copy + len) as *mut _, area + slack - copy);
    }
    true
}
