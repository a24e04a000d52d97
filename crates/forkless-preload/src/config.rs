//! What is switched on: read once, when the library is loaded, from `FORKLESS_RUN` (written by `forkless run`) and `FORKLESS` (the
//! off switch). Loading costs one walk over the environment and no system call.
#![expect(unsafe_code, reason = "walks the C environment")]

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};

use forkless_record::{DEFAULT_MINIMUM, OPTIONS_VARIABLE, SWITCH_VARIABLE};

/// Which processes speculate.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fork {
    Off = 0,
    /// Those with a single thread.
    Strict = 1,
    /// All.
    Speculate = 2,
}

at_hand! {
    static FORK: AtomicU8 = AtomicU8::new(Fork::Off as u8);
    static MINIMUM: AtomicUsize = AtomicUsize::new(DEFAULT_MINIMUM);
    static LIMIT_MS: AtomicU32 = AtomicU32::new(50);
    static LEARN: AtomicBool = AtomicBool::new(true);
    static ROOT: AtomicU32 = AtomicU32::new(0);
    static RECORD: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
}

pub(crate) fn fork() -> Fork {
    match FORK.load(Relaxed) {
        1 => Fork::Strict,
        2 => Fork::Speculate,
        _ => Fork::Off,
    }
}

/// Private memory in bytes below which a fork is left alone.
pub(crate) fn minimum() -> usize {
    MINIMUM.load(Relaxed)
}

/// How long a child may speculate, in milliseconds.
#[cfg(target_arch = "x86_64")]
pub(crate) fn limit_ms() -> u32 {
    LIMIT_MS.load(Relaxed)
}

/// Whether call sites whose children do not exec are left alone after a while. Off only in tests.
#[cfg(target_arch = "x86_64")]
pub(crate) fn learn() -> bool {
    LEARN.load(Relaxed)
}

/// Process that `forkless run` became: the one that prints the report.
pub(crate) fn root() -> i32 {
    ROOT.load(Relaxed) as i32
}

/// Path of the record, as the environment has it: it ends at a NUL or a comma. Null: nothing is recorded.
pub(crate) fn record() -> *const c_char {
    RECORD.load(Relaxed)
}

/// Reads the environment. `envp` is the vector the loader hands to constructors.
///
/// # Safety
/// `envp` is null or a vector of NUL-terminated strings that ends in a null pointer and stays as long as the process.
pub(crate) unsafe fn read(envp: *mut *mut c_char) {
    if envp.is_null() {
        return;
    }
    let (mut options, mut off) = (None, false);
    let mut at = envp;
    loop {
        // SAFETY: the vector has not ended before `at`.
        let entry = unsafe { *at };
        if entry.is_null() {
            break;
        }
        // SAFETY: entries are NUL-terminated.
        let text = unsafe { CStr::from_ptr(entry) };
        // Two byte comparisons reject nearly every variable; the loader time of every program of the tree is at stake.
        if text.to_bytes().starts_with(SWITCH_VARIABLE.as_bytes()) {
            if let Some(value) = value_of(text, OPTIONS_VARIABLE) {
                options = Some(value);
            } else if let Some(value) = value_of(text, SWITCH_VARIABLE) {
                off = forkless_record::is_off(value.to_bytes());
            }
        }
        at = at.wrapping_add(1);
    }
    if off {
        return;
    }
    FORK.store(Fork::Strict as u8, Relaxed);
    if let Some(options) = options {
        apply(options);
    }
    if options.is_some_and(|o| find(o.to_bytes(), b"hugetlb") == Some(b"yes")) {
        // SAFETY: the caller's vector, still ours alone this early; libc has read its tunables before any library is loaded.
        unsafe { keep_hugetlb_here(envp) };
    }
    if options.is_some_and(|o| find(o.to_bytes(), b"children").is_some_and(|v| v == b"no")) {
        // SAFETY: the caller's vector, still ours alone this early.
        unsafe { forget(envp) };
    }
}

/// The text after `name=`, when the variable is called so.
fn value_of<'a>(variable: &'a CStr, name: &str) -> Option<&'a CStr> {
    let bytes = variable.to_bytes_with_nul();
    let rest = bytes.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
    CStr::from_bytes_with_nul(rest).ok()
}

fn find<'a>(options: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    options.split(|b| *b == b',').find_map(|pair| pair.strip_prefix(key)?.strip_prefix(b"="))
}

fn number(text: &[u8]) -> Option<usize> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

fn apply(options: &CStr) {
    let bytes = options.to_bytes();
    match find(bytes, b"fork") {
        Some(b"off") => FORK.store(Fork::Off as u8, Relaxed),
        Some(b"speculate") => FORK.store(Fork::Speculate as u8, Relaxed),
        _ => {}
    }
    if let Some(n) = find(bytes, b"min").and_then(number) {
        MINIMUM.store(n, Relaxed);
    }
    if let Some(n) = find(bytes, b"limit").and_then(number) {
        LIMIT_MS.store(n as u32, Relaxed);
    }
    if find(bytes, b"learn") == Some(b"no") {
        LEARN.store(false, Relaxed);
    }
    if let Some(n) = find(bytes, b"root").and_then(number) {
        ROOT.store(n as u32, Relaxed);
    }
    if let Some(shell) = find(bytes, b"sh") {
        crate::shell::configure(shell);
    }
    crate::context::configure(find(bytes, b"context") == Some(b"fast"));
    crate::huge::configure(find(bytes, b"collapse") == Some(b"yes"));
    crate::huge::pool::configure(
        find(bytes, b"hugetlb") == Some(b"yes"),
        find(bytes, b"quiet") != Some(b"yes"),
    );
    if let Some(path) = find(bytes, b"record") {
        RECORD.store(path.as_ptr().cast_mut().cast(), Relaxed);
    }
}

/// Takes our variables out of the environment, and our library out of `LD_PRELOAD`: programs executed later start without us.
///
/// # Safety
/// As for [`read`].
unsafe fn forget(envp: *mut *mut c_char) {
    let (mut from, mut to) = (envp, envp);
    loop {
        // SAFETY: the vector has not ended before `from`.
        let entry = unsafe { *from };
        // SAFETY: `to` never overtakes `from`.
        unsafe { *to = entry };
        if entry.is_null() {
            return;
        }
        // SAFETY: entries are NUL-terminated.
        let text = unsafe { CStr::from_ptr(entry) };
        let ours = value_of(text, OPTIONS_VARIABLE).is_some() || value_of(text, SWITCH_VARIABLE).is_some();
        // SAFETY: the entry is the process's own writable string.
        let emptied = unsafe { strip_preload(entry, text.to_bytes().len()) };
        if !ours && !emptied {
            to = to.wrapping_add(1);
        }
        from = from.wrapping_add(1);
    }
}

/// Removes our library from an `LD_PRELOAD=` entry in place; says whether nothing is left of the list.
///
/// # Safety
/// `entry` is a writable string of `len` bytes and a NUL.
unsafe fn strip_preload(entry: *mut c_char, len: usize) -> bool {
    const NAME: &[u8] = b"LD_PRELOAD=";
    // SAFETY: the caller's contract; nobody else looks at the environment while constructors run.
    let text = unsafe { core::slice::from_raw_parts_mut(entry.cast::<u8>(), len + 1) };
    if !text.starts_with(NAME) {
        return false;
    }
    let (mut read, mut write) = (NAME.len(), NAME.len());
    while read < len {
        let end = (read..len).find(|&i| matches!(text[i], b':' | b' ')).unwrap_or(len);
        let ours = text[read..end].ends_with(forkless_record::LIBRARY_NAME.as_bytes());
        if !ours && end > read {
            if write > NAME.len() {
                text[write] = b':';
                write += 1;
            }
            text.copy_within(read..end, write);
            write += end - read;
        }
        read = end + 1;
    }
    text[write] = 0;
    write == NAME.len()
}

/// Takes the tunable that `forkless run --huge-pages=hugetlb` put at the end of `GLIBC_TUNABLES` out again: a child that inherited it would
/// take pages from the pool, and at worst die of SIGBUS.
///
/// # Safety
/// As for [`read`].
unsafe fn keep_hugetlb_here(envp: *mut *mut c_char) {
    let mut at = envp;
    loop {
        // SAFETY: the vector has not ended before `at`.
        let entry = unsafe { *at };
        if entry.is_null() {
            return;
        }
        // SAFETY: entries are NUL-terminated.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if text.starts_with(b"GLIBC_TUNABLES=")
            && let Some(rest) = text.strip_suffix(forkless_record::HUGETLB_TUNABLE.as_bytes())
        {
            // Without the colon that joined it to what was there.
            let len = rest.strip_suffix(b":").unwrap_or(rest).len();
            // SAFETY: inside the entry, which is the process's own writable string.
            unsafe { *entry.wrapping_add(len) = 0 };
        }
        at = at.wrapping_add(1);
    }
}
