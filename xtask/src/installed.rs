//! `./x install` puts every file in place, and a user's programs work from there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tree;

const PROGRAM: &str = r#"
#include <forkless.h>
#include <stdio.h>
int main(void)
{
	int status = forkless_system("exit 7");
	printf("%s %d\n", forkless_version_string(), status >> 8);
	return 0;
}
"#;

/// The most that an installation may take. Debug symbols are not part of it.
const INSTALLED_BYTES: u64 = 25_000_000;

pub(crate) fn check() -> Result<String> {
    let scratch = tree::target().join("tmp/installed");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    let prefix = scratch.join("usr");
    let install = || {
        run(Command::new("./x").args(["install", "/usr"]).env("DESTDIR", &scratch).current_dir(tree::root()))
    };
    install()?;

    // The command finds the preloaded library, and its version is known.
    let command = prefix.join("bin/forkless");
    let version = run(Command::new(&command).arg("--version"))?;
    let version = version.trim().strip_prefix("forkless ").context("forkless --version")?.to_owned();
    let said = run(Command::new(&command).args(["run", "--", "sh", "-c", "echo through"]))?;
    ensure!(said == "through\n", "forkless run from an installed tree said: {said}");
    let preload = prefix.join("lib/libforkless-run.so");
    ensure!(preload.is_file(), "{} is missing", preload.display());
    let alone = |variable: &str, value: &OsStr| {
        let script = "grep -c -- r-xp.*libforkless-run.so /proc/self/maps";
        run(Command::new("sh").args(["-c", script]).env("LD_PRELOAD", &preload).env(variable, value))
    };
    for (variable, value) in [("FORKLESS_OPTIONS", "fork=strict"), ("FORKLESS", "off")] {
        let said = alone(variable, OsStr::new(value))?;
        ensure!(
            said == "1\n",
            "a program with {} preloaded and {variable}={value} said: {said}",
            preload.display()
        );
    }

    // Stripped, and no more than fits an image.
    let bytes = size(&prefix)?;
    ensure!(bytes <= INSTALLED_BYTES, "{bytes} bytes are installed, more than {INSTALLED_BYTES}");
    for file in ["bin/forkless", "lib/libforkless-run.so", &format!("lib/libforkless.so.{version}")] {
        let sections = run(Command::new("readelf").arg("-SW").arg(prefix.join(file)))?;
        ensure!(!sections.contains(".symtab") && !sections.contains(".debug_info"), "{file} is not stripped");
    }
    let described = fs::read_dir(prefix.join("share/man/man3"))?.count();
    let exported = fs::read_to_string(tree::root().join("crates/forkless-capi/symbols.txt"))?;
    let exported = exported.lines().filter(|line| !line.starts_with('#')).count();
    ensure!(
        described == exported + 1,
        "{described} pages describe {exported} functions of C, and forkless(3) all of them"
    );

    // An upgrade does not write into files that running programs have mapped. The hard links keep
    // the old inodes from being reused.
    let shared = prefix.join(format!("lib/libforkless.so.{version}"));
    let built = tree::target().join("release/libforkless_preload.so");
    let mapped = [&command, &preload, &shared, &built];
    let mut before = Vec::new();
    for (number, file) in mapped.iter().enumerate() {
        let kept = scratch.join(format!("mapped.{number}"));
        fs::hard_link(file, &kept)?;
        before.push(fs::metadata(&kept)?.ino());
    }
    install()?;
    for (file, inode) in mapped.iter().zip(before) {
        ensure!(fs::metadata(file)?.ino() != inode, "{} was written over in place", file.display());
    }

    // pkg-config's flags compile and link, and the loader finds the soname.
    fs::write(scratch.join("program.c"), PROGRAM)?;
    let expected = format!("{version} 7\n");
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return Ok("skipped: linking through forkless.pc: pkg-config is not installed".to_owned());
    }
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "forkless"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", &scratch))?;
    compile(&scratch, "shared", flags.split_whitespace())?;
    let said = run(Command::new(scratch.join("shared")).env("LD_LIBRARY_PATH", prefix.join("lib")))?;
    ensure!(said == expected, "the program linked with libforkless.so said: {said}");

    // The static library, with the libraries that forkless.pc names.
    let archive = prefix.join("lib/libforkless.a");
    let include = format!("-I{}", prefix.join("include").display());
    let private = fs::read_to_string(prefix.join("lib/pkgconfig/forkless.pc"))?;
    let private =
        private.lines().find_map(|line| line.strip_prefix("Libs.private:")).context("forkless.pc")?;
    let flags = [OsStr::new(&include), archive.as_os_str()]
        .into_iter()
        .chain(private.split_whitespace().map(OsStr::new));
    compile(&scratch, "static", flags)?;
    let said = run(&mut Command::new(scratch.join("static")))?;
    ensure!(said == expected, "the program linked with libforkless.a said: {said}");

    // What install put there is removed, and nothing else. A prefix may have characters that are
    // more than themselves to sed and bash.
    fs::write(prefix.join("share/man/man1/other.1"), "")?;
    let odd = scratch.join("o&p|q");
    fs::create_dir_all(odd.join("share/doc"))?;
    for (name, left) in [
        ("/usr", &["share", "share/man", "share/man/man1", "share/man/man1/other.1"][..]),
        ("/o&p|q", &["share", "share/doc"]),
    ] {
        let x = |verb: &str| {
            run(Command::new("./x").args([verb, name]).env("DESTDIR", &scratch).current_dir(tree::root()))
        };
        x("install")?;
        let said = run(Command::new("pkg-config")
            .args(["--variable=prefix", "forkless"])
            .env("PKG_CONFIG_PATH", scratch.join(&name[1..]).join("lib/pkgconfig")))?;
        ensure!(said.trim_end() == name, "forkless.pc has the prefix {said}");
        x("uninstall")?;
        let mut found = Vec::new();
        below(&scratch.join(&name[1..]), Path::new(""), &mut found)?;
        ensure!(found == left, "./x uninstall {name} left {found:?} in place of {left:?}");
    }

    fs::remove_dir_all(&scratch)?;
    Ok(format!("version {version} installs, and serves C programs and forkless run from there"))
}

/// The paths of all that is below a folder, sorted.
fn below(folder: &Path, name: &Path, found: &mut Vec<String>) -> Result<()> {
    let mut names = fs::read_dir(folder.join(name))?
        .map(|entry| Ok(name.join(entry?.file_name())))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        found.push(name.display().to_string());
        if fs::symlink_metadata(folder.join(&name))?.is_dir() {
            below(folder, &name, found)?;
        }
    }
    Ok(())
}

/// Bytes of all files below a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        bytes += if kind.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

fn compile<S: AsRef<OsStr>>(scratch: &Path, output: &str, flags: impl Iterator<Item = S>) -> Result<()> {
    let mut cc = Command::new("cc");
    cc.current_dir(scratch).args(["-Wall", "-Werror", "-o", output, "program.c"]);
    for flag in flags {
        cc.arg(flag);
    }
    run(&mut cc).map(drop)
}

/// The standard output of a command, which must succeed.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{:?}", command.get_program()))?;
    ensure!(
        output.status.success(),
        "{:?}: {}\n{}",
        command.get_program(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
