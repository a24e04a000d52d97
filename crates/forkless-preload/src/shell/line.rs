//! From a line to a process: the result of the analysis, laid out as vectors; or the shell.
#![expect(unsafe_code, reason = "walks the C environment, lays out vectors")]

use core::ffi::{CStr, c_char};
use core::ptr::null;

use forkless_child::Action;
use forkless_run::Counter;
use forkless_shell::{
    Command, Directory, EnvString, Environment, PreviousDirectory, RedirectionKind, ShellKind, ShellTraits,
    analyze,
};
use forkless_sys::process::{S_IFCHR, S_IFDIR, S_IFMT, S_IFREG};
use forkless_sys::signal::{self, Disposition, SA_NOCLDWAIT, SA_SIGINFO, SIG_IGN, SigSet};
use forkless_sys::{CPtr, Errno, fd, process};

use crate::signals::{SIGCHLD, SIGINT, SIGKILL, SIGQUIT};
use crate::{fork, next, tally};

use super::launch::{self, Parts, Process, Workspace, close, connect};
use super::message::{Ending, Errors};
use super::rights;

/// A C environment in place.
pub(super) struct Environ(pub(super) *const *const c_char);

impl Environment for Environ {
    fn entry(&self, index: usize) -> Option<&[u8]> {
        // SAFETY: callers go upwards and stop at the end, as the trait demands.
        let entry = unsafe { *self.0.wrapping_add(index) };
        if entry.is_null() {
            return None;
        }
        // SAFETY: entries are NUL-terminated.
        Some(unsafe { CStr::from_ptr(entry) }.to_bytes())
    }
}

/// A process that stands for a shell's line.
pub(super) struct Started {
    pub(super) pid: i32,
    /// What a shell that waits for it would do after its end. `None`: nothing.
    pub(super) ending: Option<Ending>,
}

/// How the caller wants it started.
pub(super) struct Terms<'a> {
    /// Descriptors that the child closes first: those of streams.
    pub(super) close: &'a [i32],
    /// A stream's end of its pipe. It gets its place before the line's own redirections.
    pub(super) pipe: Option<Pipe>,
    pub(super) restore: SigSet,
    pub(super) mask: SigSet,
    /// The caller waits for it elsewhere: in `pclose`, or by a wait for any child.
    pub(super) is_stream: bool,
}

/// One end of a pipe.
#[derive(Clone, Copy)]
pub(super) struct Pipe {
    pub(super) from: i32,
    /// Its number in the child.
    pub(super) to: i32,
}

impl Terms<'_> {
    /// The first actions of the child, and how many they are.
    fn first_actions(&self) -> ([Action<'_>; 2], usize) {
        let close = Action::Close { fds: self.close };
        match self.pipe {
            Some(Pipe { from, to }) => ([close, connect(from, to)], 2),
            None => ([close; 2], 1),
        }
    }
}

/// Starts a line, without a shell where that is the same.
pub(super) fn start(line: &CStr, environ: *const *const c_char, terms: &Terms<'_>) -> Result<Started, Errno> {
    let counted = fork::begin_work();
    let started = start_counted(line, environ, terms);
    fork::end_work(counted);
    started
}

fn start_counted(line: &CStr, environ: *const *const c_char, terms: &Terms<'_>) -> Result<Started, Errno> {
    let mut workspace = Workspace::take().ok_or(Errno::ENOMEM)?;
    if !fork::sandboxed()
        && let Some(shell) = super::traits()
        && rights::are_a_shells()
        && fork::children_stay()
        && let Some(started) = without_shell(line, environ, terms, &shell, &mut workspace)
    {
        tally::add_line(Counter::Shells);
        return Ok(started);
    }
    tally::add(Counter::ShellsKept, 1);
    with_shell(line, environ, terms, &workspace).map(|pid| Started { pid, ending: None })
}

fn with_shell(
    line: &CStr,
    environ: *const *const c_char,
    terms: &Terms<'_>,
    workspace: &Workspace,
) -> Result<i32, Errno> {
    let argv = [c"sh".as_ptr(), c"-c".as_ptr(), c"--".as_ptr(), line.as_ptr(), null()];
    let plain = [c"sh".as_ptr(), c"-c".as_ptr(), line.as_ptr(), null()];
    let (actions, n) = terms.first_actions();
    Process {
        path: c"/bin/sh",
        argv: if next::is_glibc_2_38() { argv.as_ptr() } else { plain.as_ptr() },
        envp: environ,
        files: &actions[..n],
        restore: terms.restore,
        ignored: launch::left_ignored(),
        mask: terms.mask,
    }
    .start(workspace.stack())
}

/// Whether this line depends on which shell `/bin/sh` is: were it dash, which does the least of its
/// own, the line would need no shell.
pub(super) fn depends_on_the_shell(line: &CStr, environ: *const *const c_char, memory: &mut [u8]) -> bool {
    analyze(line.to_bytes(), &Environ(environ), &ShellTraits::DASH, memory)
        .is_ok_and(|script| script.single().is_some_and(|command| command.is_program()))
}

/// `None`: the line is for the shell, which would repeat all that has happened.
fn without_shell(
    line: &CStr,
    environ: *const *const c_char,
    terms: &Terms<'_>,
    shell: &ShellTraits,
    workspace: &mut Workspace,
) -> Option<Started> {
    let stack = workspace.stack();
    let Parts { script, own, path, current: here, previous: old, argv, envp, slots, actions } =
        workspace.parts()?;
    let environment = Environ(environ);
    let script = analyze(line.to_bytes(), &environment, shell, script).ok()?;
    let command = script.single()?;
    if !command.is_program() || script.pipelines().next()?.is_negated() {
        return None;
    }
    // The search would have to use the assigned PATH in dash, the old one elsewhere.
    if command.assignments().any(|a| a.to_bytes().starts_with(b"PATH=")) {
        return None;
    }
    let replaces = command.replaces_shell();
    if !replaces && may_see_the_end(terms) {
        return None;
    }
    let path = find(command.words().next()?, &environment, path)?;
    fill(argv, command.words().map(CStr::as_ptr))?;
    let directory =
        Directory { current: current(&environment, here)?, previous: previous(&environment, old)? };
    let n = shell.environment(&environment, &command, &directory, path.to_bytes(), own, slots).ok()?;
    fill(
        envp,
        slots[..n].iter().map(|slot| match slot.string() {
            // SAFETY: an index the analysis got from this environment.
            EnvString::Inherited(i) => unsafe { *environ.wrapping_add(i) },
            EnvString::Own(text) => text.as_ptr(),
        }),
    )?;
    let mut files = Files::new(actions, terms)?;
    let ready = files.redirect(&command, terms, shell);
    // Before the start: the program may close its standard error.
    let errors = if replaces { Errors::NOWHERE } else { Errors::at(files.errors()) };
    let (restore, mask) = signals(shell.kind(), replaces, terms);
    let mut ignored = launch::left_ignored();
    if shell.ignores_sigquit(&command) {
        ignored = ignored.with(SIGQUIT);
    }
    let launched = ready.and_then(|()| {
        Process {
            path,
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            files: &files.actions[..files.len],
            restore,
            ignored,
            mask,
        }
        .start(stack)
        // No #! line, a missing interpreter, a race: the shell handles it, with its own message.
        .ok()
    });
    let pid = launched?;
    let ending = Ending { shell: *shell, errors, waits: !terms.is_stream };
    Some(Started { pid, ending: (!replaces).then_some(ending) })
}

/// Whether the program may learn of its child's end in another way than by waiting for it, or
/// survive a signal that ends a shell which waits for the line's program.
///
/// A signal to the process group of all three, or to their control group, ends the shell as well,
/// whose status is then that signal. Afterwards nothing shows that the signal came to more than the
/// line's program. But a program that has no handler for it and has not blocked it would be gone.
/// SIGINT and SIGQUIT are ignored while `system` waits; these two are assumed to come from the
/// terminal.
///
/// A handler for SIGCHLD learns of the child's end in terms that a waiting shell would have
/// changed: from its `siginfo_t`, and from its own waits for any child, which find a stream's.
/// Beside other threads, which do not block the signal, it learns also that the child of `system`
/// stops and goes on.
///
/// Where SIGCHLD is ignored, nobody but a shell learns how the program ended, and tells of it.
fn may_see_the_end(terms: &Terms<'_>) -> bool {
    let sent = if terms.is_stream { signal::SENT } else { signal::SENT.without(SIGINT).without(SIGQUIT) };
    if terms.mask.and(sent.with(SIGCHLD)) != SigSet::EMPTY || signal::any_handled(sent) {
        return true;
    }
    signal::action(SIGCHLD).is_ok_and(|chld| {
        if chld.handler == SIG_IGN || chld.flags & SA_NOCLDWAIT != 0 {
            return true;
        }
        matches!(chld.disposition(), Disposition::Handler(_))
            && (terms.is_stream || chld.flags & SA_SIGINFO != 0 || process::thread_count() != Some(1))
    })
}

/// The effect of the shell on signals that the caller ignores or blocks: those that are back at
/// their default for the program, and its mask. dash and busybox handle SIGCHLD; bash leaves it
/// ignored, but unblocks it. dash starts a program by vfork with all signals blocked, and then
/// empties the mask (`vforkexec`, jobs.c). A program that replaces dash by `exec` has dash's own
/// mask.
fn signals(shell: ShellKind, replaces: bool, terms: &Terms<'_>) -> (SigSet, SigSet) {
    let handled = if shell == ShellKind::Bash { terms.restore } else { terms.restore.with(SIGCHLD) };
    match shell {
        ShellKind::Dash if !replaces => (handled, SigSet::EMPTY),
        ShellKind::Bash => (handled, terms.mask.without(SIGCHLD)),
        _ => (handled, terms.mask),
    }
}

pub(super) fn fill(vector: &mut [*const c_char], from: impl Iterator<Item = *const c_char>) -> Option<()> {
    for (n, pointer) in from.enumerate() {
        // The last stays null.
        if n + 1 >= vector.len() {
            return None;
        }
        vector[n] = pointer;
    }
    Some(())
}

/// The program: the first regular file with execute permission along `PATH`; a name with a slash as
/// it is.
pub(super) fn find<'b>(name: &CStr, environment: &Environ, buf: &'b mut [u8]) -> Option<&'b CStr> {
    let bytes = name.to_bytes();
    let joined = |buf: &mut [u8], folder: &[u8]| -> Option<usize> {
        let slash = usize::from(!folder.is_empty());
        let len = folder.len() + slash + bytes.len();
        buf.get(len)?;
        buf[..folder.len()].copy_from_slice(folder);
        if slash == 1 {
            buf[folder.len()] = b'/';
        }
        buf[folder.len() + slash..len].copy_from_slice(bytes);
        buf[len] = 0;
        Some(len)
    };
    let executable =
        |path: &CStr| file_type(path) == Some(S_IFREG) && process::may_execute(CPtr::from(path)).is_ok();
    if bytes.contains(&b'/') {
        let len = joined(buf, b"")?;
        let path = CStr::from_bytes_with_nul(&buf[..=len]).ok()?;
        return executable(path).then_some(path);
    }
    let path = environment.variable(b"PATH")?;
    for folder in path.split(|b| *b == b':') {
        // An empty element is the current directory, which shells spell in ways of their own.
        if folder.is_empty() {
            return None;
        }
        let len = joined(buf, folder)?;
        if CStr::from_bytes_with_nul(&buf[..=len]).is_ok_and(executable) {
            return CStr::from_bytes_with_nul(&buf[..=len]).ok();
        }
    }
    None
}

/// The shell's name for the current directory.
pub(super) fn current<'b>(environment: &Environ, buf: &'b mut [u8]) -> Option<&'b [u8]> {
    let here = launch::stat(c".")?;
    if let Some(pwd) = environment.variable(b"PWD")
        && pwd.starts_with(b"/")
        && pwd.len() + 1 < buf.len()
    {
        buf[..pwd.len()].copy_from_slice(pwd);
        buf[pwd.len()] = 0;
        let len = pwd.len();
        let same = CStr::from_bytes_with_nul(&buf[..=len])
            .ok()
            .and_then(launch::stat)
            .is_some_and(|s| s.device == here.device && s.inode == here.inode);
        if same {
            return Some(&buf[..len]);
        }
    }
    // A directory that cannot be reached from the root directory has no name; then the answer does
    // not begin with a slash.
    let len = process::getcwd(buf).ok()?;
    Some(&buf[..len]).filter(|name| name.starts_with(b"/"))
}

pub(super) fn previous(environment: &Environ, buf: &mut [u8]) -> Option<PreviousDirectory<'static>> {
    let Some(old) = environment.variable(b"OLDPWD") else { return Some(PreviousDirectory::Inherited) };
    let text = buf.get_mut(..=old.len())?;
    text[..old.len()].copy_from_slice(old);
    text[old.len()] = 0;
    let there = CStr::from_bytes_with_nul(text).ok().and_then(launch::stat);
    let is_directory = there.is_some_and(|there| there.mode & S_IFMT == S_IFDIR);
    Some(if is_directory { PreviousDirectory::Inherited } else { PreviousDirectory::Stale })
}

/// The child's actions on its descriptors.
struct Files<'a> {
    actions: &'a mut [Action<'a>],
    len: usize,
    /// Where the child's descriptors come from.
    now: [Source; 10],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Closed,
    /// A descriptor of the caller's.
    Ours(i32),
    /// A file that the child opens.
    File,
    /// `/dev/null`, opened by the child.
    Null,
}

impl<'a> Files<'a> {
    fn new(actions: &'a mut [Action<'a>], terms: &'a Terms<'a>) -> Option<Files<'a>> {
        let mut files = Files { actions, len: 0, now: core::array::from_fn(|n| Source::Ours(n as i32)) };
        let mut set = |number: i32, source| {
            if let Some(now) = usize::try_from(number).ok().and_then(|n| files.now.get_mut(n)) {
                *now = source;
            }
        };
        for &closed in terms.close {
            set(closed, Source::Closed);
        }
        if let Some(Pipe { from, to }) = terms.pipe {
            set(to, Source::Ours(from));
        }
        let (first, n) = terms.first_actions();
        for action in &first[..n] {
            files.push(*action)?;
        }
        Some(files)
    }

    fn push(&mut self, action: Action<'a>) -> Option<()> {
        *self.actions.get_mut(self.len)? = action;
        self.len += 1;
        Some(())
    }

    /// The child opens the files, one by one and in order, as the shell would. The caller opens and
    /// closes none: another of its threads would miss a number that it took for a moment. A process
    /// that closes any descriptor of a file loses all its record locks on the file
    /// (fcntl_locking(2)). And a terminal could become that of the caller's session. So a line is
    /// for the shell where a message of the shell would go to one of the files.
    fn redirect(&mut self, command: &Command<'a>, terms: &Terms<'_>, shell: &ShellTraits) -> Option<()> {
        use linux_raw_sys::general as k;
        let mut saved = 0u16;
        for r in command.redirections() {
            // The message could not be delivered later.
            if r.descriptor == 2 && terms.is_stream && shell.kind() != ShellKind::Bash {
                return None;
            }
            // bash saves a descriptor for its builtins only.
            if shell.kind() != ShellKind::Bash && saved & 1 << r.descriptor == 0 {
                saved |= 1 << r.descriptor;
                self.push(Action::CopyUntilExec { from: r.descriptor.into(), min: 10 })?;
            }
            let to = i32::from(r.descriptor);
            let (path, flags) = match r.kind {
                RedirectionKind::Read(path) => (path, k::O_RDONLY),
                RedirectionKind::Write(path) => (path, k::O_WRONLY | k::O_CREAT | k::O_TRUNC),
                RedirectionKind::Append(path) => (path, k::O_WRONLY | k::O_CREAT | k::O_APPEND),
                RedirectionKind::ReadWrite(path) => (path, k::O_RDWR | k::O_CREAT),
                RedirectionKind::Duplicate(from) => {
                    let source = self.now[usize::from(from)];
                    let ours = source == Source::Ours(i32::from(from));
                    // Close-on-exec in the caller, a descriptor would not exist for the shell.
                    if source == Source::Closed || (ours && fd::get_fd_flags(from.into()).ok()? & 1 != 0) {
                        return None;
                    }
                    self.now[usize::from(r.descriptor)] = source;
                    self.push(connect(from.into(), to))?;
                    continue;
                }
                RedirectionKind::Close => {
                    self.now[usize::from(r.descriptor)] = Source::Closed;
                    self.push(close(to))?;
                    continue;
                }
            };
            let source = match file_type(path) {
                Some(S_IFREG) => Source::File,
                None if flags & k::O_CREAT != 0 => Source::File,
                Some(S_IFCHR) if path == c"/dev/null" => Source::Null,
                // A file that may block (a FIFO, a line without a carrier) would block the caller
                // rather than the shell.
                _ => return None,
            };
            self.push(Action::OpenWithoutWaiting { path: path.into(), flags, to })?;
            self.now[usize::from(r.descriptor)] = source;
        }
        let says = !command.replaces_shell() && shell.signal_message(SIGKILL as u8, false).is_some();
        (!says || self.now[2] != Source::File).then_some(())
    }

    /// The caller's descriptor that is the command's standard error. -1: nobody reads that.
    fn errors(&self) -> i32 {
        match self.now[2] {
            Source::Ours(at) => at,
            Source::Closed | Source::File | Source::Null => -1,
        }
    }
}

fn file_type(path: &CStr) -> Option<u32> {
    launch::stat(path).map(|s| s.mode & S_IFMT)
}
