//! Bringing absent memory from the parent, a cluster at a time (`forkless_speculate::fetch`).
#![expect(unsafe_code, reason = "maps memory at addresses that were reserved")]

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use forkless_run::AbortKind;
use forkless_speculate::fetch::{Fetch, Progress, is_within_budget};
use forkless_speculate::limit;
use forkless_sys::{fd, mm};

use crate::small_file;

use super::super::{exclusions, memory_source, shared_pages, state};
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
    copy(start, end, is_executable);
    true
}

fn keep_to_budget(more: u64) {
    static ROOM: AtomicU64 = AtomicU64::new(0);
    let pages = shared_pages::get().pages.load(Relaxed) + more;
    let absent = || exclusions::absent().iter().map(|(start, end)| end - start).sum();
    let known_room = || {
        if ROOM.load(Relaxed) == 0 {
            // 0 stands for "not asked yet".
            ROOM.store(room().max(1), Relaxed);
        }
        ROOM.load(Relaxed)
    };
    if !is_within_budget(pages, absent, known_room) {
        abort(AbortKind::Budget);
    }
}

/// Out of line, for its text would be part of every fetch's frame.
#[cold]
#[inline(never)]
fn room() -> u64 {
    limit::room(|path, text| small_file::read(path.into(), text))
}

fn copy(start: usize, end: usize, exec: bool) {
    let prot = mm::PROT_READ | mm::PROT_WRITE | if exec { mm::PROT_EXEC } else { 0 };
    // SAFETY: the range is reserved (PROT_NONE) for exactly this and holds nothing.
    if unsafe { mm::map_anonymous_at(start, end - start, prot, mm::MAP_PRIVATE | mm::MAP_FIXED) }.is_err() {
        abort(AbortKind::Setup);
    }
    let mut at = start;
    while at < end {
        match read(at, end - at) {
            // Unmapped by another thread of the parent since.
            0 => abort(AbortKind::Fault),
            n => at += n,
        }
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
