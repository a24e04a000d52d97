//! Resident memory of a call site: memory that is left to the kernel, because children made there
//! need it.
//!
//! Leaving a range to the kernel costs each fork 2 us and 80 ns a page. It costs the parent a fault
//! for each page that the parent writes afterwards. Fetching a range costs a child 11 us a cluster.
//! So leaving pays only for memory that nearly every child touches. The kernel does not tell
//! whether a child touched such memory. So a range has to be withheld once to find out (decision
//! 29). A new range is withheld soon after it was first left. A range that was touched then is
//! sure, and only a piece of it is withheld now and then.
//!
//! ```text
//!             a child fetched it       the next child        the one after
//!   unknown ────────────────────▶ new ──────────────▶ tried ──fetched it──▶ sure
//!                                 left               withheld               left, a piece withheld
//!                                                        │ did not          now and then
//!                                                        ▼                      │ did not fetch it
//!                                                     forgotten ◀───────────────┘
//! ```
//!
//! The ranges that an undone child fetched are sure at once, or the next child would be undone as
//! well. Beside threads all ranges are sure at once, for each fetch costs a second child (`late`).

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Ranges left to the kernel at a site.
pub const MAX: usize = 160;
/// Ranges closer together than this are joined. Each range splits a mapping. A split and its
/// undoing cost about 2 us, and copying a page table entry 25 ns.
const GAP: usize = 512 << 10;
/// Bytes withheld at once of a sure range: eight clusters, 90 us for a child that needs them all.
const PIECE: usize = 512 << 10;
/// Forks between two such pieces, at first and at most. Each piece that was needed doubles them.
/// After a piece that was not needed the next one follows at once.
const SOON: u32 = 16;
const SELDOM: u32 = 256;
/// The same where a child that fetches is undone: each piece that was needed costs a second child.
const SOON_EXACT: u32 = 256;
const SELDOM_EXACT: u32 = 4096;
/// Beside threads a range that grows grows ahead of what was touched, by so many bytes at most: an
/// allocator goes through its memory in one direction, and each step would cost a second child.
const AHEAD: usize = 1 << 20;
/// What a second child costs, in nanoseconds. While the kernel copies all ranges for less, no piece
/// of them is withheld from a child that is undone for it.
const SECOND_CHILD: usize = 500_000;
/// What the kernel takes for a range and for a page of it, in nanoseconds.
const A_RANGE: usize = 2000;
const A_PAGE: usize = 80;

// In the low bits of a start, which is a page's: the range's state.

/// One child has touched the range. It is left for the next.
const NEW: usize = 0;
/// It was left for that child, and is withheld from the child after.
const TRIED: usize = 1;
/// That child touched it too, or a child was undone that had touched it.
const SURE: usize = 2;
const STATE: usize = 3;

/// The ranges left at one call site, in no particular order. All zeros at first.
///
/// The caller counts the forks of the whole process (`now`). The page of its count is written at
/// each fork anyway, a site's page seldom.
pub struct Resident {
    len: AtomicUsize,
    start: [AtomicUsize; MAX],
    end: [AtomicUsize; MAX],
    /// The piece withheld from the child that is being made, empty for most.
    piece: (AtomicUsize, AtomicUsize),
    /// Where the search for the next piece begins.
    next: AtomicUsize,
    /// No piece is withheld before this fork.
    due: AtomicU32,
    /// Forks between the last two pieces.
    pause: AtomicU32,
}

/// What is withheld of the resident memory of a site to find out whether children need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trials {
    /// New ranges after their first child, and pieces of the others now and then.
    Usual,
    /// Pieces, seldom: a child that fetches is undone.
    Rare,
    /// Nothing: this is the second child.
    None,
}

/// How the child ended of which a site learns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lesson {
    /// The child came to its exec, so what it did not touch it did not need.
    pub came_to_exec: bool,
    /// What was withheld when the child was made.
    pub trials: Trials,
}

#[derive(Clone, Copy)]
struct Range {
    start: usize,
    end: usize,
    state: usize,
}

impl Range {
    fn touches(self, start: usize, end: usize) -> bool {
        start < self.end && self.start < end
    }

    fn is_near(self, other: Range) -> bool {
        other.start <= self.end.saturating_add(GAP) && self.start <= other.end.saturating_add(GAP)
    }

    fn with(self, other: Range) -> Range {
        Range { start: self.start.min(other.start), end: self.end.max(other.end), ..self }
    }
}

impl Resident {
    /// The resident memory of a site without forks.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Resident {
        Resident {
            len: AtomicUsize::new(0),
            start: [const { AtomicUsize::new(0) }; MAX],
            end: [const { AtomicUsize::new(0) }; MAX],
            piece: (AtomicUsize::new(0), AtomicUsize::new(0)),
            next: AtomicUsize::new(0),
            due: AtomicU32::new(0),
            pause: AtomicU32::new(0),
        }
    }

    fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    fn get(&self, i: usize) -> Range {
        let start = self.start[i].load(Relaxed);
        Range { start: start & !STATE, end: self.end[i].load(Relaxed), state: start & STATE }
    }

    fn set(&self, i: usize, range: Range) {
        self.start[i].store(range.start | range.state, Relaxed);
        self.end[i].store(range.end, Relaxed);
    }

    fn iter(&self) -> impl Iterator<Item = Range> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Whether there was room.
    fn push(&self, range: Range) -> bool {
        let n = self.len();
        if n == MAX {
            return false;
        }
        self.set(n, range);
        self.len.store(n + 1, Relaxed);
        true
    }

    fn remove(&self, i: usize) {
        let last = self.len() - 1;
        self.set(i, self.get(last));
        self.len.store(last, Relaxed);
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> usize {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// Forgets all ranges.
    pub fn forget(&self) {
        self.len.store(0, Relaxed);
    }

    /// Before the `now`th fork of the process: calls `each` for every range that is left to the
    /// kernel. The rest is withheld.
    pub fn each(&self, now: u32, trials: Trials, mut each: impl FnMut(usize, usize)) {
        let (from, to) = self.choose_piece(now, trials);
        for range in self.iter() {
            match range.state {
                TRIED if trials == Trials::Usual => {}
                SURE if range.touches(from, to) => {
                    each(range.start, from);
                    each(to, range.end);
                }
                _ => each(range.start, range.end),
            }
        }
    }

    /// Chooses the next piece of the sure ranges if one is due: going up, and from the lowest
    /// again.
    fn choose_piece(&self, now: u32, trials: Trials) -> (usize, usize) {
        let mut piece = (0, 0);
        let pays = match trials {
            Trials::Usual => true,
            Trials::Rare => self.len() * A_RANGE + self.bytes() / 4096 * A_PAGE > SECOND_CHILD,
            Trials::None => false,
        };
        if pays && now.wrapping_sub(self.due.load(Relaxed)).cast_signed() >= 0 {
            let above = |at| self.iter().filter(|r| r.state == SURE && r.end > at).min_by_key(|r| r.start);
            let next = self.next.load(Relaxed);
            if let Some(range) = above(next).or_else(|| above(0)) {
                let from = if range.end > next { range.start.max(next) } else { range.start };
                piece = (from, range.end.min(from.saturating_add(PIECE)));
                self.next.store(piece.1, Relaxed);
            }
        }
        if piece != self.piece() {
            self.piece.0.store(piece.0, Relaxed);
            self.piece.1.store(piece.1, Relaxed);
        }
        piece
    }

    fn piece(&self) -> (usize, usize) {
        (self.piece.0.load(Relaxed), self.piece.1.load(Relaxed))
    }

    /// No piece is withheld for so many forks.
    fn wait(&self, now: u32, forks: u32) {
        self.due.store(now.wrapping_add(forks), Relaxed);
    }

    /// Learns which ranges the child of the `now`th fork fetched.
    pub fn learn(&self, now: u32, fetched: impl Iterator<Item = (usize, usize)> + Clone, lesson: Lesson) {
        let Lesson { came_to_exec, trials } = lesson;
        if trials != Trials::None {
            self.judge_piece(now, fetched.clone(), lesson);
        }
        if trials == Trials::Usual {
            self.judge_tried(now, fetched.clone(), came_to_exec);
        } else if self.bytes() == 0 {
            // The first ranges of a site are no reason to withhold them again at once.
            self.wait(now, SOON_EXACT);
        }
        let state = if came_to_exec && trials == Trials::Usual { NEW } else { SURE };
        let ahead = if trials == Trials::Usual { 0 } else { AHEAD };
        for (start, end) in fetched {
            self.add(Range { start, end, state }, ahead);
        }
    }

    fn judge_piece(&self, now: u32, mut fetched: impl Iterator<Item = (usize, usize)>, lesson: Lesson) {
        let (start, end) = self.piece();
        let piece = Range { start, end, state: SURE };
        if end == 0 {
            return;
        }
        if fetched.any(|(start, end)| piece.touches(start, end)) {
            let (soon, seldom) = match lesson.trials {
                Trials::Usual => (SOON, SELDOM),
                _ => (SOON_EXACT, SELDOM_EXACT),
            };
            let pause = (self.pause.load(Relaxed) * 2).clamp(soon, seldom);
            self.pause.store(pause, Relaxed);
            self.wait(now, pause);
        } else if lesson.came_to_exec {
            self.pause.store(0, Relaxed);
            self.cut(piece);
        }
    }

    fn cut(&self, piece: Range) {
        let whole = |r: &Range| r.state == SURE && r.start <= piece.start && piece.end <= r.end;
        let Some(i) = (0..self.len()).find(|i| whole(&self.get(*i))) else { return };
        let range = self.get(i);
        let (below, above) = (Range { end: piece.start, ..range }, Range { start: piece.end, ..range });
        match (below.start < below.end, above.start < above.end) {
            (false, false) => self.remove(i),
            (true, false) => self.set(i, below),
            (false, true) => self.set(i, above),
            (true, true) if self.push(above) => self.set(i, below),
            (true, true) => {}
        }
    }

    /// Withheld ranges stay if the child has touched them, and new ranges are withheld next.
    fn judge_tried(&self, now: u32, fetched: impl Iterator<Item = (usize, usize)> + Clone, committed: bool) {
        let mut some_are_sure = false;
        // Downwards: a removal moves the last one down.
        for i in (0..self.len()).rev() {
            let range = self.get(i);
            if range.state == NEW {
                self.set(i, Range { state: TRIED, ..range });
            }
            if range.state != TRIED {
                continue;
            }
            let touched = fetched.clone().filter(|&(start, end)| range.touches(start, end));
            let touched = touched.map(|(start, end)| Range { start, end, state: SURE });
            if let Some(touched) = touched.reduce(Range::with) {
                self.set(i, touched);
                some_are_sure = true;
            } else if committed {
                self.remove(i);
            }
        }
        if some_are_sure {
            self.join();
            self.wait(now, self.pause.load(Relaxed).max(SOON));
        }
    }

    /// Sure ranges that are near each other become one.
    fn join(&self) {
        let mut i = 0;
        while i < self.len() {
            let range = self.get(i);
            let near = |j: &usize| *j != i && self.get(*j).state == SURE && range.is_near(self.get(*j));
            match (0..self.len()).find(near) {
                Some(j) if range.state == SURE => {
                    self.set(i.min(j), range.with(self.get(j)));
                    self.remove(i.max(j));
                    i = 0;
                }
                _ => i += 1,
            }
        }
    }

    /// Adds a range, to another one if it is near. That one then grows by as much as it has in the
    /// same direction, `ahead` bytes at most.
    fn add(&self, new: Range, ahead: usize) {
        if self.iter().any(|r| r.start <= new.start && new.end <= r.end) {
            return;
        }
        match (0..self.len()).find(|i| self.get(*i).state == new.state && self.get(*i).is_near(new)) {
            Some(i) => {
                let known = self.get(i);
                let mut range = known.with(new);
                let more = (range.end - range.start).min(ahead);
                if new.start < known.start {
                    range.start = range.start.saturating_sub(more);
                }
                if new.end > known.end {
                    range.end = range.end.saturating_add(more);
                }
                self.set(i, range);
            }
            None if self.push(new) => {}
            // Without room, the next children fetch it. A child that is undone for a fetch needs
            // what was touched last more than what any other child ever touched.
            None if new.state == SURE => self.set((new.start >> 16) % MAX, new),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use forkless_sys::mm::PAGE;
    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1 << 20;

    /// A site, and the forks made there.
    struct Forks {
        site: Resident,
        now: u32,
        trials: Trials,
    }

    impl Forks {
        fn new() -> Forks {
            Forks { site: Resident::new(), now: 0, trials: Trials::Usual }
        }

        /// Beside threads.
        fn exact() -> Forks {
            Forks { trials: Trials::Rare, ..Forks::new() }
        }

        /// The ranges that are left to the kernel in the next fork.
        fn left(&mut self) -> Vec<(usize, usize)> {
            self.now += 1;
            let mut left = Vec::new();
            self.site.each(self.now, self.trials, |start, end| left.push((start, end)));
            left.retain(|(start, end)| start < end);
            left
        }

        fn learn(&mut self, fetched: &[(usize, usize)], came_to_exec: bool) {
            let lesson = Lesson { came_to_exec, trials: self.trials };
            self.site.learn(self.now, fetched.iter().copied(), lesson);
        }

        /// A child that touches these clusters, and fetches those that are not left. Returns the
        /// fetched clusters.
        fn child(&mut self, touches: &[(usize, usize)]) -> Vec<(usize, usize)> {
            let left = self.left();
            let is_left = |at: usize| left.iter().any(|&(s, e)| s <= at && at < e);
            let fetched: Vec<_> = touches.iter().copied().filter(|&(start, _)| !is_left(start)).collect();
            self.learn(&fetched, true);
            fetched
        }
    }

    #[test]
    fn memory_that_every_child_touches_is_fetched_twice_and_then_in_trials_only() {
        let mut forks = Forks::new();
        let memory = [(8 * MIB, 8 * MIB + 16 * PAGE)];
        let fetched: Vec<bool> = (0..600).map(|_| !forks.child(&memory).is_empty()).collect();
        assert_eq!(fetched[..4], [true, false, true, false]);
        let trials: Vec<usize> = (4..600).filter(|i| fetched[*i]).collect();
        // Every 16 forks at first, and then after twice as many each time.
        assert_eq!(trials, [18, 34, 66, 130, 258, 514]);
    }

    #[test]
    fn memory_that_one_child_touched_is_forgotten_after_its_trial() {
        let mut forks = Forks::new();
        forks.child(&[(8 * MIB, 9 * MIB)]);
        assert_eq!(forks.left(), [(8 * MIB, 9 * MIB)]);
        forks.learn(&[], true);
        assert_eq!(forks.left(), []);
        forks.learn(&[], true);
        assert_eq!(forks.site.bytes(), 0);
    }

    #[test]
    fn what_an_undone_child_needed_is_sure_at_once() {
        let mut forks = Forks::new();
        forks.left();
        forks.learn(&[(8 * MIB, 8 * MIB + PAGE)], false);
        // Enough forks for a new range to be forgotten.
        for _ in 0..3 {
            assert_eq!(forks.site.bytes(), PAGE);
            forks.left();
            // Undone children prove nothing about memory that they did not touch.
            forks.learn(&[], false);
        }
    }

    #[test]
    fn a_piece_that_is_no_longer_touched_is_cut_out() {
        let mut forks = Forks::new();
        forks.left();
        forks.learn(&[(16 * MIB, 18 * MIB)], false);
        let mut forks_needed = 0;
        while forks.site.bytes() > 0 {
            forks.child(&[]);
            forks_needed += 1;
            assert!(forks_needed < 1000, "{} bytes are left for ever", forks.site.bytes());
        }
    }

    #[test]
    fn beside_threads_what_was_fetched_once_stays_while_it_costs_less_than_a_second_child() {
        let mut forks = Forks::exact();
        forks.child(&[(8 * MIB, 9 * MIB), (64 * MIB, 65 * MIB)]);
        for _ in 0..10_000 {
            assert_eq!(forks.child(&[(8 * MIB, 9 * MIB)]), []);
        }
        assert_eq!(forks.site.bytes(), 2 * MIB);
    }

    #[test]
    fn beside_threads_pieces_of_much_memory_are_withheld_seldom() {
        let mut forks = Forks::exact();
        let memory: Vec<_> = (8..40).map(|i| (i * MIB, (i + 1) * MIB)).collect();
        assert_eq!(forks.child(&memory).len(), 32);
        // A child touches the first byte of each cluster.
        let clusters: Vec<_> = (128..640).map(|i| (i * 16 * PAGE, (i + 1) * 16 * PAGE)).collect();
        let undone = (0..10_000).filter(|_| !forks.child(&clusters).is_empty()).count();
        assert!((3..=8).contains(&undone), "{undone} of 10,000 forks needed a second child");
        // And what no child needs any more is found out.
        for _ in 0..20_000 {
            forks.child(&[]);
        }
        assert!(forks.site.bytes() < 26 * MIB, "{} bytes", forks.site.bytes());
    }

    #[test]
    fn beside_threads_memory_that_is_walked_through_is_kept_ahead() {
        let mut forks = Forks::exact();
        // 16 MiB, downwards.
        let undone = (0..256).rev().filter(|i| {
            let at = 64 * MIB + i * 16 * PAGE;
            !forks.child(&[(at, at + 16 * PAGE)]).is_empty()
        });
        let undone = undone.count();
        assert!(undone <= 24, "{undone} of 256");
    }

    #[test]
    fn from_a_second_child_nothing_is_withheld() {
        let mut forks = Forks::new();
        forks.child(&[(8 * MIB, 9 * MIB)]);
        forks.left();
        forks.learn(&[], false);
        // It is to be tried now.
        forks.trials = Trials::None;
        assert_eq!(forks.left(), [(8 * MIB, 9 * MIB)]);
        // And a second child that did not fetch it has proved nothing.
        forks.learn(&[(32 * MIB, 33 * MIB)], true);
        assert_eq!(forks.left(), [(8 * MIB, 9 * MIB), (32 * MIB, 33 * MIB)]);
    }

    #[test]
    fn where_there_is_no_room_the_last_fetch_takes_the_place_of_another() {
        let mut forks = Forks::exact();
        let all: Vec<_> = (0..MAX + 1).map(|i| (i * 4 * MIB, i * 4 * MIB + PAGE)).collect();
        forks.child(&all);
        let left = forks.left();
        assert_eq!(left.len(), MAX);
        assert!(left.contains(&all[MAX]));
    }

    fn ranges() -> impl Strategy<Value = Vec<(usize, usize)>> {
        let range =
            (0usize..4000, 1usize..64).prop_map(|(at, pages)| (at * 16 * PAGE, (at * 16 + pages) * PAGE));
        prop::collection::vec(range, 0..12)
    }

    proptest! {
        /// Whatever children touch: ranges stay in bounds and are whole pages. They lie within the
        /// memory that was ever fetched, together with the gaps that join it.
        #[test]
        fn no_more_is_left_than_was_touched_and_joined(
            history in prop::collection::vec((ranges(), any::<bool>()), 1..40)
        ) {
            let mut forks = Forks::new();
            let mut ever: Vec<(usize, usize)> = Vec::new();
            for (fetched, committed) in history {
                let left = forks.left();
                prop_assert!(left.len() <= MAX + 1);
                for &(start, end) in &left {
                    prop_assert!(start % PAGE == 0 && end % PAGE == 0);
                    let mut at = start;
                    // Every byte is touched, or lies less than a gap from a touched byte.
                    while at < end {
                        prop_assert!(ever.iter().any(|&(s, e)| s <= at + GAP && at <= e + GAP));
                        at += 16 * PAGE;
                    }
                }
                forks.learn(&fetched, committed);
                ever.extend(fetched);
            }
        }

        /// The memory that an undone child fetched is there for the next child, as far as there is
        /// room.
        #[test]
        fn the_child_after_an_undone_one_has_what_that_one_fetched(fetched in ranges()) {
            let mut forks = Forks::new();
            forks.left();
            forks.learn(&fetched, false);
            // No piece is withheld yet: a piece is due at once only for ranges that were sure
            // before.
            forks.site.due.store(1000, Relaxed);
            let left = forks.left();
            for (start, end) in fetched {
                prop_assert!(left.iter().any(|&(s, e)| s <= start && end <= e));
            }
        }
    }
}
