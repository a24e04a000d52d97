//! Counting into the record that `forkless run --report` shares with every process of the tree. Without a record everything here is
//! one load and a branch.
//!
//! Called from ordinary code only: opening and naming make system calls and use libc.
#![expect(unsafe_code, reason = "maps the record and asks the loader for names")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use forkless_record::{Counter, Record, Site};
use forkless_sys::{CPtr, fd, mm, process, time};

use crate::config;

at_hand! {
    static RECORD: AtomicPtr<Record> = AtomicPtr::new(null_mut());
}
/// Marks a record that could not be mapped, so that it is not tried for every fork.
static NONE: u8 = 0;

/// The record, mapped at first use.
pub(crate) fn record() -> Option<&'static Record> {
    let path = config::record();
    if path.is_null() {
        return None;
    }
    let known = RECORD.load(Relaxed);
    if known.cast_const().cast::<u8>() == &raw const NONE {
        return None;
    }
    if known.is_null() {
        let mapped = map(path);
        RECORD.store(mapped.unwrap_or((&raw const NONE).cast_mut().cast()), Relaxed);
        return record();
    }
    // SAFETY: mapped below, of that size, and never unmapped.
    Some(unsafe { &*known })
}

/// Adds to a counter of the record.
pub(crate) fn add(counter: Counter, n: u64) {
    if let Some(record) = record() {
        record.add(counter, n);
    }
}

/// When the process that `forkless run` became is about to exit: lets the report be written, and waits for it, so that whoever waits
/// for the process finds it. A second is the most it may take.
pub(crate) fn finish() {
    if config::root() == 0 || process::getpid() != config::root() {
        return;
    }
    let Some(record) = record() else { return };
    record.set_done();
    for _ in 0..1000 {
        if record.is_rendered() {
            return;
        }
        let _ = time::nanosleep(time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
    }
}

fn map(path: *const c_char) -> Option<*mut Record> {
    let mut copy = [0u8; 256];
    for i in 0..copy.len() - 1 {
        // SAFETY: the option text ends in a NUL, where the loop stops.
        let byte = unsafe { *path.cast::<u8>().wrapping_add(i) };
        if byte == 0 || byte == b',' {
            break;
        }
        copy[i] = byte;
    }
    let path = CStr::from_bytes_until_nul(&copy).ok()?;
    let file = fd::openat(AT_FDCWD, CPtr::from(path), fd::O_RDWR | fd::O_CLOEXEC, 0).ok()?;
    let mapped = mm::map_file(file, Record::SIZE, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_SHARED);
    let _ = fd::close(file);
    let at = mapped.ok()?.cast::<Record>();
    // SAFETY: a fresh mapping of that size; the file is at least as long or the first access would be a bus error, which the
    // magic number, written last by `forkless run`, is there to prevent.
    let record = unsafe { &*at };
    record.is_valid().then_some(at)
}

const AT_FDCWD: i32 = -100;

/// The record's line for a return address.
pub(crate) fn site(address: usize) -> Option<&'static Site> {
    let record = record()?;
    // Objects are loaded below 2^47, and where one was unloaded another may lie now.
    let key = address | unloaded() << 47;
    let entry = &FOUND[(address >> 2) % FOUND.len()];
    entry.get(key).or_else(|| {
        let found = named(record, address)?;
        entry.put(key, found);
        Some(found)
    })
}

/// A line that was found before: for a name the loader goes through all symbols of an object, of which node has enough for half a millisecond.
struct Found {
    /// 0 while `site` is another's.
    key: AtomicUsize,
    site: AtomicPtr<Site>,
}

static FOUND: [Found; 16] =
    [const { Found { key: AtomicUsize::new(0), site: AtomicPtr::new(null_mut()) } }; 16];

impl Found {
    fn get(&self, key: usize) -> Option<&'static Site> {
        let is_it = || self.key.load(Acquire) == key;
        let before = is_it();
        let site = self.site.load(Acquire);
        // SAFETY: of the record, which is never unmapped.
        if before && is_it() { unsafe { site.as_ref() } } else { None }
    }

    fn put(&self, key: usize, site: &'static Site) {
        self.key.store(0, Release);
        self.site.store(core::ptr::from_ref(site).cast_mut(), Release);
        self.key.store(key, Release);
    }
}

/// How many objects have been unloaded so far.
fn unloaded() -> usize {
    extern "C" fn first(info: &Loaded, _: usize, count: &mut usize) -> c_int {
        *count = info.unloaded as usize;
        1
    }
    let mut count = 0;
    // SAFETY: the function keeps nothing of what it is given, and does not unwind.
    unsafe { dl_iterate_phdr(first, &mut count) };
    count
}

/// Asks the loader.
fn named(record: &'static Record, address: usize) -> Option<&'static Site> {
    let mut place = Place { name: null(), base: null(), symbol: null(), address: null() };
    // SAFETY: fills in one structure; any address may be asked about.
    let known = unsafe { dladdr(address as *const c_void, &raw mut place) } != 0 && !place.name.is_null();
    let offset = if known { address.wrapping_sub(place.base as usize) } else { address };
    let name = if known {
        // SAFETY: the loader's own NUL-terminated name, kept while the object is loaded, which it is: it called us.
        unsafe { CStr::from_ptr(place.name) }.to_bytes()
    } else {
        b"?".as_slice()
    };
    let name = name.rsplit(|b| *b == b'/').next().unwrap_or(name);
    let key =
        name.iter().fold(offset as u64 | 1, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)) | 1;
    record.site(key, |into| describe(name, offset, into))
}

/// `name+0xoffset`.
fn describe(name: &[u8], offset: usize, into: &mut [u8]) -> usize {
    let mut len = 0;
    let mut push = |b: u8| {
        if let Some(slot) = into.get_mut(len) {
            *slot = b;
            len += 1;
        }
    };
    name.iter().for_each(|b| push(*b));
    b"+0x".iter().for_each(|b| push(*b));
    let digits = (1 + (usize::BITS - 1 - (offset | 1).leading_zeros()) / 4) as usize;
    for i in (0..digits).rev() {
        push(b"0123456789abcdef"[(offset >> (4 * i)) & 15]);
    }
    len
}

/// `Dl_info`.
#[repr(C)]
struct Place {
    name: *const c_char,
    base: *const c_void,
    symbol: *const c_char,
    address: *const c_void,
}

/// `struct dl_phdr_info`.
#[repr(C)]
struct Loaded {
    base: usize,
    name: *const c_char,
    headers: *const c_void,
    header_count: u16,
    loaded: u64,
    unloaded: u64,
}

unsafe extern "C" {
    fn dl_iterate_phdr(each: extern "C" fn(&Loaded, usize, &mut usize) -> c_int, data: &mut usize) -> c_int;
    fn dladdr(address: *const c_void, info: *mut Place) -> c_int;
}
