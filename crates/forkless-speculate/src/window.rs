//! The window of a process: the time in which a speculation has memory marked `MADV_DONTFORK`.
//!
//! A child made in the window lacks the marked memory. A mapping that is marked in part lies in
//! several mappings. It cannot be moved or grow as one (EFAULT, mm/mremap.c). A mapping that moves
//! takes its mark along. A mapping that comes beside a marked one does not join it. Once both have
//! pages, they never do. So three kinds of work must never happen in the window:
//! - a **plain fork**, by any thread;
//! - a **move**: a call that moves memory, or marks memory for the program;
//! - a **change**: a call that lets a mapping join its neighbour.
//!
//! A speculation lasts longer than its window: marks are needed for the clone alone. It opens the
//! window once more for a second child. From [`Window::begin`] to [`Window::end`]
//! - other speculations wait, for the tables of speculations are the process's;
//! - moves wait as well: an undone child is replaced later, and the replacement must not lack what
//!   the first child had.
//!
//! ```text
//!              open: Ok                       close
//!   closed ──────────────▶ open, memory marked ──────▶ closed
//!     │  ▲
//!     │  └─ open: Busy (a plain fork is under way, or a move did not end in time)
//!     │
//!     ├── begin_plain ──▶ closed, n plain forks ── end_plain ──▶ closed
//!     └── begin_move, ──▶ closed, n moves ─────── end_move ────▶ closed
//!         begin_change    or changes
//! ```
//!
//! | state | `open` | `begin_plain` | `begin_move` | `begin_change` |
//! |---|---|---|---|---|
//! | closed, nobody speculates | (`begin` goes on) | goes on | goes on | goes on |
//! | closed, a thread speculates | opens; another thread waits in `begin` | goes on | waits for `end` | goes on |
//! | open | (another thread waits in `begin`) | counts itself, waits for `close` | waits for `end`, then counts itself | waits for `close`, then counts itself |
//! | plain forks under way | `Busy`, unless there is one thread | goes on | goes on | goes on |
//! | moves or changes under way | waits a while, then `Busy`, unless there is one thread | goes on | goes on | goes on |
//!
//! The locks that a thread may hold decide which thread waits for which:
//! - A thread that begins a speculation is inside libc's fork, and holds libc's locks. It never
//!   waits for a plain fork, which may wait for those locks. It gives up.
//! - A plain fork waits for the window before libc's fork takes any lock.
//! - A move or a change holds no lock that a fork takes. So `open` waits for it, though not for
//!   ever: this may be a fork in a signal handler, in the midst of such a call.
//!
//! A handler that jumps out of a plain fork, a move or a change leaves it counted. A process with
//! one thread has nobody to wait for, so it ignores the counts.
//!
//! Each side writes its own word and then reads the other's, so every access is sequentially
//! consistent. A copy of the memory (a forked child) has none of the threads that were counted:
//! [`Window::reset`].

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A shared number. Every access is sequentially consistent.
///
/// A trait, so that tests can put a model checker's atomics in the place of the real ones.
pub trait Word {
    /// Reads the number.
    fn load(&self) -> u32;
    /// Writes the number.
    fn store(&self, value: u32);
    /// Writes the number, and returns the number before.
    fn swap(&self, value: u32) -> u32;
    /// Adds to the number.
    fn add(&self, n: u32);
    /// Subtracts from the number.
    fn sub(&self, n: u32);
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load(&self) -> u32 {
        AtomicU32::load(self, SeqCst)
    }

    #[inline(always)]
    fn store(&self, value: u32) {
        AtomicU32::store(self, value, SeqCst);
    }

    #[inline(always)]
    fn swap(&self, value: u32) -> u32 {
        AtomicU32::swap(self, value, SeqCst)
    }

    #[inline(always)]
    fn add(&self, n: u32) {
        self.fetch_add(n, SeqCst);
    }

    #[inline(always)]
    fn sub(&self, n: u32) {
        self.fetch_sub(n, SeqCst);
    }
}

/// The process's threads, as far as the window needs them.
pub trait Threads {
    /// Lets other threads run. `turn`: how often the caller has waited for the same before.
    fn wait(&self, turn: u32);
    /// Whether the calling thread is the only one.
    fn is_only_one(&self) -> bool;
}

/// Another thread is in the midst of a plain fork, or of a move that does not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

/// The window of a process, with the counts of the work that must not happen in it.
pub struct Window<W = AtomicU32> {
    /// 1: a thread speculates.
    turn: W,
    /// 1: a thread is between MADV_DONTFORK and MADV_DOFORK.
    open: W,
    /// Plain forks under way.
    plain: W,
    /// Moves and changes under way.
    moves: W,
}

impl Window {
    /// A closed window.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Window {
        Window {
            turn: AtomicU32::new(0),
            open: AtomicU32::new(0),
            plain: AtomicU32::new(0),
            moves: AtomicU32::new(0),
        }
    }
}

impl<W: Word> Window<W> {
    /// A window of four words, all 0.
    pub fn of([turn, open, plain, moves]: [W; 4]) -> Window<W> {
        Window { turn, open, plain, moves }
    }

    /// A speculation begins. Waits until another one has ended.
    pub fn begin(&self, threads: &impl Threads) {
        wait_while(threads, || self.turn.swap(1) != 0);
    }

    /// Opens the window: memory may be marked. Between [`Window::begin`] and [`Window::end`], where
    /// it is closed; for each child of a speculation anew. `turn` lets other threads run, and tells
    /// whether to wait on for a move.
    pub fn open(&self, threads: &impl Threads, mut turn: impl FnMut() -> bool) -> Result<(), Busy> {
        self.open.store(1);
        let mut waits_on = true;
        while self.moves.load() != 0 && waits_on {
            waits_on = turn();
        }
        if (self.plain.load() != 0 || !waits_on) && !threads.is_only_one() {
            self.close();
            return Err(Busy);
        }
        Ok(())
    }

    /// Closes the window: all marks have been taken back. Before [`Window::end`], more than once if
    /// need be, by whatever thread.
    pub fn close(&self) {
        self.open.store(0);
    }

    /// The speculation has ended, and its window is closed. The next one may begin.
    pub fn end(&self) {
        self.turn.store(0);
    }

    /// A plain fork begins: no window is opened until [`Window::end_plain`]. Waits for an open one.
    pub fn begin_plain(&self, threads: &impl Threads) {
        self.plain.add(1);
        self.until_closed(threads);
    }

    /// A plain fork has ended.
    pub fn end_plain(&self) {
        self.plain.sub(1);
    }

    /// Makes a move: a call that moves or marks memory, never while a thread speculates.
    pub fn outside<T>(&self, threads: &impl Threads, call: impl FnOnce() -> T) -> T {
        self.begin_move(threads);
        let result = call();
        self.end_move();
        result
    }

    /// A move begins. Waits while a thread speculates.
    pub fn begin_move(&self, threads: &impl Threads) {
        self.count_while_clear(threads, &self.turn);
    }

    /// A change begins. Waits for an open window. It ends with [`Window::end_move`].
    pub fn begin_change(&self, threads: &impl Threads) {
        self.count_while_clear(threads, &self.open);
    }

    fn count_while_clear(&self, threads: &impl Threads, taken: &W) {
        loop {
            self.moves.add(1);
            if taken.load() == 0 {
                break;
            }
            // Not counted while it waits: the thread that speculates may be waiting for moves to
            // end.
            self.moves.sub(1);
            wait_while(threads, || taken.load() != 0);
        }
    }

    /// A move or a change has ended.
    pub fn end_move(&self) {
        self.moves.sub(1);
    }

    /// In a copy of another process's memory: threads that were in the midst of something are not
    /// here. Written only where needed: a page that a child writes is copied for it.
    pub fn reset(&self) {
        for word in [&self.turn, &self.open, &self.plain, &self.moves] {
            if word.load() != 0 {
                word.store(0);
            }
        }
    }

    fn until_closed(&self, threads: &impl Threads) {
        wait_while(threads, || self.open.load() != 0);
    }
}

fn wait_while(threads: &impl Threads, mut is_so: impl FnMut() -> bool) {
    let mut turn: u32 = 0;
    while is_so() {
        threads.wait(turn);
        turn = turn.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Only(bool);

    impl Threads for Only {
        fn wait(&self, _: u32) {}
        fn is_only_one(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn a_plain_fork_under_way_makes_a_speculation_give_up() {
        let window = Window::new();
        window.begin_plain(&Only(false));
        assert_eq!(window.open(&Only(false), || false), Err(Busy));
        window.end_plain();
        assert_eq!(window.open(&Only(false), || false), Ok(()));
    }

    #[test]
    fn what_a_jump_left_counted_is_ignored_by_the_only_thread() {
        let window = Window::new();
        window.begin_plain(&Only(true));
        window.outside(&Only(true), || assert_eq!(window.open(&Only(true), || false), Ok(())));
    }

    #[test]
    fn a_move_that_does_not_end_makes_a_speculation_give_up() {
        let window = Window::new();
        let opened = window.outside(&Only(false), || window.open(&Only(false), || false));
        assert_eq!(opened, Err(Busy));
        // And the window is closed again, so the next one is not waited for.
        assert_eq!(window.open(&Only(false), || false), Ok(()));
    }

    #[test]
    fn a_copy_begins_with_a_closed_window() {
        let window = Window::new();
        window.begin_plain(&Only(false));
        window.open(&Only(true), || false).expect("one thread");
        window.reset();
        assert_eq!(window.open(&Only(false), || false), Ok(()));
    }
}
