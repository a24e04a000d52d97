//! The report: the record as a table for people or as JSON.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use anyhow::Context as _;
use forkless_run::{AbortKind, AbortReason, Counter, Record, Site};

use super::record::RecordFile;

/// Where a report goes.
pub(super) enum Destination {
    StandardError,
    File(PathBuf),
}

impl Destination {
    pub(super) fn open(&self) -> anyhow::Result<File> {
        match self {
            Destination::StandardError => {
                Ok(File::from(io::stderr().as_fd().try_clone_to_owned().context("standard error")?))
            }
            Destination::File(path) => {
                File::create(path).with_context(|| format!("cannot write the report to {}", path.display()))
            }
        }
    }
}

/// Writes the report with one write call, so that it does not mix with what the tree still prints. In a file of its own it replaces an
/// earlier one.
pub(super) fn write(record: &Record, to: &RecordFile) -> io::Result<()> {
    let text = if to.json { as_json(record) } else { as_text(record) };
    let mut output = &to.output;
    if to.output_is_ours {
        output.set_len(0)?;
        output.rewind()?;
    }
    output.write_all(text.as_bytes())
}

fn sites(record: &Record) -> Vec<&Site> {
    let mut sites: Vec<_> = record.sites().collect();
    sites.sort_by_key(|s| std::cmp::Reverse(count(&s.forks)));
    sites
}

fn count(n: &std::sync::atomic::AtomicU64) -> u64 {
    n.load(std::sync::atomic::Ordering::Relaxed)
}

fn name(site: &Site) -> String {
    let mut text = [0; 128];
    let len = site.name(&mut text);
    String::from_utf8_lossy(&text[..len]).into_owned()
}

fn as_json(record: &Record) -> String {
    let counters: serde_json::Map<_, _> =
        Counter::ALL.iter().map(|c| (c.key().to_owned(), record.get(*c).into())).collect();
    let sites: Vec<_> = sites(record)
        .into_iter()
        .map(|s| {
            let reasons: Vec<_> = s
                .reasons()
                .map(|(r, n)| {
                    serde_json::json!({
                        "reason": format!("{:?}", r.kind()),
                        "detail": describe(r),
                        "number": r.detail(),
                        "count": n,
                    })
                })
                .collect();
            serde_json::json!({
                "site": name(s),
                "forks": count(&s.forks),
                "speculated": count(&s.speculated),
                "committed": count(&s.committed),
                "aborted": count(&s.aborted),
                "reasons": reasons,
            })
        })
        .collect();
    let whole = serde_json::json!({ "forkless_run": 1, "counters": counters, "sites": sites });
    format!("{whole}\n")
}

fn as_text(record: &Record) -> String {
    use std::fmt::Write as _;
    let get = |c| record.get(c);
    let mut t = String::from("forkless run report\n");
    for c in Counter::ALL {
        let n = get(*c);
        if n != 0 || matches!(c, Counter::Forks | Counter::Committed) {
            let value = match c {
                Counter::BytesSpared => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
                Counter::NanosSaved => format!("{:.1} ms", n as f64 / 1e6),
                _ => n.to_string(),
            };
            let text = if *c == Counter::NanosSaved { "time saved (estimate)" } else { c.text() };
            let _ = writeln!(t, "  {value:>12}  {text}");
        }
    }
    let sites = sites(record);
    if !sites.is_empty() {
        t.push_str("call sites: forks, committed, aborted\n");
    }
    for s in sites {
        let _ = writeln!(
            t,
            "  {:>8} {:>8} {:>8}  {}",
            count(&s.forks),
            count(&s.committed),
            count(&s.aborted),
            name(s)
        );
        for (reason, n) in s.reasons() {
            let _ = writeln!(t, "  {n:>26}  {}", describe(reason));
        }
    }
    t
}

/// A reason in words.
fn describe(reason: AbortReason) -> String {
    let text = reason.kind().text();
    match reason.kind() {
        AbortKind::Call | AbortKind::Inherited => format!("{text} {}", call_name(reason.detail())),
        AbortKind::Command => format!("{text} {:#x}", reason.detail()),
        AbortKind::Signal => format!("{text} {}", reason.detail()),
        AbortKind::Threads => format!("{text} (--fork=strict)"),
        _ => text.to_owned(),
    }
}

/// Names of the calls children most often abort with; the number of the rest.
fn call_name(nr: u32) -> String {
    let name = match i64::from(nr) {
        libc::SYS_read => "read",
        libc::SYS_write => "write",
        libc::SYS_exit_group => "exit_group",
        libc::SYS_exit => "exit",
        libc::SYS_clone => "clone",
        libc::SYS_clone3 => "clone3",
        libc::SYS_futex => "futex",
        libc::SYS_kill => "kill",
        libc::SYS_tgkill => "tgkill",
        libc::SYS_mmap => "mmap",
        libc::SYS_mprotect => "mprotect",
        libc::SYS_munmap => "munmap",
        libc::SYS_madvise => "madvise",
        libc::SYS_lseek => "lseek",
        libc::SYS_fcntl => "fcntl",
        libc::SYS_ioctl => "ioctl",
        libc::SYS_nanosleep => "nanosleep",
        libc::SYS_clock_nanosleep => "clock_nanosleep",
        libc::SYS_connect => "connect",
        libc::SYS_socket => "socket",
        libc::SYS_sendto => "sendto",
        libc::SYS_recvfrom => "recvfrom",
        libc::SYS_sendmsg => "sendmsg",
        libc::SYS_recvmsg => "recvmsg",
        libc::SYS_wait4 => "wait4",
        libc::SYS_writev => "writev",
        libc::SYS_openat => "openat",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => "unlink",
        libc::SYS_flock => "flock",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => "epoll_wait",
        libc::SYS_ptrace => "ptrace",
        libc::SYS_getdents64 => "getdents64",
        _ => return format!("number {nr}"),
    };
    name.to_owned()
}
