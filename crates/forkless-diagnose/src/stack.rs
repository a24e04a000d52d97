//! From the top of a stack and two registers to a list of named frames.
//!
//! Unwinds by `.eh_frame`, since distributions build without frame pointers; where a module has none, by frame
//! pointers. Reads the modules through the process's own view of the file system (`map_files`, else `root`), so that a
//! container's or a deleted file is the right one. Costs some 100 us for a process that is new to it, mostly for
//! /proc/PID/maps; a module's tables are read once.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::sync::Arc;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder as _,
    UnwinderNative,
};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use serde::Serialize;

use crate::symbol::{self, Symbols};
use crate::watch::StackTop;

/// One frame, innermost first in a stack.
///
/// ```
/// let frame = forkless_diagnose::Frame {
///     function: Some("spawn_worker".into()),
///     offset: 0x2a,
///     module: "/usr/sbin/httpd".into(),
///     build_id: None,
/// };
/// assert_eq!(frame.to_string(), "spawn_worker (httpd)");
/// ```
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
        let module = self.module.rsplit('/').next().unwrap_or(&self.module);
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

/// What is kept of one mapped file.
#[derive(Debug)]
struct ModuleFile {
    symbols: Symbols,
    build_id: Option<String>,
    eh_frame: Option<(Range<u64>, Arc<[u8]>)>,
    eh_frame_hdr: Option<(Range<u64>, Arc<[u8]>)>,
    text: Option<(Range<u64>, Arc<[u8]>)>,
    got: Option<Range<u64>>,
    /// The executable segments: what relates a mapping to the file's own addresses.
    segments: Vec<Segment>,
}

/// An executable PT_LOAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

impl Segment {
    /// The file's own address of what is mapped from `offset`, if this segment was mapped there. Mappings begin at a page's
    /// start, segments need not: with LLD the first page of the text also holds the end of the segment before it, at
    /// another distance from its address. Only executable segments may answer for an executable mapping.
    fn address_of(&self, offset: u64) -> Option<u64> {
        let page = rustix::param::page_size() as u64;
        let mapped = self.offset & !(page - 1)..self.offset + self.size;
        mapped.contains(&offset).then(|| self.address.wrapping_add(offset.wrapping_sub(self.offset)))
    }
}

impl ModuleFile {
    fn read(path: &str) -> Option<Self> {
        let data = fs::read(path).ok()?;
        let file = object::File::parse(&*data).ok()?;
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            let bytes: Arc<[u8]> = section.uncompressed_data().ok()?.into();
            Some((section.address()..section.address() + section.size(), bytes))
        };
        Some(Self {
            symbols: Symbols::read(&file),
            build_id: file.build_id().ok().flatten().map(symbol::hexadecimal),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            text: section(".text"),
            got: section(".got").map(|(range, _)| range),
            segments: file
                .segments()
                .filter(|segment| segment.permissions().executable())
                .map(|segment| {
                    let (offset, size) = segment.file_range();
                    Segment { offset, size, address: segment.address() }
                })
                .collect(),
        })
    }

    /// The file's own address of what is mapped executable from `offset`.
    fn address_of(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| segment.address_of(offset))
    }
}

/// An executable mapping of a process.
#[derive(Debug)]
struct Mapping {
    range: Range<u64>,
    path: String,
    module: Option<Arc<ModuleFile>>,
    /// Added to the file's addresses gives the process's.
    bias: u64,
}

struct Process {
    start_ticks: u64,
    mappings: Vec<Mapping>,
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

/// Processes' mappings and modules, kept from stack to stack. Bounded: it forgets everything when it has seen
/// `MAX_PROCESSES` processes or `MAX_MODULES` modules.
///
/// ```
/// use forkless_diagnose::{Site, StackTop, Unwinder};
/// fn here() -> u32 { 4711 }
/// let site = Site { pid: std::process::id(), nr: 56, ip: here as fn() -> u32 as usize as u64, word: 0 };
/// let top = StackTop { site, class: 0, sp: 0, fp: 0, lr: 0, top: Vec::new() };
/// let frames = Unwinder::new().frames(&top).expect("the process is there");
/// assert!(frames[0].function.as_deref().is_some_and(|name| name.contains("here")), "{frames:?}");
/// ```
#[derive(Default)]
pub struct Unwinder {
    processes: HashMap<u32, Process>,
    /// By device and inode, as /proc/PID/maps prints them.
    modules: HashMap<(String, u64), Option<Arc<ModuleFile>>>,
}

const MAX_PROCESSES: usize = 256;
const MAX_MODULES: usize = 512;
/// Deeper stacks are cut; the top of 8 KiB seldom holds as many.
const MAX_FRAMES: usize = 48;

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

impl Unwinder {
    /// An unwinder that knows no process yet.
    ///
    /// ```
    /// let unwinder = forkless_diagnose::Unwinder::new();
    /// assert_eq!(format!("{unwinder:?}"), "Unwinder { processes: 0, .. }");
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// The frames of a stack, innermost first. `None` if the process is gone.
    ///
    /// ```
    /// use forkless_diagnose::{Site, StackTop, Unwinder};
    /// let nowhere = Site { pid: 0, nr: 56, ip: 0x401136, word: 0 };
    /// let top = StackTop { site: nowhere, class: 0, sp: 0, fp: 0, lr: 0, top: Vec::new() };
    /// assert_eq!(Unwinder::new().frames(&top), None);
    /// ```
    pub fn frames(&mut self, stack: &StackTop) -> Option<Vec<Frame>> {
        let pid = stack.site.pid;
        let fresh = self.processes.get(&pid).is_none_or(|process| {
            // An exec or a dlopen moves the code: what we do not know means that we have to look again.
            !process.mappings.iter().any(|mapping| mapping.range.contains(&stack.site.ip))
                || crate::procfs::start_ticks(pid).is_some_and(|ticks| ticks != process.start_ticks)
        });
        if fresh {
            let process = self.load(pid)?;
            if self.processes.len() >= MAX_PROCESSES {
                self.processes.clear();
            }
            self.processes.insert(pid, process);
        }
        let process = self.processes.get_mut(&pid)?;
        let mut addresses = Vec::new();
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(stack.sp).ok_or(())?).map_err(drop)?;
            let word = stack.top.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_ne_bytes(word.try_into().map_err(drop)?))
        };
        let mut frames =
            process.unwinder.iter_frames(stack.site.ip, registers(stack), &mut process.cache, &mut read);
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(frame.address_for_lookup());
            if addresses.len() == MAX_FRAMES {
                break;
            }
        }
        Some(addresses.into_iter().filter_map(|address| process.name(address)).collect())
    }

    fn load(&mut self, pid: u32) -> Option<Process> {
        let start_ticks = crate::procfs::start_ticks(pid)?;
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let mut process = Process {
            start_ticks,
            mappings: Vec::new(),
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
        };
        for line in maps.lines() {
            let Some(map) = MapsLine::parse(line).filter(|map| map.executable) else { continue };
            let module = self.module(pid, &map);
            let bias = module
                .as_ref()
                .and_then(|module| Some(map.range.start.wrapping_sub(module.address_of(map.offset)?)))
                .unwrap_or(map.range.start.wrapping_sub(map.offset));
            if let Some(module) = &module {
                process.unwinder.add_module(unwind_module(&map, module, bias));
            }
            process.mappings.push(Mapping { range: map.range, path: map.path, module, bias });
        }
        Some(process)
    }

    fn module(&mut self, pid: u32, map: &MapsLine) -> Option<Arc<ModuleFile>> {
        if map.inode == 0 {
            return None;
        }
        let key = (map.device.clone(), map.inode);
        if let Some(known) = self.modules.get(&key) {
            return known.clone();
        }
        if self.modules.len() >= MAX_MODULES {
            self.modules.clear();
        }
        let exact = format!("/proc/{pid}/map_files/{:x}-{:x}", map.range.start, map.range.end);
        let named = format!("/proc/{pid}/root{}", map.path.trim_end_matches(" (deleted)"));
        let module = ModuleFile::read(&exact).or_else(|| ModuleFile::read(&named)).map(Arc::new);
        self.modules.insert(key, module.clone());
        module
    }
}

impl Process {
    fn name(&self, address: u64) -> Option<Frame> {
        let mapping = self.mappings.iter().find(|mapping| mapping.range.contains(&address))?;
        let in_file = address.wrapping_sub(mapping.bias);
        let found = mapping.module.as_ref().and_then(|module| module.symbols.find(in_file));
        Some(Frame {
            offset: found.as_ref().map_or(in_file, |(_, offset)| *offset),
            function: found.map(|(name, _)| name),
            module: mapping.path.clone(),
            build_id: mapping.module.as_ref().and_then(|module| module.build_id.clone()),
        })
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

fn unwind_module(map: &MapsLine, file: &ModuleFile, bias: u64) -> Module<Arc<[u8]>> {
    let range = |part: &Option<(Range<u64>, Arc<[u8]>)>| part.as_ref().map(|(range, _)| range.clone());
    let bytes = |part: &Option<(Range<u64>, Arc<[u8]>)>| part.as_ref().map(|(_, bytes)| Arc::clone(bytes));
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(&file.text),
        text: bytes(&file.text),
        got_svma: file.got.clone(),
        eh_frame_svma: range(&file.eh_frame),
        eh_frame: bytes(&file.eh_frame),
        eh_frame_hdr_svma: range(&file.eh_frame_hdr),
        eh_frame_hdr: bytes(&file.eh_frame_hdr),
        ..Default::default()
    };
    Module::new(map.path.clone(), map.range.clone(), bias, sections)
}

/// A line of /proc/PID/maps.
#[derive(Debug, PartialEq, Eq)]
struct MapsLine {
    range: Range<u64>,
    executable: bool,
    offset: u64,
    device: String,
    inode: u64,
    path: String,
}

impl MapsLine {
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let (first, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after;
            first
        };
        let (start, end) = field().split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        let executable = field().as_bytes().get(2) == Some(&b'x');
        let offset = u64::from_str_radix(field(), 16).ok()?;
        let device = field().to_owned();
        let inode = field().parse().ok()?;
        Some(Self { range, executable, offset, device, inode, path: rest.trim_start().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maps_line_keeps_blanks_in_the_path() {
        let line =
            "55d0c0000000-55d0c0001000 r-xp 00002000 08:01 1234                       /opt/a b (deleted)";
        let map = MapsLine::parse(line).expect("well formed");
        assert_eq!((map.range, map.offset, map.inode), (0x55d0_c000_0000..0x55d0_c000_1000, 0x2000, 1234));
        assert!(map.executable);
        assert_eq!(map.path, "/opt/a b (deleted)");
    }

    #[test]
    fn nonsense_in_maps_is_no_mapping() {
        assert_eq!(MapsLine::parse(""), None);
        assert_eq!(MapsLine::parse("zz-11 r-xp 0 0 0"), None);
    }

    /// As LLD lays files out: text that begins in the middle of a page, at another distance than the segment before it.
    #[test]
    fn a_page_that_two_segments_share_belongs_to_the_executable_one() {
        let text = Segment { offset: 0x18050, size: 0x4e140, address: 0x19050 };
        assert_eq!(text.address_of(0x18000), Some(0x19000));
        assert_eq!(text.address_of(0x19000), Some(0x1a000));
        assert_eq!(text.address_of(0x17000), None);
        assert_eq!(text.address_of(0x66190), None);
    }

    #[inline(never)]
    fn a_place_of_our_own() -> u64 {
        std::hint::black_box(7)
    }

    /// This test is linked as Rust links everything, today by LLD.
    #[test]
    fn our_own_code_is_found_under_its_name() {
        a_place_of_our_own();
        let ip = (a_place_of_our_own as fn() -> u64) as usize as u64 + 1;
        let site = crate::Site { pid: std::process::id(), nr: 0, ip, word: 0 };
        let stack = StackTop { site, class: 0, sp: 0, fp: 0, lr: 0, top: Vec::new() };
        let frames = Unwinder::new().frames(&stack).expect("we are there");
        let first = frames.first().expect("the innermost frame");
        assert!(
            first.function.as_deref().is_some_and(|name| name.ends_with("a_place_of_our_own")),
            "{first:?}"
        );
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

    #[test]
    fn a_process_that_is_gone_has_no_frames() {
        let site = crate::Site { pid: 1 << 23, nr: 56, ip: 0, word: 0 };
        let stack = StackTop { site, class: 0, sp: 0, fp: 0, lr: 0, top: Vec::new() };
        assert_eq!(Unwinder::new().frames(&stack), None);
    }
}
