//! The environment a line is analysed against: read in place, never copied.

/// The strings of an environment, `NAME=VALUE` each, in their order.
///
/// Slices of byte strings implement it. A C program's `environ` needs a wrapper of a few lines that
/// returns the strings behind its pointers.
pub trait Environment {
    /// The string at `index` without its terminating NUL, or `None` past the end.
    fn entry(&self, index: usize) -> Option<&[u8]>;

    /// The value of `name`. Where the name occurs twice, the last value, which a shell keeps.
    fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        let mut found = None;
        let mut index = 0;
        while let Some(entry) = self.entry(index) {
            // First the byte that tells most entries apart.
            if entry.get(name.len()) == Some(&b'=') && entry.starts_with(name) {
                found = entry.get(name.len() + 1..);
            }
            index += 1;
        }
        found
    }
}

impl Environment for [&[u8]] {
    fn entry(&self, index: usize) -> Option<&[u8]> {
        <[&[u8]]>::get(self, index).copied()
    }
}

impl<const N: usize> Environment for [&[u8]; N] {
    fn entry(&self, index: usize) -> Option<&[u8]> {
        self.as_slice().get(index).copied()
    }
}

impl<E: Environment + ?Sized> Environment for &E {
    fn entry(&self, index: usize) -> Option<&[u8]> {
        (**self).entry(index)
    }
}

/// The name of an environment string, or `None` when it has no `=`.
pub(crate) fn name_of(entry: &[u8]) -> Option<&[u8]> {
    let end = entry.iter().position(|&b| b == b'=')?;
    entry.get(..end)
}
