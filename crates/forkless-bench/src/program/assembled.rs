//! Writes the executables of [`image`](super::image) where they can be run and nobody else can
//! touch them.

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{Kind, Program, image};
use crate::error::Error;
use crate::guard::Guard;
use crate::private_directory::PrivateDirectory;

/// How results name [`Kind::Exit`].
pub(super) const EXIT: &str = "exit";

impl Program {
    /// The tiny program of a kind.
    pub(super) fn assemble(kind: &Kind, guard: Option<&mut Guard>) -> Result<Program, Error> {
        match kind {
            Kind::Write => Program::write(|_| Ok(image::image(b"Hello, world!\n")), true, &[], guard),
            _ => Program::write(|_| Ok(image::image(b"")), false, &[], guard),
        }
    }

    /// The tiny program that tells when its first instruction ran, and the file with the time.
    pub(super) fn assemble_first(guard: Option<&mut Guard>) -> Result<(Program, fs::File), Error> {
        let stamp = |directory: &Path| directory.join("stamp");
        let make = |directory: &Path| {
            let path = stamp(directory);
            fs::File::create(&path).map_err(Error::io(format!("create {}", path.display())))?;
            Ok(image::first_image(&[path.as_os_str().as_bytes(), b"\0"].concat()))
        };
        let program = Program::write(make, false, &[], guard)?;
        let path = program.directory.as_ref().map(|directory| stamp(directory.path())).unwrap_or_default();
        let file = fs::File::open(&path).map_err(Error::io(format!("open {}", path.display())))?;
        Ok((program, file))
    }

    /// Writes an executable that consists of `code` and is entered at its first byte. It is run
    /// once, with `arguments`.
    pub fn assembled(code: &[u8], arguments: &[&str], guard: Option<&mut Guard>) -> Result<Program, Error> {
        Program::write(|_| Ok(image::image_of(code, b"")), false, arguments, guard)
    }

    /// Writes the executable whose bytes `image` gives for the directory that it gets.
    fn write(
        image: impl Fn(&Path) -> Result<Vec<u8>, Error>,
        writes: bool,
        arguments: &[&str],
        guard: Option<&mut Guard>,
    ) -> Result<Program, Error> {
        let mut failure = None;
        let mut guard = guard;
        for base in directories() {
            let attempt = write_private(&base, &image, guard.as_deref_mut()).and_then(|(directory, path)| {
                let program = Program::new(path, writes, Some(directory))?;
                // A file system mounted noexec takes the file and refuses to run it.
                program.try_run(arguments)?;
                Ok(program)
            });
            match attempt {
                Ok(program) => return Ok(program),
                // That of the directory that the user named.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let all: Vec<String> = directories().map(|base| base.display().to_string()).collect();
        let why = failure.map_or_else(String::new, |error| format!(": {error}"));
        Err(Error::Missing(format!(
            "no child program can be written and run in a directory for temporary files ({}){why}; name one by TMPDIR",
            all.join(", ")
        )))
    }
}

fn directories() -> impl Iterator<Item = PathBuf> {
    let from_environment =
        ["TMPDIR", "XDG_RUNTIME_DIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let fixed = ["/dev/shm", "/tmp", "/var/tmp"].into_iter().map(PathBuf::from);
    from_environment.chain(fixed).filter(|path| path.is_absolute() && path.is_dir())
}

/// Writes the executable into a directory of its own.
fn write_private(
    base: &Path,
    image: impl Fn(&Path) -> Result<Vec<u8>, Error>,
    guard: Option<&mut Guard>,
) -> Result<(PrivateDirectory, PathBuf), Error> {
    let directory = PrivateDirectory::make(base, PrivateDirectory::CLOSED, guard)?;
    let path = directory.path().join("child");
    let image = image(directory.path())?;
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&path)
        .and_then(|mut file| file.write_all(&image))
        .map_err(Error::io(format!("write the child program {}", path.display())))?;
    Ok((directory, path))
}
