//! Many threads that start programs at once. The threads of a pool wait, start together, and share
//! a number of spawns, so that all are busy until the last spawn.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

use super::worker::{Lap, Worker};
use crate::error::Error;
use crate::page_kinds::Pages;
use crate::parent::Memory;

/// Every thread owns a worker for each method.
pub(super) struct Pool {
    threads: Vec<Member>,
    answers: Receiver<Result<Vec<Lap>, Error>>,
}

struct Member {
    jobs: Option<Sender<Job>>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Job {
    method: usize,
    settle: usize,
    /// Spawns left for all threads together.
    left: Arc<AtomicUsize>,
    start: Arc<Barrier>,
}

/// Bytes. The standard library's size, whatever RUST_MIN_STACK says.
const STACK: usize = 2 << 20;

/// Whether limits of memory leave room for a thread and for what its start allocates. Without that
/// the start panics, and aborts the command.
fn room_for_a_thread() -> Result<(), Error> {
    const START: usize = 1 << 20;
    match Memory::mapped((STACK + START) as u64, Pages::Base) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::no_thread(io::ErrorKind::OutOfMemory.into())),
    }
}

impl Pool {
    /// Starts one thread for each set of workers.
    pub(super) fn new(sets: Vec<Vec<Box<dyn Worker>>>) -> Result<Pool, Error> {
        let (answer, answers) = channel();
        let mut threads = Vec::new();
        for mut workers in sets {
            let (jobs, inbox) = channel::<Job>();
            let (begins, begun) = channel();
            let answer = answer.clone();
            room_for_a_thread()?;
            let handle = thread::Builder::new()
                .name("spawner".into())
                .stack_size(STACK)
                .spawn(move || {
                    let _ = begins.send(());
                    while let Ok(job) = inbox.recv() {
                        let laps = work(workers[job.method].as_mut(), &job);
                        if answer.send(laps).is_err() {
                            return;
                        }
                    }
                })
                .map_err(Error::no_thread)?;
            threads.push(Member { jobs: Some(jobs), handle: Some(handle) });
            // The next one takes no memory from it: Rust's start of a thread panics without.
            let _ = begun.recv();
        }
        Ok(Pool { threads, answers })
    }

    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Has all threads repeat a method: each `settle` times first, then `total` times together.
    /// Returns the laps of the latter in the order of their beginnings.
    pub(super) fn run(&self, method: usize, settle: usize, total: usize) -> Result<Vec<Lap>, Error> {
        let start = Arc::new(Barrier::new(self.threads.len()));
        let job = Job { method, settle, left: Arc::new(AtomicUsize::new(total)), start };
        for member in &self.threads {
            if let Some(jobs) = &member.jobs {
                // A thread that is gone has panicked; its missing answer is noticed below.
                let _ = jobs.send(job.clone());
            }
        }
        let mut laps = Vec::with_capacity(total);
        let mut failure = None;
        for _ in &self.threads {
            match self.answers.recv() {
                Ok(Ok(more)) => laps.extend(more),
                Ok(Err(error)) => failure = Some(error),
                Err(_) => return Err(Error::Spec("a spawning thread ended unexpectedly".into())),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        laps.sort_unstable_by_key(|lap| lap.start);
        Ok(laps)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for member in &mut self.threads {
            member.jobs = None;
        }
        for member in &mut self.threads {
            if let Some(handle) = member.handle.take() {
                let _ = handle.join();
            }
        }
    }
}

fn work(worker: &mut dyn Worker, job: &Job) -> Result<Vec<Lap>, Error> {
    let mut laps = Vec::with_capacity(job.left.load(Ordering::Relaxed));
    let mut outcome = Ok(());
    for _ in 0..job.settle {
        outcome = outcome.and_then(|()| worker.spawn().map(drop));
    }
    // Reached by every thread, also one that failed, or the others would wait for ever.
    job.start.wait();
    outcome?;
    loop {
        let taken = job.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_err() {
            return Ok(laps);
        }
        laps.push(worker.spawn()?);
    }
}
