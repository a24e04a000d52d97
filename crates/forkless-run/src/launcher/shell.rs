//! Asking `/bin/sh` what it is: the library may stand in only for a shell whose ways are known.
#![expect(unsafe_code, reason = "posix_spawn, for an environment in an order of ours")]

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::ptr::{null, null_mut};

use forkless_shell::{ShellTraits, probe};

use crate::{KnownShell, Shell};

/// What the library is told of the shell.
pub(super) enum Answer {
    /// Nothing: every line is the shell's.
    None,
    /// What this one says.
    Expected(Asked),
    /// To ask by itself, when the first line depends on it.
    LeftToTheLibrary,
}

impl Answer {
    /// What the options say of the shell.
    pub(super) fn for_the_library(self) -> Shell {
        match self {
            Answer::None => Shell::Unknown,
            Answer::Expected(asked) => asked.known().map_or(Shell::Unknown, Shell::Known),
            Answer::LeftToTheLibrary => Shell::Ask,
        }
    }
}

/// A shell that was asked and has not been listened to yet: it answers while its asker does other things.
#[derive(Debug)]
pub struct Asked {
    /// Until it is reaped.
    shell: Option<libc::pid_t>,
    answer: File,
}

impl Asked {
    /// Listens. `None` when the shell is not one whose ways are known.
    pub fn known(mut self) -> Option<KnownShell> {
        let output = self.listen()?;
        let file = fs::metadata("/bin/sh").ok()?;
        let directory = std::env::current_dir().ok()?;
        let directory = directory.as_os_str().as_encoded_bytes();
        let mut traits = ShellTraits::from_probe(&output, self.shell?.cast_unsigned(), directory);
        if traits.needs_applet_probe() {
            let mut second = start(probe::APPLET_LINE, &probe::APPLET_ENVIRONMENT)?;
            second.listen()?;
            let code = second.wait().and_then(|status| status.code());
            traits = code.map_or(traits, |code| traits.with_applet_probe(code));
        }
        (traits != ShellTraits::UNKNOWN).then(|| KnownShell { traits, device: file.dev(), inode: file.ino() })
    }

    fn listen(&mut self) -> Option<Vec<u8>> {
        let mut output = Vec::new();
        (&mut self.answer).take(1 << 20).read_to_end(&mut output).ok()?;
        Some(output)
    }

    /// Its status; `None` where SIGCHLD is ignored, and it reaped itself.
    fn wait(&mut self) -> Option<ExitStatus> {
        let shell = self.shell.take()?;
        let mut status = 0;
        // SAFETY: the child that `start` made, which nobody else waits for. Its line is short, so it ends by itself.
        while unsafe { libc::waitpid(shell, &raw mut status, 0) } < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        }
        Some(ExitStatus::from_raw(status))
    }
}

impl Drop for Asked {
    /// Listened to or not, nothing is left behind: the program that is executed next would find a child it never had.
    fn drop(&mut self) {
        self.wait();
    }
}

/// Asks `/bin/sh` what it is. `None` when there is no shell.
pub fn ask() -> Option<Asked> {
    start(probe::LINE, &probe::ENVIRONMENT)
}

/// Runs a line of the probe with exactly its environment. `None` when there is no shell.
fn start(line: &CStr, environment: &[&CStr]) -> Option<Asked> {
    let (read, write): (OwnedFd, OwnedFd) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).ok()?;
    let mut envp: Vec<_> = environment.iter().map(|e| e.as_ptr().cast_mut()).collect();
    envp.push(null_mut());
    let argv: [&CStr; 3] = [c"sh", c"-c", line];
    let mut argv: Vec<_> = argv.iter().map(|a| a.as_ptr().cast_mut()).collect();
    argv.push(null_mut());
    let mut actions = std::mem::MaybeUninit::<libc::posix_spawn_file_actions_t>::uninit();
    // SAFETY: initialises the structure.
    if unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: initialised above.
    unsafe { libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), write.as_raw_fd(), 1) };
    // SAFETY: as above; nobody hears what a shell that is not one says.
    unsafe {
        libc::posix_spawn_file_actions_addopen(
            actions.as_mut_ptr(),
            2,
            c"/dev/null".as_ptr(),
            libc::O_WRONLY,
            0,
        )
    };
    let mut pid = 0;
    // SAFETY: null-terminated vectors of strings, alive until the call returns.
    let result = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            c"/bin/sh".as_ptr(),
            actions.as_ptr(),
            null(),
            argv.as_ptr(),
            envp.as_ptr(),
        )
    };
    // SAFETY: initialised above, not used again.
    unsafe { libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr()) };
    drop(write);
    if result != 0 {
        return None;
    }
    Some(Asked { shell: Some(pid), answer: File::from(read) })
}
