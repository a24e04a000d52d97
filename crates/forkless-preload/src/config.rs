//! The options in force: read once, when the library is loaded, from `FORKLESS_RUN` (which the
//! launcher writes), or `FORKLESS_OPTIONS` (which people write), and the off switches: `FORKLESS`
//! and a file. Loading costs one walk over the environment and one system call.
//!
//! `LD_PRELOAD` or `/etc/ld.so.preload` may have brought the library into any program, without a
//! launcher that has looked at it. So a program with rights that its caller lacks is left alone:
//! `/etc/ld.so.preload` counts there, and the caller's environment must not.
#![expect(unsafe_code, reason = "walks the C environment")]

use core::ffi::c_char;
use core::num::{NonZeroU32, NonZeroU64};
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

pub(crate) use forkless_run::ForkMode as Fork;
use forkless_run::{
    Filters, HugePages, OPTIONS_VARIABLE, Options, RecordPath, SWITCH_FILE, SWITCH_VARIABLE, WORDS_VARIABLE,
};
use forkless_sys::{CPtr, fd};

use crate::environment::{self, value_of};
use crate::loader;

// `apply` sets them all; until then nothing is switched on.
static FORK: AtomicU8 = AtomicU8::new(Fork::Off as u8);
static MINIMUM: AtomicUsize = AtomicUsize::new(0);
static LIMIT_MS: AtomicU32 = AtomicU32::new(0);
static LEARN: AtomicBool = AtomicBool::new(false);
static ROOT: AtomicU32 = AtomicU32::new(0);
/// See [`filters`].
static FILTERS: AtomicU32 = AtomicU32::new(0);
/// The number is a launcher's, or the library is switched off.
static COUNTED: AtomicBool = AtomicBool::new(true);
static NAMESPACE: AtomicU64 = AtomicU64::new(0);
static RECORD: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static RECORD_LEN: AtomicU8 = AtomicU8::new(0);
static MAKES_RECORD: AtomicBool = AtomicBool::new(false);
/// See [`quiet`]; only where [`MAKES_RECORD`].
static QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) fn fork() -> Fork {
    Fork::from_raw(FORK.load(Relaxed)).unwrap_or(Fork::Off)
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

/// Seccomp filters that were in force when the launcher started, 0 where one may kill. `None`: no
/// launcher has counted them.
pub(crate) fn filters() -> Option<u32> {
    COUNTED.load(Relaxed).then(|| FILTERS.load(Relaxed))
}

/// Path of the record, as the environment has it. `None`: nothing is recorded.
pub(crate) fn record() -> Option<&'static [u8]> {
    // SAFETY: the path as it lay in the environment, which stays: where a program writes over it,
    // the bytes are others.
    record_place().map(|(at, len)| unsafe { core::slice::from_raw_parts(at, len) })
}

/// Where that path lies. No reference: it may be written over.
pub(crate) fn record_place() -> Option<(*mut u8, usize)> {
    let at = RECORD.load(Relaxed);
    (!at.is_null()).then(|| (at, usize::from(RECORD_LEN.load(Relaxed))))
}

/// Whether the record is the user's, and is to be made where there is none.
pub(crate) fn makes_record() -> bool {
    MAKES_RECORD.load(Relaxed)
}

/// Whether nothing is said of a record that cannot be made.
pub(crate) fn quiet() -> bool {
    QUIET.load(Relaxed)
}

/// Reads the environment. `envp` is the vector the loader hands to constructors. Returns the
/// options in force, for other modules to take over theirs, and the entry that has unknown words;
/// `None` where the library is switched off.
///
/// # Safety
/// `envp` is null or a vector of NUL-terminated strings that ends in a null pointer and stays as
/// long as the process.
pub(crate) unsafe fn read(envp: *mut *mut c_char) -> Option<(Options<'static>, Option<*mut c_char>)> {
    if envp.is_null() || loader::is_secure() || loader::another_is_in_charge() {
        return None;
    }
    let (mut launchers, mut words, mut off) = (None, None, false);
    let mut at = envp;
    loop {
        // SAFETY: the vector has not ended before `at`.
        let entry = unsafe { *at };
        if entry.is_null() {
            break;
        }
        // SAFETY: entries are NUL-terminated.
        if let Some(value) = unsafe { value_of(entry, OPTIONS_VARIABLE) } {
            launchers = Some(value);
        // SAFETY: as above.
        } else if let Some(value) = unsafe { value_of(entry, WORDS_VARIABLE) } {
            words = Some((value, entry));
        // SAFETY: as above.
        } else if let Some(value) = unsafe { value_of(entry, SWITCH_VARIABLE) } {
            off = forkless_run::is_off(value.to_bytes());
        }
        at = at.wrapping_add(1);
    }
    if off || is_off_by_file() {
        return None;
    }
    let mut unknown = None;
    let options = match (launchers, words) {
        (Some(launchers), _) => Options::parse(launchers.to_bytes()),
        (None, Some((words, entry))) => {
            let (options, understood) = Options::parse_words(words.to_bytes());
            unknown = (!understood).then_some(entry);
            options
        }
        (None, None) => Options::without_launcher(),
    };
    apply(&options);
    if options.huge_pages == HugePages::Pool {
        // SAFETY: the caller's vector, still ours alone this early; libc has read its tunables
        // before any library is loaded.
        unsafe { environment::keep_hugetlb_here(envp) };
    }
    if !options.children {
        // SAFETY: the caller's vector, still ours alone this early.
        unsafe { environment::forget(envp) };
    }
    Some((options, unknown))
}

/// Whether the file exists that switches the library off. Told by opening it: the loader has
/// opened files in this way a moment ago, so a filter that came with the program allows it. As a
/// path alone, so that nothing happens to the file.
fn is_off_by_file() -> bool {
    let flags = fd::O_PATH | fd::O_CLOEXEC | fd::O_NOFOLLOW;
    let Ok(file) = fd::openat(fd::AT_FDCWD, CPtr::from(SWITCH_FILE), flags, 0) else { return false };
    let _ = fd::close(file);
    true
}

/// Puts this module's options in force.
fn apply(options: &Options<'static>) {
    FORK.store(options.fork as u8, Relaxed);
    MINIMUM.store(options.minimum as usize, Relaxed);
    LIMIT_MS.store(options.limit_ms, Relaxed);
    LEARN.store(options.learn, Relaxed);
    ROOT.store(options.root.map_or(0, NonZeroU32::get), Relaxed);
    NAMESPACE.store(options.root_namespace.map_or(0, NonZeroU64::get), Relaxed);
    if let Filters::Counted(n) = options.filters {
        FILTERS.store(n, Relaxed);
    }
    COUNTED.store(options.filters != Filters::Uncounted, Relaxed);
    // A longer path is none that the record could be mapped by.
    if let Some(path) = options.record.map(RecordPath::bytes)
        && let Ok(length) = u8::try_from(path.len())
    {
        RECORD_LEN.store(length, Relaxed);
        RECORD.store(path.as_ptr().cast_mut(), Relaxed);
        MAKES_RECORD.store(options.makes_record, Relaxed);
        QUIET.store(options.quiet, Relaxed);
    }
}
