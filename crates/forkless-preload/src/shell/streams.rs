//! `popen(3)`, `pclose(3)`, and `fclose(3)` of such a stream.
#![expect(unsafe_code, reason = "functions under libc's names; stdio")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_shell::ShellTraits;
use forkless_sys::signal::{self, SigSet};
use forkless_sys::{CPtr, Errno, fd};

use crate::errno::fail;
use crate::fork;
use crate::lazy_mapping::LazyMapping;
use crate::next::{Next, of_libc};
use crate::patience::wait_while;
use crate::reserve;
use crate::signals::uncancelled;

use super::launch::wait;
use super::line::{self, Pipe};
use super::message::{Ending, Errors, Signals, ignored_for_writing};

type Open<T> = unsafe extern "C" fn(T, *const c_char) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;

of_libc! {
    static FDOPEN: Open<c_int> = c"fdopen", "fdopen(3)";
    static POPEN: Open<*const c_char> = c"popen", "popen(3)";
    static PCLOSE: Close = c"pclose", "popen(3)";
    static FCLOSE: Close = c"fclose", "fclose(3)";
}

/// The most streams open at a time. Further streams are libc's.
const STREAMS: usize = 64;

struct Stream {
    /// Null: free. [`CLOSING`]: until it is closed.
    file: AtomicPtr<c_void>,
    pid: AtomicI32,
    fd: AtomicI32,
    /// Device and inode of the pipe that is being closed.
    pipe: [AtomicU64; 2],
    /// The shell whose status and message the end is turned into (`ShellTraits::to_bits`); 0: none,
    /// the end is told as it is.
    told: AtomicU8,
    /// Where its message goes ([`Errors`]): the descriptor, device, inode, time of birth, position.
    errors: (AtomicI32, [AtomicU64; 4]),
    /// Signals that a write may bring, ignored when it was opened.
    ignored: AtomicU64,
}

/// A stream that is being closed. Its buffer is written first, which may take long; other children
/// must not have the pipe meanwhile. To the program it is no stream any more. Once it is closed its
/// number may be another file's.
const CLOSING: *mut c_void = core::ptr::dangling_mut::<u8>().cast();

/// Mapped by the first `popen`.
// SAFETY: made of atomics.
static TABLE: LazyMapping<[Stream; STREAMS]> = unsafe { LazyMapping::new(reserve::STREAMS) };

/// How many streams of this library are open: with none, `fclose` looks no further.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Of [`TABLE`], how many were ever in use.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Whether some streams are libc's.
static OVERFLOWN: AtomicBool = AtomicBool::new(false);

fn streams() -> &'static [Stream] {
    TABLE.get().and_then(|all| all.get(..USED.load(Acquire))).unwrap_or_default()
}

/// Held while a stream is opened: POSIX wants every child to start without the streams of the
/// earlier ones.
static LOCK: AtomicBool = AtomicBool::new(false);

fn real_popen(line: *const c_char, mode: *const c_char) -> *mut c_void {
    let Some(real) = POPEN.get() else {
        fail(Errno::ENOSYS);
        return core::ptr::null_mut();
    };
    // SAFETY: the caller's arguments.
    unsafe { real(line, mode) }
}

/// `popen(3)`.
#[unsafe(no_mangle)]
extern "C" fn popen(line: *const c_char, mode: *const c_char) -> *mut c_void {
    let sandboxed = super::is_sandboxed();
    // libc closes its own streams in the child, but not this library's.
    if mode.is_null() || (sandboxed && OPEN.load(Acquire) == 0) || super::is_left_to_the_next() {
        return real_popen(line, mode);
    }
    // SAFETY: a string, by popen's contract.
    let known = known_mode(unsafe { CStr::from_ptr(mode) });
    let environ = crate::next::environment().cast_const().cast::<*const c_char>();
    let ours = known.filter(|_| !sandboxed && !line.is_null() && !environ.is_null());
    // SAFETY: a string, by popen's contract.
    let text = ours.map(|how| (unsafe { CStr::from_ptr(line) }, how));
    if let Some((text, _)) = text {
        super::ask::if_needed(text, environ);
    }
    wait_while(|| LOCK.swap(true, Acquire));
    let free = || TABLE.map().then(|| TABLE.iter().position(|s| s.file.load(Relaxed).is_null())).flatten();
    let result = text.filter(|_| !OVERFLOWN.load(Relaxed)).and_then(|(text, (reads, keeps))| {
        let at = free()?;
        USED.fetch_max(at + 1, Release);
        open(&TABLE[at], text, environ, reads, keeps).ok()
    });
    // Each libc has its own error for a process that cannot be made, for a shell that cannot be
    // executed (glibc's is ENOMEM), and for a bad mode. No descriptor or process of this library is
    // left by now.
    let file = result.unwrap_or_else(|| open_by_libc(line, mode));
    LOCK.store(false, Release);
    file
}

/// Whether the caller reads, and whether the stream is close-on-exec. `None`: libc handles this
/// mode, or reports it.
fn known_mode(mode: &CStr) -> Option<(bool, bool)> {
    match mode.to_bytes() {
        b"r" => Some((true, false)),
        b"w" => Some((false, false)),
        b"re" => Some((true, true)),
        b"we" => Some((false, true)),
        // To musl these are no modes.
        b"er" if crate::next::is_glibc() => Some((true, true)),
        b"ew" if crate::next::is_glibc() => Some((false, true)),
        _ => None,
    }
}

/// A stream of libc's. libc closes its own streams in the child, but not this library's: they are
/// close-on-exec meanwhile.
#[inline(never)]
fn open_by_libc(line: *const c_char, mode: *const c_char) -> *mut c_void {
    let mut marked = [core::ptr::null_mut(); STREAMS];
    for (mark, stream) in marked.iter_mut().zip(streams()) {
        if let Some(descriptor) = stream.descriptor()
            && fd::get_fd_flags(descriptor) == Ok(0)
        {
            *mark = stream.file.load(Relaxed);
            let _ = fd::set_cloexec(descriptor, true);
        }
    }
    let file = real_popen(line, mode);
    if !file.is_null() {
        OVERFLOWN.store(true, Relaxed);
    }
    for (mark, stream) in marked.into_iter().zip(streams()) {
        // Not for a stream that another thread closes meanwhile: its number may be another file's.
        if !mark.is_null() && mark != CLOSING && stream.file.load(Acquire) == mark {
            let _ = fd::set_cloexec(stream.fd.load(Relaxed), false);
        }
    }
    file
}

fn open(
    slot: &Stream,
    line: &CStr,
    environ: *const *const c_char,
    reads: bool,
    keeps: bool,
) -> Result<*mut c_void, Errno> {
    let (read, write) = fd::pipe2(fd::O_CLOEXEC)?;
    let (ours, theirs, target) = if reads { (read, write, 1) } else { (write, read, 0) };
    let mut others = [-1; STREAMS];
    let mut n = 0;
    for descriptor in streams().iter().filter_map(Stream::descriptor) {
        // The program may have closed a stream's descriptor itself, and the new pipe may have its
        // number.
        if descriptor != read && descriptor != write {
            others[n] = descriptor;
            n += 1;
        }
    }
    let pipe = Some(Pipe { from: theirs, to: target });
    let mask = signal::mask().unwrap_or_default();
    let terms = line::Terms { close: &others[..n], pipe, restore: SigSet::EMPTY, mask, is_stream: true };
    let started = line::start(line, environ, &terms);
    let _ = fd::close(theirs);
    let started = match started {
        Ok(started) => started,
        Err(errno) => {
            let _ = fd::close(ours);
            return Err(errno);
        }
    };
    if !keeps {
        let _ = fd::set_cloexec(ours, false);
    }
    let mode = if reads { c"r" } else { c"w" };
    // SAFETY: an open descriptor and a string.
    let file = FDOPEN.get().map_or(core::ptr::null_mut(), |fdopen| unsafe { fdopen(ours, mode.as_ptr()) });
    if file.is_null() {
        let _ = fd::close(ours);
        let _ = wait(started.pid);
        return Err(Errno::ENOMEM);
    }
    slot.pid.store(started.pid, Relaxed);
    slot.fd.store(ours, Relaxed);
    let (told, errors) = started.ending.map_or((0, Errors::NOWHERE), |e| (e.shell.to_bits(), e.errors));
    slot.told.store(told, Relaxed);
    let ignored = if told == 0 { SigSet::EMPTY } else { ignored_for_writing() };
    slot.ignored.store(ignored.0, Relaxed);
    slot.errors.0.store(errors.descriptor, Relaxed);
    for (place, value) in
        slot.errors.1.iter().zip([errors.device, errors.inode, errors.birth, errors.position])
    {
        place.store(value, Relaxed);
    }
    slot.file.store(file, Release);
    OPEN.fetch_add(1, Release);
    Ok(file)
}

fn identity(descriptor: i32) -> Result<[u64; 2], Errno> {
    fd::identity(descriptor, CPtr::from(c""), fd::AT_EMPTY_PATH).map(|(device, inode)| [device, inode])
}

/// This library's stream behind `file`.
fn slot_of(file: *mut c_void) -> Option<&'static Stream> {
    if file.is_null() || OPEN.load(Acquire) == 0 {
        return None;
    }
    streams().iter().find(|s| s.file.load(Acquire) == file)
}

impl Stream {
    /// Its descriptor, which children must not have.
    fn descriptor(&self) -> Option<i32> {
        let file = self.file.load(Acquire);
        let descriptor = self.fd.load(Relaxed);
        let is_pipe = || identity(descriptor) == Ok([0, 1].map(|n| self.pipe[n].load(Relaxed)));
        (!file.is_null() && (file != CLOSING || (!fork::sandboxed() && is_pipe()))).then_some(descriptor)
    }

    /// Closes it by libc's `fclose`. Its address may be another stream's from then on.
    fn close(&self, file: *mut c_void, pipe: [u64; 2]) -> c_int {
        for (place, value) in self.pipe.iter().zip(pipe) {
            place.store(value, Relaxed);
        }
        self.file.store(CLOSING, Release);
        let closed = real_close(&FCLOSE, file);
        self.file.store(core::ptr::null_mut(), Release);
        OPEN.fetch_sub(1, Release);
        closed
    }

    /// Device and inode of its pipe. A filter of the program's own may not allow the question.
    fn identity(&self) -> Result<[u64; 2], Errno> {
        if fork::sandboxed() { Ok([0; 2]) } else { identity(self.fd.load(Relaxed)) }
    }

    /// Closes the stream and waits for its program, as `pclose` does. Two cases are glibc's only: a
    /// stream that could not be closed does not wait (libio/iopopen.c, `_IO_new_proc_close`); and a
    /// failed write of the buffer is reported where the program ended with 0 (libio/fileops.c,
    /// `_IO_new_file_close_it`).
    fn end(&self, file: *mut c_void) -> c_int {
        let pid = self.pid.load(Relaxed);
        let shell = ShellTraits::from_bits(self.told.load(Relaxed));
        let [device, inode, birth, position] = [0, 1, 2, 3].map(|n| self.errors.1[n].load(Relaxed));
        let errors = Errors { descriptor: self.errors.0.load(Relaxed), device, inode, birth, position };
        let ignored = SigSet(self.ignored.load(Relaxed));
        let pipe = self.identity();
        let closed = self.close(file, pipe.unwrap_or_default());
        let tells = crate::next::is_glibc();
        if tells && pipe.is_err() {
            return fail(Errno::EBADF);
        }
        let status = match wait(pid) {
            Ok(status) if shell == ShellTraits::UNKNOWN => status,
            Ok(status) => {
                let ending = Ending { shell, errors, waits: false };
                ending.tell(status, &Signals::as_of(ignored))
            }
            Err(errno) => return fail(errno),
        };
        // The errno is that of closing it.
        if tells && status == 0 && closed != 0 { -1 } else { status }
    }
}

/// The next `pclose` or `fclose`.
fn real_close(next: &Next<Close>, file: *mut c_void) -> c_int {
    let Some(real) = next.get() else { return fail(Errno::ENOSYS) };
    // SAFETY: the caller's stream.
    unsafe { real(file) }
}

/// `pclose(3)`.
#[unsafe(no_mangle)]
extern "C" fn pclose(file: *mut c_void) -> c_int {
    match slot_of(file) {
        Some(slot) => uncancelled(|| slot.end(file)),
        None => real_close(&PCLOSE, file),
    }
}

/// `fclose(3)`. glibc's closes a stream of `popen` as `pclose` does (libio/iopopen.c,
/// `_IO_new_proc_close`), and programs rely on it. musl's does not wait for the program.
#[unsafe(no_mangle)]
extern "C" fn fclose(file: *mut c_void) -> c_int {
    if let Some(slot) = slot_of(file) {
        if crate::next::is_glibc() {
            return uncancelled(|| slot.end(file));
        }
        return slot.close(file, slot.identity().unwrap_or_default());
    }
    real_close(&FCLOSE, file)
}
