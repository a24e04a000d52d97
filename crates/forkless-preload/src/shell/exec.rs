//! `sh -c LINE` at exec: a process that executes the probed shell with one line executes the line's
//! command instead, if this shell would execute it in its own place. Process, parent and status are
//! then the same. The shell gets every other line, and each line whose command cannot be executed.
//!
//! The process may be a child of `vfork`, which runs in its parent's memory and on its parent's
//! stack. So nothing is written but a bounded part of that stack, and facts of this
//! memory that hold for the parent as well: where libc's functions are, and whether another library
//! has such functions. The file of the shell is compared each time. Nothing is asked of the shell
//! here; `posix_spawn`, which is called in the parent, may ask it.
//!
//! The kernel answers `EFAULT` for a pointer to nowhere. So here a pointer is followed only after
//! the kernel has read through it. A speculative child follows every pointer: it fetches what it
//! lacks, and is undone for a pointer to nowhere.
#![expect(unsafe_code, reason = "walks the arguments and the environment of an exec")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::hint::black_box;
use core::ptr::null;
use core::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Acquire, Relaxed},
};

use forkless_run::Counter;
use forkless_shell::{Command, Directory, EnvSlot, EnvString, ShellKind, ShellTraits, analyze};
use forkless_sys::signal::{self, Disposition, KernelAction, SigSet};
use forkless_sys::{CPtr, futex, process};

use crate::signals::{SIG_IGN, SIGCHLD, SIGQUIT};
use crate::{errno, filters, fork, next, rt, speculation, tally};

use super::launch::{self, Parts, Workspace};
use super::line::{Environ, current, fill, find, previous};
use super::{SHELL, UNASKED, ask, is_the_shell, rights};

/// The functions that this module stands in front of.
const FUNCTIONS: &str = "execve\0execv\0execvp\0execvpe\0execl\0execlp\0execle\0posix_spawn\0posix_spawnp\0";

/// The program to execute, as the caller names it.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    Path(*const c_char),
    /// A name without a slash is looked for along the caller's own `PATH`.
    Name(*const c_char),
}

/// A call that starts the shell with one line.
struct Called<'a> {
    /// The shell's, as the caller names it.
    path: CPtr<'a>,
    /// A name without a slash, to be looked for along the caller's own `PATH`.
    is_searched_for: bool,
    line: &'a CStr,
}

/// The last thing before an exec: executes the command in place of a shell, or returns. Then the
/// call is to be made as it is.
///
/// Every program runs through this function, and nearly none through those it calls (layout.ld).
pub(crate) fn replace(program: Program, argv: *const *const c_char, envp: *const *const c_char) {
    let shell = ShellTraits::from_bits(SHELL.load(Acquire));
    if shell.kind() != ShellKind::Unknown && is_named_sh(program) {
        replace_shell(&shell, program, argv, envp);
    }
}

#[inline(never)]
fn replace_shell(
    shell: &ShellTraits,
    program: Program,
    argv: *const *const c_char,
    envp: *const *const c_char,
) {
    let Some(called) = called(program, argv, envp) else { return };
    let kept = match allowed(&called, is_the_shell) {
        None => return,
        Some(true) if has_room() => on_this_stack(shell, &called, envp),
        Some(_) => Counter::ExecStates,
    };
    count(kept);
}

/// `posix_spawn(3)` and `posix_spawnp(3)`.
pub(crate) type PosixSpawn = extern "C" fn(
    *mut c_int,
    *const c_char,
    *const c_void,
    *const c_void,
    *const *const c_char,
    *const *const c_char,
) -> c_int;

/// A call of one of them, but for the program.
pub(crate) struct Spawn {
    /// The next definition.
    pub(crate) real: PosixSpawn,
    pub(crate) pid: *mut c_int,
    pub(crate) actions: *const c_void,
    pub(crate) attributes: *const c_void,
}

impl Spawn {
    /// Calls the next definition.
    pub(crate) fn start(
        &self,
        file: *const c_char,
        argv: *const *const c_char,
        envp: *const *const c_char,
    ) -> c_int {
        (self.real)(self.pid, file, self.actions, self.attributes, argv, envp)
    }
}

/// The same as [`replace`], for a process that is to be spawned. `None`: the call is to be made as
/// it is.
pub(crate) fn spawn(
    program: Program,
    spawn: &Spawn,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> Option<c_int> {
    let state = SHELL.load(Acquire);
    let is_known = ShellTraits::from_bits(state).kind() != ShellKind::Unknown;
    if !is_known && state != UNASKED || speculation::speculating() {
        return None;
    }
    let is_shell = |file: &launch::Stat| {
        if is_known {
            return is_the_shell(file);
        }
        launch::stat(c"/bin/sh").is_some_and(|sh| sh.device == file.device && sh.inode == file.inode)
    };
    let called = if is_named_sh(program) { called(program, argv, envp)? } else { return None };
    filters::learn();
    let allowed = allowed(&called, is_shell)?;
    let answer = if !allowed || !spawn.actions.is_null() && ACTIONS.load(Relaxed) {
        Err(Counter::ExecStates)
    } else {
        if !is_known {
            ask::if_needed(called.line, envp);
        }
        let counted = fork::begin_work();
        // The child of libc's `posix_spawn` writes its errors to this errno: of an exec that fails.
        let before = errno::get();
        let answer = instead(&called, spawn, envp);
        errno::set(before);
        fork::end_work(counted);
        answer
    };
    answer.map_err(tally::add_line).ok()
}

/// Says that the program has made file actions that [`spawn`] cannot repeat, or that change the
/// line's directory.
pub(crate) fn note_file_action() {
    ACTIONS.store(true, Relaxed);
}

static ACTIONS: AtomicBool = AtomicBool::new(false);

/// Whether the program has the name of a shell. Nearly none has. Below valgrind none counts: it
/// prints a line for the question whether memory can be read.
fn is_named_sh(program: Program) -> bool {
    let (Program::Path(path) | Program::Name(path)) = program;
    // SAFETY: readable, or a speculative child's.
    !path.is_null()
        && !rt::is_translated()
        && (speculation::speculating() || is_string(path))
        && ends_with_sh(unsafe { CStr::from_ptr(path) })
}

/// The call of a program that [`is_named_sh`], if it has `-c` and one line.
fn called<'a>(
    program: Program,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> Option<Called<'a>> {
    let (Program::Path(path) | Program::Name(path)) = program;
    // SAFETY: a string, which has been read by now.
    let text = unsafe { CStr::from_ptr(path) };
    if argv.is_null() || envp.is_null() {
        return None;
    }
    let speculates = speculation::speculating();
    let argument = |n: usize| {
        let at = argv.wrapping_add(n);
        // SAFETY: readable, or a speculative child's.
        (speculates || signal::is_readable(at as usize)).then(|| unsafe { *at })
    };
    let string = |n: usize| {
        let at = argument(n)?;
        // SAFETY: as above.
        (!at.is_null() && (speculates || is_string(at))).then(|| unsafe { CStr::from_ptr(at) })
    };
    // bash and busybox act by this name, and a dash at its beginning means a login.
    let name = string(0)?;
    if !ends_with_sh(name) || name.to_bytes().starts_with(b"-") || string(1)? != c"-c" {
        return None;
    }
    let line = string(2)?;
    // A line that looks like an option is taken for one.
    let is_option = matches!(line.to_bytes().first(), Some(b'-' | b'+'));
    let is_searched_for = matches!(program, Program::Name(_)) && text == c"sh";
    (!is_option && argument(3)?.is_null()).then_some(Called { path: text.into(), is_searched_for, line })
}

fn ends_with_sh(path: &CStr) -> bool {
    let path = path.to_bytes();
    path == b"sh" || path.ends_with(b"/sh")
}

/// Whether the kernel can read a string to its end.
fn is_string(at: *const c_char) -> bool {
    const PAGE: usize = 4096;
    let mut at = at as usize;
    loop {
        if !signal::is_readable(at) {
            return false;
        }
        let end = (at | (PAGE - 1)) + 1;
        while at < end {
            // SAFETY: of a page that the kernel has read.
            if unsafe { *(at as *const u8) } == 0 {
                return true;
            }
            at += 1;
        }
    }
}

/// Whether the kernel can read a vector of strings to its end.
fn are_strings(vector: *const *const c_char) -> bool {
    let mut at = vector;
    loop {
        if !signal::is_readable(at as usize) {
            return false;
        }
        // SAFETY: the kernel has just read it.
        let string = unsafe { *at };
        if string.is_null() {
            return true;
        }
        if !is_string(string) {
            return false;
        }
        at = at.wrapping_add(1);
    }
}

/// Whether this process may do without the shell that it calls. Not if another library has such
/// functions, the program runs under a filter of its own, a tracer would miss the exec of the
/// shell, or the shell would act with other rights. `None`: it calls another program.
fn allowed(called: &Called<'_>, is_shell: impl FnOnce(&launch::Stat) -> bool) -> Option<bool> {
    // First, for a filter may kill for the calls that follow.
    if filters::are_in_force_or_traced() || others_execute() {
        return Some(false);
    }
    if !called.is_searched_for {
        let (device, inode, mode) = process::stat(called.path).ok()?;
        is_shell(&launch::Stat { device, inode, mode }).then_some(())?;
    }
    Some(rights::are_a_shells_in_a_child())
}

fn others_execute() -> bool {
    /// 1 if there are none, 2 if there are, 0 until it was looked up.
    static OTHERS: AtomicU8 = AtomicU8::new(0);
    if OTHERS.load(Relaxed) == 0 {
        OTHERS.store(1 + u8::from(crate::objects::others_define(FUNCTIONS)), Relaxed);
    }
    OTHERS.load(Relaxed) == 2
}

/// Bytes of stack that [`on_this_stack`] and its callees may take.
const ROOM: usize = 32 << 10;

/// Whether the stack has room. A signal stack has not, a thread's may have none.
fn has_room() -> bool {
    let here = 0u8;
    let here = black_box(&raw const here) as usize;
    let Ok(other) = signal::altstack() else { return false };
    if here.wrapping_sub(other.start) < other.size {
        return false;
    }
    // A speculative child fetches its stack. It ends for a guard page, and is made again.
    const RED_ZONE: usize = 1024;
    speculation::speculating()
        // Nothing is written. A coroutine's stack may end within, in memory that is in use.
        || (1..=ROOM / 4096).all(|page| futex::is_writable(here - RED_ZONE - 4096 * page))
}

/// Executes the command from memory on the stack. Returns why it did not.
#[inline(never)]
fn on_this_stack(shell: &ShellTraits, called: &Called<'_>, envp: *const *const c_char) -> Counter {
    let (mut script, mut own) = ([0; 6 << 10], [0; 2 << 10]);
    let [mut path, mut here, mut old] = [[0; 1 << 10]; 3];
    let (mut argv, mut strings, mut slots) = ([null(); 256], [null(); 192], [EnvSlot::EMPTY; 192]);
    let parts = Parts {
        script: &mut script,
        own: &mut own,
        path: &mut path,
        current: &mut here,
        previous: &mut old,
        argv: &mut argv,
        envp: &mut strings,
        slots: &mut slots,
        actions: &mut [],
    };
    match prepare(shell, called, envp, parts) {
        Ok(prepared) if may_execute(shell, &prepared) => execute(&prepared),
        Ok(_) => Counter::ExecStates,
        Err(kept) => kept,
    }
}

/// A command to execute in place of a shell.
struct Prepared<'m> {
    path: &'m CStr,
    argv: *const *const c_char,
    envp: *const *const c_char,
    /// Whether this shell would have it ignore SIGQUIT.
    ignores_sigquit: bool,
}

/// Lays out the command of a line. Else: why the shell keeps it.
fn prepare<'m>(
    shell: &ShellTraits,
    called: &Called<'_>,
    envp: *const *const c_char,
    parts: Parts<'m>,
) -> Result<Prepared<'m>, Counter> {
    const STATE: Counter = Counter::ExecStates;
    let Parts { script, own, path, current: here, previous: old, argv, envp: strings, slots, .. } = parts;
    if !speculation::speculating() && !are_strings(envp) {
        return Err(STATE);
    }
    let is_ours = if called.is_searched_for {
        let searched = Environ(next::environment().cast_const().cast());
        let found = find(c"sh", &searched, path).and_then(launch::stat);
        found.is_some_and(|found| is_the_shell(&found))
    } else {
        process::may_execute(called.path).is_ok()
    };
    if !is_ours {
        return Err(STATE);
    }
    let environment = Environ(envp);
    let script =
        analyze(called.line.to_bytes(), &environment, shell, script).map_err(|_| Counter::ExecLines)?;
    let command = script.single().filter(Command::is_program).ok_or(Counter::ExecLines)?;
    // After an exec that fails, the descriptors would have to be put back.
    if command.redirections().next().is_some() {
        return Err(Counter::ExecLines);
    }
    if !command.replaces_shell() {
        return Err(Counter::ExecWaits);
    }
    let path = command.words().next().and_then(|name| find(name, &environment, path)).ok_or(STATE)?;
    fill(argv, command.words().map(CStr::as_ptr)).ok_or(STATE)?;
    let directory = Directory {
        current: current(&environment, here).ok_or(STATE)?,
        previous: previous(&environment, old).ok_or(STATE)?,
    };
    let made = shell.environment(&environment, &command, &directory, path.to_bytes(), own, slots);
    let n = made.map_err(|_| STATE)?;
    let string = |slot: &EnvSlot<'_>| match slot.string() {
        // SAFETY: an index the analysis got from this environment.
        EnvString::Inherited(i) => unsafe { *envp.wrapping_add(i) },
        EnvString::Own(text) => text.as_ptr(),
    };
    fill(strings, slots[..n].iter().map(string)).ok_or(STATE)?;
    let ignores_sigquit = shell.ignores_sigquit(&command);
    Ok(Prepared { path, argv: argv.as_ptr(), envp: strings.as_ptr(), ignores_sigquit })
}

/// Whether the command would get its signals from this process as it would from the shell. dash and
/// busybox handle SIGCHLD, and so do not pass it on ignored. bash unblocks it.
fn may_execute(shell: &ShellTraits, prepared: &Prepared<'_>) -> bool {
    let is_blocked = mask().is_none_or(|mask| mask.and(CHILDS) != SigSet::EMPTY);
    if shell.kind() == ShellKind::Bash {
        return !is_blocked;
    }
    let is_ignored = |signal| action(signal).is_none_or(|action| action.handler == SIG_IGN);
    !is_ignored(SIGCHLD) && (!prepared.ignores_sigquit || action(SIGQUIT).is_some())
}

const CHILDS: SigSet = SigSet::EMPTY.with(SIGCHLD);

/// Executes the command. An exec that fails has changed nothing.
fn execute(prepared: &Prepared<'_>) -> Counter {
    let before = if prepared.ignores_sigquit { action(SIGQUIT) } else { None };
    if before.is_some() {
        set_action(SIGQUIT, &KernelAction { handler: SIG_IGN, ..KernelAction::DEFAULT });
    }
    count(Counter::ExecShells);
    let Prepared { path, argv, envp, .. } = *prepared;
    #[cfg(target_arch = "x86_64")]
    let speculates = speculation::speculating();
    #[cfg(target_arch = "x86_64")]
    if speculates {
        let args = [path.as_ptr() as usize, argv as usize, envp as usize, 0, 0, 0];
        fork::child::direct(linux_raw_sys::general::__NR_execve, &args);
    }
    #[cfg(target_arch = "aarch64")]
    let speculates = false;
    if !speculates {
        // SAFETY: vectors that end in a null, of strings.
        let _ = unsafe { process::execve(CPtr::from(path), argv, envp) };
        tally::take_back_line();
    }
    if let Some(before) = before {
        set_action(SIGQUIT, &before);
    }
    Counter::ExecStates
}

/// Counts what became of a shell. A speculative child may yet be undone, so its parent counts.
fn count(counter: Counter) {
    #[cfg(target_arch = "x86_64")]
    if speculation::speculating() {
        fork::note_line(counter);
        return;
    }
    tally::add_line(counter);
}

/// The program's action for a signal.
fn action(signal: i32) -> Option<KernelAction> {
    #[cfg(target_arch = "x86_64")]
    if speculation::speculating() {
        return fork::child::signals::exchange(signal as usize, None).ok();
    }
    signal::action(signal).ok()
}

/// Sets one that is the program's, or ignores the signal.
fn set_action(signal: i32, action: &KernelAction) {
    #[cfg(target_arch = "x86_64")]
    if speculation::speculating() {
        let _ = fork::child::signals::exchange(signal as usize, Some(action));
        return;
    }
    // SAFETY: ignoring runs nothing, and the other is the program's own.
    let _ = unsafe { signal::set_action(signal, action) };
}

/// The program's mask.
fn mask() -> Option<SigSet> {
    #[cfg(target_arch = "x86_64")]
    if speculation::speculating() {
        return Some(SigSet(fork::child::signals::mask()));
    }
    signal::mask().ok()
}

/// Has the command spawned in place of the shell. `Err`: the shell is to be spawned.
fn instead(called: &Called<'_>, spawn: &Spawn, envp: *const *const c_char) -> Result<c_int, Counter> {
    const STATE: Counter = Counter::ExecStates;
    let shell = super::traits().ok_or(STATE)?;
    let mut workspace = Workspace::take().ok_or(STATE)?;
    let prepared = prepare(&shell, called, envp, workspace.parts().ok_or(STATE)?)?;
    if !may_spawn(&shell, &prepared, spawn.attributes).unwrap_or(false) {
        return Err(STATE);
    }
    match spawn.start(prepared.path.as_ptr(), prepared.argv, prepared.envp) {
        0 => {
            tally::add_line(Counter::ExecShells);
            Ok(0)
        }
        // The shell handles it, with its own message.
        _ => Err(STATE),
    }
}

/// As [`may_execute`], for a process that gets its signals by the attributes, or from this one.
fn may_spawn(shell: &ShellTraits, prepared: &Prepared<'_>, attributes: *const c_void) -> Option<bool> {
    const SETSIGDEF: i16 = 4;
    const SETSIGMASK: i16 = 8;
    let mut flags = 0i16;
    // libc's sets have 128 bytes.
    let mut set = [0u64; 16];
    if !attributes.is_null() {
        ask_libc(c"posix_spawnattr_getflags", attributes, (&raw mut flags).cast())?;
    }
    if shell.kind() == ShellKind::Bash {
        if flags & SETSIGMASK != 0 {
            ask_libc(c"posix_spawnattr_getsigmask", attributes, (&raw mut set).cast())?;
        } else {
            set[0] = signal::mask().ok()?.0;
        }
        return Some(SigSet(set[0]).and(CHILDS) == SigSet::EMPTY);
    }
    // The default that the attributes ask for is not looked at: they hardly ever name these.
    let is_ignored = |signal| signal::disposition(signal).map(|now| matches!(now, Disposition::Ignore));
    let stays_ignored = flags & SETSIGDEF == 0 && is_ignored(SIGQUIT).ok()?;
    Some(!is_ignored(SIGCHLD).ok()? && (!prepared.ignores_sigquit || stays_ignored))
}

/// Asks libc for part of an attributes object. `None`: it cannot tell.
fn ask_libc(name: &CStr, attributes: *const c_void, answer: *mut c_void) -> Option<()> {
    let found = next::lookup(name);
    // SAFETY: null, or the function of this name, which has this type for any kind of answer.
    let function = unsafe {
        core::mem::transmute::<*mut c_void, Option<extern "C" fn(*const c_void, *mut c_void) -> c_int>>(found)
    };
    (function?(attributes, answer) == 0).then_some(())
}
