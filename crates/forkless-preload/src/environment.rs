//! Changes that the library makes to the program's environment when it is loaded. Few programs need
//! any, so these lie apart from the code that every program runs through (layout.ld).
#![expect(unsafe_code, reason = "writes the C environment")]

use core::ffi::{CStr, c_char};

use forkless_run::{ForkMode, OPTIONS_VARIABLE, names_library};

/// The text after `name=`, where the entry has that name. Of most other entries one byte is read:
/// every program of the tree goes through all entries when it is loaded.
///
/// # Safety
/// `entry` is a NUL-terminated string that stays as long as the process.
#[inline(always)]
pub(crate) unsafe fn value_of(entry: *const c_char, name: &str) -> Option<&'static CStr> {
    let mut at = entry.cast::<u8>();
    for byte in name.bytes().chain(*b"=") {
        // SAFETY: the string has not ended before `at`: what came before was equal to a byte that
        // is not NUL.
        if unsafe { *at } != byte {
            return None;
        }
        at = at.wrapping_add(1);
    }
    // SAFETY: the rest of the caller's string.
    Some(unsafe { CStr::from_ptr(at.cast()) })
}

/// Writes commas over the word of a record that cannot be made, so that the programs that this one
/// executes do not try again, and do not say it again.
///
/// # Safety
/// `len` bytes at `path` lie behind `record=` in the writable string of the variable, and nobody
/// else looks at it.
#[inline(always)]
pub(crate) unsafe fn strike_record(path: *mut u8, len: usize) {
    let mut from = path.wrapping_sub(b"record=".len());
    // With the dashes of a flag: alone they would be an unknown word.
    // SAFETY: the variable's name lies before the word.
    if unsafe { *from.wrapping_sub(1) } == b'-' {
        from = from.wrapping_sub(2);
    }
    // SAFETY: the word, in the string that is ours alone.
    unsafe { core::ptr::write_bytes(from, b',', path as usize - from as usize + len) };
}

/// Takes our library out of `LD_PRELOAD`: programs executed later start without us.
///
/// One that `/etc/ld.so.preload` gives the library all the same finds the variables that people
/// set. In place of a launcher's options it finds [`ForkMode::Off`] alone, and nothing is done.
///
/// # Safety
/// `envp` is a vector of writable strings that end in a NUL, which ends in a null pointer; nobody
/// else looks at it.
#[inline(never)]
pub(crate) unsafe fn forget(envp: *mut *mut c_char) {
    let (mut from, mut to) = (envp, envp);
    loop {
        // SAFETY: the vector has not ended before `from`.
        let entry = unsafe { *from };
        // SAFETY: `to` never overtakes `from`.
        unsafe { *to = entry };
        if entry.is_null() {
            return;
        }
        // SAFETY: entries are NUL-terminated, and stay.
        if let Some(launchers) = unsafe { value_of(entry, OPTIONS_VARIABLE) } {
            let off = ForkMode::Off.pair();
            // A text that says less is none of a launcher's.
            if launchers.count_bytes() >= off.len() {
                let text = launchers.as_ptr().cast_mut().cast::<u8>();
                // SAFETY: the text is not shorter, and the process's own writable string.
                unsafe { text.copy_from_nonoverlapping(off.as_ptr(), off.len()) };
                // SAFETY: in the text, or the NUL at its end.
                unsafe { *text.wrapping_add(off.len()) = 0 };
            }
        }
        // SAFETY: the entry is the process's own writable string.
        if !unsafe { strip_preload(entry) } {
            to = to.wrapping_add(1);
        }
        from = from.wrapping_add(1);
    }
}

/// Removes our library from an `LD_PRELOAD=` entry in place; says whether nothing is left of the
/// list.
///
/// # Safety
/// `entry` is a writable string that ends in a NUL.
unsafe fn strip_preload(entry: *mut c_char) -> bool {
    const NAME: &str = "LD_PRELOAD";
    // SAFETY: the caller's contract.
    let Some(list) = (unsafe { value_of(entry, NAME) }) else { return false };
    let len = list.to_bytes().len();
    // SAFETY: as above; nobody else looks at the environment while constructors run.
    let text =
        unsafe { core::slice::from_raw_parts_mut(entry.cast::<u8>().wrapping_add(NAME.len() + 1), len + 1) };
    let (mut read, mut write) = (0, 0);
    while read < len {
        let end = (read..len).find(|&i| matches!(text[i], b':' | b' ')).unwrap_or(len);
        let ours = names_library(&text[read..end]);
        if !ours && end > read {
            if write > 0 {
                text[write] = b':';
                write += 1;
            }
            text.copy_within(read..end, write);
            write += end - read;
        }
        read = end + 1;
    }
    text[write] = 0;
    write == 0
}

/// Takes the tunable for the pool of huge pages, which the launcher put at the end of
/// `GLIBC_TUNABLES`, out again: a child that inherited it would take pages from the pool, and at
/// worst die of SIGBUS. A variable of nothing else goes with it. One that the caller had set to
/// nothing has a colon left.
///
/// # Safety
/// `envp` is a vector of writable strings that end in a NUL, which ends in a null pointer; nobody
/// else looks at it.
#[inline(never)]
pub(crate) unsafe fn keep_hugetlb_here(envp: *mut *mut c_char) {
    let (mut from, mut to) = (envp, envp);
    loop {
        // SAFETY: the vector has not ended before `from`.
        let entry = unsafe { *from };
        // SAFETY: `to` never overtakes `from`.
        unsafe { *to = entry };
        if entry.is_null() {
            return;
        }
        from = from.wrapping_add(1);
        // SAFETY: entries are NUL-terminated, and stay.
        if let Some(value) = unsafe { value_of(entry, "GLIBC_TUNABLES") }
            && let Some(rest) = value.to_bytes().strip_suffix(forkless_run::HUGETLB_TUNABLE.as_bytes())
        {
            let Some(kept) = rest.strip_suffix(b":") else { continue };
            // SAFETY: inside the entry, which is the process's own writable string.
            unsafe { *kept.as_ptr().cast_mut().wrapping_add(kept.len()) = 0 };
        }
        to = to.wrapping_add(1);
    }
}
