//! Calls that the suite makes on Linux alone: raw ones, and those in programs of a few
//! instructions.

// The parent module's expectation of unsafe code covers this file.

use std::ffi::{CString, c_long};
use std::hint::black_box;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use super::BATCH;
use crate::clock::now;
use crate::engine::Arm;
use crate::error::Error;
use crate::guard::Guard;
use crate::program::{Kind, Program};
use crate::spawn::worker::{environment, reap};
use crate::suites::batch::Batch;
use crate::suites::blobs;
use crate::tracing;

/// Calls in a program of their own: enough for its start not to matter, few enough for a tracer.
const MASK_CALLS: u64 = 4_000;

/// The programs, ready to be started.
pub(super) struct Programs {
    countdown: Program,
    mask_loop: Program,
    /// Tells whether a tracer has run it.
    write: Program,
    tracer: Option<PathBuf>,
}

impl Programs {
    pub(super) fn prepare(tracer: Option<PathBuf>, mut guard: Option<&mut Guard>) -> Result<Programs, Error> {
        Ok(Programs {
            countdown: Program::assembled(blobs::countdown(), &["0000000"], guard.as_deref_mut())?,
            mask_loop: Program::assembled(blobs::mask_loop(), &["0"], guard.as_deref_mut())?,
            write: Program::prepare(&Kind::Write, guard)?,
            tracer,
        })
    }

    /// The arm of a call that is Linux's own; `None` for one that every system has.
    pub(super) fn arm(
        &self,
        name: &str,
        via: &str,
        overhead: f64,
    ) -> Option<Result<Box<dyn Arm + '_>, Error>> {
        let cheap = |call: fn()| {
            Batch::arm(BATCH, overhead, move |calls| {
                for _ in 0..calls {
                    call();
                }
                Ok(())
            })
        };
        Some(Ok(match (name, via) {
            ("getpid", "raw") => cheap(|| {
                black_box(raw(libc::SYS_getpid, [0; 4]));
            }),
            ("gettimeofday", "raw") => cheap(|| {
                let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
                raw(libc::SYS_gettimeofday, [(&raw mut time) as usize, 0, 0, 0]);
                black_box(time);
            }),
            ("clock_monotonic", "raw") => cheap(|| {
                let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                raw(
                    libc::SYS_clock_gettime,
                    [libc::CLOCK_MONOTONIC as usize, (&raw mut time) as usize, 0, 0],
                );
                black_box(time);
            }),
            ("sigprocmask", "raw") => cheap(|| {
                let mut set = 0_u64;
                let arguments = [libc::SIG_SETMASK as usize, 0, (&raw mut set) as usize, 8];
                raw(libc::SYS_rt_sigprocmask, arguments);
                black_box(set);
            }),
            ("sigprocmask", "program") => self.external(None),
            ("sigprocmask", "traced") => match self.tracer.clone() {
                Some(tracer) => match self.try_tracer(&tracer) {
                    Ok(()) => self.external(Some(tracer)),
                    Err(error) => return Some(Err(error)),
                },
                None => {
                    let why = "no tracer: install strace, or name another one";
                    return Some(Err(Error::Missing(why.into())));
                }
            },
            ("execve", "raw") => self.exec_chain(overhead),
            _ => return None,
        }))
    }

    /// Fails unless the tracer runs a program to its end here. One that does not run it would seem
    /// to cost nothing.
    fn try_tracer(&self, tracer: &Path) -> Result<(), Error> {
        let mut command = Command::new(tracer);
        command.args(["-o", "/dev/null"]).arg(self.write.os_path());
        let said = last_words(&mut command).map_err(|error| cannot_run(tracer, &error))?;
        if said.status.success() && !said.stdout.is_empty() {
            return Ok(());
        }
        let name = tracer.display();
        if said.status.success() {
            return Err(Error::Missing(format!("{name} did not run the program: it takes -o FILE PROGRAM?")));
        }
        let complaint = String::from_utf8_lossy(&said.stderr);
        let complaint = complaint.lines().find(|line| !line.trim().is_empty()).map(str::trim);
        let complaint = complaint.map_or_else(String::new, |line| format!(" and said: {line}"));
        let why = tracing::why_refused().map_or_else(String::new, |why| format!(" ({why})"));
        Err(Error::Missing(format!("{name} ended with {}{complaint}{why}", said.status)))
    }

    /// Thousands of calls in a program of their own, with or without a tracer; what it takes to
    /// start it is measured each time with none, and subtracted.
    fn external(&self, tracer: Option<PathBuf>) -> Box<dyn Arm + '_> {
        let run = move |calls: u64| -> Result<f64, Error> {
            let program = &self.mask_loop;
            let mut command = match &tracer {
                Some(tracer) => {
                    let mut command = Command::new(tracer);
                    command.args(["-o", "/dev/null"]).arg(program.os_path());
                    command
                }
                None => Command::new(program.os_path()),
            };
            command.arg(calls.to_string());
            let start = now();
            let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
            let elapsed = now() - start;
            let status = status.map_err(|error| match &tracer {
                Some(tracer) => cannot_run(tracer, &error),
                None => Error::io("run a program of system calls")(error),
            })?;
            if !status.success() {
                return Err(Error::Missing(format!("the program of system calls ended with {status}")));
            }
            #[expect(clippy::cast_precision_loss, reason = "nanoseconds of one program")]
            Ok(elapsed as f64)
        };
        Batch::timed_arm(MASK_CALLS, move |calls| Ok((run(calls)? - run(0)?).max(0.0)))
    }

    /// One child that execs itself a hundred times.
    fn exec_chain(&self, overhead: f64) -> Box<dyn Arm + '_> {
        const EXECS: u64 = 100;
        let path = self.countdown.path();
        Batch::arm(EXECS, overhead, move |execs| exec_chain(path, execs))
    }
}

/// Runs a command to its end, with what it has printed until then. A tracer that a filter kills
/// leaves a stopped child with its pipes: nothing of its group outlives this.
fn last_words(command: &mut Command) -> io::Result<Output> {
    /// A tracer that waits for something else is none.
    const PATIENCE: Duration = Duration::from_secs(10);
    let ((mut output, to_output), (mut errors, to_errors)) = (io::pipe()?, io::pipe()?);
    command.stdin(Stdio::null()).stdout(to_output).stderr(to_errors).process_group(0);
    let mut child = command.spawn()?;
    // The writing ends of this process, which would never see an end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: the group of a child that has not been reaped, or of what it has left.
    unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
    let status = child.wait()?;
    let mut said = Output { status, stdout: Vec::new(), stderr: Vec::new() };
    output.read_to_end(&mut said.stdout)?;
    errors.read_to_end(&mut said.stderr)?;
    Ok(said)
}

fn cannot_run(tracer: &Path, error: &io::Error) -> Error {
    Error::Spec(format!("cannot run the tracer {}: {error}", tracer.display()))
}

#[inline]
fn raw(number: c_long, [a, b, c, d]: [usize; 4]) -> c_long {
    // SAFETY: callers pass what the call wants: numbers, or pointers to locals of the right size.
    unsafe { libc::syscall(number, a, b, c, d) }
}

/// A child that execs itself so many times.
pub fn exec_chain(path: &CString, count: u64) -> Result<(), Error> {
    let digits = CString::new(format!("{count:07}")).unwrap_or_default();
    let argv = [path.as_ptr(), digits.as_ptr(), ptr::null()];
    let mut pid = 0;
    // SAFETY: path and vectors are valid C strings and arrays.
    let errno = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            path.as_ptr(),
            ptr::null(),
            ptr::null(),
            argv.as_ptr().cast(),
            environment().cast(),
        )
    };
    if errno != 0 {
        return Err(Error::errno("start a program that execs itself", errno));
    }
    Error::check_status("execve", reap(pid, 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_that_execs_itself_counts_down_exactly() {
        let program = Program::assembled(blobs::countdown(), &["0000000"], None).unwrap();
        let strace = std::path::Path::new("/usr/bin/strace");
        if !strace.exists() {
            println!("skipped: strace is not installed");
            return;
        }
        let output = Command::new(strace)
            .args(["-e", "trace=execve"])
            .arg(program.os_path())
            .arg("0000012")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        // The tracer's own exec of the program, and twelve of itself.
        assert_eq!(text.lines().filter(|line| line.starts_with("execve(")).count(), 13, "{text}");
    }
}
