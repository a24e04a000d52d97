//! Starting a process without copying anything: `clone3` with `CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND`, on a stack of its own.
#![expect(unsafe_code, reason = "a child that shares memory")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{
    AtomicBool, AtomicI32,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_shell::EnvSlot;
use forkless_sys::clone::{self, CLONE_CLEAR_SIGHAND, CLONE_VFORK, CLONE_VM};
use forkless_sys::signal::{self, Disposition, SigSet};
use forkless_sys::{CPtr, Errno, fd, mm, process, sched};
use linux_raw_sys::general::RLIMIT_NOFILE;

use crate::{next, reserve};
use forkless_speculate::retry::retry;

/// Memory for one launch: the analysis, the vectors, the child's stack. Little of the caller's stack is used, as libc uses little: threads and
/// handlers may have no more than 16 KiB. Text is wiped off when it is given back, for a line may hold a password, which the program erases.
pub(super) struct Workspace {
    at: *mut c_void,
}

/// Where a workspace's pieces of text begin: the script, the strings the shell would make, the program's path, PWD, OLDPWD. The vectors come after
/// them, the stack last.
const TEXTS: [usize; 5] = [0, 48 << 10, 72 << 10, 78 << 10, 83 << 10];
const VECTORS: usize = 84 << 10;
/// Strings of environment and argument vectors that are laid out; longer ones are for the shell.
pub(super) const VECTOR: usize = 256;
const STEPS: usize = 32;

/// A workspace as the launch of a line without a shell divides it.
pub(super) struct Parts<'m> {
    pub(super) script: &'m mut [u8],
    pub(super) own: &'m mut [u8],
    pub(super) path: &'m mut [u8],
    pub(super) current: &'m mut [u8],
    pub(super) previous: &'m mut [u8],
    /// All null.
    pub(super) argv: &'m mut [*const c_char],
    pub(super) envp: &'m mut [*const c_char],
    pub(super) slots: &'m mut [EnvSlot<'m>],
    pub(super) steps: &'m mut [Step<'m>],
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
    // SAFETY: just written, and borrowed as long as `own`, which nobody else has.
    Some(unsafe { core::slice::from_raw_parts_mut(at, n) })
}

/// Bytes of a workspace.
pub(super) const SIZE: usize = 128 << 10;
/// Bytes of a child's stack.
pub(super) const STACK: usize = 32 << 10;

/// Workspaces in the reserve. A launch takes one for as long as its child needs to execute.
const WORKSPACES: usize = 2;
const _: () = assert!(WORKSPACES * SIZE <= reserve::WORKSPACES.len(), "room for them");

/// In a child that was forked while another thread launched, that thread's stays taken.
static TAKEN: [AtomicBool; WORKSPACES] = [const { AtomicBool::new(false) }; WORKSPACES];

impl Workspace {
    /// One of the reserve; with more launches at a time, one of the moment, wherever the kernel has room.
    pub(super) fn take() -> Option<Workspace> {
        if let Some(free) = TAKEN.iter().position(|taken| !taken.swap(true, Acquire)) {
            // They stay usable; two threads at once ask for the same.
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

    /// The part that is not the stack.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        // SAFETY: ours alone until it is given back.
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
            steps: carve(&mut rest, STEPS, Step::Close(-1))?,
        })
    }

    /// Wipes off the texts, and the top of the stack, which is all that a child uses. Each text is written from its beginning on without gaps, so
    /// that the first piece of zeroes ends it.
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
                // SAFETY: as above. Volatile: the compiler knows that nobody reads it.
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

    /// Lowest address of the child's stack.
    pub(super) fn stack(&self) -> usize {
        self.at as usize + SIZE - STACK
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

/// What becomes of a descriptor in the child, in order.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    /// `to` becomes a copy of `from`.
    Copy { from: i32, to: i32 },
    /// Closed.
    Close(i32),
    /// Closed, from this one on.
    CloseFrom(i32),
    /// Copied to 10 or above until the exec, if it is open: a shell puts a descriptor there before it redirects it, and fails
    /// where no number is left.
    Save(i32),
    /// `to` becomes this file. The child opens it: in the caller it would take a number that another thread may be about to get, and a
    /// terminal could become that of the caller's session.
    Open { path: &'a CStr, flags: u32, to: i32 },
}

/// A process to start.
pub(super) struct Launch<'a> {
    pub(super) path: &'a CStr,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    /// Descriptors that are closed before the steps.
    pub(super) close: &'a [i32],
    pub(super) steps: &'a [Step<'a>],
    /// Signals the caller ignores for its own sake, which the program gets back as default.
    pub(super) restore: SigSet,
    /// Signals the program starts with ignored, whatever the caller does with them.
    pub(super) ignored: SigSet,
    /// The mask the program starts with.
    pub(super) mask: SigSet,
}

/// Without clone3, which has `CLONE_CLEAR_SIGHAND`: the child takes the program's handlers out itself.
static NO_CLONE3: AtomicBool = AtomicBool::new(false);

/// What parent and child share while the parent is suspended.
struct Shared<'a> {
    launch: &'a Launch<'a>,
    errno: AtomicI32,
}

impl Launch<'_> {
    /// Starts it on the stack of a workspace and returns its pid: `EAGAIN` where no process can be made, for whatever reason. An error means
    /// that nothing was executed and no process is left, nor a signal of one: until it executes the child has no exit signal, then it gets SIGCHLD (`de_thread` of fs/exec.c).
    pub(super) fn start(&self, stack: usize) -> Result<i32, Errno> {
        let shared = Shared { launch: self, errno: AtomicI32::new(0) };
        // SAFETY: the stack is the caller's to give and unused, `shared` outlives the child's use of this memory, and the entry never returns.
        let pid = unsafe { suspended(stack, 0, begin, (&raw const shared).cast_mut().cast()) };
        let pid = pid.map_err(|_| Errno::EAGAIN)?;
        match shared.errno.load(Relaxed) {
            0 => Ok(pid),
            errno => {
                reap(pid);
                Err(Errno::from_raw(errno))
            }
        }
    }
}

/// Runs `entry(data)` in a child that shares this memory; the caller is suspended until the child executes a program or ends. With an
/// `exit_signal` of 0 it ends without a signal, and no wait without `__WALL` or `__WCLONE` finds it (`eligible_child` of kernel/exit.c).
///
/// # Safety
/// `stack` is the lowest address of [`STACK`] unused bytes, on a page. `entry` never returns, calls no libc and allocates nothing.
pub(super) unsafe fn suspended(
    stack: usize,
    exit_signal: i32,
    entry: clone::Entry,
    data: *mut c_void,
) -> Result<i32, Errno> {
    let mut args = clone::args();
    args.flags = u64::from(CLONE_VM | CLONE_VFORK) | CLONE_CLEAR_SIGHAND;
    args.exit_signal = exit_signal as u64;
    args.stack = stack as u64;
    args.stack_size = STACK as u64;
    // A signal the child received would run the program's handler in shared memory: none until it has handlers no more,
    // which CLONE_CLEAR_SIGHAND sees to, and its own mask.
    let before = signal::set_mask(SigSet::ALL)?;
    let mut pid = Err(Errno::ENOSYS);
    if !NO_CLONE3.load(Relaxed) {
        // SAFETY: the caller's contract; `data` stays in use no longer than we are suspended (CLONE_VFORK).
        pid = unsafe { clone::clone3(&args, entry, data) };
    }
    if matches!(pid, Err(Errno::ENOSYS | Errno::EPERM)) {
        // As in containers whose filter cannot look into its arguments (Docker's).
        NO_CLONE3.store(true, Relaxed);
        let top = (stack + STACK) as *mut c_void;
        // SAFETY: as above.
        pid = unsafe {
            clone::clone(CLONE_VM | CLONE_VFORK, exit_signal as u32, top, null_mut(), null_mut(), entry, data)
        };
    }
    let _ = retry(|| signal::set_mask(before));
    pid
}

/// Waits for a child of our own, whatever its exit signal: its status. It may be gone, `None`: where SIGCHLD is ignored, children that send it
/// reap themselves.
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

/// The child. Shares the parent's memory: no libc, no allocation.
unsafe extern "C" fn begin(data: *mut c_void) -> ! {
    // SAFETY: the parent's `shared`, alive while it is suspended.
    let shared = unsafe { &*data.cast::<Shared<'_>>() };
    let launch = shared.launch;
    let errno = match arrange(launch) {
        // SAFETY: null-terminated vectors of the parent's.
        Ok(()) => unsafe { process::execve(CPtr::from(launch.path), launch.argv, launch.envp) },
        Err(errno) => errno,
    };
    shared.errno.store(errno.raw(), Relaxed);
    process::exit_group(127)
}

fn arrange(launch: &Launch<'_>) -> Result<(), Errno> {
    for &descriptor in launch.close {
        let _ = fd::close(descriptor);
    }
    for step in launch.steps {
        match *step {
            Step::Copy { from, to } if from == to => fd::set_cloexec(to, false)?,
            Step::Copy { from, to } => fd::dup3(from, to, 0)?,
            Step::Close(fd) => drop(fd::close(fd)),
            Step::CloseFrom(first) => close_from(first),
            Step::Save(fd) => match fd::dup_cloexec(fd, 10) {
                Ok(_) | Err(Errno::EBADF) => {}
                Err(errno) => return Err(errno),
            },
            Step::Open { path, flags, to } => {
                let at = open(path, flags)?;
                if at != to {
                    fd::dup3(at, to, 0)?;
                    fd::close(at)?;
                }
            }
        }
    }
    let stay = NO_CLONE3.load(Relaxed);
    for signal in 1..=64 {
        let has_handler = || matches!(signal::disposition(signal), Ok(Disposition::Handler(_)));
        if launch.restore.has(signal) || launch.ignored.has(signal) || (stay && has_handler()) {
            signal::reset(signal, launch.ignored.has(signal))?;
        }
    }
    signal::set_mask(launch.mask).map(drop)
}

fn close_from(first: i32) {
    if fd::close_range(first.cast_unsigned(), u32::MAX, 0).is_ok() {
        return;
    }
    // A filter that does not know it.
    const MOST: u64 = 1 << 20;
    let limit = sched::getrlimit(RLIMIT_NOFILE).map_or(MOST, |limit| limit.hard.min(MOST));
    for descriptor in first..limit as i32 {
        let _ = fd::close(descriptor);
    }
}

/// Opens a regular file or the null device; an error where that would wait for somebody (a lease, maybe the caller's own), as the shell can.
fn open(path: &CStr, flags: u32) -> Result<i32, Errno> {
    let at = fd::openat(fd::AT_FDCWD, CPtr::from(path), flags | fd::O_NONBLOCK, 0o666)?;
    fd::set_status_flags(at, flags)?;
    Ok(at)
}

/// The signals of libc's own that its posix_spawn, and so its system and popen, leave ignored in the child: glibc both of its two
/// (sysdeps/unix/sysv/linux/spawni.c), musl those of its three that have a handler (src/process/posix_spawn.c).
pub(super) fn left_ignored() -> SigSet {
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

/// The facts of a file that matter here.
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
