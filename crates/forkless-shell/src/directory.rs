//! `cd DIRECTORY` as text: the logical path that a shell computes.

use crate::reason::{Reason, Rejection};

/// Whether every shell goes to the same directory by `cd OPERAND`: no option, no `-`, and `..` only
/// at the front of a relative path. (Further inside, shells differ in whether the components before
/// it must exist.)
pub(crate) fn is_plain_operand(operand: &[u8]) -> bool {
    if operand.is_empty() || operand.starts_with(b"-") || operand.starts_with(b"//") {
        return false;
    }
    let mut descended = operand.starts_with(b"/");
    for component in operand.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." if descended => return false,
            b".." => {}
            _ => descended = true,
        }
    }
    true
}

/// The directory `cd operand` changes to, which is also the value of `PWD` afterwards. Shells
/// follow the logical path, the default of `cd`: `..` removes the last component of `PWD`, without
/// asking the kernel.
///
/// `current` is the shell's `PWD`: absolute, as [`Directory`](crate::Directory) gives it. The
/// result ends in a NUL.
///
/// # Errors
/// [`Reason::BuiltinOperand`] when [`analyze`](crate::analyze) does not accept `operand`, or
/// `current` is not a plain absolute path; [`Reason::BufferTooSmall`].
pub fn resolve_directory<'b>(
    current: &[u8],
    operand: &[u8],
    buf: &'b mut [u8],
) -> Result<&'b core::ffi::CStr, Rejection> {
    if !is_plain_operand(operand) || !is_canonical(current) {
        return Err(Rejection::whole(Reason::BuiltinOperand));
    }
    let mut len = 0;
    if !operand.starts_with(b"/") {
        len = append(buf, 0, current)?;
        if current == b"/" {
            len = 0;
        }
    }
    for component in operand.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => {
                let path = buf.get(..len).unwrap_or_default();
                len = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            }
            _ => {
                len = append(buf, len, b"/")?;
                len = append(buf, len, component)?;
            }
        }
    }
    if len == 0 {
        len = append(buf, 0, b"/")?;
    }
    len = append(buf, len, b"\0")?;
    let path = buf.get(..len).unwrap_or_default();
    core::ffi::CStr::from_bytes_with_nul(path).map_err(|_| Rejection::whole(Reason::Nul))
}

fn append(buf: &mut [u8], len: usize, bytes: &[u8]) -> Result<usize, Rejection> {
    let end = len + bytes.len();
    buf.get_mut(len..end).ok_or(Rejection::whole(Reason::BufferTooSmall))?.copy_from_slice(bytes);
    Ok(end)
}

/// Whether a path is absolute and without empty, `.` or `..` components. No shell rewrites such a
/// path.
pub(crate) fn is_canonical(path: &[u8]) -> bool {
    match path.strip_prefix(b"/") {
        None => false,
        Some(b"") => true,
        Some(rest) => rest.split(|&byte| byte == b'/').all(|part| !matches!(part, b"" | b"." | b"..")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cd_follows_the_logical_path() {
        for (current, operand, expected) in [
            ("/a/b", "c", "/a/b/c"),
            ("/a/b", "..", "/a"),
            ("/a/b", "../..", "/"),
            ("/a", "../../../x", "/x"),
            ("/a/b", "./c/./d/", "/a/b/c/d"),
            ("/", "usr", "/usr"),
            ("/", "..", "/"),
            ("/", ".", "/"),
            ("/a", "/", "/"),
            ("/a", "/x//y/", "/x/y"),
        ] {
            let mut buf = [0; 64];
            let to = resolve_directory(current.as_bytes(), operand.as_bytes(), &mut buf).unwrap();
            assert_eq!(to.to_str().unwrap(), expected, "cd {operand} in {current}");
        }
    }

    #[test]
    fn operands_that_shells_treat_differently_are_refused() {
        for operand in ["", "-", "-P", "//x", "a/../b", "/..", "/a/.."] {
            assert!(!is_plain_operand(operand.as_bytes()), "{operand}");
        }
    }

    #[test]
    fn a_short_buffer_is_an_error() {
        for size in 0..6 {
            let mut buf = [0; 6];
            assert!(resolve_directory(b"/a", b"b/c", &mut buf[..size]).is_err());
        }
    }
}
