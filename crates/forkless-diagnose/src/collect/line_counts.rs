//! How many creations each of the user's lines makes at one place, by the callers that were read.

use serde::Serialize;

use crate::stack::Frame;

/// Different lines that are kept of one place.
const MAX_LINES: usize = 16;

/// The lines of one place's creations, and how many creations the readings of each stand for.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineCounts {
    own: Vec<(Vec<Frame>, u64)>,
    /// Lines of waits in functions of which no creation's own line is known.
    waits: Vec<(Vec<Frame>, u64)>,
    /// Those that had no room.
    others: u64,
    /// Those whose reading gave no line.
    unread: u64,
}

/// Whether `own` is a creation's own stack, in the function of the line `wait` of a wait.
fn is_own_of(own: &[Frame], wait: &Frame) -> bool {
    let is_same = |own: &Frame| !own.waits && (&own.function, &own.module) == (&wait.function, &wait.module);
    wait.waits && own.first().is_some_and(is_same)
}

/// One of the user's lines behind a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineShare {
    /// Function, file and line; or [`LineShare::NOT_KNOWN`].
    pub place: String,
    /// Its part of the finding's creations, by the callers that were to be read.
    pub share: f64,
}

impl LineShare {
    /// In place of a line, of all readings that failed.
    pub const NOT_KNOWN: &str = "not known";
}

impl LineCounts {
    /// Adds a reading; one without frames has failed.
    ///
    /// The line of a wait tells nothing that a creation's own line does not. It counts as the own
    /// line of its function, if that is known. Beside own lines of other functions it tells no
    /// line: left out, its creations would count as theirs.
    pub(crate) fn add(&mut self, frames: &[Frame], count: u64) {
        let Some(first) = frames.first() else {
            self.unread += count;
            return;
        };
        let mut count = count;
        let stacks = if first.waits {
            let of_function = self.own.iter_mut().filter(|(own, _)| is_own_of(own, first));
            if let Some((_, known)) = of_function.max_by_key(|(_, known)| *known) {
                *known += count;
                return;
            }
            &mut self.waits
        } else {
            let of_function =
                |(wait, _): &mut (Vec<Frame>, u64)| wait.first().is_some_and(|wait| is_own_of(frames, wait));
            count += self.waits.extract_if(.., of_function).map(|(_, waits)| waits).sum::<u64>();
            &mut self.own
        };
        if let Some((_, known)) = stacks.iter_mut().find(|(known, _)| known == frames) {
            *known += count;
        } else if stacks.len() < MAX_LINES {
            stacks.push((frames.to_vec(), count));
        } else {
            self.others += count;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (frames, count) in other.own.iter().chain(&other.waits) {
            self.add(frames, *count);
        }
        self.others += other.others;
        self.unread += other.unread;
    }

    /// The frames that were read most often. Frames with a line come first: later readings lack it
    /// where a compiler has optimized the function meanwhile.
    pub(crate) fn most(&self) -> &[Frame] {
        let with_line = |frames: &[Frame]| frames.first().is_some_and(|frame| frame.line.is_some());
        let most = self.stacks().iter().max_by_key(|(frames, count)| (with_line(frames), *count));
        most.map_or(&[], |(frames, _)| frames)
    }

    /// The stacks, each with the creations that it stands for: those of waits, if no other is
    /// known.
    pub(crate) fn stacks(&self) -> &[(Vec<Frame>, u64)] {
        if self.own.is_empty() { &self.waits } else { &self.own }
    }

    /// The lines with their shares, the most frequent first.
    pub(crate) fn shares(&self) -> Vec<LineShare> {
        let lines = self.each();
        let all = lines.iter().map(|(_, count)| count).sum::<u64>() + self.others + self.unread();
        let share = |(place, count)| LineShare { place, share: count as f64 / all as f64 };
        lines.into_iter().map(share).collect()
    }

    /// The creations whose readings told no line.
    pub(crate) fn unread(&self) -> u64 {
        let waits = if self.own.is_empty() { &[][..] } else { &self.waits };
        self.unread + waits.iter().map(|(_, count)| count).sum::<u64>()
    }

    /// The part of the readings that gave no line; 0 where no line is known.
    pub(crate) fn unread_share(&self) -> f64 {
        let read = self.stacks().iter().map(|(_, count)| count).sum::<u64>();
        if read == 0 { 0.0 } else { self.unread() as f64 / (read + self.others + self.unread()) as f64 }
    }

    /// The lines, the most frequent first, each with the creations that it stands for. A stack may
    /// stand for none: the 128th of a place, which is read whether or not it is drawn.
    pub(crate) fn each(&self) -> Vec<(String, u64)> {
        let mut lines: Vec<(String, u64)> = Vec::new();
        for (frames, count) in self.stacks().iter().filter(|(_, count)| *count > 0) {
            let Some(line) = frames.first().map(ToString::to_string) else { continue };
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, known)) => *known += count,
                None => lines.push((line, *count)),
            }
        }
        lines.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_known_once_is_the_places() {
        let frame = |line| Frame { function: Some("start".into()), line, ..Frame::default() };
        let mut lines = LineCounts::default();
        lines.add(&[frame(None)], 900);
        lines.add(&[frame(Some(7))], 2);
        lines.add(&[frame(Some(8))], 3);
        assert_eq!(lines.most(), [frame(Some(8))]);
        assert_eq!(LineCounts::default().most(), []);
    }

    #[test]
    fn a_wait_counts_only_until_a_creations_own_line_is_known() {
        let frame = |line, waits| Frame { function: Some("f".into()), line, waits, ..Frame::default() };
        let mut lines = LineCounts::default();
        lines.add(&[frame(Some(9), true)], 64);
        assert_eq!(lines.shares()[0].place, "waits at f (code without a file:9)");
        lines.add(&[frame(Some(7), false)], 1);
        lines.add(&[frame(Some(9), true)], 64);
        // The waits' creations count as the line's: dropped, they were the other lines' share.
        assert_eq!(lines.stacks(), [(vec![frame(Some(7), false)], 129)]);
    }

    /// Threads that lived for one creation are read by their waits. Their half of the forks went
    /// to the line of the main thread.
    #[test]
    fn a_wait_in_another_function_keeps_its_share() {
        let frame = |function: &str, line, waits| Frame {
            function: Some(function.into()),
            line: Some(line),
            waits,
            ..Frame::default()
        };
        let main = vec![frame("from_main", 7, false)];
        let mut lines = LineCounts::default();
        for _ in 0..25 {
            lines.add(&[frame("from_thread", 9, true)], 1);
            lines.add(&main, 1);
        }
        assert_eq!(lines.stacks(), [(main.clone(), 25)]);
        assert_eq!((lines.shares()[0].share, lines.unread_share()), (0.5, 0.5));
        let thread = vec![frame("from_thread", 8, false)];
        lines.add(&thread, 1);
        assert_eq!(lines.stacks(), [(main, 25), (thread, 26)]);
        assert_eq!(lines.unread(), 0);
    }

    /// Readings that failed left the sum, and their creations went to the lines that were read.
    #[test]
    fn readings_that_failed_are_a_part_of_the_whole() {
        let frame = Frame { function: Some("f".into()), line: Some(7), ..Frame::default() };
        let (mut lines, mut others) = (LineCounts::default(), LineCounts::default());
        lines.add(&[], 30);
        assert_eq!((lines.shares(), lines.unread_share()), (Vec::new(), 0.0));
        others.add(std::slice::from_ref(&frame), 50);
        others.add(&[], 20);
        lines.merge(&others);
        assert_eq!((lines.shares()[0].share, lines.unread_share()), (0.5, 0.5));
        assert_eq!(lines.most(), [frame]);
    }

    /// Regression: where all stood for none, the shares were NaN, and null in JSON.
    #[test]
    fn a_stack_that_stands_for_none_has_no_share() {
        let frame = |line| Frame { function: Some("start".into()), line: Some(line), ..Frame::default() };
        let mut lines = LineCounts::default();
        lines.add(&[frame(7)], 0);
        lines.add(&[frame(8)], 0);
        assert_eq!((lines.shares(), lines.unread_share()), (Vec::new(), 0.0));
        lines.add(&[frame(8)], 64);
        assert_eq!(lines.shares().iter().map(|line| line.share).collect::<Vec<_>>(), [1.0]);
        assert_eq!(lines.most(), [frame(8)]);
    }

    #[test]
    fn lines_without_room_have_their_share() {
        let mut lines = LineCounts::default();
        for line in 0..2 * MAX_LINES as u32 {
            lines.add(&[Frame { function: Some("start".into()), line: Some(line), ..Frame::default() }], 1);
        }
        let shares = lines.shares();
        assert_eq!(shares.len(), MAX_LINES);
        assert_eq!(shares.iter().map(|line| line.share).sum::<f64>(), 0.5);
    }
}
