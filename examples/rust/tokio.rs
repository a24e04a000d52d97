//! Starts and waits without blocking a thread.
//!
//! `cargo run -p forkless --features tokio --example tokio`

use forkless::tokio::Command;
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = Command::new("echo").arg("hello").output().await?;
    print!("{}", String::from_utf8_lossy(&out.stdout));

    let mut child = Command::new("sleep").arg("60").kill_on_drop(true).spawn()?;
    if tokio::time::timeout(Duration::from_millis(50), child.wait()).await.is_err() {
        child.kill().await?;
    }
    println!("{}", child.wait().await?);
    Ok(())
}
