//! Where creations come from, as paths from the program down to what was started: what `--folded`,
//! `--pprof` and the flame graph of `--html` have in common.

use forkless_diagnose::{Frame, Origin, Outcome};

/// The last part of a path: what the creations were, and what was started.
pub(super) fn leaf(origin: &Origin) -> String {
    let with = |call: &str, then: &str| match &origin.started {
        Some(program) => format!("{call}{then}{program}"),
        None => call.to_owned(),
    };
    match origin.outcome {
        Some(Outcome::ForkThenExec | Outcome::ForkAlone) => with("fork", ", exec "),
        Some(Outcome::Speculated) => with("speculated fork", ", exec "),
        Some(Outcome::Shared) => with("spawn", " "),
        None => "at places that had no room".to_owned(),
    }
}

/// The program that created.
pub(super) fn program(origin: &Origin) -> &str {
    if origin.program.is_empty() { "other programs" } else { &origin.program }
}

/// A frame as a part of a picture, where a build id has no room.
pub(super) fn name(frame: &Frame) -> String {
    let shown = frame.to_string();
    match (&frame.function, shown.split_once(" [build id ")) {
        (None, Some((short, _))) => short.to_owned(),
        _ => shown,
    }
}

/// The program, its frames from the outermost on, and the leaf.
pub(super) fn path(origin: &Origin) -> Vec<String> {
    let mut path = vec![program(origin).to_owned()];
    path.extend(origin.frames.iter().rev().map(name));
    path.push(leaf(origin));
    path
}

/// Whole microseconds.
pub(super) fn microseconds(origin: &Origin) -> u64 {
    (origin.cost_ns / 1e3).round().max(0.0) as u64
}
