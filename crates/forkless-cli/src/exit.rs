//! How a subcommand ends: the exit codes every part of the tool shares, and the one place that
//! prints errors.

#![expect(unsafe_code, reason = "the dispositions of signals are set through libc")]

use std::fmt;
use std::process::ExitCode;

/// A subcommand's outcome when nothing went wrong with the tool itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done, nothing to report.
    Fine,
    /// The status of a line, or 125 to 127 of `run`.
    #[cfg(target_os = "linux")]
    Code(u8),
    /// 1: something the user asked to be told about: a regression, a diagnosis, a failed check.
    Finding,
}

/// An error that another command line would avoid: exit code 2, as clap's own errors.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

/// A privilege, facility or resource this machine does not give: exit code 3.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

/// A filter that leaves a suite nothing to measure: exit code 2, unless another suite has
/// something.
#[derive(Debug)]
pub(crate) struct Filtered(pub(crate) String);

impl fmt::Display for Filtered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
impl std::error::Error for Missing {}
impl std::error::Error for Filtered {}

/// Prints an error as one line on standard error and picks the exit code.
pub(crate) fn report(outcome: anyhow::Result<Exit>) -> ExitCode {
    match outcome {
        Ok(Exit::Fine) => ExitCode::SUCCESS,
        #[cfg(target_os = "linux")]
        Ok(Exit::Code(code)) => ExitCode::from(code),
        Ok(Exit::Finding) => ExitCode::FAILURE,
        Err(error) => {
            // Names of files and of methods may be anything.
            let line = crate::terminal::in_line(format!("{error:#}").trim_end());
            crate::terminal::complain!("forkless: {}", crate::terminal::plain(&line));
            if error.is::<Usage>() || error.is::<Filtered>() {
                ExitCode::from(2)
            } else if error.is::<Missing>() {
                ExitCode::from(3)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// The exit code where the stack's limit (`ulimit -s`) leaves too little to read a command line,
/// and one line that says so. Else this process would be killed by an overflow, in the middle of
/// anything.
#[cfg(target_os = "linux")]
pub(crate) fn small_stack() -> Option<ExitCode> {
    /// KiB for `run`, and for the several hundred flags of all subcommands: as measured, and a
    /// quarter more. Without optimisation a frame is larger.
    const LEAST: [u64; 2] = if cfg!(debug_assertions) { [256, 448] } else { [40, 104] };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } != 0 {
        return None;
    }
    // The environment and the arguments are above this frame, and count. Above them is the file's
    // name (the kernel's fs/exec.c, `bprm_execve`).
    // SAFETY: asks for a number.
    let top = unsafe { libc::getauxval(libc::AT_EXECFN) };
    let taken = top.saturating_sub((&raw const limit).addr() as u64);
    let is_run = std::env::args_os().nth(1).is_some_and(|word| word == "run");
    let [run, others] = LEAST;
    let least = if is_run { run } else { others } << 10;
    if limit.rlim_cur.saturating_sub(taken) >= least {
        return None;
    }
    crate::terminal::complain!(
        "forkless: the limit of the stack is {} KiB, and {} KiB are needed beside arguments and environment: \
         raise it (ulimit -s)",
        limit.rlim_cur >> 10,
        least >> 10
    );
    Some(ExitCode::from(if is_run { 125 } else { 3 }))
}

/// Has a write beyond the limit of a file's size fail, in place of killing this process with all
/// that it has measured. A handler, because what is ignored would be ignored in every program that
/// is started; where it is ignored already, it stays so.
pub(crate) fn survive_file_limit() {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing, and no other thread runs yet.
    if unsafe { libc::signal(libc::SIGXFSZ, handler) } == libc::SIG_IGN {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }
}

/// Gives SIGPIPE and SIGCHLD their default actions, before anything else runs. Rust's runtime
/// ignores SIGPIPE: `forkless ... | head` would panic, and every exec would hand the ignored signal
/// on to the programs that are measured or run. Where the caller ignores SIGCHLD, no wait for a
/// child would get its status.
pub(crate) fn restore_signals() {
    for signal in [libc::SIGPIPE, libc::SIGCHLD] {
        // SAFETY: setting a default disposition installs no handler; no other thread runs yet.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
