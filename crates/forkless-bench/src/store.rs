//! Results kept in the user's data directory, one JSON file a run, named by time, suites and
//! machine: `20261121T214501Z-spawn-18025e60.json`.

use std::env;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::results::Results;

/// A directory of saved results.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// `$XDG_DATA_HOME/forkless/bench`, or `~/.local/share/forkless/bench`.
    ///
    /// # Errors
    /// When neither variable names an absolute path. The directory itself is made when something is
    /// saved.
    pub fn open() -> Result<Store, Error> {
        let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let data = absolute("XDG_DATA_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
            .ok_or_else(|| {
                Error::Missing("neither XDG_DATA_HOME nor HOME names a directory to keep results in".into())
            })?;
        Ok(Store { directory: data.join("forkless/bench") })
    }

    /// A store in a directory of the caller's choice.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Store {
        Store { directory: directory.into() }
    }

    /// Where the results are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The saved files, oldest first; none where nothing was ever saved.
    #[must_use]
    pub fn list(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_result = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(".");
            !name.starts_with('.') && name.ends_with(".json")
        };
        let mut files: Vec<PathBuf> = entries.filter(is_result).collect();
        // Of one second, the one written later is the later one, whatever its suites are called.
        files.sort_by_cached_key(|path| {
            let name = path.file_name().unwrap_or_default().to_os_string();
            let second = name.to_str().and_then(|name| name.split('-').next()).unwrap_or_default().to_owned();
            let written = fs::metadata(path).and_then(|file| file.modified()).ok();
            // Where the clock of files is too coarse: NAME.2.json after NAME.json.
            (second, written, name.len(), name)
        });
        files
    }

    /// Reads a result: a path, `published` or `published:SYSTEM`, `latest`, `latest~N` (the N-th
    /// before it), or the beginning of a saved name.
    ///
    /// # Errors
    /// [`Error::NotSaved`] when nothing is meant; [`Error::Spec`] when more than one file is, or it
    /// is not a result.
    pub fn load(&self, name: &str) -> Result<Results, Error> {
        if name == "published" {
            return Ok(crate::compare::published());
        }
        if let Some(system) = name.strip_prefix("published:") {
            return crate::compare::published_on(system).ok_or_else(|| {
                Error::Spec(format!(
                    "{name}: there are published:macosx, published:linux and published:solaris"
                ))
            });
        }
        Store::read(&self.find(name)?)
    }

    /// Reads a result by its path, whatever bytes it has.
    ///
    /// # Errors
    /// [`Error::Spec`] when it cannot be read, or is not a result.
    pub fn read(path: &Path) -> Result<Results, Error> {
        /// A device such as /dev/zero never ends.
        const MOST: u64 = 256 << 20;
        let cannot =
            |why: &dyn std::fmt::Display| Error::Spec(format!("cannot read {}: {why}", path.display()));
        let mut text = Vec::new();
        let file = fs::File::open(path).map_err(|error| cannot(&error))?;
        file.take(MOST + 1).read_to_end(&mut text).map_err(|error| cannot(&error))?;
        if text.len() as u64 > MOST {
            return Err(cannot(&"it is longer than 256 MiB, and no saved result is"));
        }
        Results::from_json(&text).map_err(|fault| Error::Spec(format!("{} {fault}", path.display())))
    }

    fn find(&self, name: &str) -> Result<PathBuf, Error> {
        if name.is_empty() {
            return Err(Error::Spec("an empty name is no result: write a file, latest or published".into()));
        }
        let saved = self.list();
        if let Some(back) = name.strip_prefix("latest") {
            let back =
                if back.is_empty() { Some(0) } else { back.strip_prefix('~').and_then(|n| n.parse().ok()) };
            let back: usize = back.ok_or_else(|| Error::Spec(format!("{name}: write latest or latest~1")))?;
            let found = saved.iter().rev().nth(back).cloned();
            return found.ok_or_else(|| {
                Error::Spec(format!("{name}: only {} results in {}", saved.len(), self.directory.display()))
            });
        }
        let not_there = [std::io::ErrorKind::NotFound, std::io::ErrorKind::InvalidFilename];
        match fs::metadata(name) {
            Ok(_) => return Ok(PathBuf::from(name)),
            Err(error) if not_there.contains(&error.kind()) => {}
            Err(error) => return Err(Error::Spec(format!("cannot read {name}: {error}"))),
        }
        let begins = |path: &&PathBuf| {
            path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(name))
        };
        let found: Vec<&PathBuf> = saved.iter().filter(begins).collect();
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(Error::NotSaved(name.to_owned())),
            several => Err(Error::Spec(format!(
                "{name}: {} saved results begin so: write more of the name",
                several.len()
            ))),
        }
    }

    /// Writes the results as a new file and returns its path. A reader never sees half a file.
    ///
    /// # Errors
    /// When the directory cannot be made or written: a read-only home, a full disk.
    pub fn save(&self, results: &Results) -> Result<PathBuf, Error> {
        let cannot = |path: &Path| format!("write {}", path.display());
        fs::create_dir_all(&self.directory)
            .map_err(Error::io(format!("make {}", self.directory.display())))?;
        let mut suites: Vec<&str> = results.suites.iter().map(|suite| suite.name.as_str()).collect();
        suites.dedup();
        let fingerprint = results.machine.fingerprint.get(..8).unwrap_or("unknown");
        let stem = format!("{}-{}-{fingerprint}", timestamp(results.created), suites.join("+"));
        let partial = self.directory.join(format!(".{stem}.{}", std::process::id()));
        let written = fs::File::create_new(&partial)
            .and_then(|mut file| file.write_all(results.to_json().as_bytes()).and_then(|()| file.sync_all()));
        let named = written.map_err(Error::io(cannot(&partial))).and_then(|()| {
            for number in 1..1000 {
                let suffix = if number == 1 { String::new() } else { format!(".{number}") };
                let path = self.directory.join(format!("{stem}{suffix}.json"));
                // A hard link fails where the name is taken, which a rename would silently replace.
                match fs::hard_link(&partial, &path) {
                    Ok(()) => return Ok(path),
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(Error::io(cannot(&path))(error)),
                }
            }
            Err(Error::Missing(format!(
                "{} holds a thousand results of this second",
                self.directory.display()
            )))
        });
        let _ = fs::remove_file(&partial);
        named
    }
}

/// `2026-11-21` for seconds since 1970.
#[must_use]
pub(crate) fn date(seconds: u64) -> String {
    formatted(seconds, "%Y-%m-%d")
}

/// `20261121T214501Z` for seconds since 1970: sorts by time and needs no quoting.
#[must_use]
pub fn timestamp(seconds: u64) -> String {
    formatted(seconds, "%Y%m%dT%H%M%SZ")
}

fn formatted(seconds: u64, form: &str) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.unwrap_or_default().strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_results_read_back_and_do_not_replace_each_other() {
        let directory = env::temp_dir().join(format!("forkless-store-test-{}", std::process::id()));
        let store = Store::at(&directory);
        let results = Results { created: 1_795_297_501, ..Results::begin() };
        let first = store.save(&results).unwrap();
        let second = store.save(&results).unwrap();
        assert_ne!(first, second);
        assert!(first.file_name().unwrap().to_str().unwrap().starts_with("20261121T214501Z-"));
        let back: Results = serde_json::from_str(&fs::read_to_string(&first).unwrap()).unwrap();
        assert_eq!(back, results);
        assert_eq!(store.list(), [first.clone(), second.clone()], "the later one is the latest");
        assert_eq!(store.load("latest~1").unwrap(), results);
        assert!(matches!(store.load("2026"), Err(Error::Spec(_))), "both names begin so");
        assert!(matches!(store.load("1999"), Err(Error::NotSaved(_))));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "no partial file stays");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
        let error = Store::at("/proc/forkless").save(&Results::begin()).unwrap_err().to_string();
        assert!(error.contains("/proc/forkless"), "{error}");
    }
}
