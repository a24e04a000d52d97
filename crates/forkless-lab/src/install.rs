//! Programs of the system: found, or installed where that is allowed.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use forkless_bench::engine::Observer;
use forkless_bench::error::Error;
use forkless_bench::machine::is_root;

/// A program by name, from `$PATH` or the directories of servers, which a user's `$PATH` often
/// lacks.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let servers = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    std::env::split_paths(&path).chain(servers).map(|directory| directory.join(name)).find(|file| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

/// A program by name, if need be from Debian's packages of those other names.
///
/// # Errors
/// [`Error::Missing`], saying what to install, where that is forbidden or does not work.
pub(crate) fn need(
    name: &str,
    package: &str,
    allowed: bool,
    observer: &mut dyn Observer,
) -> Result<PathBuf, Error> {
    if let Some(found) = find(name) {
        return Ok(found);
    }
    let advice = format!("{name} is not installed: as root, apt-get install {package}");
    if !allowed || !is_root() || find("apt-get").is_none() {
        return Err(Error::Missing(advice));
    }
    observer.note(&format!("installing {package}, for {name} (FORKLESS_NO_INSTALL=1 forbids it)"));
    let mut install = vec!["install"];
    install.extend(package.split_whitespace());
    if !(apt_get(&install) || apt_get(&["update"]) && apt_get(&install)) {
        return Err(Error::Missing(format!("{advice} (tried, and failed)")));
    }
    find(name).ok_or_else(|| Error::Missing(format!("{package} is installed, but there is no {name}")))
}

fn apt_get(arguments: &[&str]) -> bool {
    let options = ["-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120"];
    Command::new("apt-get")
        .args(options)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // invoke-rc.d(8): no service is started that the package brings along.
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The first line of what a program says of itself.
pub(super) fn version(program: &PathBuf, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output().ok()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().find(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
}

/// The interpreter itself, where a name leads to a script that chooses one.
pub(super) fn python(launcher: PathBuf) -> PathBuf {
    let asked = Command::new(&launcher).args(["-c", "import sys; print(sys.executable)"]).output();
    let path = asked.ok().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    path.filter(|path| path.starts_with('/')).map_or(launcher, |path| PathBuf::from(OsString::from(path)))
}
