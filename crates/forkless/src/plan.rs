//! A command, validated, with every byte the child needs at its final place: nothing is left to allocate or decide.
//!
//! Here is the order of the steps, and why. Descriptors are not here: pipes differ at every start (`files.rs`, `start.rs`).
#![expect(unsafe_code, reason = "steps point into boxes of the same structure")]

use crate::attributes::{Attributes, HookFn, Mask};
use crate::command::Command;
use crate::env;
use crate::error::{SpawnError, Step as At};
use crate::facilities::All;
use crate::layout::{self, Builder, Layout};
use forkless_child::{Candidate, Exec, Hook, Step};
use forkless_sys::signal::SigSet;
use forkless_sys::{CPtr, process};
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;
use std::sync::Mutex;

/// Directories searched when the child has no PATH: what glibc's `confstr(_CS_PATH)` says.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// How long what the plan reads from elsewhere will stay as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// For one start that the caller waits for: the environment need not be copied.
    Start,
    /// For as long as the plan.
    Long,
}

/// How the child gets into its cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cgroup {
    /// It is born there.
    Born,
    /// It writes itself into `cgroup.procs`.
    Join,
}

pub(crate) struct Plan {
    layout: Layout,
    /// The program as the command names it, for messages.
    program: layout::At,
    /// The child looks paths up from another root than this process.
    pub other_root: bool,
    /// The child looks relative paths up from another directory than this process.
    pub other_directory: bool,
    argv: *const *const c_char,
    envp: *const *const c_char,
    paths: Vec<layout::At>,
    candidates: Vec<Candidate<'static>>,
    steps: Vec<Step<'static>>,
    mask: SigSet,
    inherit_mask: bool,
    /// The child changes credentials: the parent must be suspended and its dumpable flag put back.
    pub credentials: bool,
    /// The child runs a function of the caller's.
    pub hooked: bool,
    /// The child's fate hangs on the creating thread's.
    pub death_signal: bool,
    /// A directory of a cgroup file system to be born in.
    pub cgroup: Option<CString>,
    /// The process that made the plan: the one whose death counts, and whose table is fetched from.
    pub pid: i32,
    /// What the steps point into, kept alive and in place.
    _kept: Kept,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("layout", &self.layout).finish_non_exhaustive()
    }
}

struct Kept {
    _cwd: Option<CString>,
    _chroot: Option<CString>,
    _procs: Option<CString>,
    _groups: Option<Box<[u32]>>,
    _affinity: Option<Box<[u64]>>,
}

// SAFETY: the pointers lead into boxes owned by the plan, which nobody changes; hooks are called under their command's lock.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    pub(crate) fn new(command: &Command, life: Life, cgroup: Cgroup) -> Result<Plan, SpawnError> {
        let program = command.program.as_bytes();
        check_nul(command)?;
        let mut b = Builder::with_capacity(256 + command.args.text().len(), 32);
        let argv = b.here();
        let args: Vec<layout::At> = b.strings(&command.args).collect();
        args.iter().for_each(|&a| b.entry(a));
        b.end();
        let named = b.string(&[program]);
        let paths = search(program, command, &mut b);
        // For each path `/bin/sh`, the path, the arguments from 1 on: what execvp(3) runs when the kernel says ENOEXEC.
        let mut scripts = Vec::new();
        if command.scripts {
            let sh = b.string(&[b"/bin/sh"]);
            for &path in &paths {
                scripts.push(b.here());
                b.entry(sh);
                b.entry(path);
                args.iter().skip(1).for_each(|&a| b.entry(a));
                b.end();
            }
        }
        let borrow_env = life == Life::Start && command.env.is_empty();
        let env = (!borrow_env).then(|| command.env.lay_out(&mut b));
        let layout = b.finish();
        let candidates = paths
            .iter()
            .enumerate()
            .map(|(i, &p)| Candidate {
                // SAFETY: a NUL-terminated string in the layout, which the plan keeps.
                path: unsafe { CPtr::from_raw(layout.c_ptr(p)) },
                script_argv: scripts.get(i).map_or(null(), |&at| layout.vector(at)),
            })
            .collect();
        let (steps, kept) = steps(&command.attributes, &command.hooks, cgroup)?;
        let a = &command.attributes;
        Ok(Plan {
            program: named,
            other_root: a.chroot.is_some(),
            other_directory: a.cwd.is_some(),
            argv: layout.vector(argv),
            envp: env.map_or_else(env::current, |at| layout.vector(at)),
            layout,
            paths,
            candidates,
            steps,
            mask: if let Mask::Set(m) = a.mask { m } else { SigSet::EMPTY },
            inherit_mask: matches!(a.mask, Mask::Inherit),
            credentials: a.uid.is_some() || a.gid.is_some() || a.groups.is_some() || a.chroot.is_some(),
            hooked: !command.hooks.lock().is_ok_and(|h| h.is_empty()),
            death_signal: a.death_signal.is_some(),
            cgroup: if cgroup == Cgroup::Born { a.cgroup.clone() } else { None },
            pid: if a.death_signal.is_some() { process::getpid() } else { 0 },
            _kept: kept,
        })
    }

    /// The steps after the descriptors.
    pub(crate) fn steps(&self) -> &[Step<'static>] {
        &self.steps
    }

    /// The end of the launch. `caller_mask` is the mask to hand on if the plan says so.
    ///
    /// # Safety
    /// The plan must outlive the child's use of it.
    pub(crate) unsafe fn exec(&self, all: &All, caller_mask: SigSet) -> Exec<'static> {
        let candidates: *const [Candidate<'static>] = self.candidates.as_slice();
        Exec {
            // SAFETY: the caller keeps the plan.
            candidates: unsafe { &*candidates },
            argv: self.argv,
            envp: self.envp,
            mask: if self.inherit_mask { caller_mask } else { self.mask },
            no_core_dump: all.core_dump_kills_sharers,
        }
    }

    /// Whether the child starts with the caller's mask.
    pub(crate) fn hands_on_mask(&self) -> bool {
        self.inherit_mask
    }

    /// The program as the command names it, for messages.
    pub(crate) fn program(&self) -> &OsStr {
        OsStr::from_bytes(self.layout.c_str(self.program).to_bytes())
    }

    /// The path of a candidate, for messages.
    pub(crate) fn candidate(&self, i: usize) -> String {
        self.paths.get(i).map(|&p| self.layout.c_str(p).to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(crate) fn candidates(&self) -> usize {
        self.candidates.len()
    }
}

fn check_nul(command: &Command) -> Result<(), SpawnError> {
    let wrong = |what: String| Err(SpawnError::new(At::Command, what, libc::EINVAL));
    if command.program.as_bytes().contains(&0) {
        return wrong(String::from("the program's name has a NUL byte"));
    }
    if let Some(i) = command.args.nul_in() {
        return wrong(format!("argument {i} has a NUL byte"));
    }
    if let Some(name) = command.env.with_nul() {
        return wrong(format!("environment variable {name:?} has a NUL byte"));
    }
    match &command.bad {
        Some(what) => wrong(what.clone()),
        None => Ok(()),
    }
}

/// The files to try, as execvp(3): with the PATH the child will have.
fn search(program: &[u8], command: &Command, b: &mut Builder) -> Vec<layout::At> {
    // A name that no directory can hold is tried once, for the kernel to say so, whatever the last directory would answer.
    const NAME_MAX: usize = 255;
    if program.is_empty() || program.contains(&b'/') || program.len() > NAME_MAX {
        return vec![b.string(&[program])];
    }
    let path = command.env.lookup(b"PATH");
    let dirs = path.as_deref().unwrap_or(DEFAULT_PATH).split(|b| *b == b':');
    // An empty entry is the working directory.
    dirs.map(|dir| if dir.is_empty() { b.string(&[program]) } else { b.string(&[dir, b"/", program]) })
        .collect()
}

/// Extends a borrow of something the plan keeps in place for as long as the steps.
///
/// # Safety
/// `s` must be owned by a box that is kept with the steps.
unsafe fn kept_str(s: &CStr) -> CPtr<'static> {
    // SAFETY: the caller's contract.
    unsafe { CPtr::from_raw(s.as_ptr()) }
}

fn steps(
    a: &Attributes,
    hooks: &Mutex<Vec<HookFn>>,
    cgroup: Cgroup,
) -> Result<(Vec<Step<'static>>, Kept), SpawnError> {
    let kept = Kept {
        _cwd: a.cwd.clone(),
        _chroot: a.chroot.clone(),
        _procs: match &a.cgroup {
            Some(dir) if cgroup == Cgroup::Join => Some(
                CString::new([dir.to_bytes(), b"/cgroup.procs"].concat())
                    .map_err(|_| SpawnError::new(At::Cgroup, None, libc::EINVAL))?,
            ),
            _ => None,
        },
        _groups: match (&a.groups, a.uid) {
            (Some(g), _) => Some(g.clone().into_boxed_slice()),
            // As std: root that becomes somebody else must not keep root's groups.
            (None, Some(_)) if forkless_sys::ids::getuid() == 0 => Some(Box::default()),
            _ => None,
        },
        _affinity: a.affinity.clone().map(Vec::into_boxed_slice),
    };
    let mut s = Vec::new();
    // The session first: a leader of a group cannot make one, and a controlling terminal needs one.
    if a.setsid {
        s.push(Step::Setsid);
    }
    // The leader of a session leads a group already, and setpgid(2) refuses to say so again.
    if let Some(pgid) = a.pgid.filter(|&pgid| pgid != 0 || !a.setsid) {
        s.push(Step::Setpgid { pgid });
    }
    if let Some(fd) = a.terminal {
        s.push(Step::ControllingTerminal { fd });
    }
    if let Some(fd) = a.foreground {
        s.push(Step::Foreground { fd });
    }
    // What needs privilege comes before it is given up.
    if let Some(procs) = &kept._procs {
        // SAFETY: `kept` owns it and goes with the steps.
        s.push(Step::JoinCgroup { procs: unsafe { kept_str(procs) } });
    }
    if let Some(value) = a.nice {
        s.push(Step::Nice { value });
    }
    if let Some(sched) = a.scheduler {
        let (policy, priority) = sched.numbers();
        s.push(Step::Scheduler { policy, priority });
    }
    if let Some(mask) = &kept._affinity {
        let mask: *const [u64] = &raw const **mask;
        // SAFETY: `kept` owns it and goes with the steps.
        s.push(Step::Affinity { mask: unsafe { &*mask } });
    }
    for &(resource, limit) in &a.rlimits {
        s.push(Step::Rlimit { resource, limit });
    }
    if let Some(mask) = a.umask {
        s.push(Step::Umask { mask });
    }
    if let Some(path) = &kept._chroot {
        // SAFETY: `kept` owns it and goes with the steps.
        s.push(Step::Chroot { path: unsafe { kept_str(path) } });
    }
    // Groups, then group, then user: each needs the privilege the next gives up.
    if let Some(groups) = &kept._groups {
        let groups: *const [u32] = &raw const **groups;
        // SAFETY: `kept` owns it and goes with the steps.
        s.push(Step::Groups { groups: unsafe { &*groups } });
    }
    if let Some(gid) = a.gid {
        s.push(Step::Gid { gid });
    }
    if let Some(uid) = a.uid {
        s.push(Step::Uid { uid });
    }
    // With the new credentials, as the program itself would.
    if let Some(path) = &kept._cwd {
        // SAFETY: `kept` owns it and goes with the steps.
        s.push(Step::Chdir { path: unsafe { kept_str(path) } });
    }
    if a.no_new_privs {
        s.push(Step::NoNewPrivs);
    }
    // A change of credentials clears it (commit_creds, kernel/cred.c), so after them.
    if let Some(signal) = a.death_signal {
        s.push(Step::DeathSignal { signal, parent: process::getpid() });
    }
    if a.default != SigSet::EMPTY || a.ignore != SigSet::EMPTY {
        s.push(Step::Dispositions { default: SigSet(a.default.0 & !a.ignore.0), ignore: a.ignore });
    }
    if let Ok(mut hooks) = hooks.lock() {
        for hook in hooks.iter_mut() {
            s.push(Step::Hook(Hook { call: call_hook, data: (&raw mut *hook).cast() }));
        }
    }
    Ok((s, kept))
}

/// Runs a hook; a panic becomes an error, since unwinding must not leave the child's stack.
unsafe extern "C" fn call_hook(data: *mut c_void) -> i32 {
    // SAFETY: `data` is the box `steps` took it from, kept by the command, whose lock is held while the child runs.
    let hook = unsafe { &mut *data.cast::<HookFn>() };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(hook)) {
        Ok(Ok(())) => 0,
        Ok(Err(e)) => e.raw_os_error().filter(|e| *e > 0).unwrap_or(libc::EINVAL),
        Err(_) => libc::ECANCELED,
    }
}
