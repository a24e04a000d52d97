//! The system's allocator, and one line with an exit code where it has nothing left. Left to
//! itself, Rust aborts there with a trace of the stack. Who asks for more than [`LARGE`] gets the
//! refusal: some parts have an answer to it (`Vec::try_reserve`), and go on.

#![expect(unsafe_code, reason = "GlobalAlloc, write and _exit")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::sync::atomic::{AtomicI32, Ordering};

/// Bytes. No part of the command has an answer where so little is refused.
const LARGE: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: OneLine = OneLine;

/// As for other memory that is missing.
static CODE: AtomicI32 = AtomicI32::new(3);

/// From here on lack of memory is a failure of `run`, whose other codes are the program's.
pub(crate) fn end_as_run_does() {
    CODE.store(125, Ordering::Relaxed);
}

struct OneLine;

// SAFETY: every call goes to the system's allocator unchanged, and returns what that returned.
unsafe impl GlobalAlloc for OneLine {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        or_end(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's.
        or_end(unsafe { System.realloc(start, layout, size) }, size)
    }
}

#[inline]
fn or_end(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && bytes <= LARGE {
        end(bytes);
    }
    memory
}

#[cold]
fn end(bytes: usize) -> ! {
    let mut line = [0; 160];
    let size = line.len();
    let mut rest = &mut line[..];
    let said = "free memory, or raise its limit (ulimit -v, ulimit -d)";
    // No allocation: the text is written into the array.
    let _ = writeln!(rest, "forkless: no memory: {bytes} bytes cannot be had; {said}");
    let length = size - rest.len();
    // SAFETY: the pointer and the length are those of the line.
    unsafe { libc::write(2, line.as_ptr().cast(), length) };
    // No destructor: it may allocate. The guarding process undoes what had been changed.
    // SAFETY: ends the process.
    unsafe { libc::_exit(CODE.load(Ordering::Relaxed)) }
}
