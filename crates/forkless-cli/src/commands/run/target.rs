//! The program: where it is, and whether the loader will preload anything into it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, elf};

use super::library::Plainly;

/// Looks a name up as `execvp(3)` does: with a slash it is a path, else `PATH` is searched; no program is called nothing.
pub(super) fn find(name: &OsStr) -> io::Result<PathBuf> {
    if name.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut refused = None;
    for folder in env::split_paths(&path) {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder.as_path() };
        let candidate = folder.join(name);
        match fs::metadata(&candidate) {
            Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(_) => refused = Some(io::Error::from_raw_os_error(libc::EACCES)),
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOENT)))
}

/// Scripts may name scripts; the kernel follows four (fs/exec.c, `exec_binprm`).
const INTERPRETERS: usize = 5;

/// What is of interest in the program that the kernel will map in the end.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// It is linked with a sanitizer's runtime, which insists on being the first library.
    pub(super) sanitized: bool,
}

/// Follows scripts to the program. Says why, if its loader will not map our library.
pub(super) fn examine(program: &Path) -> Result<Target, Plainly> {
    let mut path = program.to_owned();
    for _ in 0..INTERPRETERS {
        // Executable but not readable: the loader may still be able to preload; it will say so itself if not.
        let Ok(file) = File::open(&path) else { break };
        // Reads what is asked for: programs of tens of megabytes are common, and this is before every start.
        let file = ReadCache::new(file);
        match interpreter(&file) {
            Some(next) => path = next,
            None => return examine_elf(&path, &file),
        }
    }
    // If the kernel refuses, then with a better message than we could give.
    Ok(Target::default())
}

/// The program on a script's first line.
fn interpreter<'data>(file: impl ReadRef<'data>) -> Option<PathBuf> {
    /// `BINPRM_BUF_SIZE`: where the kernel ends the line.
    const LINE: u64 = 256;
    let start = file.read_bytes_at(0, file.len().ok()?.min(LINE)).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let word = line.split(|b| b" \t".contains(b)).find(|w| !w.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

fn examine_elf<'data>(path: &Path, file: impl ReadRef<'data>) -> Result<Target, Plainly> {
    let plainly = |why: &str| Err(Plainly(why.to_owned()));
    if let Ok(meta) = fs::metadata(path) {
        // Secure execution: the loader ignores paths in LD_PRELOAD (ld.so(8)).
        let set_id = (meta.mode() & 0o4000 != 0 && meta.uid() != effective_uid())
            || (meta.mode() & 0o2010 == 0o2010 && meta.gid() != effective_gid());
        if set_id {
            return plainly("it is set-user-ID or set-group-ID");
        }
    }
    if file.read_bytes_at(0, 4) != Ok(b"\x7fELF") {
        return Ok(Target::default());
    }
    let Ok(header) = elf::FileHeader64::<Endianness>::parse(file) else {
        return plainly("it is not a 64-bit program");
    };
    let Ok(endian) = header.endian() else { return plainly("its byte order is not this machine's") };
    if header.e_machine(endian) != MACHINE {
        return plainly("it is built for another processor");
    }
    let Ok(segments) = header.program_headers(endian, file) else { return Ok(Target::default()) };
    if !segments.iter().any(|s| s.p_type(endian) == elf::PT_INTERP) {
        return plainly("it is statically linked");
    }
    let runtimes = [b"libasan.so".as_slice(), b"libtsan.so".as_slice()];
    let sanitized = needed(header, endian, file)
        .is_ok_and(|names| names.iter().any(|name| runtimes.iter().any(|runtime| name.starts_with(runtime))));
    Ok(Target { sanitized })
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = elf::EM_AARCH64;

fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// The libraries a program is linked with (`DT_NEEDED`).
fn needed<'data, R: ReadRef<'data>>(
    header: &elf::FileHeader64<Endianness>,
    endian: Endianness,
    file: R,
) -> object::Result<Vec<&'data [u8]>> {
    let table = header.sections(endian, file)?.dynamic_table(endian, file)?;
    table.iter().filter(|entry| entry.tag == elf::DT_NEEDED).map(|entry| table.string(entry)).collect()
}
