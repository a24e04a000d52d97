//! `system(3)`: SIGINT and SIGQUIT ignored and SIGCHLD blocked while it waits, for all threads that are in it together.
#![expect(unsafe_code, reason = "a function under libc's name; signal actions")]

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write as _;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_sys::signal::{self, KernelAction, SigSet};
use forkless_sys::{Errno, fd, process, sched};

use crate::next::Next;
use crate::signals::{SIGCHLD, SIGINT, SIGQUIT};

use super::line::{self, Told};

const SIG_IGN: usize = 1;

// SAFETY: its type.
static SYSTEM: Next<unsafe extern "C" fn(*const c_char) -> c_int> = unsafe { Next::new(c"system") };

pub(super) fn fail(errno: Errno) -> c_int {
    // SAFETY: the calling thread's errno.
    let at = unsafe { super::streams::__errno_location() };
    // SAFETY: as above.
    unsafe { *at = errno.raw() };
    -1
}

/// `system(3)`.
#[unsafe(no_mangle)]
extern "C" fn system(line: *const c_char) -> c_int {
    let environ = crate::next::environment().cast_const().cast::<*const c_char>();
    if line.is_null() || super::aside() || environ.is_null() {
        return libcs_own(line);
    }
    // SAFETY: not null, so a string, by system's contract.
    let line = unsafe { CStr::from_ptr(line) };
    super::ask::if_needed(line, environ);
    QUIET.enter();
    let before = signal::mask().unwrap_or_default();
    let _ = signal::set_mask(before.with(SIGCHLD));
    let terms =
        line::Terms { close: &[], first: &[], restore: QUIET.restore(), mask: before, errors_may_move: true };
    let result = line::start(line, environ, &terms).map(|s| (wait(s.pid), s.told));
    QUIET.leave();
    let _ = signal::set_mask(before);
    match result {
        Ok((Ok(status), told)) => told.map_or(status, |t| tell(status, &t)),
        Ok((Err(errno), told)) => {
            if let Some(t) = told {
                t.close();
            }
            fail(errno)
        }
        // What it means that no process can be made, each libc says in its own way, if it cannot either.
        Err(Errno::EAGAIN | Errno::ENOMEM) => libcs_own(line.as_ptr()),
        // As when the shell cannot be executed.
        Err(_) => 127 << 8,
    }
}

/// The next definition of `system`, with the caller's argument.
fn libcs_own(line: *const c_char) -> c_int {
    let Some(real) = SYSTEM.get() else { return fail(Errno::ENOSYS) };
    // SAFETY: the argument that `system` was called with.
    unsafe { real(line) }
}

/// Waits for a child of ours, through interruptions.
pub(super) fn wait(pid: i32) -> Result<c_int, Errno> {
    loop {
        match process::wait4(pid, 0) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// The status a shell would have given for a program that it waited for, and its message for one that was killed.
pub(super) fn tell(status: c_int, told: &Told) -> c_int {
    let signal = status & 0x7f;
    // A SIGINT from the keyboard ends the shell, too.
    let status = if signal == 0 || signal == SIGINT {
        status
    } else {
        if let Some(message) = told.shell.signal_message(signal as u8, status & 0x80 != 0) {
            let mut text = Text { bytes: [0; 64], len: 0 };
            let _ = write!(text, "{message}");
            if told.errors >= 0 {
                let _ = fd::write(told.errors, &text.bytes[..text.len]);
            }
        }
        (128 + signal) << 8
    };
    told.close();
    status
}

impl Told {
    pub(super) fn close(&self) {
        if self.opened >= 0 {
            let _ = fd::close(self.opened);
        }
    }
}

struct Text {
    bytes: [u8; 64],
    len: usize,
}

impl core::fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + s.len()).ok_or(core::fmt::Error)?;
        room.copy_from_slice(s.as_bytes());
        self.len += s.len();
        Ok(())
    }
}

/// SIGINT and SIGQUIT while anybody waits: the first in saves and ignores, the last out puts back.
struct Quiet {
    lock: AtomicBool,
    users: AtomicU32,
    saved: [[AtomicUsize; 3]; 2],
    masks: [AtomicU64; 2],
}

static QUIET: Quiet = Quiet {
    lock: AtomicBool::new(false),
    users: AtomicU32::new(0),
    saved: [const { [const { AtomicUsize::new(0) }; 3] }; 2],
    masks: [const { AtomicU64::new(0) }; 2],
};

impl Quiet {
    fn locked(&self, f: impl FnOnce()) {
        while self.lock.swap(true, Acquire) {
            sched::yield_now();
        }
        f();
        self.lock.store(false, Release);
    }

    fn enter(&self) {
        self.locked(|| {
            if self.users.fetch_add(1, Relaxed) == 0 {
                for (i, signal) in [SIGINT, SIGQUIT].into_iter().enumerate() {
                    let ignore = KernelAction { handler: SIG_IGN, ..KernelAction::DEFAULT };
                    // SAFETY: ignoring runs nothing.
                    if let Ok(old) = unsafe { signal::set_action(signal, &ignore) } {
                        self.saved[i][0].store(old.handler, Relaxed);
                        self.saved[i][1].store(old.flags, Relaxed);
                        self.saved[i][2].store(old.restorer, Relaxed);
                        self.masks[i].store(old.mask, Relaxed);
                    }
                }
            }
        });
    }

    fn leave(&self) {
        self.locked(|| {
            if self.users.fetch_sub(1, Relaxed) == 1 {
                for (i, signal) in [SIGINT, SIGQUIT].into_iter().enumerate() {
                    let old = KernelAction {
                        handler: self.saved[i][0].load(Relaxed),
                        flags: self.saved[i][1].load(Relaxed),
                        restorer: self.saved[i][2].load(Relaxed),
                        mask: self.masks[i].load(Relaxed),
                    };
                    // SAFETY: the action the program had.
                    let _ = unsafe { signal::set_action(signal, &old) };
                }
            }
        });
    }

    /// Those of the two that the program itself did not ignore.
    fn restore(&self) -> SigSet {
        let mut set = SigSet::EMPTY;
        for (i, signal) in [SIGINT, SIGQUIT].into_iter().enumerate() {
            if self.saved[i][0].load(Relaxed) != SIG_IGN {
                set = set.with(signal);
            }
        }
        set
    }
}
