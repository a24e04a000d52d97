//! The programs that processes were, exec by exec. A wrapper script that has started something and
//! then executes its program is two programs of one process, and each has its own creations.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::creation::ProgramKey;
use crate::event::SeenProgram;
use crate::interpreter::Family;
use crate::invocation::Invocation;
use crate::procfs;
use crate::program::{KnownProgram, ProcessName};
use crate::reach::Reach;

/// More programs than this are forgotten, those that no table refers to first.
pub(super) const MAX_PROGRAMS: usize = 16_384;

/// So many programs may tell why the preloaded library left their forks as they are.
const MAX_WITH_REASONS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Programs {
    names: HashMap<ProgramKey, ProcessName>,
    /// By process: the program that it was last.
    latest: HashMap<u32, ProgramKey>,
    /// Invocations of programs that a remedy may start again; `None` if it could not be told.
    invocations: HashMap<ProgramKey, Option<Invocation>>,
    /// Whether the preloaded library can be in them.
    reaches: HashMap<ProgramKey, Reach>,
    /// Working directories of programs whose remedy depends on a file there, such as a makefile.
    directories: HashMap<ProgramKey, PathBuf>,
    /// Programs whose arguments the kernel side has cut.
    cut: HashSet<ProgramKey>,
}

impl Programs {
    /// The name of a program; of the process's last program if the system call's record does not
    /// tell which one it was.
    pub(crate) fn name(&self, key: ProgramKey) -> Option<&ProcessName> {
        self.names.get(&key).or_else(|| {
            let last = self.latest.get(&key.pid).filter(|_| key.image == 0)?;
            self.names.get(last)
        })
    }

    /// What a program is called; by its thread leader's name if nothing else is known.
    pub(super) fn called<'n>(&'n self, key: ProgramKey, comm: &'n str) -> &'n str {
        self.name(key).map_or(comm, |name| name.name.as_str())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &ProcessName> {
        self.names.values()
    }

    /// The programs of this name, each with whether all of its arguments are known.
    pub(crate) fn of_name<'n>(&'n self, name: &'n str) -> impl Iterator<Item = (&'n ProcessName, bool)> {
        let named = self.names.iter().filter(move |(_, known)| known.name == name);
        named.map(|(key, known)| (known, !self.cut.contains(key)))
    }

    /// The working directory of a make.
    pub(crate) fn directory(&self, key: ProgramKey) -> Option<&Path> {
        self.directories.get(&key).map(PathBuf::as_path)
    }

    pub(crate) fn invocation(&self, key: ProgramKey) -> Option<&Invocation> {
        let found = self.invocations.get(&key).or_else(|| {
            let last = self.latest.get(&key.pid).filter(|_| key.image == 0)?;
            self.invocations.get(last)
        });
        found?.as_ref()
    }

    pub(crate) fn reach(&self, key: ProgramKey) -> Option<&Reach> {
        self.reaches.get(&key).or_else(|| {
            let last = self.latest.get(&key.pid).filter(|_| key.image == 0)?;
            self.reaches.get(last)
        })
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Takes over what a tier has seen of a program at its fork. /proc adds to it if the process
    /// is still the same program.
    pub(super) fn seen(&mut self, seen: SeenProgram) {
        let SeenProgram { key, mut known, cut } = seen;
        if let Some(before) = self.names.get(&key) {
            // A process that renames itself before each fork must not have /proc read each time.
            known.exe = known.exe.or_else(|| before.exe.clone());
            known.cgroup = known.cgroup.or_else(|| before.cgroup.clone());
        } else if (known.exe.is_none() || known.cgroup.is_none()) && procfs::is_still(key) == Some(true) {
            known.exe = known.exe.or_else(|| procfs::exe_of(key.pid));
            known.cgroup = known.cgroup.or_else(|| procfs::cgroup_of(key.pid));
        }
        known.exe = known.exe.take().or_else(|| guessed_exe(&known));
        if cut {
            self.cut.insert(key);
        }
        self.insert(key, known.name());
    }

    /// Meets a process that creates or is counted. If its program is not known yet, /proc is asked
    /// once, and believed only if the process is still that program.
    pub(super) fn met(&mut self, key: ProgramKey, comm: Option<&str>) {
        let known = self.names.get(&key);
        // Without an image only a new name tells an exec.
        if known.is_some_and(|known| key.image != 0 || comm.is_none_or(|comm| known.comm == comm)) {
            return;
        }
        let known = known.is_some();
        if (key.image == 0 || procfs::is_still(key) == Some(true))
            && let Some(found) = procfs::program_of(key.pid)
        {
            if known {
                self.invocations.remove(&key);
                self.reaches.remove(&key);
            }
            return self.insert(key, found.name());
        }
        if let (false, Some(comm)) = (known, comm) {
            self.insert(key, KnownProgram { comm: comm.to_owned(), ..KnownProgram::default() }.name());
        }
    }

    fn insert(&mut self, key: ProgramKey, name: ProcessName) {
        if name.exe.as_deref().and_then(Family::of_file) == Some(Family::Make)
            && !self.directories.contains_key(&key)
            && let Ok(directory) = fs::read_link(format!("/proc/{}/cwd", key.pid))
            && (key.image == 0 || procfs::is_still(key) == Some(true))
        {
            self.directories.insert(key, directory);
        }
        self.names.insert(key, name);
        self.latest.insert(key.pid, key);
    }

    /// Adds the cgroup that the kernel side told, to a program that was gone before /proc was
    /// asked.
    pub(super) fn in_cgroup(&mut self, key: ProgramKey, cgroup: &str) {
        if let Some(name) = self.names.get_mut(&key).filter(|name| name.cgroup.is_none()) {
            name.set_cgroup(cgroup.to_owned());
        }
    }

    /// Remembers how a program was started. /proc is asked once.
    pub(super) fn invoked(&mut self, key: ProgramKey) {
        if self.invocations.contains_key(&key) || self.invocations.len() >= MAX_PROGRAMS {
            return;
        }
        let found = if key.image == 0 || procfs::is_still(key) == Some(true) {
            if let Some(reach) = Reach::of(key.pid) {
                let is_one_of_many = self.reaches.len() >= MAX_WITH_REASONS;
                self.reaches.insert(key, if is_one_of_many { reach.without_reasons() } else { reach });
            }
            Invocation::of(key.pid)
        } else {
            let name = self.names.get(&key).filter(|_| !self.cut.contains(&key));
            name.and_then(|name| Invocation::of_arguments(name.exe.as_deref(), &name.arguments))
        };
        self.invocations.insert(key, found);
    }

    /// Forgets the programs that no table refers to; all of them if that is not enough.
    pub(super) fn forget_all_but(&mut self, wanted: &HashSet<ProgramKey>) {
        self.names.retain(|key, _| wanted.contains(key));
        if self.names.len() >= MAX_PROGRAMS / 2 {
            self.names.clear();
        }
        let Self { names, latest, invocations, reaches, directories, cut } = self;
        latest.retain(|_, key| names.contains_key(key));
        invocations.retain(|key, _| wanted.contains(key));
        reaches.retain(|key, _| wanted.contains(key));
        directories.retain(|key, _| names.contains_key(key));
        cut.retain(|key| names.contains_key(key));
    }
}

/// The program by its arguments, of a process that was gone: the interpreter of a script, or the
/// path that execve got.
fn guessed_exe(known: &KnownProgram) -> Option<String> {
    let path = known.path.as_ref()?;
    let is_script = known.arguments.iter().skip(1).any(|word| word == path);
    let program = if is_script { known.arguments.first()? } else { path };
    program.starts_with('/').then(|| program.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, image: u64, path: &str, line: &[&str]) -> SeenProgram {
        let known = KnownProgram {
            comm: crate::file_name::file_name(path).to_owned(),
            path: Some(path.to_owned()),
            arguments: line.iter().map(|word| (*word).to_owned()).collect(),
            ..KnownProgram::default()
        };
        SeenProgram { key: ProgramKey { pid, image }, known, cut: false }
    }

    /// Python's forks were the shell's, because the shell had started something before its exec.
    #[test]
    fn each_program_of_a_process_has_its_own_name() {
        const PID: u32 = 1 << 23;
        let mut programs = Programs::default();
        let key = |image| ProgramKey { pid: PID, image };
        programs.seen(seen(PID, 1, "/srv/start.sh", &["/bin/bash", "/srv/start.sh"]));
        programs.seen(seen(PID, 2, "/usr/bin/python3", &["python3", "web.py"]));
        let name = |image| programs.name(key(image)).map(|name| (name.name.as_str(), name.exe.as_deref()));
        assert_eq!(name(1), Some(("start.sh", Some("/bin/bash"))));
        assert_eq!(name(2), Some(("python3 web.py", Some("/usr/bin/python3"))));
        assert_eq!(name(0), name(2), "where nothing tells, it is the last program's");
        assert_eq!(name(3), None);
        programs.invoked(key(2));
        let line = programs.invocation(key(2)).and_then(|found| found.line("nice "));
        assert_eq!(line.as_deref(), Some("nice python3 web.py"));
    }

    #[test]
    fn a_process_that_is_another_program_by_now_is_not_asked() {
        let mut programs = Programs::default();
        let own = std::process::id();
        let image = procfs::arguments_at(own).expect("our own arguments");
        programs.met(ProgramKey { pid: own, image: image + 1 }, Some("before"));
        programs.met(ProgramKey { pid: own, image }, Some("before"));
        let exe = |image| programs.name(ProgramKey { pid: own, image }).and_then(|name| name.exe.clone());
        assert_eq!(exe(image + 1), None);
        assert_eq!(exe(image), procfs::exe_of(own));
    }
}
