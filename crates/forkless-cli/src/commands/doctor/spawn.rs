//! The facilities of process creation, as the library reports them.

use std::fs::File;

use forkless::{Command, Facility, Stdio};

use super::{Answer, Entry, State, Verdict, works};

/// Starts a child in the way that uses most facilities: the library tries some of them only when
/// they are needed.
fn exercise() {
    let Ok(null) = File::open("/dev/null") else { return };
    // A high number: the library then tries to hand it on without copying the descriptor table.
    let Ok(high) = rustix::io::fcntl_dupfd_cloexec(&null, 200) else { return };
    // Whether the start succeeds does not matter: the report says what it could not use.
    let _ = Command::new("/proc/self/exe")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .fd(200, Stdio::from(high))
        .status();
}

pub(super) fn entries() -> Vec<Entry> {
    exercise();
    let reports = forkless::facilities();
    reports
        .into_iter()
        .map(|report| {
            let state = match report.state {
                Facility::Works => State::Works,
                Facility::Refused(_) => State::Missing,
                Facility::Untried => State::Info,
            };
            let detail = report.state.to_string();
            Entry { state, ..Entry::new(report.name, Ok(detail), report.used_for, report.fallback) }
        })
        .collect()
}

pub(super) fn verdict(entries: &[Entry]) -> Verdict {
    let call = if works(entries, "clone3") { "clone3" } else { "clone" };
    if !works(entries, "CLONE_VM") {
        return Answer::Partly.because("an emulator copies the memory of each child");
    }
    if works(entries, "CLOSE_RANGE_UNSHARE") {
        Answer::Yes.because(format!("{call} without a copy of memory or descriptors"))
    } else {
        Answer::Partly.because(format!("{call} without a copy of memory; descriptors are copied"))
    }
}

pub(super) fn path(entries: &[Entry]) -> String {
    let call = if works(entries, "clone3") { "clone3" } else { "clone" };
    let table = if works(entries, "CLOSE_RANGE_UNSHARE") {
        "its cost is flat in open descriptors"
    } else {
        "the descriptor table is copied"
    };
    format!("children are made with {call}(CLONE_VM) on a stack of their own; {table}; never with fork")
}
