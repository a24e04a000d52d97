//! Function names of an ELF file: its symbol tables, and those of its separate debug file.

use object::{Object as _, ObjectSymbol as _, SymbolKind};

/// Functions by address.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// (address, size, mangled name), sorted by address.
    functions: Vec<(u64, u64, String)>,
}

/// How many symbols may lie between the start of a function and an address in it.
const NESTED: usize = 8;
/// Assumed length of a symbol without a size, bytes.
const WITHOUT_SIZE: u64 = 512;

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Symbols {
    /// The symbols of some files that are about the same code.
    pub(crate) fn read<'f, 'd: 'f>(files: impl IntoIterator<Item = Option<&'f object::File<'d>>>) -> Self {
        let mut symbols = Self::default();
        files.into_iter().flatten().for_each(|file| symbols.add(file));
        symbols.functions.sort_by_key(|(address, size, _)| (*address, std::cmp::Reverse(*size)));
        symbols.functions.dedup_by_key(|(address, ..)| *address);
        symbols
    }

    fn add(&mut self, file: &object::File<'_>) {
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Text
                && !symbol.is_undefined()
                && let Ok(name) = symbol.name()
            {
                self.functions.push((symbol.address(), symbol.size(), name.to_owned()));
            }
        }
    }

    /// Where the function of this name begins.
    pub(crate) fn begin_of(&self, function: &str) -> Option<u64> {
        self.functions.iter().find(|(.., name)| name == function).map(|(begin, ..)| *begin)
    }

    /// For tests: address, size and name of each function.
    #[cfg(test)]
    pub(crate) fn made_of<'n>(functions: impl Iterator<Item = (u64, u64, &'n str)>) -> Self {
        Self { functions: functions.map(|(begin, size, name)| (begin, size, name.to_owned())).collect() }
    }

    /// The function that holds an address of the file, and the offset into it.
    pub(crate) fn find(&self, address: u64) -> Option<(String, u64)> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (nearest, before) = self.functions.get(..after)?.split_last()?;
        let named = |(start, _, name): &(u64, u64, String)| Some((demangled(name), address - start));
        let inside = |(start, size, _): &&(u64, u64, String)| address - start < *size;
        if inside(&nearest) {
            return named(nearest);
        }
        // A symbol within a function ends before the function does.
        if let Some(around) = before.iter().rev().take(NESTED).find(inside) {
            return named(around);
        }
        // Assembly routines often have no size: the nearest symbol without a size is believed for a
        // short distance. After the end of a symbol with a size, the code has no name.
        (nearest.1 == 0 && address - nearest.0 < WITHOUT_SIZE).then(|| named(nearest)).flatten()
    }
}

/// Rust's and C++'s names as their programmers wrote them.
pub(crate) fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    // The parser also takes bare type names ("a" is signed char). Only names with the prefix are
    // C++'s.
    name.starts_with("_Z")
        .then(|| cpp_demangle::Symbol::new(name).ok())
        .flatten()
        .and_then(|symbol| symbol.demangle().ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled_by_their_language() {
        assert_eq!(demangled("main"), "main");
        assert_eq!(demangled("_ZN3foo3barEv"), "foo::bar()");
        assert_eq!(
            demangled("_ZNSt6vectorIiSaIiEE9push_backEOi"),
            "std::vector<int, std::allocator<int> >::push_back(int&&)"
        );
    }

    #[test]
    fn an_address_past_a_function_belongs_to_none() {
        let symbols = Symbols { functions: vec![(0x100, 0x10, "a".into()), (0x200, 0, "b".into())] };
        assert_eq!(symbols.find(0x10f), Some(("a".into(), 0xf)));
        assert_eq!(symbols.find(0x110), None);
        assert_eq!(symbols.find(0xff), None);
        assert_eq!(symbols.find(0x204), Some(("b".into(), 4)));
        assert_eq!(symbols.find(0x400), None);
    }

    #[test]
    fn a_symbol_within_a_function_does_not_end_it() {
        let symbols = Symbols { functions: vec![(0x100, 0x100, "f".into()), (0x120, 8, "label".into())] };
        assert_eq!(symbols.find(0x124), Some(("label".into(), 4)));
        assert_eq!(symbols.find(0x150), Some(("f".into(), 0x50)));
        assert_eq!(symbols.find(0x200), None);
    }
}
