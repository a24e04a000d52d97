//! Strings and the vectors of pointers to them, laid out in two allocations: everything exec reads.
#![expect(unsafe_code, reason = "pointers into the layout's own immutable text")]

use super::fixed::Fixed;
use crate::spec::strings::Strings;
use std::ffi::{CStr, c_char};
use std::ptr::null;

/// A layout being made. The text may still move, so entries are offsets.
pub(crate) struct Builder {
    text: Vec<u8>,
    entries: Vec<usize>,
}

/// An entry that becomes a null pointer: the end of a vector.
const NULL: usize = usize::MAX;

/// Where a string begins in the text, or a vector among the entries.
#[derive(Clone, Copy)]
pub(crate) struct Offset(usize);

impl Builder {
    pub(crate) fn with_capacity(text: usize, entries: usize) -> Builder {
        Builder { text: Vec::with_capacity(text), entries: Vec::with_capacity(entries) }
    }

    /// Adds a string: the parts, and a NUL.
    pub(crate) fn string(&mut self, parts: &[&[u8]]) -> Offset {
        let at = Offset(self.text.len());
        for part in parts {
            self.text.extend_from_slice(part);
        }
        self.text.push(0);
        at
    }

    /// Adds strings; the first one's place and all of theirs in order.
    pub(crate) fn strings(&mut self, strings: &Strings) -> impl Iterator<Item = Offset> + use<> {
        let base = self.text.len();
        self.text.extend_from_slice(strings.text());
        strings.starts().to_vec().into_iter().map(move |s| Offset(base + s))
    }

    /// Where the next vector will begin.
    pub(crate) fn here(&self) -> Offset {
        Offset(self.entries.len())
    }

    /// Appends to the current vector.
    pub(crate) fn entry(&mut self, string: Offset) {
        self.entries.push(string.0);
    }

    /// Ends the current vector.
    pub(crate) fn end(&mut self) {
        self.entries.push(NULL);
    }

    pub(crate) fn finish(self) -> Layout {
        let text = Fixed::from(self.text.into_boxed_slice());
        let base = text.as_ptr().cast::<c_char>();
        let pointers: Box<[_]> =
            self.entries.iter().map(|&at| if at == NULL { null() } else { base.wrapping_add(at) }).collect();
        Layout { text, pointers: pointers.into() }
    }
}

/// Strings and vectors at their final place, which they keep when the `Layout` itself moves.
#[derive(Debug)]
pub(crate) struct Layout {
    text: Fixed<[u8]>,
    pointers: Fixed<[*const c_char]>,
}

// SAFETY: the pointers lead into `text`, which is owned and never changed.
unsafe impl Send for Layout {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for Layout {}

impl Layout {
    /// A null-terminated vector, valid for as long as the layout.
    pub(crate) fn vector(&self, at: Offset) -> *const *const c_char {
        self.pointers[at.0..].as_ptr()
    }

    /// A NUL-terminated string, valid for as long as the layout.
    pub(crate) fn c_str(&self, at: Offset) -> &CStr {
        CStr::from_bytes_until_nul(&self.text[at.0..]).unwrap_or_default()
    }

    /// The same by its address alone.
    pub(crate) fn c_ptr(&self, at: Offset) -> *const c_char {
        self.text[at.0..].as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_lead_to_their_strings_and_end_in_null() {
        let mut b = Builder::with_capacity(0, 0);
        let x = b.string(&[b"x=", b"y"]);
        let empty = b.string(&[]);
        let v = b.here();
        b.entry(empty);
        b.entry(x);
        b.end();
        let layout = b.finish();
        assert_eq!(layout.c_str(x), c"x=y");
        let v = layout.vector(v);
        // SAFETY: the vector has three entries.
        let entries = unsafe { std::slice::from_raw_parts(v, 3) };
        assert_eq!(entries[0], layout.c_ptr(empty));
        assert_eq!(entries[1], layout.c_ptr(x));
        assert!(entries[2].is_null());
    }
}
