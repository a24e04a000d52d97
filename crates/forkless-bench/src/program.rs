//! The programs that measured children run. The usual one is a static ELF file of under 300 bytes assembled here, so
//! that a measurement needs no compiler and what is timed is process creation, not the start of a C library: it calls
//! `_exit(0)` at once, or writes one line first. Its file lives in a private directory that goes away with
//! [`Program`], or with the [guard](crate::guard) if this process is killed.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::Error;
use crate::guard::Guard;

/// Which program the children run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A tiny static program that exits at once.
    Exit,
    /// A tiny static program that writes `Hello, world!` and a newline to its standard output, then exits.
    Write,
    /// A program of the system, usually dynamically linked, e.g. `/bin/true`; run without arguments, it must exit with 0.
    File(PathBuf),
}

impl Kind {
    /// `exit`, `write`, or the path: how results name the child.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Kind::Exit => "exit".to_owned(),
            Kind::Write => "write".to_owned(),
            Kind::File(path) => path.display().to_string(),
        }
    }
}

/// A program ready to be started; removes what it created when dropped.
#[derive(Debug)]
pub struct Program {
    path: CString,
    command: CString,
    writes: bool,
    directory: Option<PathBuf>,
}

impl Program {
    /// Finds or writes the program and runs it once, so that a program that cannot be started is an error here and not
    /// in the middle of a measurement.
    ///
    /// # Errors
    /// When no directory among `$TMPDIR`, `$XDG_RUNTIME_DIR`, `/dev/shm`, `/tmp` and `/var/tmp` takes an executable
    /// file, or the program does not exit with 0.
    pub fn prepare(kind: &Kind, guard: Option<&mut Guard>) -> Result<Program, Error> {
        match kind {
            Kind::File(path) => {
                let program = Program::new(path.clone(), false, None)?;
                program.try_run(&[])?;
                Ok(program)
            }
            Kind::Exit => Program::write(&image(b""), false, &[], guard),
            Kind::Write => Program::write(&image(b"Hello, world!\n"), true, &[], guard),
        }
    }

    /// Writes an executable that consists of `code` and is entered at its first byte. It is run once, with `arguments`.
    pub(crate) fn assembled(
        code: &[u8],
        arguments: &[&str],
        guard: Option<&mut Guard>,
    ) -> Result<Program, Error> {
        Program::write(&image_of(code, b""), false, arguments, guard)
    }

    /// The absolute path.
    #[must_use]
    pub fn path(&self) -> &CString {
        &self.path
    }

    /// The path as a shell command, quoted where needed.
    #[must_use]
    pub fn command(&self) -> &CString {
        &self.command
    }

    /// Whether the program writes to its standard output.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// The path for `std`'s interfaces.
    #[must_use]
    pub fn os_path(&self) -> &OsStr {
        OsStr::from_bytes(self.path.as_bytes())
    }

    fn write(
        image: &[u8],
        writes: bool,
        arguments: &[&str],
        guard: Option<&mut Guard>,
    ) -> Result<Program, Error> {
        let mut failure = None;
        let mut guard = guard;
        for base in directories() {
            let attempt = write_private(&base, image).and_then(|(directory, path)| {
                if let Some(guard) = guard.as_deref_mut() {
                    guard.remove_directory(&directory)?;
                }
                let program = Program::new(path, writes, Some(directory))?;
                // A file system mounted noexec takes the file and refuses to run it.
                program.try_run(arguments)?;
                Ok(program)
            });
            match attempt {
                Ok(program) => return Ok(program),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| Error::Missing("no directory for temporary files: set TMPDIR".into())))
    }

    fn new(path: PathBuf, writes: bool, directory: Option<PathBuf>) -> Result<Program, Error> {
        let mut program =
            Program { path: CString::default(), command: CString::default(), writes, directory };
        let bytes = path.as_os_str().as_bytes();
        if !path.is_absolute() || bytes.contains(&0) {
            return Err(Error::Spec(format!(
                "the child program {} must be an absolute path",
                path.display()
            )));
        }
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
        let mut command: Vec<u8> = if bytes.iter().all(plain) {
            bytes.to_vec()
        } else {
            // The noshell rivals refuse every special character but quotes, so quoting is all that may be used.
            [b"'", bytes, b"'"].concat()
        };
        if bytes.contains(&b'\'') {
            return Err(Error::Spec(format!("the child program's path {} contains a quote", path.display())));
        }
        command.retain(|&byte| byte != 0);
        program.path = CString::new(bytes).unwrap_or_default();
        program.command = CString::new(command).unwrap_or_default();
        Ok(program)
    }

    fn try_run(&self, arguments: &[&str]) -> Result<(), Error> {
        let path = self.os_path();
        // A child that another thread forked while the file was open for writing holds it open until it execs; so long
        // the kernel refuses with ETXTBSY.
        let busy = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ExecutableFileBusy;
        // An input of its own, which ends at once: not everybody may open /dev/null everywhere.
        let run = || Command::new(path).args(arguments).stdin(Stdio::piped()).output();
        let mut output = run();
        for _ in 0..100 {
            if !output.as_ref().is_err_and(busy) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            output = run();
        }
        let output =
            output.map_err(Error::io(format!("run the child program {}", Path::new(path).display())))?;
        if output.status.success() && output.stdout.is_empty() != self.writes {
            return Ok(());
        }
        Err(Error::Missing(format!(
            "the child program {} must exit with 0 and print nothing, but gave {}",
            Path::new(path).display(),
            output.status
        )))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            // Nothing can be done about a failure here, and the guard tries again.
            let _ = fs::remove_dir_all(directory);
        }
    }
}

fn directories() -> impl Iterator<Item = PathBuf> {
    let from_environment =
        ["TMPDIR", "XDG_RUNTIME_DIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let fixed = ["/dev/shm", "/tmp", "/var/tmp"].into_iter().map(PathBuf::from);
    from_environment.chain(fixed).filter(|path| path.is_absolute() && path.is_dir())
}

/// Makes a directory that nobody else can read or write, with this process's number in its name.
pub(crate) fn private_directory(base: &Path) -> Result<PathBuf, Error> {
    let mut attempt = 0_u32;
    loop {
        let directory = base.join(format!("forkless-bench-{}-{attempt}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 1000 => attempt += 1,
            Err(error) => return Err(Error::io(format!("create a directory in {}", base.display()))(error)),
        }
    }
}

/// Writes the executable into a directory of its own, readable by nobody else: a world-writable one would let others
/// replace the file between two runs.
fn write_private(base: &Path, image: &[u8]) -> Result<(PathBuf, PathBuf), Error> {
    let directory = private_directory(base)?;
    let path = directory.join("child");
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&path)
        .and_then(|mut file| file.write_all(image));
    if let Err(error) = written {
        let _ = fs::remove_dir_all(&directory);
        return Err(Error::io(format!("write the child program {}", path.display()))(error));
    }
    Ok((directory, path))
}

/// The code of the child: write `text` if there is any, then `_exit(0)`. `data` is the address of `text`.
#[cfg(target_arch = "x86_64")]
fn code(text: &[u8], data: u32) -> Vec<u8> {
    let mut code = Vec::new();
    if !text.is_empty() {
        let length = u32::try_from(text.len()).unwrap_or(0).to_le_bytes();
        code.extend([0xb8, 1, 0, 0, 0]); // mov eax, 1 (write)
        code.extend([0xbf, 1, 0, 0, 0]); // mov edi, 1
        code.push(0xbe); // mov esi, data
        code.extend(data.to_le_bytes());
        code.push(0xba); // mov edx, length
        code.extend(length);
        code.extend([0x0f, 0x05]); // syscall
    }
    code.extend([0xb8, 60, 0, 0, 0]); // mov eax, 60 (exit)
    code.extend([0x31, 0xff]); // xor edi, edi
    code.extend([0x0f, 0x05]); // syscall
    code
}

/// The code of the child: write `text` if there is any, then `_exit(0)`. `data` is the address of `text`.
#[cfg(target_arch = "aarch64")]
fn code(text: &[u8], data: u32) -> Vec<u8> {
    let movz = |register: u32, value: u32| 0xd280_0000 | (value & 0xffff) << 5 | register;
    let movk16 = |register: u32, value: u32| 0xf2a0_0000 | (value >> 16) << 5 | register;
    const SVC: u32 = 0xd400_0001;
    let mut words = Vec::new();
    if !text.is_empty() {
        let length = u32::try_from(text.len()).unwrap_or(0);
        words.extend([movz(8, 64), movz(0, 1), movz(1, data), movk16(1, data), movz(2, length), SVC]);
    }
    words.extend([movz(8, 93), movz(0, 0), SVC]);
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

const BASE: u32 = 0x40_0000;
const HEADER: u16 = 64;
const PROGRAM_HEADER: u16 = 56;
/// Where the code begins: behind the ELF header and two program headers.
const START: u32 = HEADER as u32 + 2 * PROGRAM_HEADER as u32;

/// The executable that writes `text`, if there is any, and exits.
fn image(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(code(text, 0).len()).unwrap_or(0);
    image_of(&code(text, BASE + START + length), text)
}

/// A complete static executable: ELF header, one loadable read-and-execute segment that is the whole file, and a
/// `PT_GNU_STACK` header without the execute bit (where it is missing the kernel makes the stack executable).
fn image_of(code: &[u8], data: &[u8]) -> Vec<u8> {
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let size = u64::from(START) + code.len() as u64 + data.len() as u64;

    let mut file = Vec::new();
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"); // 64 bit, little endian, version 1, System V
    file.extend(2_u16.to_le_bytes()); // ET_EXEC
    file.extend(MACHINE.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    file.extend(u64::from(BASE + START).to_le_bytes()); // entry
    file.extend(u64::from(HEADER).to_le_bytes()); // program headers follow at once
    file.extend(0_u64.to_le_bytes()); // no section headers
    file.extend(0_u32.to_le_bytes());
    for half in [HEADER, PROGRAM_HEADER, 2, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let load: [u64; 6] = [0, u64::from(BASE), u64::from(BASE), size, size, 0x1000];
    for (kind, flags, fields) in [(1_u32, 5_u32, load), (0x6474_e551, 6, [0; 6])] {
        file.extend(kind.to_le_bytes()); // PT_LOAD, PT_GNU_STACK
        file.extend(flags.to_le_bytes());
        file.extend(fields.into_iter().flat_map(u64::to_le_bytes));
    }
    file.extend(code);
    file.extend(data);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tiny_programs_run_and_print_what_they_should() {
        for (kind, expected) in [(Kind::Exit, &b""[..]), (Kind::Write, &b"Hello, world!\n"[..])] {
            let program = Program::prepare(&kind, None).unwrap();
            let output = Command::new(program.os_path()).output().unwrap();
            assert!(output.status.success(), "{kind:?}: {output:?}");
            assert_eq!(output.stdout, expected);
        }
    }

    #[test]
    fn the_directory_is_private_and_goes_away() {
        use std::os::unix::fs::PermissionsExt as _;
        let program = Program::prepare(&Kind::Exit, None).unwrap();
        let path = PathBuf::from(program.os_path());
        let directory = path.parent().unwrap().to_owned();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        drop(program);
        assert!(!directory.exists());
    }

    #[test]
    fn a_failing_or_talking_child_is_refused_before_the_measurement() {
        let failing = Program::prepare(&Kind::File("/bin/false".into()), None);
        assert!(matches!(failing, Err(Error::Missing(_))), "{failing:?}");
        let relative = Program::prepare(&Kind::File("true".into()), None);
        assert!(matches!(relative, Err(Error::Spec(_))), "{relative:?}");
        let missing = Program::prepare(&Kind::File("/nonexistent".into()), None);
        assert!(matches!(missing, Err(Error::Os { .. })), "{missing:?}");
    }

    #[test]
    fn the_image_is_small_and_its_stack_not_executable() {
        let image = image(b"");
        assert!(image.len() < 300);
        let stack_flags = &image[64 + 56 + 4..64 + 56 + 8];
        assert_eq!(stack_flags, 6_u32.to_le_bytes());
    }
}
