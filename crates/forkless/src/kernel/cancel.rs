//! Keeping `pthread_cancel(3)` out of a start.
//!
//! Only C programs cancel threads, but their threads may come here. A start makes few libc calls. A
//! thread cancelled in one of them would unwind out of the start, with pipes open and locks held.
#![expect(unsafe_code, reason = "one libc call that std has no name for")]

/// No cancellation acts while this lives.
pub(crate) struct NotCancelled(libc::c_int);

unsafe extern "C" {
    /// Not in the libc crate; `PTHREAD_CANCEL_DISABLE` is 1 in glibc and in musl.
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

impl NotCancelled {
    pub(crate) fn begin() -> NotCancelled {
        let mut old = 0;
        // SAFETY: writes one int.
        unsafe { pthread_setcancelstate(1, &raw mut old) };
        NotCancelled(old)
    }
}

impl Drop for NotCancelled {
    fn drop(&mut self) {
        let mut old = 0;
        // SAFETY: writes one int.
        unsafe { pthread_setcancelstate(self.0, &raw mut old) };
    }
}
