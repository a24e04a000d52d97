//! Prints the frames of a process's threads. Its argument is the process's number.

use std::process::ExitCode;

use forkless_frames::Reader;

fn main() -> ExitCode {
    let Some(pid) = std::env::args().nth(1).and_then(|pid| pid.parse().ok()) else {
        eprintln!("frames: name a process by its number: frames PID");
        return ExitCode::from(2);
    };
    let Some(reader) = Reader::new(pid) else {
        eprintln!("frames: process {pid} runs no known interpreter, is gone, or may not be read");
        return ExitCode::from(3);
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for tid in tasks.filter_map(|task| task.file_name().to_string_lossy().parse().ok()) {
        println!("thread {tid}");
        match reader.frames(tid) {
            Ok(frames) => {
                for frame in frames {
                    let line = frame.line.map_or_else(|| "?".to_owned(), |line| line.to_string());
                    println!("  {} ({}:{line}, {})", frame.function, frame.file, frame.language.name());
                }
            }
            Err(why) => println!("  {why}"),
        }
    }
    ExitCode::SUCCESS
}
