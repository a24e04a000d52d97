//! A process that undoes what a measurement changed, even when the measuring process is killed.
//!
//! Signal handlers and destructors do not run on SIGKILL or an abort. So every lasting change (a
//! temporary directory, a system setting) is first announced to a separate process over a pipe.
//! When the pipe closes, for whatever reason, that process undoes the announced changes in reverse
//! order and exits. Undoing is idempotent: a change already undone by its owner costs nothing. A
//! pipe that closes without a word means that the measuring process was interrupted or killed. Only
//! the guard is left to say so.
//!
//! This library cannot know how to start itself as a program; the caller gives a [`Command`] whose
//! program calls [`serve`] on its standard input.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::quiet_pipe;

/// Who holds the lock of this file may change settings of the machine. Only root may open it, so
/// nobody else can keep root waiting.
const LOCK: &str = "/proc/sys/vm/compact_memory";

const REMOVE: u8 = b'r';
const WRITE: u8 = b'w';
/// No change: the measuring process ends by itself.
const DONE: u8 = b'd';

/// A change that only its suite knows how to undo: announced with one word, the name of the thing
/// changed, and undone by the function in the guarding process. [`serve`] is given all there are.
#[derive(Debug, Clone, Copy)]
pub struct Undo {
    /// Tells it from the others and from the guard's own: `r`, `w` and `d` are taken.
    pub kind: u8,
    /// Undoes it; must be fine where that has been done already.
    pub undo: fn(&OsStr) -> io::Result<()>,
}

/// The measuring process's end: announces changes. Dropping it has them undone and waits until they
/// are.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
    /// `None`: this is not root, and can change nothing.
    lock: Option<File>,
}

impl Guard {
    /// Starts the guarding process in a process group of its own, so that Ctrl-C on the terminal
    /// reaches the measuring process and not the one that cleans up after it.
    ///
    /// # Errors
    /// When the program cannot be started; then nothing may be changed that would need undoing.
    pub fn start(mut command: Command) -> Result<Guard, Error> {
        let step =
            format!("start the process that restores settings ({})", command.get_program().to_string_lossy());
        let lock = fs::OpenOptions::new().write(true).open(LOCK).ok();
        // It prints nothing on its standard output, which must not hold open what readers of the
        // results wait for the end of. So it may hold the lock: a killed bench has it until its
        // settings are restored.
        let output = lock.as_ref().and_then(|lock| lock.try_clone().ok());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(output.map_or_else(|| io::stderr().into(), Stdio::from))
            .process_group(0)
            .spawn()
            .map_err(Error::io(step))?;
        let pipe = child.stdin.take();
        Ok(Guard { child, pipe, lock })
    }

    /// Waits until no other measurement has changed settings of this machine, and keeps others
    /// from it until this guard has ended. Call it before reading a setting that may be changed:
    /// what another measurement has set is not what to restore.
    ///
    /// # Errors
    /// When another one has them for a minute.
    pub(crate) fn lock_settings(&self) -> Result<(), Error> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let Some(lock) = &self.lock else { return Ok(()) };
        let begun = Instant::now();
        while let Err(TryLockError::WouldBlock) = lock.try_lock() {
            if begun.elapsed() > PATIENCE {
                return Err(Error::Missing(
                    "another measurement has changed settings of this machine, for a minute or longer: run this one when that one has \
                     ended"
                        .to_owned(),
                ));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Announces a directory to be removed with everything in it.
    ///
    /// # Errors
    /// When the guarding process is gone.
    pub fn remove_directory(&mut self, path: &Path) -> Result<(), Error> {
        self.announce(REMOVE, &[path.as_os_str().as_bytes()])
    }

    /// Announces a setting (a file under `/sys` or `/proc/sys`) to be set back to `value`. Call it
    /// before the change.
    ///
    /// # Errors
    /// When the guarding process is gone.
    pub(crate) fn restore_setting(&mut self, path: &Path, value: &str) -> Result<(), Error> {
        self.announce(WRITE, &[path.as_os_str().as_bytes(), value.as_bytes()])
    }

    /// Announces a change that a registered suite knows how to undo. Call it before the change.
    ///
    /// # Errors
    /// When the guarding process is gone.
    pub fn undo_at_end(&mut self, how: &Undo, thing: &OsStr) -> Result<(), Error> {
        self.announce(how.kind, &[thing.as_bytes()])
    }

    fn announce(&mut self, kind: u8, fields: &[&[u8]]) -> Result<(), Error> {
        // One write below PIPE_BUF: a kill cannot leave half an announcement that reads as another
        // one, since the record carries its length.
        let mut record = vec![kind, u8::try_from(fields.len()).unwrap_or(u8::MAX)];
        for field in fields {
            let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
            record.extend(length.to_le_bytes());
            record.extend(*field);
        }
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        quiet_pipe::write_all(pipe, &record).map_err(Error::io("tell the process that restores settings"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // If DONE cannot be sent, the guard reports an interruption: the pipe is broken then.
        let _ = self.announce(DONE, &[]);
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

/// The guarding process: reads announcements until the other end is gone, then undoes them, last
/// first. Returns what there is to say about it, in sentences: what could not be undone, and that
/// the other end went without a word. The caller prints them and must bear it when nobody is there
/// to read: the terminal may be gone, too.
#[must_use]
pub fn serve(mut input: impl Read, undos: &[Undo]) -> Vec<String> {
    let mut changes = Vec::new();
    let mut done = false;
    while let Ok(change) = read_change(&mut input) {
        if change.0 == DONE {
            done = true;
        } else {
            changes.push(change);
        }
    }
    let changed = !changes.is_empty();
    let mut said = Vec::new();
    for (kind, fields) in changes.into_iter().rev() {
        if let Err(error) = undo(kind, &fields, undos) {
            let what =
                fields.first().map_or_else(String::new, |field| String::from_utf8_lossy(field).into_owned());
            said.push(format!("could not undo the change to {what}: {error}"));
        }
    }
    if !done {
        let restored =
            if changed && said.is_empty() { ", and what had been changed is as it was" } else { "" };
        said.push(format!("interrupted: nothing is kept{restored}"));
    }
    said
}

fn read_change(input: &mut impl Read) -> io::Result<(u8, Vec<Vec<u8>>)> {
    let mut head = [0; 2];
    input.read_exact(&mut head)?;
    let mut fields = Vec::new();
    for _ in 0..head[1] {
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let mut field = vec![0; u32::from_le_bytes(length) as usize];
        input.read_exact(&mut field)?;
        fields.push(field);
    }
    Ok((head[0], fields))
}

fn undo(kind: u8, fields: &[Vec<u8>], undos: &[Undo]) -> io::Result<()> {
    let path = |index: usize| fields.get(index).map(|field| Path::new(OsStr::from_bytes(field)));
    match (kind, path(0), fields.get(1)) {
        (REMOVE, Some(path), _) => match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        },
        (WRITE, Some(path), Some(value)) => fs::OpenOptions::new().write(true).open(path)?.write_all(value),
        (_, Some(thing), _) => match undos.iter().find(|known| known.kind == kind) {
            Some(known) => (known.undo)(thing.as_os_str()),
            None => Err(io::ErrorKind::InvalidData.into()),
        },
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
        let mut record = vec![kind, u8::try_from(fields.len()).unwrap()];
        for field in fields {
            record.extend(u32::try_from(field.len()).unwrap().to_le_bytes());
            record.extend(*field);
        }
        record
    }

    #[test]
    fn changes_are_undone_last_first_and_a_torn_record_is_ignored() {
        let directory = std::env::temp_dir().join(format!("forkless-guard-test-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let setting = directory.join("setting");
        fs::write(&setting, "changed").unwrap();
        let kept = directory.with_extension("kept");
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        // First announced, last undone: the setting inside the directory is written before the
        // directory goes.
        let copy_beside = Undo {
            kind: b'c',
            undo: |setting| {
                let directory = Path::new(setting).parent().ok_or(io::ErrorKind::NotFound)?;
                fs::copy(setting, directory.with_extension("copy")).map(drop)
            },
        };
        let copy = directory.with_extension("copy");
        let mut input = record(REMOVE, &[&path(&directory)]);
        input.extend(record(copy_beside.kind, &[&path(&setting)]));
        input.extend(record(WRITE, &[&path(&setting), b"restored"]));
        let torn = record(WRITE, &[&path(&kept), b"x"]);
        input.extend(&torn[..torn.len() - 1]);
        assert_eq!(
            serve(&input[..], &[copy_beside]),
            ["interrupted: nothing is kept, and what had been changed is as it was"]
        );
        assert_eq!(fs::read_to_string(&copy).unwrap(), "restored");
        assert!(!directory.exists());
        assert!(!kept.exists());
        fs::remove_file(copy).unwrap();
    }

    #[test]
    fn what_cannot_be_undone_is_named_and_a_good_end_is_silent() {
        let said = serve(&record(WRITE, &[b"/nonexistent/setting", b"x"])[..], &[]);
        assert!(said[0].contains("/nonexistent/setting"), "{said:?}");
        assert_eq!(said[1..], ["interrupted: nothing is kept"]);
        assert!(serve(&record(DONE, &[])[..], &[]).is_empty());
    }
}
