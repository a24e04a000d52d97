//! Counts into the record that `forkless run --report` shares with every process of the tree.
//! Without a record everything here is one load and a branch.
//!
//! Called from ordinary code only, also in children of processes with threads: no function of
//! libc's that is called here takes a lock.
#![expect(unsafe_code, reason = "maps the record and asks the loader which object has called")]

use core::ffi::{CStr, c_char, c_int};
use core::ptr::{null, null_mut};
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use forkless_run::{Counter, Record, SiteCounters};
use forkless_sys::{CPtr, fd, mm, process};

use crate::config;
use crate::mappings::{self, Name};
use crate::next::of_libc;
use crate::{filters, namespace, reserve, users_record};

const _: () = assert!(Record::SIZE <= reserve::RECORD.len(), "room for the record");

static RECORD: AtomicPtr<Record> = AtomicPtr::new(null_mut());
/// Stands for a record that could not be mapped, so that it is not tried for every fork.
static NONE: u8 = 0;

/// The record, mapped at first use.
pub(crate) fn record() -> Option<&'static Record> {
    let path = config::record()?;
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

/// Whether the launcher's record is another user's: this one is that of this process's user, and
/// the collector looks at it only at the end.
static IS_OTHER_USERS: AtomicBool = AtomicBool::new(false);

/// Adds to a counter of the record.
pub(crate) fn add(counter: Counter, n: u64) {
    if let Some(record) = record() {
        record.add(counter, n);
    }
}

/// The cost of a shell besides the program it runs: 520 to 700 us measured, of which a program
/// takes 80.
const SHELL_NANOS: u64 = 450_000;

/// Counts a line that ran without its shell, or that was left to it.
pub(crate) fn add_line(counter: Counter) {
    add(counter, 1);
    if matches!(counter, Counter::Shells | Counter::ExecShells) {
        add(Counter::NanosSaved, SHELL_NANOS);
    }
}

/// The line was not run without its shell after all.
pub(crate) fn take_back_line() {
    add(Counter::ExecShells, 1u64.wrapping_neg());
    add(Counter::NanosSaved, SHELL_NANOS.wrapping_neg());
}

/// Whether this memory is, or is a copy of, the memory of the process that `forkless run` became:
/// the root.
static ROOT: AtomicBool = AtomicBool::new(false);

/// When the library is loaded: counts the process, and finds out whether it is the root. At its end
/// it may not ask any more: programs forbid themselves what they do not need.
pub(crate) fn begin() {
    add(Counter::Processes, 1);
    if config::root() == 0
        || record().is_none()
        || IS_OTHER_USERS.load(Relaxed)
        || own_number() != config::root()
    {
        return;
    }
    // The root may have executed this program under a filter of its own. Then the report comes a
    // moment after its end.
    filters::learn();
    if !filters::sandboxed() && is_in_namespace() {
        ROOT.store(mark().is_some(), Relaxed);
    }
}

/// The number of this process when the library is loaded, told by its one thread. libc knows it
/// without a system call: it is part of the number of that thread's clock (`MAKE_THREAD_CPUCLOCK`
/// of linux/posix-timers.h). A filter that came with the program may kill for the call.
fn own_number() -> i32 {
    of_libc! {
        static OWN: extern "C" fn() -> usize = c"pthread_self", "pthread_self(3)";
        static CLOCK: extern "C" fn(usize, &mut c_int) -> c_int = c"pthread_getcpuclockid", "pthread_getcpuclockid(3)";
    }
    let mut clock = 0;
    match (OWN.get(), CLOCK.get()) {
        (Some(own), Some(clock_of)) if clock_of(own(), &mut clock) == 0 => !(clock >> 3),
        _ => process::getpid(),
    }
}

/// A process of another PID namespace may have the root's number.
fn is_in_namespace() -> bool {
    config::root_namespace() == 0 || namespace::own() == Some(config::root_namespace())
}

/// Marks this memory as the root's, on a page that is zero in every copy, however the copy is made
/// (Linux 4.14).
fn mark() -> Option<()> {
    let page = reserve::ROOT.replace(mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE).ok()?;
    // SAFETY: fresh memory of our own.
    unsafe { mm::madvise(page, reserve::ROOT.len(), mm::MADV_WIPEONFORK) }.ok()?;
    is_marked().store(true, Relaxed);
    Some(())
}

/// Only after [`mark`].
fn is_marked() -> &'static AtomicBool {
    // SAFETY: memory that `mark` has mapped, and that nothing unmaps.
    unsafe { &*(reserve::ROOT.address() as *const AtomicBool) }
}

/// When the root is about to end: lets the report be written and waits for it, so that it is there
/// for who waits for the process. Takes a second of a processor's time at most.
///
/// Not `certain`: `_exit` was called. Children of `vfork` call it, which share the root's memory.
/// The collector tells them apart.
///
/// Makes no system call: the program may have forbidden itself those that it does not make, by an
/// instruction that the library does not see. Nor is the clock asked, which is a call where the
/// kernel does not trust the processor's.
pub(crate) fn finish(certain: bool) {
    if !ROOT.load(Relaxed) || !is_marked().load(Relaxed) {
        return;
    }
    let Some(record) = record() else { return };
    let ending = record.announce(certain);
    const LOOKS: usize = 300_000;
    for _ in 0..LOOKS {
        if record.is_answered(ending) {
            return;
        }
        // A spin takes 45 ns on many processors, 10 ns on others.
        for _ in 0..64 {
            core::hint::spin_loop();
        }
    }
    if !certain {
        // A child of `vfork` takes the announcement back before its parent goes on. Else the
        // collector, too late to find the parent suspended, would take it for the parent's end.
        record.answer(ending);
    }
}

fn map(path: &[u8]) -> Option<*mut Record> {
    let mut copy = [0u8; 256];
    // Shorter than the copy, so that a NUL ends it.
    copy.get_mut(..path.len()).filter(|_| path.len() < 256)?.copy_from_slice(path);
    let path = CPtr::from(CStr::from_bytes_until_nul(&copy).ok()?);
    let (file, is_new) = if config::makes_record() {
        users_record::open(path)?
    } else if let Ok(file) = fd::openat(fd::AT_FDCWD, path, fd::O_RDWR | fd::O_CLOEXEC, 0) {
        (file, false)
    } else {
        IS_OTHER_USERS.store(true, Relaxed);
        users_record::open_own(&mut copy)?
    };
    let mapped = reserve::RECORD.map_shared(file);
    let _ = fd::close(file);
    let at = mapped.ok()?.cast::<Record>();
    // SAFETY: a fresh mapping of that size; the file is at least as long or the first access would
    // be a bus error, which the magic number, written last by `forkless run`, is there to prevent.
    let record = unsafe { &*at };
    if is_new {
        record.format();
    }
    record.is_valid().then_some(at)
}

/// The record's line for a return address.
pub(crate) fn site(address: usize) -> Option<&'static SiteCounters> {
    let record = record()?;
    let owner = Owner::of(address);
    let key = hash(owner.hash(), &address.to_ne_bytes()) as usize | 1;
    let entry = &FOUND[(address >> 2) % FOUND.len()];
    entry.get(key).or_else(|| {
        let found = named(record, address, &owner)?;
        entry.put(key, found);
        Some(found)
    })
}

/// A line that was found before: to find a name the list of mappings may have to be read.
struct Found {
    /// An odd number. 0: there is no line yet. [`BUSY`]: a thread is putting one.
    key: AtomicUsize,
    site: AtomicPtr<SiteCounters>,
}

static FOUND: [Found; 10] =
    [const { Found { key: AtomicUsize::new(0), site: AtomicPtr::new(null_mut()) } }; 10];

/// A value of [`Found::key`].
const BUSY: usize = 2;

impl Found {
    fn get(&self, key: usize) -> Option<&'static SiteCounters> {
        let is_it = || self.key.load(Acquire) == key;
        let before = is_it();
        let site = self.site.load(Acquire);
        // SAFETY: of the record, which is never unmapped.
        if before && is_it() { unsafe { site.as_ref() } } else { None }
    }

    fn put(&self, key: usize, site: &'static SiteCounters) {
        // Two threads at once would leave the line of one under the key of the other.
        if self.key.swap(BUSY, AcqRel) == BUSY {
            return;
        }
        self.site.store(core::ptr::from_ref(site).cast_mut(), Release);
        self.key.store(key, Release);
    }
}

/// The owner of the code that has called.
enum Owner {
    /// An object, by its path and where it begins. The path of the program's own is empty.
    Object(&'static CStr, usize),
    /// No object: the code was made as the program runs.
    Nobody,
    /// There is no `_dl_find_object`.
    Unknown,
}

impl Owner {
    /// Asks glibc's `_dl_find_object` (2.35), which takes no lock. `dladdr` takes one, and another
    /// thread may hold it, or may have held it when this process was forked.
    fn of(address: usize) -> Owner {
        of_libc! {
            static FIND: extern "C" fn(usize, &mut Loaded) -> c_int = c"_dl_find_object", "glibc's dlfcn.h";
        }
        let Some(find) = FIND.get() else { return Owner::Unknown };
        let mut loaded = Loaded { flags: 0, start: 0, end: 0, map: null(), rest: [0; 28] };
        if find(address, &mut loaded) != 0 {
            return Owner::Nobody;
        }
        // SAFETY: of an object that is loaded as long as its code runs: it called us.
        let path = unsafe { loaded.map.as_ref() }.map_or(c"", |map| unsafe { CStr::from_ptr(map.name) });
        Owner::Object(path, loaded.start)
    }

    /// Tells an object from another that lies there later. Where the object is not known, a call
    /// site may give its name to a later one at its place.
    fn hash(&self) -> u64 {
        match self {
            Owner::Object(path, start) => hash(*start as u64, path.to_bytes()),
            Owner::Nobody | Owner::Unknown => 0,
        }
    }

    /// The last part of its path, and where it begins.
    fn name(&self, address: usize) -> (Name, usize) {
        let nobody = (Name::last_of(b"?"), 0);
        match self {
            // A look takes system calls, which may be forbidden by now.
            Owner::Object(path, start) if path.is_empty() && filters::sandboxed() => (nobody.0, *start),
            Owner::Unknown if filters::sandboxed() => nobody,
            Owner::Object(path, start) if path.is_empty() => (program(), *start),
            Owner::Object(path, start) => (Name::last_of(path.to_bytes()), *start),
            Owner::Nobody => nobody,
            // The look takes a descriptor for a moment.
            Owner::Unknown => mappings::file_at(address).unwrap_or(nobody),
        }
    }
}

/// The name of the program that this process executes.
fn program() -> Name {
    let mut path = [0; 1024];
    let length = fd::readlinkat(fd::AT_FDCWD, CPtr::from(c"/proc/self/exe"), &mut path);
    Name::last_of(length.ok().and_then(|length| path.get(..length)).unwrap_or(b"?"))
}

fn hash(from: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(from, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

fn named(record: &'static Record, address: usize, owner: &Owner) -> Option<&'static SiteCounters> {
    let (name, base) = owner.name(address);
    let name = name.bytes();
    let offset = address.wrapping_sub(base);
    record.site(hash(offset as u64 | 1, name) | 1, |into| describe(name, offset, into))
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

/// `struct dl_find_object`, with room for what may be added.
#[repr(C)]
struct Loaded {
    flags: u64,
    start: usize,
    end: usize,
    map: *const LinkMap,
    rest: [u64; 28],
}

/// The public part of `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}
