//! The caller's description of a child, as data: nothing is checked or opened before a start.

pub(crate) mod attributes;
pub(crate) mod env;
pub(crate) mod stdio;
pub(crate) mod strings;

use attributes::{Attributes, HookFn, OnDrop};
use env::EnvChanges;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use stdio::{Kind, Stdio};
use strings::Strings;

static INHERIT: Stdio = Stdio(Kind::Inherit);
static NULL: Stdio = Stdio(Kind::Null);
static PIPED: Stdio = Stdio(Kind::Piped);

/// Connections of 0, 1 and 2 that a command does not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Defaults {
    /// The parent's own.
    Inherit,
    /// No input; output and error through pipes.
    Capture,
}

impl Defaults {
    fn stdio(self) -> [&'static Stdio; 3] {
        match self {
            Defaults::Inherit => [&INHERIT; 3],
            Defaults::Capture => [&NULL, &PIPED, &PIPED],
        }
    }
}

/// All that a [`Command`](crate::Command) holds: program, arguments, environment, descriptors and
/// attributes.
pub(crate) struct Spec {
    pub program: OsString,
    pub args: Strings,
    /// The files to try, in place of a search for the program.
    pub files: Option<Strings>,
    pub env: EnvChanges,
    pub attributes: Attributes,
    pub hooks: Mutex<Vec<HookFn>>,
    pub inherit_descriptors: bool,
    /// The caller needs no pidfd.
    pub without_pidfd: bool,
    /// A trial, whose program does not exist: the child ends without a signal, and no wait without
    /// `__WALL` or `__WCLONE` finds it. An exec would give it SIGCHLD for its exit signal
    /// (`de_thread`, fs/exec.c).
    pub is_trial: bool,
    /// A directory that is open here, in which the program starts, where descriptors are not
    /// inherited.
    pub directory: Option<RawFd>,
    /// `/bin/sh` runs a file that the kernel refuses as `ENOEXEC`.
    pub scripts: bool,
    pub on_drop: OnDrop,
    /// The first invalid argument of a method; the start reports it.
    pub bad: Option<String>,
    pub std: [Option<Stdio>; 3],
    pub fds: BTreeMap<RawFd, Stdio>,
    /// Descriptors that go with the command, whatever its numbers are connected to.
    pub kept: Vec<OwnedFd>,
}

impl Spec {
    pub(crate) fn new(program: &OsStr) -> Spec {
        let mut args = Strings::default();
        args.push(program.as_bytes());
        Spec {
            program: program.to_owned(),
            args,
            files: None,
            env: EnvChanges::default(),
            attributes: Attributes::default(),
            hooks: Mutex::new(Vec::new()),
            inherit_descriptors: false,
            without_pidfd: false,
            is_trial: false,
            directory: None,
            scripts: true,
            on_drop: OnDrop::Detach,
            bad: None,
            std: [None, None, None],
            fds: BTreeMap::new(),
            kept: Vec::new(),
        }
    }

    /// Every descriptor that is connected to something, by number.
    pub(crate) fn descriptors(&self, defaults: Defaults) -> impl Iterator<Item = (RawFd, &Stdio)> {
        let std = self.std.iter().zip(defaults.stdio()).enumerate();
        let std = std.map(|(n, (set, default))| (n as RawFd, set.as_ref().unwrap_or(default)));
        std.chain(self.fds.iter().map(|(n, s)| (*n, s)))
    }

    /// Whether 0, 1 and 2 stay as they are in this process and no other number is connected, as in
    /// most commands.
    pub(crate) fn connects_nothing(&self, defaults: Defaults) -> bool {
        self.fds.is_empty()
            && self.directory.is_none()
            && defaults == Defaults::Inherit
            && self.std.iter().all(Option::is_none)
    }

    /// Connects a number, or leaves it to its default, and returns what it was connected to.
    pub(crate) fn rewire(&mut self, number: RawFd, to: Option<Stdio>) -> Option<Stdio> {
        if let Some(std) = self.std.get_mut(number as usize) {
            return std::mem::replace(std, to);
        }
        match to {
            Some(to) => self.fds.insert(number, to),
            None => self.fds.remove(&number),
        }
    }

    /// Whether a pipe at this number is one that the child reads from.
    pub(crate) fn is_read_by_child(&self, number: RawFd) -> bool {
        let set = match self.std.get(number as usize) {
            Some(std) => std.as_ref(),
            None => self.fds.get(&number),
        };
        number == 0 || set.is_some_and(|s| matches!(s.0, Kind::PipedInput))
    }

    /// Whether the child leads a process group of its own.
    pub(crate) fn leads_group(&self) -> bool {
        self.attributes.setsid || self.attributes.pgid == Some(0)
    }

    pub(crate) fn c_string(&mut self, what: &str, value: &OsStr) -> Option<CString> {
        CString::new(value.as_bytes())
            .map_err(|_| self.complain(format!("{what}: the path has a NUL byte")))
            .ok()
    }

    pub(crate) fn complain(&mut self, what: String) {
        self.bad.get_or_insert(what);
    }
}
