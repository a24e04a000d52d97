//! Parts of an ELF file in memory. Files may be huge, change while they are read, and lie.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use object::elf::{FileHeader32, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, SectionHeader as _};
use object::{Endianness, FileKind};

/// Larger files are not read. Of a smaller one only the parts that are wanted take memory.
const LARGEST_FILE: u64 = 1 << 30;
/// Parts together. Tables of 100 MB occur.
const LARGEST_PARTS: u64 = 256 << 20;

/// The reason why there is no copy of a file's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoParts {
    TooLarge,
    Broken,
}

/// A copy of an ELF file in which all but the headers and some sections are zeros. The kernel
/// makes pages of such zeros only when they are written.
pub(super) fn parts(file: &File, wanted: &[&str]) -> Result<Vec<u8>, NoParts> {
    let length = file.metadata().map_err(|_| NoParts::Broken)?.len();
    if length > LARGEST_FILE {
        return Err(NoParts::TooLarge);
    }
    let ranges = ranges(file, wanted).ok_or(NoParts::Broken)?;
    let sum =
        ranges.iter().fold(0, |sum: u64, range| sum.saturating_add(range.end.saturating_sub(range.start)));
    if sum > LARGEST_PARTS {
        return Err(NoParts::TooLarge);
    }
    let length = usize::try_from(length).map_err(|_| NoParts::TooLarge)?;
    // An allocation that fails here would end the watch there.
    Vec::<u8>::new().try_reserve_exact(length).map_err(|_| NoParts::TooLarge)?;
    let mut copy = vec![0; length];
    for range in ranges {
        let place = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        // A section may lie about its end.
        let place = place.and_then(|(start, end)| copy.get_mut(start..end));
        // A file that was cut meanwhile ends early.
        place.map_or(Ok(()), |place| file.read_exact_at(place, range.start)).map_err(|_| NoParts::Broken)?;
    }
    Ok(copy)
}

fn ranges(file: &File, wanted: &[&str]) -> Option<Vec<Range<u64>>> {
    // Its buffers are small: it reads the headers and the sections' names.
    let cache = ReadCache::new(file);
    match FileKind::parse(&cache).ok()? {
        FileKind::Elf32 => ranges_of::<FileHeader32<Endianness>>(&cache, wanted),
        FileKind::Elf64 => ranges_of::<FileHeader64<Endianness>>(&cache, wanted),
        _ => None,
    }
}

fn ranges_of<Elf: FileHeader<Endian = Endianness>>(
    cache: &ReadCache<&File>,
    wanted: &[&str],
) -> Option<Vec<Range<u64>>> {
    let header = Elf::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let from = |start: u64, length: u64| start..start.saturating_add(length);
    let programs = u64::from(header.e_phentsize(endian)) * u64::from(header.e_phnum(endian));
    let sections = header.sections(endian, cache).ok()?;
    let headers = u64::from(header.e_shentsize(endian)).saturating_mul(sections.len() as u64);
    let mut ranges = vec![
        from(0, size_of::<Elf>() as u64),
        from(header.e_phoff(endian).into(), programs),
        from(header.e_shoff(endian).into(), headers),
    ];
    let names = header.shstrndx(endian, cache).ok()?;
    for (index, section) in sections.enumerate() {
        let is_wanted = || {
            let name = sections.section_name(endian, section).unwrap_or_default();
            wanted.iter().any(|wanted| wanted.as_bytes() == name)
        };
        if let Some((start, length)) = section.file_range(endian)
            && (index.0 == names as usize || is_wanted())
        {
            ranges.push(from(start, length));
        }
    }
    Some(ranges)
}
