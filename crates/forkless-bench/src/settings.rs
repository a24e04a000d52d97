//! System settings changed for the length of a measurement. The guard is told of each change before
//! it happens, and the setting is restored when its value is dropped. So a setting returns to its
//! old value after success, error, panic and kill alike.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::guard::Guard;

/// The settings of transparent huge pages.
pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// A setting that is not what it was; dropping it restores it.
#[derive(Debug)]
pub struct Changed {
    path: PathBuf,
    old: String,
}

impl Changed {
    /// Sets `path` to `value`; `None` when it is that already. Without a guard nothing is changed:
    /// [`Error::Missing`].
    pub fn set(path: &Path, value: &str, guard: Option<&mut Guard>) -> Result<Option<Changed>, Error> {
        if let Some(guard) = &guard {
            guard.lock_settings()?;
        }
        let text = fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))?;
        let old = selected(text.trim());
        if old == value {
            return Ok(None);
        }
        let Some(guard) = guard else {
            return Err(Error::Missing(format!("nobody would restore {} after a crash", path.display())));
        };
        // What may not be written will not change: the guard must not hear of it, or it would
        // complain of not being able to undo what never happened.
        drop(open(path)?);
        guard.restore_setting(path, old)?;
        write(path, value)?;
        Ok(Some(Changed { path: path.to_owned(), old: old.to_owned() }))
    }

    /// Sets it to another value, or asks for the same once more; what it goes back to stays what it
    /// was.
    pub(crate) fn again(&self, value: &str) -> Result<(), Error> {
        write(&self.path, value)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // The guard tries once more, and complains if it cannot.
        let _ = write(&self.path, &self.old);
    }
}

fn open(path: &Path) -> Result<fs::File, Error> {
    fs::OpenOptions::new().write(true).open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            Error::Missing(format!("{} can be set by root only", path.display()))
        }
        _ => Error::io(format!("open {}", path.display()))(error),
    })
}

fn write(path: &Path, value: &str) -> Result<(), Error> {
    open(path)?.write_all(value.as_bytes()).map_err(Error::io(format!("set {} to {value}", path.display())))
}

/// The chosen word of `always [madvise] never`, or the whole text of a plain setting.
pub fn selected(text: &str) -> &str {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_word_is_the_bracketed_one_or_all_there_is() {
        assert_eq!(selected("always [madvise] never"), "madvise");
        assert_eq!(selected("128"), "128");
    }

    #[test]
    fn nothing_is_changed_without_a_guard() {
        let path = std::env::temp_dir().join(format!("forkless-setting-{}", std::process::id()));
        fs::write(&path, "1\n").unwrap();
        assert!(Changed::set(&path, "1", None).unwrap().is_none());
        assert!(matches!(Changed::set(&path, "2", None), Err(Error::Missing(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        fs::remove_file(path).unwrap();
    }
}
