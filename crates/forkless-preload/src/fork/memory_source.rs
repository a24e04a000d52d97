//! Where a speculative child reads its parent's memory.
//!
//! Mostly from `/proc/self/mem`, opened at the fork. The descriptor binds to the parent's memory
//! (fs/proc/base.c, `mem_open`).
//!
//! A process that has changed its user is not dumpable (`commit_creds`, kernel/cred.c), and from
//! then on the file belongs to root. A descriptor from before is not kept: children made past
//! `fork` would inherit it, and read their parent's memory as another user. So a process that
//! shares such a parent's memory serves the child ([`serve`]). It copies what the child asks for
//! into pages that parent, server and child share. A process may always read its own memory
//! (kernel/fork.c, `mm_access`).
//!
//! The shared pages are mapped for one fork. They must not be kept either, for a child made past
//! `fork` would inherit them (decision 40).
#![expect(unsafe_code, reason = "a process that shares memory, and the pages both use")]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_run::AbortKind;
use forkless_sys::{CPtr, Errno, clone, fd, futex, mm, process, sched};
use linux_raw_sys::general as k;

use crate::proc;
use crate::reserve;
use forkless_speculate::retry::retry;

use super::arm::ThreadSlot;
use super::{OrPlain, decide};

/// What a child reads from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A descriptor of the parent's memory.
    File(i32),
    /// A process in the parent's memory, by its number.
    Server(i32),
}

const PATH: &CStr = c"/proc/self/mem";

impl Source {
    /// Before the clone, with all signals blocked. `beside_threads`: other threads may make
    /// children of their own meanwhile.
    pub(super) fn open(slot: &'static ThreadSlot, beside_threads: bool) -> OrPlain<Source> {
        match proc::open(c"self/mem") {
            Ok(low) => move_up(low).map(Source::File),
            Err(Errno::EMFILE | Errno::ENFILE) => Err(AbortKind::Descriptors),
            // Another thread's child could inherit the shared pages. And a filter may kill for a
            // call that it does not know.
            Err(Errno::EACCES | Errno::EPERM) if !beside_threads && decide::is_unfiltered() => start(slot),
            Err(_) => Err(AbortKind::NoProc),
        }
    }

    /// In the parent, when the child has left.
    pub(super) fn close(self, beside_threads: bool) {
        match self {
            Source::File(descriptor) => {
                // Another thread may have put a file of its own at this number.
                if !beside_threads || is_ours(descriptor) {
                    let _ = fd::close(descriptor);
                }
            }
            Source::Server(pid) => stop(pid),
        }
    }

    /// The number of its descriptor; -1: none.
    pub(super) fn descriptor(self) -> i32 {
        match self {
            Source::File(descriptor) => descriptor,
            Source::Server(_) => -1,
        }
    }
}

/// Whether a descriptor is of this process's memory.
fn is_ours(descriptor: i32) -> bool {
    let of = fd::identity(descriptor, CPtr::from(c""), fd::AT_EMPTY_PATH);
    fd::identity(fd::AT_FDCWD, CPtr::from(PATH), 0).is_ok_and(|now| of == Ok(now))
}

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

/// The pages that the server shares with its parent and the child.
#[repr(C)]
struct Exchange {
    /// Goes up with each question. [`LEAVE`] at the end.
    asked: AtomicU32,
    /// The question that was answered last.
    answered: AtomicU32,
    address: AtomicUsize,
    len: AtomicUsize,
    /// Bytes in `data`. 0: the parent has none there.
    copied: AtomicUsize,
    /// The server's parent.
    parent: AtomicU32,
    data: UnsafeCell<[u8; DATA]>,
}

/// A cluster of a child's (`fetch::CLUSTER`).
const DATA: usize = 64 << 10;
const LEAVE: u32 = u32::MAX;
const _: () = assert!(size_of::<Exchange>() <= reserve::EXCHANGE.len(), "room for the exchange");

static EXCHANGE: AtomicPtr<Exchange> = AtomicPtr::new(null_mut());

fn exchange() -> &'static Exchange {
    // SAFETY: mapped by `start`, unmapped by `stop` when server and child are gone; zeroed memory
    // is valid.
    unsafe { &*EXCHANGE.load(Relaxed) }
}

/// Starts the server, on a stack that the slot has for it.
fn start(slot: &'static ThreadSlot) -> OrPlain<Source> {
    let Ok(at) = reserve::EXCHANGE.replace(mm::PROT_READ | mm::PROT_WRITE, mm::MAP_SHARED) else {
        return Err(AbortKind::Setup);
    };
    EXCHANGE.store(at.cast(), Relaxed);
    exchange().parent.store(process::getpid() as u32, Relaxed);
    let stack = slot.server_stack();
    // Exit signal 0: no process is told of the server's end. Descriptors are shared, so the server
    // holds none open that the program closes.
    // SAFETY: the stack is the slot's, which no other living server uses. `serve` writes nothing
    // but the shared pages.
    let server = unsafe {
        clone::clone(clone::CLONE_VM | clone::CLONE_FILES, 0, stack, null_mut(), null_mut(), serve, at)
    };
    server.map(Source::Server).map_err(|_| {
        let _ = reserve::EXCHANGE.let_go();
        AbortKind::CloneFailed
    })
}

fn stop(pid: i32) {
    let exchange = exchange();
    exchange.asked.store(LEAVE, Release);
    let _ = futex::wake(&exchange.asked);
    // Its stack is needed again. And the next fork asks whether another process has this memory.
    let _ = retry(|| process::wait4(pid, process::WALL));
    EXCHANGE.store(null_mut(), Relaxed);
    let _ = reserve::EXCHANGE.let_go();
}

/// The server, in its parent's memory, with all signals blocked. It makes system calls and writes
/// the shared pages, and nothing else.
unsafe extern "C" fn serve(at: *mut c_void) -> ! {
    const SIGKILL: i32 = 9;
    // SAFETY: mapped by `start`, and there until this process has ended.
    let exchange = unsafe { &*at.cast::<Exchange>() };
    if process::set_pdeathsig(SIGKILL).is_err() || process::getppid() as u32 != exchange.parent.load(Relaxed)
    {
        process::exit_group(0);
    }
    let me = process::getpid();
    let mut done = 0;
    loop {
        let asked = exchange.asked.load(Acquire);
        if asked == LEAVE {
            process::exit_group(0);
        }
        if asked == done {
            let _ = futex::wait(&exchange.asked, done);
            continue;
        }
        let len = exchange.len.load(Relaxed).min(DATA);
        // SAFETY: the child that asked waits for the answer, and nobody else uses the bytes.
        let to = unsafe { core::slice::from_raw_parts_mut(exchange.data.get().cast(), len) };
        let copied = mm::read(me, exchange.address.load(Relaxed), to).unwrap_or(0);
        exchange.copied.store(copied, Relaxed);
        done = asked;
        exchange.answered.store(asked, Release);
        let _ = futex::wake(&exchange.answered);
    }
}

/// In the child: copies what the parent has from `at` on to the same place here. Returns how many
/// bytes. 0: the parent has nothing there.
///
/// A server that was killed does not answer. The child's time limit ends the wait.
pub(super) fn ask(at: usize, len: usize) -> usize {
    let exchange = exchange();
    exchange.address.store(at, Relaxed);
    exchange.len.store(len.min(DATA), Relaxed);
    let question = exchange.asked.load(Relaxed) + 1;
    exchange.asked.store(question, Release);
    let _ = futex::wake(&exchange.asked);
    loop {
        let answered = exchange.answered.load(Acquire);
        if answered == question {
            break;
        }
        let _ = futex::wait(&exchange.answered, answered);
    }
    let copied = exchange.copied.load(Relaxed).min(len);
    // SAFETY: the caller has mapped `len` bytes at `at`, which nothing else refers to yet.
    unsafe { core::ptr::copy_nonoverlapping(exchange.data.get().cast(), at as *mut u8, copied) };
    copied
}
