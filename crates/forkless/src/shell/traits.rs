//! Which shell this machine's `/bin/sh` is, asked once for each `/bin/sh` there is.

use super::between::{self, Heard};
use crate::child::Child;
use crate::command::Command;
use crate::kernel::namespace::children_stay;
use crate::spec::attributes::OnDrop;
use crate::spec::stdio::Stdio;
use crate::spec::strings::Strings;
use forkless_shell::ShellTraits;
use forkless_shell::probe::{self, Answer, Question};
use forkless_sys::signal::{self, SigSet};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The file whose behaviour was found out. After an upgrade it is another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn now() -> Option<Stamp> {
        let metadata = std::fs::metadata("/bin/sh").ok()?;
        Some(Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// Null, or a box that is never freed, since a thread may be reading it. A program makes one for
/// each `/bin/sh` that it lives to see. There is no lock: a fork might copy it while it is held.
static KNOWN: AtomicPtr<(Stamp, ShellTraits)> = AtomicPtr::new(null_mut());

#[expect(unsafe_code, reason = "a pointer that is published once and never freed")]
fn known() -> Option<&'static (Stamp, ShellTraits)> {
    // SAFETY: null or a leaked box, written before it was published.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// The behaviour of this machine's `/bin/sh`, as far as lines without a shell need to know it.
///
/// The first call runs it (for busybox twice). It is no child of this process: no handler for
/// SIGCHLD and no wait for any child is told of it. Later calls only check that it is still the
/// same file. `UNKNOWN` when it does not behave as one of the known shells: every line is then left
/// to it. Also when it cannot be started now; the next call tries again.
///
/// ```
/// let traits = forkless::shell_traits();
/// println!("/bin/sh is {:?}", traits.kind());
/// ```
pub fn shell_traits() -> ShellTraits {
    let Some(stamp) = Stamp::now() else { return ShellTraits::UNKNOWN };
    if let Some((_, traits)) = known().filter(|(of, _)| *of == stamp) {
        return *traits;
    }
    // A thread that comes meanwhile asks, too, rather than wait for a process. The next line asks
    // again where the shell cannot be asked now: no descriptor or process is left, or the first
    // child in a new PID namespace has to be the program's.
    let asked = children_stay().then(|| probe::ask(&mut HiddenAsker::new(true)));
    let Some(traits) = asked.flatten() else { return ShellTraits::UNKNOWN };
    KNOWN.store(Box::into_raw(Box::new((stamp, traits))), Ordering::Release);
    traits
}

/// Starts shells by this library and reads their answers.
#[derive(Default, Debug)]
struct Asker {
    output: Vec<u8>,
}

impl probe::Asker for Asker {
    type Shell = Child;

    fn start(&mut self, question: &Question) -> Option<Child> {
        let mut environment = Strings::default();
        for entry in question.environment {
            environment.push(entry.to_bytes());
        }
        let mut command = Command::new("/bin/sh");
        command.arg0("sh").arg("-c").arg(OsStr::from_bytes(question.line.to_bytes())).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // The caller may block a signal that a shell waits for: SIGCHLD, as system(3) does.
        command.signal_mask(SigSet::EMPTY).default_signals(SigSet::EMPTY.with(libc::SIGQUIT));
        command.spec.env.set_exact(environment);
        // Its lines are short: it ends by itself.
        command.on_drop(OnDrop::Wait);
        command.spawn().ok()
    }

    fn hear(&mut self, mut shell: Child) -> Option<Answer<'_>> {
        self.output.clear();
        shell.stdout.take()?.take(64 << 10).read_to_end(&mut self.output).ok()?;
        let pid = shell.id();
        // Its output counts also where its status is lost: the program may ignore SIGCHLD.
        let exit_code = shell.wait().ok().and_then(|status| status.code());
        Some(Answer { output: &self.output, shell: pid, directory: b"/", exit_code })
    }
}

/// Asks shells that are no children of this process. Where that cannot be done, it starts them as
/// [`Asker`] does.
#[derive(Debug)]
struct HiddenAsker {
    /// Whether it does.
    hides: bool,
    heard: Option<Heard>,
    asker: Asker,
}

impl HiddenAsker {
    fn new(hides: bool) -> HiddenAsker {
        HiddenAsker { hides, heard: None, asker: Asker::default() }
    }
}

impl probe::Asker for HiddenAsker {
    /// `None` for one that has been heard.
    type Shell = Option<Child>;

    fn start(&mut self, question: &Question) -> Option<Option<Child>> {
        self.heard = self.hides.then(|| between::ask(question)).flatten();
        if self.heard.is_some() { Some(None) } else { self.asker.start(question).map(Some) }
    }

    fn hear(&mut self, shell: Option<Child>) -> Option<Answer<'_>> {
        match shell {
            None => self.heard.as_ref().map(Heard::answer),
            Some(shell) => self.asker.hear(shell),
        }
    }
}

/// A `/bin/sh` that was asked which shell it is and runs while its asker does other things. Dropped
/// unheard it is waited for.
#[doc(hidden)]
#[derive(Debug)]
pub struct AskedShell {
    asker: HiddenAsker,
    shell: Option<Child>,
    file: Stamp,
}

/// A known `/bin/sh`, as long as it is this file.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ShellFile {
    pub traits: ShellTraits,
    pub device: u64,
    pub inode: u64,
}

impl AskedShell {
    /// Asks. `None` when there is no shell, and where the shell would be the init of a new PID
    /// namespace, which ends with it.
    ///
    /// Where the caller blocks SIGCHLD, the answer is waited for here. The shell of a child would
    /// leave one pending, for a program that this process becomes.
    ///
    /// ```
    /// let asked = forkless::AskedShell::start();
    /// assert_eq!(asked.is_some(), std::path::Path::new("/bin/sh").exists());
    /// ```
    pub fn start() -> Option<AskedShell> {
        // Before the question: the answer is then never one of an older file.
        let file = Stamp::now().filter(|_| children_stay())?;
        let is_blocked = signal::mask().is_ok_and(|mask| mask.has(signal::SIGCHLD));
        let mut asker = HiddenAsker::new(is_blocked);
        let shell = probe::start(&mut asker)?;
        Some(AskedShell { asker, shell, file })
    }

    /// Reads the answer. `None` when it is not that of a known shell.
    ///
    /// ```
    /// let known = forkless::AskedShell::start().and_then(|asked| asked.hear());
    /// let traits = known.map_or(forkless_shell::ShellTraits::UNKNOWN, |file| file.traits);
    /// assert_eq!(traits, forkless::shell_traits());
    /// ```
    pub fn hear(mut self) -> Option<ShellFile> {
        let traits = probe::hear(&mut self.asker, self.shell);
        let Stamp { device, inode, .. } = self.file;
        (traits != ShellTraits::UNKNOWN).then_some(ShellFile { traits, device, inode })
    }
}
