//! The system calls that a case makes, in parent and child, seen by ptrace. A call can be refused,
//! or the process killed there. `strace -e inject` can do part of it; this can say "the third call
//! of the second process".
//!
//! The case runs as `--bare NAME` in a traced process. Between [`begin`] and [`end`] the calls are
//! recorded.
#![expect(unsafe_code, reason = "ptrace")]

use super::{me, short_of};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// One system call as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub pid: i32,
    pub nr: i64,
    pub args: [u64; 6],
    /// `None` when the process did not come back from it.
    pub ret: Option<i64>,
    /// `clone_args.flags` of a clone3, the flags of a clone.
    pub flags: u64,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Let,
    /// The call is not made; this error is the answer.
    Fail(i32),
    /// The process is killed as it enters.
    Kill,
    /// The first argument is changed.
    Argument(u64),
}

const MARK: i64 = libc::SYS_close;
const BEGIN: u64 = 0xffff_ffff_ffff_4242;
const END: u64 = 0xffff_ffff_ffff_4243;

/// Recording starts.
pub fn begin() {
    let _ = forkless_sys::fd::close(BEGIN as i32);
}

/// Recording ends.
pub fn end() {
    let _ = forkless_sys::fd::close(END as i32);
}

/// The calls of a traced case.
#[derive(Debug)]
pub struct Trace {
    pub calls: Vec<Call>,
    /// The traced process's own end: a wait status.
    pub status: i32,
    pub main: i32,
}

impl Trace {
    pub fn of(&self, nr: i64) -> Vec<&Call> {
        self.calls.iter().filter(|c| c.nr == nr).collect()
    }

    /// Calls of every process but the main one.
    pub fn children(&self) -> Vec<&Call> {
        self.calls.iter().filter(|c| c.pid != self.main).collect()
    }

    /// Every creation of a process or thread, with its flags.
    pub fn creations(&self) -> Vec<&Call> {
        self.calls
            .iter()
            .filter(|c| [libc::SYS_clone, libc::SYS_clone3].contains(&c.nr) || is_fork(c.nr))
            .collect()
    }

    /// The main process ended well.
    #[track_caller]
    pub fn ok(&self) -> &Trace {
        assert_eq!(self.status, 0, "the traced case failed");
        self
    }
}

#[cfg(target_arch = "x86_64")]
pub fn is_fork(nr: i64) -> bool {
    nr == libc::SYS_fork || nr == libc::SYS_vfork
}

#[cfg(not(target_arch = "x86_64"))]
pub fn is_fork(_nr: i64) -> bool {
    false
}

/// The type of ptrace's first parameter: the enumeration of glibc's header, musl's int.
#[cfg(target_env = "gnu")]
type Request = u32;
#[cfg(not(target_env = "gnu"))]
type Request = i32;

fn ptrace(request: Request, pid: i32, addr: usize, data: usize) -> i64 {
    // SAFETY: requests that write do so into buffers of this module, passed by address.
    unsafe { libc::ptrace(request, pid, addr, data) }
}

/// Runs the case called `name` (a path within this test) and records its calls.
pub fn run(name: &str) -> Trace {
    run_with(name, |_, _| Act::Let)
}

/// As [`run`]; `decide` sees each recorded call as it is entered, with the calls before it.
pub fn run_with(name: &str, mut decide: impl FnMut(&Call, &[Call]) -> Act) -> Trace {
    let mut command = Command::new(me());
    command.args(["--bare", short_of(name)]).stdin(Stdio::null());
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| {
            if ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let child = match command.spawn() {
        Ok(c) => c,
        Err(e) => super::skip(&format!("ptrace is refused: {e}")),
    };
    let main = child.id() as i32;
    let mut status = 0;
    // SAFETY: writes one int.
    unsafe { libc::waitpid(main, &raw mut status, libc::__WALL) };
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    assert_eq!(ptrace(libc::PTRACE_SETOPTIONS, main, 0, options as usize), 0, "PTRACE_SETOPTIONS");
    ptrace(libc::PTRACE_SYSCALL, main, 0, 0);
    let mut trace = Trace { calls: Vec::new(), status: -1, main };
    let mut open: BTreeMap<i32, (Option<usize>, Option<i32>)> = BTreeMap::new();
    let mut on = false;
    loop {
        let mut status = 0;
        // SAFETY: writes one int.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if pid < 0 {
            return trace;
        }
        if !libc::WIFSTOPPED(status) {
            open.remove(&pid);
            if pid == main {
                trace.status = status;
            }
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        let mut deliver = 0;
        if signal == libc::SIGTRAP | 0x80 {
            let info = syscall_info(pid);
            if info.op == 1 {
                let mut call = Call { pid, nr: info.nr as i64, args: info.args, ret: None, flags: 0 };
                if call.nr == MARK && call.args[0] as u32 == BEGIN as u32 {
                    on = true;
                } else if call.nr == MARK && call.args[0] as u32 == END as u32 {
                    on = false;
                } else if on {
                    call.flags = match call.nr {
                        libc::SYS_clone3 => peek(pid, call.args[0]),
                        libc::SYS_clone => call.args[0],
                        _ => 0,
                    };
                    let mut forced = None;
                    match decide(&call, &trace.calls) {
                        Act::Let => {}
                        Act::Fail(e) => {
                            forced = Some(e);
                            set_number(pid, -1);
                        }
                        Act::Kill => {
                            let _ = forkless_sys::process::kill(pid, 9);
                        }
                        Act::Argument(to) => set_first_argument(pid, to),
                    }
                    trace.calls.push(call);
                    open.insert(pid, (Some(trace.calls.len() - 1), forced));
                }
            } else if info.op == 2
                && let Some((at, forced)) = open.remove(&pid)
            {
                if let Some(e) = forced {
                    set_result(pid, -i64::from(e));
                }
                if let Some(at) = at {
                    trace.calls[at].ret = Some(forced.map_or(info.args[0] as i64, |e| -i64::from(e)));
                }
            }
        } else if signal != libc::SIGTRAP
            && !(signal == libc::SIGSTOP && status >> 16 == 0 && is_new(pid, &mut open))
        {
            deliver = signal as usize;
        }
        ptrace(libc::PTRACE_SYSCALL, pid, 0, deliver);
    }
}

/// A new tracee begins with a SIGSTOP that is ptrace's own.
fn is_new(pid: i32, open: &mut BTreeMap<i32, (Option<usize>, Option<i32>)>) -> bool {
    !open.contains_key(&-pid) && open.insert(-pid, (None, None)).is_none()
}

/// `struct ptrace_syscall_info` (`include/uapi/linux/ptrace.h`): op, arch, two addresses, then
/// number and arguments at an entry, the result at an exit.
#[repr(C)]
#[derive(Default)]
struct Raw {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    ip: u64,
    sp: u64,
    nr: u64,
    args: [u64; 7],
}

struct Info {
    op: u8,
    nr: u64,
    args: [u64; 6],
}

fn syscall_info(pid: i32) -> Info {
    const PTRACE_GET_SYSCALL_INFO: Request = 0x420e;
    let mut raw = Raw::default();
    ptrace(PTRACE_GET_SYSCALL_INFO, pid, size_of::<Raw>(), &raw mut raw as usize);
    let mut args = [0; 6];
    args.copy_from_slice(&raw.args[..6]);
    if raw.op == 2 {
        args[0] = raw.nr;
    }
    Info { op: raw.op, nr: raw.nr, args }
}

fn peek(pid: i32, at: u64) -> u64 {
    let mut word = 0u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: 8 };
    // SAFETY: writes eight bytes into `word`.
    unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    word
}

#[cfg(target_arch = "x86_64")]
fn with_registers(pid: i32, change: impl FnOnce(&mut libc::user_regs_struct)) {
    let mut regs = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    ptrace(libc::PTRACE_GETREGS, pid, 0, regs.as_mut_ptr() as usize);
    // SAFETY: plain integers, zeroed or filled in.
    let mut regs = unsafe { regs.assume_init() };
    change(&mut regs);
    ptrace(libc::PTRACE_SETREGS, pid, 0, &raw const regs as usize);
}

#[cfg(target_arch = "x86_64")]
fn set_number(pid: i32, nr: i64) {
    with_registers(pid, |r| r.orig_rax = nr as u64);
}

#[cfg(target_arch = "x86_64")]
fn set_result(pid: i32, ret: i64) {
    with_registers(pid, |r| r.rax = ret as u64);
}

#[cfg(target_arch = "x86_64")]
fn set_first_argument(pid: i32, to: u64) {
    with_registers(pid, |r| r.rdi = to);
}

#[cfg(not(target_arch = "x86_64"))]
fn set_number(_: i32, _: i64) {
    super::skip("changing a traced call is written for x86-64");
}

#[cfg(not(target_arch = "x86_64"))]
fn set_result(_: i32, _: i64) {}

#[cfg(not(target_arch = "x86_64"))]
fn set_first_argument(_: i32, _: u64) {
    super::skip("changing a traced call is written for x86-64");
}
