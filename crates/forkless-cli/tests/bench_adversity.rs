//! `forkless bench` under adverse conditions: killed while a system setting is changed, a full
//! disk, a home that cannot be written, a memory limit, no privileges, no smaps. Each case gives
//! one clear line and leaves nothing changed.
//!
//! Most cases need root, to change settings and to mount over directories in a namespace of their
//! own. Without root they are skipped.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use scratch::{Scratch, text, wait_until};

mod scratch;

const FORKLESS: &str = env!("CARGO_BIN_EXE_forkless");

/// Settings are the system's: the tests that change them take turns.
static SETTINGS: Mutex<()> = Mutex::new(());

fn settings() -> MutexGuard<'static, ()> {
    SETTINGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Scratch {
    /// A scratch directory that other users may enter.
    fn shared(name: &str) -> Scratch {
        let scratch = Scratch::new(name);
        for directory in [scratch.0.clone(), scratch.0.join("tmp")] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
        }
        scratch
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("XDG_DATA_HOME", self.0.join("data"))
            .env("TMPDIR", self.0.join("tmp"))
            .stdin(Stdio::null())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.environment(Command::new("timeout").args(["600", FORKLESS]).args(arguments)).output().unwrap()
    }

    /// Runs a shell line in a mount namespace of its own; `$0` is forkless.
    fn in_namespace(&self, line: &str) -> Output {
        let mut command = Command::new("timeout");
        command.args(["600", "unshare", "--mount", "sh", "-euc", line, FORKLESS]).env("SCRATCH", &self.0);
        self.environment(&mut command).output().unwrap()
    }

    /// Starts a bench whose messages go to the file `errors`.
    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(FORKLESS);
        let errors = fs::File::create(self.0.join("errors")).unwrap();
        command.args(arguments).stdout(Stdio::null()).stderr(errors);
        self.environment(&mut command).spawn().unwrap()
    }
}

/// Whether this is root in the first user namespace. If not, prints that the test is skipped.
fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    // A container's root may not mount.
    let may = root && Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|s| s.success());
    if !may {
        println!("skipped: needs root and the right to mount");
    }
    may
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

/// Kills a bench once `path` has changed, and waits until it is restored.
fn setting_survives(path: &str, arguments: &[&str]) {
    let read = || fs::read_to_string(path).unwrap_or_default();
    let before = read();
    if before.is_empty() || fs::OpenOptions::new().write(true).open(path).is_err() {
        println!("skipped: {path} cannot be set here");
        return;
    }
    for name in ["KILL", "INT"] {
        let scratch = Scratch::shared(&format!("setting-{name}"));
        let mut child = scratch.start(arguments);
        let changed = wait_until(|| read() != before || child.try_wait().unwrap().is_some());
        let during = read();
        if child.try_wait().unwrap().is_none() {
            signal(&child, name);
        }
        let status = child.wait().unwrap();
        let restored = wait_until(|| read() == before && scratch.temporary_files() == 0);
        let after = read();
        if !restored {
            // Even if the test fails, the next test and the machine's owner get their setting back.
            let _ = fs::write(path, before.trim());
        }
        assert!(changed && during != before, "{path} was never changed: {status}");
        assert!(!status.success());
        assert!(restored, "SIG{name}: {path} was {before:?} and is {after:?}");
        let said = || fs::read_to_string(scratch.0.join("errors")).unwrap();
        assert!(wait_until(|| said().contains("interrupted: nothing is kept")), "SIG{name}: {:?}", said());
        assert_eq!(said().lines().count(), 1, "SIG{name}: {:?}", said());
    }
}

#[test]
fn a_killed_bench_gives_the_huge_page_pool_back() {
    if !is_root() {
        return;
    }
    let _turn = settings();
    let long = ["bench", "memory", "--sizes", "16M", "--pages", "hugetlb-2m", "--methods", "vfork_exec"];
    setting_survives(
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        &[&long[..], &["--runs", "100000000", "--time", "60", "--no-save"]].concat(),
    );
}

#[test]
fn a_killed_bench_gives_the_choice_of_transparent_huge_pages_back() {
    if !is_root() {
        return;
    }
    let _turn = settings();
    let long = ["bench", "memory", "--sizes", "16M", "--pages", "thp-64k", "--methods", "vfork_exec"];
    setting_survives(
        "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
        &[&long[..], &["--runs", "100000000", "--time", "60", "--no-save"]].concat(),
    );
}

/// Regression: the second one took what the first had set for the machine's own choice, and set it
/// again at its end. From then on no program of the machine had huge pages of 2 MiB.
#[test]
fn two_benches_at_once_leave_the_choice_of_transparent_huge_pages() {
    if !is_root() {
        return;
    }
    let _turn = settings();
    let all = || {
        let folder = fs::read_dir("/sys/kernel/mm/transparent_hugepage").into_iter().flatten().flatten();
        let files = folder.map(|entry| entry.path().join("enabled")).filter(|path| path.exists());
        let mut all: Vec<_> =
            files.map(|path| (fs::read_to_string(&path).unwrap_or_default(), path)).collect();
        all.sort();
        all
    };
    let before = all();
    let size = "/sys/kernel/mm/transparent_hugepage/hugepages-128kB/enabled";
    if fs::OpenOptions::new().write(true).open(size).is_err() {
        println!("skipped: {size} cannot be set here");
        return;
    }
    let scratch = Scratch::shared("at-once");
    let bench = |pages| {
        let long = ["bench", "memory", "--sizes", "16M", "--pages", pages, "--methods", "vfork_exec"];
        scratch.start(&[&long[..], &["--runs", "100000000", "--time", "60", "--no-save"]].concat())
    };
    let mut first = bench("thp-64k");
    let changed = wait_until(|| all() != before || first.try_wait().unwrap().is_some());
    let during = all();
    let mut second = bench("thp-128k");
    // Long enough for one that does not wait.
    let mut waits = true;
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(100));
        waits &= all() == during;
    }
    signal(&first, "KILL");
    let _ = first.wait();
    let takes_its_turn = waits && wait_until(|| ![&before, &during].contains(&&all()));
    signal(&second, "INT");
    let _ = second.wait();
    let restored = wait_until(|| all() == before);
    let after = all();
    if !restored {
        // The next test and the machine's owner get their settings back.
        for (value, path) in &before {
            let _ = fs::write(path, forkless_bench::settings::selected(value.trim()));
        }
    }
    assert!(changed && during != before, "nothing was changed");
    assert!(restored, "{before:?} became {after:?}");
    assert!(waits, "the second changed what the first had set");
    assert!(takes_its_turn, "the second never came to its turn");
}

#[test]
fn a_killed_bench_leaves_no_loop_device_attached() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::shared("loop");
    let directory = scratch.path("tmp");
    let mut child = scratch.start(&[
        "bench",
        "blockwrite",
        "--targets",
        "loop",
        "--directory",
        &directory,
        "--runs",
        "1000000",
        "--no-save",
    ]);
    let attached = || {
        fs::read_dir("/sys/block").unwrap().flatten().any(|entry| {
            let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            file.starts_with(&directory)
        })
    };
    let seen = wait_until(|| attached() || child.try_wait().unwrap().is_some());
    if child.try_wait().unwrap().is_some() {
        println!("skipped: no loop device can be had here");
        return;
    }
    assert!(seen, "no loop device was attached");
    signal(&child, "KILL");
    assert!(!child.wait().unwrap().success());
    assert!(wait_until(|| !attached()), "the loop device is still attached");
    assert!(wait_until(|| scratch.temporary_files() == 0));
}

const SPAWN: &str = "\"$0\" bench spawn --runs 10 --methods vfork_exec,posix_spawn --restarts 1";

#[test]
fn a_full_disk_costs_one_line_and_leaves_no_part_of_a_file() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::shared("full");
    // 8 KiB hold the directories, not a result.
    let full = "mkdir -p \"$SCRATCH/data\"; mount -t tmpfs -o size=8k none \"$SCRATCH/data\"; ";
    let output = scratch.in_namespace(&format!("{full} {SPAWN}; find \"$SCRATCH/data\" -type f"));
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(text(&output.stdout).contains("vfork_exec"), "the result is printed all the same");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("not saved") && errors.contains("No space left"), "{errors}");
    assert!(!text(&output.stdout).contains("/data/"), "{}", text(&output.stdout));

    // If the user named the file, it is an error.
    let output = scratch.in_namespace(&format!("{full} {SPAWN} --no-save --json \"$SCRATCH/data/x.json\""));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.lines().count() == 1 && errors.contains("x.json: No space left"), "{errors}");

    let output = scratch.in_namespace(&format!(
        "{full} \"$0\" bench blockwrite --targets file --directory \"$SCRATCH/data\" --no-save"
    ));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.lines().count() == 1 && errors.contains("no room for a scratch file"), "{errors}");
    assert_eq!(scratch.temporary_files(), 0);
}

#[test]
fn no_directory_for_temporary_files_names_the_first_and_tmpdir() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::shared("adversity-tmpdir");
    // The binary may be below /tmp: the places are read-only, and not hidden.
    let line = "mount -t tmpfs -o ro none /dev/shm; export TMPDIR=/dev/shm; unset XDG_RUNTIME_DIR; \
        for place in /tmp /var/tmp; do mount --bind $place $place; mount -o remount,bind,ro $place; done; \
        exec \"$0\" ARGUMENTS";
    for arguments in [
        "bench spawn --quick --no-save",
        "bench syscalls --quick --no-save",
        "bench victims --quick --no-save",
    ] {
        let output = scratch.in_namespace(&line.replace("ARGUMENTS", arguments));
        let errors = text(&output.stderr);
        assert_eq!((output.status.code(), errors.lines().count()), (Some(3), 1), "{arguments}: {errors}");
        assert!(
            errors.contains("/dev/shm: Read-only") && errors.contains("by TMPDIR"),
            "{arguments}: {errors}"
        );
    }
}

#[test]
fn a_read_only_home_costs_one_line_and_not_the_result() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::shared("read-only");
    let output = scratch.in_namespace(&format!(
        "mkdir -p \"$SCRATCH/home\"; mount -t tmpfs -o ro none \"$SCRATCH/home\"; \
         unset XDG_DATA_HOME; HOME=\"$SCRATCH/home\" {SPAWN}"
    ));
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(text(&output.stdout).contains("vfork_exec"));
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("not saved") && errors.contains("Read-only file system"), "{errors}");
}

#[test]
fn without_smaps_the_kind_of_pages_is_said_to_be_unchecked() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::shared("smaps");
    // exec keeps the pid, and with it the mount over the file.
    let output = scratch.in_namespace(
        "mount --bind /dev/null /proc/$$/smaps; exec \"$0\" bench memory --sizes 0,8M --pages thp --runs 5 \
         --methods vfork_exec --no-save",
    );
    if text(&output.stderr).starts_with("mount: ") {
        println!("skipped: nothing can be mounted below /proc: {}", text(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("smaps does not tell"), "{table}");
}

#[test]
fn without_proc_there_is_one_line_and_nothing_is_changed() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::shared("proc");
    let output = scratch.in_namespace("mount -t tmpfs none /proc; exec \"$0\" bench spawn --quick --no-save");
    let errors = text(&output.stderr);
    assert!(!output.status.success());
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("/proc"), "{errors}");
    assert_eq!(scratch.temporary_files(), 0);
}

/// A memory cgroup with a limit, of either version. It is removed when dropped.
struct Limited(PathBuf);

impl Limited {
    fn new(bytes: u64) -> Option<Limited> {
        let name = format!("forkless-test-{}-{}", std::process::id(), bytes >> 20);
        let root = Path::new("/sys/fs/cgroup");
        let (path, file) = if root.join("memory").is_dir() {
            (root.join("memory").join(name), "memory.limit_in_bytes")
        } else {
            let controllers = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
            controllers.contains("memory").then(|| (root.join(name), "memory.max"))?
        };
        fs::create_dir(&path).ok()?;
        let group = Limited(path);
        fs::write(group.0.join(file), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let gone = wait_until(|| fs::remove_dir(&self.0).is_ok());
        assert!(gone || thread::panicking(), "{} cannot be removed", self.0.display());
    }
}

#[test]
fn a_memory_limit_is_kept_and_named() {
    if !is_root() {
        return;
    }
    let Some(group) = Limited::new(400 << 20) else {
        println!("skipped: no memory control group can be made here");
        return;
    };
    let scratch = Scratch::shared("limit");
    let line = format!(
        "echo $$ > {}/cgroup.procs; exec \"$0\" bench memory --sizes 0,16M,2G --pages base --runs 5 --methods \
         vfork_exec,fork_exec --no-save",
        group.0.display()
    );
    let output = scratch.in_namespace(&line);
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("16 MiB"), "{table}");
    // Notes are wrapped.
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, skipped) = words.split_once("note: skipped: 2048 MiB").expect(&table);
    assert!(skipped.contains("ask for at most 1"), "{table}");
}

/// Regression: the amount was taken to the last MiB, and was too much for the next restart.
#[test]
fn shrunk_memory_is_the_same_in_every_restart() {
    if !is_root() {
        return;
    }
    let Some(group) = Limited::new(300 << 20) else {
        println!("skipped: no memory control group can be made here");
        return;
    };
    let scratch = Scratch::shared("shrink");
    let line = format!(
        "echo $$ > {}/cgroup.procs; exec \"$0\" bench spawn --rss 8G --shrink --no-save --runs 10 --restarts 5 \
         --methods vfork_exec,posix_spawn --json -",
        group.0.display()
    );
    let output = scratch.in_namespace(&line);
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let suite = &result["suites"][0];
    for row in suite["rows"].as_array().unwrap() {
        assert_eq!(row["restarts"].as_array().unwrap().len(), 5, "{row}");
    }
    let notes = suite["notes"].to_string();
    assert!(notes.contains("scaled down: 8192 MiB asked for, "), "{notes}");
    assert_eq!(notes.matches("scaled down").count(), 1, "{notes}");
}

#[test]
fn missing_privileges_are_named_and_the_rest_is_measured() {
    if !is_root() {
        return;
    }
    let _turn = settings();
    let scratch = Scratch::shared("nobody");
    // Other users may not enter the directory in which the tests are built.
    let program = scratch.path("forkless");
    fs::copy(FORKLESS, &program).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["600", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", &program]);
        scratch.environment(command.args(arguments).arg("--no-save")).output().unwrap()
    };
    let pages = ["bench", "memory", "--sizes", "8M", "--pages", "base,hugetlb-2m", "--runs", "5"];
    let output = run(&[&pages[..], &["--methods", "vfork_exec"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(
        table.contains("skipped: 8 MiB of hugetlb-2m pages") && table.contains("by root only"),
        "{table}"
    );
    assert!(text(&output.stderr).is_empty(), "{}", text(&output.stderr));

    let output = run(&["bench", "blockwrite", "--targets", "loop,mapper", "--quick"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.lines().count() == 1 && errors.contains("needs root"), "{errors}");

    let output = run(&["bench", "cow", "--count", "200", "--pages", "base", "--runs", "3"]);
    let table = text(&output.stdout);
    assert!(output.status.success() && table.contains("shown to root only"), "{table}");
    assert_eq!(scratch.temporary_files(), 0);
}

#[test]
fn a_mistyped_path_is_one_line() {
    let scratch = Scratch::shared("directory");
    let output = scratch.run(&["bench", "blockwrite", "--targets", "file", "--directory", "/nonexistent"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.lines().count() == 1 && errors.contains("/nonexistent"), "{errors}");
    let tracer = ["bench", "syscalls", "--calls", "sigprocmask", "--quick", "--tracer", "/nonexistent"];
    let output = scratch.run(&tracer);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.lines().count() == 1 && errors.contains("the tracer /nonexistent"), "{errors}");
}
