//! Carries out what `forkless_speculate::policy` says of each system call of a speculative child.
#![expect(unsafe_code, reason = "the program's own system calls")]

use forkless_run::{AbortKind, AbortReason, CommandOf};
use forkless_speculate::policy::{self, Call, Cause, Emulated, Need, Ruling, Then};
use forkless_sys::{Errno, fd, ids, process, sched};
use linux_raw_sys::{general as k, prctl as p};

use crate::kernel::{self, Args};
use crate::mappings;

use super::super::{exclusions, program_memory};
use super::{DEATH, abort, exec, fds, fetch, files, need, signals, stack, status_flags, timers};

/// Makes the call or gives up.
pub(crate) fn judge(nr: u32, args: &Args) -> isize {
    match policy::judge(nr, args, &ThisChild) {
        Ruling::Make(call) => make(nr, args, &call),
        Ruling::Refuse(errno) => -(errno.raw() as isize),
        Ruling::Emulate(emulated) => emulate(emulated, nr, args),
        Ruling::Abort(cause) => abort(reason(cause)),
    }
}

struct ThisChild;

impl policy::Child for ThisChild {
    fn pid(&self) -> i32 {
        process::getpid()
    }

    fn is_hidden(&self, fd: usize) -> bool {
        fds::is_hidden(fd)
    }

    fn is_private(&self, fd: usize) -> bool {
        fds::is_private(fd)
    }

    fn is_usable(&self, fd: usize) -> bool {
        fds::is_usable(fd)
    }

    fn lacks(&self, addr: usize, len: usize) -> bool {
        exclusions::absent().overlaps(addr, len) || stack::is_barrier(addr, len)
    }

    fn has_data_limit(&self) -> bool {
        const NONE: u64 = u64::MAX;
        sched::getrlimit(k::RLIMIT_DATA).map_or(NONE, |limit| limit.soft) != NONE
    }

    fn may_take(&self, bytes: usize) -> bool {
        fetch::may_take(bytes)
    }

    fn heap_end(&self) -> usize {
        pass(k::__NR_brk, &[0; 6]) as usize
    }

    fn has_only_private(&self, addr: usize, len: usize) -> bool {
        mappings::are_private(addr, addr.saturating_add(len))
    }
}

fn reason(cause: Cause) -> AbortReason {
    match cause {
        Cause::Call(nr) => AbortReason::new(AbortKind::Call, nr),
        Cause::Inherited(nr) => AbortReason::new(AbortKind::Inherited, nr),
        Cause::Command { call, command } => {
            let of = match call {
                k::__NR_fcntl => CommandOf::Fcntl,
                k::__NR_ioctl => CommandOf::Ioctl,
                _ => CommandOf::Prctl,
            };
            AbortReason::command(of, command)
        }
        Cause::Layout => AbortKind::Layout.into(),
        Cause::Memory => AbortKind::Budget.into(),
    }
}

fn pass(nr: u32, args: &Args) -> isize {
    // SAFETY: the program's own call, judged private.
    unsafe { kernel::pass(nr, args) }
}

fn make(nr: u32, args: &Args, call: &Call) -> isize {
    let mut length = 0;
    let arg = |position: u8| args[usize::from(position)];
    for need in call.needs {
        match need {
            Need::Nothing => break,
            Need::Bytes { arg: at, len } => need::bytes(arg(at), usize::from(len)),
            Need::Buffer { arg: at, len } => need::bytes(arg(at), arg(len)),
            Need::Groups { arg: at, count } => need::bytes(arg(at), arg(count).min(65536) * 4),
            Need::Processors { arg: at, len } => need::bytes(arg(at), arg(len).min(8192)),
            Need::Pages { arg: at, len } => need::bytes(arg(at), arg(len).div_ceil(4096)),
            Need::Path => need::path(args[0]),
            Need::PathAt => need::path_at(args[0], args[1]),
            Need::Vectors => {
                length = need::iovec(args[1], args[2]);
                if nr == k::__NR_writev && !fetch::may_take(length) {
                    abort(AbortKind::Budget);
                }
            }
            Need::Vacant => {
                status_flags::abort_if_needed(args[1] as u32, args[1] as u32);
                fds::vacate(args[1]);
            }
        }
    }
    if call.then == Then::Credentials {
        abort_if_opened(nr);
    }
    if policy::changes_view(nr, args) {
        fetch::note_view();
    }
    let answer = stack::pass(nr, args);
    // An answer below 0 is larger.
    if (answer as usize) < length {
        need::abort_if_cut(args[1], args[2]);
    }
    match call.then {
        Then::Nothing => {}
        Then::Opened => fds::opened(answer, true),
        Then::Duplicated => fds::duplicated(answer, args[0], 0),
        Then::DuplicatedFrom => fds::duplicated(answer, args[0], args[2]),
        Then::Replaced if answer >= 0 => fds::replaced(args[0], args[1]),
        Then::OpenedPair { arg: at } => {
            let (first, second) =
                if answer == 0 { program_memory::value::<(i32, i32)>(arg(at)) } else { (0, 0) };
            fds::opened_pair(answer, first, second);
        }
        Then::Transferred => {
            if [Errno::EPIPE, Errno::EFBIG].iter().any(|errno| answer == -(errno.raw() as isize)) {
                signals::abort_if_signalled();
            }
        }
        Then::Described { arg: at } => files::counted(nr, arg(at), answer),
        Then::Found => files::abort_if_answer_is_ours(fd::AT_FDCWD as usize, args[0], answer),
        Then::FoundAt => files::abort_if_answer_is_ours(args[0], args[1], answer),
        Then::Credentials if answer >= 0 => keep_pdeathsig(),
        Then::Mapped if is_refused(nr, args, answer) => abort(AbortKind::Layout),
        Then::Replaced | Then::Credentials | Then::Mapped => {}
    }
    answer
}

/// Whether the kernel has refused new memory. It counts mappings of ours, too.
fn is_refused(nr: u32, args: &Args, answer: isize) -> bool {
    // A heap that cannot shrink as far is refused in a plain child, too.
    if nr == k::__NR_brk { (answer as usize) < args[0] } else { answer == -(Errno::ENOMEM.raw() as isize) }
}

fn emulate(emulated: Emulated, nr: u32, args: &Args) -> isize {
    match emulated {
        Emulated::Exec => exec::execve(nr, args),
        Emulated::ExecAt => exec::execveat(nr, args),
        Emulated::Action => signals::rt_sigaction(args),
        Emulated::Mask => signals::rt_sigprocmask(args),
        Emulated::AltStack => signals::sigaltstack(args),
        Emulated::SetPdeathsig => signals::set_pdeathsig(args[1]),
        Emulated::GetPdeathsig => {
            need::bytes(args[1], 4);
            program_memory::store(args[1], signals::pdeathsig());
            0
        }
        Emulated::Close => fds::close(args[0]),
        Emulated::CloseRange => fds::close_range(args),
        Emulated::Open => files::open(fd::AT_FDCWD as usize, args[0], args[1], args[2]),
        Emulated::OpenAt => files::open(args[0], args[1], args[2], args[3]),
        Emulated::ListDirectory => files::getdents64(args),
        Emulated::GetStatusFlags => status_flags::get(args[0]),
        Emulated::SetStatusFlags => status_flags::set(args[0], args[2]),
        Emulated::Connect => files::connect(args),
        Emulated::MakeTimer => timers::create(args),
        Emulated::SetTimer => timers::set(args),
        Emulated::Timer => timers::other(nr, args),
    }
}

/// A process may be looked at by others with all its ids and no fewer capabilities
/// (`ptrace_may_access`, kernel/ptrace.c). The child has its parent's memory open and shares pages
/// with it, so it must not become open to more processes than its parent is. The kernel closes it
/// to all when its effective ids change, as they do when root becomes a user. It does not when only
/// capabilities go, or when a real or saved id goes that was another.
fn abort_if_opened(nr: u32) {
    let differ = |ids: forkless_sys::Result<[u32; 3]>| {
        !ids.is_ok_and(|[real, effective, saved]| real == effective && real == saved)
    };
    let is_open = process::dumpable() == Ok(1);
    if is_open && (nr == k::__NR_capset || differ(ids::getresuid()) || differ(ids::getresgid())) {
        abort(AbortReason::new(AbortKind::Call, nr));
    }
}

/// A change of credentials clears PR_SET_PDEATHSIG (kernel/cred.c, commit_creds), which keeps us
/// from outliving the parent. When the kernel has cleared ours, the program's own is gone as well.
/// A call that changed nothing clears neither.
fn keep_pdeathsig() {
    let mut now = 0i32;
    let get = [p::PR_GET_PDEATHSIG as usize, (&raw mut now) as usize, 0, 0, 0, 0];
    if pass(k::__NR_prctl, &get) != 0 {
        abort(AbortKind::Setup);
    }
    if now == 0 {
        signals::clear_pdeathsig();
        if process::set_pdeathsig(DEATH).is_err() {
            abort(AbortKind::Setup);
        }
    }
}
