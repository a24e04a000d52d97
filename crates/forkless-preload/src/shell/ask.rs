//! Asking `/bin/sh` what it is from within the program (`sh=ask`): when the first line depends on it, once for the process.
//!
//! The program must not find the asked shell among its children. So it is the child of an asker, a process that shares the program's memory
//! until it ends, that sends no signal then and that only we can wait for. The asker executes nothing: an exec would give it
//! SIGCHLD for its exit signal (kernel exec.c, `begin_new_exec`). Whatever fails, the shell stays unknown and gets every line.
//!
//! While a thread asks, lines of others go to the shell. A child forked meanwhile, without that thread, stays so.
#![expect(unsafe_code, reason = "a child that shares memory")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null;
use core::sync::atomic::Ordering::{Relaxed, Release};

use forkless_shell::{ShellTraits, probe};
use forkless_sys::signal::{self, SigSet};
use forkless_sys::{CPtr, Errno, fd, process};

use crate::fork;
use crate::signals::{SIGCHLD, SIGINT, SIGQUIT, SIGTSTP};
use forkless_speculate::retry::retry;

use super::launch::{self, Launch, SIZE, STACK, Step, Workspace};
use super::{ASKING, SHELL, UNASKED, UNKNOWN, line};

/// Before anything is locked, blocked or ignored for the line: all of that would last as long as the shell takes to answer.
pub(super) fn if_needed(line: &CStr, environ: *const *const c_char) {
    if SHELL.load(Relaxed) != UNASKED {
        return;
    }
    let Some(mut workspace) = Workspace::take() else { return };
    // The part that is wiped off.
    let Some(script) = workspace.parts().map(|parts| parts.script) else { return };
    if line::depends_on_the_shell(line, environ, script)
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
    let heard = put(workspace, probe::LINE, &probe::ENVIRONMENT)?;
    let mut shell = heard.traits;
    if shell.needs_applet_probe() {
        let heard = put(workspace, probe::APPLET_LINE, &probe::APPLET_ENVIRONMENT)?;
        if let Some(status) = heard.status {
            shell = shell.with_applet_probe(status >> 8 & 0xff);
        }
    }
    if shell == ShellTraits::UNKNOWN {
        return None;
    }
    super::learnt(shell, file.device, file.inode);
    Some(())
}

/// What a shell answered, in the workspace's memory.
struct Heard {
    len: usize,
    /// The asked shell's process id, as its parent and so its /proc have it.
    shell: i32,
    /// Its wait status.
    status: Option<i32>,
    /// What its answer means. The asker finds that out, which has more stack than the caller may have.
    traits: ShellTraits,
}

/// Has an asker run a line by `/bin/sh` with an environment.
fn put(workspace: &mut Workspace, line: &CStr, environment: &[&CStr]) -> Option<Heard> {
    let stack = workspace.stack();
    let (answer, shells_stack) = workspace.memory().split_at_mut_checked(ANSWER)?;
    let heard = Heard { len: 0, shell: 0, status: None, traits: ShellTraits::UNKNOWN };
    let mut question =
        Question { line, environment, stack: shells_stack.as_mut_ptr() as usize, answer, heard };
    // A handler that jumped away would leave the asker unreaped.
    let before = signal::set_mask(SigSet::ALL).ok()?;
    // SAFETY: the workspace's stack; `question` is used by nobody else until the asker ends; `asker` keeps the rules.
    let asker = unsafe { launch::suspended(stack, 0, asker, (&raw mut question).cast()) };
    if let Ok(asker) = asker {
        launch::reap(asker);
    }
    let _ = retry(|| signal::set_mask(before));
    Some(question.heard)
}

/// Bytes of a workspace for the answer; the asked shell's stack is behind it, and the asker's behind that.
const ANSWER: usize = SIZE - 2 * STACK;

/// What the caller and the asker share.
struct Question<'a> {
    line: &'a CStr,
    environment: &'a [&'a CStr],
    /// Where the asked shell starts.
    stack: usize,
    answer: &'a mut [u8],
    heard: Heard,
}

/// The process between. Shares the caller's memory, and nothing else: no libc, no allocation.
unsafe extern "C" fn asker(data: *mut c_void) -> ! {
    // SAFETY: the caller's question, which it does not look at while it is suspended.
    let question = unsafe { &mut *data.cast::<Question<'_>>() };
    let _ = question.put();
    process::exit_group(0)
}

impl Question<'_> {
    fn put(&mut self) -> Result<(), Errno> {
        // The program's descriptors are not held open for as long as this takes: who closes a pipe or a lock means it. And it may have
        // used up all its numbers.
        fd::close_range(0, u32::MAX, 0)?;
        // A program that ignores SIGCHLD would have the shell reap itself, and its status lost.
        signal::reset(SIGCHLD, false)?;
        process::chdir(CPtr::from(c"/"))?;
        let nowhere = fd::openat(fd::AT_FDCWD, CPtr::from(c"/dev/null"), fd::O_RDWR, 0)?;
        let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
        self.heard.shell = self.start(nowhere, write)?;
        let _ = fd::close(write);
        while let Some(room @ [_, ..]) = self.answer.get_mut(self.heard.len..) {
            match fd::read(read, room) {
                Err(Errno::EINTR) => {}
                Ok(0) | Err(_) => break,
                Ok(n) => self.heard.len += n,
            }
        }
        // One that has more to say is told that nobody listens.
        let _ = fd::close(read);
        self.heard.status = launch::reap(self.heard.shell);
        let said = self.answer.get(..self.heard.len).unwrap_or_default();
        self.heard.traits = ShellTraits::from_probe(said, self.heard.shell.cast_unsigned(), b"/");
        Ok(())
    }

    fn start(&self, nowhere: i32, write: i32) -> Result<i32, Errno> {
        let argv = [c"sh".as_ptr(), c"-c".as_ptr(), self.line.as_ptr(), null()];
        let mut envp = [null(); probe::ENVIRONMENT.len() + 1];
        for (pointer, entry) in envp.iter_mut().zip(self.environment) {
            *pointer = entry.as_ptr();
        }
        Launch {
            path: c"/bin/sh",
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            close: &[],
            // All were closed: `nowhere` is 0, the pipe 1 and 2.
            steps: &[Step::Copy { from: write, to: 1 }, Step::Copy { from: nowhere, to: 2 }],
            restore: SigSet::EMPTY.with(SIGCHLD),
            // The terminal's keys are for the program, which could not be stopped before this shell has ended.
            ignored: SigSet::EMPTY.with(SIGINT).with(SIGQUIT).with(SIGTSTP),
            mask: SigSet::EMPTY,
        }
        .start(self.stack)
    }
}
