//! Descriptors 0 to 9 of the line and of each of its programs.

use super::REDIRECTABLE;
use super::line::ShellLine;
use super::line_directory::LineDirectory;
use crate::command::Command;
use crate::error::{SpawnError, Step};
use crate::kernel::descriptor::{owned, pipe};
use crate::spec::stdio::{Kind, Stdio};
use forkless_shell::RedirectionKind;
use forkless_sys::fd;
use forkless_sys::signal::SigSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;

/// The flag of `fcntl(F_GETFD)`.
const FD_CLOEXEC: u32 = 1;

/// The connection of one number of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connection {
    /// The parent's descriptor of the same number, if the parent hands it on.
    Inherit,
    /// This descriptor of the parent.
    Raw(RawFd),
    Closed,
}

pub(super) type Connections = [Connection; REDIRECTABLE as usize];

/// The descriptors that the line starts with, and this process's ends of its pipes.
pub(super) struct Base {
    pub(super) connections: Connections,
    /// Keeps the files open that `connections` names.
    _theirs: Vec<OwnedFd>,
    pub(super) ours: [Option<OwnedFd>; 3],
}

impl Base {
    pub(super) fn open(how: &ShellLine, default: [&Kind; 3]) -> Result<Base, SpawnError> {
        let mut base = Base {
            connections: [Connection::Inherit; REDIRECTABLE as usize],
            _theirs: Vec::new(),
            ours: [None, None, None],
        };
        let mut same = Vec::new();
        for number in how.closed.iter().filter_map(|number| usize::try_from(*number).ok()) {
            if let Some(connection) = base.connections.get_mut(number) {
                *connection = Connection::Closed;
            }
        }
        for (number, (set, default)) in how.std.iter().zip(default).enumerate() {
            let mut keep = |file: OwnedFd| {
                let connection = Connection::Raw(file.as_raw_fd());
                base._theirs.push(file);
                connection
            };
            base.connections[number] = match set.as_ref().map_or(default, |stdio| &stdio.0) {
                Kind::Inherit => base.connections[number],
                Kind::Closed => Connection::Closed,
                Kind::Raw(fd) => Connection::Raw(*fd),
                Kind::Owned(fd) => Connection::Raw(fd.as_raw_fd()),
                Kind::Null => {
                    let null = OpenOptions::new().read(number == 0).write(number != 0).open("/dev/null");
                    keep(null.map_err(|error| cannot_open("/dev/null", &error))?.into())
                }
                Kind::SameAs(other) => {
                    same.push((number, *other));
                    Connection::Inherit
                }
                kind @ (Kind::Piped | Kind::PipedInput) => {
                    let (read, write) = pipe()?;
                    let is_input = number == 0 || matches!(kind, Kind::PipedInput);
                    let (theirs, ours) = if is_input { (read, write) } else { (write, read) };
                    base.ours[number] = Some(ours);
                    keep(theirs)
                }
            };
        }
        for (number, other) in same {
            let of = usize::try_from(other).ok().and_then(|other| base.connections.get(other).copied());
            base.connections[number] = match of {
                Some(Connection::Inherit) | None => Connection::Raw(other),
                Some(connection) => connection,
            };
        }
        Ok(base)
    }

    /// Whether this is the far end of a pipe that this process reads. The reader sees no end before
    /// it is closed everywhere.
    pub(super) fn is_pipe_of_ours(&self, connection: Connection) -> bool {
        let connection = if connection == Connection::Inherit { self.connections[2] } else { connection };
        matches!(connection, Connection::Raw(_))
            && self
                .connections
                .iter()
                .zip(&self.ours)
                .any(|(theirs, ours)| ours.is_some() && *theirs == connection)
    }

    /// Closes this process's ends of the pipes, which are not used.
    pub(super) fn without_our_ends(mut self) -> Base {
        self.ours = [None, None, None];
        self
    }
}

fn cannot_open(path: &str, error: &io::Error) -> SpawnError {
    SpawnError::new(Step::Pipe, path.to_owned(), error.raw_os_error().unwrap_or(libc::EIO))
}

/// Applies one redirection. `None` if the shell would fail, or would block: this process must not.
pub(super) fn redirect(
    redirection: forkless_shell::Redirection<'_>,
    connections: &mut Connections,
    files: &mut Vec<OwnedFd>,
    directory: &LineDirectory,
    inherits: bool,
) -> Option<()> {
    let mut options = OpenOptions::new();
    let path = match redirection.kind {
        RedirectionKind::Read(path) => (options.read(true), path).1,
        RedirectionKind::Write(path) => (options.write(true).create(true).truncate(true), path).1,
        RedirectionKind::Append(path) => (options.append(true).create(true), path).1,
        RedirectionKind::ReadWrite(path) => (options.read(true).write(true).create(true), path).1,
        RedirectionKind::Duplicate(from) => {
            connections[usize::from(redirection.descriptor)] = duplicate(from, connections, inherits)?;
            return Some(());
        }
        RedirectionKind::Close => {
            connections[usize::from(redirection.descriptor)] = Connection::Closed;
            return Some(());
        }
    };
    let path = directory.resolve(path.to_bytes());
    // Opening a FIFO waits for its other end, which may be a program of this very line.
    if std::fs::metadata(&path).is_ok_and(|there| there.file_type().is_fifo()) {
        return None;
    }
    let file: File = options.open(path).ok()?;
    connections[usize::from(redirection.descriptor)] = Connection::Raw(file.as_raw_fd());
    files.push(file.into());
    Some(())
}

/// The connection of N after `N>&from`.
fn duplicate(from: u8, connections: &Connections, inherits: bool) -> Option<Connection> {
    match connections[usize::from(from)] {
        Connection::Closed => None,
        Connection::Raw(fd) => Some(Connection::Raw(fd)),
        Connection::Inherit => {
            let number = RawFd::from(from);
            // Above 2 the shell has only descriptors that are handed on to it.
            ((number <= 2 || inherits) && is_handed_on(number)).then_some(Connection::Raw(number))
        }
    }
}

/// Whether a descriptor of this process is open, and stays so over an exec.
pub(super) fn is_handed_on(number: RawFd) -> bool {
    fd::get_fd_flags(number) == Ok(0)
}

/// Connects a command's descriptors.
pub(super) fn connect(command: &mut Command, connections: &Connections, inherits: bool) {
    for (number, connection) in (0..).zip(connections) {
        let stdio = match *connection {
            Connection::Inherit if number > 2 => continue,
            Connection::Closed if number > 2 && !inherits => continue,
            Connection::Inherit => Stdio(Kind::Inherit),
            Connection::Raw(fd) => Stdio(Kind::Raw(fd)),
            Connection::Closed => Stdio(Kind::Closed),
        };
        command.fd(number, stdio);
    }
}

/// This process's descriptors at the numbers that an exec in its place connects anew.
pub(super) struct KeptDescriptors(Vec<KeptDescriptor>);

struct KeptDescriptor {
    number: RawFd,
    /// `None`: the number was closed.
    copy: Option<OwnedFd>,
    is_cloexec: bool,
}

impl KeptDescriptors {
    /// `None` if there is no room for the copies.
    pub(super) fn of(connections: &Connections) -> Option<KeptDescriptors> {
        let mut kept = Vec::new();
        for (number, connection) in (0..).zip(connections) {
            if *connection == Connection::Inherit {
                continue;
            }
            let flags = fd::get_fd_flags(number).ok();
            let copy = match flags {
                Some(_) => Some(owned(fd::dup_cloexec(number, RawFd::from(REDIRECTABLE)).ok()?)),
                None => None,
            };
            let is_cloexec = flags.is_some_and(|flags| flags & FD_CLOEXEC != 0);
            kept.push(KeptDescriptor { number, copy, is_cloexec });
        }
        Some(KeptDescriptors(kept))
    }

    /// Puts all back.
    pub(super) fn restore(self) {
        for KeptDescriptor { number, copy, is_cloexec } in self.0 {
            let flags = if is_cloexec { fd::O_CLOEXEC } else { 0 };
            let _ = match copy {
                Some(copy) => fd::dup3(copy.as_raw_fd(), number, flags),
                None => fd::close(number),
            };
        }
    }
}

impl ShellLine {
    /// Sets the attributes that all processes of the line have in common.
    pub(super) fn dress(&self, command: &mut Command) {
        command.inherit_descriptors(self.inherit_descriptors);
        if self.inherit_signals {
            command.inherit_signals(true);
        }
        if let Some(blocked) = self.signal_mask {
            command.signal_mask(blocked);
        }
        if self.default_signals != SigSet::EMPTY {
            command.default_signals(self.default_signals);
        }
        // Redirections may change the connections of lower numbers.
        for number in self.closed.iter().filter(|number| **number >= REDIRECTABLE) {
            command.fd(*number, Stdio::closed());
        }
    }
}
