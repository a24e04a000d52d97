//! NUL-terminated strings packed into one allocation.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Strings being collected. The bytes may still move.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    nul_in: Option<usize>,
}

impl<S: AsRef<OsStr>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Strings {
        let mut all = Strings::default();
        strings.into_iter().for_each(|one| all.push(one.as_ref().as_bytes()));
        all
    }
}

impl Strings {
    /// Appends a string. A NUL byte inside is remembered as an error, for the start to report.
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

    /// All strings, each with its NUL, one after the other.
    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes
    }

    /// Where each string begins in [`Strings::text`].
    pub(crate) fn starts(&self) -> &[usize] {
        &self.starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_packed_with_their_nul() {
        let mut s = Strings::default();
        s.push(b"a");
        s.push(b"");
        s.push_parts(&[b"x", b"=", b"y"]);
        assert_eq!(s.nul_in(), None);
        assert_eq!(s.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"x=y"]);
        assert_eq!(s.text(), b"a\0\0x=y\0");
        assert_eq!(s.starts(), [0, 2, 3]);
    }

    #[test]
    fn a_nul_inside_is_remembered_with_its_place() {
        let mut s = Strings::default();
        s.push(b"a");
        s.push(b"b\0c");
        assert_eq!(s.nul_in(), Some(1));
    }
}
