//! A command, validated, with every byte the child needs at its final place: nothing is left to allocate or decide.
//!
//! Here is the order of the steps, and why. Descriptors are not here: pipes differ at every start (`files.rs`, `start.rs`).
#![expect(unsafe_code, reason = "steps point into boxes of the same structure")]

use crate::attributes::{Attributes, HookFn};
use crate::command::Command;
use crate::error::{SpawnError, Step as At};
use crate::facilities::All;
use crate::fixed::Fixed;
use crate::layout::{self, Builder, Layout};
use forkless_child::{Action as Step, Candidate, Exec, Hook};
use forkless_sys::signal::SigSet;
use forkless_sys::{CPtr, process};
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;
use std::sync::{Mutex, PoisonError};

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
    /// `None` for the caller's.
    mask: Option<SigSet>,
    /// The child changes credentials: the parent must be suspended and its dumpable flag put back.
    pub credentials: bool,
    /// The child runs a function of the caller's.
    pub hooked: bool,
    /// The child's fate hangs on the creating thread's.
    pub death_signal: bool,
    /// The process group that the child is to be in, 0 for its own, where no session comes before it.
    pub group: Option<i32>,
    /// A directory of a cgroup file system to be born in.
    pub cgroup: Option<CString>,
    /// The process that made the plan: the one whose death counts.
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
    cwd: Option<Fixed<CStr>>,
    chroot: Option<Fixed<CStr>>,
    procs: Option<Fixed<CStr>>,
    groups: Option<Fixed<[u32]>>,
    affinity: Option<Fixed<[u64]>>,
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
        let hooked = !command.hooks.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let borrowed = if life == Life::Start { command.env.borrowed(hooked) } else { None };
        let env = borrowed.is_none().then(|| command.env.lay_out(&mut b));
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
            envp: borrowed.or(env.map(|at| layout.vector(at))).unwrap_or(null()),
            layout,
            paths,
            candidates,
            steps,
            mask: a.mask,
            credentials: a.uid.is_some() || a.gid.is_some() || a.groups.is_some() || a.chroot.is_some(),
            hooked,
            death_signal: a.death_signal.is_some(),
            // A leader of a group can make no session (setsid(2)).
            group: a.pgid.filter(|_| !a.setsid),
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
            mask: self.mask.unwrap_or(caller_mask),
            no_core_dump: all.core_dump_kills_sharers,
            wait_for_writers: true,
        }
    }

    /// Whether the child starts with the caller's mask.
    pub(crate) fn hands_on_mask(&self) -> bool {
        self.mask.is_none()
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
/// `s` must be kept with the steps.
unsafe fn kept_str(s: &Fixed<CStr>) -> CPtr<'static> {
    // SAFETY: the caller's contract.
    unsafe { CPtr::from_raw(s.as_ptr().cast::<c_char>()) }
}

fn steps(
    a: &Attributes,
    hooks: &Mutex<Vec<HookFn>>,
    cgroup: Cgroup,
) -> Result<(Vec<Step<'static>>, Kept), SpawnError> {
    let fixed = |s: &Option<CString>| s.clone().map(|s| Fixed::from(s.into_boxed_c_str()));
    let kept = Kept {
        cwd: fixed(&a.cwd),
        chroot: fixed(&a.chroot),
        procs: match &a.cgroup {
            Some(dir) if cgroup == Cgroup::Join => fixed(&Some(
                CString::new([dir.to_bytes(), b"/cgroup.procs"].concat())
                    .map_err(|_| SpawnError::new(At::Cgroup, None, libc::EINVAL))?,
            )),
            _ => None,
        },
        groups: a.groups.clone().map(|groups| Fixed::from(groups.into_boxed_slice())),
        affinity: a.affinity.clone().map(|mask| Fixed::from(mask.into_boxed_slice())),
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
    if let Some(procs) = &kept.procs {
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
    if let Some(mask) = &kept.affinity {
        let mask: *const [u64] = mask.as_ptr();
        // SAFETY: `kept` owns it and goes with the steps.
        s.push(Step::Affinity { mask: unsafe { &*mask } });
    }
    for &(resource, limit) in &a.rlimits {
        s.push(Step::Rlimit { resource, limit });
    }
    if let Some(mask) = a.umask {
        s.push(Step::Umask { mask });
    }
    if let Some(path) = &kept.chroot {
        // SAFETY: `kept` owns it and goes with the steps.
        s.push(Step::Chroot { path: unsafe { kept_str(path) } });
    }
    // Groups, then group, then user: each needs the privilege the next gives up.
    if let Some(groups) = &kept.groups {
        let groups: *const [u32] = groups.as_ptr();
        // SAFETY: `kept` owns it and goes with the steps.
        s.push(Step::Groups { groups: unsafe { &*groups } });
    } else if a.uid.is_some() {
        // As std: root that becomes somebody else does not keep root's groups, unless it may not give them up. Who starts the plan is
        // not known here.
        s.push(Step::DropGroups);
    }
    if let Some(gid) = a.gid {
        s.push(Step::Gid { gid });
    }
    if let Some(uid) = a.uid {
        s.push(Step::Uid { uid });
    }
    // With the new credentials, as the program itself would.
    if let Some(path) = &kept.cwd {
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
    // Poisoned by a child that died while it panicked, in this memory. The functions are there all the same, and one that gives up
    // privilege must not be left out.
    let mut hooks = hooks.lock().unwrap_or_else(PoisonError::into_inner);
    // Pointers of the vector itself: a borrow of a hook would end those that an earlier plan has.
    let first = hooks.as_mut_ptr();
    for i in 0..hooks.len() {
        s.push(Step::Hook(Hook { call: call_hook, data: first.wrapping_add(i).cast() }));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells only under Miri, which knows what each pointer may still be used for.
    #[test]
    fn a_plan_moves_while_its_steps_point_into_it() {
        let mut c = Command::new("a/program");
        c.arg("x").env_clear().env("A", "1").current_dir("/d").chroot("/r").groups(&[7, 9]).affinity([3]);
        let plan = Plan::new(&c, Life::Long, Cgroup::Born).unwrap();
        // Twice: out of the function, and into a box, as `Child` and `Prepared` keep it.
        let plan = Box::new(plan);
        let text = |s: CPtr<'_>| s.to_c_str().to_owned();
        let mut seen = Vec::new();
        for step in plan.steps() {
            seen.push(match step {
                Step::Chdir { path } | Step::Chroot { path } => text(*path).into_string().unwrap(),
                Step::Groups { groups } => format!("{groups:?}"),
                Step::Affinity { mask } => format!("{mask:?}"),
                _ => String::from("another"),
            });
        }
        assert_eq!(seen, ["[8]", "/r", "[7, 9]", "/d", "another"]);
        assert_eq!(text(plan.candidates[0].path).as_c_str(), c"a/program");
        for (vector, first) in [(plan.argv, c"a/program"), (plan.envp, c"A=1")] {
            // SAFETY: the vector has an entry.
            let entry = unsafe { *vector };
            // SAFETY: a NUL-terminated string of the plan's.
            assert_eq!(unsafe { CStr::from_ptr(entry) }, first);
        }
    }

    #[test]
    fn a_later_plan_leaves_an_earlier_ones_hooks_alone() {
        let mut c = Command::new("program");
        // SAFETY: never run in a child.
        unsafe { c.pre_exec(|| Err(std::io::Error::from_raw_os_error(libc::EDOM))) };
        let plans = [(), ()].map(|()| Plan::new(&c, Life::Long, Cgroup::Born).unwrap());
        for plan in plans {
            let Some(Step::Hook(Hook { call, data })) = plan.steps().last() else { panic!("no hook") };
            // SAFETY: the command still has the hook, and nobody else runs it.
            assert_eq!(unsafe { call(*data) }, libc::EDOM);
        }
    }
}
