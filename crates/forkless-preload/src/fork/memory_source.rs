//! Where a speculative child reads its parent's memory, and the process or thread that attends to
//! the child.
//!
//! A process with one thread opens `/proc/self/mem` for its child. The descriptor binds to the
//! parent's memory (fs/proc/base.c, `mem_open`).
//!
//! If it has changed its user it is not dumpable (`commit_creds`, kernel/cred.c), and from then on
//! the file belongs to root. A descriptor from before is not kept: children made past `fork` would
//! inherit it, and read their parent's memory as another user. So a process that shares such a
//! parent's memory serves the child. It copies what the child asks for into pages that parent,
//! memory server and child share. A process may always read its own memory (kernel/fork.c,
//! `mm_access`).
//!
//! Beside other threads, no descriptor is opened in the program's table, and marks are to be there
//! for the clone alone. So an [`Attendant`], a thread of the library's own, lists the memory, marks
//! it, takes the marks back as soon as the child runs, and then serves the child.
//!
//! The shared pages are mapped for one fork, and only its child inherits them. They must not be
//! kept, for a child made past `fork` at the moment of the clone inherits them, too (decision 40).
#![expect(unsafe_code, reason = "a process and a thread that share memory, and the pages they use")]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_run::AbortKind;
use forkless_sys::{Errno, clone, fd, futex, mm, process, sched, time};
use linux_raw_sys::general as k;

use crate::proc;
use crate::reserve;
use crate::signals::SIGKILL;
use crate::window;
use forkless_speculate::retry::retry;

use super::exclusions::{self, ForkFrame, Listed};
use super::helper::{self, Helper};
use super::slot::ThreadSlot;
use super::{OrPlain, decide, shared_pages};

/// What a child of a process with one thread reads from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A descriptor of the parent's memory.
    File(i32),
    /// A process in the parent's memory, by its number.
    MemoryServer(i32),
}

const PATH: &CStr = c"self/mem";

impl Source {
    /// Before the clone, with all signals blocked.
    pub(super) fn open(slot: &'static ThreadSlot) -> OrPlain<Source> {
        match proc::open(PATH) {
            Ok(low) => move_up(low).map(Source::File),
            Err(Errno::EMFILE | Errno::ENFILE) => Err(AbortKind::Descriptors),
            // A filter may kill for a call that it does not know.
            Err(Errno::EACCES | Errno::EPERM) if decide::is_unfiltered() => start_memory_server(slot),
            Err(_) => Err(AbortKind::NoProc),
        }
    }

    /// In the parent, when the child has left.
    pub(super) fn close(self) {
        match self {
            Source::File(descriptor) => {
                let _ = fd::close(descriptor);
            }
            Source::MemoryServer(pid) => {
                fetch_pages().tell(&fetch_pages().leave, 1);
                // Its stack is needed again. And the next fork asks whether another process has
                // this memory.
                let _ = retry(|| process::wait4(pid, process::WALL));
                unmap_fetch_pages();
            }
        }
    }

    /// The number of its descriptor; -1: none.
    pub(super) fn descriptor(self) -> i32 {
        match self {
            Source::File(descriptor) => descriptor,
            Source::MemoryServer(_) => NO_DESCRIPTOR,
        }
    }
}

/// The child asks ([`ask`]).
pub(super) const NO_DESCRIPTOR: i32 = -1;

/// Moves the descriptor up, out of the way of the lowest free numbers that the child will get.
fn move_up(low: i32) -> OrPlain<i32> {
    // 255 is bash's own. A table of 256 is the kernel's second size, so most programs' tables need
    // not grow again.
    const HIGH: i32 = 240;
    const MARGIN: i32 = 64;
    let wanted = HIGH.max(low + MARGIN);
    let mut high = fd::dup_cloexec(low, wanted);
    match high {
        Ok(got) if got != wanted => {
            // In the midst of the program's own descriptors. Get clear of them.
            let _ = fd::close(got);
            high = fd::dup_cloexec(low, got + MARGIN);
        }
        // Above the program's limit. Then just below the limit.
        Err(Errno::EINVAL) => {
            let limit = sched::getrlimit(k::RLIMIT_NOFILE).map_or(0, |l| l.soft.min(i32::MAX as u64) as i32);
            high = fd::dup_cloexec(low, (limit - 4).max(low + 1));
        }
        _ => {}
    }
    let _ = fd::close(low);
    high.map_err(|_| AbortKind::Descriptors)
}

/// The pages by which a child fetches: a memory server or attendant shares them with its parent and
/// the child.
#[repr(C)]
struct FetchPages {
    /// Goes up with each word below that is told to the memory server or attendant.
    bell: AtomicU32,
    /// 1: the clone is made.
    runs: AtomicU32,
    /// 1: the child has left.
    leave: AtomicU32,
    /// Goes up with each question.
    asked: AtomicU32,
    /// The question that was answered last.
    answered: AtomicU32,
    address: AtomicUsize,
    len: AtomicUsize,
    /// Bytes in `data`. 0: the parent has none there.
    copied: AtomicUsize,
    /// The memory server's parent.
    parent: AtomicU32,
    data: UnsafeCell<[u8; DATA]>,
}

/// A cluster of a child's (`fetch::CLUSTER`).
const DATA: usize = 64 << 10;
const _: () = assert!(size_of::<FetchPages>() <= reserve::FETCH_PAGES.len(), "room for the pages of fetches");

static FETCH_PAGES: AtomicPtr<FetchPages> = AtomicPtr::new(null_mut());

fn fetch_pages() -> &'static FetchPages {
    // SAFETY: mapped by `map_fetch_pages`, unmapped when memory server and child are gone; zeroed
    // memory is valid.
    unsafe { &*FETCH_PAGES.load(Relaxed) }
}

fn map_fetch_pages() -> OrPlain<*mut c_void> {
    let Ok(at) = reserve::FETCH_PAGES.replace(mm::PROT_READ | mm::PROT_WRITE, mm::MAP_SHARED) else {
        return Err(AbortKind::Setup);
    };
    if advise_fetch_pages(mm::MADV_DONTFORK).is_err() {
        let _ = reserve::FETCH_PAGES.let_go();
        return Err(AbortKind::Setup);
    }
    FETCH_PAGES.store(at.cast(), Relaxed);
    Ok(at)
}

/// What the process that is made next gets of it.
fn advise_fetch_pages(advice: u32) -> forkless_sys::Result<()> {
    let area = reserve::FETCH_PAGES;
    // SAFETY: says what a child gets, of memory of our own.
    unsafe { mm::madvise(area.address() as *mut c_void, area.len(), advice) }
}

fn unmap_fetch_pages() {
    FETCH_PAGES.store(null_mut(), Relaxed);
    let _ = reserve::FETCH_PAGES.let_go();
}

/// A wake that is refused must not leave anybody asleep. Where all are refused, nobody sleeps.
fn wake(word: &AtomicU32) {
    let _ = retry(|| futex::wake(word));
}

impl FetchPages {
    fn tell(&self, word: &AtomicU32, value: u32) {
        word.store(value, Relaxed);
        self.bell.fetch_add(1, Release);
        wake(&self.bell);
    }

    /// Serves until the child has left. `read` copies memory of the parent's, and tells how many
    /// bytes. `runs` is called once the child runs.
    fn serve(&self, mut read: impl FnMut(usize, &mut [u8]) -> usize, mut runs: impl FnMut()) {
        let (mut done, mut has_run) = (0, false);
        loop {
            let bell = self.bell.load(Acquire);
            let asked = self.asked.load(Relaxed);
            if self.leave.load(Relaxed) != 0 {
                return;
            } else if !has_run && self.runs.load(Relaxed) != 0 {
                has_run = true;
                runs();
            } else if asked != done {
                let len = self.len.load(Relaxed).min(DATA);
                // SAFETY: the child that asked waits for the answer, and nobody else uses the
                // bytes.
                let to = unsafe { core::slice::from_raw_parts_mut(self.data.get().cast(), len) };
                self.copied.store(read(self.address.load(Relaxed), to), Relaxed);
                done = asked;
                self.answered.store(asked, Release);
                wake(&self.answered);
            } else {
                let _ = futex::wait(&self.bell, bell);
            }
        }
    }
}

/// Starts a memory server, on a stack that the slot has for it.
fn start_memory_server(slot: &'static ThreadSlot) -> OrPlain<Source> {
    let at = map_fetch_pages()?;
    fetch_pages().parent.store(process::getpid() as u32, Relaxed);
    let lent = lend();
    let stack = slot.attending_stack();
    // Exit signal 0: no process is told of the memory server's end. Descriptors are shared, so it
    // holds none open that the program closes.
    // SAFETY: the stack is the slot's, which no other
    // living memory server uses. `memory_server` writes nothing but the shared pages.
    let made = unsafe {
        clone::clone(
            clone::CLONE_VM | clone::CLONE_FILES,
            0,
            stack,
            null_mut(),
            null_mut(),
            memory_server,
            at,
        )
    };
    match made {
        Ok(pid) if lent => Ok(Source::MemoryServer(pid)),
        Ok(pid) => {
            Source::MemoryServer(pid).close();
            Err(AbortKind::Setup)
        }
        Err(_) => {
            unmap_fetch_pages();
            Err(AbortKind::CloneFailed)
        }
    }
}

/// The memory server, in its parent's memory, with all signals blocked. It makes system calls and
/// writes the shared pages, and nothing else.
unsafe extern "C" fn memory_server(at: *mut c_void) -> ! {
    // SAFETY: mapped by `map_fetch_pages`, and there until this process has ended.
    let fetch_pages = unsafe { &*at.cast::<FetchPages>() };
    if process::set_pdeathsig(SIGKILL).is_ok()
        && process::getppid() as u32 == fetch_pages.parent.load(Relaxed)
    {
        let me = process::getpid();
        fetch_pages.serve(|from, to| mm::read(me, from, to).unwrap_or(0), || ());
    }
    process::exit_group(0)
}

/// The thread that attends to a speculation beside other threads, for one fork. It must stay in its
/// place from [`start`](Attendant::start) on, and ends when it is dropped.
pub(super) struct Attendant {
    thread: Helper,
    fork_frame: ForkFrame,
    /// Whether the child is to be made, so that memory is marked.
    is_worth: fn(&Listed) -> bool,
    /// 1: `listed` is there, and all marks.
    is_ready: AtomicU32,
    listed: UnsafeCell<OrPlain<Listed>>,
}

impl Attendant {
    pub(super) const fn new(fork_frame: ForkFrame, is_worth: fn(&Listed) -> bool) -> Attendant {
        Attendant {
            thread: Helper::new(),
            fork_frame,
            is_worth,
            is_ready: AtomicU32::new(0),
            listed: UnsafeCell::new(Err(AbortKind::Helper)),
        }
    }

    /// Lists the memory, and marks it if that is worth it. In the window, with all signals blocked
    /// until it is dropped.
    pub(super) fn start(&self, slot: &'static ThreadSlot) -> OrPlain<Listed> {
        map_fetch_pages()?;
        let at = core::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the stack is the slot's, which nothing else uses until the drop. There `self`
        // waits for the thread's end.
        if let Err(kind) = unsafe { self.thread.start(slot.attending_stack(), attend, at) } {
            unmap_fetch_pages();
            return Err(kind);
        }
        while self.is_ready.load(Acquire) == 0 {
            let _ = futex::wait(&self.is_ready, 0);
        }
        // SAFETY: written before `is_ready`, and not since.
        unsafe { *self.listed.get() }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        if FETCH_PAGES.load(Relaxed).is_null() {
            return;
        }
        fetch_pages().tell(&fetch_pages().leave, 1);
        self.thread.join();
        unmap_fetch_pages();
    }
}

/// The attendant, on a stack of its own.
unsafe extern "C" fn attend(at: *mut c_void) -> ! {
    // SAFETY: the forking thread keeps it in its place until this thread has ended.
    let this = unsafe { &*at.cast::<Attendant>() };
    attend_to(this);
    process::exit_thread()
}

fn attend_to(this: &Attendant) {
    let memory = open_memory();
    let listed = memory.and_then(|_| exclusions::list(&this.fork_frame, true));
    let is_marked = listed.is_ok_and(|listed| (this.is_worth)(&listed));
    if is_marked {
        exclusions::mark();
    }
    // SAFETY: the forking thread reads it after `is_ready`.
    unsafe { *this.listed.get() = listed };
    this.is_ready.store(1, Release);
    wake(&this.is_ready);

    let take_back = || {
        shared_pages::keep();
        let _ = retry(|| advise_fetch_pages(mm::MADV_DONTFORK));
        exclusions::unmark(true);
        window::close();
    };
    let mut is_left = is_marked;
    let me = process::gettid();
    let read = |from, to: &mut [u8]| match memory {
        Ok(Some(file)) => fd::pread(file, to, from as u64).unwrap_or(0),
        _ => mm::read(me, from, to).unwrap_or(0),
    };
    fetch_pages().serve(read, || {
        if is_left {
            take_back();
            is_left = false;
        }
    });
    if is_left {
        // The child did not come to say that it runs, or there is none.
        take_back();
    }
}

/// Makes sure that the attendant can read the memory: by a descriptor of its own, or by a call that
/// needs no right to one (`None`). A filter may kill for that call.
///
/// Where the program serves faults of its own memory (userfaultfd), a read by the file fails, since
/// the kernel may not wait there (mm/gup.c). The call would wait, and fill a page of the parent's.
fn open_memory() -> OrPlain<Option<i32>> {
    if !helper::has_own_table() {
        return Err(AbortKind::Helper);
    }
    // The process's first thread may have ended, and has no memory then.
    match proc::open(c"thread-self/mem") {
        Ok(file) => Ok(Some(file)),
        Err(_) if decide::is_unfiltered() => Ok(None),
        Err(_) => Err(AbortKind::NoProc),
    }
}

/// In the parent: the process that is made next inherits the shared pages.
pub(super) fn lend() -> bool {
    advise_fetch_pages(mm::MADV_DOFORK).is_ok()
}

/// In a child with an attendant: the clone is made.
pub(super) fn say_it_runs() {
    fetch_pages().tell(&fetch_pages().runs, 1);
}

/// In the child: since when it waits for an answer, in nanoseconds. 0: it does not wait.
static WAITS_SINCE: AtomicU64 = AtomicU64::new(0);

/// In the child: nanoseconds for which it has waited for answers.
static HAS_WAITED: AtomicU64 = AtomicU64::new(0);

/// In the child: whether it waits for an answer. A signal handler may ask.
pub(super) fn is_asking() -> bool {
    WAITS_SINCE.load(Relaxed) != 0
}

/// In the child: nanoseconds for which it has waited for answers, up to now.
pub(super) fn waited() -> u64 {
    let since = WAITS_SINCE.load(Relaxed);
    let now = if since == 0 { 0 } else { time::monotonic().nanos() };
    HAS_WAITED.load(Relaxed) + (now - since)
}

fn wait_for_answer(fetch_pages: &FetchPages, question: u32) {
    WAITS_SINCE.store(time::monotonic().nanos(), Relaxed);
    loop {
        let answered = fetch_pages.answered.load(Acquire);
        if answered == question {
            break;
        }
        let _ = futex::wait(&fetch_pages.answered, answered);
    }
    HAS_WAITED.store(waited(), Relaxed);
    WAITS_SINCE.store(0, Relaxed);
}

/// In the child: copies what the parent has from `at` on to the same place here. Returns how many
/// bytes. 0: the parent has nothing there.
///
/// A memory server that was killed does not answer. The child's time limit ends the wait, after the
/// most time that a child may take in all.
pub(super) fn ask(at: usize, len: usize) -> usize {
    let fetch_pages = fetch_pages();
    fetch_pages.address.store(at, Relaxed);
    fetch_pages.len.store(len.min(DATA), Relaxed);
    let question = fetch_pages.asked.load(Relaxed) + 1;
    fetch_pages.tell(&fetch_pages.asked, question);
    wait_for_answer(fetch_pages, question);
    let copied = fetch_pages.copied.load(Relaxed).min(len);
    // SAFETY: the caller has mapped `len` bytes at `at`, which nothing else refers to yet.
    unsafe { core::ptr::copy_nonoverlapping(fetch_pages.data.get().cast(), at as *mut u8, copied) };
    copied
}
