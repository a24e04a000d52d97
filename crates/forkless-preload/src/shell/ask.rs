//! Asking `/bin/sh` which shell it is from within the program (`sh=ask`): once for the process,
//! when the first line depends on it.
//!
//! The program must not find the asked shell among its children. So the shell is the child of an
//! asker. The asker shares the program's memory until it ends; it ends without a signal, and only
//! this library can wait for it. It executes nothing: an exec would give it SIGCHLD for its exit
//! signal (kernel exec.c, `de_thread`). Whatever fails, the shell stays unknown and gets every
//! line.
//!
//! While a thread asks, lines of other threads go to the shell. A child forked meanwhile, without
//! that thread, stays so.
#![expect(unsafe_code, reason = "a child that shares memory")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null;
use core::sync::atomic::{
    AtomicU8,
    Ordering::{Relaxed, Release},
};

use forkless_child::{Action, Exec, Function, Launch, Report, Stack};
use forkless_shell::ShellTraits;
use forkless_shell::probe::{self, Answer, ENVIRONMENT_LEN, Question};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::{CPtr, Errno, fd, process};

use crate::fork;
use crate::signals::{SIGCHLD, SIGINT, SIGQUIT, SIGTSTP};
use forkless_speculate::retry::retry;

use super::launch::{self, Process, SIZE, STACK, Workspace};
use super::{ASKING, SHELL, UNASKED, UNKNOWN, line};

/// Lines that still go to the shell before it is asked.
static LINES_LEFT: AtomicU8 = AtomicU8::new(0);

/// Has the shell asked when asking is worth it. The answer costs as much as four lines with their
/// shell, and most programs that have a line have no more than that.
pub(super) fn in_time() {
    LINES_LEFT.store(4, Relaxed);
    SHELL.store(UNASKED, Relaxed);
}

/// Called before anything is locked, blocked or ignored for the line: all of that would last until
/// the shell has answered.
pub(super) fn if_needed(line: &CStr, environ: *const *const c_char) {
    if SHELL.load(Relaxed) != UNASKED {
        return;
    }
    let Some(mut workspace) = Workspace::take() else { return };
    // The script's part is wiped.
    let Some(script) = workspace.parts().map(|parts| parts.script) else { return };
    if line::depends_on_the_shell(line, environ, script)
        && LINES_LEFT.fetch_update(Relaxed, Relaxed, |lines| lines.checked_sub(1)).is_err()
        && SHELL.compare_exchange(UNASKED, ASKING, Relaxed, Relaxed).is_ok()
        && ask(&mut workspace).is_none()
    {
        SHELL.store(UNKNOWN, Release);
    }
}

fn ask(workspace: &mut Workspace) -> Option<()> {
    // The first child of a new namespace has to be the line's.
    fork::children_stay().then_some(())?;
    // Before the question: the answer is then never one of an older file.
    let file = launch::stat(c"/bin/sh")?;
    let shell = by_an_asker(workspace)?;
    if shell == ShellTraits::UNKNOWN {
        return None;
    }
    super::remember(shell, file.device, file.inode);
    Some(())
}

/// Has an asker put the questions.
fn by_an_asker(workspace: &mut Workspace) -> Option<ShellTraits> {
    let stack = workspace.stack();
    let (output, shells_stack) = workspace.memory().split_at_mut_checked(OUTPUT)?;
    let shells_stack = Stack { lowest: shells_stack.as_mut_ptr().cast(), size: STACK };
    let mut asker = Asker { stack: shells_stack, output, null_device: -1, found: None };
    let run = [Action::Run(Function { call: in_asker, data: (&raw mut asker).cast(), mask: SigSet::ALL })];
    let report = Report::new();
    let nothing = null();
    let exec = Exec {
        candidates: &[],
        argv: &nothing,
        envp: &nothing,
        mask: SigSet::ALL,
        no_core_dump: false,
        wait_for_writers: false,
        past_any_error: false,
    };
    let launch = Launch { files: &[], actions: &run, exec, hint: 0, report: &report };
    // A handler that jumped away would leave the asker unreaped.
    let before = signal::set_mask(SigSet::ALL).ok()?;
    // SAFETY: the workspace's stack; nothing else uses `asker` until the child ends; `in_asker`
    // keeps the rules.
    let pid = unsafe { launch::suspended(&launch, stack) };
    if let Ok(pid) = pid {
        launch::reap(pid);
    }
    let _ = retry(|| signal::set_mask(before));
    asker.found
}

/// Bytes of a workspace for a shell's output. The asked shell's stack comes after it, then the
/// asker's.
const OUTPUT: usize = SIZE - 2 * STACK;

/// The process between. It shares the caller's memory, and nothing else: no libc, no allocation.
/// The analysis of the answers runs in it, for it has more stack than the caller may have.
unsafe extern "C" fn in_asker(data: *mut c_void) -> i32 {
    // SAFETY: the caller's asker, which it does not look at while it is suspended.
    let asker = unsafe { &mut *data.cast::<Asker<'_>>() };
    if asker.prepare().is_ok() {
        asker.found = probe::ask(asker);
    }
    0
}

/// Shared by the caller and the process between.
struct Asker<'a> {
    /// The asked shell's.
    stack: Stack,
    output: &'a mut [u8],
    /// Its descriptor.
    null_device: i32,
    found: Option<ShellTraits>,
}

/// A shell that was asked.
struct Asked {
    pid: i32,
    /// The end of a pipe.
    output: i32,
}

impl Asker<'_> {
    fn prepare(&mut self) -> Result<(), Errno> {
        // The asker must not hold the program's descriptors open for so long: a program that closes
        // a pipe or a lock means it. And the program may have used up all its numbers.
        fd::close_range(0, u32::MAX, 0)?;
        // With SIGCHLD ignored, as the program may have it, the shell would reap itself, and its
        // status would be lost.
        signal::reset(SIGCHLD, false)?;
        process::chdir(CPtr::from(c"/"))?;
        self.null_device = fd::openat(fd::AT_FDCWD, CPtr::from(c"/dev/null"), fd::O_RDWR, 0)?;
        Ok(())
    }

    fn start_shell(&self, question: &Question) -> Result<Asked, Errno> {
        let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
        let argv = [c"sh".as_ptr(), c"-c".as_ptr(), question.line.as_ptr(), null()];
        let mut envp = [null(); ENVIRONMENT_LEN + 1];
        for (pointer, entry) in envp.iter_mut().zip(question.environment) {
            *pointer = entry.as_ptr();
        }
        let pid = Process {
            path: c"/bin/sh",
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            // All were closed: the null device is 0, the pipe 1 and 2.
            files: &[Action::Dup { from: write, to: 1 }, Action::Dup { from: self.null_device, to: 2 }],
            restore: SigSet::EMPTY.with(SIGCHLD).with(SIGQUIT),
            // The terminal's keys are for the program, which could not be stopped before this shell
            // has ended. SIGQUIT waits, for the answer tells whether the shell ignores it.
            ignored: SigSet::EMPTY.with(SIGINT).with(SIGTSTP),
            mask: SigSet::EMPTY.with(SIGQUIT),
        }
        .start(self.stack)?;
        let _ = fd::close(write);
        Ok(Asked { pid, output: read })
    }
}

impl probe::Asker for Asker<'_> {
    type Shell = Asked;

    fn start(&mut self, question: &Question) -> Option<Asked> {
        self.start_shell(question).ok()
    }

    fn hear(&mut self, shell: Asked) -> Option<Answer<'_>> {
        let mut len = 0;
        while let Some(room @ [_, ..]) = self.output.get_mut(len..) {
            match fd::read(shell.output, room) {
                Err(Errno::EINTR) => {}
                Ok(0) | Err(_) => break,
                Ok(n) => len += n,
            }
        }
        // A shell that has more to say gets SIGPIPE.
        let _ = fd::close(shell.output);
        let status = launch::reap(shell.pid);
        // `None` for an end by a signal, the low seven bits.
        let exit_code = status.filter(|status| status & 0x7f == 0).map(|status| status >> 8 & 0xff);
        let output = self.output.get(..len).unwrap_or_default();
        Some(Answer { output, shell: shell.pid.cast_unsigned(), directory: b"/", exit_code })
    }
}
