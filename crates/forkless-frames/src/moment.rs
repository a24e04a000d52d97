//! A thread's frames as they were at a moment: whoever stands beside the thread then copies the
//! memory that changes, and the rest is read afterwards.
//!
//! An interpreter's frames change as it runs on; the code and the names that they point at do not.
//! [`Look`] says which memory is to be copied. To copy it takes no knowledge of the interpreter, so
//! that a BPF program can do it at the fork.

/// Where a thread's interpreter has its frames, for as long as the thread lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The address of a pointer to the first frame, or to the structure that points at it.
    pub head: u64,
    /// Of the pointer to the first frame in the structure.
    pub through: Option<u64>,
    /// How the next frame is found.
    pub next: Next,
    /// Addresses of further words that are wanted.
    pub words: [Option<u64>; 2],
}

/// How a frame leads to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// By a pointer at this offset.
    Pointer(u64),
    /// They lie in memory one after another, so many bytes apart.
    Array(u64),
    /// The same from the outermost frame on. The innermost frames are wanted.
    Reversed {
        /// Bytes between two frames.
        stride: u64,
        /// Offset of the innermost frame's index in the structure, four bytes with a sign.
        last: u64,
    },
}

/// What the memory of a [`Look`] was at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// The thread's stack pointer.
    pub stack_pointer: u64,
    /// The word at [`Look::head`].
    pub first: u64,
    /// The words at [`Look::words`].
    pub words: [u64; 2],
    /// The beginning of the structure, if the look goes through one.
    pub structure: Vec<u8>,
    /// The frames with their addresses, in the order of the walk.
    pub frames: Vec<(u64, Vec<u8>)>,
}

/// Copied memory that is read in place of the process's.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) stack_pointer: u64,
    pieces: Vec<(u64, Vec<u8>)>,
    /// Addresses of the frames.
    frames: Vec<u64>,
}

impl Copied {
    pub(crate) fn new(look: &Look, moment: &Moment) -> Self {
        let mut pieces = vec![(look.head, moment.first.to_ne_bytes().to_vec())];
        for (at, word) in look.words.iter().zip(moment.words) {
            pieces.extend(at.map(|at| (at, word.to_ne_bytes().to_vec())));
        }
        if look.through.is_some() {
            pieces.push((moment.first, moment.structure.clone()));
        }
        pieces.extend(moment.frames.iter().cloned());
        let frames = moment.frames.iter().map(|(at, _)| *at).collect();
        Self { stack_pointer: moment.stack_pointer, pieces, frames }
    }

    /// No memory, of a thread with this stack pointer.
    pub(crate) fn nothing(stack_pointer: u64) -> Self {
        Self { stack_pointer, pieces: Vec::new(), frames: Vec::new() }
    }

    /// Whether a frame at this address was copied.
    pub(crate) fn has_frame(&self, at: u64) -> bool {
        self.frames.contains(&at)
    }

    /// Whether all of `into` was copied. If so, it is filled.
    pub(crate) fn fill(&self, at: u64, into: &mut [u8]) -> bool {
        self.pieces.iter().any(|(start, bytes)| {
            let from = at.checked_sub(*start).and_then(|from| usize::try_from(from).ok());
            let part = from.and_then(|from| bytes.get(from..from.checked_add(into.len())?));
            part.map(|part| into.copy_from_slice(part)).is_some()
        })
    }

    /// Puts what was copied over what was read.
    pub(crate) fn patch(&self, at: u64, read: &mut [u8]) {
        for (start, bytes) in &self.pieces {
            // The frames of an array overlap, and the same bytes were copied twice.
            for (offset, &byte) in bytes.iter().enumerate() {
                let place = start.wrapping_add(offset as u64).checked_sub(at);
                let place = place.and_then(|place| usize::try_from(place).ok());
                if let Some(into) = place.and_then(|place| read.get_mut(place)) {
                    *into = byte;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_bytes_are_read_in_place_of_the_processs() {
        let look = Look { head: 100, through: Some(8), next: Next::Array(4), words: [Some(300), None] };
        let frames = vec![(500, vec![1, 2, 3, 4, 5, 6]), (504, vec![5, 6, 7, 8])];
        let moment = Moment { stack_pointer: 7, first: 200, words: [9, 0], structure: vec![4; 16], frames };
        let copied = Copied::new(&look, &moment);
        let read = |at, length: usize| {
            let mut bytes = vec![0; length];
            copied.fill(at, &mut bytes).then_some(bytes)
        };
        assert_eq!(read(100, 8), Some(200_u64.to_ne_bytes().to_vec()));
        assert_eq!(read(300, 8), Some(9_u64.to_ne_bytes().to_vec()));
        assert_eq!(read(208, 8), Some(vec![4; 8]));
        assert_eq!(read(504, 4), Some(vec![5, 6, 7, 8]));
        assert_eq!(read(502, 6), None, "in two pieces");
        let mut across = vec![0; 12];
        copied.patch(498, &mut across);
        assert_eq!(across, [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]);
        assert!(copied.has_frame(504) && !copied.has_frame(508));
        assert_eq!(read(u64::MAX, 8), None);
    }
}
