//! Lists the mappings before a clone: what the child will lack, and what it must not write. In the
//! window, so one listing at a time in a process.
#![expect(unsafe_code, reason = "advice that is taken back")]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use forkless_run::AbortKind;
use forkless_speculate::exclusions::{self, Places, Ranges};
use forkless_speculate::marks::{self, Part};
use forkless_sys::maps::{self, Mapping};
use forkless_sys::{Errno, Result, mm, process};

use crate::mappings::{advice, each_writable, have_flag, have_ring};
use crate::{loader, next, reserve, rt};
use forkless_speculate::retry::retry;

use super::{OrPlain, decide, room, shared_pages, site, state};

/// Memory the parent has and the child lacks.
pub(crate) fn absent() -> &'static Ranges {
    &state::get().absent
}

/// Writable shared mappings.
pub(crate) fn shared() -> &'static Ranges {
    &state::get().shared
}

/// Address of sixteen random bytes (`getauxval(3)`).
const AT_RANDOM: usize = 25;

/// Where the main thread's stack begins, and where its lowest mapping ends. 0: the listing has not
/// found it.
static STACK: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

/// Where the main thread's stack begins. 0: that is not known.
pub(crate) fn stack_start() -> usize {
    STACK.0.load(Relaxed)
}

/// The end of the mapping that begins there: the kernel measures RLIMIT_STACK from it.
pub(crate) fn stack_end() -> usize {
    STACK.1.load(Relaxed)
}

/// Bytes that the kernel copies when the child writes them, without asking: private memory that
/// the child does not lack.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Bytes that the child may write without a fetch.
pub(crate) fn left() -> usize {
    LEFT.load(Relaxed)
}

/// A mapping smaller than this costs more to mark, reserve and unmark than to copy.
const SMALLEST: usize = 128 << 10;

/// Where a fork is made.
#[derive(Clone, Copy)]
pub(crate) struct ForkFrame {
    /// The return address of the program's call.
    pub(crate) call_site: usize,
    /// The forking thread's stack pointer.
    pub(crate) sp: usize,
    /// Where the clone writes the child's id.
    pub(crate) tid_word: usize,
}

/// What a listing found.
#[derive(Clone, Copy)]
pub(crate) struct Listed {
    /// Bytes the child will lack.
    pub(crate) absent: usize,
    /// Mappings that were looked at.
    pub(crate) mappings: usize,
}

/// Lists the mappings into [`absent`] and [`shared`]. In the forking thread, or in a helper with
/// the forking thread's thread pointer. `beside_threads`: other threads run meanwhile. Refuses
/// where a limit of memory is near.
pub(crate) fn list(frame: &ForkFrame, beside_threads: bool) -> OrPlain<Listed> {
    let (absent, shared) = (absent(), shared());
    absent.clear();
    shared.clear();
    let (pins, outcome) = (&state::get().pins, shared_pages::get());
    pins.begin(rt::image(), frame.sp, rt::thread_pointer(), frame.tid_word);
    outcome.carried().for_each(|(start, end)| pins.add(start, end));
    site::each_resident(frame.call_site, outcome.trials(), |start, end| pins.add(start, end));
    let may_split = |start, end| may_split(start, end, beside_threads);

    let mut listed = Listed { absent: 0, mappings: 0 };
    let mut shared_sum = 0;
    let mut is_clear = true;
    let mut private = 0;
    STACK.0.store(0, Relaxed);
    // The kernel puts these bytes on the stack (fs/binfmt_elf.c, create_elf_tables).
    let on_stack = loader::auxiliary(AT_RANDOM).unwrap_or(0);
    // Adjacent mappings: the program may have split its stack.
    let (mut stretch, mut end) = ((0, 0), 0);
    each_writable(|m| {
        listed.mappings += 1;
        if m.start != end {
            stretch = (m.start, m.end);
        }
        end = m.end;
        if (m.start..m.end).contains(&on_stack) {
            STACK.0.store(stretch.0, Relaxed);
            STACK.1.store(stretch.1, Relaxed);
            if (m.start..m.end).contains(&frame.sp) {
                // The kernel extends no stack whose lowest page is only reserved in the child.
                pins.add(stretch.0, stretch.0 + 4096);
            }
        }
        if m.flags & maps::SHARED != 0 {
            if is_ours(m.start) {
                return true;
            }
            shared_sum = sum(shared_sum, &m);
            return shared.push(m.start, m.end, false);
        }
        private += takes(&m);
        if exclusions::is_candidate(&m) && m.end - m.start >= SMALLEST {
            match is_marked(&m, beside_threads, may_split) {
                // The program's own wish for its children.
                Some(true) => private -= takes(&m),
                Some(false) => {
                    listed.absent += exclusions::exclude(&m, pins, absent, SMALLEST, may_split);
                }
                // Left to the kernel, like a marked one. Beside threads our marks are taken back
                // from every mapping without a note, and this one may have the program's.
                None => is_clear = false,
            }
        }
        true
    })?;
    if beside_threads && !is_clear {
        return Err(AbortKind::Advice);
    }
    if !beside_threads {
        kernel_writes_nothing(shared_sum)?;
    }
    let left = private.saturating_sub(listed.absent);
    LEFT.store(left, Relaxed);
    if room::suffices(left) { Ok(listed) } else { Err(AbortKind::Budget) }
}

/// Bytes of a private mapping that are charged to the cgroup of a child that writes it. Pages of
/// the pool of huge pages are not.
fn takes(m: &Mapping) -> usize {
    if m.page_size > 4096 { 0 } else { m.end - m.start }
}

/// The [`sum`] of shared mappings among which no ring was found.
static NO_RING: AtomicUsize = AtomicUsize::new(0);

fn sum(before: usize, m: &Mapping) -> usize {
    (before ^ m.start ^ m.end.rotate_left(20) ^ (m.inode as usize).rotate_left(40))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Refuses where the kernel may write the program's memory by itself, and no other thread runs:
/// then what a child reads late counts as read at the fork. Names are looked at only when the
/// shared mappings have changed, since most programs have none.
fn kernel_writes_nothing(shared_sum: usize) -> OrPlain<()> {
    if shared_sum == NO_RING.load(Relaxed) {
        return Ok(());
    }
    if have_ring(shared().iter())? {
        return Err(AbortKind::Ring);
    }
    NO_RING.store(shared_sum, Relaxed);
    Ok(())
}

/// Whether a shared mapping is one that the child writes.
fn is_ours(start: usize) -> bool {
    start == shared_pages::address() || start == reserve::FETCH_PAGES.address()
}

/// Whether a mapping may be split around `start..end`. Beside other threads not one without an
/// `anon_vma`: the first thread that writes to it meanwhile gives each part one of its own. The
/// parts then never become one mapping again, and mremap refuses to move them (EFAULT). A mapping
/// with a page of its own has one, which all parts share.
fn may_split(start: usize, end: usize, beside_threads: bool) -> bool {
    let image = rt::image();
    !beside_threads || (start < image.end && image.start < end) || has_a_page(start, end)
}

/// Whether part of a mapping is in memory, and the mapping has a page of its own. Also where that
/// cannot be found out.
#[inline(never)]
fn has_a_page(start: usize, end: usize) -> bool {
    const PAGES: usize = 512;
    let mut there = [0u8; PAGES];
    let mut at = start;
    while at < end {
        let pages = (end - at).div_ceil(4096).min(PAGES);
        let Ok(()) = mm::mincore(at, &mut there[..pages]) else { return true };
        if let Some(page) = there[..pages].iter().position(|page| page & 1 != 0) {
            return owns(at + page * 4096);
        }
        at += pages * 4096;
    }
    false
}

/// Makes a page that is in memory the mapping's own. One that was only read is the kernel's page of
/// zeros, as are all that a child fetches where nothing was. Its content stays.
fn owns(page: usize) -> bool {
    // SAFETY: as a write that changes nothing.
    let made = unsafe { mm::madvise(page as *mut _, 4096, mm::MADV_POPULATE_WRITE) };
    // Before Linux 5.14 nobody makes one without a write.
    matches!(made, Ok(()) | Err(Errno::EINVAL))
}

/// Marks the absent ranges. The first one that refuses (VM_SPECIAL mappings do) stays with the
/// kernel, and all after it.
pub(crate) fn mark() {
    let mut n = 0;
    for (start, end) in absent().iter() {
        // SAFETY: affects only what a child gets, and the child knows how to fetch it.
        if unsafe { mm::madvise(start as *mut _, end - start, mm::MADV_DONTFORK) }.is_err() {
            // Where another thread has unmapped a part of the range, the rest is marked all the
            // same.
            clear(start, end);
            break;
        }
        n += 1;
    }
    let refused: usize = absent().iter().skip(n).map(|(start, end)| end - start).sum();
    LEFT.fetch_add(refused, Relaxed);
    absent().truncate(n);
}

fn clear(start: usize, end: usize) {
    // SAFETY: takes back what `mark` did; mappings with the program's own mark are never among
    // them.
    let _ = retry(|| unsafe { mm::madvise(start as *mut _, end - start, mm::MADV_DOFORK) });
}

/// Takes the marks back.
pub(crate) fn unmark(beside_threads: bool) {
    absent().iter().for_each(|(start, end)| clear(start, end));
    if beside_threads {
        // Moves by libc wait. A mapping that another thread moves downwards by an instruction,
        // while the list is read upwards, is missed. So the list is read again until all mappings
        // lie where they lay before. Threads that never rest are given up on after some looks.
        const LOOKS: usize = 8;
        let mut before = None;
        for _ in 0..LOOKS {
            let now = Some(each_candidate(clear));
            if now == before {
                break;
            }
            before = now;
        }
    }
}

/// Calls `each` for every mapping that could carry our mark now, whatever became of the [`absent`]
/// ones. Another thread's mremap moves a mapping with its flags, and the next plain fork's child
/// would lack a mapping whose mark was left behind. Returns a number that tells where the mappings
/// lay.
fn each_candidate(mut each: impl FnMut(usize, usize)) -> usize {
    let mut places = Places::default();
    let _ = each_writable(|m| {
        places.add(&m);
        if m.flags & maps::SHARED == 0 && m.inode == 0 && !advice::is_marked(m.start, m.end) {
            each(m.start, m.end);
        }
        true
    });
    places.number()
}

/// Whether the program has marked a private anonymous mapping of three pages and more. `None`: that
/// cannot be told. `may_split`: whether it may be two mappings for a moment. With signals blocked.
///
/// No note is made of a mapping that cannot be told: another thread may have unmapped it. The note
/// would cover whatever comes there, and our marks would stay on it. Sealed memory stays where it
/// is, and counts as marked beside threads.
fn is_marked(
    m: &Mapping,
    beside_threads: bool,
    may_split: impl FnOnce(usize, usize) -> bool,
) -> Option<bool> {
    let seen = &state::get().seen;
    if advice::is_marked(m.start, m.end) {
        return Some(true);
    }
    if seen.has(m) && !advice::is_somewhere() && (!advice::any() || libc_has_not_moved(m)) {
        return Some(false);
    }
    if !may_split(m.start, marks::beginning(m)) {
        return Some(false);
    }
    let below = Below { start: m.start, border: marks::border(m), end: m.end };
    let is_marked = match marks::look(&below) {
        None if beside_threads && below.is_split() == Err(Errno::EPERM) => true,
        told => told?,
    };
    if is_marked {
        // Our marks are taken back everywhere else.
        advice::found(m.start, m.end);
    } else {
        seen.add(m);
    }
    Some(is_marked)
}

/// Whether no mark can have come to a mapping by an mremap of glibc's own.
fn libc_has_not_moved(m: &Mapping) -> bool {
    if !next::is_glibc() || !decide::is_unfiltered() || advice::touches_in_window(m.start, m.end) {
        return false;
    }
    // Reading would map a page that is not there. A later look would take it for one of the
    // program's.
    let mut there = [0];
    if mm::mincore(m.start, &mut there).is_err() || there[0] & 1 == 0 {
        return false;
    }
    // Another thread may unmap it meanwhile.
    let mut word = [0; 8];
    if mm::read(process::getpid(), m.start + 8, &mut word) != Ok(word.len()) {
        return false;
    }
    !marks::may_have_moved(usize::from_ne_bytes(word))
}

/// The part of a mapping below a border inside it.
struct Below {
    start: usize,
    border: usize,
    /// The mapping's end.
    end: usize,
}

impl Part for Below {
    fn advise(&self, advice: u32) -> Result<()> {
        // SAFETY: says what children get, and none is made before it is taken back.
        unsafe { mm::madvise(self.start as *mut _, self.border - self.start, advice) }
    }

    fn is_split(&self) -> Result<bool> {
        mm::is_split(self.border - 4096, 2 * 4096)
    }

    fn has_flag(&self, letters: [u8; 2]) -> Option<bool> {
        have_flag(self.border, self.end, letters)
    }
}
