//! `forkless_child`: a running child.
#![expect(unsafe_code, reason = "exported C symbols")]

use crate::conversation::ForklessConversation;
use crate::error::Failure;
use crate::ffi::Out;
use crate::guard::{Remembers, free, on};
use forkless::{Child, OnDrop};
use libc::c_int;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// `forkless_child`.
#[derive(Debug)]
pub struct ForklessChild {
    /// Gone once `forkless_child_output` has used it up.
    inner: Option<Child>,
    error: Option<Failure>,
}

impl Remembers for ForklessChild {
    fn failure(&mut self) -> &mut Option<Failure> {
        &mut self.error
    }
}

impl ForklessChild {
    pub(crate) fn boxed(child: Child) -> Box<ForklessChild> {
        Box::new(ForklessChild { inner: Some(child), error: None })
    }

    fn get(&mut self) -> Result<&mut Child, Failure> {
        self.inner.as_mut().ok_or_else(used_up)
    }
}

fn used_up() -> Failure {
    Failure::plain(libc::EINVAL, "the child was used up by forkless_child_output")
}

type Handle<'a> = Option<&'a mut ForklessChild>;

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_free(child: Option<Box<ForklessChild>>) {
    free(child);
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_error(child: Option<&ForklessChild>) -> Option<&Failure> {
    child?.error.as_ref()
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_pid(child: Handle<'_>) -> libc::pid_t {
    on(child, |c| Ok(c.get()?.id() as libc::pid_t))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_pidfd(child: Handle<'_>) -> c_int {
    on(child, |c| match c.get()?.pidfd() {
        Some(fd) => Ok(fd.as_raw_fd()),
        None => Err(Failure::plain(
            libc::ENOTSUP,
            "no pidfd: no descriptor was left at the start, or this kernel or a filter refuses it",
        )),
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_take_pipe(child: Handle<'_>, number: c_int) -> c_int {
    on(child, |c| {
        let c = c.get()?;
        let pipe: Option<OwnedFd> = match number {
            0 => c.stdin.take().map(Into::into),
            1 => c.stdout.take().map(Into::into),
            2 => c.stderr.take().map(Into::into),
            _ => None,
        };
        // 1 and 2 also, where the child reads from them.
        let pipe = pipe.or_else(|| c.take_pipe(number));
        pipe.map(IntoRawFd::into_raw_fd).ok_or_else(|| {
            Failure::plain(libc::ENOENT, &format!("no pipe, or no longer, at descriptor {number}"))
        })
    })
}

/// `enum forkless_on_free`.
pub(crate) fn on_drop(policy: c_int) -> Result<OnDrop, Failure> {
    match policy {
        0 => Ok(OnDrop::Detach),
        1 => Ok(OnDrop::Kill),
        2 => Ok(OnDrop::Wait),
        _ => Err(Failure::plain(libc::EINVAL, &format!("{policy} is no enum forkless_on_free"))),
    }
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_on_free(child: Handle<'_>, policy: c_int) -> c_int {
    on(child, |c| {
        let policy = on_drop(policy)?;
        c.get()?.set_on_drop(policy);
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_wait(child: Handle<'_>, status: Out<'_, c_int>) -> c_int {
    on(child, |c| {
        status.set(c.get()?.wait()?.into_raw());
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_try_wait(child: Handle<'_>, status: Out<'_, c_int>) -> c_int {
    on(child, |c| match c.get()?.try_wait()? {
        Some(ended) => {
            status.set(ended.into_raw());
            Ok(1)
        }
        None => Ok(0),
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_wait_timeout(
    child: Handle<'_>,
    milliseconds: i64,
    status: Out<'_, c_int>,
) -> c_int {
    on(child, |c| {
        let c = c.get()?;
        let ended = match u64::try_from(milliseconds) {
            Ok(ms) => c.wait_timeout(Duration::from_millis(ms))?,
            Err(_) => c.wait()?,
        };
        status.set(ended.into_raw());
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_kill(child: Handle<'_>) -> c_int {
    on(child, |c| Ok(c.get()?.kill().map(|()| 0)?))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_signal(child: Handle<'_>, signal: c_int) -> c_int {
    on(child, |c| Ok(c.get()?.signal(signal).map(|()| 0)?))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_signal_group(child: Handle<'_>, signal: c_int) -> c_int {
    on(child, |c| Ok(c.get()?.signal_group(signal).map(|()| 0)?))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_kill_group(child: Handle<'_>) -> c_int {
    on(child, |c| Ok(c.get()?.kill_group().map(|()| 0)?))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_child_output(
    child: Handle<'_>,
    status: Out<'_, c_int>,
    said: Out<'_, Box<ForklessConversation>>,
) -> c_int {
    on(child, |c| {
        let said = said.required("place for the output")?;
        let out = c.inner.take().ok_or_else(used_up)?.wait_with_output()?;
        status.set(out.status.into_raw());
        said.set(ForklessConversation::of_output(out));
        Ok(0)
    })
}
