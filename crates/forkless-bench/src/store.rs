//! Results kept in the user's data directory, one JSON file a run, named by time, suites and
//! machine: `20261121T214501Z-spawn-18025e60.json`.
//!
//! A saved result is a regular file there, or a link to one, whose name ends in `.json` and does
//! not begin with a dot, and that [`Store::read`] accepts. Whoever reads the directory goes by this
//! rule: other such names are passed over, each with its reason, and do not count. The order is
//! that of the times in the names. A file with another name has the time at which it was measured.

use std::env;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
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

    /// Calls `take` for every saved result, oldest first, and `passed_over` for every other file
    /// that has a result's name. Where nothing was ever saved, neither.
    ///
    /// # Errors
    /// [`Error::Spec`] when the directory cannot be read.
    pub fn for_each(
        &self,
        passed_over: &mut dyn FnMut(&Error),
        mut take: impl FnMut(&Path, Results),
    ) -> Result<(), Error> {
        for path in self.files()? {
            match saved(&path) {
                Ok(results) => take(&path, results),
                Err(error) => passed_over(&error),
            }
        }
        Ok(())
    }

    /// The files that have a result's name, oldest first.
    fn files(&self) -> Result<Vec<PathBuf>, Error> {
        let cannot = |error: io::Error| {
            let place = self.directory.display();
            Error::Spec(format!(
                "cannot read the directory of results, {place}: {error}; mend that, or name another one by \
                 XDG_DATA_HOME"
            ))
        };
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(cannot(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let name = entry.map_err(cannot)?.file_name();
            if !name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".json") {
                files.push(self.directory.join(name));
            }
        }
        // Of one second, the one written later is the later one, whatever its suites are called.
        files.sort_by_cached_key(|path| {
            let name = path.file_name().unwrap_or_default().to_os_string();
            let written = fs::metadata(path).and_then(|file| file.modified()).ok();
            // Where the clock of files is too coarse: NAME.2.json after NAME.json.
            (second(path), written, name.len(), name)
        });
        Ok(files)
    }

    /// Reads a result: a path, `published` or `published:SYSTEM`, `latest`, `latest~N` (the N-th
    /// before it), or the beginning of a saved name. `passed_over` is called for each file that
    /// would have been meant, and is no result.
    ///
    /// # Errors
    /// [`Error::NotSaved`] when nothing is meant; [`Error::Spec`] when more than one file is, or it
    /// is not a result.
    pub fn load(&self, name: &str, passed_over: &mut dyn FnMut(&Error)) -> Result<Results, Error> {
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
        if name.is_empty() {
            return Err(Error::Spec("an empty name is no result: write a file, latest or published".into()));
        }
        if let Some(back) = name.strip_prefix("latest") {
            let back =
                if back.is_empty() { Some(0) } else { back.strip_prefix('~').and_then(|n| n.parse().ok()) };
            let back = back.ok_or_else(|| Error::Spec(format!("{name}: write latest or latest~1")))?;
            return self.latest(name, back, passed_over);
        }
        let not_there = [io::ErrorKind::NotFound, io::ErrorKind::InvalidFilename];
        match fs::metadata(name) {
            Ok(_) => return Store::read(Path::new(name)),
            Err(error) if not_there.contains(&error.kind()) => {}
            Err(error) => return Err(Error::Spec(format!("cannot read {name}: {error}"))),
        }
        self.beginning(name, passed_over)
    }

    /// The result that was saved so many before the last one.
    fn latest(&self, name: &str, back: usize, passed_over: &mut dyn FnMut(&Error)) -> Result<Results, Error> {
        let mut count = 0;
        for path in self.files()?.iter().rev() {
            match saved(path) {
                Ok(results) if count == back => return Ok(results),
                Ok(_) => count += 1,
                Err(error) => passed_over(&error),
            }
        }
        let place = self.directory.display();
        Err(Error::Spec(match count {
            0 => format!("{name}: no results in {place}: each measurement keeps its own there"),
            1 => format!("{name}: only one result in {place}"),
            _ => format!("{name}: only {count} results in {place}"),
        }))
    }

    /// The one result whose name begins so.
    fn beginning(&self, name: &str, passed_over: &mut dyn FnMut(&Error)) -> Result<Results, Error> {
        let mut files = self.files()?;
        files
            .retain(|path| path.file_name().is_some_and(|file| file.as_bytes().starts_with(name.as_bytes())));
        // Its fault is the answer.
        if let [one] = files.as_slice() {
            return saved(one);
        }
        let (mut found, mut count) = (None, 0);
        for path in &files {
            match saved(path) {
                Ok(results) => {
                    found = Some(results);
                    count += 1;
                }
                Err(error) => passed_over(&error),
            }
        }
        match (found, count) {
            (None, _) => Err(Error::NotSaved(name.to_owned())),
            (Some(one), 1) => Ok(one),
            _ => Err(Error::Spec(format!("{name}: {count} saved results begin so: write more of the name"))),
        }
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
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
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

/// Reads a file of the directory. A pipe there would be waited for.
fn saved(path: &Path) -> Result<Results, Error> {
    let cannot = |error: io::Error| Error::Spec(format!("cannot read {}: {error}", path.display()));
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(Error::Spec(format!("{} is no regular file, and so no saved result", path.display())));
    }
    Store::read(path)
}

/// When a file of the directory was measured. The name tells it, or else the result in the file.
fn second(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let first = name.split('-').next().unwrap_or_default();
    let is_time = first.len() == timestamp(0).len()
        && first.bytes().zip(timestamp(0).bytes()).all(|(one, other)| match other {
            b'0'..=b'9' => one.is_ascii_digit(),
            other => one == other,
        });
    if is_time {
        first.to_owned()
    } else {
        saved(path).map_or_else(|_| String::new(), |it| timestamp(it.created))
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
        let mut listed = Vec::new();
        store.for_each(&mut |error| panic!("{error}"), |path, _| listed.push(path.to_owned())).unwrap();
        assert_eq!(listed, [first.clone(), second.clone()], "the later one is the latest");
        let load = |name| store.load(name, &mut |error| panic!("{error}"));
        assert_eq!(load("latest~1").unwrap(), results);
        assert!(matches!(load("2026"), Err(Error::Spec(_))), "both names begin so");
        assert!(matches!(load("1999"), Err(Error::NotSaved(_))));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "no partial file stays");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_of_another_name_has_the_time_at_which_it_was_measured() {
        let directory = env::temp_dir().join(format!("forkless-store-order-{}", std::process::id()));
        let store = Store::at(&directory);
        let at = |created| Results { created, ..Results::begin() };
        store.save(&at(2000)).unwrap();
        // By its name it would be the last one.
        fs::write(directory.join("before.json"), at(1000).to_json()).unwrap();
        fs::write(directory.join("zz-broken.json"), "{").unwrap();
        let mut times = Vec::new();
        let mut faults = Vec::new();
        let mut passed_over = |error: &Error| faults.push(error.to_string());
        store.for_each(&mut passed_over, |_, results| times.push(results.created)).unwrap();
        assert_eq!(times, [1000, 2000]);
        assert_eq!(store.load("latest", &mut |_| ()).unwrap().created, 2000);
        assert_eq!(store.load("before", &mut |_| ()).unwrap().created, 1000);
        assert!(
            matches!(&faults[..], [one] if one.contains("zz-broken.json is not a saved result")),
            "{faults:?}"
        );
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
        let error = Store::at("/proc/forkless").save(&Results::begin()).unwrap_err().to_string();
        assert!(error.contains("/proc/forkless"), "{error}");
    }
}
