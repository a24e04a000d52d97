//! The methods that only Linux has: its own system calls, `clone`, popen-noshell's way, and this
//! project's libraries.

mod clone_vm;
mod noshell;
mod ours;
pub(crate) mod raw;

use std::sync::Arc;

use self::noshell::{Mode, Noshell};
pub(super) use self::ours::may_set_groups;
use self::ours::{Ours, Use};
use super::Method;
use super::libc_methods::{Popen, System};
use super::worker::{SpawnedProgram, Worker};
use crate::error::Error;

/// The worker of a method that is not [`libc_methods`](super::libc_methods)'.
pub(super) fn worker(method: Method, target: Arc<SpawnedProgram>) -> Result<Box<dyn Worker>, Error> {
    let name = method.name();
    let noshell = |target, mode, compat| Box::new(Noshell { target, mode, compat, name });
    let ours = |target, how| Ours::new(target, how, name).map(Box::new);
    Ok(match method {
        Method::CloneVm => Box::new(clone_vm::CloneVm::new(target)?),
        Method::NoshellCloneCompat0 => noshell(target, Mode::Clone, false),
        Method::NoshellCloneCompat1 => noshell(target, Mode::Clone, true),
        Method::NoshellSpawnCompat0 => noshell(target, Mode::Spawn, false),
        Method::NoshellSpawnCompat1 => noshell(target, Mode::Spawn, true),
        Method::NoshellForkCompat0 => noshell(target, Mode::Fork, false),
        Method::NoshellForkCompat1 => noshell(target, Mode::Fork, true),
        Method::ForklessSystem => Box::new(System { target, run: ours::system, name }),
        Method::ForklessPopen => {
            Box::new(Popen { target, open: ours::popen, close: forkless_capi::forkless_pclose, name })
        }
        Method::Forkless => ours(target, Use::Status)?,
        Method::ForklessSpawn => ours(target, Use::Spawn)?,
        Method::ForklessCommand => ours(target, Use::Command)?,
        Method::ForklessNonblocking => ours(target, Use::Nonblocking)?,
        Method::ForklessInherit => ours(target, Use::Inherit)?,
        Method::ForklessPipes => ours(target, Use::Pipe)?,
        Method::ForklessPipes3 => ours(target, Use::Pipes3)?,
        Method::ForklessFull => ours(target, Use::Full)?,
        _ => return Err(Error::Spec(format!("{method} is not made of Linux's own"))),
    })
}
