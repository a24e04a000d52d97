//! Executables and libraries in a process's memory.

use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use crate::elf::{self, Elf};
use crate::maps::Mapping;
use crate::process::Process;

/// A file of code at its place in a process.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) elf: Arc<Elf>,
    /// The process's addresses minus the file's.
    bias: u64,
    inode: u64,
}

impl Image {
    /// The executable, or the library whose file name begins with `library`, if it has all of
    /// `symbols`. The library comes first: an executable may be a stub that loads it.
    pub(crate) fn with_symbols(process: &Process, library: &str, symbols: &[&str]) -> Option<Self> {
        let code = || process.mappings.iter().filter(|mapping| mapping.executable && mapping.inode != 0);
        let libraries = code().filter(|mapping| mapping.file_name().starts_with(library.as_bytes()));
        let executable = Self::executable_mapping(process);
        libraries.chain(executable).find_map(|mapping| {
            let image = Self::at(process, mapping)?;
            symbols.iter().all(|symbol| image.elf.symbol(symbol).is_some()).then_some(image)
        })
    }

    /// The executable.
    pub(crate) fn executable(process: &Process) -> Option<Self> {
        Self::at(process, Self::executable_mapping(process)?)
    }

    fn executable_mapping(process: &Process) -> Option<&Mapping> {
        let inode = std::fs::metadata(format!("/proc/{}/exe", process.pid)).ok()?.ino();
        process.mappings.iter().find(|mapping| mapping.executable && mapping.inode == inode)
    }

    fn at(process: &Process, mapping: &Mapping) -> Option<Self> {
        let elf = elf::known(&mapping.open(process.pid)?)?;
        let bias = mapping.range.start.wrapping_sub(elf.address_of(mapping.offset)?);
        Some(Self { elf, bias, inode: mapping.inode })
    }

    /// The process's address of a symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        self.elf.symbol(name).map(|address| self.in_process(address))
    }

    /// The process's address of one of the file's.
    pub(crate) fn in_process(&self, address: u64) -> u64 {
        address.wrapping_add(self.bias)
    }

    /// Where the file's variables are: its writable mappings and the anonymous one behind them.
    pub(crate) fn variables(&self, process: &Process) -> Option<Range<u64>> {
        let mut of_file =
            process.mappings.iter().filter(|mapping| mapping.inode == self.inode && mapping.writable);
        let first = of_file.next()?;
        let last = of_file.next_back().unwrap_or(first);
        let behind = process.mappings.iter().find(|mapping| {
            mapping.range.start == last.range.end && mapping.inode == 0 && mapping.path.as_os_str().is_empty()
        });
        Some(first.range.start..behind.unwrap_or(last).range.end)
    }

    /// Where the file's constants are: its mappings without rights to write or execute.
    pub(crate) fn constants<'a>(&'a self, process: &'a Process) -> impl Iterator<Item = Range<u64>> + 'a {
        let of_file = process.mappings.iter().filter(|mapping| mapping.inode == self.inode);
        of_file
            .filter(|mapping| !mapping.writable && !mapping.executable)
            .map(|mapping| mapping.range.clone())
    }

    /// Where the file's code is.
    pub(crate) fn code(&self, process: &Process) -> Option<Range<u64>> {
        let mapping =
            process.mappings.iter().find(|mapping| mapping.inode == self.inode && mapping.executable)?;
        Some(mapping.range.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_function_is_where_the_image_says() {
        let process = Process::look_at(std::process::id()).expect("we are there");
        let image = Image::executable(&process).expect("our own executable");
        assert_eq!(image.symbol("main"), None, "only the interpreters' symbols are kept");
        assert!(image.code(&process).is_some_and(|code| code.contains(&(our_code as fn() as usize as u64))));
    }

    fn our_code() {}
}
