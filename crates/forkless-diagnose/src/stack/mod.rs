//! From the top of a stack and two registers to a list of named frames.
//!
//! Unwinds by `.eh_frame`, since distributions build without frame pointers; where a module has none, by frame
//! pointers. Reads the modules through the process's own view of the file system (`map_files`, else `root`), so that a
//! container's or a deleted file is the right one; a module's tables are read once.
//!
//! In two steps, because a program that lives for a millisecond is gone before the symbols of its libraries are read:
//! [`Unwinder::meet`] reads /proc/PID/maps and opens the files that are new (some 100 us for a process that is new), and
//! [`Sighting::frames`] reads them and unwinds, at any time after.

mod maps;
mod module;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use framehop::{CacheNative, MayAllocateDuringUnwind, UnwindRegsNative, Unwinder as _, UnwinderNative};
use serde::Serialize;

use self::maps::MapsLine;
use self::module::MappedFile;
use crate::creation::CallSite;
use crate::event::StackTop;

/// One frame, innermost first in a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Frame {
    /// The function, demangled; `None` without symbols.
    pub function: Option<String>,
    /// Offset into the function, or into the module without one, in bytes.
    pub offset: u64,
    /// The module's path in the process's mount namespace.
    pub module: String,
    /// The module's build id in hexadecimal.
    pub build_id: Option<String>,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let module = match self.module.rsplit('/').next() {
            // What a compiler has put into memory while the program runs.
            None | Some("") => "code without a file",
            Some(module) => module,
        };
        match &self.function {
            Some(function) => write!(f, "{function} ({module})"),
            // What is needed to find the name elsewhere.
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

/// A process as it was when it was met.
#[derive(Debug)]
struct Process {
    start_ticks: u64,
    mappings: Vec<Mapping>,
    tables: Mutex<Option<Tables>>,
}

impl Process {
    /// Whether an address is in code that we know.
    fn covers(&self, address: u64) -> bool {
        self.mappings.iter().any(|mapping| mapping.map.range.contains(&address))
    }

    /// Whether the files' code lies as in another look. What a compiler at run time maps has no tables anyway.
    fn is_the_same(&self, other: &Self) -> bool {
        fn files(process: &Process) -> impl Iterator<Item = &MapsLine> {
            process.mappings.iter().map(|mapping| &mapping.map).filter(|map| map.inode != 0)
        }
        self.start_ticks == other.start_ticks && files(self).eq(files(other))
    }
}

/// What unwinding needs of the modules. Made when it is first needed.
struct Tables {
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    placed: Vec<Placed>,
}

/// A module in its place.
struct Placed {
    range: Range<u64>,
    path: String,
    file: Option<Arc<MappedFile>>,
    /// Added to the file's addresses gives the process's.
    bias: u64,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").field("modules", &self.placed.len()).finish_non_exhaustive()
    }
}

/// Processes' mappings and modules, kept from stack to stack. Bounded: it forgets everything when it has seen
/// `MAX_PROCESSES` processes or `MAX_MODULES` modules.
#[derive(Default)]
pub struct Unwinder {
    processes: HashMap<u32, Arc<Process>>,
    /// By device and inode, as /proc/PID/maps prints them. Only files that could be opened: what was gone with one process may be
    /// there in the next.
    modules: HashMap<(String, u64), Arc<MappedFile>>,
}

const MAX_PROCESSES: usize = 256;
/// Also bounds the descriptors held for modules that are not read yet.
const MAX_MODULES: usize = 256;
/// Deeper stacks are cut; the top of 8 KiB seldom holds as many.
const MAX_FRAMES: usize = 48;

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

/// A stack whose process was met in time. It may be gone since; see [`Unwinder::meet`].
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

    /// Notes what a stack's process has mapped, and opens the files. `None` if the process is gone.
    pub fn meet(&mut self, stack: StackTop) -> Option<Sighting> {
        let pid = stack.site.pid;
        // Each time: a library that was loaded since the last stack would be missing from this one, though its place (in libc) is known.
        let Some(now) = self.look_at(pid) else {
            // It was met before, and has ended since: this stack was taken before its end.
            let process = Arc::clone(self.processes.get(&pid)?);
            return process.covers(stack.site.ip).then_some(Sighting { stack, process });
        };
        let process = match self.processes.get(&pid) {
            // The same code: what was read of it is kept.
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
        let mut mappings = Vec::new();
        for map in maps.lines().filter_map(MapsLine::parse).filter(|map| map.executable) {
            let file = self.file(pid, &map);
            mappings.push(Mapping { map, file });
        }
        // Last, because the files are what goes away.
        let start_ticks = crate::procfs::start_ticks(pid).unwrap_or(0);
        Some(Process { start_ticks, mappings, tables: Mutex::new(None) })
    }

    fn file(&mut self, pid: u32, map: &MapsLine) -> Option<Arc<MappedFile>> {
        if map.inode == 0 {
            return None;
        }
        let key = (map.device.clone(), map.inode);
        if let Some(known) = self.modules.get(&key) {
            return Some(Arc::clone(known));
        }
        let file = Arc::new(MappedFile::open(pid, map)?);
        if self.modules.len() >= MAX_MODULES {
            self.modules.clear();
        }
        self.modules.insert(key, Arc::clone(&file));
        Some(file)
    }
}

impl Sighting {
    /// The frames, innermost first. Reads the modules that no stack has needed before, which takes milliseconds each.
    pub fn frames(&self) -> Vec<Frame> {
        let Self { stack, process } = self;
        let mut tables = process.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = tables.get_or_insert_with(|| Tables::of(&process.mappings));
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(stack.sp).ok_or(())?).map_err(drop)?;
            let word = stack.top.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_ne_bytes(word.try_into().map_err(drop)?))
        };
        let mut addresses = Vec::new();
        let mut frames =
            tables.unwinder.iter_frames(stack.site.ip, registers(stack), &mut tables.cache, &mut read);
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(frame.address_for_lookup());
            if addresses.len() == MAX_FRAMES {
                break;
            }
        }
        addresses.into_iter().filter_map(|address| tables.name(address)).collect()
    }

    /// The place of the stack.
    pub(crate) fn site(&self) -> CallSite {
        self.stack.site
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(stack: &StackTop) -> UnwindRegsNative {
    UnwindRegsNative::new(stack.site.ip, stack.sp, stack.fp)
}

#[cfg(target_arch = "aarch64")]
fn registers(stack: &StackTop) -> UnwindRegsNative {
    // Above the 48 bits of an address a return address may be signed (pointer authentication).
    let address = framehop::aarch64::PtrAuthMask(u64::MAX >> 16);
    UnwindRegsNative::new_with_ptr_auth_mask(address, stack.lr, stack.sp, stack.fp)
}

impl Tables {
    fn of(mappings: &[Mapping]) -> Self {
        let mut tables =
            Self { unwinder: UnwinderNative::new(), cache: CacheNative::new(), placed: Vec::new() };
        for Mapping { map, file } in mappings {
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

    fn name(&self, address: u64) -> Option<Frame> {
        let placed = self.placed.iter().find(|placed| placed.range.contains(&address))?;
        let in_file = address.wrapping_sub(placed.bias);
        let module = placed.file.as_ref().and_then(|file| file.module());
        let found = module.and_then(|module| module.symbols.find(in_file));
        Some(Frame {
            offset: found.as_ref().map_or(in_file, |(_, offset)| *offset),
            function: found.map(|(name, _)| name),
            module: placed.path.clone(),
            build_id: module.and_then(|module| module.build_id.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[inline(never)]
    fn a_place_of_our_own() -> u64 {
        std::hint::black_box(7)
    }

    #[inline(never)]
    fn another_place() -> u64 {
        std::hint::black_box(8)
    }

    /// This test is linked as Rust links everything, today by LLD.
    #[test]
    fn our_own_code_is_found_under_its_name() {
        a_place_of_our_own();
        let ip = (a_place_of_our_own as fn() -> u64) as usize as u64 + 1;
        let site = CallSite { pid: std::process::id(), nr: 0, ip, word: 0 };
        let stack = StackTop { site, class: 0, sp: 0, fp: 0, lr: 0, top: Vec::new() };
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
        let site = CallSite { pid: std::process::id(), nr: 0, ip, word: 0 };
        let top = (address(another_place) + 1).to_ne_bytes().to_vec();
        let stack = StackTop { site, class: 0, sp: 0x7ffc_1000, fp: 0, lr: 0, top };
        let frames = Unwinder::new().frames(&stack).expect("we are there");
        let caller = frames.get(1).and_then(|frame| frame.function.as_deref());
        assert!(caller.is_some_and(|name| name.ends_with("another_place")), "{frames:?}");
    }

    #[test]
    fn a_frame_in_code_without_a_file_says_so() {
        let jit = Frame { function: None, offset: 0xd5d9, module: String::new(), build_id: None };
        assert_eq!(jit.to_string(), "code without a file+0xd5d9");
    }

    #[test]
    fn a_frame_without_a_name_shows_what_finds_it_elsewhere() {
        let frame = Frame {
            function: None,
            offset: 0x1234,
            module: "/usr/lib/libx.so".into(),
            build_id: Some("ab12".into()),
        };
        assert_eq!(frame.to_string(), "libx.so+0x1234 [build id ab12]");
    }

    /// Java's first stack comes while it starts, and its fork long after, from a library that was not there then.
    #[test]
    #[expect(unsafe_code, reason = "maps code as a loader does")]
    fn code_that_is_mapped_later_is_found_and_what_was_read_is_kept() {
        let pid = std::process::id();
        let ip = (a_place_of_our_own as fn() -> u64) as usize as u64 + 1;
        let at = |ip| StackTop {
            site: CallSite { pid, nr: 0, ip, word: 0 },
            class: 0,
            sp: 0,
            fp: 0,
            lr: 0,
            top: Vec::new(),
        };
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
        let site = CallSite { pid: 1 << 23, nr: 56, ip: 0, word: 0 };
        let stack = StackTop { site, class: 0, sp: 0, fp: 0, lr: 0, top: Vec::new() };
        assert_eq!(Unwinder::new().frames(&stack), None);
    }
}
