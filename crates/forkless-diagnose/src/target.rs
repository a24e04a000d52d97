//! The processes to watch, and the checks that need nothing loaded.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::WatchError;
use crate::procfs;

/// The processes to watch. Their children are watched too.
#[derive(Debug, Clone)]
pub enum WatchTarget {
    /// One process and the descendants it has and will have.
    Pid(u32),
    /// Every process of the machine but the caller.
    All,
    /// Every process in a cgroup of the unified hierarchy, or below it.
    Cgroup(PathBuf),
    /// A command that [`Watch::start`](crate::Watch::start) runs, and its descendants.
    Command(WatchedCommand),
}

/// A command to start and watch.
#[derive(Debug, Clone)]
pub struct WatchedCommand {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Called before the start: [`Command`] gives its child the default action of SIGPIPE, and
    /// whatever Rust's runtime has opened in place of closed standard descriptors.
    pub prepare: fn(&mut Command),
}

impl WatchedCommand {
    /// A command that is started as [`Command`] does it.
    pub fn new(argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), prepare: |_| {} }
    }
}

/// A target that exists on this machine, with the data that the tiers need to watch it.
#[derive(Debug, Clone)]
pub struct ResolvedTarget {
    pub(crate) all: bool,
    pub(crate) cgroup: Option<(u64, u32)>,
    pub(crate) cgroup_directory: Option<PathBuf>,
    pub(crate) pids: Vec<u32>,
    pub(crate) command: Option<WatchedCommand>,
}

impl WatchTarget {
    /// Looks the target up.
    ///
    /// # Errors
    /// [`WatchError::ForeignProc`] if /proc is of another pid namespace,
    /// [`WatchError::NoProcess`] if there is no such process, [`WatchError::Thread`] if there is
    /// such a thread, [`WatchError::NoCgroup`] if the path
    /// is not a cgroup of the unified hierarchy, [`WatchError::EmptyCommand`] without a command.
    pub fn resolve(&self) -> Result<ResolvedTarget, WatchError> {
        if procfs::is_foreign() {
            return Err(WatchError::ForeignProc);
        }
        let mut resolved = ResolvedTarget {
            all: false,
            cgroup: None,
            cgroup_directory: None,
            pids: Vec::new(),
            command: None,
        };
        match self {
            Self::All => resolved.all = true,
            Self::Pid(pid) => {
                if !Path::new(&format!("/proc/{pid}/stat")).exists() {
                    return Err(WatchError::NoProcess { pid: *pid });
                }
                procfs::no_thread(*pid)?;
                resolved.pids = procfs::with_descendants(*pid);
            }
            Self::Cgroup(path) => {
                let (id, level, directory) = cgroup_id(path)?;
                resolved.cgroup = Some((id, level));
                resolved.cgroup_directory = Some(directory);
            }
            Self::Command(command) if command.argv.is_empty() => return Err(WatchError::EmptyCommand),
            Self::Command(command) => resolved.command = Some(command.clone()),
        }
        Ok(resolved)
    }
}

/// The id, depth and directory of a cgroup. The id is the directory's inode number (`cgroup_id()`,
/// kernfs).
fn cgroup_id(path: &Path) -> Result<(u64, u32, PathBuf), WatchError> {
    let error = |why: &str| WatchError::NoCgroup { path: path.to_owned(), why: why.to_owned() };
    let roots = procfs::cgroup_roots().map_err(|e| error(&e.to_string()))?;
    if roots.is_empty() {
        return Err(error("no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup"));
    }
    // People give a directory, or the name in /proc/PID/cgroup.
    let named = path.strip_prefix("/").unwrap_or(path);
    let directory = std::iter::once(path.to_owned())
        .chain(roots.iter().map(|root| root.join(named)))
        .filter_map(|candidate| fs::canonicalize(candidate).ok())
        .find(|candidate| candidate.is_dir() && roots.iter().any(|root| candidate.starts_with(root)))
        .ok_or_else(|| error("not a directory of the cgroup2 hierarchy; /proc/PID/cgroup names a process's, `systemd-cgls` shows all"))?;
    let root =
        roots.iter().find(|root| directory.starts_with(root)).ok_or_else(|| error("outside of cgroup2"))?;
    let depth = directory.strip_prefix(root).map_or(0, |below| below.components().count());
    let id = fs::metadata(&directory).map_err(|e| error(&e.to_string()))?.ino();
    Ok((id, u32::try_from(depth).unwrap_or(u32::MAX), directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_there_is_named() {
        // pid_max is at most 2^22.
        let error = WatchTarget::Pid(1 << 23).resolve().expect_err("no such process");
        assert!(error.to_string().contains("8388608"), "{error}");
    }

    #[test]
    fn a_path_outside_the_hierarchy_is_refused() {
        assert!(matches!(WatchTarget::Cgroup("/etc".into()).resolve(), Err(WatchError::NoCgroup { .. })));
    }
}
