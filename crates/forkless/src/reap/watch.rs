//! Waiting for the ends of many children at once, on a thread that exists while there are any.
//!
//! The descriptors are in the table of the reaping threads, which is not the program's. So nothing
//! of this may be dropped by another thread.

use super::orphan::Orphan;
use super::wakeup::wakeup;
use crate::kernel::descriptor::owned;
use crate::kernel::thread;
use forkless_sys::Errno;
use forkless_sys::poll::{self, EpollEvent};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Children being waited for.
pub(super) struct Watch(Arc<Shared>);

struct Shared {
    epoll: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the number of the pidfd.
    watched: HashMap<i32, (Orphan, OwnedFd)>,
    /// Children that have to be looked at instead.
    given_back: Vec<Orphan>,
    /// The thread exists, or is being made.
    attended: bool,
    /// The kernel or a filter refuses to wait.
    broken: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// `None` where epoll is refused. The calling thread's table is not the program's.
    pub(super) fn new() -> Option<Watch> {
        let epoll = owned(poll::epoll_create().ok()?);
        Some(Watch(Arc::new(Shared { epoll, state: Mutex::default() })))
    }

    /// Has the child waited for; returns it where that is refused.
    pub(super) fn add(&self, o: Orphan) -> Option<Orphan> {
        let pidfd = match o.pidfd() {
            Ok(pidfd) => pidfd,
            // Reaped by others.
            Err(Errno::ESRCH) => return None,
            Err(_) => return Some(o),
        };
        let mut state = self.0.lock();
        let number = pidfd.as_raw_fd();
        if state.broken || poll::epoll_add(self.0.epoll.as_raw_fd(), number, number as u64).is_err() {
            return Some(o);
        }
        state.watched.insert(number, (o, pidfd));
        if std::mem::replace(&mut state.attended, true) {
            return None;
        }
        // Not under the lock: see `thread.rs`.
        drop(state);
        let shared = Arc::clone(&self.0);
        if thread::start("forkless-watch", thread::SMALL_STACK, move || shared.attend()).is_err() {
            let mut state = self.0.lock();
            state.attended = false;
            state.give_up();
        }
        None
    }

    /// Children that are no longer watched and have not been reaped.
    pub(super) fn given_back(&self) -> Vec<Orphan> {
        std::mem::take(&mut self.0.lock().given_back)
    }

    /// Nothing is watched, and nothing is to be given back.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.watched.is_empty() && state.given_back.is_empty() && !state.attended
    }

    pub(super) fn is_broken(&self) -> bool {
        self.0.lock().broken
    }
}

impl State {
    fn give_up(&mut self) {
        self.broken = true;
        let all = std::mem::take(&mut self.watched);
        self.given_back.extend(all.into_values().map(|(o, _)| o));
    }
}

impl Shared {
    /// The thread: until nothing is watched.
    fn attend(&self) {
        const NONE: EpollEvent = EpollEvent { events: 0, data: 0 };
        let mut events = [NONE; 64];
        loop {
            let count = poll::epoll_wait(self.epoll.as_raw_fd(), &mut events);
            let mut state = self.lock();
            match count {
                Ok(count) => {
                    for event in &events[..count.min(events.len())] {
                        state.look(event.data as i32);
                    }
                }
                Err(Errno::EINTR) => {}
                // A filter that was installed later refuses it.
                Err(_) => state.give_up(),
            }
            let news = state.watched.is_empty() || !state.given_back.is_empty();
            let over = state.watched.is_empty();
            if over {
                // Under the lock, so that the next child finds a thread or makes one.
                state.attended = false;
            }
            drop(state);
            if news {
                wakeup().raise();
            }
            if over {
                return;
            }
        }
    }
}

impl State {
    /// Reaps a child whose pidfd is ready.
    fn look(&mut self, number: i32) {
        let Some((o, pidfd)) = self.watched.remove(&number) else { return };
        // A traced child is ready before it can be waited for, since its tracer comes first. It
        // would stay ready.
        if o.reap(Some(&pidfd)) == Some(false) {
            self.given_back.push(o);
        }
    }
}
