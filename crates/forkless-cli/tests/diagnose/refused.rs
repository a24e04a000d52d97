//! Refused forks: found with the limit that was reached, and gone with the remedy applied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;
use serde_json::Value;

use crate::remedies::Readable;
use crate::support::{add_needing, fact, find, functions, of_kind, program, report_in, skip};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), &'static str);
    let tests: [Test; 10] = [
        ("refused::by_the_limit_of_a_user", user, "cc"),
        ("refused::by_the_limit_of_a_cgroup", cgroup, "cc"),
        ("refused::a_vfork_by_a_cgroup_copies_nothing", vfork_in_cgroup, "cc"),
        ("refused::by_the_size_of_its_memory_but_not_with_vfork", memory, "cc"),
        ("refused::by_a_pid_namespace_that_has_ended", namespace, "cc"),
        ("refused::a_python_that_retries_is_told_its_limit", python, "python3"),
        ("refused::at_the_line_where_bash_waits_to_try_again", || at_its_line(&["bash"], "bash"), "setpriv"),
        (
            "refused::at_the_line_where_ruby_waits_to_try_again",
            || at_its_line(&["ruby", "-W0"], "rb"),
            "setpriv",
        ),
        ("refused::at_the_line_where_perl_waits_to_try_again", || at_its_line(&["perl"], "pl"), "setpriv"),
        ("refused::what_is_not_refused_is_no_finding", quiet, "cc"),
    ];
    add_needing(trials, &tests);
}

/// Runs the program under a tier that sees system calls, and checks the finding. Other tiers do not
/// see a call that fails.
fn refused(limit: &str, count: u64, said: &str) -> Option<Value> {
    let program = program("refused.c").expect("a compiler");
    let report = report_in("tracepoints", &[&program.to_string_lossy(), limit, "20"])?;
    let finding = of_kind(&report, "fork_refused");
    assert_eq!(finding["count"], count, "{finding}");
    assert_eq!(report["findings"][0], finding, "a failure comes first");
    let title = finding["title"].as_str().expect("text");
    assert!(title.starts_with(&format!("refused is refused {count} new processes ({said}")), "{finding}");
    // The stack is a sample: on a busy machine the process may be gone.
    if !functions(&finding).is_empty() {
        assert!(functions(&finding).contains(&"start_child"), "{finding}");
    }
    Some(finding)
}

fn user() {
    let limit = "EAGAIN): user 1234567890 has the 5 processes and threads that RLIMIT_NPROC permits";
    let Some(finding) = refused("user", 16, limit) else { return };
    assert!(finding["remedy"].to_string().contains("ulimit -u"), "{finding}");
}

fn namespace() {
    let _ = refused("namespace", 20, "ENOMEM): the first process of the pid namespace");
}

fn memory() {
    let overcommit = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if overcommit.trim() != "0" {
        return skip(format!("vm.overcommit_memory is {}", overcommit.trim()));
    }
    let Some(finding) = refused("memory", 20, "ENOMEM): the memory that it may write to, ") else { return };
    assert!(finding["remedy"].to_string().contains("posix_spawn or vfork"), "{finding}");
    // The remedy, applied.
    let program = program("refused.c").expect("a compiler");
    let Some(mended) = report_in("tracepoints", &[&program.to_string_lossy(), "vfork", "20"]) else { return };
    is_quiet(&mended);
    assert_eq!(mended["creations"]["shared_memory"], 20, "{mended}");
}

#[track_caller]
fn is_quiet(report: &Value) {
    let findings = report["findings"].as_array().expect("a list");
    assert!(!findings.iter().any(|finding| finding["kind"] == "fork_refused"), "{report}");
}

/// A cgroup of this test alone, removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Below our own, in whichever hierarchy counts processes.
    fn new(name: &str) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let below = |controller: &str| {
            own.lines()
                .find_map(|line| line.split_once(controller).map(|(_, path)| path.trim_start_matches('/')))
        };
        let places = [
            below(":pids:").map(|path| Path::new("/sys/fs/cgroup/pids").join(path)),
            below("0::").map(|path| Path::new("/sys/fs/cgroup").join(path)),
        ];
        for place in places.into_iter().flatten() {
            let directory = place.join(format!("forkless-{name}-{}", std::process::id()));
            if fs::create_dir(&directory).is_ok() {
                let cgroup = Self(directory);
                if cgroup.limit().exists() {
                    return Ok(cgroup);
                }
            }
        }
        Err("no cgroup that counts processes can be made here".to_owned())
    }

    fn limit(&self) -> PathBuf {
        self.0.join("pids.max")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes may still be on their way out.
        crate::support::wait_until(|| fs::remove_dir(&self.0).is_ok());
    }
}

fn cgroup() {
    let cgroup = match Cgroup::new("fork") {
        Ok(cgroup) => cgroup,
        Err(why) => return skip(why),
    };
    fs::write(cgroup.limit(), "5").expect("a limit");
    let program = program("refused.c").expect("a compiler");
    let line = format!("echo $$ >{}/cgroup.procs; exec {} none 20", cgroup.0.display(), program.display());
    let Some(report) = report_in("tracepoints", &["sh", "-c", &line]) else { return };
    let finding = of_kind(&report, "fork_refused");
    assert_eq!(finding["count"], 16, "{finding}");
    let name = cgroup.0.file_name().expect("a name").to_string_lossy();
    let said = format!("cgroup {name} has the 5 processes and threads that pids.max permits");
    assert!(finding["title"].as_str().expect("text").ends_with(&said), "{finding}");
    // The remedy, applied.
    let command = finding["command"].as_str().expect("text");
    assert_eq!(command, format!("echo 64 >{}", cgroup.limit().display()));
    assert!(Command::new("sh").args(["-c", command]).status().expect("sh runs").success());
    let Some(mended) = report_in("tracepoints", &["sh", "-c", &line]) else { return };
    is_quiet(&mended);
}

/// Regression: it was said to copy the caller's memory first, and to cost as much.
fn vfork_in_cgroup() {
    let cgroup = match Cgroup::new("vfork") {
        Ok(cgroup) => cgroup,
        Err(why) => return skip(why),
    };
    fs::write(cgroup.limit(), "1").expect("a limit");
    let program = program("refused.c").expect("a compiler");
    for (way, copies) in [("vfork", false), ("none", true)] {
        let line =
            format!("echo $$ >{}/cgroup.procs; exec {} {way} 20", cgroup.0.display(), program.display());
        let Some(report) = report_in("tracepoints", &["sh", "-c", &line]) else { return };
        let findings = report["findings"].as_array().expect("a list").iter();
        let found: Vec<_> = findings.filter(|finding| finding["kind"] == "fork_refused").collect();
        let [finding] = &found[..] else { panic!("{way}: {found:#?}") };
        assert_eq!(finding["count"], 20, "{way}: {finding:#}");
        let name = cgroup.0.file_name().expect("a name").to_string_lossy();
        let said = format!("cgroup {name} has the one process or thread that pids.max permits");
        assert!(finding["title"].as_str().expect("text").ends_with(&said), "{finding:#}");
        let copied = fact(finding, "this limit is looked at when the caller's memory has been copied");
        assert_eq!(copied.is_some(), copies, "{way}: {finding:#}");
    }
}

fn python() {
    let fixture = crate::support::fixture("refused.py");
    let Some(report) = report_in("tracepoints", &["python3", &fixture]) else { return };
    let finding = of_kind(&report, "fork_refused");
    assert_eq!(finding["process"]["name"], "python3 refused.py", "{finding}");
    assert!(finding["title"].to_string().contains("RLIMIT_NPROC permits"), "{finding}");
    let Some(mended) = report_in("tracepoints", &["python3", &fixture, "wait"]) else { return };
    is_quiet(&mended);
}

/// The script is run by a user that nobody else is.
fn at_its_line(interpreter: &[&str], ending: &str) {
    if find(interpreter[0]).is_none() {
        return skip(format!("no {}", interpreter[0]));
    }
    let script = crate::support::fixture(&format!("refused.{ending}"));
    let text = fs::read_to_string(&script).expect("a fixture");
    let marked = text.lines().position(|line| line.ends_with("# @0 start")).expect("a mark") + 1;
    let copy = Readable::copy(&script);
    let path = copy.0.to_string_lossy();
    let of_script = u32::from(ending.as_bytes()[0] - b'a');
    let user = 1_300_000_000 + 26 * std::process::id() + of_script;
    let (user, group) = (format!("--reuid={user}"), format!("--regid={user}"));
    let around = ["setpriv", &user, &group, "--clear-groups"];
    let Some(report) = report_in("tracepoints", &[&around, interpreter, &[&*path]].concat()) else { return };
    let finding = of_kind(&report, "fork_refused");
    assert_eq!(finding["stack"][0]["line"], marked, "{finding:#}");
    assert_eq!(finding["stack"][0]["module"], *path, "{finding:#}");
}

fn quiet() {
    let program = program("refused.c").expect("a compiler");
    for tier in ["tracepoints", "perf"] {
        let Some(report) = report_in(tier, &[&program.to_string_lossy(), "none", "20"]) else { continue };
        is_quiet(&report);
    }
}
