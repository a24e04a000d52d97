//! A hundred starts that do not wait for the exec. Errors come with the wait.
//!
//! `cargo run -p forkless --example nonblocking`

use forkless::{Command, WaitError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut sh = Command::new("sh");
    sh.args(["-c", "exit 7"]);
    // Prepared once: the search of PATH and every string.
    let prepared = sh.prepare()?;
    let mut children = (0..100).map(|_| prepared.spawn_nonblocking()).collect::<Result<Vec<_>, _>>()?;
    children.push(Command::new("/does/not/exist").spawn_nonblocking()?);
    let mut failed = 0;
    for mut child in children {
        // In an event loop: wait until child.pidfd() is readable, then try_wait().
        match child.wait() {
            Ok(status) => assert_eq!(status.code(), Some(7)),
            Err(WaitError::Start(e)) => {
                println!("{e}");
                failed += 1;
            }
            Err(e) => return Err(e.into()),
        }
    }
    assert_eq!(failed, 1);
    Ok(())
}
