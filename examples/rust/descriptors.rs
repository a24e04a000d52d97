//! Any descriptor at any number, and a pipeline with the status of every stage.
//!
//! `cargo run -p forkless --example descriptors`

use forkless::{Command, Stdio};
use std::io::{Read, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut child = Command::new("sh")
        .args(["-c", "tr a-z A-Z <&8 >&9"])
        .fd(8, Stdio::piped_input())
        .fd(9, Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::same_as(1))
        .spawn()?;
    let (to, from) = (child.take_pipe(8), child.take_pipe(9));
    let (Some(to), Some(from)) = (to, from) else { return Err("no pipes".into()) };
    let mut to = std::fs::File::from(to);
    to.write_all(b"shout")?;
    drop(to);
    let mut said = String::new();
    std::fs::File::from(from).read_to_string(&mut said)?;
    assert_eq!(said, "SHOUT");
    child.wait()?;

    let mut fail = Command::new("sh");
    fail.args(["-c", "echo b; echo a; exit 3"]);
    let statuses = fail.pipe(Command::new("sort")).status()?;
    assert_eq!(statuses.iter().map(|s| s.code()).collect::<Vec<_>>(), [Some(3), Some(0)]);
    Ok(())
}
