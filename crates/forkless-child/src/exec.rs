//! Executing the program: the search of execvp(3), scripts without `#!`, and files that another
//! process still has open for writing.

use crate::{Candidate, Exec};
use core::sync::atomic::{AtomicU32, Ordering};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::time::{self, Timespec};
use forkless_sys::{Errno, process};

/// Signals whose default action dumps core (`signal(7)`, SIG_KERNEL_COREDUMP_MASK).
const DUMPS_CORE: SigSet =
    SigSet::EMPTY.with(3).with(4).with(5).with(6).with(7).with(8).with(11).with(24).with(25).with(31);

/// Signals of glibc's and musl's own. Neither libc lets a program block them, so a mask set through
/// libc leaves them out.
const OF_LIBC: SigSet = SigSet::EMPTY.with(32).with(33);

/// The mask for the program after the caller's functions have run: `wanted`, with the changes that
/// they made to the mask they found. They find every signal blocked, so a signal that they block
/// makes no difference.
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

/// Tries the candidates. Returns the index and errno of a failure: of the first candidate that
/// exists but may not be executed (or, past any error, cannot be), else of the last.
pub(crate) fn exec(program: &Exec<'_>, hint: usize, tried: &AtomicU32) -> (usize, Errno) {
    if program.no_core_dump {
        kill_instead_of_dumping(program.mask);
    }
    // Every disposition is default or ignored by now, so a signal that comes through runs no code
    // of the parent's.
    if let Err(e) = signal::set_mask(program.mask) {
        return (0, e);
    }
    let mut denied = None;
    let mut last = (0, Errno::ENOENT);
    let hinted = core::iter::once(hint).filter(|h| *h != 0);
    for i in hinted.chain(0..program.candidates.len()) {
        let Some(candidate) = program.candidates.get(i) else { continue };
        if tried.load(Ordering::Relaxed) != i as u32 {
            tried.store(i as u32, Ordering::Relaxed);
        }
        let errno = exec_one(program, candidate);
        last = (i, errno);
        match errno {
            Errno::ENOENT | Errno::ENOTDIR => {}
            Errno::EACCES => denied = denied.or(Some(last)),
            _ if program.past_any_error => denied = denied.or(Some(last)),
            // The same list as in glibc's execvpe: the next directory may still have the file. The
            // long name is a directory's, since a program with such a name is not searched. It
            // ended the search in glibc until 2026 (BZ 33626), and does so in musl.
            Errno::ESTALE | Errno::ENODEV | Errno::ETIMEDOUT | Errno::ENAMETOOLONG => {}
            _ => return last,
        }
    }
    denied.unwrap_or(last)
}

fn exec_one(program: &Exec<'_>, candidate: &Candidate<'_>) -> Errno {
    let script = candidate.script_argv;
    // A sibling forked by another thread may hold the file open for writing until its own exec; the
    // only remedy is to wait (golang.org/issue/22315). 1 + 2 + ... + 32 ms.
    let mut pause_ms = 1;
    loop {
        // SAFETY: the launch's vectors are null-terminated and live until this child has left.
        let errno = unsafe { process::execve(candidate.path, program.argv, program.envp) };
        match errno {
            Errno::ETXTBSY if program.wait_for_writers && pause_ms <= 32 => {
                let _ = time::nanosleep(Timespec { tv_sec: 0, tv_nsec: pause_ms * 1_000_000 });
                pause_ms *= 2;
            }
            Errno::ENOEXEC if !script.is_null() => {
                // SAFETY: as above. Where the shell is missing, too, the report keeps the script's
                // ENOEXEC, the error to mend.
                unsafe { process::execve(c"/bin/sh".into(), script, program.envp) };
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
            let _ = process::kill_self(9);
        }
        n += 1;
    }
}
