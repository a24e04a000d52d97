//! The window in many schedules of threads, by shuttle.
//!
//! `FORKLESS_SCHEDULES=1000000 cargo test --release -p forkless-speculate --test window` tries
//! more.
//!
//! Shuttle and not loom: each side writes its own word and reads the other's, which only sequential
//! consistency makes right. Loom weakens such accesses to acquire and release; shuttle keeps them.

use std::env;
use std::sync::Arc;

use forkless_speculate::window::{Threads, Window, Word};
use shuttle::sync::atomic::{AtomicU32, Ordering::SeqCst};
use shuttle::thread;

struct Checked(AtomicU32);

impl Word for Checked {
    fn load(&self) -> u32 {
        self.0.load(SeqCst)
    }
    fn store(&self, value: u32) {
        self.0.store(value, SeqCst);
    }
    fn swap(&self, value: u32) -> u32 {
        self.0.swap(value, SeqCst)
    }
    fn add(&self, n: u32) {
        self.0.fetch_add(n, SeqCst);
    }
    fn sub(&self, n: u32) {
        self.0.fetch_sub(n, SeqCst);
    }
}

struct Several;

impl Threads for Several {
    fn wait(&self, _: u32) {
        thread::yield_now();
    }
    fn is_only_one(&self) -> bool {
        false
    }
}

/// A thousand turns.
fn turns() -> impl FnMut() -> bool {
    let mut left = 1000;
    move || {
        thread::yield_now();
        left -= 1;
        left > 0
    }
}

/// A window, and how many threads are in the midst of each kind of work.
struct Process {
    window: Window<Checked>,
    speculations: AtomicU32,
    /// 1 while a thread speculates whose window was open.
    has_child: AtomicU32,
    marked: AtomicU32,
    plain: AtomicU32,
    moves: AtomicU32,
}

impl Process {
    fn new() -> Arc<Process> {
        let word = || Checked(AtomicU32::new(0));
        Arc::new(Process {
            window: Window::of([word(), word(), word(), word()]),
            speculations: AtomicU32::new(0),
            has_child: AtomicU32::new(0),
            marked: AtomicU32::new(0),
            plain: AtomicU32::new(0),
            moves: AtomicU32::new(0),
        })
    }

    fn speculate(&self) {
        self.window.begin(&Several);
        assert_eq!(self.speculations.fetch_add(1, SeqCst), 0, "two speculations at once");
        // Two children.
        for _ in 0..2 {
            self.make_a_child();
        }
        self.has_child.store(0, SeqCst);
        self.speculations.fetch_sub(1, SeqCst);
        self.window.end();
    }

    fn make_a_child(&self) {
        if self.window.open(&Several, turns()).is_ok() {
            self.has_child.store(1, SeqCst);
            assert_eq!(self.marked.fetch_add(1, SeqCst), 0, "two windows at once");
            self.meets(&self.plain, "a plain fork in the window");
            self.meets(&self.moves, "a move in the window");
            self.marked.fetch_sub(1, SeqCst);
            self.window.close();
            thread::yield_now();
            // As a helper and the forking thread do.
            self.window.close();
        }
    }

    fn fork_plainly(&self) {
        self.window.begin_plain(&Several);
        self.plain_body();
        self.window.end_plain();
    }

    fn plain_body(&self) {
        self.plain.fetch_add(1, SeqCst);
        self.meets(&self.marked, "a plain fork while memory is marked");
        self.plain.fetch_sub(1, SeqCst);
    }

    fn make_a_move(&self) {
        self.window.outside(&Several, || {
            self.moves.fetch_add(1, SeqCst);
            self.meets(&self.marked, "a move while memory is marked");
            self.meets(&self.has_child, "a move beside a child");
            self.moves.fetch_sub(1, SeqCst);
        });
    }

    fn make_a_change(&self) {
        self.window.begin_change(&Several);
        self.moves.fetch_add(1, SeqCst);
        self.meets(&self.marked, "a change while memory is marked");
        self.moves.fetch_sub(1, SeqCst);
        self.window.end_move();
    }

    fn meets(&self, others: &AtomicU32, which: &str) {
        assert_eq!(others.load(SeqCst), 0, "{which}");
        thread::yield_now();
        assert_eq!(others.load(SeqCst), 0, "{which}");
    }
}

type Work = fn(&Process);

fn together(work: &'static [Work]) {
    let process = Process::new();
    let threads: Vec<_> = work
        .iter()
        .map(|work| {
            let process = Arc::clone(&process);
            thread::spawn(move || {
                work(&process);
                work(&process);
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

/// Random schedules, and those of few preemptions (PCT), which find rare orders sooner.
fn in_many_schedules(work: &'static [Work]) {
    let schedules = env::var("FORKLESS_SCHEDULES").ok().map_or(400, |n| n.parse().expect("a number"));
    shuttle::check_random(move || together(work), schedules);
    shuttle::check_pct(move || together(work), schedules, 3);
}

#[test]
fn nothing_forks_plainly_while_memory_is_marked() {
    in_many_schedules(&[Process::speculate, Process::speculate, Process::fork_plainly]);
}

#[test]
fn nothing_moves_memory_while_it_is_marked() {
    in_many_schedules(&[Process::speculate, Process::speculate, Process::make_a_move]);
    in_many_schedules(&[Process::speculate, Process::speculate, Process::make_a_change]);
}

#[test]
fn speculations_plain_forks_and_moves_all_end() {
    in_many_schedules(&[
        Process::speculate,
        Process::fork_plainly,
        Process::make_a_move,
        Process::make_a_move,
    ]);
}

/// The check can fail: a fork that does not announce itself is found in the window.
#[test]
#[should_panic(expected = "a plain fork")]
fn a_plain_fork_that_does_not_wait_is_found() {
    in_many_schedules(&[Process::speculate, Process::plain_body]);
}
