//! From `std::process` by changing one line: `cargo run -p forkless --example switch`.
//!
//! The one difference: a child has the descriptors it is given and no others.

use forkless::Command; // was: use std::process::Command;

fn main() -> std::io::Result<()> {
    let out =
        Command::new("sh").args(["-c", "echo \"$GREETING from $0\""]).env("GREETING", "hello").output()?;
    print!("{}", String::from_utf8_lossy(&out.stdout));
    assert!(out.status.success());
    Ok(())
}
