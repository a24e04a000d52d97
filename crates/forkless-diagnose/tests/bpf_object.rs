//! The committed BPF object belongs to the committed sources.

use std::path::Path;
use std::process::Command;

fn build_script(argument: &str) -> std::process::Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/build.sh");
    Command::new("sh").arg(script).arg(argument).output().expect("sh runs")
}

#[test]
fn the_object_was_built_from_these_sources() {
    let output = build_script("--check");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn building_again_gives_the_same_object() {
    let output = build_script("--rebuild-check");
    if output.status.code() == Some(4) {
        eprintln!("skipped: clang or llvm-strip is not installed");
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
