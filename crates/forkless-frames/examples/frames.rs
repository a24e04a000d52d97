//! Prints the frames of a process's threads. Its argument is the process's number.

use std::io::{self, Write as _};
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
    match print(pid, &reader) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("frames: process {pid}: {error}");
            ExitCode::from(3)
        }
        _ => ExitCode::SUCCESS,
    }
}

fn print(pid: u32, reader: &Reader) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(tid) = task?.file_name().to_string_lossy().parse() else { continue };
        writeln!(out, "thread {tid}")?;
        match reader.frames(tid) {
            Ok(frames) => {
                for frame in frames {
                    let line = frame.line.map_or_else(|| "?".to_owned(), |line| line.to_string());
                    writeln!(out, "  {} ({}:{line}, {})", frame.function, frame.file, frame.language.name())?;
                }
            }
            Err(why) => writeln!(out, "  {why}")?,
        }
    }
    Ok(())
}
