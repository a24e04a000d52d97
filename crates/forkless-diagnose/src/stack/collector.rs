//! The garbage collector of a CPython whose static functions have no names.
//!
//! Distributions take these names out, and nearly all of the collector is static. Three facts tell
//! it all the same. `PyGC_Collect` is exported and calls it directly. It begins where an entry of
//! `.eh_frame` does. And it alone calls `tp_traverse` of a type, which is at the same place in
//! `PyTypeObject` in 2.7 to 3.14 (Include/cpython/object.h). A function counts if it is on the way
//! from the first of these facts to the last. Other layouts, such as that of a build without the
//! global lock, match nothing: then it is not known which code collects.

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, NativeEndian, UnwindSection as _};

use crate::symbol::Symbols;

/// Whether code is the collector's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Collects {
    /// It is not, or its name tells.
    #[default]
    No,
    /// It is, and has no name.
    Yes,
    /// The file does not tell which code is.
    Unknown,
}

/// The collector of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Collector {
    /// The file is no interpreter, or names tell.
    Named,
    /// Its functions, by the file's own addresses.
    At(Vec<Range<u64>>),
    Unknown,
}

impl Collector {
    /// Of a file whose static functions have no names.
    pub(super) fn of(symbols: &Symbols, eh_frame: Option<&Section>, text: Option<&Section>) -> Self {
        let Some(entry) = symbols.begin_of("PyGC_Collect") else { return Self::Named };
        let found = eh_frame.zip(text).and_then(|(eh_frame, text)| {
            let functions = functions(eh_frame)?;
            let mut code = Code { symbols, text, functions, left: MOST_READ, found: Vec::new() };
            let entry = code.function_at(entry)?;
            code.leads_to_traverse(&entry, DEPTH)?;
            // The entry itself has a name.
            code.found.retain(|function| *function != entry);
            Some(code.found).filter(|found| !found.is_empty())
        });
        found.map_or(Self::Unknown, Self::At)
    }

    pub(super) fn collects(&self, address: u64) -> Collects {
        match self {
            Self::Named => Collects::No,
            Self::At(functions) if functions.iter().any(|function| function.contains(&address)) => {
                Collects::Yes
            }
            Self::At(_) => Collects::No,
            Self::Unknown => Collects::Unknown,
        }
    }
}

/// A section's addresses and bytes.
pub(super) type Section = (Range<u64>, std::sync::Arc<[u8]>);

/// Calls from `PyGC_Collect` to the function that calls `tp_traverse`: Debian's 3.11 has three
/// (`gc_collect_with_callback`, `gc_collect_main`, `subtract_refs`), a build without LTO one.
const DEPTH: u32 = 3;
/// Bytes of code that are read of a file, which may say that each function is as large as it is.
const MOST_READ: usize = 1 << 20;
/// Functions of a file that are looked at. An interpreter has some 10,000.
const MOST_FUNCTIONS: usize = 1 << 20;

/// The ranges of all functions, sorted.
fn functions((range, bytes): &Section) -> Option<Vec<Range<u64>>> {
    let section = EhFrame::new(bytes, NativeEndian);
    // Its addresses are relative to itself.
    let bases = BaseAddresses::default().set_eh_frame(range.start);
    let mut entries = section.entries(&bases);
    let mut functions = Vec::new();
    while let Some(entry) = entries.next().ok()? {
        let CieOrFde::Fde(entry) = entry else { continue };
        let Ok(entry) = entry.parse(EhFrame::cie_from_offset) else { continue };
        let begin = entry.initial_address();
        functions.push(begin..begin.saturating_add(entry.len()));
        if functions.len() > MOST_FUNCTIONS {
            return None;
        }
    }
    functions.sort_unstable_by_key(|function| (function.start, function.end));
    functions.dedup_by_key(|function| function.start);
    Some(functions)
}

struct Code<'c> {
    symbols: &'c Symbols,
    text: &'c Section,
    functions: Vec<Range<u64>>,
    /// Bytes that may still be read.
    left: usize,
    /// Functions that lead to a call of `tp_traverse`.
    found: Vec<Range<u64>>,
}

impl<'c> Code<'c> {
    fn function_at(&self, begin: u64) -> Option<Range<u64>> {
        let at = self.functions.binary_search_by_key(&begin, |function| function.start).ok()?;
        self.functions.get(at).cloned()
    }

    /// The function's instructions. Nothing of a function outside of the section of code: there
    /// the linker has its table of calls of other files.
    fn body(&mut self, function: &Range<u64>) -> Option<&'c [u8]> {
        let (range, bytes) = self.text;
        let offset = |address: u64| usize::try_from(address.checked_sub(range.start)?).ok();
        let body = offset(function.start).zip(offset(function.end));
        let body = body.and_then(|(start, end)| bytes.get(start..end)).unwrap_or_default();
        self.left = self.left.checked_sub(body.len())?;
        Some(body)
    }

    /// Whether a function calls `tp_traverse`, or leads to one that does. `None` if there is too
    /// much code.
    fn leads_to_traverse(&mut self, function: &Range<u64>, depth: u32) -> Option<bool> {
        if self.found.contains(function) {
            return Some(true);
        }
        let body = self.body(function)?;
        let mut leads = calls_traverse(body);
        if depth > 0 {
            for target in calls(function.start, body) {
                let Some(callee) = self.function_at(target).filter(|callee| callee != function) else {
                    continue;
                };
                // A function with a name is no part of the collector.
                if self.symbols.find(target).is_none() {
                    leads |= self.leads_to_traverse(&callee, depth - 1)?;
                }
            }
        }
        if leads && !self.found.contains(function) {
            self.found.push(function.clone());
        }
        Some(leads)
    }
}

/// Where the calls of some code at an address may lead. It also takes what only looks like a call:
/// that leads to no function's begin.
fn calls(begin: u64, body: &[u8]) -> impl Iterator<Item = u64> {
    body.windows(5).zip(begin..).filter_map(|(bytes, at)| match *bytes {
        [0xe8, a, b, c, d] if cfg!(target_arch = "x86_64") => {
            let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
            Some(at.wrapping_add(5).wrapping_add_signed(distance))
        }
        _ => None,
    })
}

/// Whether code has `call *0xb8(%register)`: 0xff /2 with a displacement of 32 bits. The fourth
/// register would take another byte.
fn calls_traverse(body: &[u8]) -> bool {
    cfg!(target_arch = "x86_64")
        && body
            .windows(6)
            .any(|bytes| matches!(*bytes, [0xff, register @ 0x90..=0x97, 0xb8, 0, 0, 0] if register != 0x94))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Code at 0x1000 with functions of 16 bytes, and what `.eh_frame` says of it.
    fn file(bodies: &[&[u8]]) -> [Section; 2] {
        const AT: u64 = 0x1000;
        let mut text = vec![0x90; 16 * bodies.len()];
        // A CIE (augmentation "", alignments 1 and -8, return address 16) without instructions.
        let mut frames = vec![12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0, 0, 0];
        for (body, at) in bodies.iter().zip(0_u8..) {
            let start = 16 * usize::from(at);
            text[start..start + body.len()].copy_from_slice(body);
            let cie = u32::try_from(frames.len() + 4).expect("a short section");
            frames.extend([20, 0, 0, 0]);
            frames.extend(cie.to_le_bytes());
            frames.extend((AT + start as u64).to_le_bytes());
            frames.extend(16_u64.to_le_bytes());
        }
        frames.extend([0; 4]);
        let section = |at: u64, bytes: Vec<u8>| (at..at + bytes.len() as u64, bytes.into());
        [section(0x8000, frames), section(AT, text)]
    }

    /// A call at the begin of one of these functions to that of another.
    fn call(from: i32, to: i32) -> Vec<u8> {
        [&[0xe8][..], &(16 * (to - from) - 5).to_le_bytes()].concat()
    }

    const TRAVERSE: &[u8] = &[0xff, 0x90, 0xb8, 0, 0, 0];

    fn named(names: &[(u64, &str)]) -> Symbols {
        Symbols::made_of(names.iter().map(|(at, name)| (0x1000 + 16 * at, 16, *name)))
    }

    #[test]
    fn what_leads_from_the_export_to_the_types_collects() {
        // PyGC_Collect calls 1, which calls 2, which traverses. 3 traverses, and nobody calls it.
        let [eh_frame, text] = file(&[&call(0, 1), &call(1, 2), TRAVERSE, TRAVERSE, &[]]);
        let entry = named(&[(0, "PyGC_Collect"), (4, "PyErr_Occurred")]);
        let collector = Collector::of(&entry, Some(&eh_frame), Some(&text));
        let of = |at: u64| collector.collects(0x1000 + 16 * at + 7);
        assert_eq!(
            [0, 1, 2, 3, 4].map(of),
            [Collects::No, Collects::Yes, Collects::Yes, Collects::No, Collects::No]
        );
    }

    #[test]
    fn where_no_fact_tells_the_collector_it_is_not_guessed() {
        let unknown = |bodies: &[&[u8]], names: &[(u64, &str)]| {
            let [eh_frame, text] = file(bodies);
            Collector::of(&named(names), Some(&eh_frame), Some(&text)) == Collector::Unknown
        };
        let entry = (0, "PyGC_Collect");
        assert!(unknown(&[&call(0, 1), &[0xff, 0x90, 0xc8, 0, 0, 0]], &[entry]), "another slot");
        assert!(unknown(&[&call(0, 1), TRAVERSE], &[entry, (1, "PyErr_Clear")]), "a name");
        assert!(unknown(&[TRAVERSE], &[entry]), "all of it is in the export");
        let into_the_middle = [0xe8, 12, 0, 0, 0];
        assert!(unknown(&[&into_the_middle, TRAVERSE], &[entry]), "no function begins there");
        let itself = [&call(0, 0)[..], TRAVERSE].concat();
        assert!(unknown(&[&itself], &[entry]), "no end");
        let [_, text] = file(&[&call(0, 1), TRAVERSE]);
        assert_eq!(Collector::of(&named(&[entry]), None, Some(&text)), Collector::Unknown);
        assert_eq!(Collector::of(&named(&[(0, "main")]), None, None), Collector::Named, "no Python");
    }
}
