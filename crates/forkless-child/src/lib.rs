//! What a child does between clone and exec while it shares its parent's memory.
//!
//! The parent lays out a [`Launch`]: every byte the child needs, decided and allocated beforehand. [`start`] carries it out
//! and either becomes the new program or writes one fixed [`Report`] and exits. Nothing here allocates, locks,
//! calls libc, touches thread-local storage or panics: the thread pointer, the heap and every lock are the parent's, and the
//! parent may be running (without `CLONE_VFORK`) or may be about to reuse them.
//!
//! What is *not* here: any decision. Which steps, in which order and why is the parent's business
//! (`forkless`, `plan.rs`); this crate only knows how to take each one.
//!
//! Signals: the parent blocks all of them around the clone, so no handler can run here; the mask is given
//! its final value as the last thing before exec, when every disposition is default or ignored.
#![no_std]
#![expect(
    unsafe_code,
    reason = "entered by clone with a pointer; exec takes raw vectors; pre_exec is a foreign function"
)]

mod exec;
mod steps;

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use forkless_sys::signal::SigSet;
use forkless_sys::{CPtr, Errno, process};

pub use steps::{Fetch, Hook, Step};

/// One path to try, and the argument vector that runs it as a script when the kernel says `ENOEXEC`.
///
/// ```
/// # use core::ptr::null;
/// # use forkless_child::{Candidate, Exec, Launch, Report, carry_out};
/// # use forkless_sys::{CPtr, Errno, signal::SigSet};
/// # let (report, end) = (Report::new(), null());
/// # let mask = SigSet::EMPTY;
/// let candidates = [c"/nonexistent/ls", c"/dev/null"]
///     .map(|path| Candidate { path: CPtr::from(path), script_argv: null() });
/// let exec = Exec { candidates: &candidates, argv: &end, envp: &end, mask, no_core_dump: false };
/// let failure = carry_out(&Launch { files: &[], steps: &[], exec, hint: 0, report: &report });
/// assert_eq!((failure.index, failure.errno), (1, Errno::EACCES)); // there, but not to be executed
/// ```
#[derive(Clone, Copy)]
pub struct Candidate<'p> {
    /// The file to execute.
    pub path: CPtr<'p>,
    /// `/bin/sh`, the path, the arguments from 1 on, null: what execvp(3) would run. Null where scripts are not wanted.
    pub script_argv: *const *const c_char,
}

/// The program to become.
///
/// ```
/// # use core::ptr::null;
/// # use forkless_child::{Candidate, Exec, Launch, Report, carry_out};
/// # use forkless_sys::signal::SigSet;
/// # use std::os::unix::process::CommandExt as _;
/// # let mut child = std::process::Command::new("true");
/// let become_sh = || {
///     let candidates = [Candidate { path: c"/bin/sh".into(), script_argv: null() }];
///     let argv = [c"sh".as_ptr(), c"-c".as_ptr(), c"exit $CODE".as_ptr(), null()];
///     let envp = [c"CODE=3".as_ptr(), null()];
///     let exec = Exec {
///         candidates: &candidates,
///         argv: argv.as_ptr(),
///         envp: envp.as_ptr(),
///         mask: SigSet::EMPTY,
///         no_core_dump: false,
///     };
///     let report = Report::new();
///     let failure = carry_out(&Launch { files: &[], steps: &[], exec, hint: 0, report: &report });
///     Err(std::io::Error::from_raw_os_error(failure.errno.raw()))
/// };
/// # // SAFETY: async-signal-safe.
/// # unsafe { child.pre_exec(become_sh) };
/// assert_eq!(child.status().unwrap().code(), Some(3)); // of a child that called it
/// ```
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
    /// Before Linux 5.16 a core dump kills everyone who shares the memory (`zap_threads`): a pending signal that would dump
    /// is then turned into SIGKILL.
    pub no_core_dump: bool,
}

/// All of one start. Lives, with everything it points to, until the child has left the shared memory.
///
/// ```
/// # use core::ptr::null;
/// # use forkless_child::{Exec, Launch, Report, Step, carry_out};
/// # use forkless_sys::{Errno, fd, process, signal::SigSet};
/// # let (report, end) = (Report::new(), null());
/// # let mask = SigSet::EMPTY;
/// # let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
/// let files = [Step::Dup { from: write, to: 100 }];
/// let steps = [Step::Umask { mask: 0o077 }];
/// let exec = Exec { candidates: &[], argv: &end, envp: &end, mask, no_core_dump: false };
/// carry_out(&Launch { files: &files, steps: &steps, exec, hint: 0, report: &report });
/// assert_eq!((fd::write(100, b"x"), process::umask(0o022)), (Ok(1), 0o077));
/// # Ok::<(), Errno>(())
/// ```
pub struct Launch<'p> {
    /// The descriptor table first: until it is the child's own, the parent may have to wait.
    pub files: &'p [Step<'p>],
    /// Then everything else.
    pub steps: &'p [Step<'p>],
    /// Then this.
    pub exec: Exec<'p>,
    /// The candidate to try before the others: where the search ended last time.
    pub hint: usize,
    /// Where the child reports.
    pub report: &'p Report,
}

/// Where the child got to.
///
/// ```
/// # use core::ptr::null;
/// # use forkless_child::{Exec, Launch, Phase, Report, Step, carry_out};
/// # use forkless_sys::signal::SigSet;
/// # let (report, end) = (Report::new(), null());
/// # let mask = SigSet::EMPTY;
/// # let exec = Exec { candidates: &[], argv: &end, envp: &end, mask, no_core_dump: false };
/// let keep = [Step::Keep { fd: -1 }];
/// let mut launch = Launch { files: &keep, steps: &keep, exec, hint: 0, report: &report };
/// assert_eq!(carry_out(&launch).phase, Phase::Files);
/// launch.files = &[];
/// assert_eq!(carry_out(&launch).phase, Phase::Steps);
/// launch.steps = &[];
/// assert_eq!(carry_out(&launch).phase, Phase::Exec);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// Nothing has failed.
    None = 0,
    /// Step of [`Launch::files`].
    Files = 1,
    /// Step of [`Launch::steps`].
    Steps = 2,
    /// [`Launch::exec`]; the index is the candidate's.
    Exec = 3,
}

/// What the child tells the parent, through shared memory: which step failed and why, and nothing on success.
///
/// ```
/// # use core::ptr::null;
/// # use forkless_child::{Candidate, Exec, Launch, Report, carry_out};
/// # use forkless_sys::signal::SigSet;
/// # let end = null();
/// # let mask = SigSet::EMPTY;
/// # let missing = Candidate { path: c"/nonexistent".into(), script_argv: null() };
/// # let exec = Exec { candidates: &[missing; 3], argv: &end, envp: &end, mask, no_core_dump: false };
/// let report = Report::new();
/// carry_out(&Launch { files: &[], steps: &[], exec, hint: 0, report: &report });
/// assert_eq!(report.tried(), 2); // the last of three
/// assert_eq!(report.failure(), None); // what `start` would have said
/// ```
#[repr(C)]
pub struct Report {
    phase: AtomicU32,
    index: AtomicU32,
    errno: AtomicI32,
    tried: AtomicU32,
    /// What `close_range` was refused with, where the child did without.
    refused: AtomicI32,
    /// Becomes 1 when the descriptor table is the child's own; a futex word.
    pub staged: AtomicU32,
}

/// A failure as the child reported it.
///
/// ```
/// # use core::ptr::null;
/// # use forkless_child::{Exec, Failure, Launch, Phase, Report, Step, carry_out};
/// # use forkless_sys::{Errno, signal::SigSet};
/// # let (report, end) = (Report::new(), null());
/// # let mask = SigSet::EMPTY;
/// # let exec = Exec { candidates: &[], argv: &end, envp: &end, mask, no_core_dump: false };
/// let steps = [Step::Chdir { path: c"/".into() }, Step::Chdir { path: c"/dev/null".into() }];
/// let failure = carry_out(&Launch { files: &[], steps: &steps, exec, hint: 0, report: &report });
/// assert_eq!(failure, Failure { phase: Phase::Steps, index: 1, errno: Errno::ENOTDIR });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// In which part.
    pub phase: Phase,
    /// Which entry of it.
    pub index: usize,
    /// Why.
    pub errno: Errno,
}

impl Report {
    /// Nothing reported.
    ///
    /// ```
    /// use forkless_child::Report;
    /// let report = Report::new();
    /// assert_eq!((report.failure(), report.refused(), report.tried()), (None, None, 0));
    /// ```
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

    /// Forgets an earlier child. Most leave nothing to forget, and a word that is not written need not be fetched back from the
    /// child's processor.
    ///
    /// ```
    /// # use core::sync::atomic::Ordering;
    /// # use forkless_child::Report;
    /// let report = Report::new();
    /// report.staged.store(1, Ordering::Release); // as Step::Staged
    /// report.reset();
    /// assert_eq!(report.staged.load(Ordering::Acquire), 0);
    /// ```
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

    /// Takes over what another report says: that of a child which could not write to this one.
    ///
    /// ```
    /// # use core::sync::atomic::Ordering;
    /// # use forkless_child::Report;
    /// let (ours, theirs) = (Report::new(), Report::new());
    /// theirs.staged.store(1, Ordering::Release); // as Step::Staged
    /// ours.copy_from(&theirs);
    /// assert_eq!(ours.staged.load(Ordering::Acquire), 1);
    /// ```
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

    /// What failed, if anything did. Final once the child has left the shared memory.
    ///
    /// ```
    /// # use core::ptr::null;
    /// # use forkless_child::{Exec, Failure, Launch, Phase, Report, Step, start};
    /// # use forkless_sys::{Errno, mm, signal::{self, SigSet}};
    /// # use std::os::unix::process::CommandExt as _;
    /// # let page = mm::map_anonymous(4096, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_SHARED)?;
    /// # // SAFETY: fresh memory, shared with the child, large enough and never unmapped.
    /// # let report: &Report = unsafe {
    /// #     page.cast::<Report>().write(Report::new());
    /// #     &*page.cast()
    /// # };
    /// # let mut child = std::process::Command::new("true");
    /// # let call_start = move || {
    /// #     let end = null();
    /// #     let steps = [Step::Keep { fd: -1 }];
    /// #     let mask = SigSet::EMPTY;
    /// #     let exec = Exec { candidates: &[], argv: &end, envp: &end, mask, no_core_dump: false };
    /// #     let mut launch = Launch { files: &[], steps: &steps, exec, hint: 0, report };
    /// #     let _ = signal::set_mask(SigSet::ALL);
    /// #     // SAFETY: all signals are blocked, and the launch is this process's alone.
    /// #     unsafe { start((&raw mut launch).cast()) }
    /// # };
    /// # // SAFETY: async-signal-safe.
    /// # unsafe { child.pre_exec(call_start) };
    /// // A child calls `start`; its only step is to keep a descriptor that is not open.
    /// assert_eq!(child.status().unwrap().code(), Some(127));
    /// let why = Failure { phase: Phase::Steps, index: 0, errno: Errno::EBADF };
    /// assert_eq!(report.failure(), Some(why));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn failure(&self) -> Option<Failure> {
        let phase = match self.phase.load(Ordering::Acquire) {
            0 => return None,
            1 => Phase::Files,
            2 => Phase::Steps,
            _ => Phase::Exec,
        };
        let index = self.index.load(Ordering::Relaxed) as usize;
        Some(Failure { phase, index, errno: Errno::from_raw(self.errno.load(Ordering::Relaxed)) })
    }

    /// The candidate tried last: the one that became the program, when nothing failed.
    ///
    /// ```
    /// # use core::ptr::null;
    /// # use forkless_child::{Candidate, Exec, Launch, Report, carry_out};
    /// # use forkless_sys::signal::SigSet;
    /// # let (report, end) = (Report::new(), null());
    /// # let mask = SigSet::EMPTY;
    /// # let missing = Candidate { path: c"/nonexistent".into(), script_argv: null() };
    /// # let exec = Exec { candidates: &[missing; 2], argv: &end, envp: &end, mask, no_core_dump: false };
    /// carry_out(&Launch { files: &[], steps: &[], exec, hint: 0, report: &report });
    /// assert_eq!(report.tried(), 1); // of two that are missing
    /// ```
    pub fn tried(&self) -> usize {
        self.tried.load(Ordering::Relaxed) as usize
    }

    /// The answer of a `close_range` that the child replaced by single calls; the parent had better know.
    ///
    /// ```
    /// # use core::ptr::null;
    /// # use forkless_child::{Exec, Launch, Report, Step, carry_out};
    /// # use forkless_sys::{Errno, fd, signal::SigSet};
    /// # let (report, end) = (Report::new(), null());
    /// # let mask = SigSet::EMPTY;
    /// # let exec = Exec { candidates: &[], argv: &end, envp: &end, mask, no_core_dump: false };
    /// # let from = fd::dup_cloexec(1, 100)? as u32;
    /// let close = [Step::CloseRange { first: from, last: from, by_range: true, limit: 1024 }];
    /// carry_out(&Launch { files: &close, steps: &[], exec, hint: 0, report: &report });
    /// assert_eq!(fd::close(from as i32), Err(Errno::EBADF)); // closed, however it was
    /// assert_eq!(report.refused(), fd::close_range(from, from, 0).err());
    /// # Ok::<(), Errno>(())
    /// ```
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
        // 127 is what a shell would say; the parent looks at the report first.
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
/// `launch` points to a [`Launch`] that nobody changes until this child has exec'd or exited, all signals are
/// blocked, and the caller's stack is this child's alone.
///
/// ```
/// # use core::ptr::null;
/// # use forkless_child::{Candidate, Exec, Launch, Report, Step, start};
/// # use forkless_sys::signal::{self, SigSet};
/// # use std::os::unix::process::CommandExt as _;
/// # let mut child = std::process::Command::new("true");
/// let call_start = || {
///     let report = Report::new();
///     let candidates = [Candidate { path: c"/bin/sh".into(), script_argv: null() }];
///     let argv = [c"sh".as_ptr(), c"-c".as_ptr(), c"exit $(umask)".as_ptr(), null()];
///     let (argv, envp) = (argv.as_ptr(), &null());
///     let mask = SigSet::EMPTY;
///     let exec = Exec { candidates: &candidates, argv, envp, mask, no_core_dump: false };
///     let steps = [Step::Umask { mask: 0o077 }];
///     let mut launch = Launch { files: &[], steps: &steps, exec, hint: 0, report: &report };
///     let _ = signal::set_mask(SigSet::ALL);
///     // SAFETY: all signals are blocked, and the launch is this process's alone.
///     unsafe { start((&raw mut launch).cast()) }
/// };
/// # // SAFETY: async-signal-safe.
/// # unsafe { child.pre_exec(call_start) };
/// assert_eq!(child.status().unwrap().code(), Some(77)); // of a child that called it
/// ```
pub unsafe extern "C" fn start(launch: *mut c_void) -> ! {
    // SAFETY: the caller's contract.
    let launch = unsafe { &*launch.cast::<Launch<'_>>() };
    let failure = carry_out(launch);
    launch.report.fail(failure)
}

/// Carries out the launch in the calling process; returns only to say what failed, with the steps before it done.
///
/// ```
/// # use core::ptr::null;
/// # use forkless_child::{Exec, Launch, Phase, Report, Step, carry_out};
/// # use forkless_sys::{Errno, sched, signal::SigSet};
/// # let (report, end) = (Report::new(), null());
/// # let mask = SigSet::EMPTY;
/// let exec = Exec { candidates: &[], argv: &end, envp: &end, mask, no_core_dump: false };
/// let steps = [Step::Nice { value: 19 }];
/// let failure = carry_out(&Launch { files: &[], steps: &steps, exec, hint: 0, report: &report });
/// assert_eq!((failure.phase, failure.errno), (Phase::Exec, Errno::ENOENT)); // no candidate
/// assert_eq!(sched::nice(), Ok(19)); // and the step done
/// ```
pub fn carry_out(launch: &Launch<'_>) -> Failure {
    let report = launch.report;
    let hooked = launch.steps.iter().any(|step| matches!(step, Step::Hook(_)));
    let before_hooks = if hooked { forkless_sys::signal::mask().ok() } else { None };
    let mut saved = -1;
    for (phase, steps) in [(Phase::Files, launch.files), (Phase::Steps, launch.steps)] {
        for (index, step) in steps.iter().enumerate() {
            if let Err(errno) = step.take(report, &mut saved) {
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
