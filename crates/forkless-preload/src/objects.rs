//! Looks for a symbol in the objects that were loaded with the program, from our own on, without
//! asking the loader.
//!
//! `dlsym` takes the loader's lock. Its holder may be waiting for the very thread that asks: the
//! constructor of a plugin may wait for a thread that forks. And a child of `_Fork` has the lock as
//! it was.
//!
//! These objects stay as long as the process. Objects that were loaded later are left to the
//! loader: they may go at any time.
#![expect(unsafe_code, reason = "reads the loader's list and the tables of loaded objects")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::{loader, rt};

/// The part that debuggers read (glibc's link.h). musl's list begins with the same fields.
#[repr(C)]
struct Map {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *mut Map,
}

#[repr(C)]
struct Debug {
    version: c_int,
    first: *mut Map,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: usize,
    value: usize,
}

#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    rest: [usize; 4],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// The object after ours, and the last that was loaded with the program. Null where the list was
/// not found.
static FIRST: AtomicPtr<Map> = AtomicPtr::new(null_mut());
#[cfg(target_arch = "x86_64")]
static OURS: AtomicPtr<Map> = AtomicPtr::new(null_mut());
static LAST: AtomicPtr<Map> = AtomicPtr::new(null_mut());

/// Remembers the objects, when the library is loaded: before the program can have loaded more.
pub(crate) fn remember() {
    let Some(debug) = debug() else { return };
    // SAFETY: the loader's own, which it fills in before any constructor runs.
    let mut at = unsafe { (*debug).first };
    let mut ours = None;
    while let Some(map) = map(at) {
        if map.base == rt::image().start {
            ours = Some(map);
            #[cfg(target_arch = "x86_64")]
            OURS.store(at, Relaxed);
        }
        LAST.store(at, Relaxed);
        at = map.next;
    }
    if let Some(ours) = ours {
        FIRST.store(ours.next, Relaxed);
    }
}

/// An entry of the loader's list, of an object that stays.
fn map(at: *mut Map) -> Option<&'static Map> {
    // SAFETY: null, or an entry that lives as long as its object. Objects of the program stay
    // loaded, and so do their places in the list. The loader changes `next` of the last entry when
    // it loads more, and only [`remember`] reads that, before it can.
    unsafe { at.as_ref() }
}

/// The debuggers' entry, from the program's own dynamic section.
fn debug() -> Option<*const Debug> {
    const AT_PHDR: usize = 3;
    const AT_PHNUM: usize = 5;
    const PT_DYNAMIC: u32 = 2;
    const PT_PHDR: u32 = 6;
    const DT_DEBUG: usize = 21;
    let (headers, count) = (loader::auxiliary(AT_PHDR)? as *const Header, loader::auxiliary(AT_PHNUM)?);
    if headers.is_null() {
        return None;
    }
    // SAFETY: the program's headers, where the kernel or the loader says they are.
    let headers = unsafe { core::slice::from_raw_parts(headers, count) };
    let itself = headers.iter().find(|h| h.kind == PT_PHDR)?;
    let base = (headers.as_ptr() as usize).wrapping_sub(itself.address);
    let dynamic = headers.iter().find(|h| h.kind == PT_DYNAMIC)?;
    let mut entries = entries(TableAt(base.wrapping_add(dynamic.address) as *const Dynamic));
    let debug = entries.find(|entry| entry.tag == DT_DEBUG)?.value;
    (debug != 0).then_some(debug as *const Debug)
}

/// The dynamic section of a loaded object, which ends with `DT_NULL`.
fn entries(section: TableAt<Dynamic>) -> impl Iterator<Item = Dynamic> {
    (0..).map(move |i| section.get(i)).take_while(|entry| entry.tag != 0)
}

/// Where the next definition of `name` is. `Some(null)`: none of the objects has one. `None`: they
/// cannot tell.
pub(crate) fn find(name: &CStr) -> Option<*mut c_void> {
    match look_through(|symbols| symbols.find(name))? {
        Some(Definition::At(address)) => Some(address),
        Some(Definition::Computed) => None,
        None => Some(null_mut()),
    }
}

/// Where this library's own function of that name is.
#[cfg(target_arch = "x86_64")]
pub(crate) fn own(name: &CStr) -> Option<*mut c_void> {
    match Symbols::of(map(OURS.load(Relaxed))?)?.find(name)? {
        Definition::At(address) => Some(address),
        Definition::Computed => None,
    }
}

/// Whether an object after ours that is no part of libc defines one of `names`: another preloaded
/// library, a sanitizer's runtime, a wrapper that the program is linked with. Also where that
/// cannot be told.
///
/// Each name is ended by a NUL. One text and not a list: each pointer of a list would be relocated
/// in every program.
pub(crate) fn others_define(names: &str) -> bool {
    let found = look_through(|symbols| {
        // libc itself has this, and so has libpthread before glibc 2.34.
        let is_libcs = symbols.find(c"__errno_location").is_some();
        let mut names = names.as_bytes().split_inclusive(|byte| *byte == 0);
        let defines = |name| CStr::from_bytes_until_nul(name).is_ok_and(|name| symbols.find(name).is_some());
        (!is_libcs && names.any(defines)).then_some(())
    });
    found != Some(None)
}

/// Goes through the objects after ours, in the loader's order, until one has an answer.
/// `Some(None)`: none has one. `None`: they cannot tell.
fn look_through<T>(answer: impl Fn(Symbols) -> Option<T>) -> Option<Option<T>> {
    let (mut at, last) = (FIRST.load(Relaxed), LAST.load(Relaxed));
    for place in 0.. {
        let object = map(at)?;
        let found = answer(Symbols::at(place, object)?);
        if found.is_some() || at == last {
            return Some(found);
        }
        at = object.next;
    }
    None
}

/// A table in a loaded object. Its length is known from elsewhere.
#[derive(Clone, Copy)]
struct TableAt<T>(*const T);

impl<T: Copy> TableAt<T> {
    fn get(self, index: usize) -> T {
        // SAFETY: tables are those of loaded objects, and looked at only as far as the object's own
        // words say that they go.
        unsafe { self.0.wrapping_add(index).read() }
    }

    fn from(self, index: usize) -> TableAt<T> {
        TableAt(self.0.wrapping_add(index))
    }
}

enum Definition {
    At(*mut c_void),
    /// The result of a function (STT_GNU_IFUNC). The loader calls it.
    Computed,
}

/// What an object says of its symbols.
struct Symbols {
    base: usize,
    symbols: TableAt<Symbol>,
    strings: TableAt<u8>,
    versions: Option<TableAt<u16>>,
    hash: Hash,
}

#[derive(Clone, Copy)]
enum Hash {
    Gnu(TableAt<u32>),
    SystemV(TableAt<u32>),
}

/// Where the tables of an object are, kept for the next lookup. Going through its dynamic section
/// is most of one.
struct Known {
    symbols: AtomicUsize,
    strings: AtomicUsize,
    /// 0: none.
    versions: AtomicUsize,
    /// One more for System V's. 0: not known yet.
    hash: AtomicUsize,
}

/// Of the first objects after ours.
static KNOWN: [Known; 12] = [const { Known::not_yet() }; 12];

impl Known {
    const fn not_yet() -> Known {
        let [symbols, strings, versions, hash] = [const { AtomicUsize::new(0) }; 4];
        Known { symbols, strings, versions, hash }
    }

    fn get(&self, base: usize) -> Option<Symbols> {
        let hash = self.hash.load(Acquire);
        let table = TableAt((hash & !1) as *const u32);
        let versions = self.versions.load(Relaxed);
        (hash != 0).then(|| Symbols {
            base,
            symbols: TableAt(self.symbols.load(Relaxed) as *const Symbol),
            strings: TableAt(self.strings.load(Relaxed) as *const u8),
            versions: (versions != 0).then_some(TableAt(versions as *const u16)),
            hash: if hash & 1 == 0 { Hash::Gnu(table) } else { Hash::SystemV(table) },
        })
    }

    /// Another thread may be putting the same.
    fn put(&self, found: &Symbols) {
        self.symbols.store(found.symbols.0 as usize, Relaxed);
        self.strings.store(found.strings.0 as usize, Relaxed);
        self.versions.store(found.versions.map_or(0, |table| table.0 as usize), Relaxed);
        let hash = match found.hash {
            Hash::Gnu(table) => table.0 as usize,
            Hash::SystemV(table) => table.0 as usize | 1,
        };
        self.hash.store(hash, Release);
    }
}

impl Symbols {
    /// Those of an object at this place of the list.
    fn at(place: usize, object: &Map) -> Option<Symbols> {
        let Some(known) = KNOWN.get(place) else { return Symbols::of(object) };
        known.get(object.base).or_else(|| {
            let found = Symbols::of(object)?;
            known.put(&found);
            Some(found)
        })
    }

    /// `None` if it has no table that is known here.
    fn of(object: &Map) -> Option<Symbols> {
        const DT_HASH: usize = 4;
        const DT_STRTAB: usize = 5;
        const DT_SYMTAB: usize = 6;
        const DT_GNU_HASH: usize = 0x6fff_fef5;
        const DT_VERSYM: usize = 0x6fff_fff0;
        let base = object.base;
        let (mut hash, mut gnu_hash, mut symbols, mut strings, mut versions) = (None, None, None, None, None);
        for entry in entries(TableAt(object.dynamic)) {
            let wanted = match entry.tag {
                DT_HASH => &mut hash,
                DT_STRTAB => &mut strings,
                DT_SYMTAB => &mut symbols,
                DT_GNU_HASH => &mut gnu_hash,
                DT_VERSYM => &mut versions,
                _ => continue,
            };
            // glibc has made addresses of these values, musl has not.
            *wanted = Some(if entry.value < base { entry.value + base } else { entry.value });
        }
        let hash = match gnu_hash {
            Some(table) => Hash::Gnu(TableAt(table as *const u32)),
            None => Hash::SystemV(TableAt(hash? as *const u32)),
        };
        Some(Symbols {
            base,
            symbols: TableAt(symbols? as *const Symbol),
            strings: TableAt(strings? as *const u8),
            versions: versions.map(|at| TableAt(at as *const u16)),
            hash,
        })
    }

    fn find(&self, name: &CStr) -> Option<Definition> {
        match self.hash {
            Hash::Gnu(table) => self.find_gnu(table, name),
            Hash::SystemV(table) => self.find_system_v(table, name),
        }
    }

    /// Buckets of chains of neighbouring symbols. The filter in front of them is passed over:
    /// libc's would let nearly all names through.
    fn find_gnu(&self, table: TableAt<u32>, name: &CStr) -> Option<Definition> {
        let wanted =
            name.to_bytes().iter().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(*b)));
        let (buckets, offset, filter) = (table.get(0), table.get(1), table.get(2) as usize);
        let bucket = table.from(4 + filter * 2);
        let chain = bucket.from(buckets as usize);
        let mut symbol = bucket.get(wanted.checked_rem(buckets)? as usize);
        // An empty bucket has 0, which is never the first symbol that is hashed.
        while symbol >= offset && symbol != 0 {
            let hash = chain.get((symbol - offset) as usize);
            if hash | 1 == wanted | 1
                && let Some(found) = self.defines(symbol as usize, name)
            {
                return Some(found);
            }
            if hash & 1 != 0 {
                break;
            }
            symbol += 1;
        }
        None
    }

    fn find_system_v(&self, table: TableAt<u32>, name: &CStr) -> Option<Definition> {
        let wanted = name.to_bytes().iter().fold(0u32, |h, b| {
            let h = (h << 4).wrapping_add(u32::from(*b));
            (h ^ (h >> 24 & 0xf0)) & 0x0fff_ffff
        });
        let buckets = table.get(0);
        let chain = table.from(2 + buckets as usize);
        let mut symbol = table.get(2 + wanted.checked_rem(buckets)? as usize);
        while symbol != 0 {
            if let Some(found) = self.defines(symbol as usize, name) {
                return Some(found);
            }
            symbol = chain.get(symbol as usize);
        }
        None
    }

    /// Whether a symbol is what `name` means where no version is asked for: not hidden behind
    /// another version, not local, not merely used.
    fn defines(&self, symbol: usize, name: &CStr) -> Option<Definition> {
        const LOCAL: u16 = 0;
        const HIDDEN: u16 = 0x8000;
        const IFUNC: u8 = 10;
        let entry = self.symbols.get(symbol);
        let text = self.strings.from(entry.name as usize);
        let is_named = || name.to_bytes_with_nul().iter().enumerate().all(|(i, byte)| text.get(i) == *byte);
        let version = self.versions.map(|versions| versions.get(symbol));
        if entry.section == 0 || !is_named() || version.is_some_and(|v| v & HIDDEN != 0 || v == LOCAL) {
            return None;
        }
        match entry.info & 15 {
            // Code, data, or of no type.
            0..=2 => Some(Definition::At((self.base + entry.value) as *mut c_void)),
            IFUNC => Some(Definition::Computed),
            _ => None,
        }
    }
}
