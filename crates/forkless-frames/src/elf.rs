//! The symbols of interpreters in ELF files. Each file is read once.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use object::read::{ReadCache, ReadRef};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

/// What is kept of an ELF file.
#[derive(Debug)]
pub(crate) struct Elf {
    /// Addresses and sizes.
    symbols: HashMap<String, (u64, u64)>,
    /// The version of PHP, which has no symbol.
    pub(crate) php_version: Option<String>,
    segments: Vec<Segment>,
}

/// A PT_LOAD.
#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
    executable: bool,
}

/// A file, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// Files that were read. It forgets everything when it is full.
static KNOWN: LazyLock<Mutex<HashMap<FileId, Option<Arc<Elf>>>>> = LazyLock::new(Mutex::default);
const MOST_FILES: usize = 256;

/// Larger files are not read: the tables of a file are at most as large as the file.
const LARGEST_FILE: u64 = 512 << 20;

/// The contents of a file, read now or earlier.
pub(crate) fn known(file: &File) -> Option<Arc<Elf>> {
    let metadata = file.metadata().ok()?;
    let id = FileId {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    };
    if let Some(known) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&id) {
        return known.clone();
    }
    let elf = (metadata.len() <= LARGEST_FILE).then(|| Elf::read(file)).flatten().map(Arc::new);
    let mut files = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if files.len() >= MOST_FILES {
        files.clear();
    }
    files.insert(id, elf.clone());
    elf
}

impl Elf {
    fn read(file: &File) -> Option<Self> {
        // Only the tables are read, not the code.
        let cache = ReadCache::new(file);
        let elf = object::File::parse(&cache).ok()?;
        let mut symbols = HashMap::new();
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            if !symbol.is_undefined()
                && let Ok(name) = symbol.name_bytes()
                && is_wanted(name)
                && let Ok(name) = std::str::from_utf8(name)
            {
                symbols.insert(name.to_owned(), (symbol.address(), symbol.size()));
            }
        }
        let is_php = symbols.contains_key("executor_globals");
        let php_version = is_php.then(|| php_version(&elf)).flatten();
        Some(Self { symbols, php_version, segments: segments(&elf) })
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).map(|(address, _)| *address)
    }

    pub(crate) fn size_of(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).map(|(_, size)| *size)
    }

    /// The file's own address of file offset `offset` in an executable mapping.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        self.segments.iter().filter(|segment| segment.executable).find_map(|segment| {
            // A mapping begins at a page, a segment need not.
            let begins = segment.offset.saturating_sub(segment.offset % PAGE);
            let ends = segment.offset.checked_add(segment.size)?;
            (begins..ends)
                .contains(&offset)
                .then(|| segment.address.wrapping_add(offset.wrapping_sub(segment.offset)))
        })
    }
}

/// The largest page of a kernel for these architectures: a mapping begins at some multiple below.
const PAGE: u64 = 64 << 10;

fn segments<'data, R: ReadRef<'data>>(elf: &object::File<'data, R>) -> Vec<Segment> {
    let segments = elf.segments().map(|segment| {
        let (offset, size) = segment.file_range();
        let executable = segment.permissions().executable();
        Segment { offset, size, address: segment.address(), executable }
    });
    segments.collect()
}

fn php_version<'data, R: ReadRef<'data>>(elf: &object::File<'data, R>) -> Option<String> {
    let constants = elf.section_by_name(".rodata")?.data().ok()?;
    let before = BEFORE_PHP_VERSION;
    let at = constants.windows(before.len()).position(|window| window == before)?;
    let version = constants.get(at + before.len()..)?.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(version.get(..version.len().min(16))?).into_owned())
}

/// Whether an interpreter's frames are found by this symbol.
fn is_wanted(name: &[u8]) -> bool {
    name.starts_with(V8) || WANTED.iter().any(|symbol| symbol.as_bytes() == name)
}

/// V8 publishes its layout in symbols that begin so.
const V8: &[u8] = b"v8dbg_";

const WANTED: &[&str] = &[
    "PL_curcop",
    "PL_curinterp",
    "PL_curstackinfo",
    "PL_op",
    "PL_op_name",
    "PL_thr_key",
    "PL_version",
    "Py_Version",
    "_PyRuntime",
    "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE",
    "dollar_vars",
    "executor_globals",
    "global_variables",
    "line_number",
    "line_number_for_err_trap",
    "ruby_current_vm_ptr",
    "ruby_version",
    "this_shell_function",
    "zend_execute_ex",
];

/// What stands before the version in every PHP.
const BEFORE_PHP_VERSION: &[u8] = b"X-Powered-By: PHP/";
