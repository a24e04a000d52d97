//! How often each of the user's lines was read at one place.

use crate::stack::Frame;

/// Different lines that are kept of one place.
const MAX_LINES: usize = 8;

/// The lines of one place's creations, and how often each was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineCounts(Vec<(Vec<Frame>, u64)>);

impl LineCounts {
    pub(crate) fn add(&mut self, frames: &[Frame], count: u64) {
        if let Some((_, known)) = self.0.iter_mut().find(|(known, _)| known == frames) {
            *known += count;
        } else if self.0.len() < MAX_LINES {
            self.0.push((frames.to_vec(), count));
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (frames, count) in &other.0 {
            self.add(frames, *count);
        }
    }

    /// The frames that were read most often. Frames with a line come first: later readings lack it
    /// where a compiler has optimized the function meanwhile.
    pub(crate) fn most(&self) -> &[Frame] {
        let with_line = |frames: &[Frame]| frames.first().is_some_and(|frame| frame.line.is_some());
        let most = self.0.iter().max_by_key(|(frames, count)| (with_line(frames), *count));
        most.map_or(&[], |(frames, _)| frames)
    }

    /// The stacks, each with how often it was read.
    pub(crate) fn stacks(&self) -> &[(Vec<Frame>, u64)] {
        &self.0
    }

    /// The lines, the most frequent first, each with how often it was read.
    pub(crate) fn each(&self) -> Vec<(String, u64)> {
        let mut lines: Vec<(String, u64)> = Vec::new();
        for (frames, count) in &self.0 {
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
}
