//! Status flags of inherited descriptions (`forkless_speculate::status_flags`).

use forkless_run::{AbortKind, AbortReason};
use forkless_speculate::status_flags::StatusFlags;
use forkless_sys::{Errno, fd};
use linux_raw_sys::general as k;

use super::super::state;
use super::abort;

fn changed() -> &'static StatusFlags {
    &state::get().status_flags
}

/// `fcntl(F_GETFL)`.
pub(crate) fn get(fd: usize) -> isize {
    match fd::get_status_flags(fd as i32) {
        Ok(now) => changed().seen(fd as u32, now, is_same(fd)).unwrap_or_else(|_| give_up()) as isize,
        Err(e) => -(e.raw() as isize),
    }
}

/// `fcntl(F_SETFL)`.
pub(crate) fn set(fd: usize, wanted: usize) -> isize {
    match fd::get_status_flags(fd as i32) {
        Ok(now) => {
            changed().set(fd as u32, now, wanted as u32, is_same(fd)).unwrap_or_else(|_| give_up());
            0
        }
        Err(e) => -(e.raw() as isize),
    }
}

fn is_same(fd: usize) -> impl Fn(u32) -> Result<bool, Errno> {
    move |other| fd::have_one_description(fd as i32, other as i32)
}

fn give_up() -> ! {
    abort(AbortReason::new(AbortKind::Inherited, k::__NR_fcntl))
}

/// Before descriptors are closed or replaced. The description could not be reached at exec.
pub(crate) fn abort_if_needed(first: u32, last: u32) {
    if changed().needs(first, last) {
        give_up();
    }
}

/// At exec.
pub(crate) fn apply() {
    if changed().give(|fd, flags| fd::set_status_flags(fd as i32, flags)).is_err() {
        give_up();
    }
}

/// The child is undone.
pub(crate) fn take_back() {
    changed().take_back(|fd, flags| {
        let _ = fd::set_status_flags(fd as i32, flags);
    });
}
