//! From the top of a stack and two registers to a list of named frames.
//!
//! Unwinds by `.eh_frame`, since distributions build without frame pointers; by frame pointers for
//! modules without it. It reads modules through the process's own view of the file system
//! (`map_files`, else `root`): a container's file or a deleted file must be the right one. A
//! module's tables are read once.
//!
//! There are two steps, because a program that lives for a millisecond is gone before the symbols
//! of its libraries are read. [`Unwinder::meet`] reads /proc/PID/maps and opens new files (some 100
//! us for a new process). [`Sighting::frames`] reads the files and unwinds, at any later time.

mod collector;
mod debug_file;
mod dwarf;
mod elf;
mod maps;
mod module;
mod perf_map;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use framehop::{CacheNative, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder as _, UnwinderNative};
use serde::Serialize;

pub(crate) use self::collector::Collects;
use self::debug_file::Root;
pub(crate) use self::dwarf::NoLine;
use self::dwarf::SourceFrame;
use self::maps::MapsLine;
use self::module::MappedFile;
use self::perf_map::PerfMap;
use crate::creation::{Place, ProgramKey};
use crate::event::StackTop;
use crate::file_name::file_name;
use crate::interpreter::Family;

/// One frame, innermost first in a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
pub struct Frame {
    /// The function, demangled; `None` without symbols.
    pub function: Option<String>,
    /// Offset into the function, or into the module without one, in bytes.
    pub offset: u64,
    /// The module's path in the process's mount namespace.
    pub module: String,
    /// The module's build id in hexadecimal.
    pub build_id: Option<String>,
    /// The source file, where debug information tells. A script's file is the module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in the source file, or in the script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Only this is known: the script waits here for what it has started. It started it before, on
    /// this line or on another one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// Why code of the program has no line.
    #[serde(skip)]
    pub(crate) no_line: Option<NoLine>,
    /// Whether code without a name is that of Python's collector.
    #[serde(skip)]
    pub(crate) collects: Collects,
}

impl From<forkless_frames::Frame> for Frame {
    fn from(frame: forkless_frames::Frame) -> Self {
        let forkless_frames::Frame { function, file, line, .. } = frame;
        Self { function: Some(function), module: file, line, ..Self::default() }
    }
}

impl Frame {
    /// The same without the offset, where the line tells the place.
    pub(crate) fn without_offset(&self) -> Self {
        let offset = if self.line.is_some() { 0 } else { self.offset };
        Self { offset, ..self.clone() }
    }

    /// Whether it is code of the C library, its loader, or the kernel's page of calls.
    pub(crate) fn is_of_c_library(&self) -> bool {
        is_c_library(&self.module)
    }

    /// Whether it is code of our own library, which stands between a program and its system calls.
    pub(crate) fn is_of_forkless(&self) -> bool {
        file_name(&self.module).starts_with("libforkless")
    }

    /// Whether it is a call of a script, and no machine code.
    pub(crate) fn is_of_script(&self) -> bool {
        self.function.is_some() && self.offset == 0 && self.build_id.is_none() && self.file.is_none()
    }

    /// Whether it is code of a language's standard library, of a package manager's, or of our own
    /// library: no code of the user's.
    pub(crate) fn is_of_library(&self) -> bool {
        const FOLDERS: &[&str] =
            &["/rustlib/src/", "/.cargo/registry/", "/cargo/registry/src/", "/usr/include/", "/include/c++/"];
        const MODULES: &[&str] = &["libstdc++.so", "libgcc_s.so", "libc++.so", "libjava.so", "libjvm.so"];
        const NAMES: &[&str] =
            &["std::", "core::", "alloc::", "__gnu_cxx::", "__rust_", "forkless::", "forkless_child::"];
        let is_in = |file: &String| {
            FOLDERS.iter().any(|folder| file.contains(folder))
                || file.starts_with("/rustc/") && file.contains("/library/")
        };
        let module = file_name(&self.module);
        let function = self.function.as_deref().unwrap_or_default();
        let function = function.strip_prefix('<').unwrap_or(function);
        self.is_of_c_library()
            || self.is_of_forkless()
            || self.file.as_ref().is_some_and(is_in)
            || MODULES.iter().any(|name| module.starts_with(name))
            || NAMES.iter().any(|name| function.starts_with(name))
            || self.is_compiled() && is_of_java(function)
    }

    /// Whether it is code of a run-time compiler, named by its map.
    pub(crate) fn is_compiled(&self) -> bool {
        self.module.starts_with("/tmp/perf-") && self.module.ends_with(".map")
    }

    /// Whether it is code of an interpreter: the line that is looked for is a script's. Java's
    /// methods are in the stack itself.
    pub(crate) fn is_of_interpreter(&self) -> bool {
        Family::of_file(&self.module).is_some_and(|family| family != Family::Java)
    }

    /// Whether it is code of a shared library.
    pub(crate) fn is_of_shared_library(&self) -> bool {
        let file = file_name(&self.module);
        file.ends_with(".so") || file.contains(".so.")
    }
}

/// How many of a stack's inner frames are the C library's, in a program that it is linked into.
/// Names with two underscores are reserved for it (ISO C, 7.1.3), and POSIX defines the others.
pub(crate) fn frames_of_linked_c_library(stack: &[Frame]) -> usize {
    const OF_POSIX: &[&str] = &[
        "clone",
        "clone3",
        "daemon",
        "fork",
        "forkpty",
        "popen",
        "posix_spawn",
        "posix_spawnp",
        "system",
        "vfork",
        "wordexp",
    ];
    /// Static functions of glibc's: a program's own may have such a name, too.
    const BETWEEN: &[&str] = &["do_system", "spawn_process"];
    let function = |frame: Option<&Frame>| -> Option<String> {
        let frame = frame.filter(|frame| !frame.is_of_shared_library() && !frame.is_of_script())?;
        frame.function.clone()
    };
    let is_the_librarys = |name: &str| {
        let is_reserved = ["__", "_IO_", "_Fork"].iter().any(|begin| name.starts_with(begin));
        OF_POSIX.contains(&name) || is_reserved && !name.contains("::")
    };
    let is_at = |at: usize| {
        let name = function(stack.get(at)).unwrap_or_default();
        let is_next = || function(stack.get(at + 1)).is_some_and(|next| is_the_librarys(&next));
        // The library's ends in it by a jump: the next function is the program's. Debug information
        // that tells the program's functions tells one of that name, too.
        let has_line = |frame: &Frame| frame.line.is_some() && !frame.is_of_script();
        let is_apart = || !has_line(&stack[at]) && stack.get(at + 1).is_some_and(has_line);
        is_the_librarys(&name) || BETWEEN.contains(&name.as_str()) && (is_next() || is_apart())
    };
    (0..stack.len()).take_while(|at| is_at(*at)).count()
}

/// Whether a file is the C library or its loader.
fn is_c_library(path: &str) -> bool {
    let file = file_name(path);
    ["libc.so", "libc-", "libc.musl", "ld-linux", "ld-musl", "libpthread", "[vdso]"]
        .iter()
        .any(|name| file.starts_with(name))
}

/// Whether a mapping's code stands between a program and its system calls.
fn is_between(map: &MapsLine) -> bool {
    is_c_library(&map.path) || forkless_run::names_library(map.path.as_bytes())
}

/// Whether a name in a perf map is Java's own code: its library, or parts of the virtual machine,
/// which are no methods.
fn is_of_java(name: &str) -> bool {
    let method = name.split('(').next().unwrap_or_default();
    let method = method.rsplit(' ').next().unwrap_or_default();
    ["java.", "javax.", "jdk.", "sun."].iter().any(|package| method.starts_with(package))
        || ["Interpreter", "StubRoutines", "Stub Generator"].iter().any(|part| name.starts_with(part))
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.file.as_ref().filter(|_| self.line.is_some()).unwrap_or(&self.module);
        let module = match file_name(file) {
            // Code that a run-time compiler has put into memory.
            "" => "code without a file",
            module => module,
        };
        if self.waits {
            f.write_str("waits at ")?;
        }
        if self.collects == Collects::Yes {
            f.write_str("the garbage collector: ")?;
        }
        match &self.function {
            Some(function) if let Some(line) = self.line => write!(f, "{function} ({module}:{line})"),
            Some(function) => write!(f, "{function} ({module})"),
            // These figures find the name elsewhere.
            None => {
                write!(f, "{module}+{:#x}", self.offset)?;
                self.build_id.as_ref().map_or(Ok(()), |id| write!(f, " [build id {id}]"))
            }
        }
    }
}

/// An executable mapping of a process.
#[derive(Debug)]
struct Mapping {
    map: MapsLine,
    file: Option<Arc<MappedFile>>,
}

/// A process at the time of its stack.
#[derive(Debug)]
struct Process {
    start_ticks: u64,
    mappings: Vec<Mapping>,
    /// If a run-time compiler has put code into its memory.
    compiled: Option<Arc<PerfMap>>,
    tables: Mutex<Option<Tables>>,
    /// Those of the C library alone.
    of_c_library: Mutex<Option<Tables>>,
}

impl Process {
    fn code_at(&self, address: u64) -> Option<&MapsLine> {
        self.mappings.iter().map(|mapping| &mapping.map).find(|map| map.range.contains(&address))
    }

    /// Whether an address is in known code.
    fn covers(&self, address: u64) -> bool {
        self.code_at(address).is_some()
    }

    /// Whether files are mapped as in another look. Code of run-time compilers is ignored: it has
    /// no tables.
    fn is_the_same(&self, other: &Self) -> bool {
        fn files(process: &Process) -> impl Iterator<Item = &MapsLine> {
            process.mappings.iter().map(|mapping| &mapping.map).filter(|map| map.inode != 0)
        }
        self.start_ticks == other.start_ticks
            && self.compiled.is_some() == other.compiled.is_some()
            && files(self).eq(files(other))
    }
}

/// The modules' tables for unwinding. They are made at first use.
struct Tables {
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    placed: Vec<Placed>,
    compiled: Option<Arc<PerfMap>>,
}

/// A module in its place.
struct Placed {
    range: Range<u64>,
    path: String,
    file: Option<Arc<MappedFile>>,
    /// The process's addresses minus the file's.
    bias: u64,
}

impl Placed {
    /// Where the function that holds an address begins, by the symbols.
    fn function_at(&self, address: u64) -> Option<u64> {
        let module = self.file.as_ref()?.module()?;
        let (_, offset) = module.symbols.find(address.wrapping_sub(self.bias))?;
        Some(address.wrapping_sub(offset))
    }
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").field("modules", &self.placed.len()).finish_non_exhaustive()
    }
}

/// Processes' mappings and modules, kept from stack to stack. Bounded: it forgets everything when
/// it has seen `MAX_PROCESSES` processes or `MAX_MODULES` modules.
#[derive(Default)]
pub struct Unwinder {
    processes: HashMap<u32, Arc<Process>>,
    /// By device and inode, as /proc/PID/maps prints them. Only files that could be opened: a file
    /// that failed in one process may open in the next.
    modules: HashMap<(String, u64), Arc<MappedFile>>,
    /// By device and inode: the roots of processes that have another than ours.
    roots: HashMap<(u64, u64), Arc<Root>>,
}

const MAX_PROCESSES: usize = 256;
/// Also bounds the descriptors held for modules.
const MAX_MODULES: usize = 256;
const MAX_ROOTS: usize = 64;
/// Deeper stacks are cut. 8 KiB of stack seldom hold as many frames.
const MAX_FRAMES: usize = 48;

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

/// Where the C library's function that makes a system call has its return address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReturnAt {
    pub(crate) program: ProgramKey,
    /// The system call.
    pub(crate) ip: u64,
    /// So many bytes above the stack pointer at the system call.
    pub(crate) above_sp: u64,
    /// The code that it points into.
    pub(crate) code: Range<u64>,
}

/// A stack with the mappings of its process, which may be gone by now; see [`Unwinder::meet`].
#[derive(Debug)]
pub struct Sighting {
    stack: StackTop,
    process: Arc<Process>,
}

impl Unwinder {
    /// An unwinder that knows no process yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes the mappings of a stack's process and opens their files. `None` if the process is
    /// gone.
    pub fn meet(&mut self, stack: StackTop) -> Option<Sighting> {
        let pid = stack.place.pid;
        // Look each time: the process may have loaded a library since its last stack.
        let Some(now) = self.look_at(pid) else {
            // The process is known and has ended: the stack was taken before its end.
            let process = Arc::clone(self.processes.get(&pid)?);
            return process.covers(stack.place.ip).then_some(Sighting { stack, process });
        };
        let process = match self.processes.get(&pid) {
            // The same code: its tables are kept.
            Some(known) if known.is_the_same(&now) => Arc::clone(known),
            _ => {
                if self.processes.len() >= MAX_PROCESSES {
                    self.processes.clear();
                }
                let process = Arc::new(now);
                self.processes.insert(pid, Arc::clone(&process));
                process
            }
        };
        Some(Sighting { stack, process })
    }

    /// The frames of a stack, innermost first. `None` if the process is gone.
    pub fn frames(&mut self, stack: &StackTop) -> Option<Vec<Frame>> {
        Some(self.meet(stack.clone())?.frames())
    }

    fn look_at(&mut self, pid: u32) -> Option<Process> {
        let maps = crate::procfs::read(&format!("/proc/{pid}/maps")).filter(|maps| !maps.is_empty())?;
        let root = self.root(pid);
        let mut mappings = Vec::new();
        for map in maps.lines().filter_map(MapsLine::parse).filter(|map| map.executable) {
            let file = self.file(pid, &map, root.as_ref());
            mappings.push(Mapping { map, file });
        }
        let is_compiled = |mapping: &Mapping| mapping.map.inode == 0 && !mapping.map.path.starts_with("[v");
        let compiled =
            mappings.iter().any(is_compiled).then(|| PerfMap::of(pid, root)).flatten().map(Arc::new);
        // Read last: the files are what vanishes first.
        let start_ticks = crate::procfs::start_ticks(pid).unwrap_or(0);
        let (tables, of_c_library) = (Mutex::new(None), Mutex::new(None));
        Some(Process { start_ticks, mappings, compiled, tables, of_c_library })
    }

    fn root(&mut self, pid: u32) -> Option<Arc<Root>> {
        let id = debug_file::other_root(pid)?;
        if let Some(known) = self.roots.get(&id) {
            return Some(Arc::clone(known));
        }
        let root = Arc::new(Root::of(pid)?);
        if self.roots.len() >= MAX_ROOTS {
            self.roots.clear();
        }
        self.roots.insert(id, Arc::clone(&root));
        Some(root)
    }

    fn file(&mut self, pid: u32, map: &MapsLine, root: Option<&Arc<Root>>) -> Option<Arc<MappedFile>> {
        if map.inode == 0 {
            return None;
        }
        let key = (map.device.clone(), map.inode);
        if let Some(known) = self.modules.get(&key) {
            return Some(Arc::clone(known));
        }
        let file = Arc::new(MappedFile::open(pid, map, root.cloned())?);
        if self.modules.len() >= MAX_MODULES {
            self.modules.clear();
        }
        self.modules.insert(key, Arc::clone(&file));
        Some(file)
    }
}

impl Sighting {
    /// The frames, innermost first. Reads the modules that no stack has needed before, which takes
    /// milliseconds each.
    pub fn frames(&self) -> Vec<Frame> {
        let Self { stack, process } = self;
        let mut tables = process.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = tables.get_or_insert_with(|| Tables::of(process, |_| true));
        let mut addresses = self.unwound(tables, registers(stack), stack.place.ip);
        let (mut ip, mut sp) = (stack.place.ip, stack.sp);
        // musl is built without tables, and so may be the program.
        for _ in 0..MOST_WITHOUT_TABLES {
            if addresses.len() >= MAX_FRAMES || addresses.last().is_none_or(|last| ip.abs_diff(*last) > 1) {
                break;
            }
            let Some((caller, above)) = self.caller_by_its_call(tables, ip, sp) else { break };
            (ip, sp) = (caller, above);
            let more = self.unwound(tables, registers_at(stack, ip, sp), ip);
            // Of a return address the call before it is the frame's.
            addresses.push(ip - 1);
            addresses.extend(more.into_iter().skip(1));
        }
        addresses.truncate(MAX_FRAMES);
        addresses.into_iter().flat_map(|address| tables.name(address)).collect()
    }

    /// The addresses of the frames from `ip` on, as far as the tables tell.
    fn unwound(&self, tables: &mut Tables, registers: UnwindRegsNative, ip: u64) -> Vec<u64> {
        let mut read = |address: u64| self.word_at(address);
        let mut addresses = Vec::new();
        let mut frames = tables.unwinder.iter_frames(ip, registers, &mut tables.cache, &mut read);
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(frame.address_for_lookup());
            if addresses.len() == MAX_FRAMES {
                break;
            }
        }
        // Where there are no tables, the unwinder guesses. A guess that is no code is wrong.
        if tables.compiled.is_none()
            && let Some(wrong) = addresses.iter().position(|address| tables.placed_at(*address).is_none())
        {
            addresses.truncate(wrong);
        }
        addresses
    }

    /// The caller of code without tables: a word on the stack that follows a call which may lead
    /// to that code. Of several it is the one whose call leads nearest to the code, since no
    /// function begins between; of these the first. Returns the address, and that of the stack
    /// above.
    fn caller_by_its_call(&self, tables: &Tables, ip: u64, sp: u64) -> Option<(u64, u64)> {
        /// Words of the stack that are looked at: larger frames are rare in a C library.
        const WORDS: u64 = 256;
        let callee = tables.placed_at(ip)?;
        let begin = callee.function_at(ip);
        let found = (0..WORDS).map(|word| sp.wrapping_add(8 * word)).filter_map(|at| {
            let word = self.word_at(at).ok()?;
            let caller = tables.placed_at(word)?;
            let module = caller.file.as_ref()?.module()?;
            let call = call_before(module.code_before(word.wrapping_sub(caller.bias)))?;
            let leads_to = match call {
                // Through a table of the linker's.
                _ if !std::ptr::eq(caller, callee) => 1,
                Call::ByPointer => 0,
                Call::To(distance) => Some(word.wrapping_add_signed(distance)).filter(|&target| {
                    let is_near = target <= ip && ip - target < LARGEST_FUNCTION;
                    begin.map_or(is_near, |begin| begin == target)
                })?,
            };
            Some((leads_to, word, at.wrapping_add(8)))
        });
        // The first of the greatest.
        let nearest = found.reduce(|best, next| if next.0 > best.0 { next } else { best });
        nearest.map(|(_, word, above)| (word, above))
    }

    fn word_at(&self, address: u64) -> Result<u64, ()> {
        let at = usize::try_from(address.checked_sub(self.stack.sp).ok_or(())?).map_err(drop)?;
        let word = self.stack.top.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
        Ok(u64::from_ne_bytes(word.try_into().map_err(drop)?))
    }

    /// The place of the stack.
    pub(crate) fn place(&self) -> Place {
        self.stack.place
    }

    /// The pages or creations that the stack stands for.
    pub(crate) fn stands_for(&self) -> u64 {
        self.stack.stands_for
    }

    /// Where the C library's function has its return address. `None` if it is not the C library
    /// that makes the call, or if the address is in a register. Reads the C library's tables, once.
    pub(crate) fn return_at(&self) -> Option<ReturnAt> {
        let Self { stack, process } = self;
        let Place { ip, .. } = stack.place;
        process.code_at(ip).filter(|map| is_between(map))?;
        let mut tables = process.of_c_library.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = tables.get_or_insert_with(|| Tables::of(process, is_between));
        let mut seen = Vec::new();
        let mut read = |address: u64| {
            let word = self.word_at(address)?;
            seen.push((address, word));
            Ok(word)
        };
        let mut frames = tables.unwinder.iter_frames(ip, registers(stack), &mut tables.cache, &mut read);
        let (address, code) = loop {
            let address = frames.next().ok()??.address();
            match process.code_at(address)? {
                map if is_between(map) => {}
                map => break (address, map.range.clone()),
            }
        };
        let (at, _) = seen.into_iter().rfind(|(_, word)| *word == address)?;
        Some(ReturnAt { program: stack.place.program(), ip, above_sp: at - stack.sp, code })
    }
}

/// Frames that are found without tables, at most.
const MOST_WITHOUT_TABLES: usize = 8;
/// Functions of musl's that create processes are shorter, in bytes.
const LARGEST_FUNCTION: u64 = 512;

/// A call instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// To code at this distance from the return address.
    To(i64),
    /// By a register or by memory.
    ByPointer,
}

/// The call that ends where the code does. Only on x86-64: elsewhere the return address is in a
/// register, and the frame pointer is used.
fn call_before(code: &[u8]) -> Option<Call> {
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    if let [.., 0xe8, a, b, c, d] = *code {
        return Some(Call::To(i64::from(i32::from_le_bytes([a, b, c, d]))));
    }
    // 0xff /2: call of memory relative to the instruction, of a register, of memory by a register.
    let by_pointer =
        matches!(*code, [.., 0xff, 0x15, _, _, _, _] | [.., 0xff, 0xd0..=0xd7] | [.., 0xff, 0x50..=0x57, _]);
    by_pointer.then_some(Call::ByPointer)
}

#[cfg(target_arch = "x86_64")]
fn registers_at(stack: &StackTop, ip: u64, sp: u64) -> UnwindRegsNative {
    UnwindRegsNative::new(ip, sp, stack.fp)
}

#[cfg(target_arch = "aarch64")]
fn registers_at(stack: &StackTop, _: u64, _: u64) -> UnwindRegsNative {
    registers(stack)
}

#[cfg(target_arch = "x86_64")]
fn registers(stack: &StackTop) -> UnwindRegsNative {
    registers_at(stack, stack.place.ip, stack.sp)
}

#[cfg(target_arch = "aarch64")]
fn registers(stack: &StackTop) -> UnwindRegsNative {
    // A return address may carry a signature above its 48 bits (pointer authentication).
    let address = framehop::aarch64::PtrAuthMask(u64::MAX >> 16);
    UnwindRegsNative::new_with_ptr_auth_mask(address, stack.lr, stack.sp, stack.fp)
}

impl Tables {
    /// Of the mappings that `wanted` chooses.
    fn of(process: &Process, wanted: fn(&MapsLine) -> bool) -> Self {
        let (unwinder, cache, placed) = (UnwinderNative::new(), CacheNative::new(), Vec::new());
        let mut tables = Self { unwinder, cache, placed, compiled: process.compiled.clone() };
        for Mapping { map, file } in process.mappings.iter().filter(|mapping| wanted(&mapping.map)) {
            let module = file.as_ref().and_then(|file| file.module());
            let bias = module
                .and_then(|module| Some(map.range.start.wrapping_sub(module.address_of(map.offset)?)))
                .unwrap_or(map.range.start.wrapping_sub(map.offset));
            if let Some(module) = module {
                tables.unwinder.add_module(module.unwind_module(map, bias));
            }
            let (range, path, file) = (map.range.clone(), map.path.clone(), file.clone());
            tables.placed.push(Placed { range, path, file, bias });
        }
        tables
    }

    fn placed_at(&self, address: u64) -> Option<&Placed> {
        self.placed.iter().find(|placed| placed.range.contains(&address))
    }

    /// The function at an address, behind those that are inlined into it there.
    fn name(&self, address: u64) -> Vec<Frame> {
        let placed = self.placed_at(address);
        // A run-time compiler's memory grows, and the mappings of its first stack are kept.
        if placed.is_none_or(|placed| placed.file.is_none())
            && let Some(compiled) = &self.compiled
            && let Some((function, offset)) = compiled.find(address)
        {
            let module = compiled.path().to_string_lossy().into_owned();
            return vec![Frame { function: Some(function), offset, module, ..Frame::default() }];
        }
        let Some(placed) = placed else { return Vec::new() };
        let in_file = address.wrapping_sub(placed.bias);
        let module = placed.file.as_ref().and_then(|file| file.module());
        let found = module.and_then(|module| module.symbols.find(in_file));
        let mut frame = Frame {
            offset: found.as_ref().map_or(in_file, |(_, offset)| *offset),
            function: found.map(|(name, _)| name),
            module: placed.path.clone(),
            build_id: module.and_then(|module| module.build_id.clone()),
            ..Frame::default()
        };
        if let Some(module) = module.filter(|_| frame.function.is_none()) {
            frame.collects = module.collects(in_file);
        }
        // Nobody looks for a line of the C library.
        let Some(file) = placed.file.as_ref().filter(|_| module.is_some() && !frame.is_of_c_library()) else {
            return vec![frame];
        };
        match file.source(in_file) {
            Ok(mut sources) => {
                let SourceFrame { file, line, .. } = sources.pop().unwrap_or_default();
                let inlined = sources.into_iter().map(|source| {
                    let SourceFrame { function, file, line } = source;
                    Frame { function, file, line, ..frame.clone() }
                });
                let mut frames: Vec<Frame> = inlined.collect();
                (frame.file, frame.line) = (file, line);
                frames.push(frame);
                frames
            }
            Err(why) => {
                frame.no_line = Some(why);
                vec![frame]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_return_address_follows_a_call() {
        assert_eq!(call_before(&[0x90, 0xe8, 0xfe, 0xff, 0xff, 0xff]), Some(Call::To(-2)));
        assert_eq!(call_before(&[0xff, 0x15, 1, 2, 3, 4]), Some(Call::ByPointer));
        assert_eq!(call_before(&[0x41, 0xff, 0xd4]), Some(Call::ByPointer));
        assert_eq!(call_before(&[0xff, 0x53, 0x18]), Some(Call::ByPointer));
        for other in [&[0x0f, 0x05][..], &[0xe8, 0, 0, 0], &[]] {
            assert_eq!(call_before(other), None);
        }
    }

    #[inline(never)]
    fn a_place_of_our_own() -> u64 {
        std::hint::black_box(7)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(never)]
    fn another_place() -> u64 {
        std::hint::black_box(8)
    }

    /// This test is linked as Rust links everything, today by LLD.
    #[test]
    fn our_own_code_is_found_under_its_name() {
        a_place_of_our_own();
        let ip = (a_place_of_our_own as fn() -> u64) as usize as u64 + 1;
        let place = Place { pid: std::process::id(), nr: 0, ip, word: 0, image: 0 };
        let stack = StackTop::empty(place);
        let frames = Unwinder::new().frames(&stack).expect("we are there");
        let first = frames.first().expect("the innermost frame");
        assert!(
            first.function.as_deref().is_some_and(|name| name.ends_with("a_place_of_our_own")),
            "{first:?}"
        );
    }

    /// On entry to a function the word at the stack pointer is its return address.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_caller_of_a_function_just_entered_is_found_on_the_stack() {
        let address = |function: fn() -> u64| function as usize as u64;
        let ip = address(a_place_of_our_own);
        let place = Place { pid: std::process::id(), nr: 0, ip, word: 0, image: 0 };
        let top = (address(another_place) + 1).to_ne_bytes().to_vec();
        let stack = StackTop { sp: 0x7ffc_1000, top, ..StackTop::empty(place) };
        let frames = Unwinder::new().frames(&stack).expect("we are there");
        let caller = frames.get(1).and_then(|frame| frame.function.as_deref());
        assert!(caller.is_some_and(|name| name.ends_with("another_place")), "{frames:?}");
    }

    /// The nearest word that points into a library may be an old return address: Ruby's system and
    /// its fork were one place.
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    #[test]
    fn the_return_address_of_the_c_librarys_function_is_found() {
        // On entry to a function its return address lies at the stack pointer.
        let ip = libc::getppid as unsafe extern "C" fn() -> i32 as usize as u64;
        let ours = (a_place_of_our_own as fn() -> u64) as usize as u64;
        let place = Place { pid: std::process::id(), nr: 0, ip, word: 0, image: 5 };
        let top: Vec<u8> = [ours + 1, ours + 2].into_iter().flat_map(u64::to_ne_bytes).collect();
        let at = |ip, top: &[u8]| StackTop {
            sp: 0x7ffc_1000,
            top: top.to_vec(),
            ..StackTop::empty(Place { ip, ..place })
        };
        let find = |ip, top: &[u8]| Unwinder::new().meet(at(ip, top)).expect("we are there").return_at();
        let found = find(ip, &top).expect("the C library calls");
        assert_eq!((found.ip, found.above_sp, found.program), (ip, 0, place.program()));
        assert!(found.code.contains(&ours), "{found:x?}");
        assert_eq!(find(ours, &top), None, "our own call");
        assert_eq!(find(ip, &[]), None, "a stack that was not read");
    }

    #[test]
    fn the_code_of_libraries_is_not_the_users() {
        let frame = |function: &str, module: &str, file: Option<&str>| Frame {
            function: Some(function.to_owned()),
            module: module.to_owned(),
            file: file.map(str::to_owned),
            ..Frame::default()
        };
        let of_libraries = [
            frame("fork", "/usr/lib/libc.so.6", None),
            frame("<std::sys::process::Command>::do_fork", "/srv/app", None),
            frame("call", "/srv/app", Some("/rustc/5980/library/core/src/ops/function.rs")),
            frame("operator()", "/srv/app", Some("/usr/include/c++/12/bits/std_function.h")),
            frame("java.lang.Process java.lang.ProcessBuilder.start()", "/tmp/perf-7.map", None),
            frame("Interpreter", "/tmp/perf-7.map", None),
        ];
        for frame in of_libraries {
            assert!(frame.is_of_library(), "{frame}");
        }
        let of_the_user = [
            frame("main", "/srv/app", Some("/srv/app/main.rs")),
            frame("<app::Shop as core::ops::Drop>::drop", "/srv/app", None),
            frame("java.lang.String shop.Order.print(java.lang.String)", "/tmp/perf-7.map", None),
            frame("Interpreter", "/srv/app", None),
        ];
        for frame in of_the_user {
            assert!(!frame.is_of_library(), "{frame}");
        }
    }

    #[test]
    fn the_c_library_is_known_in_a_program_that_it_is_linked_into() {
        let own = |names: &[&str]| {
            let frame = |name: &&str| Frame {
                function: Some((*name).to_owned()),
                module: "/srv/app".to_owned(),
                build_id: Some("7".to_owned()),
                ..Frame::default()
            };
            frames_of_linked_c_library(&names.iter().map(frame).collect::<Vec<_>>())
        };
        assert_eq!(own(&["_Fork", "fork", "spawn_process", "main"]), 2, "the program's");
        assert_eq!(own(&["__clone3", "posix_spawn", "do_system", "system", "main"]), 4);
        assert_eq!(own(&["__spawni", "posix_spawn", "spawn_process", "_IO_proc_open", "popen", "f"]), 5);
        assert_eq!(own(&["start", "fork", "main"]), 0);
        assert_eq!(own(&["<__gnu_cxx::pool>::fork", "main"]), 0);
    }

    #[test]
    fn a_frame_in_code_without_a_file_says_so() {
        let jit = Frame { offset: 0xd5d9, ..Frame::default() };
        assert_eq!(jit.to_string(), "code without a file+0xd5d9");
    }

    #[test]
    fn a_frame_of_a_script_shows_its_line() {
        let (function, module) = (Some("start".to_owned()), "/srv/app.py".to_owned());
        let frame = Frame { function, module, line: Some(7), ..Frame::default() };
        assert_eq!(frame.to_string(), "start (app.py:7)");
    }

    #[test]
    fn a_frame_without_a_name_shows_what_finds_it_elsewhere() {
        let frame = Frame {
            offset: 0x1234,
            module: "/usr/lib/libx.so".into(),
            build_id: Some("ab12".into()),
            ..Frame::default()
        };
        assert_eq!(frame.to_string(), "libx.so+0x1234 [build id ab12]");
    }

    /// Java's first stack comes while it starts. Its fork comes much later, from a library loaded
    /// since.
    #[test]
    #[expect(unsafe_code, reason = "maps code as a loader does")]
    fn code_that_is_mapped_later_is_found_and_what_was_read_is_kept() {
        let pid = std::process::id();
        let ip = (a_place_of_our_own as fn() -> u64) as usize as u64 + 1;
        let at = |ip| StackTop::empty(Place { pid, nr: 0, ip, word: 0, image: 0 });
        let mut unwinder = Unwinder::new();
        let first = unwinder.meet(at(ip)).expect("we are there");
        let again = unwinder.meet(at(ip)).expect("we are there");
        assert!(Arc::ptr_eq(&first.process, &again.process));

        let file = fs::File::open("/proc/self/exe").expect("our own");
        let (length, flags) = (4096, libc::MAP_PRIVATE);
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: a fresh mapping, wherever there is room; nothing runs in it.
        let code =
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0) };
        assert_ne!(code, libc::MAP_FAILED);
        let later = unwinder.meet(at(ip)).expect("we are there");
        assert!(!first.process.covers(code.addr() as u64) && later.process.covers(code.addr() as u64));
        // SAFETY: our own mapping, which nobody refers to.
        unsafe { libc::munmap(code, length) };
    }

    #[test]
    fn a_process_that_is_gone_has_no_frames() {
        let place = Place { pid: 1 << 23, nr: 56, ip: 0, word: 0, image: 0 };
        let stack = StackTop::empty(place);
        assert_eq!(Unwinder::new().frames(&stack), None);
    }
}
