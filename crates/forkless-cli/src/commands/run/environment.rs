//! The environment PROGRAM starts with.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use forkless_record::OPTIONS_VARIABLE;

use super::record::RecordFile;
use super::{Args, Children, Fork, target};

/// Sets what the library reads, and makes the loader map it.
pub(super) fn prepare(
    command: &mut Command,
    args: &Args,
    library: &Path,
    record: Option<&RecordFile>,
    program: &Path,
) {
    command.env(OPTIONS_VARIABLE, options(args, record));
    let mut preload = OsString::from(library);
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|o| !o.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    command.env("LD_PRELOAD", preload);
    if target::is_sanitized(program) {
        // The runtime checks that it comes first; it may come second to a library that only passes calls on.
        let mut asan = env::var_os("ASAN_OPTIONS").unwrap_or_default();
        if !asan.is_empty() {
            asan.push(":");
        }
        asan.push("verify_asan_link_order=0");
        command.env("ASAN_OPTIONS", asan);
    }
}

/// `key=value` pairs; `config.rs` of the library reads them.
fn options(args: &Args, record: Option<&RecordFile>) -> String {
    let fork = match args.fork {
        Fork::Strict => "strict",
        Fork::Speculate => "speculate",
        Fork::Off => "off",
    };
    let mut text = format!("fork={fork},min={},limit={}", args.fork_minimum, args.fork_limit);
    if args.fork_always {
        text.push_str(",learn=no");
    }
    if args.children == Children::No {
        text.push_str(",children=no");
    }
    if let Some(record) = record {
        let _ = write!(text, ",root={},record={}", std::process::id(), record.path().display());
    }
    text
}
