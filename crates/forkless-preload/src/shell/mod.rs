//! `system`, `popen` and `pclose`: lines that need no shell run without one, by the analysis of
//! `forkless-shell` and under the duties that its documentation lists. `/bin/sh` gets every other
//! line, as from libc, but by this library's launcher. Otherwise libc's bookkeeping (ignored
//! signals, open streams) and this library's could both be in force.
//!
//! Ordinary code: it may call libc. Not supported: cancelling a thread that waits in `system`; it
//! stays until the command ends.

mod ask;
mod exec;
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

pub(crate) use exec::{PosixSpawn, Program, Spawn, note_file_action, replace, spawn};
pub(crate) use rights::note_rights;

/// The shell: 0 is off. Else its traits (`ShellTraits::to_bits`), or one of the numbers below,
/// which are larger.
static SHELL: AtomicU8 = AtomicU8::new(0);
/// Device and inode of `/bin/sh` when it was asked which shell it is.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// To be asked when the first line depends on it.
const UNASKED: u8 = 0x80;
/// A thread is asking, or was when this process was forked. Lines go to the shell.
const ASKING: u8 = 0x81;
/// Asked, and no known shell. Lines go to the shell by this library's launcher, not by libc's:
/// other lines of it may be under way.
const UNKNOWN: u8 = 0x82;

/// Takes over the option `shell`.
pub(crate) fn configure(shell: Shell) {
    match shell {
        Shell::Unknown => {}
        Shell::Ask => SHELL.store(UNASKED, Relaxed),
        Shell::AskInTime => ask::in_time(),
        Shell::Known(KnownShell { traits, device, inode }) => remember(traits, device, inode),
    }
}

/// `/bin/sh` is this, as long as it is this file.
fn remember(shell: ShellTraits, device: u64, inode: u64) {
    DEVICE.store(device, Relaxed);
    INODE.store(inode, Relaxed);
    SHELL.store(shell.to_bits(), Release);
}

/// Whether a file is the shell that was asked, and one that gives no rights to whoever executes it.
fn is_the_shell(file: &launch::Stat) -> bool {
    const SET_ID: u32 = 0o6000;
    file.mode & SET_ID == 0 && file.device == DEVICE.load(Relaxed) && file.inode == INODE.load(Relaxed)
}

/// The traits of `/bin/sh`. `None` when they are not known, the file is another one by now (a
/// chroot), or the caller may not execute it.
fn traits() -> Option<ShellTraits> {
    let shell = ShellTraits::from_bits(SHELL.load(Acquire));
    if shell.kind() == ShellKind::Unknown {
        return None;
    }
    let is_same = is_the_shell(&launch::stat(c"/bin/sh")?);
    (is_same && process::may_execute(CPtr::from(c"/bin/sh")).is_ok()).then_some(shell)
}

/// Whether to leave the call to the next library: this is switched off, or under valgrind; or this
/// is a speculative child, whose processes are judged as libc makes them; or another library has
/// such functions of its own, which may do more than libc's.
fn is_left_to_the_next() -> bool {
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

/// Whether the program has a filter of its own for system calls. It allows the calls of libc, so
/// the line is for libc, and no question is asked before.
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

/// Whether another library has such functions: 1 if not, 2 if one has, 0 until it was looked up.
static OTHERS: AtomicU8 = AtomicU8::new(0);
