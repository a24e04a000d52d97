//! `popen_noshell.h`: the functions of popen-noshell, for programs that only relink.
//!
//! Its `CLONE` and `POSIX_SPAWN` modes both take this library's way; what a caller can tell them apart by is kept (the status of a
//! program that cannot be executed, and how a bad `stderr_mode` shows). Its `FORK` mode, kept for comparison, is the one place in
//! this project that forks. Not kept: stdio in the child, which would write the parent's buffers out a second time.
#![expect(unsafe_code, reason = "exported C symbols; fork and clone as the interface promises them")]

use crate::error::Failure;
use crate::ffi::{Data, Text, Vector};
use crate::guard::as_libc;
use crate::popen::fdopen;
use forkless::{Child, Command, Stdio, Step};
use libc::{FILE, c_int, c_void, pid_t};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

const MODE_CLONE: c_int = 0;
const MODE_FORK: c_int = 1;
const MODE_POSIX_SPAWN: c_int = 2;

static MODE: AtomicI32 = AtomicI32::new(MODE_CLONE);

/// Exit codes of popen-noshell's children.
const EXEC_FAILED: c_int = 255;
const BAD_STDERR_MODE: c_int = 254;
/// What its posix_spawn mode shows instead of 255.
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

/// Where `struct popen_noshell_pass_to_pclose` has its members, for comparison with the header: offsets, and the size.
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
        let (Some(file), Some(argv)) = (words.first(), Vector::new(&argv)) else { unreachable!("not empty") };
        open(file, argv, kind, pclose_arg, 0)
    })
}

struct Call<'a> {
    file: &'a CStr,
    argv: Vector<'a>,
    read: bool,
    stderr_mode: c_int,
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
    let call = Call { file, argv, read, stderr_mode };
    if popen_noshell_get_fork_mode() == MODE_FORK {
        let (end, pid) = call.fork()?;
        pass.fp = fdopen(end, read)?;
        pass.pid = pid;
        return Ok(pass.fp);
    }
    let mut child = call.start()?;
    let end: Option<OwnedFd> =
        if read { child.stdout.take().map(Into::into) } else { child.stdin.take().map(Into::into) };
    let end = end.ok_or_else(|| Failure::plain(libc::EIO, "no pipe was made"))?;
    pass.fp = fdopen(end, read)?;
    pass.pid = child.id() as pid_t;
    pass.free_clone_mem = 1;
    pass.stack = Box::into_raw(Box::new(child)).cast();
    Ok(pass.fp)
}

impl Call<'_> {
    /// The program with its descriptors, as popen-noshell connects them: one end of the pipe, and `/dev/null` at the other number.
    fn wire(&self, c: &mut Command) {
        c.inherit_descriptors(true).inherit_signals(true);
        // SAFETY: `forkless.h` asks it of the program, as getenv(3) does.
        unsafe { c.read_environ() };
        if self.read {
            c.stdin(Stdio::null()).stdout(Stdio::piped());
        } else {
            c.stdin(Stdio::piped()).stdout(Stdio::null());
        }
        match self.stderr_mode {
            1 => c.stderr(Stdio::null()),
            2 => c.stderr(Stdio::same_as(1)),
            _ => c,
        };
    }

    fn start(&self) -> Result<Child, Failure> {
        let spawn_mode = popen_noshell_get_fork_mode() == MODE_POSIX_SPAWN;
        if !(0..=2).contains(&self.stderr_mode) {
            let what = format!("popen_noshell: unknown stderr_mode {}", self.stderr_mode);
            if spawn_mode {
                return Err(Failure::plain(libc::EINVAL, &what));
            }
            return self.stand_in(BAD_STDERR_MODE, &what);
        }
        let mut c = Command::new(OsStr::from_bytes(self.file.to_bytes()));
        let mut args = self.argv.need("argv")?;
        c.arg0(OsStr::from_bytes(args.next().unwrap_or_default().to_bytes()));
        c.args(args.map(|a| OsStr::from_bytes(a.to_bytes())));
        self.wire(&mut c);
        match c.spawn() {
            Ok(child) => Ok(child),
            Err(e) if e.step() == Step::Exec && spawn_mode => self.stand_in(EXEC_FAILED_SPAWN, ""),
            Err(e) if e.step() == Step::Exec => self.stand_in(EXEC_FAILED, &e.to_string()),
            Err(e) => Err(e.into()),
        }
    }

    /// A child that only says `message` and ends with `code`: popen-noshell's callers learn of these failures from the status.
    fn stand_in(&self, code: c_int, message: &str) -> Result<Child, Failure> {
        let mut sh = Command::new("/bin/sh");
        sh.args(["-c", r#"[ -z "$2" ] || printf '%s\n' "$2" >&2; exit "$1""#, "popen_noshell"]);
        sh.arg(code.to_string()).arg(message);
        self.wire(&mut sh);
        Ok(sh.spawn()?)
    }

    /// The debug mode.
    fn fork(&self) -> Result<(OwnedFd, pid_t), Failure> {
        let mut ends = [0; 2];
        // SAFETY: room for both ends.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: just made, owned by nobody else; as the next.
        let reader = unsafe { OwnedFd::from_raw_fd(ends[0]) };
        // SAFETY: as above.
        let writer = unsafe { OwnedFd::from_raw_fd(ends[1]) };
        let (ours, theirs) = if self.read { (reader, writer) } else { (writer, reader) };
        let name = self.file.to_string_lossy();
        let exec_failed = format!("exec {name}: failed in the child, error ");
        let bad_mode = format!("popen_noshell: unknown stderr_mode {}\n", self.stderr_mode);
        // SAFETY: the child makes system calls only, and leaves by exec or _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error().into()),
            0 => self.forked(theirs.as_raw_fd(), &exec_failed, &bad_mode),
            pid => Ok((ours, pid)),
        }
    }

    /// In the forked child, which may be one of a threaded program: nothing that takes a lock.
    fn forked(&self, pipe: c_int, exec_failed: &str, bad_mode: &str) -> ! {
        let (mine, other) = if self.read { (1, 0) } else { (0, 1) };
        let check = |result: c_int| {
            if result < 0 {
                leave(EXEC_FAILED)
            }
            result
        };
        // The pipe first moves out of the way of what follows, where it has the number of a standard stream.
        // SAFETY: this process's own copy of the descriptor; no pointer.
        let pipe = check(unsafe { libc::fcntl(pipe, libc::F_DUPFD_CLOEXEC, 3) });
        // SAFETY: a static path.
        let null = check(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) });
        let onto = |from: c_int, to: c_int| {
            if from == to {
                // SAFETY: no pointer. dup2 would leave close-on-exec set.
                check(unsafe { libc::fcntl(to, libc::F_SETFD, 0) });
            } else {
                // SAFETY: no pointer.
                check(unsafe { libc::dup2(from, to) });
            }
        };
        onto(null, other);
        onto(pipe, mine);
        match self.stderr_mode {
            0 => {}
            1 => onto(null, 2),
            2 => onto(1, 2),
            _ => {
                say(bad_mode.as_bytes());
                leave(BAD_STDERR_MODE)
            }
        }
        // SAFETY: NUL-terminated strings and a vector that ends with NULL.
        unsafe { libc::execvp(self.file.as_ptr(), self.argv.as_ptr()) };
        let errno = crate::guard::errno();
        say(exec_failed.as_bytes());
        say(&decimal(errno));
        leave(EXEC_FAILED)
    }
}

/// A small number and a newline, without allocating.
fn decimal(n: c_int) -> [u8; 4] {
    let digit = |n: c_int| b'0' + (n.rem_euclid(10)) as u8;
    [digit(n / 100), digit(n / 10), digit(n), b'\n']
}

fn say(bytes: &[u8]) {
    // SAFETY: as many bytes as there are.
    unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
}

fn leave(code: c_int) -> ! {
    // SAFETY: ends this process without the parent's exit handlers and buffers.
    unsafe { libc::_exit(code) }
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

/// Words at blanks outside quotes, as popen-noshell splits: `None` for what only a shell understands, quoted or not, for an open quote,
/// and for no word at all. An empty pair of quotes is no word, as there.
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

/// popen-noshell's constant: room for the caller's function.
const STACK_SIZE: usize = 8 << 20;

/// `int (*)(void *)`.
type Function = extern "C" fn(Data) -> c_int;

struct Vmfork {
    function: Function,
    data: Data,
    mask: libc::sigset_t,
}

/// See `popen_noshell.h`.
///
/// # Safety
/// `function` runs in this process's memory while the calling thread is suspended; `memory` gets a block for free(3).
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
        let top = stack.wrapping_byte_add(STACK_SIZE);
        let top = top.wrapping_byte_sub(top as usize % 16);
        let mut all = MaybeUninit::uninit();
        // SAFETY: initialises the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut mask = MaybeUninit::zeroed();
        // A handler that ran in the child would work on this process's memory under another pid.
        // SAFETY: an initialised set and room for the old one.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), mask.as_mut_ptr()) };
        // SAFETY: filled by the call above, which cannot fail.
        let mut call = Vmfork { function, data, mask: unsafe { mask.assume_init() } };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        // SAFETY: a fresh stack, and CLONE_VFORK keeps `call` in place until the child has left. No exit signal, so that the child
        // is waited for with __WALL, as popen-noshell's are.
        let pid = unsafe { libc::clone(vmforked, top, flags, (&raw mut call).cast()) };
        let error = io::Error::last_os_error();
        // SAFETY: the set this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &call.mask, null_mut()) };
        if pid < 0 {
            // SAFETY: from malloc, and no child is on it.
            unsafe { libc::free(stack) };
            return Err(error.into());
        }
        memory.write(stack);
        Ok(pid)
    })
}

/// In the child: no handler of the program's, the caller's mask, then the caller's function.
extern "C" fn vmforked(call: *mut c_void) -> c_int {
    // SAFETY: the parent is suspended and keeps it.
    let call = unsafe { &*call.cast::<Vmfork>() };
    for signal in 1..=64 {
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: room for the action. The child has a table of its own (no CLONE_SIGHAND).
        if unsafe { libc::sigaction(signal, std::ptr::null(), old.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: filled, and all zeros would be valid.
        let mut action = unsafe { old.assume_init() };
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
            action.sa_sigaction = libc::SIG_DFL;
            // SAFETY: an action the kernel gave, with the default handler.
            unsafe { libc::sigaction(signal, &action, null_mut()) };
        }
    }
    // SAFETY: an initialised set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &call.mask, null_mut()) };
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

    #[test]
    fn numbers_are_written_without_allocating() {
        assert_eq!(&decimal(2), b"002\n");
        assert_eq!(&decimal(133), b"133\n");
    }
}
