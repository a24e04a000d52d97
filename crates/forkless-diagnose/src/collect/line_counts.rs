//! How many creations each of the user's lines makes at one place, by the callers that were read.

use serde::Serialize;

use crate::stack::Frame;

/// Different lines that are kept of one place.
const MAX_LINES: usize = 16;

/// The lines of one place's creations, and how many creations the readings of each stand for.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineCounts {
    stacks: Vec<(Vec<Frame>, u64)>,
    /// Those that had no room.
    others: u64,
}

/// One of the user's lines behind a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineShare {
    /// Function, file and line.
    pub place: String,
    /// Its part of the finding's creations, by the callers that were read.
    pub share: f64,
}

impl LineCounts {
    pub(crate) fn add(&mut self, frames: &[Frame], count: u64) {
        // A line of a wait tells nothing that a creation's own line does not.
        let waits = |frames: &[Frame]| frames.first().is_some_and(|frame| frame.waits);
        if waits(frames) {
            if self.stacks.iter().any(|(known, _)| !waits(known)) {
                return;
            }
        } else if self.stacks.iter().any(|(known, _)| waits(known)) {
            self.stacks.retain(|(known, _)| !waits(known));
            self.others = 0;
        }
        if let Some((_, known)) = self.stacks.iter_mut().find(|(known, _)| known == frames) {
            *known += count;
        } else if self.stacks.len() < MAX_LINES {
            self.stacks.push((frames.to_vec(), count));
        } else {
            self.others += count;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (frames, count) in &other.stacks {
            self.add(frames, *count);
        }
        self.others += other.others;
    }

    /// The frames that were read most often. Frames with a line come first: later readings lack it
    /// where a compiler has optimized the function meanwhile.
    pub(crate) fn most(&self) -> &[Frame] {
        let with_line = |frames: &[Frame]| frames.first().is_some_and(|frame| frame.line.is_some());
        let most = self.stacks.iter().max_by_key(|(frames, count)| (with_line(frames), *count));
        most.map_or(&[], |(frames, _)| frames)
    }

    /// The stacks, each with the creations that it stands for.
    pub(crate) fn stacks(&self) -> &[(Vec<Frame>, u64)] {
        &self.stacks
    }

    /// The lines with their shares, the most frequent first.
    pub(crate) fn shares(&self) -> Vec<LineShare> {
        let lines = self.each();
        let all = lines.iter().map(|(_, count)| count).sum::<u64>() + self.others;
        let share = |(place, count)| LineShare { place, share: count as f64 / all as f64 };
        lines.into_iter().map(share).collect()
    }

    /// The lines, the most frequent first, each with the creations that it stands for.
    pub(crate) fn each(&self) -> Vec<(String, u64)> {
        let mut lines: Vec<(String, u64)> = Vec::new();
        for (frames, count) in &self.stacks {
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
        assert_eq!(lines.stacks(), [(vec![frame(Some(7), false)], 1)]);
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
