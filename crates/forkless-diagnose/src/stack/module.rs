//! A mapped file. It is opened while the process that maps it exists, and read when a stack needs
//! it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use framehop::{ExplicitModuleSectionInfo, Module};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};

use super::collector::{Collector, Collects, Section};
use super::debug_file::{BUILD_ID, DebugLink, Root};
use super::dwarf::{DebugInfo, NoLine, SourceFrame};
use super::elf;
use super::maps::MapsLine;
use crate::regular_file;
use crate::symbol::Symbols;

/// A file that a process maps. It holds the descriptor: while it does, no other file gets the
/// inode's number, by which files are told apart.
#[derive(Debug)]
pub(super) struct MappedFile {
    file: File,
    /// As the process has it.
    path: PathBuf,
    /// The process's root, if it is not ours.
    root: Option<Arc<Root>>,
    read: OnceLock<Option<ModuleFile>>,
    debug: Mutex<Option<Result<DebugInfo, NoLine>>>,
}

impl MappedFile {
    /// Opens the file behind a mapping. First through the process: map_files (also for deleted
    /// files and containers), then the path below its root. If the process is gone, the same path
    /// here, if it is the same file.
    pub(super) fn open(pid: u32, map: &MapsLine, root: Option<Arc<Root>>) -> Option<Self> {
        let exact = format!("/proc/{pid}/map_files/{:x}-{:x}", map.range.start, map.range.end);
        let path = Path::new(map.path.trim_end_matches(" (deleted)"));
        let inside = root.as_deref().map_or_else(|| path.to_owned(), |root| root.inside(path));
        let by_root = || match &root {
            Some(root) => root.open(&inside),
            None => regular_file::open(format!("/proc/{pid}/root{}", path.display())),
        };
        // By now another file may be at the path.
        let is_mapped = |file: &File| file.metadata().is_ok_and(|found| found.ino() == map.inode);
        let file = regular_file::open(exact)
            .or_else(|| by_root().filter(is_mapped))
            .or_else(|| regular_file::open(path).filter(|file| is_the_file_of(file, map)))?;
        Some(Self { file, path: inside, root, read: OnceLock::new(), debug: Mutex::new(None) })
    }

    /// The contents that are kept; `None` if it is no ELF file. Takes milliseconds the first time.
    pub(super) fn module(&self) -> Option<&ModuleFile> {
        self.read.get_or_init(|| ModuleFile::read(&self.file, &self.path, self.root.as_deref())).as_ref()
    }

    /// The source of an address of the file. Takes some 2 ms for each MB of debug information the
    /// first time.
    pub(super) fn source(&self, address: u64) -> Result<Vec<SourceFrame>, NoLine> {
        let mut debug = self.debug.lock().unwrap_or_else(PoisonError::into_inner);
        debug.get_or_insert_with(|| self.debug_info()).as_mut().map_err(|why| *why)?.find(address)
    }

    fn debug_info(&self) -> Result<DebugInfo, NoLine> {
        let module = self.module().ok_or(NoLine::NotInstalled)?;
        let debug = if module.has_debug_info {
            DebugInfo::read(&self.file)?
        } else {
            let apart = module.link.find(&self.path, self.root.as_deref()).ok_or(NoLine::NotInstalled)?;
            DebugInfo::read(&apart)?
        };
        if HELD.fetch_add(debug.size(), Ordering::Relaxed) + debug.size() > MOST_HELD {
            HELD.fetch_sub(debug.size(), Ordering::Relaxed);
            return Err(NoLine::TooLarge);
        }
        Ok(debug)
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let debug = self.debug.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(debug)) = debug {
            HELD.fetch_sub(debug.size(), Ordering::Relaxed);
        }
    }
}

/// Bytes of debug information in memory, of all files.
static HELD: AtomicU64 = AtomicU64::new(0);
const MOST_HELD: u64 = 512 << 20;

/// Whether a file found by its path is the mapped one. File systems with anonymous devices
/// (overlay, btrfs) report two different devices: then it counts as another file.
fn is_the_file_of(file: &File, map: &MapsLine) -> bool {
    let device = |device| format!("{:02x}:{:02x}", libc::major(device), libc::minor(device));
    file.metadata().is_ok_and(|found| found.ino() == map.inode && device(found.dev()) == map.device)
}

/// The kept contents of a mapped file.
#[derive(Debug)]
pub(super) struct ModuleFile {
    pub(super) symbols: Symbols,
    /// That of Python, if it is one.
    collector: Collector,
    pub(super) build_id: Option<String>,
    link: DebugLink,
    has_debug_info: bool,
    eh_frame: Option<Section>,
    eh_frame_hdr: Option<Section>,
    text: Option<Section>,
    got: Option<Range<u64>>,
    /// The executable segments. They relate a mapping to the file's own addresses.
    segments: Vec<Segment>,
}

/// The sections that are read of a file at once.
const PARTS: &[&str] = &[
    ".dynstr",
    ".dynsym",
    ".eh_frame",
    ".eh_frame_hdr",
    ".got",
    ".gnu_debuglink",
    BUILD_ID,
    ".strtab",
    ".symtab",
    ".text",
];

/// An executable PT_LOAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

impl Segment {
    /// The file's own address of file offset `offset`, if this segment was mapped there. A mapping
    /// begins at a page, a segment need not. With LLD the first page of the text also holds the end
    /// of the segment before it, whose addresses are at another distance. So only executable
    /// segments may answer for an executable mapping.
    fn address_of(&self, offset: u64) -> Option<u64> {
        let page = rustix::param::page_size() as u64;
        let mapped = self.offset & !(page - 1)..self.offset + self.size;
        mapped.contains(&offset).then(|| self.address.wrapping_add(offset.wrapping_sub(self.offset)))
    }
}

impl ModuleFile {
    fn read(opened: &File, path: &Path, root: Option<&Root>) -> Option<Self> {
        let data = elf::parts(opened, PARTS).ok()?;
        let file = object::File::parse(&*data).ok()?;
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            let bytes: Arc<[u8]> = section.data().ok()?.into();
            Some((section.address()..section.address() + section.size(), bytes))
        };
        let link = DebugLink::of(&file);
        let has_symbols = file.symbols().next().is_some();
        // A stripped library's dynamic symbols name only what it exports.
        let apart = if has_symbols { None } else { link.find(path, root) };
        let apart = apart.and_then(|apart| elf::parts(&apart, PARTS).ok());
        let apart = apart.as_deref().and_then(|apart| object::File::parse(apart).ok());
        let symbols = Symbols::read([Some(&file), apart.as_ref()]);
        let (eh_frame, text) = (section(".eh_frame"), section(".text"));
        let collector = if has_symbols || apart.is_some() {
            Collector::Named
        } else {
            Collector::of(&symbols, eh_frame.as_ref(), text.as_ref())
        };
        Some(Self {
            symbols,
            collector,
            build_id: link.build_id(),
            has_debug_info: file.section_by_name(".debug_info").is_some(),
            link,
            eh_frame,
            eh_frame_hdr: section(".eh_frame_hdr"),
            text,
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

    /// The file's own address of file offset `offset` in an executable mapping.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| segment.address_of(offset))
    }

    /// Whether code without a name is a collector's.
    pub(super) fn collects(&self, address: u64) -> Collects {
        self.collector.collects(address)
    }

    /// The code before an address of the file's.
    pub(super) fn code_before(&self, address: u64) -> &[u8] {
        let Some((range, bytes)) = &self.text else { return &[] };
        let end = address.checked_sub(range.start).and_then(|end| usize::try_from(end).ok());
        end.and_then(|end| bytes.get(..end)).unwrap_or_default()
    }

    /// The module for the unwinder, at this mapping.
    pub(super) fn unwind_module(&self, map: &MapsLine, bias: u64) -> Module<Arc<[u8]>> {
        let range = |part: &Option<Section>| part.as_ref().map(|(range, _)| range.clone());
        let bytes = |part: &Option<Section>| part.as_ref().map(|(_, bytes)| Arc::clone(bytes));
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(&self.text),
            text: bytes(&self.text),
            got_svma: self.got.clone(),
            eh_frame_svma: range(&self.eh_frame),
            eh_frame: bytes(&self.eh_frame),
            eh_frame_hdr_svma: range(&self.eh_frame_hdr),
            eh_frame_hdr: bytes(&self.eh_frame_hdr),
            ..Default::default()
        };
        Module::new(map.path.clone(), map.range.clone(), bias, sections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As LLD lays files out: text that begins in the middle of a page, at another distance than
    /// the segment before it.
    #[test]
    fn a_page_that_two_segments_share_belongs_to_the_executable_one() {
        let text = Segment { offset: 0x18050, size: 0x4e140, address: 0x19050 };
        assert_eq!(text.address_of(0x18000), Some(0x19000));
        assert_eq!(text.address_of(0x19000), Some(0x1a000));
        assert_eq!(text.address_of(0x17000), None);
        assert_eq!(text.address_of(0x66190), None);
    }

    /// Regression: a watch waited for ever where a FIFO had taken the place of a mapped file.
    #[test]
    fn what_has_taken_the_place_of_a_file_is_not_waited_for() {
        let fifo = std::env::temp_dir().join(format!("forkless-fifo-{}", std::process::id()));
        let path = fifo.to_str().expect("UTF-8").to_owned();
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("coreutils");
        assert!(made.success());
        let opened = regular_file::open(path);
        std::fs::remove_file(&fifo).expect("ours");
        assert!(opened.is_none());
        assert!(regular_file::open("/proc/self/exe").is_some());
    }

    #[test]
    fn a_file_opened_after_its_process_has_gone_is_the_same_or_none() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("our own");
        let map = maps
            .lines()
            .filter_map(MapsLine::parse)
            .find(|map| map.executable && map.inode != 0)
            .expect("our own code");
        let file = File::open(&map.path).expect("our own binary");
        if !is_the_file_of(&file, &map) {
            return println!("skipped: a file system whose devices differ between stat and maps");
        }
        let gone = 1 << 23;
        assert!(MappedFile::open(gone, &map, None).is_some());
        let replaced = MapsLine { inode: map.inode + 1, ..map };
        assert!(MappedFile::open(gone, &replaced, None).is_none());
    }
}
