//! Sizes of pages.

/// The largest page of the architectures here. A mapping of this size, or a guard of it, is made of
/// whole pages on all of them.
pub(crate) const LARGEST_PAGE: usize = 64 * 1024;
