//! The programs that measured children run. The usual child is a static ELF file of under 300
//! bytes, assembled here. A measurement then needs no compiler, and times process creation, not the
//! start of a C library. The child calls `_exit(0)` at once, or writes one line first. Its file
//! lives in a private directory that goes away with `Program`, or with the [guard](crate::guard) if
//! this process is killed. Such files are for Linux: elsewhere children run the system's
//! `/usr/bin/true`, and results name it.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::Error;
use crate::guard::Guard;
use crate::private_directory::PrivateDirectory;

#[cfg(target_os = "linux")]
mod assembled;
#[cfg(not(target_os = "linux"))]
#[path = "program/elsewhere.rs"]
mod assembled;
#[cfg(target_os = "linux")]
mod image;

/// Which program the children run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A tiny static program that exits at once; `/usr/bin/true` on other systems than Linux.
    Exit,
    /// A tiny static program that writes `Hello, world!` and a newline to its standard output, then
    /// exits; on Linux only.
    Write,
    /// A program of the system, usually dynamically linked, e.g. `/bin/true`; run without
    /// arguments, it must exit with 0.
    File(PathBuf),
}

impl Kind {
    /// `exit`, `write`, or the path: how results name the child.
    #[must_use]
    pub(crate) fn name(&self) -> String {
        match self {
            Kind::Exit => assembled::EXIT.to_owned(),
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
    directory: Option<PrivateDirectory>,
}

/// A tiny static program that reads the clock at its first instruction and tells the time; for
/// Linux.
#[derive(Debug)]
pub(crate) struct FirstInstruction {
    pub(crate) program: Program,
    stamp: File,
}

impl FirstInstruction {
    /// Writes the program and runs it once.
    ///
    /// # Errors
    /// As [`Program::prepare`].
    pub(crate) fn prepare(guard: Option<&mut Guard>) -> Result<FirstInstruction, Error> {
        let (program, stamp) = Program::assemble_first(guard)?;
        Ok(FirstInstruction { program, stamp })
    }

    /// The time of the last child's first instruction, in nanoseconds of the monotonic clock.
    pub(crate) fn time(&self) -> Result<u64, Error> {
        let mut timespec = [0; 16];
        let read = self.stamp.read_exact_at(&mut timespec, 0);
        read.map_err(Error::io("read the time of a child's first instruction"))?;
        // tv_sec and tv_nsec of a 64-bit kernel.
        let [seconds, nanoseconds] = [0, 8].map(|at| {
            let mut half = [0; 8];
            half.copy_from_slice(&timespec[at..at + 8]);
            u64::from_ne_bytes(half)
        });
        Ok(seconds * 1_000_000_000 + nanoseconds)
    }
}

impl Program {
    /// Finds or writes the program and runs it once, so that a program that cannot be started is an
    /// error here and not in the middle of a measurement.
    ///
    /// # Errors
    /// When no directory among `$TMPDIR`, `$XDG_RUNTIME_DIR`, `/dev/shm`, `/tmp` and `/var/tmp`
    /// takes an executable file, or the program does not exit with 0.
    pub fn prepare(kind: &Kind, guard: Option<&mut Guard>) -> Result<Program, Error> {
        match kind {
            Kind::File(path) => Program::of_the_system(path.clone()),
            Kind::Exit | Kind::Write => Program::assemble(kind, guard),
        }
    }

    fn of_the_system(path: PathBuf) -> Result<Program, Error> {
        let program = Program::new(path, false, None)?;
        program.try_run(&[])?;
        Ok(program)
    }

    /// The absolute path.
    #[must_use]
    pub fn path(&self) -> &CString {
        &self.path
    }

    /// The path as a shell command, quoted where needed.
    #[must_use]
    pub(crate) fn command(&self) -> &CString {
        &self.command
    }

    /// Whether the program writes to its standard output.
    #[must_use]
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// The path for `std`'s interfaces.
    #[must_use]
    pub fn os_path(&self) -> &OsStr {
        OsStr::from_bytes(self.path.as_bytes())
    }

    fn new(path: PathBuf, writes: bool, directory: Option<PrivateDirectory>) -> Result<Program, Error> {
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
            // The noshell rivals refuse every special character but quotes, so quoting is all that
            // may be used.
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
        // A child that another thread forked while the file was open for writing holds it open
        // until it execs; so long the kernel refuses with ETXTBSY.
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
        let name = Path::new(path).display();
        // Whoever asked for a program of the system can ask for another one; those made here are
        // the machine's to run.
        let wrong =
            |text: String| if self.directory.is_none() { Error::Spec(text) } else { Error::Missing(text) };
        let output =
            output.map_err(|error| wrong(format!("cannot run the child program {name}: {error}")))?;
        if output.status.success() && output.stdout.is_empty() != self.writes {
            return Ok(());
        }
        let what = if self.writes { "print a line" } else { "print nothing" };
        Err(wrong(format!(
            "the child program {name} must exit with 0 and {what}, but gave {}",
            output.status
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
    fn a_program_tells_when_its_first_instruction_ran() {
        let first = match FirstInstruction::prepare(None) {
            Err(Error::Missing(why)) => return println!("skipped: {why}"),
            first => first.unwrap(),
        };
        let mut last = 0;
        for _ in 0..3 {
            let before = crate::clock::now();
            assert!(Command::new(first.program.os_path()).status().unwrap().success());
            let time = first.time().unwrap();
            assert!(last < before && before < time && time < crate::clock::now());
            last = time;
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
        assert!(matches!(failing, Err(Error::Spec(_))), "{failing:?}");
        let relative = Program::prepare(&Kind::File("true".into()), None);
        assert!(matches!(relative, Err(Error::Spec(_))), "{relative:?}");
        let missing = Program::prepare(&Kind::File("/nonexistent".into()), None);
        assert!(matches!(missing, Err(Error::Spec(_))), "{missing:?}");
    }
}
