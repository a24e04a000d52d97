//! The version of this library.
#![expect(unsafe_code, reason = "exported C symbols")]

use libc::{c_char, c_uint};

const fn number(s: &str) -> c_uint {
    let digits = s.as_bytes();
    let mut value = 0;
    let mut i = 0;
    while i < digits.len() {
        value = value * 10 + (digits[i] - b'0') as c_uint;
        i += 1;
    }
    value
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_version() -> c_uint {
    const VERSION: c_uint = number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
        | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
        | number(env!("CARGO_PKG_VERSION_PATCH"));
    VERSION
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
