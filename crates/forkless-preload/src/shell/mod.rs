//! `system`, `popen` and `pclose`: lines that need no shell run without one, by the analysis of `forkless-shell` and under the obligations
//! its documentation lists. Everything else is given to `/bin/sh` as libc would, but by the same launcher, so that libc's
//! bookkeeping (ignored signals, open streams) and ours are never both in force.
//!
//! Ordinary code: libc may be called. Not supported: cancelling a thread that waits in `system`; it stays until the command ends.

mod ask;
mod launch;
mod line;
mod message;
mod rights;
mod streams;
mod system;

use core::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_run::{Counter, KnownShell, Shell};
use forkless_shell::{ShellKind, ShellTraits};
use forkless_sys::{CPtr, process};

use crate::{rt, tally};

pub(crate) use launch::WORKSPACES_LEN;
pub(crate) use rights::note_rights;
pub(crate) use streams::LEN as STREAMS_LEN;

/// 0: off. Else what it is (`ShellTraits::to_bits`), or one of the numbers below, which are larger.
static SHELL: AtomicU8 = AtomicU8::new(0);
/// Device and inode of `/bin/sh` when it was asked what it is.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// To be asked when the first line depends on it.
const UNASKED: u8 = 0x80;
/// A thread is asking; in a child, one was when it was forked. Lines go to the shell.
const ASKING: u8 = 0x81;
/// Asked, without an answer that we know. Lines go to the shell, by our launcher and not by libc's: lines of ours may be under way.
const UNKNOWN: u8 = 0x82;

/// What the options say of the shell.
pub(crate) fn configure(shell: Shell) {
    match shell {
        Shell::Unknown => {}
        Shell::Ask => SHELL.store(UNASKED, Relaxed),
        Shell::Known(KnownShell { traits, device, inode }) => learnt(traits, device, inode),
    }
}

/// `/bin/sh` is this, as long as it is this file.
fn learnt(shell: ShellTraits, device: u64, inode: u64) {
    DEVICE.store(device, Relaxed);
    INODE.store(inode, Relaxed);
    SHELL.store(shell.to_bits(), Release);
}

/// What `/bin/sh` is; `None` when this is not known, the file is another one by now (a chroot), or the caller may not execute it.
fn traits() -> Option<ShellTraits> {
    let shell = ShellTraits::from_bits(SHELL.load(Acquire));
    if shell.kind() == ShellKind::Unknown {
        return None;
    }
    let stat = launch::stat(c"/bin/sh")?;
    let is_same = stat.device == DEVICE.load(Relaxed) && stat.inode == INODE.load(Relaxed);
    (is_same && process::may_execute(CPtr::from(c"/bin/sh")).is_ok()).then_some(shell)
}

/// Whether to stand aside: switched off, under valgrind, or in a speculative child, whose processes are to be judged as libc makes them; or
/// another library has functions of its own for this, which may do more than libc's.
fn aside() -> bool {
    if crate::fork::speculating() || SHELL.load(Relaxed) == 0 || rt::is_translated() {
        return true;
    }
    if OTHERS.load(Relaxed) == 0 {
        let others = crate::objects::others_define("system\0popen\0pclose\0");
        OTHERS.store(1 + u8::from(others), Relaxed);
    }
    let others = OTHERS.load(Relaxed) == 2;
    if others {
        tally::add(Counter::ShellsKept, 1);
    }
    others
}

/// Whether the program has rules of its own for system calls. They are made for what libc calls, so the line is for libc, and nothing
/// is asked before.
fn is_sandboxed() -> bool {
    if SHELL.load(Relaxed) == 0 {
        return false;
    }
    crate::filters::learn();
    let sandboxed = crate::fork::sandboxed();
    if sandboxed {
        tally::add(Counter::ShellsKept, 1);
    }
    sandboxed
}

/// Whether they have: 1 if not, 2 if they have, 0 until it was looked up.
static OTHERS: AtomicU8 = AtomicU8::new(0);
