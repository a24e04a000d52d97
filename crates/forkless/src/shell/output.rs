//! Collecting a line's output.

use super::child::ShellChild;
use super::line::ShellLine;
use super::run::{self, needs_supervision};
use super::wait::Ends;
use super::wiring::Base;
use crate::child::grow;
use crate::error::{SpawnError, Step, WaitError};
use crate::kernel::poll::{poll, timespec};
use crate::kernel::thread::Blocked;
use crate::spec::stdio::Kind;
use forkless_sys::poll::{POLLIN, PollFd};
use forkless_sys::{Errno, fd};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{ExitStatus, Output};
use std::time::{Duration, Instant};

/// How many bytes are read at once.
const PIECE: usize = 64 * 1024;

impl ShellLine {
    /// Runs the line and collects what it writes; input is empty unless [`stdin`](ShellLine::stdin)
    /// says otherwise.
    ///
    /// ```
    /// let out = forkless::shell("/usr/bin/printf 'b\\na\\n' | sort").output()?;
    /// assert_eq!(out.stdout, b"a\nb\n");
    /// # Ok::<(), forkless::SpawnError>(())
    /// ```
    ///
    /// # Errors
    /// As [`ShellLine::status`].
    pub fn output(&mut self) -> Result<Output, SpawnError> {
        collect(self)
    }
}

fn collect(how: &ShellLine) -> Result<Output, SpawnError> {
    let deadline = how.deadline();
    let mut base = Base::open(how, [&Kind::Null, &Kind::Piped, &Kind::Piped])?;
    let mut streams = base.ours.each_mut().map(Option::take);
    // Nothing is written to the line's input, so it ends at once.
    streams[0] = None;
    let [_, stdout, stderr] = streams;
    let mut streams = [(stdout, Vec::new()), (stderr, Vec::new())];
    let status = if needs_supervision(how) {
        // Another thread reads the pipes while this one starts one pipeline after the other. It
        // must be this way round: a child gets the mask of the thread that makes it, and the
        // reading thread blocks the program's signals.
        std::thread::scope(|scope| -> Result<_, SpawnError> {
            let failed = |e: std::io::Error| {
                let errno = e.raw_os_error().unwrap_or(libc::EAGAIN);
                SpawnError::new(Step::Clone, String::from("thread that reads the line's output"), errno)
            };
            let reader = {
                let _blocked = Blocked::begin().map_err(failed)?;
                let thread = std::thread::Builder::new().name("forkless-output".into());
                let read = || {
                    let read = drain(&mut streams, deadline, None);
                    if read.is_err() {
                        // A program that still writes must not wait for a reader for ever.
                        streams.iter_mut().for_each(|stream| stream.0 = None);
                    }
                    read
                };
                thread.spawn_scoped(scope, read).map_err(failed)?
            };
            let status = run::to_the_end(how, &base, Ends::Awaited(deadline));
            // The copies of the write ends close with `base`, so that the reader sees the end.
            drop(base);
            match reader.join() {
                Ok(read) => {
                    let status = status?;
                    read?;
                    Ok(status)
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?
    } else {
        supervise(how, base, &mut streams, deadline)?
    };
    let [(_, stdout), (_, stderr)] = streams;
    Ok(Output { status, stdout, stderr })
}

/// Runs one pipeline, or a shell: reads to the end, then waits.
fn supervise(
    how: &ShellLine,
    base: Base,
    streams: &mut [(Option<OwnedFd>, Vec<u8>)],
    deadline: Option<Instant>,
) -> Result<ExitStatus, SpawnError> {
    let mut child = run::start(how, base, true)?;
    let status = match drain(streams, deadline, Some(&mut child)) {
        Ok(()) => child.stages_until(deadline),
        Err(WaitError::Deadline) => Err(WaitError::Deadline),
        Err(error) => {
            child.kill_and_reap();
            Err(error)
        }
    };
    match status {
        Err(WaitError::Deadline) => Err(child.kill_and_reap().into()),
        other => Ok(other?),
    }
}

/// Reads all streams to their ends, and takes the statuses of programs that a stream's end waits
/// for.
fn drain(
    streams: &mut [(Option<OwnedFd>, Vec<u8>)],
    deadline: Option<Instant>,
    mut child: Option<&mut ShellChild>,
) -> Result<(), WaitError> {
    const SHORTEST: Duration = Duration::from_micros(200);
    const LONGEST: Duration = Duration::from_millis(20);
    let mut piece = vec![0; PIECE];
    // The pidfd tells of a program's end. Where there is none, looking finds the end. So it is once
    // the pidfd is ready and there is no status, since a tracer comes first.
    let (mut told, mut pause) = (false, SHORTEST);
    while streams.iter().any(|stream| stream.0.is_some()) {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(WaitError::Deadline);
        }
        // poll(2) passes a negative number over.
        let number = |file: &Option<OwnedFd>| file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut entries: Vec<PollFd> =
            streams.iter().map(|(file, _)| PollFd { fd: number(file), events: POLLIN, revents: 0 }).collect();
        let awaited = child.as_ref().and_then(|child| child.awaited());
        let watched = awaited.flatten().filter(|_| !told).map_or(-1, |pidfd| pidfd.as_raw_fd());
        let looks = awaited.is_some() && watched < 0;
        entries.push(PollFd { fd: watched, events: POLLIN, revents: 0 });
        let longest = if looks { Some(left.map_or(pause, |left| left.min(pause))) } else { left };
        match poll(&mut entries, longest.map(timespec)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => {
                return Err(WaitError::Start(SpawnError::at(Step::Wait, "the line's output", error)));
            }
        }
        let ready = entries.pop().is_some_and(|entry| entry.revents != 0);
        if let Some(child) = child.as_mut().filter(|_| ready || looks) {
            let before = child.awaits();
            child.try_wait()?;
            told = child.awaits() == before;
            pause = if told { (pause * 2).min(LONGEST) } else { SHORTEST };
        }
        for ((file, kept), entry) in streams.iter_mut().zip(&entries) {
            if entry.revents == 0 {
                continue;
            }
            match fd::read(entry.fd, &mut piece) {
                Ok(0) => *file = None,
                Ok(count) => {
                    grow(kept, count).map_err(WaitError::Start)?;
                    kept.extend_from_slice(&piece[..count]);
                }
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => *file = None,
            }
        }
    }
    Ok(())
}
