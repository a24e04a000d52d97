//! Which memory is left to the kernel at a call site, because children made there need it.
//!
//! Leaving a range costs each fork 2 us and 80 ns a page, and the parent a fault for each page that it writes afterwards; fetching one costs a
//! child 11 us a cluster. So it pays for what nearly every child touches, and for nothing else. What is left to the kernel is touched unseen, so
//! whether it still is can only be found out by withholding it once: each range soon after it was first kept, and of those that stood
//! this trial a piece now and then (decision 29).

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Ranges kept at a site.
pub(super) const MAX: usize = 48;
/// Ranges closer together than this are kept as one: each one splits a mapping, and copying a page table entry costs 25 ns where a
/// split and its undoing cost about 2 us.
const GAP: usize = 512 << 10;
/// What is withheld at once of a range that is known to be needed: eight clusters, 90 us for the child that needs them all.
const PIECE: usize = 512 << 10;
/// Forks between two such pieces: at first, and at most. Each piece that is needed doubles them, one that is not is followed by the next at once.
const SOON: u32 = 16;
const SELDOM: u32 = 256;

/// In the low bits of a start, which is a page's. One child has touched the range: it is there for the next.
const YOUNG: usize = 0;
/// It was there for that one, and is withheld from the one after.
const TRIED: usize = 1;
/// This one touched it too; or a child was undone that had touched it, and would be again.
const SURE: usize = 2;
const STATE: usize = 3;

/// In no particular order.
pub(super) struct Kept {
    len: AtomicUsize,
    start: [AtomicUsize; MAX],
    end: [AtomicUsize; MAX],
    /// The piece withheld from the child that is being made, empty for most.
    piece: (AtomicUsize, AtomicUsize),
    /// Where the next one begins to be looked for.
    next: AtomicUsize,
    /// Not before this fork; and the forks between the last two.
    due: AtomicU32,
    pause: AtomicU32,
}

/// Attempts of the process. Counted here and not at each site: its page is written at each fork anyway, a site's seldom.
static FORKS: AtomicU32 = AtomicU32::new(0);

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

impl Kept {
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

    /// Bytes in all of them.
    pub(super) fn bytes(&self) -> usize {
        self.iter().map(|range| range.end - range.start).sum()
    }

    pub(super) fn forget(&self) {
        self.len.store(0, Relaxed);
    }

    /// A child is about to be made: calls `each` for what is left to the kernel. The rest is withheld.
    pub(super) fn each(&self, mut each: impl FnMut(usize, usize)) {
        let (from, to) = self.choose_piece();
        for range in self.iter() {
            match range.state {
                TRIED => {}
                SURE if range.touches(from, to) => {
                    each(range.start, from);
                    each(to, range.end);
                }
                _ => each(range.start, range.end),
            }
        }
    }

    /// The next piece of those that are sure, upwards and round again, when it is time.
    fn choose_piece(&self) -> (usize, usize) {
        let now = FORKS.load(Relaxed).wrapping_add(1);
        FORKS.store(now, Relaxed);
        let mut piece = (0, 0);
        if now.wrapping_sub(self.due.load(Relaxed)).cast_signed() >= 0 {
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
    fn wait(&self, forks: u32) {
        self.due.store(FORKS.load(Relaxed).wrapping_add(forks), Relaxed);
    }

    /// What the child has fetched, and whether it executed a program, or was undone.
    pub(super) fn learn(&self, fetched: impl Iterator<Item = (usize, usize)> + Clone, committed: bool) {
        self.judge_piece(fetched.clone(), committed);
        self.judge_tried(fetched.clone(), committed);
        let state = if committed { YOUNG } else { SURE };
        for (start, end) in fetched {
            self.add(Range { start, end, state });
        }
    }

    fn judge_piece(&self, mut fetched: impl Iterator<Item = (usize, usize)>, committed: bool) {
        let (start, end) = self.piece();
        let piece = Range { start, end, state: SURE };
        if end == 0 {
            return;
        }
        if fetched.any(|(start, end)| piece.touches(start, end)) {
            let pause = (self.pause.load(Relaxed) * 2).clamp(SOON, SELDOM);
            self.pause.store(pause, Relaxed);
            self.wait(pause);
        } else if committed {
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

    /// Those that were withheld stay if the child has touched them, and those that were new are next.
    fn judge_tried(&self, fetched: impl Iterator<Item = (usize, usize)> + Clone, committed: bool) {
        let mut some_are_sure = false;
        // Downwards: a removal moves the last one down.
        for i in (0..self.len()).rev() {
            let range = self.get(i);
            if range.state == YOUNG {
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
            self.wait(self.pause.load(Relaxed).max(SOON));
        }
    }

    /// Those that are sure and near to each other become one.
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

    fn add(&self, new: Range) {
        if self.iter().any(|r| r.start <= new.start && new.end <= r.end) {
            return;
        }
        match (0..self.len()).find(|i| self.get(*i).state == new.state && self.get(*i).is_near(new)) {
            Some(i) => self.set(i, self.get(i).with(new)),
            // Where there is no room the next children fetch it.
            None => drop(self.push(new)),
        }
    }
}
