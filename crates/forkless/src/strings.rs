//! NUL-terminated strings packed into one allocation, with the null-terminated vector of pointers exec wants.

#![expect(unsafe_code, reason = "pointers into the vector's own immutable bytes")]

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;

/// Strings being collected. The bytes may still move.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    nul_in: Option<usize>,
}

impl Strings {
    /// Appends a string. One with a NUL byte inside is remembered as an error, for the start to report.
    pub(crate) fn push(&mut self, s: &[u8]) {
        self.push_parts(&[s]);
    }

    /// Appends the concatenation.
    pub(crate) fn push_parts(&mut self, parts: &[&[u8]]) {
        self.starts.push(self.bytes.len());
        for part in parts {
            if self.nul_in.is_none() && part.contains(&0) {
                self.nul_in = Some(self.starts.len() - 1);
            }
            self.bytes.extend_from_slice(part);
        }
        self.bytes.push(0);
    }

    pub(crate) fn reserve(&mut self, bytes: usize, strings: usize) {
        self.bytes.reserve(bytes);
        self.starts.reserve(strings);
    }

    pub(crate) fn set_first(&mut self, s: &[u8]) {
        let mut all = Strings::default();
        all.push(s);
        for rest in self.iter().skip(1) {
            all.push(rest);
        }
        *self = all;
    }

    /// The first string that has a NUL byte inside.
    pub(crate) fn nul_in(&self) -> Option<usize> {
        self.nul_in
    }

    /// The strings without their terminators.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.starts.iter().enumerate().map(|(i, &start)| {
            let end = self.starts.get(i + 1).copied().unwrap_or(self.bytes.len()) - 1;
            &self.bytes[start..end]
        })
    }

    pub(crate) fn get(&self, i: usize) -> Option<&OsStr> {
        self.iter().nth(i).map(OsStr::from_bytes)
    }

    /// Fixes the bytes in place and makes the vector.
    pub(crate) fn finish(self) -> Vector {
        let bytes = self.bytes.into_boxed_slice();
        let pointers = self
            .starts
            .iter()
            .map(|&at| bytes[at..].as_ptr().cast::<c_char>())
            .chain([null()])
            .collect::<Box<[_]>>();
        Vector { _bytes: bytes, pointers }
    }
}

/// Strings at their final place.
#[derive(Debug)]
pub(crate) struct Vector {
    /// What the pointers point into: a boxed slice does not move when the `Vector` does.
    _bytes: Box<[u8]>,
    pointers: Box<[*const c_char]>,
}
// SAFETY: the pointers lead into `_bytes`, which is owned and never changed.
unsafe impl Send for Vector {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for Vector {}

impl Vector {
    /// The null-terminated vector.
    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    /// The pointers without the null at the end.
    pub(crate) fn pointers(&self) -> &[*const c_char] {
        &self.pointers[..self.pointers.len() - 1]
    }

    pub(crate) fn get(&self, i: usize) -> Option<&CStr> {
        let p = *self.pointers().get(i)?;
        // SAFETY: every pointer but the last leads to a NUL-terminated string in `_bytes`.
        Some(unsafe { CStr::from_ptr(p) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_in_nul_and_vectors_in_null() {
        let mut s = Strings::default();
        s.push(b"a");
        s.push(b"");
        s.push_parts(&[b"x", b"=", b"y"]);
        assert_eq!(s.nul_in(), None);
        assert_eq!(s.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"x=y"]);
        let v = s.finish();
        assert_eq!(v.get(2), Some(c"x=y"));
        assert_eq!(v.get(3), None);
        assert_eq!(v.pointers().len(), 3);
    }

    #[test]
    fn a_nul_inside_is_remembered_with_its_place() {
        let mut s = Strings::default();
        s.push(b"a");
        s.push(b"b\0c");
        assert_eq!(s.nul_in(), Some(1));
    }
}
