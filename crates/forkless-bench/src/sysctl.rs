//! sysctlbyname(3) of FreeBSD and macOS. A name that the system does not know is `None`.

#![expect(unsafe_code, reason = "sysctlbyname is a C function")]

use std::ffi::CStr;

/// A value of at most 256 bytes, as the kernel lays it out.
fn value(name: &CStr) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; 256];
    let mut length = bytes.len();
    // SAFETY: the name is a C string, the buffer as long as `length` says, and nothing is set.
    let result = unsafe {
        libc::sysctlbyname(name.as_ptr(), bytes.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0)
    };
    bytes.truncate(length);
    (result == 0).then_some(bytes)
}

/// A string, without its terminating NUL; `None` when it is empty.
pub(crate) fn text(name: &CStr) -> Option<String> {
    let bytes = value(name)?;
    let text = String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next()?).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// An integer of four or eight bytes: which of them differs between the systems and their versions.
pub(crate) fn number(name: &CStr) -> Option<u64> {
    let bytes = value(name)?;
    if let Ok(bytes) = <[u8; 8]>::try_from(bytes.as_slice()) {
        return Some(u64::from_ne_bytes(bytes));
    }
    Some(u64::from(u32::from_ne_bytes(bytes.as_slice().try_into().ok()?)))
}
