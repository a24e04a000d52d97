//! Compiling C against the headers and the library as built, and running it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub(crate) const GCC: &str = "gcc";
pub(crate) const CLANG: &str = "clang";

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

pub(crate) fn include() -> PathBuf {
    root().join("include")
}

pub(crate) fn c_sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

/// A place of this test binary's own.
pub(crate) fn scratch() -> PathBuf {
    let exe = std::env::current_exe().expect("own path");
    let name = exe.file_name().expect("a file").to_owned();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&dir).expect("scratch directory");
    dir
}

/// The libraries under the names they are installed by. Cargo leaves them beside the test binaries.
pub(crate) fn libraries() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let exe = std::env::current_exe().expect("own path");
        let built = exe.parent().expect("a directory");
        let dir = scratch().join("lib");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("library directory");
        for (name, from) in [
            ("libforkless.so.0", "libforkless_capi.so"),
            ("libforkless.so", "libforkless_capi.so"),
            ("libforkless.a", "libforkless_capi.a"),
        ] {
            let from = built.join(from);
            assert!(from.exists(), "{} was not built", from.display());
            symlink(&from, dir.join(name)).expect("link");
        }
        dir
    })
}

/// Whether a program is there; says so when it is not. `skipped:` is what the test runner counts.
pub(crate) fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Shared,
    Static,
}

/// Compiles and links one C program; warnings are errors.
pub(crate) fn compile(compiler: &str, source: &Path, link: Link) -> PathBuf {
    compile_with(compiler, source, link, &[])
}

/// Likewise with more options.
pub(crate) fn compile_with(compiler: &str, source: &Path, link: Link, options: &[&str]) -> PathBuf {
    let stem = source.file_stem().expect("a name").to_string_lossy();
    let out = scratch().join(format!("{stem}-{compiler}-{link:?}{}", options.concat()));
    // Another test may be running the program that this one compiles as well.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let fresh = out.with_extension(format!("{}.new", MADE.fetch_add(1, Relaxed)));
    let mut cc = Command::new(compiler);
    cc.args(options);
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-g", "-D_GNU_SOURCE", "-I"]);
    cc.arg(include()).arg(source).arg("-o").arg(&fresh);
    match link {
        Link::Shared => {
            cc.arg("-L").arg(libraries()).arg("-lforkless");
            cc.arg(format!("-Wl,-rpath,{}", libraries().display()));
        }
        Link::Static => {
            cc.arg(libraries().join("libforkless.a"));
            cc.args(["-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"]);
        }
    }
    let done = cc.output().expect("the compiler runs");
    assert!(
        done.status.success(),
        "{compiler} {}:\n{}",
        source.display(),
        String::from_utf8_lossy(&done.stderr)
    );
    fs::rename(fresh, &out).expect("a compiled program");
    out
}

/// Runs a program that must succeed; ten minutes are a hang.
pub(crate) fn run(program: &Path, args: &[&str]) -> Output {
    let done = Command::new("timeout")
        .args(["-k", "5", "600"])
        .arg(program)
        .args(args)
        .current_dir(scratch())
        .output()
        .expect("timeout(1) runs");
    assert!(
        done.status.success(),
        "{} {args:?}: {}\n{}{}",
        program.display(),
        done.status,
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        if line.starts_with("skipped:") {
            println!("{line}");
        }
    }
    done
}

/// A static program that does nothing but write "tiny" and exit with 0: the cheapest child there
/// is.
pub(crate) fn tiny() -> &'static Path {
    static TINY: OnceLock<PathBuf> = OnceLock::new();
    TINY.get_or_init(|| {
        let source = c_sources().join("tiny.c");
        let out = scratch().join("tiny");
        let made = Command::new("gcc").args(["-static", "-O1"]).arg(source).arg("-o").arg(&out).status();
        assert!(made.expect("gcc runs").success());
        out
    })
}
