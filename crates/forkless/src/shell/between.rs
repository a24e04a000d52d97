//! Asking `/bin/sh` by a process between, which the program does not find among its children.
//!
//! A program may have a handler for SIGCHLD, or a thread that waits for any child: a shell that it
//! did not start would be told to both. So the shell is the child of a process that shares the
//! program's memory and executes nothing. That process ends without a signal, and no wait without
//! `__WALL` or `__WCLONE` finds it. An exec would give it SIGCHLD for its exit signal (`de_thread`,
//! fs/exec.c), which is why the shell itself cannot be started so.
#![expect(unsafe_code, reason = "a child that shares memory")]

use crate::start::run_suspended;
use crate::start::stack::{SIZE, Stack};
use forkless_child::{Action, Candidate, Exec, Launch, Report, start_suspended};
use forkless_shell::probe::{Answer, Question};
use forkless_sys::signal::{self, SIGCHLD, SigSet};
use forkless_sys::{CPtr, Errno, fd, process};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;

/// The most that is read of a shell's answer.
const OUTPUT: usize = 64 << 10;

/// A shell's answer, with the bytes that it wrote.
#[derive(Debug)]
pub(super) struct Heard {
    output: Vec<u8>,
    end: End,
}

/// How a shell has ended.
#[derive(Clone, Copy, Debug)]
struct End {
    /// Bytes of output.
    len: usize,
    shell: i32,
    status: i32,
}

impl Heard {
    pub(super) fn answer(&self) -> Answer<'_> {
        let End { len, shell, status } = self.end;
        let output = self.output.get(..len).unwrap_or_default();
        // `None` for an end by a signal, the low seven bits.
        let exit_code = (status & 0x7f == 0).then_some(status >> 8 & 0xff);
        Answer { output, shell: shell as u32, directory: b"/", exit_code }
    }
}

/// Puts the question, and waits for the answer. `None` where that cannot be done so: no process or
/// memory is to be had, a call is refused, or an emulator of the kernel gives the process a copy of
/// the memory.
pub(super) fn ask(question: &Question) -> Option<Heard> {
    let (stack, shells_stack) = (Stack::new(SIZE).ok()?, Stack::new(SIZE).ok()?);
    let mut output = vec![0; OUTPUT];
    let environment: Vec<_> =
        question.environment.iter().map(|entry| entry.as_ptr()).chain([null()]).collect();
    let (lowest, size) = shells_stack.place();
    let mut between = Between {
        argv: [c"sh".as_ptr(), c"-c".as_ptr(), question.line.as_ptr(), null()],
        environment: &environment,
        stack: forkless_child::Stack { lowest, size },
        output: &mut output,
        end: None,
    };
    let (lowest, size) = stack.place();
    // SAFETY: a stack of its own, whose end is one of a page. `in_between` keeps the rules, and
    // nothing else uses its data until it has ended.
    let pid = unsafe { run_suspended(lowest, size, in_between, (&raw mut between).cast()) }.ok()?;
    let _ = reap(pid);
    let end = between.end?;
    Some(Heard { output, end })
}

/// Shared by the caller and the process between.
struct Between<'a> {
    argv: [*const c_char; 4],
    environment: &'a [*const c_char],
    /// The shell's, until it has executed.
    stack: forkless_child::Stack,
    output: &'a mut [u8],
    end: Option<End>,
}

/// The process between. No libc, no allocation, no panic.
unsafe extern "C" fn in_between(data: *mut c_void) -> c_int {
    // SAFETY: the caller's, which it does not look at while it is suspended.
    let between = unsafe { &mut *data.cast::<Between<'_>>() };
    between.end = between.ask().ok();
    0
}

impl Between<'_> {
    fn ask(&mut self) -> Result<End, Errno> {
        // A signal to the process group would end this process, and leave the shell to nobody.
        signal::set_mask(SigSet::ALL)?;
        // The program may close a pipe or a lock meanwhile, and means it. Or it has used up all its
        // numbers.
        fd::close_range(0, u32::MAX, 0)?;
        // Ignored, as the program may have it, SIGCHLD would cost the shell's status.
        signal::reset(SIGCHLD, false)?;
        process::chdir(CPtr::from(c"/"))?;
        let null_device = fd::openat(fd::AT_FDCWD, CPtr::from(c"/dev/null"), fd::O_RDWR, 0)?;
        let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
        let shell = self.start(write, null_device)?;
        let _ = fd::close(write);
        let mut len = 0;
        while let Some(room @ [_, ..]) = self.output.get_mut(len..) {
            match fd::read(read, room) {
                Err(Errno::EINTR) => {}
                Ok(0) | Err(_) => break,
                Ok(n) => len += n,
            }
        }
        // A shell that has more to say gets SIGPIPE.
        let _ = fd::close(read);
        Ok(End { len, shell, status: reap(shell)? })
    }

    fn start(&self, output: i32, null_device: i32) -> Result<i32, Errno> {
        // All were closed: the null device is 0, the pipe 1 and 2.
        let files = [Action::Dup { from: output, to: 1 }, Action::Dup { from: null_device, to: 2 }];
        // The terminal's keys are for the program, which could not be stopped before this shell has
        // ended. SIGQUIT waits, for the answer tells whether the shell ignores it.
        let signals = [Action::Dispositions {
            default: SigSet::EMPTY.with(SIGCHLD).with(libc::SIGQUIT),
            ignore: SigSet::EMPTY.with(libc::SIGINT).with(libc::SIGTSTP),
        }];
        let candidates = [Candidate { path: CPtr::from(c"/bin/sh"), script_argv: null() }];
        let report = Report::new();
        let launch = Launch {
            files: &files,
            actions: &signals,
            exec: Exec {
                candidates: &candidates,
                argv: self.argv.as_ptr(),
                envp: self.environment.as_ptr(),
                mask: SigSet::EMPTY.with(libc::SIGQUIT),
                no_core_dump: false,
                wait_for_writers: false,
                past_any_error: false,
            },
            hint: 0,
            report: &report,
        };
        // SAFETY: all signals are blocked, the vectors end with null, and the stack is unused.
        let pid = unsafe { start_suspended(&launch, self.stack, 0) }?;
        match report.failure() {
            None => Ok(pid),
            Some(failure) => {
                let _ = reap(pid);
                Err(failure.errno)
            }
        }
    }
}

/// Waits for a child whatever its exit signal, through interruptions.
fn reap(pid: i32) -> Result<i32, Errno> {
    loop {
        match process::wait4(pid, process::WALL) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}
