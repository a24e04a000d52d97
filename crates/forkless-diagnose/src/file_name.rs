//! The file's name in a path, which all of this crate cut off in the same way.

/// The file's name in a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
