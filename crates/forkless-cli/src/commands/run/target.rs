//! The program: where it is, and whether the loader will preload anything into it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, elf};

use super::library::Plainly;

/// Looks a name up as `execvp(3)` does: with a slash it is a path, else `PATH` is searched.
pub(super) fn find(name: &OsStr) -> io::Result<PathBuf> {
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

/// Whether the loader of this program will map our library. Says why not.
pub(super) fn check(program: &Path) -> Result<(), Plainly> {
    let mut file = program.to_owned();
    for _ in 0..INTERPRETERS {
        match interpreter(&file)? {
            Some(next) => file = next,
            None => return check_elf(&file),
        }
    }
    // The kernel will refuse with a better message than we could give.
    Ok(())
}

fn read_start(file: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    File::open(file).ok()?.take(64 << 10).read_to_end(&mut start).ok()?;
    Some(start)
}

/// The program on a script's first line.
fn interpreter(file: &Path) -> Result<Option<PathBuf>, Plainly> {
    // Executable but not readable: the loader may still be able to preload; it will say so itself if not.
    let Some(start) = read_start(file) else { return Ok(None) };
    let Some(line) = start.strip_prefix(b"#!") else { return Ok(None) };
    let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
    let word = line.split(|b| b" \t".contains(b)).find(|w| !w.is_empty());
    Ok(word.map(|w| PathBuf::from(OsStr::from_bytes(w))))
}

fn check_elf(file: &Path) -> Result<(), Plainly> {
    let plainly = |why: &str| Err(Plainly(why.to_owned()));
    if let Ok(meta) = fs::metadata(file) {
        // Secure execution: the loader ignores paths in LD_PRELOAD (ld.so(8)).
        let set_id = (meta.mode() & 0o4000 != 0 && meta.uid() != effective_uid())
            || (meta.mode() & 0o2010 == 0o2010 && meta.gid() != effective_gid());
        if set_id {
            return plainly("it is set-user-ID or set-group-ID");
        }
    }
    let Some(start) = read_start(file) else { return Ok(()) };
    if !start.starts_with(b"\x7fELF") {
        return Ok(());
    }
    let Ok(header) = elf::FileHeader64::<Endianness>::parse(&*start) else {
        return plainly("it is not a 64-bit program");
    };
    let Ok(endian) = header.endian() else { return plainly("its byte order is not this machine's") };
    if header.e_machine(endian) != MACHINE {
        return plainly("it is built for another processor");
    }
    let Ok(segments) = header.program_headers(endian, &*start) else { return Ok(()) };
    if !segments.iter().any(|s| s.p_type(endian) == elf::PT_INTERP) {
        return plainly("it is statically linked");
    }
    Ok(())
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

/// Whether a program names a sanitizer's runtime among its libraries, which insists on being the first of them.
pub(super) fn is_sanitized(program: &Path) -> bool {
    let runtimes = [b"libasan.so".as_slice(), b"libtsan.so".as_slice()];
    let Ok(file) = File::open(program) else { return false };
    // Reads what is asked for: programs of tens of megabytes are common.
    let file = ReadCache::new(file);
    needed(&file).is_ok_and(|names| names.iter().any(|n| runtimes.iter().any(|r| n.starts_with(r))))
}

/// The libraries a program is linked with (`DT_NEEDED`).
fn needed<'data>(file: impl ReadRef<'data>) -> object::Result<Vec<&'data [u8]>> {
    let header = elf::FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let table = header.sections(endian, file)?.dynamic_table(endian, file)?;
    table.iter().filter(|entry| entry.tag == elf::DT_NEEDED).map(|entry| table.string(entry)).collect()
}
