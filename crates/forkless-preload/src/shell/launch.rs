//! Starting a process without copying anything, by crate `forkless-child`, on a stack of its own;
//! and the memory for that.
#![expect(unsafe_code, reason = "a child that shares memory")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use forkless_child::{Action, Candidate, Exec, Launch, Report, Stack, start_suspended};
use forkless_shell::EnvSlot;
use forkless_sys::signal::{self, Disposition, SigSet};
use forkless_sys::{CPtr, Errno, clone, mm, process};

use crate::{next, reserve};
use forkless_speculate::retry::retry;

/// Memory for one launch: the analysis, the vectors, the child's stack. It leaves the caller's
/// stack to the caller, as libc does: threads and handlers may have no more than 16 KiB. Text is
/// wiped when the memory is given back, for a line may hold a password, which the program erases.
pub(super) struct Workspace {
    at: *mut c_void,
}

/// Where the texts of a workspace begin: the script, the strings the shell would make, the
/// program's path, PWD, OLDPWD. The vectors come after them, the stack last.
const TEXTS: [usize; 5] = [0, 48 << 10, 72 << 10, 78 << 10, 83 << 10];
const VECTORS: usize = 84 << 10;
/// The most strings that an environment or an argument vector may have; a line with more goes to
/// the shell.
pub(super) const VECTOR: usize = 256;
const ACTIONS: usize = 33;

/// A workspace, divided for a line without a shell.
pub(super) struct Parts<'m> {
    pub(super) script: &'m mut [u8],
    /// The strings the shell would make.
    pub(super) own: &'m mut [u8],
    pub(super) path: &'m mut [u8],
    pub(super) current: &'m mut [u8],
    pub(super) previous: &'m mut [u8],
    /// All null.
    pub(super) argv: &'m mut [*const c_char],
    /// All null.
    pub(super) envp: &'m mut [*const c_char],
    pub(super) slots: &'m mut [EnvSlot<'m>],
    pub(super) actions: &'m mut [Action<'m>],
}

/// The first `n` of a type from `memory`, all of them `value`.
fn carve<'m, T: Copy>(memory: &mut &'m mut [u8], n: usize, value: T) -> Option<&'m mut [T]> {
    let (own, rest) = core::mem::take(memory).split_at_mut_checked(n * size_of::<T>())?;
    *memory = rest;
    let at = own.as_mut_ptr().cast::<T>();
    if !at.is_aligned() {
        return None;
    }
    for i in 0..n {
        // SAFETY: aligned, and within `own`.
        unsafe { at.wrapping_add(i).write(value) };
    }
    // SAFETY: just written, and borrowed as long as `own`, which nothing else refers to.
    Some(unsafe { core::slice::from_raw_parts_mut(at, n) })
}

/// Bytes of a workspace.
pub(super) const SIZE: usize = 128 << 10;
/// Bytes of a child's stack.
pub(super) const STACK: usize = 32 << 10;

/// Workspaces in the reserve. A launch takes one for as long as its child needs to execute.
const WORKSPACES: usize = 2;
const _: () = assert!(WORKSPACES * SIZE <= reserve::WORKSPACES.len(), "room for them");

/// In a child that was forked while another thread launched, that thread's workspace stays taken.
static TAKEN: [AtomicBool; WORKSPACES] = [const { AtomicBool::new(false) }; WORKSPACES];

impl Workspace {
    /// One of the reserve. With more launches at a time, a temporary one, wherever the kernel has
    /// room.
    pub(super) fn take() -> Option<Workspace> {
        if let Some(free) = TAKEN.iter().position(|taken| !taken.swap(true, Acquire)) {
            // They stay usable. Two threads at once make them so twice, which is harmless.
            static USABLE: AtomicBool = AtomicBool::new(false);
            if !USABLE.load(Acquire) {
                if reserve::WORKSPACES.open().is_err() {
                    TAKEN[free].store(false, Release);
                    return None;
                }
                USABLE.store(true, Release);
            }
            let at = (reserve::WORKSPACES.address() + free * SIZE) as *mut c_void;
            return Some(Workspace { at });
        }
        let at = mm::map_anonymous(SIZE, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE).ok()?;
        Some(Workspace { at })
    }

    /// All but the stack.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        // SAFETY: this workspace's alone until it is given back.
        unsafe { core::slice::from_raw_parts_mut(self.at.cast(), SIZE - STACK) }
    }

    /// The same, divided.
    pub(super) fn parts(&mut self) -> Option<Parts<'_>> {
        let (texts, mut rest) = self.memory().split_at_mut_checked(VECTORS)?;
        let (texts, previous) = texts.split_at_mut_checked(TEXTS[4])?;
        let (texts, current) = texts.split_at_mut_checked(TEXTS[3])?;
        let (texts, path) = texts.split_at_mut_checked(TEXTS[2])?;
        let (script, own) = texts.split_at_mut_checked(TEXTS[1])?;
        Some(Parts {
            script,
            own,
            path,
            current,
            previous,
            argv: carve(&mut rest, VECTOR, null())?,
            envp: carve(&mut rest, VECTOR, null())?,
            slots: carve(&mut rest, VECTOR, EnvSlot::EMPTY)?,
            actions: carve(&mut rest, ACTIONS, Action::Close { fds: &[] })?,
        })
    }

    /// Wipes the texts and the top of the stack; a child uses no more of it. Each text is written
    /// from its beginning on without gaps, so the first zeroed piece ends it.
    fn wipe(&mut self) {
        const PIECE: usize = 64;
        let words = self.at.cast::<u64>();
        let wipe = |from: usize| {
            let mut found = 0;
            for word in from..from + PIECE {
                // SAFETY: within the workspace, a multiple of 8 from its page.
                let word = unsafe { words.add(word) };
                // SAFETY: as above.
                found |= unsafe { word.read() };
                // SAFETY: as above. Volatile: the compiler knows that nothing reads it.
                unsafe { word.write_volatile(0) };
            }
            found != 0
        };
        for (n, &start) in TEXTS.iter().enumerate() {
            let end = TEXTS.get(n + 1).copied().unwrap_or(VECTORS);
            let _ = (start / 8..end / 8).step_by(PIECE).all(wipe);
        }
        const USED: usize = 4 << 10;
        for from in ((SIZE - USED) / 8..SIZE / 8).step_by(PIECE) {
            let _ = wipe(from);
        }
    }

    /// The child's stack.
    pub(super) fn stack(&self) -> Stack {
        Stack { lowest: self.at.wrapping_byte_add(SIZE - STACK), size: STACK }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.wipe();
        let number = (self.at as usize).wrapping_sub(reserve::WORKSPACES.address()) / SIZE;
        match TAKEN.get(number) {
            Some(taken) => taken.store(false, Release),
            None => crate::mappings::unmap_own(self.at, SIZE),
        }
    }
}

/// A process to start.
pub(super) struct Process<'a> {
    pub(super) path: &'a CStr,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    /// The child's actions on its descriptors, in order.
    pub(super) files: &'a [Action<'a>],
    /// Signals the caller ignores for its own sake; the program gets them back as default.
    pub(super) restore: SigSet,
    /// Signals the program starts with ignored, whatever the caller does with them.
    pub(super) ignored: SigSet,
    /// The mask the program starts with.
    pub(super) mask: SigSet,
}

impl Process<'_> {
    /// Starts it on the stack of a workspace and returns its pid: `EAGAIN` where no process can be
    /// made, for whatever reason. After an error nothing was executed and no process is left. No
    /// signal of one has come either: a child has no exit signal until it executes.
    pub(super) fn start(&self, stack: Stack) -> Result<i32, Errno> {
        let signals = [Action::Dispositions { default: self.restore, ignore: self.ignored }];
        let candidates = [Candidate { path: CPtr::from(self.path), script_argv: null() }];
        let report = Report::new();
        let launch = Launch {
            files: self.files,
            actions: &signals,
            exec: Exec {
                candidates: &candidates,
                argv: self.argv,
                envp: self.envp,
                mask: self.mask,
                no_core_dump: false,
                // A shell does not wait.
                wait_for_writers: false,
                past_any_error: false,
            },
            hint: 0,
            report: &report,
        };
        // SAFETY: the vectors are null-terminated; the stack is the caller's to give and unused.
        let pid = unsafe { suspended(&launch, stack) }.map_err(|_| Errno::EAGAIN)?;
        match report.failure() {
            None => Ok(pid),
            Some(failure) => {
                reap(pid);
                Err(failure.errno)
            }
        }
    }
}

/// Makes `to` a copy of `from`.
pub(super) fn connect(from: i32, to: i32) -> Action<'static> {
    if from == to { Action::Keep { fd: to } } else { Action::Dup { from, to } }
}

/// Closes one descriptor, open or not.
pub(super) fn close(fd: i32) -> Action<'static> {
    let fd = fd.cast_unsigned();
    Action::CloseRange { first: fd, last: fd, by_range: false, limit: fd + 1 }
}

/// Makes a child that carries out `launch`. The caller is suspended until the child executes a
/// program or ends. The child has no exit signal: it ends without one, and no wait without `__WALL`
/// or `__WCLONE` finds it (`eligible_child` of kernel/exit.c).
///
/// # Safety
/// As for [`start_suspended`], but for the mask.
pub(super) unsafe fn suspended(launch: &Launch<'_>, stack: Stack) -> Result<i32, Errno> {
    let before = signal::set_mask(SigSet::ALL)?;
    // SAFETY: the caller's contract, and the line above.
    let pid = unsafe { start_suspended(launch, stack, 0) };
    let _ = retry(|| signal::set_mask(before));
    pid
}

/// Waits for a child of this library that executes a program, through interruptions.
pub(super) fn wait(pid: i32) -> Result<i32, Errno> {
    loop {
        match process::wait4(pid, 0) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Waits for a child of this library, whatever its exit signal, and returns its status. `None`: it
/// is gone. Where SIGCHLD is ignored, children that send it reap themselves.
pub(super) fn reap(pid: i32) -> Option<i32> {
    retry(|| {
        loop {
            match process::wait4(pid, process::WALL) {
                Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => return Ok(None),
                other => return other.map(Some),
            }
        }
    })
    .unwrap_or(None)
}

/// The signals of libc's own that its posix_spawn, and so its system and popen, leave ignored in
/// the child. glibc leaves both of its two, from 2.38 on only where clone3 is refused
/// (sysdeps/unix/sysv/linux/spawni.c). musl leaves those of its three that have a handler
/// (src/process/posix_spawn.c).
pub(super) fn left_ignored() -> SigSet {
    if next::is_glibc_2_38() && clone::clone3_allowed().is_ok() {
        return SigSet::EMPTY;
    }
    let glibc = next::is_glibc();
    let has_handler = |signal| matches!(signal::disposition(signal), Ok(Disposition::Handler(_)));
    let mut ignored = SigSet::EMPTY;
    for signal in 32..=if glibc { 33 } else { 34 } {
        if glibc || has_handler(signal) {
            ignored = ignored.with(signal);
        }
    }
    ignored
}

/// The parts of a file's status that matter here.
pub(super) struct Stat {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) mode: u32,
}

/// `stat(2)`.
pub(super) fn stat(path: &CStr) -> Option<Stat> {
    let (device, inode, mode) = process::stat(CPtr::from(path)).ok()?;
    Some(Stat { device, inode, mode })
}
