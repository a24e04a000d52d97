//! `forkless_command`: the builder.
#![expect(
    unsafe_code,
    reason = "exported C symbols; a hook and borrowed descriptors whose safety the header asks of the caller"
)]

use crate::child::{ForklessChild, on_drop};
use crate::error::Failure;
use crate::ffi::{Array, Data, Out, Text, Vector, sigset};
use crate::guard::{Remembers, free, on, quietly};
use forkless::{Command, Resource, Scheduler, Stdio};
use libc::{c_int, c_uint};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;

/// `forkless_command`.
#[derive(Debug)]
pub struct ForklessCommand {
    /// Gone once it has become a prepared command or part of a pipeline.
    inner: Option<Command>,
    error: Option<Failure>,
}

impl Remembers for ForklessCommand {
    fn failure(&mut self) -> &mut Option<Failure> {
        &mut self.error
    }
}

impl ForklessCommand {
    pub(crate) fn get(&mut self) -> Result<&mut Command, Failure> {
        self.inner.as_mut().ok_or_else(used_up)
    }

    pub(crate) fn take(&mut self) -> Result<Command, Failure> {
        self.inner.take().ok_or_else(used_up)
    }
}

fn used_up() -> Failure {
    Failure::plain(
        libc::EINVAL,
        "the command was used up by forkless_command_prepare or forkless_pipeline_add",
    )
}

type Handle<'a> = Option<&'a mut ForklessCommand>;

/// A call that only changes the builder.
fn edit(command: Handle<'_>, change: impl FnOnce(&mut Command) -> Result<(), Failure>) -> c_int {
    on(command, |c| change(c.get()?).map(|()| 0))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_new(program: Text<'_>) -> Option<Box<ForklessCommand>> {
    let Some(program) = program.get() else {
        crate::guard::set_errno(libc::EINVAL);
        return None;
    };
    quietly(None, || {
        let mut command = Command::new(OsStr::from_bytes(program.to_bytes()));
        // SAFETY: `forkless.h` asks it of the program, as getenv(3) does.
        unsafe { command.read_environ() };
        // As posix_spawn(3): a C program that ignores SIGPIPE wants its children to ignore it, too.
        command.inherit_signals(true);
        Some(Box::new(ForklessCommand { inner: Some(command), error: None }))
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_free(command: Option<Box<ForklessCommand>>) {
    free(command);
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_error(command: Option<&ForklessCommand>) -> Option<&Failure> {
    command?.error.as_ref()
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_arg(command: Handle<'_>, arg: Text<'_>) -> c_int {
    edit(command, |c| {
        c.arg(arg.need("argument")?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_args(command: Handle<'_>, args: Vector<'_>) -> c_int {
    edit(command, |c| {
        c.args(args.need("argument vector")?.map(|a| OsStr::from_bytes(a.to_bytes())));
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_arg0(command: Handle<'_>, arg: Text<'_>) -> c_int {
    edit(command, |c| {
        c.arg0(arg.need("argument")?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_env(command: Handle<'_>, name: Text<'_>, value: Text<'_>) -> c_int {
    edit(command, |c| {
        c.env(name.need("name")?, value.need("value")?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_env_remove(command: Handle<'_>, name: Text<'_>) -> c_int {
    edit(command, |c| {
        c.env_remove(name.need("name")?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_env_clear(command: Handle<'_>) -> c_int {
    edit(command, |c| {
        c.env_clear();
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_current_dir(command: Handle<'_>, dir: Text<'_>) -> c_int {
    edit(command, |c| {
        c.current_dir(dir.need("directory")?);
        Ok(())
    })
}

fn connect(command: Handle<'_>, number: c_int, to: impl FnOnce() -> Result<Stdio, Failure>) -> c_int {
    edit(command, |c| {
        c.fd(not_negative(number)?, to()?);
        Ok(())
    })
}

fn not_negative(from: c_int) -> Result<c_int, Failure> {
    if from < 0 {
        return Err(Failure::plain(libc::EBADF, &format!("descriptor {from} is negative")));
    }
    Ok(from)
}

/// See `forkless.h`.
///
/// # Safety
/// `from` stays open, and the same file, until the last start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_command_fd(command: Handle<'_>, number: c_int, from: c_int) -> c_int {
    connect(command, number, || {
        let from = not_negative(from)?;
        // SAFETY: the header: `from` stays open, and the caller's, until the last start.
        Ok(unsafe { Stdio::from_raw_borrowed(from) })
    })
}

/// See `forkless.h`.
///
/// # Safety
/// The caller owns `from` and gives it away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_command_fd_take(command: Handle<'_>, number: c_int, from: c_int) -> c_int {
    edit(command, |c| {
        let (number, from) = (not_negative(number)?, not_negative(from)?);
        // A debug build would abort when it closes a number that is not open. A wrong number is an
        // error for the caller.
        // SAFETY: F_GETFD takes no pointer.
        if unsafe { libc::fcntl(from, libc::F_GETFD) } < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // Two owners of one number would close it twice, and the second time another file.
        if !c.keeps(from) {
            // SAFETY: open, and the header: the caller gives it away.
            c.keep(unsafe { OwnedFd::from_raw_fd(from) });
        }
        // SAFETY: the command keeps it for as long as there are starts.
        c.fd(number, unsafe { Stdio::from_raw_borrowed(from) });
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_fd_inherit(command: Handle<'_>, number: c_int) -> c_int {
    connect(command, number, || Ok(Stdio::inherit()))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_fd_null(command: Handle<'_>, number: c_int) -> c_int {
    connect(command, number, || Ok(Stdio::null()))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_fd_pipe(command: Handle<'_>, number: c_int) -> c_int {
    connect(command, number, || Ok(Stdio::piped()))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_fd_pipe_input(command: Handle<'_>, number: c_int) -> c_int {
    connect(command, number, || Ok(Stdio::piped_input()))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_fd_close(command: Handle<'_>, number: c_int) -> c_int {
    connect(command, number, || Ok(Stdio::closed()))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_fd_same_as(command: Handle<'_>, number: c_int, other: c_int) -> c_int {
    connect(command, number, || Ok(Stdio::same_as(not_negative(other)?)))
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_inherit_descriptors(command: Handle<'_>, yes: c_int) -> c_int {
    edit(command, |c| {
        c.inherit_descriptors(yes != 0);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_scripts_without_interpreter(command: Handle<'_>, yes: c_int) -> c_int {
    edit(command, |c| {
        c.scripts_without_interpreter(yes != 0);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_uid(command: Handle<'_>, uid: libc::uid_t) -> c_int {
    edit(command, |c| {
        c.uid(uid);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_gid(command: Handle<'_>, gid: libc::gid_t) -> c_int {
    edit(command, |c| {
        c.gid(gid);
        Ok(())
    })
}

/// See `forkless.h`.
///
/// # Safety
/// `groups` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_command_groups(
    command: Handle<'_>,
    groups: Array<'_, libc::gid_t>,
    count: usize,
) -> c_int {
    edit(command, |c| {
        // SAFETY: the header: `count` groups.
        c.groups(unsafe { groups.need(count, "group list") }?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_process_group(command: Handle<'_>, pgid: libc::pid_t) -> c_int {
    edit(command, |c| {
        c.process_group(pgid);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_setsid(command: Handle<'_>, yes: c_int) -> c_int {
    edit(command, |c| {
        c.setsid(yes != 0);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_controlling_terminal(command: Handle<'_>, number: c_int) -> c_int {
    edit(command, |c| {
        c.controlling_terminal(number);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_foreground(command: Handle<'_>, number: c_int) -> c_int {
    edit(command, |c| {
        c.foreground(number);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_umask(command: Handle<'_>, mask: libc::mode_t) -> c_int {
    edit(command, |c| {
        c.umask(mask);
        Ok(())
    })
}

/// `RLIMIT_*` of this kernel's headers.
fn resource(number: c_int) -> Option<Resource> {
    Some(match number {
        0 => Resource::Cpu,
        1 => Resource::FileSize,
        2 => Resource::Data,
        3 => Resource::Stack,
        4 => Resource::Core,
        5 => Resource::Rss,
        6 => Resource::Processes,
        7 => Resource::OpenFiles,
        8 => Resource::LockedMemory,
        9 => Resource::AddressSpace,
        10 => Resource::FileLocks,
        11 => Resource::PendingSignals,
        12 => Resource::MessageQueues,
        13 => Resource::Nice,
        14 => Resource::RealtimePriority,
        15 => Resource::RealtimeTime,
        _ => return None,
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_rlimit(
    command: Handle<'_>,
    limited: c_int,
    soft: u64,
    hard: u64,
) -> c_int {
    edit(command, |c| {
        let Some(of) = resource(limited) else {
            return Err(Failure::plain(libc::EINVAL, &format!("resource {limited} does not exist")));
        };
        c.rlimit(of, soft, hard);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_nice(command: Handle<'_>, value: c_int) -> c_int {
    edit(command, |c| {
        c.nice(value);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_scheduler(command: Handle<'_>, policy: c_int, priority: c_int) -> c_int {
    edit(command, |c| {
        let level = u8::try_from(priority).ok();
        c.scheduler(match (policy, level) {
            (libc::SCHED_OTHER, Some(0)) => Scheduler::Other,
            (libc::SCHED_FIFO, Some(p)) => Scheduler::Fifo(p),
            (libc::SCHED_RR, Some(p)) => Scheduler::RoundRobin(p),
            (libc::SCHED_BATCH, Some(0)) => Scheduler::Batch,
            (libc::SCHED_IDLE, Some(0)) => Scheduler::Idle,
            _ => {
                let what = format!("scheduling policy {policy} with priority {priority} does not exist");
                return Err(Failure::plain(libc::EINVAL, &what));
            }
        });
        Ok(())
    })
}

/// See `forkless.h`.
///
/// # Safety
/// `cpus` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_command_affinity(
    command: Handle<'_>,
    cpus: Array<'_, c_uint>,
    count: usize,
) -> c_int {
    edit(command, |c| {
        // SAFETY: the header: `count` numbers.
        let cpus = unsafe { cpus.need(count, "CPU list") }?;
        c.affinity(cpus.iter().map(|n| *n as usize));
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_parent_death_signal(command: Handle<'_>, signal: c_int) -> c_int {
    edit(command, |c| {
        c.parent_death_signal(signal);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_no_new_privs(command: Handle<'_>, yes: c_int) -> c_int {
    edit(command, |c| {
        c.no_new_privs(yes != 0);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_chroot(command: Handle<'_>, dir: Text<'_>) -> c_int {
    edit(command, |c| {
        c.chroot(dir.need("directory")?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_cgroup(command: Handle<'_>, dir: Text<'_>) -> c_int {
    edit(command, |c| {
        c.cgroup(dir.need("directory")?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_signal_mask(
    command: Handle<'_>,
    blocked: Option<&libc::sigset_t>,
) -> c_int {
    edit(command, |c| {
        c.signal_mask(sigset(blocked)?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_inherit_signals(command: Handle<'_>, yes: c_int) -> c_int {
    edit(command, |c| {
        c.inherit_signals(yes != 0);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_default_signals(
    command: Handle<'_>,
    signals: Option<&libc::sigset_t>,
) -> c_int {
    edit(command, |c| {
        c.default_signals(sigset(signals)?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_ignore_signals(
    command: Handle<'_>,
    signals: Option<&libc::sigset_t>,
) -> c_int {
    edit(command, |c| {
        c.ignore_signals(sigset(signals)?);
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_on_free(command: Handle<'_>, policy: c_int) -> c_int {
    edit(command, |c| {
        c.on_drop(on_drop(policy)?);
        Ok(())
    })
}

/// `int (*)(void *)`, run in the child.
type Hook = extern "C" fn(Data) -> c_int;

/// See `forkless.h`.
///
/// # Safety
/// The function keeps the rules of [`Command::pre_exec`]; `data` is valid for as long as the
/// command.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkless_command_pre_exec(
    command: Handle<'_>,
    hook: Option<Hook>,
    data: Data,
) -> c_int {
    edit(command, |c| {
        let hook = hook.ok_or_else(|| Failure::null("function"))?;
        let run = move || match hook(data) {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e.saturating_abs())),
        };
        // SAFETY: the header asks of the function what `pre_exec` asks of its caller.
        unsafe { c.pre_exec(run) };
        Ok(())
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_spawn(command: Handle<'_>, child: Out<'_, Box<ForklessChild>>) -> c_int {
    on(command, |c| {
        let child = child.required("place for the child")?;
        child.set(ForklessChild::boxed(c.get()?.spawn()?));
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_spawn_nonblocking(
    command: Handle<'_>,
    child: Out<'_, Box<ForklessChild>>,
) -> c_int {
    on(command, |c| {
        let child = child.required("place for the child")?;
        child.set(ForklessChild::boxed(c.get()?.spawn_nonblocking()?));
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_status(command: Handle<'_>, status: Out<'_, c_int>) -> c_int {
    on(command, |c| {
        status.set(c.get()?.status()?.into_raw());
        Ok(0)
    })
}

/// See `forkless.h`.
#[unsafe(no_mangle)]
pub extern "C" fn forkless_command_exec(command: Handle<'_>) -> c_int {
    on(command, |c| Err(c.get()?.exec().into()))
}
