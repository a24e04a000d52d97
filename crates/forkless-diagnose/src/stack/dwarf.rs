//! Source lines by DWARF: function, file and line of an address, with the functions inlined there.
//!
//! The crate addr2line does this for files that are trusted. A watch as root reads files of
//! anybody. addr2line recurses by the depth of inlining, which a file chooses: 100,000 levels end
//! the watcher. It also keeps each range of a unit, and a file may name one long list a million
//! times. So this reads with gimli, which steps through the entries, and keeps nothing but the
//! units' ranges. CPU time is bounded, since a short file can ask for much of it.

use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use gimli::{
    AttributeValue, DebugInfoOffset, EndianSlice, EntriesRaw, Reader as _, RunTimeEndian, SectionId,
    UnitOffset, UnitRef,
};
use object::{Object as _, ObjectSection as _};
use rustix::time::{ClockId, clock_gettime};

use super::elf::{self, NoParts};
use crate::symbol::demangled;

/// A function at an address, its file and its line. Each is `None` where the file does not say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SourceFrame {
    /// `None` for a function that was not inlined: the symbols have its name.
    pub(super) function: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// Why an address has no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum NoLine {
    /// Neither the file nor a package of symbols has any debug information.
    NotInstalled,
    /// The debug information does not cover this code.
    NotCovered,
    /// More than is read of one file, or of all.
    TooLarge,
    /// It is not as DWARF lays it out.
    Broken,
    /// It takes more time than one file may.
    TooSlow,
}

type Slice<'data> = EndianSlice<'data, RunTimeEndian>;

/// The debug information of one file.
#[derive(Debug)]
pub(super) struct DebugInfo {
    sections: Vec<(SectionId, Vec<u8>)>,
    endian: RunTimeEndian,
    /// Once they were read: where the code of each unit is.
    units: Option<Vec<Unit>>,
    known: HashMap<u64, Result<Vec<SourceFrame>, NoLine>>,
    allowance: Allowance,
}

/// A range of code, and the unit that is about it.
#[derive(Debug, Clone, Copy)]
struct Unit {
    begin: u64,
    end: u64,
    offset: usize,
}

/// Addresses that are remembered of a file.
const MAX_KNOWN: usize = 4096;
/// Ranges of a file's units.
const MAX_RANGES: usize = 1 << 20;
/// Of an address. Compilers stop at some ten.
const MAX_INLINED: usize = 64;
/// Units that claim one address, and are asked.
const MAX_CLAIMS: usize = 4;
/// References from one entry to the one with its name.
const MAX_REFERENCES: usize = 16;
const LONGEST_NAME: usize = 4096;
/// All sections of a file, uncompressed.
const LARGEST: u64 = 256 << 20;
/// CPU time for one file. 50 MB of DWARF take a tenth of it.
const TIME: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });

const SECTIONS: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

impl From<gimli::Error> for NoLine {
    fn from(_: gimli::Error) -> Self {
        Self::Broken
    }
}

impl From<NoParts> for NoLine {
    fn from(why: NoParts) -> Self {
        match why {
            NoParts::TooLarge => Self::TooLarge,
            NoParts::Broken => Self::Broken,
        }
    }
}

impl DebugInfo {
    pub(super) fn read(file: &File) -> Result<Self, NoLine> {
        let names: Vec<&str> = SECTIONS.iter().map(|section| section.name()).collect();
        let parts = elf::parts(file, &names)?;
        let elf = object::File::parse(&*parts).map_err(|_| NoLine::Broken)?;
        let mut left = LARGEST;
        let mut sections = Vec::new();
        for &id in SECTIONS {
            let Some(section) = elf.section_by_name(id.name()) else { continue };
            let data = section.compressed_data().map_err(|_| NoLine::Broken)?;
            left = left.checked_sub(data.uncompressed_size).ok_or(NoLine::TooLarge)?;
            sections.push((id, data.decompress().map_err(|_| NoLine::Broken)?.into_owned()));
        }
        if !sections.iter().any(|(id, _)| *id == SectionId::DebugInfo) {
            return Err(NoLine::NotInstalled);
        }
        let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        Ok(Self { sections, endian, units: None, known: HashMap::new(), allowance: Allowance::default() })
    }

    /// Bytes of memory that it holds.
    pub(super) fn size(&self) -> u64 {
        self.sections.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// The functions at an address of the file, innermost first: the inlined ones, then the one
    /// that they are in.
    pub(super) fn find(&mut self, address: u64) -> Result<Vec<SourceFrame>, NoLine> {
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        // The file may hold anything, and gimli adds up what it says.
        let found = catch_unwind(AssertUnwindSafe(|| self.look(address))).unwrap_or(Err(NoLine::Broken));
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(address, found.clone());
        found
    }

    fn look(&mut self, address: u64) -> Result<Vec<SourceFrame>, NoLine> {
        self.allowance.begin()?;
        let found = self.look_within(address);
        self.allowance.end();
        found
    }

    fn look_within(&mut self, address: u64) -> Result<Vec<SourceFrame>, NoLine> {
        let Self { sections, endian, units, allowance, .. } = self;
        let section =
            |id| sections.iter().find(|(known, _)| *known == id).map_or(&[][..], |(_, bytes)| bytes);
        let dwarf = Dwarf(gimli::Dwarf::load(|id| Ok::<_, NoLine>(EndianSlice::new(section(id), *endian)))?);
        if units.is_none() {
            *units = Some(dwarf.units(allowance)?);
        }
        let claims = units.iter().flatten().filter(|unit| (unit.begin..unit.end).contains(&address));
        for unit in claims.take(MAX_CLAIMS) {
            let frames =
                dwarf.frames(unit.offset, units.as_deref().unwrap_or_default(), address, allowance)?;
            if !frames.is_empty() {
                return Ok(frames);
            }
        }
        Err(NoLine::NotCovered)
    }
}

struct Dwarf<'data>(gimli::Dwarf<Slice<'data>>);

/// An inlined call: the function, and where it is called.
struct Inlined {
    function: Option<String>,
    call_file: Option<u64>,
    call_line: Option<u32>,
}

impl<'data> Dwarf<'data> {
    fn units(&self, allowance: &mut Allowance) -> Result<Vec<Unit>, NoLine> {
        let mut units = Vec::new();
        let mut headers = self.0.units();
        while let Some(header) = headers.next()? {
            allowance.look_at_the_clock()?;
            let Some(offset) = header.debug_info_offset() else { continue };
            // A unit that cannot be read is no reason against the others.
            let Ok(unit) = self.0.unit(header) else { continue };
            let Ok(mut ranges) = self.0.unit_ranges(&unit) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                allowance.step(1)?;
                // Code that the linker has left out is at 0.
                if range.begin > 0 && range.begin < range.end {
                    units.push(Unit { begin: range.begin, end: range.end, offset: offset.0 });
                }
                if units.len() > MAX_RANGES {
                    return Err(NoLine::TooLarge);
                }
            }
        }
        Ok(units)
    }

    fn frames(
        &self,
        unit: usize,
        units: &[Unit],
        address: u64,
        allowance: &mut Allowance,
    ) -> Result<Vec<SourceFrame>, NoLine> {
        let header = self.0.unit_header(DebugInfoOffset(unit))?;
        let unit = self.0.unit(header)?;
        let unit = unit.unit_ref(&self.0);
        let (file, line) = line_of(unit, address, allowance)?;
        // Without its entries, as where they are in files of their own, the line is known.
        let inlined = self.inlined(unit, units, address, allowance).or_else(|why| match why {
            NoLine::TooSlow => Err(why),
            _ => Ok(Vec::new()),
        })?;
        let mut here = SourceFrame { function: None, file, line };
        let mut frames = Vec::new();
        for inlined in inlined.into_iter().rev() {
            let file = inlined.call_file.and_then(|file| file_name(unit, file));
            let outer = SourceFrame { function: None, file, line: inlined.call_line };
            frames.push(SourceFrame { function: inlined.function, ..std::mem::replace(&mut here, outer) });
        }
        if here.line.is_some() || !frames.is_empty() {
            frames.push(here);
        }
        Ok(frames)
    }

    /// The inlined calls around an address, the outermost first.
    fn inlined(
        &self,
        unit: UnitRef<'_, Slice<'data>>,
        units: &[Unit],
        address: u64,
        allowance: &mut Allowance,
    ) -> Result<Vec<Inlined>, NoLine> {
        let mut entries = unit.entries_raw(None)?;
        let mut calls = Vec::new();
        let mut function_depth = None;
        while !entries.is_empty() && calls.len() < MAX_INLINED {
            allowance.step(1)?;
            let depth = entries.next_depth();
            if function_depth.is_some_and(|function| depth <= function) {
                break;
            }
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            let attributes = abbreviation.attributes();
            allowance.step(attributes.len())?;
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    if Entry::read(&mut entries, attributes)?.covers(unit, address, allowance)? {
                        // A function within a function is nearer.
                        calls.clear();
                        function_depth = Some(depth);
                    }
                }
                gimli::DW_TAG_inlined_subroutine if function_depth.is_some() => {
                    let entry = Entry::read(&mut entries, attributes)?;
                    if entry.covers(unit, address, allowance)? {
                        let function = self.name(unit, units, entry.name, entry.origin, allowance);
                        let (call_file, call_line) = (entry.call_file, entry.call_line);
                        calls.push(Inlined { function, call_file, call_line });
                    }
                }
                _ => entries.skip_attributes(attributes)?,
            }
        }
        Ok(calls)
    }

    /// The name of an entry, which may be in the entry that it comes from.
    fn name(
        &self,
        unit: UnitRef<'_, Slice<'data>>,
        units: &[Unit],
        name: Option<AttributeValue<Slice<'data>>>,
        mut origin: Option<AttributeValue<Slice<'data>>>,
        allowance: &mut Allowance,
    ) -> Option<String> {
        let text = |unit: UnitRef<'_, Slice<'data>>, name| {
            let name = unit.attr_string(name).ok()?;
            let name = name.slice().get(..name.len().min(LONGEST_NAME))?;
            Some(demangled(&String::from_utf8_lossy(name)))
        };
        if let Some(name) = name {
            return text(unit, name);
        }
        let mut elsewhere = None;
        for _ in 0..MAX_REFERENCES {
            let offset = match origin.take()? {
                AttributeValue::UnitRef(offset) => offset,
                AttributeValue::DebugInfoRef(DebugInfoOffset(offset)) => {
                    let (found, within) = self.unit_at(offset, units, allowance)?;
                    elsewhere = Some(found);
                    within
                }
                _ => return None,
            };
            let unit = elsewhere.as_ref().map_or(unit, |found| found.unit_ref(&self.0));
            let mut entries = unit.entries_raw(Some(offset)).ok()?;
            let abbreviation = entries.read_abbreviation().ok()??;
            allowance.step(abbreviation.attributes().len()).ok()?;
            let entry = Entry::read(&mut entries, abbreviation.attributes()).ok()?;
            if let Some(name) = entry.name {
                return text(unit, name);
            }
            origin = entry.origin;
        }
        None
    }

    /// The unit that holds an offset of the section, and the offset in it.
    fn unit_at(
        &self,
        offset: usize,
        units: &[Unit],
        allowance: &mut Allowance,
    ) -> Option<(gimli::Unit<Slice<'data>>, UnitOffset)> {
        // `units` has those with code only. From the nearest one the wanted one is not far.
        let near = units.iter().map(|unit| unit.offset).filter(|start| *start <= offset).max().unwrap_or(0);
        let mut start = near;
        loop {
            allowance.step(1).ok()?;
            let header = self.0.unit_header(DebugInfoOffset(start)).ok()?;
            let end = start.checked_add(header.length_including_self())?;
            if offset < end {
                return Some((self.0.unit(header).ok()?, UnitOffset(offset.checked_sub(start)?)));
            }
            start = end;
        }
    }
}

/// What is kept of an entry.
#[derive(Default)]
struct Entry<'data> {
    name: Option<AttributeValue<Slice<'data>>>,
    origin: Option<AttributeValue<Slice<'data>>>,
    low: Option<AttributeValue<Slice<'data>>>,
    high: Option<AttributeValue<Slice<'data>>>,
    ranges: Option<AttributeValue<Slice<'data>>>,
    call_file: Option<u64>,
    call_line: Option<u32>,
}

impl<'data> Entry<'data> {
    fn read(
        entries: &mut EntriesRaw<'_, Slice<'data>>,
        attributes: &[gimli::AttributeSpecification],
    ) -> Result<Self, NoLine> {
        let mut entry = Self::default();
        let mut short = None;
        for specification in attributes {
            let attribute = entries.read_attribute(*specification)?;
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => entry.name = Some(value),
                gimli::DW_AT_name => short = Some(value),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => entry.origin = Some(value),
                gimli::DW_AT_low_pc => entry.low = Some(value),
                gimli::DW_AT_high_pc => entry.high = Some(value),
                gimli::DW_AT_ranges => entry.ranges = Some(value),
                gimli::DW_AT_call_file => {
                    entry.call_file = match value {
                        AttributeValue::FileIndex(file) => Some(file),
                        value => value.udata_value(),
                    }
                }
                gimli::DW_AT_call_line => {
                    entry.call_line = value.udata_value().and_then(|line| u32::try_from(line).ok());
                }
                _ => {}
            }
        }
        // A short name beside an origin is the origin's, whose long one tells more.
        entry.name = entry.name.or(short.filter(|_| entry.origin.is_none()));
        Ok(entry)
    }

    fn covers(
        &self,
        unit: UnitRef<'_, Slice<'data>>,
        address: u64,
        allowance: &mut Allowance,
    ) -> Result<bool, NoLine> {
        if let Some(ranges) = &self.ranges {
            let Some(mut ranges) = unit.attr_ranges(*ranges)? else { return Ok(false) };
            while let Some(range) = ranges.next()? {
                allowance.step(1)?;
                if (range.begin..range.end).contains(&address) {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        let (Some(low), Some(high)) = (&self.low, &self.high) else { return Ok(false) };
        let Some(low) = unit.attr_address(*low)? else { return Ok(false) };
        let high = match high {
            AttributeValue::Udata(length) => Some(low.saturating_add(*length)),
            high => unit.attr_address(*high)?,
        };
        Ok(high.is_some_and(|high| (low..high).contains(&address)))
    }
}

/// File and line of an address, by the unit's table of lines.
fn line_of(
    unit: UnitRef<'_, Slice<'_>>,
    address: u64,
    allowance: &mut Allowance,
) -> Result<(Option<String>, Option<u32>), NoLine> {
    let Some(program) = unit.line_program.clone() else { return Ok((None, None)) };
    let mut rows = program.rows();
    // The row before the first one behind the address, in the same sequence.
    let mut before: Option<(u64, u64, Option<u32>)> = None;
    while let Some((_, row)) = rows.next_row()? {
        allowance.step(1)?;
        if let Some((start, file, line)) = before
            && (start..row.address()).contains(&address)
        {
            return Ok((file_name(unit, file), line));
        }
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
        before = (!row.end_sequence()).then(|| (row.address(), row.file_index(), line));
    }
    Ok((None, None))
}

/// The path of a file in the unit's table.
fn file_name(unit: UnitRef<'_, Slice<'_>>, index: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let text = |value| {
        let text = unit.attr_string(value).ok()?;
        Some(String::from_utf8_lossy(text.slice().get(..text.len().min(LONGEST_NAME))?).into_owned())
    };
    let mut path = text(file.path_name())?;
    let folders = [
        file.directory(header).and_then(text),
        unit.comp_dir.and_then(|folder| text(AttributeValue::String(folder))),
    ];
    for folder in folders.into_iter().flatten().filter(|folder| !folder.is_empty()) {
        if path.starts_with('/') {
            break;
        }
        path = format!("{}/{path}", folder.trim_end_matches('/'));
    }
    Some(path)
}

/// CPU time that one file may take.
#[derive(Debug, Default)]
struct Allowance {
    spent: Duration,
    since: Duration,
    steps: usize,
}

/// Steps between looks at the clock: some 10 us.
const STEPS: usize = 1024;

impl Allowance {
    fn begin(&mut self) -> Result<(), NoLine> {
        self.since = cpu_time();
        self.look_at_the_clock()
    }

    fn end(&mut self) {
        self.spent += cpu_time().saturating_sub(self.since);
    }

    fn step(&mut self, steps: usize) -> Result<(), NoLine> {
        self.steps += steps;
        if self.steps < STEPS {
            return Ok(());
        }
        self.steps = 0;
        self.look_at_the_clock()
    }

    fn look_at_the_clock(&self) -> Result<(), NoLine> {
        let spent = self.spent + cpu_time().saturating_sub(self.since);
        if spent > TIME { Err(NoLine::TooSlow) } else { Ok(()) }
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn with(sections: Vec<(SectionId, Vec<u8>)>) -> DebugInfo {
        let (units, known, allowance) = (None, HashMap::new(), Allowance::default());
        DebugInfo { sections, endian: RunTimeEndian::Little, units, known, allowance }
    }

    /// A compiled program of `fixtures`, and the file's address of its `main`.
    fn compiled(name: &str) -> Option<(File, u64)> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/diagnose/sites/sites.c");
        let program = std::env::temp_dir().join(format!("forkless-dwarf-{name}-{}", std::process::id()));
        let compiler = Command::new("cc").args(["-g", "-O2", "-o"]).arg(&program).arg(source).status();
        if compiler.is_err() {
            println!("skipped: no C compiler");
            return None;
        }
        let file = File::options().read(true).write(true).open(&program).expect("it compiles");
        std::fs::remove_file(&program).expect("ours");
        let parts = elf::parts(&file, &[".symtab", ".strtab"]).expect("an ELF file");
        let elf = object::File::parse(&*parts).expect("an ELF file");
        let main = object::Object::symbol_by_name(&elf, "main").expect("it has one");
        let address = object::ObjectSymbol::address(&main);
        Some((file, address))
    }

    #[test]
    fn a_function_has_its_file_and_its_line() {
        let Some((file, main)) = compiled("line") else { return };
        let mut debug = DebugInfo::read(&file).expect("built with -g");
        let frames = debug.find(main).expect("main is covered");
        let [frame] = &frames[..] else { panic!("{frames:?}") };
        assert!(frame.file.as_deref().is_some_and(|file| file.ends_with("sites/sites.c")), "{frame:?}");
        assert_eq!((frame.line, &frame.function), (Some(31), &None), "{frame:?}");
        assert_eq!(debug.find(1), Err(NoLine::NotCovered));
    }

    /// A watch of the whole machine reads what anybody has written.
    #[test]
    fn debug_information_that_lies_gets_an_answer() {
        let Some((file, main)) = compiled("lies") else { return };
        let whole = DebugInfo::read(&file).expect("built with -g");
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % below as u64).expect("less")
        };
        for _ in 0..2000 {
            let mut sections = whole.sections.clone();
            for _ in 0..=next(8) {
                let at = next(sections.len());
                let bytes = &mut sections[at].1;
                let (at, value) = (next(bytes.len()), u8::try_from(next(256)).expect("a byte"));
                if next(8) == 0 { bytes.truncate(at + 1) } else { bytes[at] = value }
            }
            if let Ok(frames) = with(sections).find(main) {
                assert!(frames.len() <= MAX_INLINED + 1, "{} frames", frames.len());
            }
        }
    }

    /// One unit of one function at 0x1000, and entries of `inside` in it. Entry 3 is an inlined
    /// call whose ranges are the list at 0, entry 4 is the same with children.
    fn unit_with(inside: &[u8], ranges: Vec<u8>) -> DebugInfo {
        let range = [&[0x11, 1, 0x12, 7][..], &[0, 0]].concat();
        let abbreviations = [
            &[1, 0x11, 1][..],
            &range,
            &[2, 0x2e, 1],
            &range,
            &[3, 0x1d, 0, 0x55, 0x17, 0, 0],
            &[4, 0x1d, 1, 0x55, 0x17, 0, 0, 0],
        ]
        .concat();
        let code =
            |number: u8| [&[number][..], &0x1000_u64.to_le_bytes(), &0x1000_u64.to_le_bytes()].concat();
        let entries = [&code(1)[..], &code(2), inside].concat();
        let mut info = u32::try_from(entries.len() + 7).expect("small").to_le_bytes().to_vec();
        info.extend([4, 0, 0, 0, 0, 0, 8]);
        info.extend(entries);
        with(vec![
            (SectionId::DebugInfo, info),
            (SectionId::DebugAbbrev, abbreviations),
            (SectionId::DebugRanges, ranges),
        ])
    }

    fn range_list(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<u8> {
        // Relative to the unit's first address.
        let all = ranges.chain([(0, 0)]);
        all.flat_map(|(begin, end)| [begin.to_le_bytes(), end.to_le_bytes()].concat()).collect()
    }

    /// addr2line recurses here until its stack is full.
    #[test]
    fn a_million_inlined_calls_within_each_other_are_cut() {
        let inside = [4, 0, 0, 0, 0].repeat(1_000_000);
        let frames = unit_with(&inside, range_list([(0, 0x1000)].into_iter())).find(0x1800);
        assert_eq!(frames.map(|frames| frames.len()), Ok(MAX_INLINED + 1));
    }

    /// A hundred thousand entries that share one list of a hundred thousand ranges.
    #[test]
    fn what_takes_too_long_is_given_up() {
        let inside = [3, 0, 0, 0, 0].repeat(1_000_000);
        let ranges = range_list((0..1_000_000).map(|_| (1, 2)));
        let mut debug = unit_with(&inside, ranges);
        debug.allowance.spent = TIME - Duration::from_millis(200);
        assert_eq!(debug.find(0x1800), Err(NoLine::TooSlow));
        assert_eq!(debug.find(0x1801), Err(NoLine::TooSlow), "nothing is left for another address");
    }

    #[test]
    fn a_file_that_is_cut_has_an_answer() {
        let Some((file, main)) = compiled("cut") else { return };
        let mut length = file.metadata().expect("ours").len();
        while length > 0 {
            length = length.saturating_sub(97);
            file.set_len(length).expect("ours");
            let _ = DebugInfo::read(&file).and_then(|mut debug| debug.find(main));
        }
        assert_eq!(DebugInfo::read(&file).map(drop), Err(NoLine::Broken));
    }

    /// Of this test's own file: some 50 MB of debug information.
    #[test]
    #[ignore = "a measurement: cargo test --release -p forkless-diagnose --lib -- --ignored what_a_line --nocapture"]
    fn what_a_line_costs() {
        let file = File::open("/proc/self/exe").expect("our own");
        let parts = elf::parts(&file, &[".symtab", ".strtab"]).expect("an ELF file");
        let elf = object::File::parse(&*parts).expect("an ELF file");
        let functions = object::Object::symbols(&elf)
            .filter(|symbol| object::ObjectSymbol::kind(symbol) == object::SymbolKind::Text)
            .map(|symbol| object::ObjectSymbol::address(&symbol));
        let addresses: Vec<u64> = functions.step_by(97).take(100).collect();
        let begin = cpu_time();
        let mut debug = DebugInfo::read(&file).expect("it has some");
        let read = cpu_time();
        let first = debug.find(addresses[0]).is_ok();
        let units = cpu_time();
        let found = addresses[1..].iter().filter(|address| debug.find(**address).is_ok()).count();
        let each = (cpu_time() - units) / 99;
        println!(
            "{} MB read in {:?}, the first line {first} in {:?}, then {found} of 99 in {each:?} each",
            debug.size() >> 20,
            read - begin,
            units - read,
        );
    }
}
