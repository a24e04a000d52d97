//! `forkless_prepared`: a command laid out once, started from any number of threads.
#![expect(unsafe_code, reason = "exported C symbols")]

use crate::child::ForklessChild;
use crate::command::ForklessCommand;
use crate::error::Failure;
use crate::ffi::Out;
use crate::guard::{free, guarded, on};
use forkless::Prepared;
use libc::c_int;
use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt;

/// `forkless_prepared`.
#[derive(Debug)]
pub struct ForklessPrepared {
    inner: Prepared,
}

thread_local! {
    /// The failure of this thread's last call on any prepared command: several threads may use one
    /// handle at once.
    static FAILURE: RefCell<Option<Box<Failure>>> = const { RefCell::new(None) };
}

fn with(
    prepared: Option<&ForklessPrepared>,
    body: impl FnOnce(&Prepared) -> Result<c_int, Failure>,
) -> c_int {
    let Some(prepared) = prepared else { return -libc::EINVAL };
    let result = guarded(|| body(&prepared.inner));
    let number = result.as_ref().map_or_else(|f| -f.number, |v| *v);
    // Only a thread that is ending has lost it.
    let _ = FAILURE.try_with(|f| *f.borrow_mut() = result.err().map(Box::new));
    number
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_prepare(
    command: Option<&mut ForklessCommand>,
    prepared: Out<'_, Box<ForklessPrepared>>,
) -> c_int {
    on(command, |c| {
        let prepared = prepared.required("place for the prepared command")?;
        prepared.set(Box::new(ForklessPrepared { inner: c.take()?.prepare()? }));
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_prepared_free(prepared: Option<Box<ForklessPrepared>>) {
    free(prepared);
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_prepared_error(prepared: Option<&ForklessPrepared>) -> *const Failure {
    let last = |f: &RefCell<Option<Box<Failure>>>| f.borrow().as_deref().map(std::ptr::from_ref);
    prepared.and_then(|_| FAILURE.try_with(last).ok().flatten()).unwrap_or(std::ptr::null())
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_prepared_spawn(
    prepared: Option<&ForklessPrepared>,
    child: Out<'_, Box<ForklessChild>>,
) -> c_int {
    with(prepared, |p| {
        let child = child.required("place for the child")?;
        child.set(ForklessChild::boxed(p.spawn()?));
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_prepared_spawn_nonblocking(
    prepared: Option<&ForklessPrepared>,
    child: Out<'_, Box<ForklessChild>>,
) -> c_int {
    with(prepared, |p| {
        let child = child.required("place for the child")?;
        child.set(ForklessChild::boxed(p.spawn_nonblocking()?));
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_prepared_status(
    prepared: Option<&ForklessPrepared>,
    status: Out<'_, c_int>,
) -> c_int {
    with(prepared, |p| {
        status.set(p.status()?.into_raw());
        Ok(0)
    })
}
