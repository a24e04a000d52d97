//! The options in force: read once, when the library is loaded, from `FORKLESS_RUN` (which the
//! launcher writes) and `FORKLESS` (the off switch). Loading costs one walk over the environment
//! and no system call.
#![expect(unsafe_code, reason = "walks the C environment")]

use core::ffi::{CStr, c_char};
use core::num::{NonZeroU32, NonZeroU64};
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

pub(crate) use forkless_run::ForkMode as Fork;
use forkless_run::{OPTIONS_VARIABLE, Options, SWITCH_VARIABLE};

// `apply` sets them all; until then nothing is switched on.
static FORK: AtomicU8 = AtomicU8::new(Fork::Off as u8);
static MINIMUM: AtomicUsize = AtomicUsize::new(0);
static LIMIT_MS: AtomicU32 = AtomicU32::new(0);
static LEARN: AtomicBool = AtomicBool::new(false);
static ROOT: AtomicU32 = AtomicU32::new(0);
/// See [`filters`].
static FILTERS: AtomicU32 = AtomicU32::new(0);
static NAMESPACE: AtomicU64 = AtomicU64::new(0);
static RECORD: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

pub(crate) fn fork() -> Fork {
    match FORK.load(Relaxed) {
        1 => Fork::Strict,
        2 => Fork::Speculate,
        3 => Fork::Exact,
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

/// The process that the launcher became: the report comes at its end. 0: none.
pub(crate) fn root() -> i32 {
    ROOT.load(Relaxed) as i32
}

/// Its PID namespace. 0: not known.
pub(crate) fn root_namespace() -> u64 {
    NAMESPACE.load(Relaxed)
}

/// Seccomp filters that were in force when the launcher started.
pub(crate) fn filters() -> u32 {
    FILTERS.load(Relaxed)
}

/// Path of the record, as the environment has it: it ends at a NUL or a comma. Null: nothing is
/// recorded.
pub(crate) fn record() -> *const c_char {
    RECORD.load(Relaxed)
}

/// Reads the environment. `envp` is the vector the loader hands to constructors. Returns the
/// options in force, for other modules to take over theirs; `None` where the library is switched
/// off.
///
/// # Safety
/// `envp` is null or a vector of NUL-terminated strings that ends in a null pointer and stays as
/// long as the process.
pub(crate) unsafe fn read(envp: *mut *mut c_char) -> Option<Options<'static>> {
    if envp.is_null() {
        return None;
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
        if let Some(value) = unsafe { value_of(entry, OPTIONS_VARIABLE) } {
            options = Some(value);
        // SAFETY: as above.
        } else if let Some(value) = unsafe { value_of(entry, SWITCH_VARIABLE) } {
            off = forkless_run::is_off(value.to_bytes());
        }
        at = at.wrapping_add(1);
    }
    if off {
        return None;
    }
    let options = Options::parse(options.unwrap_or_default().to_bytes());
    apply(&options);
    if options.hugetlb {
        // SAFETY: the caller's vector, still ours alone this early; libc has read its tunables
        // before any library is loaded.
        unsafe { keep_hugetlb_here(envp) };
    }
    if !options.children {
        // SAFETY: the caller's vector, still ours alone this early.
        unsafe { forget(envp) };
    }
    Some(options)
}

/// The text after `name=`, where the entry has that name. Of most other entries one byte is read:
/// every program of the tree goes through all entries when it is loaded.
///
/// # Safety
/// `entry` is a NUL-terminated string that stays as long as the process.
unsafe fn value_of(entry: *const c_char, name: &str) -> Option<&'static CStr> {
    let mut at = entry.cast::<u8>();
    for byte in name.bytes().chain(*b"=") {
        // SAFETY: the string has not ended before `at`: what came before was equal to a byte that
        // is not NUL.
        if unsafe { *at } != byte {
            return None;
        }
        at = at.wrapping_add(1);
    }
    // SAFETY: the rest of the caller's string.
    Some(unsafe { CStr::from_ptr(at.cast()) })
}

/// Puts this module's options in force.
fn apply(options: &Options<'static>) {
    FORK.store(options.fork as u8, Relaxed);
    MINIMUM.store(options.minimum as usize, Relaxed);
    LIMIT_MS.store(options.limit_ms, Relaxed);
    LEARN.store(options.learn, Relaxed);
    ROOT.store(options.root.map_or(0, NonZeroU32::get), Relaxed);
    NAMESPACE.store(options.root_namespace.map_or(0, NonZeroU64::get), Relaxed);
    FILTERS.store(options.filters, Relaxed);
    if let Some(record) = options.record {
        RECORD.store(record.bytes().as_ptr().cast_mut().cast(), Relaxed);
    }
}

/// Takes our variables out of the environment, and our library out of `LD_PRELOAD`: programs
/// executed later start without us.
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
        // SAFETY: entries are NUL-terminated, and stay.
        let ours =
            [OPTIONS_VARIABLE, SWITCH_VARIABLE].iter().any(|name| unsafe { value_of(entry, name) }.is_some());
        // SAFETY: the entry is the process's own writable string.
        let emptied = unsafe { strip_preload(entry) };
        if !ours && !emptied {
            to = to.wrapping_add(1);
        }
        from = from.wrapping_add(1);
    }
}

/// Removes our library from an `LD_PRELOAD=` entry in place; says whether nothing is left of the
/// list.
///
/// # Safety
/// `entry` is a writable string that ends in a NUL.
unsafe fn strip_preload(entry: *mut c_char) -> bool {
    const NAME: &str = "LD_PRELOAD";
    // SAFETY: the caller's contract.
    let Some(list) = (unsafe { value_of(entry, NAME) }) else { return false };
    let len = list.to_bytes().len();
    // SAFETY: as above; nobody else looks at the environment while constructors run.
    let text =
        unsafe { core::slice::from_raw_parts_mut(entry.cast::<u8>().wrapping_add(NAME.len() + 1), len + 1) };
    let (mut read, mut write) = (0, 0);
    while read < len {
        let end = (read..len).find(|&i| matches!(text[i], b':' | b' ')).unwrap_or(len);
        let ours = text[read..end].ends_with(forkless_run::LIBRARY_NAME.as_bytes());
        if !ours && end > read {
            if write > 0 {
                text[write] = b':';
                write += 1;
            }
            text.copy_within(read..end, write);
            write += end - read;
        }
        read = end + 1;
    }
    text[write] = 0;
    write == 0
}

/// Takes the tunable for the pool of huge pages, which the launcher put at the end of
/// `GLIBC_TUNABLES`, out again: a child that inherited it would take pages from the pool, and at
/// worst die of SIGBUS.
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
        // SAFETY: entries are NUL-terminated, and stay.
        if let Some(value) = unsafe { value_of(entry, "GLIBC_TUNABLES") }
            && let Some(rest) = value.to_bytes().strip_suffix(forkless_run::HUGETLB_TUNABLE.as_bytes())
        {
            // Without the colon that joined it to what was there.
            let kept = rest.strip_suffix(b":").unwrap_or(rest);
            // SAFETY: inside the entry, which is the process's own writable string.
            unsafe { *kept.as_ptr().cast_mut().wrapping_add(kept.len()) = 0 };
        }
        at = at.wrapping_add(1);
    }
}
