//! `forkless_system`: system(3).
#![expect(unsafe_code, reason = "exported C symbols")]

use crate::atfork;
use crate::ffi::Text;
use crate::guard::{as_libc, memory_for, set_errno};
use crate::shell_line;
use forkless::shield::Shield;
use libc::c_int;

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_system(line: Text<'_>) -> c_int {
    if !memory_for(line) {
        set_errno(libc::ENOMEM);
        return -1;
    }
    as_libc(-1, || {
        let Some(line) = line.get() else {
            // SAFETY: a static path.
            return Ok(c_int::from(unsafe { libc::access(c"/bin/sh".as_ptr(), libc::X_OK) } == 0));
        };
        atfork::register();
        let shield = Shield::raise();
        shell_line::run(line, &shield.original)
    })
}
