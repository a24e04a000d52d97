//! The program: where it is, and whether its loader will preload anything into it.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, elf};

use super::environment::EnvironmentEntries;

/// Why a program's loader will not preload the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramError {
    /// It gets rights of its file's owner or group: the loader ignores paths in `LD_PRELOAD` then
    /// (secure execution, ld.so(8)).
    SetId,
    /// It is no 64-bit ELF file.
    Not64Bit,
    /// It is built for another processor.
    Processor,
    /// It is statically linked: there is no loader.
    Static,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProgramError::SetId => "it is set-user-ID or set-group-ID",
            ProgramError::Not64Bit => "it is not a 64-bit program",
            ProgramError::Processor => "it is built for another processor",
            ProgramError::Static => "it is statically linked",
        })
    }
}

impl std::error::Error for ProgramError {}

/// Looks a name up as `execvp(3)` does: a name with a slash is a path, any other is searched for in
/// `PATH`. No program has the empty name.
pub(super) fn find(name: &OsStr, environment: &EnvironmentEntries) -> io::Result<PathBuf> {
    if name.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = environment.get("PATH").map_or(OsStr::new("/bin:/usr/bin"), OsStr::from_bytes);
    let mut refused = None;
    for folder in env::split_paths(path) {
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

/// Whether the loader of a program will map a library that is preloaded. `name` is looked up as
/// `execvp(3)` does, in the `PATH` of this process. A program that is not there is an error of the
/// exec alone.
///
/// # Errors
/// Why it will not.
pub fn preloadable_program(name: &OsStr) -> Result<(), ProgramError> {
    match find(name, &EnvironmentEntries::current()) {
        Ok(program) => examine(&program).map(drop),
        Err(_) => Ok(()),
    }
}

/// Scripts may name scripts; the kernel follows four (fs/exec.c, `exec_binprm`).
const INTERPRETERS: usize = 5;

/// The program that the kernel will map in the end.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// It is linked with a sanitizer's runtime, which insists on being the first library.
    pub(super) sanitized: bool,
}

/// Follows scripts to the program. Says why, if its loader will not map the library.
pub(super) fn examine(program: &Path) -> Result<Target, ProgramError> {
    let mut path = program.to_owned();
    for _ in 0..INTERPRETERS {
        // Executable but not readable: the loader may still be able to preload; if not, it will say
        // so.
        let Ok(file) = File::open(&path) else { break };
        // Reads no more than is asked for: programs of tens of megabytes are common, and this
        // precedes every start.
        let file = ReadCache::new(file);
        match interpreter(&file) {
            Some(next) => path = next,
            None => return examine_elf(&path, &file),
        }
    }
    // If the kernel refuses, its answer at the exec says why.
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

fn examine_elf<'data>(path: &Path, file: impl ReadRef<'data>) -> Result<Target, ProgramError> {
    if let Ok(meta) = fs::metadata(path) {
        let set_id = (meta.mode() & 0o4000 != 0 && meta.uid() != effective_uid())
            || (meta.mode() & 0o2010 == 0o2010 && meta.gid() != effective_gid());
        if set_id {
            return Err(ProgramError::SetId);
        }
    }
    if file.read_bytes_at(0, 4) != Ok(b"\x7fELF") {
        return Ok(Target::default());
    }
    let parsed = elf::FileHeader64::<Endianness>::parse(file);
    let Ok((header, endian)) = parsed.and_then(|header| Ok((header, header.endian()?))) else {
        return Err(ProgramError::Not64Bit);
    };
    if header.e_machine(endian) != MACHINE {
        return Err(ProgramError::Processor);
    }
    let Ok(segments) = header.program_headers(endian, file) else { return Ok(Target::default()) };
    if !segments.iter().any(|s| s.p_type(endian) == elf::PT_INTERP) {
        return Err(ProgramError::Static);
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

#[cfg(test)]
mod tests {
    use super::*;

    use std::ffi::CString;

    /// A directory with files of a test, removed on drop.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Files {
            let path = env::temp_dir().join(format!("forkless-run-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Files(path)
        }

        fn write(&self, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The header of an ELF file without segments.
    fn header(class: u8, order: u8, machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order, 1]);
        bytes[16..18].copy_from_slice(&2u16.to_le_bytes());
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[20..24].copy_from_slice(&1u32.to_le_bytes());
        bytes[52..54].copy_from_slice(&64u16.to_le_bytes());
        bytes
    }

    #[test]
    fn each_kind_of_program_that_cannot_be_preloaded_is_told_apart() {
        let files = Files::new("target");
        let examine = |name: &str, bytes: &[u8]| examine(&files.write(name, 0o755, bytes)).map(drop);
        assert_eq!(examine("static", &header(2, 1, MACHINE)), Err(ProgramError::Static));
        assert_eq!(examine("32-bit", &header(1, 1, elf::EM_386)), Err(ProgramError::Not64Bit));
        assert_eq!(examine("other", &header(2, 1, elf::EM_RISCV)), Err(ProgramError::Processor));
        assert_eq!(examine("order", &header(2, 9, MACHINE)), Err(ProgramError::Not64Bit));
        // The kernel says why it cannot execute these.
        assert_eq!(examine("text", b"no program"), Ok(()));
        assert_eq!(examine("empty", b""), Ok(()));
        assert_eq!(super::examine(Path::new("/bin/sh")).map(drop), Ok(()));
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let files = Files::new("script");
        let program = files.write("static", 0o755, &header(2, 1, MACHINE));
        let line = format!("#! {} -x\n", program.display());
        let script = files.write("script", 0o755, line.as_bytes());
        let second = files.write("second", 0o755, format!("#!{}\n", script.display()).as_bytes());
        assert_eq!(examine(&second).map(drop), Err(ProgramError::Static));
        let own = files.write("own", 0o755, format!("#!{}\n", files.0.join("own").display()).as_bytes());
        assert_eq!(examine(&own).map(drop), Ok(()), "the kernel ends the circle");
    }

    #[test]
    fn a_name_is_searched_for_in_the_path_of_the_environment() {
        let files = Files::new("path");
        let tool = files.write("tool", 0o755, b"");
        files.write("text", 0o644, b"");
        let path = format!("PATH=/nowhere:{}", files.0.display());
        let environment: EnvironmentEntries = [CString::new(path).unwrap()].into_iter().collect();
        let find = |name: &str| find(OsStr::new(name), &environment);
        assert_eq!(find("tool").unwrap(), tool);
        assert_eq!(find("./tool").unwrap(), Path::new("./tool"));
        assert_eq!(find("text").unwrap_err().raw_os_error(), Some(libc::EACCES));
        assert_eq!(find("none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find("").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
