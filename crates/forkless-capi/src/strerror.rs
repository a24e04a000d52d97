//! `forkless_strerror`: error numbers in words.
#![expect(unsafe_code, reason = "exported C symbols")]

use crate::error::text;
use crate::guard::quietly;
use libc::{c_char, c_int};
use std::ffi::CString;
use std::io;

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_strerror(error: c_int) -> *const c_char {
    /// One text a number, made at the first call for it and never freed: the pointer is good for
    /// ever, in every thread.
    static TEXTS: [std::sync::OnceLock<CString>; 256] = [const { std::sync::OnceLock::new() }; 256];
    quietly(c"unknown error".as_ptr(), || {
        let number = error.unsigned_abs();
        if number == 0 {
            return c"success".as_ptr();
        }
        let Some(place) = TEXTS.get(number as usize) else { return c"unknown error".as_ptr() };
        place
            .get_or_init(|| {
                let text_of = io::Error::from_raw_os_error(number as c_int).to_string();
                text(text_of.split(" (os error").next().unwrap_or_default())
            })
            .as_ptr()
    })
}
