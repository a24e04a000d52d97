//! Becoming the program: the search of execvp(3), its scripts without `#!`, and files somebody still has open for writing.

use crate::Exec;
use core::ffi::c_char;
use core::sync::atomic::{AtomicU32, Ordering};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::time::{self, Timespec};
use forkless_sys::{CPtr, Errno, process};

/// Signals whose default action dumps core (`signal(7)`, SIG_KERNEL_COREDUMP_MASK).
const DUMPS_CORE: SigSet =
    SigSet::EMPTY.with(3).with(4).with(5).with(6).with(7).with(8).with(11).with(24).with(25).with(31);

/// glibc's and musl's own. Neither lets a program block them, so a mask that is set as a whole leaves them out.
const OF_LIBC: SigSet = SigSet::EMPTY.with(32).with(33);

/// The mask for the program where the caller's functions have run: `wanted`, changed as they have changed the one they found. In a
/// child that is every signal, so nothing shows of signals that they block.
pub(crate) fn mask_after_hooks(wanted: SigSet, before: SigSet) -> SigSet {
    let Ok(now) = signal::mask() else { return wanted };
    let set_whole = before.0 & OF_LIBC.0 == OF_LIBC.0 && now.0 & OF_LIBC.0 == 0;
    let put_back = now.0 | OF_LIBC.0 | 1 << 33 == before.0 | 1 << 33;
    if set_whole && !put_back {
        return now;
    }
    if set_whole {
        return wanted;
    }
    SigSet((wanted.0 & !(before.0 & !now.0)) | (now.0 & !before.0))
}

/// Tries the candidates and returns which one failed, and why: the first that was there but not allowed, else the last.
pub(crate) fn exec(what: &Exec<'_>, hint: usize, tried: &AtomicU32) -> (usize, Errno) {
    if what.no_core_dump {
        kill_instead_of_dumping(what.mask);
    }
    // Every disposition is default or ignored by now, so what is let through runs no code of the parent's.
    if let Err(e) = signal::set_mask(what.mask) {
        return (0, e);
    }
    let mut denied = None;
    let mut last = (0, Errno::ENOENT);
    let hinted = core::iter::once(hint).filter(|h| *h != 0);
    for i in hinted.chain(0..what.candidates.len()) {
        let Some(candidate) = what.candidates.get(i) else { continue };
        if tried.load(Ordering::Relaxed) != i as u32 {
            tried.store(i as u32, Ordering::Relaxed);
        }
        let errno = exec_one(candidate.path, what.argv, candidate.script_argv, what.envp);
        last = (i, errno);
        match errno {
            Errno::EACCES => denied = denied.or(Some(last)),
            // The same list as glibc's execvpe: the next directory may still have it. A directory too long for a path is passed over
            // there before it is tried.
            Errno::ENOENT
            | Errno::ENOTDIR
            | Errno::ESTALE
            | Errno::ENODEV
            | Errno::ETIMEDOUT
            | Errno::ENAMETOOLONG => {}
            _ => return last,
        }
    }
    denied.unwrap_or(last)
}

fn exec_one(
    path: CPtr<'_>,
    argv: *const *const c_char,
    script: *const *const c_char,
    envp: *const *const c_char,
) -> Errno {
    // A sibling forked by another thread may hold the file open for writing until its own exec; it has no other way of
    // knowing than to wait (golang.org/issue/22315). 1 + 2 + ... + 32 ms.
    let mut pause_ms = 1;
    loop {
        // SAFETY: the launch's vectors are null-terminated and live until this child has left.
        let errno = unsafe { process::execve(path, argv, envp) };
        match errno {
            Errno::ETXTBSY if pause_ms <= 32 => {
                let _ = time::nanosleep(Timespec { tv_sec: 0, tv_nsec: pause_ms * 1_000_000 });
                pause_ms *= 2;
            }
            Errno::ENOEXEC if !script.is_null() => {
                // SAFETY: as above. The shell's own absence is reported as the script's ENOEXEC: that is what is wrong with it.
                unsafe { process::execve(c"/bin/sh".into(), script, envp) };
                return errno;
            }
            _ => return errno,
        }
    }
}

fn kill_instead_of_dumping(mask: SigSet) {
    let Ok(pending) = signal::pending() else { return };
    let let_through = SigSet(pending.0 & DUMPS_CORE.0 & !mask.0);
    let mut n = 1;
    while n <= 31 {
        if let_through.has(n) && signal::disposition(n) == Ok(signal::Disposition::Default) {
            let _ = process::kill(process::getpid(), 9);
        }
        n += 1;
    }
}
