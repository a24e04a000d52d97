//! The shells to compare with, each under the name `sh`, and what the probe makes of them.

use std::ffi::{CStr, CString, OsString};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use forkless_shell::probe::{self, Answer, Question};
use forkless_shell::{ShellKind, ShellTraits};
use nix::unistd::Pid;

use crate::process::{Outcome, start, wait};

pub(crate) const SUPPORTED: &[ShellKind] = &[ShellKind::Dash, ShellKind::Bash, ShellKind::Busybox];

pub(crate) struct Shell {
    pub(crate) kind: ShellKind,
    pub(crate) path: CString,
    /// The shell's answers. A shell of an untested version is unknown, and nothing is compared.
    pub(crate) traits: ShellTraits,
    /// A busybox that prefers its own applets to programs. It has no applet with the names of this
    /// test's programs.
    pub(crate) runs_applets: bool,
}

impl Shell {
    pub(crate) fn find(kind: ShellKind, base: &Path) -> Option<Self> {
        let name = match kind {
            ShellKind::Dash => "dash",
            ShellKind::Bash => "bash",
            ShellKind::Busybox => "busybox",
            _ => return None,
        };
        let program =
            ["/bin", "/usr/bin"].iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists())?;
        let directory = base.join(name);
        std::fs::create_dir_all(&directory).expect("create a directory for the shell");
        let path = directory.join("sh");
        std::os::unix::fs::symlink(program, &path).expect("link the shell");
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        let found = Self::probe(&path);
        let runs_applets = found.needs_applet_question();
        let traits = if runs_applets { found.with_applet_answer(127) } else { found };
        Some(Self { kind, path, traits, runs_applets })
    }

    /// Asks the questions of the crate's probe.
    fn probe(path: &CStr) -> ShellTraits {
        let directory = std::env::current_dir().expect("getcwd").into_os_string();
        probe::ask(&mut Asker { path, directory, output: Vec::new() }).expect("a shell that starts")
    }
}

struct Asker<'a> {
    path: &'a CStr,
    directory: OsString,
    output: Vec<u8>,
}

impl probe::Asker for Asker<'_> {
    type Shell = (Pid, std::io::PipeReader);

    fn start(&mut self, question: &Question) -> Option<Self::Shell> {
        let (read, write) = std::io::pipe().expect("pipe");
        let null = || Some(Rc::new(std::fs::File::open("/dev/null").expect("open /dev/null")));
        let mut table = [const { None }; 10];
        table[0] = null();
        table[1] = Some(Rc::new(OwnedFd::from(write).into()));
        table[2] = null();
        let argv = [c"sh".to_owned(), c"-c".to_owned(), question.line.to_owned()];
        let environment: Vec<CString> = question.environment.iter().map(|&entry| entry.to_owned()).collect();
        let pid = start(self.path, &argv, &environment, &table).expect("start the shell");
        Some((pid, read))
    }

    fn hear(&mut self, (pid, mut read): Self::Shell) -> Option<Answer<'_>> {
        self.output.clear();
        read.read_to_end(&mut self.output).expect("read the probe's answer");
        let exit_code = match wait(pid) {
            Outcome::Code(code) => Some(code.into()),
            Outcome::Signal(..) => None,
        };
        let shell = u32::try_from(pid.as_raw()).expect("a process id");
        Some(Answer { output: &self.output, shell, directory: self.directory.as_bytes(), exit_code })
    }
}
