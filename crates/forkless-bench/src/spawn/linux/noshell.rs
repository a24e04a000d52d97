//! popen-noshell's way of starting programs, written anew from its published description: a pipe, a
//! child that moves descriptors with plain system calls and execs, a stdio stream in the parent. It
//! keeps the original's costs. An 8 MiB stack is allocated and freed for every child. The arguments
//! are copied, and the `compat` form splits a command string. The child's standard input is
//! `/dev/null`. (The published table says "no pipes" of the fork mode; the program that produced it
//! used one, and so does this.)
//!
//! Only stdio in the child is not kept: it would corrupt the parent's.

#![expect(unsafe_code, reason = "the workload is C: clone, fork, malloc, stdio")]

use std::ffi::{CString, c_void};
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::ptr;
use std::sync::Arc;

use libc::{c_char, c_int, pid_t};

use super::super::libc_methods::{FileActions, read_stream};
use super::super::worker::{Lap, SpawnedProgram, Worker, environment, pipe, reap};
use crate::clock::now;
use crate::error::Error;

/// How the child is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Clone,
    Spawn,
    Fork,
}

/// The six `noshell_*` methods.
pub(super) struct Noshell {
    pub(super) target: Arc<SpawnedProgram>,
    pub(super) mode: Mode,
    /// Split a command string (`popen_noshell_compat`) or take an argument vector
    /// (`popen_noshell`).
    pub(super) compat: bool,
    pub(super) name: &'static str,
}

const STACK_SIZE: usize = 8 << 20;

/// What the child needs, and what the parent frees after it.
struct Call {
    argv: Vec<*const c_char>,
    // Owns what `argv` points to: copied for each call, as popen-noshell does.
    _strings: Vec<CString>,
    read: c_int,
    write: c_int,
}

/// The 8 MiB stack.
struct Stack(*mut c_void);

impl Stack {
    fn new() -> Result<Stack, Error> {
        // SAFETY: malloc has no preconditions.
        let base = unsafe { libc::malloc(STACK_SIZE + 15) };
        if base.is_null() {
            Err(Error::last_os("allocate 8 MiB for a child's stack"))
        } else {
            Ok(Stack(base))
        }
    }

    fn top(&self) -> *mut c_void {
        let end = self.0.wrapping_byte_add(STACK_SIZE);
        end.wrapping_byte_add(end.align_offset(16))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the block came from malloc; the child that used it has been reaped.
        unsafe { libc::free(self.0) };
    }
}

impl Worker for Noshell {
    fn spawn(&mut self) -> Result<Lap, Error> {
        let start = now();
        let strings =
            if self.compat { split(self.target.command.as_bytes())? } else { vec![self.target.path.clone()] };
        let mut argv: Vec<*const c_char> = strings.iter().map(|string| string.as_ptr()).collect();
        argv.push(ptr::null());
        let (read, write) = pipe()?;
        let mut call = Call { argv, _strings: strings, read: read.as_raw_fd(), write: write.as_raw_fd() };
        let mut stack = None;
        let pid = match self.mode {
            Mode::Clone => {
                let stack = stack.insert(Stack::new()?);
                // SAFETY: the stack is fresh, CLONE_VFORK keeps `call` alive while the child reads
                // it, and the child makes only plain system calls. No exit signal, as popen-noshell
                // asks for none.
                unsafe {
                    libc::clone(
                        clone_child,
                        stack.top(),
                        libc::CLONE_VM | libc::CLONE_VFORK,
                        (&raw mut call).cast(),
                    )
                }
            }
            Mode::Fork => {
                // SAFETY: the child makes only async-signal-safe calls.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    become_program(&call);
                }
                pid
            }
            Mode::Spawn => spawn(&call)?,
        };
        if pid < 0 {
            return Err(Error::last_os(format!("start a child for {}", self.name)));
        }
        drop(write);
        let stream = open_stream(read)?;
        let returned = now();
        let read = read_stream(stream);
        // SAFETY: the stream is open and closed once.
        unsafe { libc::fclose(stream) };
        // A child without an exit signal is waited for only with __WALL.
        let status = reap(pid, libc::__WALL)?;
        drop(stack);
        drop(call);
        let reaped = now();
        read?;
        Error::check_status(self.name, status)?;
        Ok(Lap { start, returned, reaped })
    }
}

extern "C" fn clone_child(call: *mut c_void) -> c_int {
    // SAFETY: the parent passed a pointer to its own `Call` and is suspended until this child execs
    // or exits.
    become_program(unsafe { &*call.cast::<Call>() })
}

/// Standard input from /dev/null, standard output to the pipe, exec; in the order popen-noshell
/// moves descriptors.
fn become_program(call: &Call) -> ! {
    let fail = || -> ! {
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(127) }
    };
    let check = |result: c_int| {
        if result < 0 {
            fail();
        }
        result
    };
    // SAFETY: a static path.
    let null = check(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) });
    // SAFETY: the descriptors are this child's own copies: neither clone mode shares the table.
    check(unsafe { libc::close(0) });
    // SAFETY: as above.
    check(unsafe { libc::dup2(null, 0) });
    // SAFETY: as above.
    check(unsafe { libc::close(null) });
    // SAFETY: as above.
    check(unsafe { libc::close(call.read) });
    // SAFETY: as above.
    check(unsafe { libc::close(1) });
    // SAFETY: as above.
    check(unsafe { libc::dup2(call.write, 1) });
    // SAFETY: as above.
    check(unsafe { libc::close(call.write) });
    // SAFETY: the vector is NULL-terminated and its strings are alive; the path has a slash, so
    // nothing is searched or allocated.
    unsafe { libc::execvp(call.argv[0], call.argv.as_ptr()) };
    fail()
}

/// The same moves as posix_spawn file actions.
fn spawn(call: &Call) -> Result<pid_t, Error> {
    let mut actions = FileActions::new()?;
    actions.close(0)?;
    actions.open_null(0)?;
    actions.close(call.read)?;
    actions.close(1)?;
    actions.dup2(call.write, 1)?;
    actions.close(call.write)?;
    let mut pid = 0;
    // SAFETY: the actions are initialised, path and vectors valid.
    let errno = unsafe {
        libc::posix_spawnp(
            &raw mut pid,
            call.argv[0],
            actions.as_ptr(),
            ptr::null(),
            call.argv.as_ptr().cast(),
            environment().cast(),
        )
    };
    if errno == 0 { Ok(pid) } else { Err(Error::errno("posix_spawnp", errno)) }
}

fn open_stream(read: OwnedFd) -> Result<*mut libc::FILE, Error> {
    let descriptor = read.into_raw_fd();
    // SAFETY: the descriptor is open and now belongs to the stream.
    let stream = unsafe { libc::fdopen(descriptor, c"r".as_ptr()) };
    if stream.is_null() {
        let error = Error::last_os("fdopen");
        // SAFETY: no stream took it over.
        unsafe { libc::close(descriptor) };
        return Err(error);
    }
    Ok(stream)
}

/// Splits at blanks outside quotes; refuses what only a shell understands, as popen-noshell's
/// compat form does.
fn split(command: &[u8]) -> Result<Vec<CString>, Error> {
    let refuse = || Error::Spec("the command needs a shell, which noshell has not".into());
    let mut words: Vec<CString> = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    for &byte in command {
        match (quote, byte) {
            (_, b'!' | b'\\' | b'$' | b'`' | b'\n' | b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>') => {
                return Err(refuse());
            }
            (Some(open), _) if open == byte => quote = None,
            (None, b'\'' | b'"') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, b' ' | b'\t') => words.extend(word.take().and_then(|word| CString::new(word).ok())),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word.and_then(|word| CString::new(word).ok()));
    if quote.is_some() || words.is_empty() { Err(refuse()) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_string_is_split_at_blanks_outside_quotes() {
        let words = |command: &str| -> Vec<String> {
            let words = split(command.as_bytes()).unwrap();
            words.into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        assert_eq!(words(" /bin/a  b\t'c d' \"e'f\"g "), ["/bin/a", "b", "c d", "e'fg"]);
        for refused in ["", "  ", "a | b", "a 'b", "a $x", "a > b"] {
            assert!(split(refused.as_bytes()).is_err(), "{refused}");
        }
    }
}
