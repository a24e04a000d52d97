//! Names stacks on a thread of its own. Reading the symbols of a compiler's libraries takes
//! seconds, but the thread that empties the kernel's ring must be back within milliseconds. Nothing
//! here looks at processes: a [`Sighting`] holds all that is needed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use crate::creation::Place;
use crate::stack::{Frame, Sighting};

/// Stacks that wait for their names or to be taken back, each of some 8 KiB.
pub(super) const MAX_UNNAMED: usize = 1024;

/// A place and its frames.
pub(super) type Named = (Place, Vec<Frame>);

/// The thread, and the stacks on their way to it and back. Dropping it waits for the stack being
/// named.
#[derive(Debug)]
pub(super) struct Naming {
    to_name: Option<Sender<Sighting>>,
    named: Receiver<Named>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    waiting: usize,
    left_out: u64,
}

impl Naming {
    /// Starts the thread, which calls `frames` for each stack.
    pub(super) fn start(frames: impl Fn(&Sighting) -> Vec<Frame> + Send + 'static) -> io::Result<Self> {
        let (to_name, sightings) = mpsc::channel::<Sighting>();
        let (names, named) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("naming".to_owned()).spawn(move || {
            for sighting in sightings {
                if stopped.load(Ordering::Relaxed)
                    || names.send((sighting.site(), frames(&sighting))).is_err()
                {
                    return;
                }
            }
        })?;
        Ok(Self { to_name: Some(to_name), named, thread: Some(thread), stop, waiting: 0, left_out: 0 })
    }

    /// Hands a stack over. Never waits: if too many are on their way, it drops the stack and counts
    /// it.
    pub(super) fn add(&mut self, sighting: Sighting) {
        let taken = self.waiting < MAX_UNNAMED
            && self.to_name.as_ref().is_some_and(|to_name| to_name.send(sighting).is_ok());
        if taken {
            self.waiting += 1;
        } else {
            self.left_out += 1;
        }
    }

    /// A stack that already has its names.
    pub(super) fn ready(&mut self) -> Option<Named> {
        let named = self.named.try_recv().ok()?;
        self.waiting -= 1;
        Some(named)
    }

    /// The next stack, waiting for its names; `None` if none is on its way.
    pub(super) fn next(&mut self) -> Option<Named> {
        if self.waiting == 0 {
            return None;
        }
        let Ok(named) = self.named.recv() else {
            // A parser panicked on a file, which ended the thread.
            self.left_out += self.waiting as u64;
            self.waiting = 0;
            return None;
        };
        self.waiting -= 1;
        Some(named)
    }

    /// Stacks that got no names for want of room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Drop for Naming {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.to_name = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was printed when it happened.
            let _ = thread.join();
        }
    }
}
