//! The child program of most cases: says what it was started with. It runs from `.init_array`,
//! before std's runtime opens 0, 1 and 2 where they are closed and ignores SIGPIPE.
#![expect(unsafe_code, reason = "a constructor has no safe form")]

use std::collections::BTreeMap;
#[cfg(target_env = "gnu")]
use std::ffi::CStr;
use std::ffi::{c_char, c_int};
use std::fmt::Write;

/// The resources whose limits are reported, by the kernel's numbers (`RLIMIT_*`, x86-64 and
/// aarch64).
pub const LIMITS: [&str; 16] = [
    "cpu",
    "fsize",
    "data",
    "stack",
    "core",
    "rss",
    "nproc",
    "nofile",
    "memlock",
    "as",
    "locks",
    "sigpending",
    "msgqueue",
    "nice",
    "rtprio",
    "rttime",
];

#[unsafe(link_section = ".init_array")]
#[used]
static BEFORE_MAIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = before_main;

extern "C" fn before_main(argc: c_int, argv: *const *const c_char, _envp: *const *const c_char) {
    // SAFETY: glibc passes main's own arguments to constructors; others do not use them.
    let args = unsafe { arguments(argc, argv) };
    let Some(role) = args.get(1).and_then(|a| a.strip_prefix("--role=")) else { return };
    let code = match role {
        "report" => {
            let to = args.get(2).and_then(|n| n.parse().ok()).unwrap_or(1);
            let text = report(&args[3.min(args.len())..]);
            i32::from(forkless_sys::fd::write(to, text.as_bytes()) != Ok(text.len()))
        }
        "exit" => args.get(2).and_then(|n| n.parse().ok()).unwrap_or(0),
        // Set-user-ID: gives up the user that may kill it, says so, and lives as long as a file is
        // there, or until a test has hung.
        "stubborn" => {
            let changed = forkless_sys::ids::setresuid(0, 0, 0);
            let _ = forkless_sys::fd::write(1, b"x");
            for _ in 0..10_000 {
                if !args.get(2).is_some_and(|file| std::path::Path::new(file).exists()) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            i32::from(changed.is_err())
        }
        other => {
            let _ = forkless_sys::fd::write(2, format!("no role {other}\n").as_bytes());
            99
        }
    };
    forkless_sys::process::exit_group(code)
}

/// # Safety
/// The parameters are those of main.
#[cfg(target_env = "gnu")]
unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<String> {
    (0..argc as usize)
        .map(|i| {
            // SAFETY: the caller's promise.
            let at = unsafe { argv.add(i) };
            // SAFETY: as above.
            let at = unsafe { *at };
            // SAFETY: as above.
            unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
        })
        .collect()
}

/// musl calls constructors without parameters.
///
/// # Safety
/// No parameter is needed: the signature is glibc's.
#[cfg(not(target_env = "gnu"))]
unsafe fn arguments(_argc: c_int, _argv: *const *const c_char) -> Vec<String> {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = line.split_inclusive(|&byte| byte == 0);
    words.map(|word| String::from_utf8_lossy(word.strip_suffix(b"\0").unwrap_or(word)).into_owned()).collect()
}

/// Arguments that make this program report to a descriptor.
pub fn args(to: i32) -> [String; 2] {
    [String::from("--role=report"), to.to_string()]
}

fn report(rest: &[String]) -> String {
    let mut out = String::new();
    let mut fds: Vec<String> = Vec::new();
    for (n, to) in super::guard::descriptors() {
        let cloexec = forkless_sys::fd::get_fd_flags(n).is_ok_and(|f| f & 1 != 0);
        fds.push(format!("{n}{}:{to}", if cloexec { "!" } else { "" }));
    }
    let _ = writeln!(out, "fds={}", fds.join(","));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for key in [
        "Umask",
        "Uid",
        "Gid",
        "Groups",
        "SigBlk",
        "SigIgn",
        "SigCgt",
        "SigPnd",
        "ShdPnd",
        "NoNewPrivs",
        "Seccomp",
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "Cpus_allowed_list",
    ] {
        if let Some(v) = status.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')) {
            let _ = writeln!(out, "{key}={}", v.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    for (key, i) in [("ppid", 1), ("pgrp", 2), ("session", 3), ("tty", 4), ("tpgid", 5), ("nice", 16)] {
        let _ = writeln!(out, "{key}={}", after.get(i).unwrap_or(&""));
    }
    let _ = writeln!(out, "pid={}", forkless_sys::process::getpid());
    let _ = writeln!(out, "policy={:?}", forkless_sys::sched::scheduler());
    for (i, name) in LIMITS.iter().enumerate() {
        if let Ok(l) = forkless_sys::sched::getrlimit(i as u32) {
            let _ = writeln!(out, "limit.{name}={} {}", l.soft, l.hard);
        }
    }
    for (key, link) in [("cwd", "/proc/self/cwd"), ("root", "/proc/self/root"), ("exe", "/proc/self/exe")] {
        let to = std::fs::read_link(link).map_or_else(|e| e.to_string(), |p| p.display().to_string());
        let _ = writeln!(out, "{key}={to}");
    }
    let _ = writeln!(
        out,
        "cgroup={}",
        std::fs::read_to_string("/proc/self/cgroup")
            .unwrap_or_default()
            .lines()
            .find(|l| l.starts_with("0::"))
            .unwrap_or("")
    );
    for space in ["mnt", "uts", "ipc", "net", "user", "pid", "cgroup"] {
        let to = std::fs::read_link(format!("/proc/self/ns/{space}")).unwrap_or_default();
        let _ = writeln!(out, "ns.{space}={}", to.display());
    }
    for (key, what) in [("securebits", libc::PR_GET_SECUREBITS), ("timerslack", libc::PR_GET_TIMERSLACK)] {
        // SAFETY: both only answer.
        let _ = writeln!(out, "{key}={}", unsafe { libc::prctl(what) });
    }
    let mut sig = 0i32;
    // SAFETY: PR_GET_PDEATHSIG writes one int.
    unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut sig) };
    let _ = writeln!(out, "pdeathsig={sig}");
    for key in rest {
        let _ = writeln!(out, "env.{key}={:?}", std::env::var_os(key));
    }
    let cmdline = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let _ = writeln!(out, "cmdline={}", String::from_utf8_lossy(&cmdline).replace('\0', "|"));
    out
}

/// The report of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(pub BTreeMap<String, String>);

impl Report {
    pub fn parse(bytes: &[u8]) -> Report {
        let text = String::from_utf8_lossy(bytes);
        let all: BTreeMap<String, String> = text
            .lines()
            .filter_map(|l| l.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        assert!(all.contains_key("cmdline"), "not a whole report: {text:?}");
        Report(all)
    }

    #[track_caller]
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).unwrap_or_else(|| panic!("no {key} in {self:?}"))
    }

    /// A number.
    #[track_caller]
    pub fn number(&self, key: &str) -> i64 {
        self.get(key).parse().unwrap_or_else(|_| panic!("{key} is {:?}", self.get(key)))
    }

    /// A set of signals.
    #[track_caller]
    pub fn signals(&self, key: &str) -> u64 {
        u64::from_str_radix(self.get(key), 16).unwrap_or_else(|_| panic!("{key} is {:?}", self.get(key)))
    }

    /// The numbers open in the child.
    pub fn fds(&self) -> Vec<i32> {
        self.get("fds")
            .split(',')
            .filter_map(|f| f.split_once(':')?.0.trim_end_matches('!').parse().ok())
            .collect()
    }

    /// The file that a number leads to.
    pub fn fd(&self, n: i32) -> Option<&str> {
        self.get("fds").split(',').find_map(|f| {
            let (k, to) = f.split_once(':')?;
            (k.trim_end_matches('!') == n.to_string()).then_some(to)
        })
    }
}
