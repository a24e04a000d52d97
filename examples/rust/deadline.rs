//! A time limit that holds although a grandchild keeps the pipe open.
//!
//! `cargo run -p forkless --example deadline`

use forkless::{Command, End};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

fn main() -> Result<(), forkless::SpawnError> {
    let began = Instant::now();
    let mut slow = Command::new("sh");
    slow.args(["-c", "echo started; sleep 60 & wait"]);
    let (status, said) = slow.communicate().timeout(Duration::from_millis(200)).kill_group().run()?;
    assert_eq!(said.end, End::Deadline);
    println!("{} after {:.1?}: {:?}", status, began.elapsed(), String::from_utf8_lossy(&said.stdout));

    // Gets lines as they come, until one line has been seen.
    let mut count = 0;
    let (_, said) = Command::new("yes")
        .communicate()
        .on_line(|_, _| {
            count += 1;
            if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .run()?;
    assert_eq!((said.end, count), (End::Stopped, 3));
    Ok(())
}
