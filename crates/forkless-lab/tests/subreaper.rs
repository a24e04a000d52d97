//! The process that ends what a measurement has started.
#![cfg(target_os = "linux")]

use forkless_lab::subreaper::{StopCue, keep};

#[test]
fn the_subreaper_passes_the_programs_exit_code_on() {
    let status = keep(StopCue::Terminate, &"sh".into(), &["-c".into(), "exit 3".into()]);
    // Where standard input is at its end at once, the program may have been told to end first.
    assert!(status == 3 || status == 128 + 15, "{status}");
}
