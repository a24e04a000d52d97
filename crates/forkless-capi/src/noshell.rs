//! `popen_noshell.h`: the functions of popen-noshell, for programs that only relink.
//!
//! Crate `forkless` makes the children of the `CLONE` and `POSIX_SPAWN` modes and of
//! `popen_noshell_vmfork`. The two modes keep the differences that a caller can see: the status of
//! a program that cannot be executed, and the effect of a bad `stderr_mode`. The `FORK` mode is in
//! `debug_fork`.
#![expect(unsafe_code, reason = "exported C symbols")]

use crate::debug_fork::{BAD_STDERR_MODE, EXEC_FAILED, Program};
use crate::error::Failure;
use crate::ffi::{Data, Text, Vector};
use crate::guard::as_libc;
use crate::popen::fdopen;
use forkless::{Child, Command, Stdio, Step};
use libc::{FILE, c_int, c_void, pid_t};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

const MODE_CLONE: c_int = 0;
const MODE_FORK: c_int = 1;
const MODE_POSIX_SPAWN: c_int = 2;

static MODE: AtomicI32 = AtomicI32::new(MODE_CLONE);

/// The exit code of its posix_spawn mode in place of 255.
const EXEC_FAILED_SPAWN: c_int = 127;

/// `struct popen_noshell_pass_to_pclose`, laid out as popen-noshell's callers were compiled.
#[repr(C)]
#[derive(Debug)]
pub struct PassToPclose {
    /// The stream.
    pub fp: *mut FILE,
    /// The child.
    pub pid: pid_t,
    /// Whether `stack` is set.
    pub free_clone_mem: c_int,
    /// Here: the child's handle, or null in the fork mode.
    stack: *mut c_void,
    /// Here: not used.
    pub func_args: *mut c_void,
}

/// Where `struct popen_noshell_pass_to_pclose` has its members, for comparison with the header:
/// offsets, and the size.
pub const PASS_TO_PCLOSE: [usize; 6] = [
    offset_of!(PassToPclose, fp),
    offset_of!(PassToPclose, pid),
    offset_of!(PassToPclose, free_clone_mem),
    offset_of!(PassToPclose, stack),
    offset_of!(PassToPclose, func_args),
    size_of::<PassToPclose>(),
];

/// See `popen_noshell.h`.
#[unsafe(no_mangle)]
pub extern "C" fn popen_noshell_set_fork_mode(mode: c_int) {
    MODE.store(mode, Ordering::Relaxed);
}

/// See `popen_noshell.h`.
#[unsafe(no_mangle)]
pub extern "C" fn popen_noshell_get_fork_mode() -> c_int {
    MODE.load(Ordering::Relaxed)
}

/// See `popen_noshell.h`.
#[unsafe(no_mangle)]
pub extern "C" fn popen_noshell(
    file: Text<'_>,
    argv: Vector<'_>,
    kind: Text<'_>,
    pclose_arg: Option<&mut MaybeUninit<PassToPclose>>,
    stderr_mode: c_int,
) -> *mut FILE {
    as_libc(null_mut(), || {
        let file = file.get().ok_or_else(|| Failure::null("file"))?;
        open(file, argv, kind, pclose_arg, stderr_mode)
    })
}

/// See `popen_noshell.h`.
#[unsafe(no_mangle)]
pub extern "C" fn popen_noshell_compat(
    command: Text<'_>,
    kind: Text<'_>,
    pclose_arg: Option<&mut MaybeUninit<PassToPclose>>,
) -> *mut FILE {
    as_libc(null_mut(), || {
        let command = command.get().ok_or_else(|| Failure::null("command"))?;
        let words = split(command.to_bytes())
            .ok_or_else(|| Failure::plain(libc::EINVAL, "the command needs a shell, or is empty"))?;
        let argv: Vec<Text<'_>> =
            words.iter().map(|w| Text::from(w.as_c_str())).chain([Text::NULL]).collect();
        // Neither is missing: `split` gives at least one word, and the vector ends with NULL.
        let file = words.first().ok_or_else(|| Failure::null("command"))?;
        let argv = Vector::new(&argv).ok_or_else(|| Failure::null("argv"))?;
        open(file, argv, kind, pclose_arg, 0)
    })
}

fn open(
    file: &CStr,
    argv: Vector<'_>,
    kind: Text<'_>,
    pclose_arg: Option<&mut MaybeUninit<PassToPclose>>,
    stderr_mode: c_int,
) -> Result<*mut FILE, Failure> {
    let place = pclose_arg.ok_or_else(|| Failure::null("pclose_arg"))?;
    let pass = place.write(PassToPclose {
        fp: null_mut(),
        pid: 0,
        free_clone_mem: 0,
        stack: null_mut(),
        func_args: null_mut(),
    });
    let read = match kind.get().map(CStr::to_bytes) {
        Some(b"r") => true,
        Some(b"w") => false,
        _ => return Err(Failure::plain(libc::EINVAL, "the type is neither r nor w")),
    };
    drop(argv.need("argv")?);
    let request = Program { file, argv, read, stderr_mode };
    if popen_noshell_get_fork_mode() == MODE_FORK {
        let (end, pid) = request.start()?;
        pass.fp = fdopen(end, read)?;
        pass.pid = pid;
        return Ok(pass.fp);
    }
    let mut child = start(&request)?;
    let end: Option<OwnedFd> =
        if read { child.stdout.take().map(Into::into) } else { child.stdin.take().map(Into::into) };
    let end = end.ok_or_else(|| Failure::plain(libc::EIO, "no pipe was made"))?;
    pass.fp = fdopen(end, read)?;
    pass.pid = child.id() as pid_t;
    pass.free_clone_mem = 1;
    pass.stack = Box::into_raw(Box::new(child)).cast();
    Ok(pass.fp)
}

/// Connects a child's descriptors as popen-noshell does: one end of the pipe, and `/dev/null` at
/// the other number.
fn wire(program: &Program<'_>, c: &mut Command) {
    c.inherit_descriptors(true).inherit_signals(true);
    // SAFETY: `forkless.h` asks it of the program, as getenv(3) does.
    unsafe { c.read_environ() };
    if program.read {
        c.stdin(Stdio::null()).stdout(Stdio::piped());
    } else {
        c.stdin(Stdio::piped()).stdout(Stdio::null());
    }
    match program.stderr_mode {
        1 => c.stderr(Stdio::null()),
        2 => c.stderr(Stdio::same_as(1)),
        _ => c,
    };
}

fn start(program: &Program<'_>) -> Result<Child, Failure> {
    let spawn_mode = popen_noshell_get_fork_mode() == MODE_POSIX_SPAWN;
    if !(0..=2).contains(&program.stderr_mode) {
        let message = format!("popen_noshell: unknown stderr_mode {}", program.stderr_mode);
        if spawn_mode {
            return Err(Failure::plain(libc::EINVAL, &message));
        }
        return stand_in(program, BAD_STDERR_MODE, &message);
    }
    let mut c = Command::new(OsStr::from_bytes(program.file.to_bytes()));
    let mut args = program.argv.need("argv")?;
    c.arg0(OsStr::from_bytes(args.next().unwrap_or_default().to_bytes()));
    c.args(args.map(|a| OsStr::from_bytes(a.to_bytes())));
    wire(program, &mut c);
    match c.spawn() {
        Ok(child) => Ok(child),
        Err(e) if e.step() == Step::Exec && spawn_mode => stand_in(program, EXEC_FAILED_SPAWN, ""),
        Err(e) if e.step() == Step::Exec => stand_in(program, EXEC_FAILED, &e.to_string()),
        Err(e) => Err(e.into()),
    }
}

/// A child that only writes `message` and ends with `code`: popen-noshell's callers learn of these
/// failures from the status.
fn stand_in(program: &Program<'_>, code: c_int, message: &str) -> Result<Child, Failure> {
    let mut sh = Command::new("/bin/sh");
    sh.args(["-c", r#"[ -z "$2" ] || printf '%s\n' "$2" >&2; exit "$1""#, "popen_noshell"]);
    sh.arg(code.to_string()).arg(message);
    wire(program, &mut sh);
    Ok(sh.spawn()?)
}

/// See `popen_noshell.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pclose_noshell(arg: Option<&mut PassToPclose>) -> c_int {
    as_libc(-1, || {
        let arg = arg.ok_or_else(|| Failure::null("arg"))?;
        if arg.fp.is_null() {
            return Err(Failure::plain(libc::EINVAL, "no stream, or already closed"));
        }
        // SAFETY: set by popen_noshell, and closed once: see the next line.
        let closed = unsafe { libc::fclose(arg.fp) };
        arg.fp = null_mut();
        let close_error = (closed != 0).then(|| Failure::from(io::Error::last_os_error()));
        let status = if arg.stack.is_null() {
            wait_all(arg.pid)?
        } else {
            // SAFETY: set by popen_noshell, and taken back once: see the next line.
            let mut child = unsafe { Box::from_raw(arg.stack.cast::<Child>()) };
            arg.stack = null_mut();
            arg.free_clone_mem = 0;
            child.wait()?.into_raw()
        };
        close_error.map_or(Ok(status), Err)
    })
}

fn wait_all(pid: pid_t) -> Result<c_int, Failure> {
    let mut status = 0;
    loop {
        // SAFETY: room for the status.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } == pid {
            return Ok(status);
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e.into());
        }
    }
}

/// Splits at blanks outside quotes, as popen-noshell does. `None` for characters that only a shell
/// understands, quoted or not, for an open quote, and for no word at all. An empty pair of quotes
/// is no word, as in popen-noshell.
fn split(command: &[u8]) -> Option<Vec<CString>> {
    let mut words = Vec::new();
    let mut word = Vec::new();
    let mut quote = None;
    for &c in command {
        match (quote, c) {
            (_, b'!' | b'\\' | b'$' | b'`' | b'\n' | b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>') => {
                return None;
            }
            (Some(open), _) if open == c => quote = None,
            (None, b'\'' | b'"') => quote = Some(c),
            (None, b' ' | b'\t') => {
                if !word.is_empty() {
                    words.push(CString::new(std::mem::take(&mut word)).ok()?);
                }
            }
            _ => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(CString::new(word).ok()?);
    }
    (quote.is_none() && !words.is_empty()).then_some(words)
}

/// For `fuzz/` alone.
#[cfg(any(fuzzing, test))]
#[must_use]
pub fn fuzzed_split(command: &[u8]) -> Option<Vec<CString>> {
    split(command)
}

/// popen-noshell's constant: room for the caller's function.
const STACK_SIZE: usize = 8 << 20;

/// `int (*)(void *)`.
type Function = extern "C" fn(Data) -> c_int;

/// A call of the caller's function.
struct Call {
    function: Function,
    data: Data,
}

/// See `popen_noshell.h`.
///
/// # Safety
/// `function` runs in this process's memory while the calling thread is suspended; `memory` gets a
/// block for free(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen_noshell_vmfork(
    function: Option<Function>,
    data: Data,
    memory: Option<&mut MaybeUninit<*mut c_void>>,
) -> pid_t {
    as_libc(-1, || {
        let function = function.ok_or_else(|| Failure::null("function"))?;
        let memory = memory.ok_or_else(|| Failure::null("place for the memory"))?;
        // SAFETY: no preconditions.
        let stack = unsafe { libc::malloc(STACK_SIZE) };
        if stack.is_null() {
            return Err(Failure::plain(libc::ENOMEM, "no memory for the child's stack"));
        }
        let size = STACK_SIZE - (stack as usize + STACK_SIZE) % 16;
        let mut call = Call { function, data };
        // SAFETY: a fresh stack; `call` stays in place while this thread is suspended; the header
        // asks the rest of the function.
        let made = unsafe { forkless::run_suspended(stack, size, in_child, (&raw mut call).cast()) };
        match made {
            Ok(pid) => {
                memory.write(stack);
                Ok(pid)
            }
            Err(e) => {
                // SAFETY: from malloc, and no child is on it.
                unsafe { libc::free(stack) };
                Err(e.into())
            }
        }
    })
}

/// In the child.
unsafe extern "C" fn in_child(call: *mut c_void) -> c_int {
    // SAFETY: the parent is suspended and keeps it.
    let call = unsafe { &*call.cast::<Call>() };
    (call.function)(call.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_is_popen_noshells() {
        let words = |s: &str| {
            split(s.as_bytes()).map(|w| w.iter().map(|w| w.to_str().unwrap().to_owned()).collect::<Vec<_>>())
        };
        let some = |w: &[&str]| Some(w.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(" abc ff  "), some(&["abc", "ff"]));
        assert_eq!(words("' abc   ff  ' "), some(&[" abc   ff  "]));
        assert_eq!(
            words("ls 'z'  'ab'g'z\" zz'   \" abc'd\" e"),
            some(&["ls", "z", "abgz\" zz", " abc'd", "e"])
        );
        assert_eq!(words("a '' b"), some(&["a", "b"]));
        for refused in ["", "   ", "   '", "ab\\c", "a|b", "Some b&d command", "echo '$x'"] {
            assert_eq!(words(refused), None, "{refused:?}");
        }
    }
}
