//! A command, validated, with every byte the child needs at its final place: nothing is left to
//! allocate or decide.
#![expect(unsafe_code, reason = "candidates and actions point into boxes of the same structure")]

mod actions;
mod fixed;
mod layout;

pub(crate) use actions::CgroupEntry;

use crate::error::{SpawnError, Step};
use crate::kernel::facilities::Facilities;
use crate::spec::Spec;
use crate::spec::env::EnvChanges;
use crate::spec::strings::Strings;
use actions::ActionData;
use forkless_child::{Action, Candidate, Exec};
use forkless_sys::signal::SigSet;
use forkless_sys::{CPtr, process};
use layout::{Builder, Layout, Offset};
use std::ffi::{CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;
use std::sync::PoisonError;

/// Directories searched when the child has no PATH: those of glibc's `confstr(_CS_PATH)`.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// Whether a plan may point at this process's own environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EnvironmentUse {
    /// The plan is for one start that the caller waits for, so the environment stays as it is.
    MayBorrow,
    /// The plan is used for longer: the environment may change meanwhile.
    MustCopy,
}

pub(crate) struct Plan {
    layout: Layout,
    /// The program as the command names it, for messages.
    program: Offset,
    /// The child looks paths up from another root than this process.
    pub other_root: bool,
    /// The child looks relative paths up from another directory than this process.
    pub other_directory: bool,
    argv: *const *const c_char,
    envp: *const *const c_char,
    paths: Vec<Offset>,
    candidates: Vec<Candidate<'static>>,
    actions: Vec<Action<'static>>,
    /// `None` for the caller's.
    mask: Option<SigSet>,
    /// The child changes credentials: the parent must be suspended and its dumpable flag put back.
    pub credentials: bool,
    /// The child runs a function of the caller's.
    pub hooked: bool,
    /// The child gets a signal when the thread that creates it ends.
    pub death_signal: bool,
    /// The process group that the child is to be in, 0 for its own, where no session comes before
    /// it.
    pub group: Option<i32>,
    /// A directory of a cgroup file system to be born in.
    pub cgroup: Option<CString>,
    /// The process that made the plan, whose death brings the death signal.
    pub pid: i32,
    /// The search goes on after every error.
    past_any_error: bool,
    /// Kept alive and in place for the actions.
    _data: ActionData,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("layout", &self.layout).finish_non_exhaustive()
    }
}

// SAFETY: the pointers lead into boxes owned by the plan, which nobody changes; hooks are called
// under their command's lock.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    pub(crate) fn new(
        spec: &Spec,
        environment: EnvironmentUse,
        cgroup: CgroupEntry,
    ) -> Result<Plan, SpawnError> {
        let program = spec.program.as_bytes();
        check_nul(spec)?;
        let mut b = Builder::with_capacity(256 + spec.args.text().len(), 32);
        let argv = b.here();
        let args: Vec<Offset> = b.strings(&spec.args).collect();
        args.iter().for_each(|&a| b.entry(a));
        b.end();
        let named = b.string(&[program]);
        let paths = search(program, spec, &mut b);
        // For each path `/bin/sh`, the path, the arguments from 1 on: what execvp(3) runs when the
        // kernel says ENOEXEC.
        let mut scripts = Vec::new();
        if spec.scripts {
            let sh = b.string(&[b"/bin/sh"]);
            for &path in &paths {
                scripts.push(b.here());
                b.entry(sh);
                b.entry(path);
                args.iter().skip(1).for_each(|&a| b.entry(a));
                b.end();
            }
        }
        let hooked = !spec.hooks.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let borrowed =
            if environment == EnvironmentUse::MayBorrow { spec.env.borrowed(hooked) } else { None };
        let env = borrowed.is_none().then(|| lay_out(&spec.env, &mut b));
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
        let (actions, data) = actions::actions(&spec.attributes, &spec.hooks, cgroup)?;
        let a = &spec.attributes;
        Ok(Plan {
            program: named,
            other_root: a.chroot.is_some(),
            other_directory: a.cwd.is_some() || spec.directory.is_some(),
            argv: layout.vector(argv),
            envp: borrowed.or(env.map(|at| layout.vector(at))).unwrap_or(null()),
            layout,
            paths,
            candidates,
            actions,
            mask: a.mask,
            credentials: a.uid.is_some() || a.gid.is_some() || a.groups.is_some() || a.chroot.is_some(),
            hooked,
            death_signal: a.death_signal.is_some(),
            // A leader of a group can make no session (setsid(2)).
            group: a.pgid.filter(|_| !a.setsid),
            cgroup: if cgroup == CgroupEntry::Born { a.cgroup.clone() } else { None },
            past_any_error: a.as_posixsubprocess,
            pid: if a.death_signal.is_some() { process::getpid() } else { 0 },
            _data: data,
        })
    }

    /// The actions after those on descriptors.
    pub(crate) fn actions(&self) -> &[Action<'static>] {
        &self.actions
    }

    /// The end of the launch. `caller_mask` is the mask to hand on if the plan says so.
    ///
    /// # Safety
    /// The plan must outlive the child's use of it.
    pub(crate) unsafe fn exec(&self, facilities: &Facilities, caller_mask: SigSet) -> Exec<'static> {
        let candidates: *const [Candidate<'static>] = self.candidates.as_slice();
        Exec {
            // SAFETY: the caller keeps the plan.
            candidates: unsafe { &*candidates },
            argv: self.argv,
            envp: self.envp,
            mask: self.mask.unwrap_or(caller_mask),
            no_core_dump: facilities.core_dump_kills_sharers,
            wait_for_writers: true,
            past_any_error: self.past_any_error,
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

fn check_nul(spec: &Spec) -> Result<(), SpawnError> {
    let wrong = |what: String| Err(SpawnError::new(Step::Command, what, libc::EINVAL));
    if spec.program.as_bytes().contains(&0) {
        return wrong(String::from("the program's name has a NUL byte"));
    }
    if let Some(i) = spec.args.nul_in() {
        return wrong(format!("argument {i} has a NUL byte"));
    }
    if let Some(i) = spec.files.as_ref().and_then(Strings::nul_in) {
        return wrong(format!("file {i} has a NUL byte"));
    }
    if let Some(name) = spec.env.with_nul() {
        return wrong(format!("environment variable {name:?} has a NUL byte"));
    }
    match &spec.bad {
        Some(what) => wrong(what.clone()),
        None => Ok(()),
    }
}

/// The files to try, as execvp(3): with the PATH the child will have.
fn search(program: &[u8], spec: &Spec, b: &mut Builder) -> Vec<Offset> {
    // A name that no directory can hold is tried once, for the kernel to say so, whatever the last
    // directory would answer.
    const NAME_MAX: usize = 255;
    /// With the NUL (`limits.h`).
    const PATH_MAX: usize = 4096;
    if let Some(files) = &spec.files {
        return files.iter().map(|file| b.string(&[file])).collect();
    }
    if program.is_empty() || program.contains(&b'/') || program.len() > NAME_MAX {
        return vec![b.string(&[program])];
    }
    let path = spec.env.lookup(b"PATH");
    let dirs = || path.as_deref().unwrap_or(DEFAULT_PATH).split(|b| *b == b':');
    // glibc and musl leave out a directory that no path can name, so the search's error is never
    // its own. Where there is no other, the kernel refuses it.
    let some_fit = dirs().any(|dir| dir.len() < PATH_MAX);
    let tried = dirs().filter(|dir| dir.len() < PATH_MAX || !some_fit);
    // An empty entry is the working directory.
    tried
        .map(|dir| if dir.is_empty() { b.string(&[program]) } else { b.string(&[dir, b"/", program]) })
        .collect()
}

/// Appends the environment as a vector for exec.
fn lay_out(env: &EnvChanges, b: &mut Builder) -> Offset {
    let mut entries = Vec::with_capacity(64);
    env.each(|parts| entries.push(b.string(parts)));
    let here = b.here();
    entries.into_iter().for_each(|e| b.entry(e));
    b.end();
    here
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkless_child::Hook;
    use std::ffi::CStr;

    /// Tells only under Miri, which knows what each pointer may still be used for.
    #[test]
    fn a_plan_moves_while_its_actions_point_into_it() {
        let mut spec = Spec::new(OsStr::new("a/program"));
        spec.args.push(b"x");
        spec.env.clear();
        spec.env.set(OsStr::new("A"), OsStr::new("1"));
        spec.attributes.cwd = Some(c"/d".into());
        spec.attributes.chroot = Some(c"/r".into());
        spec.attributes.groups = Some(vec![7, 9]);
        spec.attributes.affinity = Some(vec![8]);
        let plan = Plan::new(&spec, EnvironmentUse::MustCopy, CgroupEntry::Born).unwrap();
        // Moved twice: out of the function, and into a box, as `Child` and `Prepared` keep it.
        let plan = Box::new(plan);
        let text = |s: CPtr<'_>| s.to_c_str().to_owned();
        let mut seen = Vec::new();
        for action in plan.actions() {
            seen.push(match action {
                Action::Chdir { path } | Action::Chroot { path } => text(*path).into_string().unwrap(),
                Action::Groups { groups } => format!("{groups:?}"),
                Action::Affinity { mask } => format!("{mask:?}"),
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
        let mut spec = Spec::new(OsStr::new("program"));
        let hook = Box::new(|| Err(std::io::Error::from_raw_os_error(libc::EDOM)));
        spec.hooks.get_mut().unwrap().push(hook);
        let plans = [(), ()].map(|()| Plan::new(&spec, EnvironmentUse::MustCopy, CgroupEntry::Born).unwrap());
        for plan in plans {
            let Some(Action::Hook(Hook { call, data })) = plan.actions().last() else { panic!("no hook") };
            // SAFETY: the spec still has the hook, and nobody else runs it.
            assert_eq!(unsafe { call(*data) }, libc::EDOM);
        }
    }
}
