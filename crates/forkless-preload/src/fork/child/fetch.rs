//! Bringing absent memory from the parent, a cluster at a time (`forkless_speculate::fetch`).
#![expect(unsafe_code, reason = "maps memory at addresses that were reserved")]

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

use forkless_run::AbortKind;
use forkless_speculate::fetch::{Fetch, Progress, Room, Taken, is_within_budget};
use forkless_sys::{fd, mm};

use super::super::{exclusions, memory_source, room, shared_pages, state};
use super::abort;

/// Descriptor of the parent's memory; -1: a process serves it.
pub(crate) static SOURCE: AtomicI32 = AtomicI32::new(-1);

static PROGRESS: Progress = Progress::new();

/// Makes the cluster around `addr` present. `false`: the parent has nothing there that the child
/// lacks.
pub(crate) fn fetch(addr: usize) -> bool {
    let (start, end, is_executable) = match state::get().fetched.fetch(&PROGRESS, exclusions::absent(), addr)
    {
        Fetch::Nothing => return false,
        Fetch::TooMuch => abort(AbortKind::Budget),
        Fetch::Range { start, end, is_executable } => (start, end, is_executable),
    };
    keep_to_budget((end - start) as u64 / 4096);
    // Noted first: where the parent has nothing left, the next child is to have it nevertheless.
    shared_pages::get().fetched(start, end);
    copy(start, end, is_executable, addr & !4095);
    true
}

fn keep_to_budget(more: u64) {
    if !is_within_budget_with(more, 0) {
        abort(AbortKind::Budget);
    }
}

/// Pages that the child has mapped by its own calls, and others that the kernel takes for it.
static NEW: AtomicU64 = AtomicU64::new(0);

/// Whether the child may map so many bytes of new memory; they count from then on.
pub(crate) fn may_take(bytes: usize) -> bool {
    NEW.store(NEW.load(Relaxed) + bytes.div_ceil(4096) as u64, Relaxed);
    is_within_budget_with(0, 0)
}

/// The same, without counting them: the kernel gives them back when the call fails.
pub(crate) fn has_room(bytes: usize) -> bool {
    is_within_budget_with(0, bytes.div_ceil(4096) as u64)
}

fn is_within_budget_with(more: u64, more_new: u64) -> bool {
    static ROOM: Room = Room::new();
    let fetched = shared_pages::get().pages.load(Relaxed) + more;
    let left = exclusions::left() as u64 / 4096;
    let taken = Taken { left, fetched, new: NEW.load(Relaxed) + more_new };
    let absent = || exclusions::absent().iter().map(|(start, end)| end - start).sum();
    let ask = || if VIEW_CHANGED.load(Relaxed) { None } else { room::ask(u64::MAX) };
    is_within_budget(taken, absent, |pages| ROOM.known(pages, room::at_fork(), ask))
}

/// The child has changed its root, its ids or its limits.
static VIEW_CHANGED: AtomicBool = AtomicBool::new(false);

/// The child is about to change its root, its ids or its limits. From here on no file is opened to
/// find how much memory is left: the limits of the parent's cgroups may not be found there, and the
/// files of a new root may be another user's.
pub(crate) fn note_view() {
    VIEW_CHANGED.store(true, Relaxed);
}

/// Beside fetched pages there is one that the parent lacks, or may not read: a guard of its own
/// (`MADV_GUARD_INSTALL`, as on the stacks of glibc 2.42), or a page that another thread has
/// unmapped since.
static HAS_HOLES: AtomicBool = AtomicBool::new(false);

/// Whether not all that was fetched is there.
pub(crate) fn has_holes() -> bool {
    HAS_HOLES.load(Relaxed)
}

/// `wanted`: the page for which all is fetched.
fn copy(start: usize, end: usize, exec: bool, wanted: usize) {
    let prot = mm::PROT_READ | mm::PROT_WRITE | if exec { mm::PROT_EXEC } else { 0 };
    // SAFETY: the range is reserved (PROT_NONE) for exactly this and holds nothing.
    if unsafe { mm::map_anonymous_at(start, end - start, prot, mm::MAP_PRIVATE | mm::MAP_FIXED) }.is_err() {
        abort(AbortKind::Setup);
    }
    let mut at = start;
    while at < end {
        match read(at, end - at) {
            0 => {
                leave_out(at & !4095, wanted);
                at = (at & !4095) + 4096;
            }
            n => at += n,
        }
    }
}

/// Whoever touches the page undoes the speculation: nothing more is fetched for it.
fn leave_out(page: usize, wanted: usize) {
    HAS_HOLES.store(true, Relaxed);
    // SAFETY: nobody else knows of the memory yet.
    if page == wanted || unsafe { mm::mprotect(page as *mut _, 4096, mm::PROT_NONE) }.is_err() {
        abort(AbortKind::Fault);
    }
}

/// Reads what the parent has at `at` to the same place, which was just mapped; returns how much.
fn read(at: usize, len: usize) -> usize {
    let file = SOURCE.load(Relaxed);
    if file < 0 {
        return memory_source::ask(at, len);
    }
    // SAFETY: nobody else knows of the memory yet.
    unsafe { fd::pread_raw(file, at as *mut u8, len, at as u64) }.unwrap_or(0)
}
