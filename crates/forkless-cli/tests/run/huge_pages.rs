//! `--huge-pages=hugetlb` with a real pool. According to the pool's setting, a server that forks
//! workers lives on huge pages or on smaller ones. No worker is ever killed. The pool is the
//! system's: a test changes its size, and sets it back even if it fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::support::{before_linux, compile, observe, plain, run};

static HUGE_PAGES: LazyLock<PathBuf> = LazyLock::new(|| compile("huge_pages.c", &["-pthread"]));

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// The memory of the server, in MiB.
const MIB: &str = "48";

fn number(name: &str) -> Option<u64> {
    fs::read_to_string(format!("{POOL}/{name}")).ok()?.trim().parse().ok()
}

/// A pool of a certain size. One test has it at a time.
struct Pool {
    before: [(&'static str, u64); 2],
    _alone: MutexGuard<'static, ()>,
}

impl Pool {
    /// `None`, with a line that says so, if the pool cannot be set here.
    fn of(pages: u64) -> Option<Pool> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = |why: &str| println!("skipped: {why}");
        let (Some(nr), Some(overcommit)) = (number("nr_hugepages"), number("nr_overcommit_hugepages")) else {
            skipped("this kernel has no 2 MiB huge pages");
            return None;
        };
        if number("free_hugepages") != Some(nr) {
            skipped("somebody uses the pool of huge pages");
            return None;
        }
        let pool =
            Pool { before: [("nr_hugepages", nr), ("nr_overcommit_hugepages", overcommit)], _alone: alone };
        let set = |name, value: u64| fs::write(format!("{POOL}/{name}"), value.to_string()).is_ok();
        if !set("nr_overcommit_hugepages", 0) || !set("nr_hugepages", pages) {
            skipped("the pool of huge pages may not be set (root may)");
            return None;
        }
        if number("free_hugepages") != Some(pages) {
            skipped(&format!("memory for {pages} huge pages is not to be had"));
            return None;
        }
        Some(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (name, value) in self.before {
            let _ = fs::write(format!("{POOL}/{name}"), value.to_string());
        }
    }
}

/// Runs the server with huge pages and without the library. The output must be the same. Returns
/// the KiB of the pool in use, and the lines that forkless wrote.
fn serve(way: &str, environment: &[(&str, &str)]) -> (u64, Vec<String>) {
    let args = [way, MIB, "environment"];
    let (status, expected, _) = observe(plain(&HUGE_PAGES, &args).env_remove("GLIBC_TUNABLES"));
    assert_eq!(status, Some(0), "{expected}");
    let mut command = run(&["--fork=off", "--huge-pages=hugetlb"], &HUGE_PAGES, &args);
    command.env_remove("GLIBC_TUNABLES").envs(environment.iter().copied());
    let (status, out, err) = observe(&mut command);
    assert_eq!((status, &out), (Some(0), &expected), "{err}");
    let pool = err.lines().find_map(|l| l.strip_prefix("pool ")).and_then(|n| n.parse().ok());
    let lines = err.lines().filter(|l| l.starts_with("forkless")).map(str::to_owned).collect();
    (pool.unwrap_or_else(|| panic!("{err}")), lines)
}

#[test]
fn ample_pool_holds_what_malloc_gives() {
    let Some(_pool) = Pool::of(100) else { return };
    let (kib, lines) = serve("malloc", &[]);
    assert!(kib > 48 << 10, "{kib} KiB");
    assert!(lines.is_empty(), "{lines:?}");
}

/// Memory that never passed malloc moves into the pool. The program can unmap, protect, drop and
/// move its parts as before. Before Linux 5.16 it stays outside the pool, and one line says so.
/// Regression: it was lost there, because a refused move has already unmapped its target.
#[test]
fn ample_pool_holds_what_was_mapped_in_pieces() {
    let Some(_pool) = Pool::of(100) else { return };
    let (kib, lines) = serve("pieces", &[]);
    if before_linux(5, 16) {
        // Memory from malloc is in the pool, but this program has little of it.
        assert!(
            kib <= 4 << 10 && lines.len() == 1 && lines[0].contains("cannot move"),
            "{kib} KiB, {lines:?}"
        );
        return;
    }
    assert!(kib > 44 << 10, "{kib} KiB");
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn pool_too_small_at_the_start_means_smaller_pages_and_one_line() {
    let Some(_pool) = Pool::of(4) else { return };
    for way in ["malloc", "pieces"] {
        let (kib, lines) = serve(way, &[]);
        assert!(kib <= 8 << 10, "{way}: {kib} KiB");
        assert_eq!(lines.len(), 1, "{way}: {lines:?}");
    }
}

/// The server's memory fits into the pool, but not the copies that a worker and its parent need.
/// Without the library this worker is killed.
#[test]
fn pool_that_runs_out_while_serving_kills_no_worker() {
    let Some(_pool) = Pool::of(32) else { return };
    for way in ["malloc", "pieces"] {
        let (_, lines) = serve(way, &[]);
        assert_eq!(lines.len(), 1, "{way}: {lines:?}");
        let moves = way == "malloc" || !before_linux(5, 16);
        assert!(lines[0].contains(if moves { "going on with" } else { "cannot move" }), "{lines:?}");
    }
}

/// The first process that inherits such a setting takes the only page, and its first child dies.
#[test]
fn pages_of_a_gibibyte_asked_for_are_not_taken() {
    let Some(_pool) = Pool::of(100) else { return };
    let (kib, lines) = serve("malloc", &[("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1073741824")]);
    assert!(kib > 48 << 10, "{kib} KiB");
    assert_eq!(lines.len(), 1, "{lines:?}");
}

/// Neither the program nor an executed one may see the tunable, or the pool would be theirs. What
/// the caller had set stays, also to nothing.
#[test]
fn the_tunable_of_the_pool_is_not_inherited() {
    let shown = |own: Option<&str>| {
        let show = ["-c", "echo \"<${GLIBC_TUNABLES-unset}>\"; env | grep -c ^GLIBC_TUNABLES="];
        let mut command = run(&["--huge-pages=hugetlb"], Path::new("/bin/sh"), &show);
        command.env_remove("GLIBC_TUNABLES").envs(own.map(|value| ("GLIBC_TUNABLES", value)));
        observe(&mut command)
    };
    {
        let Some(_pool) = Pool::of(4) else { return };
        assert_eq!(shown(None), (Some(1), "<unset>\n0\n".into(), String::new()));
        assert_eq!(shown(Some("")), (Some(0), "<>\n1\n".into(), String::new()));
        let own = "glibc.malloc.check=0";
        assert_eq!(shown(Some(own)), (Some(0), format!("<{own}>\n1\n"), String::new()));
    }
    let Some(_pool) = Pool::of(0) else { return };
    let (_, out, err) = shown(None);
    assert!(err.contains("using transparent ones") && err.lines().count() == 1, "{err}");
    assert!(out.contains("hugetlb=1"), "{out}");
}
