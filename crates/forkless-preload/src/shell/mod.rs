//! `system`, `popen` and `pclose`: lines that need no shell run without one, by the analysis of `forkless-shell` and under the obligations
//! its documentation lists. Everything else is given to `/bin/sh` as libc would, but by the same launcher, so that libc's
//! bookkeeping (ignored signals, open streams) and ours are never both in force.
//!
//! Ordinary code: libc may be called. Not supported: cancelling a thread that waits in `system`; it stays until the command ends.

mod ask;
mod launch;
mod line;
mod streams;
mod system;

use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_shell::ShellTraits;

at_hand! {
    /// 0: off. Else an index into [`KNOWN`], plus one, or one of the numbers below.
    static SHELL: AtomicU8 = AtomicU8::new(0);
    /// Device and inode of `/bin/sh` when it was asked what it is.
    static DEVICE: AtomicU64 = AtomicU64::new(0);
    static INODE: AtomicU64 = AtomicU64::new(0);
}

/// To be asked when the first line depends on it.
const UNASKED: u8 = 0x80;
/// A thread is asking; in a child, one was when it was forked. Lines go to the shell.
const ASKING: u8 = 0x81;
/// Asked, without an answer that we know. Lines go to the shell, by our launcher and not by libc's: lines of ours may be under way.
const UNKNOWN: u8 = 0x82;

const KNOWN: [(&[u8], ShellTraits); 3] =
    [(b"dash", ShellTraits::DASH), (b"bash", ShellTraits::BASH), (b"busybox", ShellTraits::BUSYBOX)];

/// `sh=NAME:DEVICE:INODE` of the options, or `sh=ask`.
pub(crate) fn configure(option: &[u8]) {
    if option == b"ask" {
        SHELL.store(UNASKED, Relaxed);
        return;
    }
    let mut parts = option.split(|b| *b == b':');
    let (name, mut number) = (parts.next(), || core::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok());
    let (Some(device), Some(inode)) = (number(), number()) else { return };
    if let Some(at) = KNOWN.iter().position(|(known, _)| Some(*known) == name) {
        learnt(at, device, inode);
    }
}

/// `/bin/sh` is this one of [`KNOWN`], as long as it is this file.
fn learnt(at: usize, device: u64, inode: u64) {
    DEVICE.store(device, Relaxed);
    INODE.store(inode, Relaxed);
    SHELL.store(at as u8 + 1, Release);
}

/// What `/bin/sh` is; `None` when this is not known, or the file is another one by now (a chroot).
fn traits() -> Option<ShellTraits> {
    let at = SHELL.load(Acquire).checked_sub(1)?;
    let (_, shell) = KNOWN.get(usize::from(at))?;
    let stat = launch::stat(c"/bin/sh")?;
    (stat.device == DEVICE.load(Relaxed) && stat.inode == INODE.load(Relaxed)).then_some(*shell)
}

/// Whether to stand aside: switched off, or in a speculative child, whose processes are to be judged as libc makes them.
fn aside() -> bool {
    crate::fork::speculating() || SHELL.load(Relaxed) == 0
}

/// One workspace is kept for the next call.
static SPARE: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());
