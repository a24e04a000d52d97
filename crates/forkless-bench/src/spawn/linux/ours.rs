//! The ways of this project's own libraries, used as their users use them.

#![expect(unsafe_code, reason = "names descriptors by number, and asks libc for ids and limits")]

use std::ffi::{CStr, OsStr, c_int};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use forkless::{Child, Command, Prepared, Resource, SpawnError, Stdio, WaitError};

use super::super::worker::{Lap, SpawnedProgram, Worker};
use crate::clock::now;
use crate::error::Error;

/// What of the library is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// `Prepared::status`: start and wait in one call.
    Status,
    /// `Prepared::spawn`, then `Child::wait`.
    Spawn,
    /// `Command::new(..).status()`, laid out anew each time.
    Command,
    /// `Prepared::spawn_nonblocking`, then `Child::wait`.
    Nonblocking,
    /// `Prepared::status` of a child that inherits every open descriptor.
    Inherit,
    /// Standard output through a pipe.
    Pipe,
    /// Standard input, output and error through pipes.
    Pipes3,
    /// Credentials, directory, umask, limits and twenty descriptors.
    Full,
}

impl SpawnedProgram {
    fn os_path(&self) -> &OsStr {
        OsStr::from_bytes(self.path.as_bytes())
    }
}

/// A `forkless*` method.
pub(super) struct Ours {
    target: Arc<SpawnedProgram>,
    how: Use,
    name: &'static str,
    prepared: Prepared,
    // What the mapped descriptors of `Use::Full` refer to; the command names them by number.
    _mapped: Vec<OwnedFd>,
}

impl Ours {
    pub(super) fn new(target: Arc<SpawnedProgram>, how: Use, name: &'static str) -> Result<Ours, Error> {
        let mut command = Command::new(target.os_path());
        let mut mapped = Vec::new();
        match how {
            Use::Pipe => {
                command.stdout(Stdio::piped());
            }
            Use::Pipes3 => {
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            }
            Use::Inherit => {
                command.inherit_descriptors(true);
            }
            Use::Full => mapped = ask_for_everything(&mut command)?,
            Use::Status | Use::Spawn | Use::Command | Use::Nonblocking => {}
        }
        let prepared = command.prepare().map_err(|error| started(name, &error))?;
        Ok(Ours { target, how, name, prepared, _mapped: mapped })
    }

    fn finish(&self, start: u64, returned: u64, mut child: Child) -> Result<Lap, Error> {
        let mut rest = Vec::new();
        drop(child.stdin.take());
        let output = child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut rest));
        let errors = child.stderr.take().map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut rest));
        let status = child.wait();
        let reaped = now();
        output.and(errors).map_err(Error::io("read a child's output"))?;
        let status = status.map_err(|error| waited(self.name, &error))?;
        judge(self.name, status)?;
        Ok(Lap { start, returned, reaped })
    }
}

impl Worker for Ours {
    fn spawn(&mut self) -> Result<Lap, Error> {
        let start = now();
        match self.how {
            Use::Status | Use::Inherit | Use::Full => {
                let status = self.prepared.status();
                let reaped = now();
                judge(self.name, status.map_err(|error| started(self.name, &error))?)?;
                Ok(Lap { start, returned: reaped, reaped })
            }
            Use::Command => {
                let status = Command::new(self.target.os_path()).status();
                let reaped = now();
                judge(self.name, status.map_err(|error| started(self.name, &error))?)?;
                Ok(Lap { start, returned: reaped, reaped })
            }
            Use::Spawn | Use::Pipe | Use::Pipes3 => {
                let child = self.prepared.spawn();
                let returned = now();
                self.finish(start, returned, child.map_err(|error| started(self.name, &error))?)
            }
            Use::Nonblocking => {
                let child = self.prepared.spawn_nonblocking();
                let returned = now();
                self.finish(start, returned, child.map_err(|error| started(self.name, &error))?)
            }
        }
    }
}

fn judge(name: &str, status: std::process::ExitStatus) -> Result<(), Error> {
    use std::os::unix::process::ExitStatusExt as _;
    Error::check_status(name, status.into_raw())
}

fn started(name: &str, error: &SpawnError) -> Error {
    Error::Missing(format!("{name}: {error}"))
}

fn waited(name: &str, error: &WaitError) -> Error {
    Error::Missing(format!("{name}: {error}"))
}

/// The drop-in of the C library here.
pub(super) fn system(line: &CStr) -> c_int {
    forkless_capi::forkless_system(line.into())
}

/// The drop-in of the C library here.
pub(super) fn popen(line: &CStr) -> *mut libc::FILE {
    forkless_capi::forkless_popen(line.into(), c"re".into())
}

/// Whether this process may set supplementary groups; without the privilege `forkless_full` leaves
/// them out.
pub(in crate::spawn) fn may_set_groups() -> bool {
    crate::machine::is_root()
}

/// The child becomes who this process is, elsewhere, under the limits it has, with twenty
/// descriptors at new numbers.
fn ask_for_everything(command: &mut Command) -> Result<Vec<OwnedFd>, Error> {
    // SAFETY: getuid has no preconditions and cannot fail.
    let uid = unsafe { libc::getuid() };
    // SAFETY: as above.
    let gid = unsafe { libc::getgid() };
    command.uid(uid).gid(gid).current_dir("/").umask(0o027);
    if may_set_groups() {
        command.groups(&[gid]);
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable memory of the right type.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } != 0 {
        return Err(Error::last_os("read the limit on file sizes"));
    }
    command.rlimit(Resource::FileSize, limit.rlim_cur, limit.rlim_max).rlimit(Resource::Core, 0, 0);
    let mut mapped = Vec::new();
    for number in 0..20 {
        let file = File::open("/dev/null").map_err(Error::io("open /dev/null"))?;
        // SAFETY: the descriptor stays open as long as the worker that owns both it and the
        // command.
        let source = unsafe { Stdio::from_raw_borrowed(file.as_raw_fd()) };
        command.fd(100 + number, source);
        mapped.push(OwnedFd::from(file));
    }
    Ok(mapped)
}
