//! Attributes that posix_spawn cannot set, at the same cost: limits, umask, scheduling, a death
//! signal. Errors name the step.
//!
//! `cargo run -p forkless --example limits`

use forkless::{Command, OnDrop, Resource, Step};

fn main() -> Result<(), forkless::SpawnError> {
    let mut worker = Command::new("sh");
    worker
        .args(["-c", "umask; ulimit -n; nice"])
        .umask(0o077)
        .rlimit(Resource::OpenFiles, 64, 64)
        .rlimit(Resource::Core, 0, 0)
        .nice(5)
        .parent_death_signal(15) // at the end of this process, not of the thread that started it
        .no_new_privs(true)
        .on_drop(OnDrop::Kill);
    let out = worker.output()?;
    print!("{}", String::from_utf8_lossy(&out.stdout));
    assert_eq!(out.stdout, b"0077\n64\n5\n");

    let error = Command::new("true").current_dir("/does/not/exist").status().unwrap_err();
    assert_eq!(error.step(), Step::Chdir);
    println!("{error}");
    Ok(())
}
