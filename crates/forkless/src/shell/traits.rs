//! What this machine's `/bin/sh` is, asked once for each `/bin/sh` there is.

use super::namespace::children_stay;
use crate::command::Command;
use crate::spec::stdio::Stdio;
use crate::spec::strings::Strings;
use forkless_shell::{ShellTraits, probe};
use forkless_sys::signal::SigSet;
use std::ffi::CStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The file whose behaviour was found out: replaced by an upgrade, it is another one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

/// Null, or a box that is never freed, since somebody may be reading it: there is one for each `/bin/sh` that a program lives to
/// see. No lock, which a fork might copy while it is held.
static KNOWN: AtomicPtr<(Stamp, ShellTraits)> = AtomicPtr::new(null_mut());

#[expect(unsafe_code, reason = "a pointer that is published once and never freed")]
fn known() -> Option<&'static (Stamp, ShellTraits)> {
    // SAFETY: null or a leaked box, written before it was published.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// What this machine's `/bin/sh` does, as far as lines without a shell need to know.
///
/// The first call runs it (for busybox twice), later ones only look whether it is still the same file. `UNKNOWN` when it does not
/// behave as one of the known shells: every line is then left to it; also when it cannot be started now, which the next call tries again.
///
/// ```
/// let traits = forkless::shell_traits();
/// println!("/bin/sh is {:?}", traits.kind());
/// ```
pub fn shell_traits() -> ShellTraits {
    let Ok(metadata) = std::fs::metadata("/bin/sh") else { return ShellTraits::UNKNOWN };
    let stamp = Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    };
    if let Some((of, traits)) = known()
        && *of == stamp
    {
        return *traits;
    }
    // A thread that comes meanwhile asks, too, rather than wait for a process.
    // What cannot be asked now, for want of descriptors or processes, or since the first child in a new PID namespace has to be the
    // program's, is asked again by the next line.
    let Some(traits) = children_stay().then(ask).flatten() else { return ShellTraits::UNKNOWN };
    KNOWN.store(Box::into_raw(Box::new((stamp, traits))), Ordering::Release);
    traits
}

/// `None` when the shell could not be started.
fn ask() -> Option<ShellTraits> {
    let mut command = question(probe::LINE, &probe::ENVIRONMENT);
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let mut answer = Vec::new();
    let read = child.stdout.take()?.take(64 << 10).read_to_end(&mut answer);
    let pid = child.id();
    // What it said counts, also where its status is lost: the program may ignore SIGCHLD.
    let _ = child.wait();
    if read.is_err() {
        return Some(ShellTraits::UNKNOWN);
    }
    let traits = ShellTraits::from_probe(&answer, pid, b"/");
    if !traits.needs_applet_probe() {
        return Some(traits);
    }
    let asked = question(probe::APPLET_LINE, &probe::APPLET_ENVIRONMENT).status();
    let code = asked.ok().and_then(|status| status.code());
    Some(code.map_or(ShellTraits::UNKNOWN, |code| traits.with_applet_probe(code)))
}

fn question(line: &CStr, environment: &[&CStr]) -> Command {
    let mut strings = Strings::default();
    for entry in environment {
        strings.push(entry.to_bytes());
    }
    let mut command = Command::new("/bin/sh");
    command.arg0("sh").arg("-c").arg(std::ffi::OsStr::from_bytes(line.to_bytes())).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The caller may block what a shell waits for: SIGCHLD, as system(3) does.
    command.signal_mask(SigSet::EMPTY);
    command.spec.env.set_exact(strings);
    command
}
