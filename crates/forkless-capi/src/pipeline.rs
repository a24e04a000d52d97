//! `forkless_pipeline`: commands joined by pipes.
#![expect(unsafe_code, reason = "exported C symbols; arrays whose size the caller gives")]

use crate::child::ForklessChild;
use crate::command::ForklessCommand;
use crate::conversation::ForklessConversation;
use crate::error::Failure;
use crate::ffi::Out;
use crate::guard::{Remembers, free, on, quietly};
use forkless::{Command, Pipeline};
use libc::c_int;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;

#[derive(Debug, Default)]
enum Stages {
    #[default]
    None,
    One(Box<Command>),
    Some(Pipeline, usize),
}

/// `forkless_pipeline`.
#[derive(Debug, Default)]
pub struct ForklessPipeline {
    stages: Stages,
    error: Option<Failure>,
}

impl Remembers for ForklessPipeline {
    fn failure(&mut self) -> &mut Option<Failure> {
        &mut self.error
    }
}

impl ForklessPipeline {
    /// The pipeline, for results that take `room`.
    fn get(&mut self, room: usize) -> Result<(&mut Pipeline, usize), Failure> {
        match &mut self.stages {
            Stages::Some(_, n) if room < *n => {
                Err(Failure::plain(libc::EINVAL, &format!("room for {room} results, and {n} commands")))
            }
            Stages::Some(p, n) => Ok((p, *n)),
            _ => Err(Failure::plain(libc::EINVAL, "a pipeline needs two commands at least")),
        }
    }
}

type Handle<'a> = Option<&'a mut ForklessPipeline>;

/// Stores results in an array of `results.len()` elements at least.
fn fill<T>(to: Option<&mut MaybeUninit<T>>, results: Vec<T>) {
    let Some(to) = to else { return };
    let mut at: *mut MaybeUninit<T> = to;
    for r in results {
        // SAFETY: `get` has compared the number of results with the room that, the header says, is
        // there.
        unsafe { at.write(MaybeUninit::new(r)) };
        at = at.wrapping_add(1);
    }
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_pipeline_new() -> Option<Box<ForklessPipeline>> {
    quietly(None, || Some(Box::default()))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_pipeline_free(pipeline: Option<Box<ForklessPipeline>>) {
    free(pipeline);
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_pipeline_error(pipeline: Option<&ForklessPipeline>) -> Option<&Failure> {
    pipeline?.error.as_ref()
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_pipeline_add(
    pipeline: Handle<'_>,
    command: Option<&mut ForklessCommand>,
) -> c_int {
    on(pipeline, |p| {
        let next = command.ok_or_else(|| Failure::null("command"))?.take()?;
        p.stages = match std::mem::take(&mut p.stages) {
            Stages::None => Stages::One(Box::new(next)),
            Stages::One(first) => Stages::Some(first.pipe(next), 2),
            Stages::Some(stages, n) => Stages::Some(stages.pipe(next), n + 1),
        };
        Ok(0)
    })
}

/// See `forkless.h`.
///
/// # Safety
/// `children` has `room` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_pipeline_spawn(
    pipeline: Handle<'_>,
    children: Option<&mut MaybeUninit<Box<ForklessChild>>>,
    room: usize,
) -> c_int {
    on(pipeline, |p| {
        let children = children.ok_or_else(|| Failure::null("place for the children"))?;
        let (stages, n) = p.get(room)?;
        let started = stages.spawn()?.stages.into_iter().map(ForklessChild::boxed).collect();
        fill(Some(children), started);
        Ok(c_int::try_from(n).unwrap_or(c_int::MAX))
    })
}

/// See `forkless.h`.
///
/// # Safety
/// `statuses` has `room` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_pipeline_status(
    pipeline: Handle<'_>,
    statuses: Option<&mut MaybeUninit<c_int>>,
    room: usize,
) -> c_int {
    on(pipeline, |p| {
        let room = if statuses.is_some() { room } else { usize::MAX };
        let (stages, n) = p.get(room)?;
        let ended = stages.status()?.into_iter().map(ExitStatusExt::into_raw).collect();
        fill(statuses, ended);
        Ok(c_int::try_from(n).unwrap_or(c_int::MAX))
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_pipeline_output(
    pipeline: Handle<'_>,
    status: Out<'_, c_int>,
    said: Out<'_, Box<ForklessConversation>>,
) -> c_int {
    on(pipeline, |p| {
        let said = said.required("place for the output")?;
        let out = p.get(usize::MAX)?.0.output()?;
        status.set(out.status.into_raw());
        said.set(ForklessConversation::of_output(out));
        Ok(0)
    })
}
