//! Names stacks on a thread of its own. Reading the symbols of a compiler's libraries takes
//! seconds, but the thread that empties the kernel's ring must be back within milliseconds. Nothing
//! here looks at processes: a [`Sighting`] holds all that is needed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::creation::Place;
use crate::stack::{Frame, Sighting};

/// Stacks that wait for their names or to be taken back, each of some 8 KiB.
pub(super) const MAX_UNNAMED: usize = 1024;

/// A place, its frames, and the pages or creations that the stack stands for.
pub(super) type Named = (Place, Vec<Frame>, u64);

/// The thread, and the stacks on their way to it and back. Dropping it waits for the stack being
/// named, unless that was given up.
#[derive(Debug)]
pub(super) struct Naming {
    to_name: Option<Sender<Sighting>>,
    named: Receiver<Named>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    waiting: usize,
    left_out: u64,
    longest: Duration,
    /// It reads a file that does not answer, as one of a file system in user space may.
    is_stuck: bool,
}

/// How long one stack may take at the end of a watch.
const LONGEST: Duration = Duration::from_secs(60);

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
                    || names.send((sighting.place(), frames(&sighting), sighting.stands_for())).is_err()
                {
                    return;
                }
            }
        })?;
        let (to_name, thread) = (Some(to_name), Some(thread));
        let (waiting, left_out, longest, is_stuck) = (0, 0, LONGEST, false);
        Ok(Self { to_name, named, thread, stop, waiting, left_out, longest, is_stuck })
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
        // It may come after it was given up.
        self.waiting = self.waiting.saturating_sub(1);
        Some(named)
    }

    /// The next stack, waiting for its names; `None` if none is on its way.
    pub(super) fn next(&mut self) -> Option<Named> {
        if self.waiting == 0 {
            return None;
        }
        match self.named.recv_timeout(self.longest) {
            Ok(named) => {
                self.waiting -= 1;
                Some(named)
            }
            // A parser that panicked on a file has ended the thread.
            Err(why) => {
                self.is_stuck |= why == RecvTimeoutError::Timeout;
                self.left_out += self.waiting as u64;
                self.waiting = 0;
                None
            }
        }
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
        if let Some(thread) = self.thread.take().filter(|_| !self.is_stuck) {
            // Its panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::StackTop;
    use crate::stack::Unwinder;

    #[test]
    fn a_file_that_never_answers_is_given_up() {
        let (open, gate) = mpsc::channel::<()>();
        let reads = move |_: &Sighting| {
            let _ = gate.recv();
            Vec::new()
        };
        let mut naming = Naming::start(reads).expect("a thread");
        naming.longest = Duration::from_millis(20);
        let ip = std::process::id as fn() -> u32 as usize as u64;
        let place = Place { pid: std::process::id(), nr: 56, ip, word: 0, image: 0 };
        let stack = StackTop::empty(place);
        naming.add(Unwinder::new().meet(stack).expect("we are there"));
        assert_eq!((naming.next(), naming.left_out()), (None, 1));
        // Without the gate's opening, too.
        drop(naming);
        drop(open);
    }
}
