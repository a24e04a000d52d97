//! `forkless_communicate`: how to talk to a child.
#![expect(
    unsafe_code,
    reason = "exported C symbols; input that the header keeps in place until the call that reads it"
)]

use crate::command::ForklessCommand;
use crate::conversation::ForklessConversation;
use crate::error::Failure;
use crate::ffi::{Array, Data, Out};
use crate::guard::{free, number, on, quietly};
use forkless::Communicate;
use libc::{c_int, c_void};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// `int (*)(void *data, int number, const void *bytes, size_t size)`.
type Callback = extern "C" fn(Data, c_int, *const c_void, usize) -> c_int;

/// `forkless_communicate`.
#[derive(Debug, Default)]
pub struct ForklessCommunicate {
    /// Where the input begins, and its size.
    input: Option<(Array<'static, u8>, usize)>,
    merged: bool,
    kill_group: bool,
    capture: Vec<c_int>,
    limit: Option<usize>,
    timeout: Option<Duration>,
    linger: Option<Duration>,
    on_chunk: Option<(Callback, Data)>,
    on_line: Option<(Callback, Data)>,
}

type Handle<'a> = Option<&'a mut ForklessCommunicate>;

fn edit(how: Handle<'_>, change: impl FnOnce(&mut ForklessCommunicate) -> Result<(), Failure>) -> c_int {
    number(|| {
        change(how.ok_or_else(|| Failure::null("handle"))?)?;
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_new() -> Option<Box<ForklessCommunicate>> {
    quietly(None, || Some(Box::default()))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_free(how: Option<Box<ForklessCommunicate>>) {
    free(how);
}

/// See `forkless.h`.
///
/// # Safety
/// `bytes` has `size` elements, which stay until the last conversation with them has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_communicate_input(
    how: Handle<'_>,
    bytes: Array<'static, u8>,
    size: usize,
) -> c_int {
    edit(how, |h| {
        // Read only when the conversation begins; until then the pointer is just kept.
        // SAFETY: the header: `size` bytes.
        unsafe { bytes.need(size, "input") }?;
        h.input = Some((bytes, size));
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_merged(how: Handle<'_>, yes: c_int) -> c_int {
    edit(how, |h| {
        h.merged = yes != 0;
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_capture(how: Handle<'_>, number: c_int) -> c_int {
    edit(how, |h| {
        match number {
            ..0 => return Err(Failure::plain(libc::EBADF, "a negative descriptor")),
            0 => return Err(Failure::plain(libc::EINVAL, "standard input is no output")),
            _ => h.capture.push(number),
        }
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_limit(how: Handle<'_>, bytes: usize) -> c_int {
    edit(how, |h| {
        h.limit = Some(bytes);
        Ok(())
    })
}

fn milliseconds(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_timeout(how: Handle<'_>, ms: i64) -> c_int {
    edit(how, |h| {
        h.timeout = milliseconds(ms);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_linger(how: Handle<'_>, ms: i64) -> c_int {
    edit(how, |h| {
        h.linger = milliseconds(ms);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_kill_group(how: Handle<'_>, yes: c_int) -> c_int {
    edit(how, |h| {
        h.kill_group = yes != 0;
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_on_chunk(
    how: Handle<'_>,
    call: Option<Callback>,
    data: Data,
) -> c_int {
    edit(how, |h| {
        h.on_chunk = call.map(|f| (f, data));
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_communicate_on_line(how: Handle<'_>, call: Option<Callback>, data: Data) -> c_int {
    edit(how, |h| {
        h.on_line = call.map(|f| (f, data));
        Ok(())
    })
}

fn calling((call, data): (Callback, Data)) -> impl FnMut(c_int, &[u8]) -> ControlFlow<()> {
    move |number, bytes| match call(data, number, bytes.as_ptr().cast(), bytes.len()) {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    }
}

impl ForklessCommunicate {
    fn apply<'a>(&self, mut to: Communicate<'a>) -> Result<Communicate<'a>, Failure> {
        if let Some((bytes, size)) = self.input {
            // SAFETY: the header: in place and unchanged until the last conversation with it has
            // ended.
            to = to.input(unsafe { bytes.need(size, "input") }?);
        }
        if self.merged {
            to = to.merged();
        }
        if self.kill_group {
            to = to.kill_group();
        }
        for n in &self.capture {
            to = to.capture(*n);
        }
        if let Some(bytes) = self.limit {
            to = to.limit(bytes);
        }
        if let Some(time) = self.timeout {
            to = to.timeout(time);
        }
        if let Some(time) = self.linger {
            to = to.linger(time);
        }
        if let Some(f) = self.on_chunk {
            to = to.on_chunk(calling(f));
        }
        if let Some(f) = self.on_line {
            to = to.on_line(calling(f));
        }
        Ok(to)
    }
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_communicate(
    command: Option<&mut ForklessCommand>,
    how: Option<&ForklessCommunicate>,
    status: Out<'_, c_int>,
    said: Out<'_, Box<ForklessConversation>>,
) -> c_int {
    on(command, |c| {
        let mut to = c.get()?.communicate();
        if let Some(how) = how {
            to = how.apply(to)?;
        }
        let (ended, heard) = to.run()?;
        status.set(ended.into_raw());
        said.set(ForklessConversation::of(heard));
        Ok(0)
    })
}
