//! A system-call tracer for short programs: the calls of a forked child and of all its descendants,
//! in the order seen. It shows the system calls that a library function really makes, and which
//! process waits for which. It does not measure time.

#![expect(unsafe_code, reason = "fork and ptrace")]

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::ptr;

use libc::{c_int, pid_t};

use forkless_bench::error::Error;
use forkless_bench::tracing;

/// The type of ptrace's first parameter: the enumeration of glibc's header, musl's int.
#[cfg(target_env = "gnu")]
type Request = libc::c_uint;
#[cfg(not(target_env = "gnu"))]
type Request = c_int;

/// Something a traced task did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Began a system call.
    Call { task: pid_t, number: i64, arguments: [u64; 6] },
    /// Returned from one.
    Return { task: pid_t },
    /// Made another task.
    Made { task: pid_t, child: pid_t },
    /// Became another program.
    Exec { task: pid_t },
    /// Was let go on by the end of a vfork.
    VforkDone { task: pid_t },
    /// Ended, with this wait status.
    Exit { task: pid_t, status: c_int },
}

/// What was seen, and which of the tasks was the first.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) root: pid_t,
    pub(super) events: Vec<Event>,
}

impl Trace {
    /// How often the first task made this call.
    pub(super) fn count(&self, number: i64) -> usize {
        let wanted = |event: &&Event| matches!(event, Event::Call { task, number: n, .. } if *task == self.root && *n == number);
        self.events.iter().filter(wanted).count()
    }

    /// Whether the first task ended well.
    pub(super) fn succeeded(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Exit { task, status: 0 } if *task == self.root))
    }

    /// How often the first task made any call.
    pub(super) fn calls(&self) -> usize {
        self.events
            .iter()
            .filter(|event| matches!(event, Event::Call { task, .. } if *task == self.root))
            .count()
    }
}

/// Runs `body` in a forked child and follows it and everything it makes to their ends.
///
/// # Errors
/// [`Error::Missing`] where tracing is refused.
pub(super) fn trace(body: impl FnOnce()) -> Result<Trace, Error> {
    let none = ptr::null_mut::<c_void>();
    // SAFETY: the child makes itself traceable, runs the body and exits; this program has one
    // thread that matters to it.
    let root = unsafe { libc::fork() };
    if root == 0 {
        // SAFETY: makes the parent this child's tracer.
        if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) } != 0 {
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(1) };
        }
        // SAFETY: stops this child until its tracer continues it.
        unsafe { libc::raise(libc::SIGSTOP) };
        body();
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    if root < 0 {
        return Err(Error::last_os("fork"));
    }
    let traced = follow(root);
    if traced.is_err() {
        // SAFETY: the pid is a child that has not been reaped; its own tracees go with it by
        // PTRACE_O_EXITKILL.
        unsafe { libc::kill(root, libc::SIGKILL) };
        let _ = wait(root);
    }
    traced.map(|events| Trace { root, events })
}

fn wait(pid: pid_t) -> Result<(pid_t, c_int), Error> {
    let mut status = 0;
    // Not the children of other threads: they are somebody else's to wait for.
    // SAFETY: `status` is writable.
    let task = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    if task < 0 { Err(Error::last_os("wait for a traced task")) } else { Ok((task, status)) }
}

fn refused() -> Error {
    tracing::refused(&format!(": {}", std::io::Error::last_os_error()))
}

fn follow(root: pid_t) -> Result<Vec<Event>, Error> {
    let (_, status) = wait(root)?;
    if !libc::WIFSTOPPED(status) {
        return Err(tracing::refused(""));
    }
    let options = libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEVFORKDONE;
    request(libc::PTRACE_SETOPTIONS, root, options.cast_unsigned() as usize)?;
    request(libc::PTRACE_SYSCALL, root, 0)?;
    let mut living = BTreeSet::from([root]);
    let mut known = BTreeSet::from([root]);
    let mut events = Vec::new();
    while !living.is_empty() {
        let (task, status) = wait(-1)?;
        if !libc::WIFSTOPPED(status) {
            living.remove(&task);
            events.push(Event::Exit { task, status });
            continue;
        }
        let mut signal = 0;
        match (libc::WSTOPSIG(status), status >> 16) {
            (stop, 0) if stop == libc::SIGTRAP | 0x80 => events.extend(call(task)?),
            (
                libc::SIGTRAP,
                libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE,
            ) => {
                let child = message(task)?;
                living.insert(child);
                events.push(Event::Made { task, child });
            }
            (libc::SIGTRAP, libc::PTRACE_EVENT_EXEC) => events.push(Event::Exec { task }),
            (libc::SIGTRAP, libc::PTRACE_EVENT_VFORK_DONE) => events.push(Event::VforkDone { task }),
            // A new task begins with a stop of its own, which may come before its maker's event.
            (libc::SIGSTOP, 0) if !known.contains(&task) => {
                living.insert(task);
            }
            (other, 0) => signal = other,
            _ => {}
        }
        known.insert(task);
        // A task may be gone by a SIGKILL since it stopped; its end is seen by the next wait.
        let _ = request(libc::PTRACE_SYSCALL, task, signal.cast_unsigned() as usize);
    }
    Ok(events)
}

fn request(what: Request, task: pid_t, data: usize) -> Result<(), Error> {
    // SAFETY: requests that take a number and touch no memory of this process.
    let result = unsafe { libc::ptrace(what, task, ptr::null_mut::<c_void>(), data) };
    if result < 0 { Err(refused()) } else { Ok(()) }
}

fn message(task: pid_t) -> Result<pid_t, Error> {
    let mut message: libc::c_ulong = 0;
    let target = (&raw mut message).cast::<c_void>();
    // SAFETY: the request writes one unsigned long.
    if unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, task, ptr::null_mut::<c_void>(), target) } < 0 {
        return Err(refused());
    }
    Ok(pid_t::try_from(message).unwrap_or(0))
}

/// The system call at which a task is stopped, by PTRACE_GET_SYSCALL_INFO (Linux 5.3). Its record
/// is the same on every architecture: one byte for entry (1) or exit (2), the architecture, the
/// instruction and stack pointers, then number and arguments, or the result.
fn call(task: pid_t) -> Result<Option<Event>, Error> {
    const GET_SYSCALL_INFO: Request = 0x420e;
    let mut words = [0_u64; 12];
    let size = ptr::without_provenance_mut::<c_void>(size_of_val(&words));
    let target = words.as_mut_ptr().cast::<c_void>();
    // SAFETY: the request writes at most as many bytes as it is told the buffer has.
    if unsafe { libc::ptrace(GET_SYSCALL_INFO, task, size, target) } < 0 {
        return Err(refused());
    }
    let [kind, ..] = words[0].to_ne_bytes();
    Ok(match kind {
        1 => {
            let mut arguments = [0; 6];
            arguments.copy_from_slice(&words[4..10]);
            if words[3].cast_signed() == libc::SYS_clone3 {
                // Its flags are in memory: the first word of its structure. The reader is spared
                // the pointer.
                let mut flags = [0; 8];
                let memory = File::open(format!("/proc/{task}/mem"));
                if memory.and_then(|memory| memory.read_exact_at(&mut flags, arguments[0])).is_ok() {
                    arguments[0] = u64::from_ne_bytes(flags);
                }
            }
            Some(Event::Call { task, number: words[3].cast_signed(), arguments })
        }
        2 => Some(Event::Return { task }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_exactly_and_children_followed() {
        let body = |count: usize| {
            move || {
                for _ in 0..count {
                    // SAFETY: getppid has no preconditions.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
                // SAFETY: the child only exits.
                if unsafe { libc::fork() } == 0 {
                    // SAFETY: as above.
                    unsafe { libc::_exit(0) };
                }
            }
        };
        let trace = match trace(body(17)) {
            Ok(trace) => trace,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert_eq!(trace.count(libc::SYS_getppid), 17);
        let made = trace.events.iter().filter(|event| matches!(event, Event::Made { .. })).count();
        let ended = trace.events.iter().filter(|event| matches!(event, Event::Exit { .. })).count();
        assert_eq!((made, ended), (1, 2));
    }
}
