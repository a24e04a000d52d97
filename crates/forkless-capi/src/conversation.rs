//! `forkless_conversation`: the output of a child that was talked to.
#![expect(unsafe_code, reason = "exported C symbols")]

use crate::ffi::Out;
use crate::guard::free;
use forkless::{Conversation, End};
use libc::{c_int, c_void};
use std::process::Output;

/// `forkless_conversation`.
#[derive(Debug)]
pub struct ForklessConversation {
    streams: Vec<(c_int, Vec<u8>)>,
    end: c_int,
}

impl ForklessConversation {
    fn boxed(mut streams: Vec<(c_int, Vec<u8>)>, end: End) -> Box<ForklessConversation> {
        for (_, bytes) in &mut streams {
            // A NUL that is not counted: text can be used as a C string.
            bytes.push(0);
        }
        let end = match end {
            End::Complete => 0,
            End::Lingered => 1,
            End::Deadline => 2,
            End::Limit => 3,
            End::Stopped => 4,
            _ => 99,
        };
        Box::new(ForklessConversation { streams, end })
    }

    pub(crate) fn of(said: Conversation) -> Box<ForklessConversation> {
        let mut streams = vec![(1, said.stdout), (2, said.stderr)];
        streams.extend(said.others);
        ForklessConversation::boxed(streams, said.end)
    }

    pub(crate) fn of_output(out: Output) -> Box<ForklessConversation> {
        ForklessConversation::boxed(vec![(1, out.stdout), (2, out.stderr)], End::Complete)
    }
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_conversation_end(said: Option<&ForklessConversation>) -> c_int {
    said.map_or(-libc::EINVAL, |s| s.end)
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_conversation_output(
    said: Option<&ForklessConversation>,
    number: c_int,
    bytes: Out<'_, *const c_void>,
    size: Out<'_, usize>,
) -> c_int {
    let Some(said) = said else { return -libc::EINVAL };
    let Some((_, of)) = said.streams.iter().find(|s| s.0 == number) else { return -libc::ENOENT };
    bytes.set(of.as_ptr().cast());
    size.set(of.len() - 1);
    0
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_conversation_free(said: Option<Box<ForklessConversation>>) {
    free(said);
}
