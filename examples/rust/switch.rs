//! Switch from `std::process` by changing one line: `cargo run -p forkless --example switch`.
//!
//! `forkless::process` has std's names, signatures and errors. Its documentation lists the
//! differences.

use forkless::process::Command; // was: use std::process::Command;

fn main() -> std::io::Result<()> {
    let out =
        Command::new("sh").args(["-c", "echo \"$GREETING from $0\""]).env("GREETING", "hello").output()?;
    print!("{}", String::from_utf8_lossy(&out.stdout));
    assert!(out.status.success());
    Ok(())
}
