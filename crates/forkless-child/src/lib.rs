//! The code that a child runs between clone and exec, while it shares its parent's memory.
//!
//! The parent lays out a [`Launch`]: every byte the child needs, decided and allocated beforehand.
//! The child begins in [`start`]. It executes the new program, or writes one fixed [`Report`] and
//! exits. Nothing here allocates, locks, calls libc, touches thread-local storage or panics. The
//! thread pointer, the heap and every lock are the parent's. Without `CLONE_VFORK` the parent runs
//! meanwhile and uses them.
//!
//! This crate decides nothing. The parent chooses the actions and their order. For a command, crate
//! `forkless` chooses them: those on descriptors in `start/moves.rs`, all others in
//! `plan/actions.rs`. For a shell line, the preloaded library does, in `shell/launch.rs`.
//! [`start_suspended`] is the plainest way to make such a child.
//!
//! Signals: the parent blocks all of them around the clone, so no handler can run in the child. The
//! child sets its final mask as the last thing before exec, when every disposition is default or
//! ignored.
#![no_std]
#![expect(
    unsafe_code,
    reason = "entered by clone with a pointer; exec takes raw vectors; pre_exec is a foreign function"
)]

mod actions;
mod exec;
mod suspended;

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use forkless_sys::signal::SigSet;
use forkless_sys::{CPtr, Errno, process};

pub use actions::{Action, Function, Hook, ParentDescriptor};
#[doc(hidden)]
pub use suspended::start_remembering;
pub use suspended::{Stack, start_suspended};

/// One path to try, and the argument vector that runs it as a script when the kernel says
/// `ENOEXEC`.
#[derive(Clone, Copy)]
pub struct Candidate<'p> {
    /// The file to execute.
    pub path: CPtr<'p>,
    /// `/bin/sh`, the path, the arguments from 1 on, null: execvp(3) runs the same. Null where
    /// scripts are not wanted.
    pub script_argv: *const *const c_char,
}

/// The program to execute.
#[derive(Clone, Copy)]
pub struct Exec<'p> {
    /// Paths in the order of the search.
    pub candidates: &'p [Candidate<'p>],
    /// Null-terminated vector of NUL-terminated strings.
    pub argv: *const *const c_char,
    /// Likewise.
    pub envp: *const *const c_char,
    /// The mask the program starts with.
    pub mask: SigSet,
    /// Before Linux 5.16 a core dump kills every process that shares the memory (`zap_threads`).
    /// With this set, a pending signal that would dump core becomes SIGKILL.
    pub no_core_dump: bool,
    /// Whether to wait up to 63 ms while a process has the file open for writing (`ETXTBSY`).
    pub wait_for_writers: bool,
    /// Whether the search goes on after every error, and not only where the next directory may
    /// still have the file. The first error that shows a file to be there is then reported.
    pub past_any_error: bool,
}

/// The complete data for one child. It lives, with everything it points to, until the child has
/// left the shared memory.
pub struct Launch<'p> {
    /// Actions on the descriptor table. They come first: until the table is the child's own, the
    /// parent may have to wait.
    pub files: &'p [Action<'p>],
    /// All other actions.
    pub actions: &'p [Action<'p>],
    /// The program, last.
    pub exec: Exec<'p>,
    /// Index of the candidate that was executed last: it is tried before the others.
    pub hint: usize,
    /// Where the child reports.
    pub report: &'p Report,
}

/// The part of a launch that failed: where in the launch the child was.
///
/// An error names a *step* instead. The parent makes it of the phase, the index and the errno
/// (`start/explain.rs` of crate `forkless`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// Nothing has failed.
    None = 0,
    /// An action of [`Launch::files`].
    Files = 1,
    /// An action of [`Launch::actions`].
    Actions = 2,
    /// [`Launch::exec`]; the index is the candidate's.
    Exec = 3,
}

/// The child's message to the parent, through shared memory: which action failed and why. On
/// success the child writes nothing.
#[repr(C)]
pub struct Report {
    phase: AtomicU32,
    index: AtomicU32,
    errno: AtomicI32,
    tried: AtomicU32,
    /// The errno of a refused `close_range`, where the child closed one by one instead.
    refused: AtomicI32,
    /// Becomes 1 when the descriptor table is the child's own; a futex word.
    pub staged: AtomicU32,
}

/// A failure as the child reported it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The part that failed.
    pub phase: Phase,
    /// Its entry. One past the last action stands for the handlers, which [`start_suspended`] could
    /// not reset.
    pub index: usize,
    /// Why.
    pub errno: Errno,
}

impl Report {
    /// Nothing reported.
    pub const fn new() -> Report {
        Report {
            phase: AtomicU32::new(0),
            index: AtomicU32::new(0),
            errno: AtomicI32::new(0),
            tried: AtomicU32::new(0),
            refused: AtomicI32::new(0),
            staged: AtomicU32::new(0),
        }
    }

    /// Forgets an earlier child. Most children leave nothing to forget. A word that is not written
    /// need not be fetched back from the child's processor.
    pub fn reset(&self) {
        for word in [&self.index, &self.tried, &self.staged, &self.phase] {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Release);
            }
        }
        for word in [&self.errno, &self.refused] {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Release);
            }
        }
    }

    /// Takes over the contents of another report: that of a child which could not write to this
    /// one.
    pub fn copy_from(&self, other: &Report) {
        let take =
            |to: &AtomicU32, from: &AtomicU32| to.store(from.load(Ordering::Acquire), Ordering::Relaxed);
        take(&self.index, &other.index);
        take(&self.tried, &other.tried);
        take(&self.staged, &other.staged);
        self.errno.store(other.errno.load(Ordering::Acquire), Ordering::Relaxed);
        self.refused.store(other.refused.load(Ordering::Acquire), Ordering::Relaxed);
        self.phase.store(other.phase.load(Ordering::Acquire), Ordering::Release);
    }

    /// The failure, if there was one. Final once the child has left the shared memory.
    pub fn failure(&self) -> Option<Failure> {
        let phase = match self.phase.load(Ordering::Acquire) {
            0 => return None,
            1 => Phase::Files,
            2 => Phase::Actions,
            _ => Phase::Exec,
        };
        let index = self.index.load(Ordering::Relaxed) as usize;
        Some(Failure { phase, index, errno: Errno::from_raw(self.errno.load(Ordering::Relaxed)) })
    }

    /// Index of the candidate tried last. When nothing failed, it was executed.
    pub fn tried(&self) -> usize {
        self.tried.load(Ordering::Relaxed) as usize
    }

    /// The errno of a `close_range` that the child replaced by single calls. The parent lays out
    /// later children without it.
    pub fn refused(&self) -> Option<Errno> {
        match self.refused.load(Ordering::Relaxed) {
            0 => None,
            e => Some(Errno::from_raw(e)),
        }
    }

    fn fail(&self, failure: Failure) -> ! {
        self.index.store(failure.index as u32, Ordering::Relaxed);
        self.errno.store(failure.errno.raw(), Ordering::Relaxed);
        // Last, and released: a reader that sees the phase sees the rest.
        self.phase.store(failure.phase as u32, Ordering::Release);
        // A parent that waits for the table must not wait for ever.
        self.staged.store(1, Ordering::Release);
        let _ = forkless_sys::poll::futex_wake(&self.staged, 1);
        // A shell would exit with 127; the parent looks at the report first.
        process::exit_group(127)
    }
}

impl Default for Report {
    fn default() -> Self {
        Report::new()
    }
}

/// Where the clone begins: carries out the launch and does not return.
///
/// # Safety
/// `launch` points to a [`Launch`] that nobody changes until this child has exec'd or exited, all
/// signals are blocked, and the caller's stack is this child's alone.
pub unsafe extern "C" fn start(launch: *mut c_void) -> ! {
    // SAFETY: the caller's contract.
    let launch = unsafe { &*launch.cast::<Launch<'_>>() };
    let failure = carry_out(launch);
    launch.report.fail(failure)
}

/// Carries out the launch in the calling process. It returns only to say which part failed; the
/// actions before that are done.
pub fn carry_out(launch: &Launch<'_>) -> Failure {
    let report = launch.report;
    let hooked = launch.actions.iter().any(|action| matches!(action, Action::Hook(_)));
    let before_hooks = if hooked { forkless_sys::signal::mask().ok() } else { None };
    let mut saved = -1;
    for (phase, actions) in [(Phase::Files, launch.files), (Phase::Actions, launch.actions)] {
        for (index, action) in actions.iter().enumerate() {
            if let Err(errno) = action.take(report, &mut saved) {
                return Failure { phase, index, errno };
            }
        }
    }
    let mask = match before_hooks {
        Some(before) => exec::mask_after_hooks(launch.exec.mask, before),
        None => launch.exec.mask,
    };
    let (index, errno) = exec::exec(&Exec { mask, ..launch.exec }, launch.hint, &report.tried);
    Failure { phase: Phase::Exec, index, errno }
}
