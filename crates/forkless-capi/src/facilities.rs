//! The facilities of this kernel that the library can use.
#![expect(unsafe_code, reason = "exported C symbols; a structure whose size the caller gives")]

use crate::guard::number;
use forkless::{Facility, facilities, tried_facilities};
use libc::{c_char, c_int};
use std::ffi::CString;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// `struct forkless_facility`. Members are only ever added at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ForklessFacility {
    size: usize,
    name: *const c_char,
    state: c_int,
    used_for: *const c_char,
    fallback: *const c_char,
}

/// Where `struct forkless_facility` has its members, for comparison with the header: offsets, and
/// the size.
pub const FACILITY: [usize; 6] = [
    offset_of!(ForklessFacility, size),
    offset_of!(ForklessFacility, name),
    offset_of!(ForklessFacility, state),
    offset_of!(ForklessFacility, used_for),
    offset_of!(ForklessFacility, fallback),
    size_of::<ForklessFacility>(),
];

/// The texts of one facility as C strings, made once and kept.
struct Texts {
    name: CString,
    used_for: CString,
    fallback: CString,
}

/// See `forkless.h`.
///
/// # Safety
/// `report` leads to a structure of this type, older or newer, whose first member says its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_facility(index: usize, report: Option<NonNull<ForklessFacility>>) -> c_int {
    static TEXTS: OnceLock<Vec<Texts>> = OnceLock::new();
    number(|| {
        let report = report.ok_or_else(|| crate::error::Failure::null("place for the report"))?;
        let all = if index == 0 { facilities() } else { tried_facilities() };
        let texts = TEXTS.get_or_init(|| {
            let c = |s: &str| CString::new(s).unwrap_or_default();
            all.iter()
                .map(|f| Texts { name: c(f.name), used_for: c(f.used_for), fallback: c(f.fallback) })
                .collect()
        });
        let (Some(found), Some(text)) = (all.get(index), texts.get(index)) else {
            return Err(crate::error::Failure::plain(libc::ENOENT, "no further facility"));
        };
        // SAFETY: the header: the first member is set, to the size of the caller's structure.
        let room = unsafe { report.cast::<usize>().read() };
        let full = ForklessFacility {
            size: room,
            name: text.name.as_ptr(),
            state: match found.state {
                Facility::Works => 0,
                Facility::Refused(e) => e,
                Facility::Untried => -1,
            },
            used_for: text.used_for.as_ptr(),
            fallback: text.fallback.as_ptr(),
        };
        if room < size_of::<usize>() {
            return Err(crate::error::Failure::plain(libc::EINVAL, "size is not set"));
        }
        // The structure is shorter for a caller built with an older header, and longer for one
        // built with a newer header.
        let known = room.min(size_of::<ForklessFacility>());
        // SAFETY: `known` bytes are in both structures.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const full).cast::<u8>(),
                report.as_ptr().cast::<u8>(),
                known,
            );
        }
        Ok(0)
    })
}
