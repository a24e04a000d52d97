//! The environment PROGRAM starts with: ours, entry by entry as it stands (the standard library would drop malformed ones), with what
//! the library reads.
#![expect(unsafe_code, reason = "walks the C environment")]

use std::env;
use std::ffi::{CStr, CString, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use forkless_run::OPTIONS_VARIABLE;

use super::record::RecordFile;
use super::target::Target;
use super::{Args, Children, Context, Fork, HugePages, huge_pages, shell};

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// The environment as it is.
pub(super) fn current() -> Vec<CString> {
    let mut all = Vec::new();
    // SAFETY: set by libc before main; this process has one thread and does not change it.
    let mut at = unsafe { environ };
    loop {
        // SAFETY: the vector ends in a null pointer, where the loop stops.
        let entry = unsafe { *at };
        if entry.is_null() {
            return all;
        }
        // SAFETY: entries are NUL-terminated.
        all.push(unsafe { CStr::from_ptr(entry) }.to_owned());
        at = at.wrapping_add(1);
    }
}

fn set(all: &mut Vec<CString>, name: &str, value: OsString) {
    let named = |e: &CString| e.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|r| r.starts_with(b"="));
    let mut entry = format!("{name}=").into_bytes();
    entry.extend(value.into_vec());
    // Values come from the environment and from paths, neither of which can hold a NUL.
    let entry = CString::new(entry).unwrap_or_default();
    match all.iter().position(named) {
        Some(at) => all[at] = entry,
        None => all.push(entry),
    }
}

/// What the library reads, and what makes the loader map it.
pub(super) fn prepared(
    args: &Args,
    library: &Path,
    record: Option<&RecordFile>,
    target: &Target,
    huge: &huge_pages::Settings,
    shell: shell::Answer,
) -> Vec<CString> {
    let mut all = current();
    let mut options = options(args, record, shell);
    if huge.hugetlb {
        options.push_str(",hugetlb=yes");
    }
    set(&mut all, OPTIONS_VARIABLE, options.into());
    for (name, value) in &huge.variables {
        set(&mut all, name, value.into());
    }
    if args.tz && env::var_os("TZ").is_none() {
        // With the file missing glibc means UTC, and would look for it again at every call.
        let zone = if Path::new("/etc/localtime").exists() { ":/etc/localtime" } else { "UTC0" };
        set(&mut all, "TZ", zone.into());
    }
    let mut preload = OsString::from(library);
    for other in env::var_os("LD_PRELOAD").iter().flat_map(|o| o.as_bytes().split(|b| b" :".contains(b))) {
        if !other.is_empty() && other != library.as_os_str().as_bytes() {
            preload.push(":");
            preload.push(OsString::from_vec(other.to_vec()));
        }
    }
    set(&mut all, "LD_PRELOAD", preload);
    if target.sanitized {
        // The runtime checks that it comes first; it may come second to a library that only passes calls on.
        let mut asan = env::var_os("ASAN_OPTIONS").unwrap_or_default();
        if !asan.is_empty() {
            asan.push(":");
        }
        asan.push("verify_asan_link_order=0");
        set(&mut all, "ASAN_OPTIONS", asan);
    }
    all
}

/// `key=value` pairs; `config.rs` of the library reads them.
fn options(args: &Args, record: Option<&RecordFile>, shell: shell::Answer) -> String {
    let fork = match args.fork {
        Fork::Strict => "strict",
        Fork::Speculate => "speculate",
        Fork::Off => "off",
    };
    let mut text = format!("fork={fork},min={},limit={}", args.fork_minimum, args.fork_limit);
    if args.fork_always {
        text.push_str(",learn=no");
    }
    if let Some(known) = shell.for_the_library() {
        let _ = write!(text, ",sh={known}");
    }
    // Programs of the tree can tell by it that a filter came later.
    if let Some(filters @ 1..) = filters_in_force() {
        let _ = write!(text, ",filters={filters}");
    }
    if args.context == Context::Fast {
        text.push_str(",context=fast");
    }
    if args.huge_pages != HugePages::Off {
        text.push_str(",collapse=yes");
        if args.quiet {
            text.push_str(",quiet=yes");
        }
    }
    if args.children == Children::No {
        text.push_str(",children=no");
    }
    if let Some(record) = record {
        let _ = write!(text, ",root={}", std::process::id());
        // Another namespace has a process of the same number.
        if let Ok(namespace) = std::fs::metadata("/proc/self/ns/pid") {
            let _ = write!(text, ",ns={}", namespace.ino());
        }
        let _ = write!(text, ",record={}", record.path().display());
    } else if let Ok(outer) = env::var(OPTIONS_VARIABLE) {
        // A run inside a run counts into the outer one's report.
        let is_the_outers = |pair: &&str| ["root=", "ns=", "record="].iter().any(|key| pair.starts_with(key));
        for pair in outer.split(',').filter(is_the_outers) {
            let _ = write!(text, ",{pair}");
        }
    }
    text
}

/// Seccomp filters of this process, as the library counts them: one where the kernel gives no number (before 5.9).
fn filters_in_force() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    field("Seccomp_filters:").or_else(|| field("Seccomp:").map(|mode: u32| mode.min(1)))
}
