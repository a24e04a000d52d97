//! Words of `FORKLESS_OPTIONS` that nobody understands: one line says so, once for a tree.
#![expect(unsafe_code, reason = "writes the C environment")]

use core::ffi::{CStr, c_char};
use core::ops::Range;

use forkless_run::{Options, WORDS_VARIABLE};

use crate::complaint;

/// Says in one line which words were not understood, and puts commas in their place, so that the
/// programs that this one executes do not say it again.
///
/// # Safety
/// `entry` is the writable string of the variable, ends in a NUL, and nobody else looks at it.
#[cold]
#[inline(never)]
pub(crate) unsafe fn complain(entry: *mut c_char, quiet: bool) {
    let mut line = Line { text: [0; 256], len: 0 };
    line.put(b"forkless: FORKLESS_OPTIONS: unknown words, ignored:");
    // SAFETY: the caller's.
    let len = unsafe { CStr::from_ptr(entry) }.count_bytes();
    // SAFETY: the whole string, which is ours alone.
    let text = unsafe { core::slice::from_raw_parts_mut(entry.cast::<u8>(), len) };
    let mut from = WORDS_VARIABLE.len() + 1;
    // The rest is looked at anew after each word, which may be written over.
    while let Some(range) = next_word(text, from) {
        from = range.end;
        if let Some(word) = text.get_mut(range)
            && !Options::default().read_word(word)
        {
            line.put(b" ");
            line.put(word);
            word.fill(b',');
        }
    }
    if !quiet {
        line.write();
    }
}

/// Where the first word after `from` lies.
fn next_word(text: &[u8], from: usize) -> Option<Range<usize>> {
    let word = forkless_run::words(text.get(from..)?).next()?;
    let start = (word.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    Some(start..start + word.len())
}

/// A line for standard error.
struct Line {
    text: [u8; 256],
    len: usize,
}

impl Line {
    /// What does not fit is left out. Bytes that would steer a terminal are replaced.
    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            // One place is for the newline.
            if let Some(slot) = self.text.split_last_mut().and_then(|(_, room)| room.get_mut(self.len)) {
                *slot = if matches!(byte, b' '..=b'~') { *byte } else { b'?' };
                self.len += 1;
            }
        }
    }

    fn write(&mut self) {
        if let Some(slot) = self.text.get_mut(self.len) {
            *slot = b'\n';
        }
        complaint::say(self.text.get(..=self.len).unwrap_or_default());
    }
}
