//! The last tier: watches one's own processes through /proc alone. It looks at the children of the
//! watched processes every few milliseconds and misses children that live shorter. So its counts
//! are lower bounds, and it times nothing: the cost of a full fork is predicted from the caller's
//! memory.

#![expect(unsafe_code, reason = "kcmp has no safe wrapper")]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use crate::command::Started;
use crate::creation::{ChildEnd, CloneFlags, CreatingCall, Creation, Place, ProgramKey};
use crate::error::WatchError;
use crate::event::{Event, SeenProgram, Totals};
use crate::procfs::{self, exe_of};
use crate::target::ResolvedTarget;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(5);
/// Further children at one time are not followed.
const MAX_CHILDREN: usize = 4096;

/// A child that has lived this long without an exec is taken to make none.
const LIVED_ON: Duration = Duration::from_secs(1);
/// `CLONE_VM`. It also marks creations of which it is not known whether memory was copied: they are
/// never a finding.
const SHARED: u64 = 0x100;

/// A watch through /proc.
#[derive(Debug)]
pub(crate) struct Sampler {
    watched: Vec<u32>,
    children: HashMap<(u32, u64), Seen>,
    command: Option<Started>,
    totals: Totals,
    /// The programs whose names were handed over.
    told: HashSet<ProgramKey>,
}

/// A child, from the first sight of it.
#[derive(Debug)]
struct Seen {
    creation: Creation,
    callers_exe: Option<String>,
    /// The address of the caller's arguments. An exec changes it, a fork does not.
    callers_arguments: Option<u64>,
    first: Instant,
    reported: bool,
}

impl Sampler {
    pub(crate) fn start(target: &ResolvedTarget) -> Result<Self, WatchError> {
        // kcmp(2) may not ask about another user's processes, so all their forks would count as
        // harmless.
        if let Some(pid) = target.pids.first()
            && let Err(error) = fs::read_link(format!("/proc/{pid}/exe"))
            && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            return Err(WatchError::NotPermitted {
                why: format!(
                    "process {pid} may not be looked at: through /proc alone only one's own can be watched"
                ),
            });
        }
        let mut sampler = Self {
            watched: target.pids.clone(),
            children: HashMap::new(),
            command: None,
            totals: Totals::default(),
            told: HashSet::new(),
        };
        // Children that exist already were not created during the watch.
        for (child, caller) in sampler.children_now() {
            if let Some(start) = procfs::start_ticks(child) {
                sampler
                    .children
                    .insert((child, start), Seen { reported: true, ..first_sight(child, caller) });
            }
        }
        // The command starts only now: all its children are new, even those made before the first
        // look.
        if let Some(command) = &target.command {
            let command = Started::start(command)?;
            sampler.watched.push(command.child.id());
            sampler.command = Some(command);
        }
        Ok(sampler)
    }

    pub(crate) fn command_ended(&self) -> bool {
        self.command.as_ref().is_some_and(Started::has_ended)
    }

    /// How long the command has run, or ran, if the target is one.
    pub(crate) fn command_ran(&self) -> Option<Duration> {
        self.command.as_ref().map(Started::ran)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Looks again and again until `timeout` is over.
    pub(crate) fn poll(&mut self, timeout: Duration, mut sink: impl FnMut(Event)) {
        let until = Instant::now() + timeout;
        loop {
            self.look(&mut sink);
            if Instant::now() + INTERVAL > until || self.command_ended() {
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    fn look(&mut self, sink: &mut impl FnMut(Event)) {
        let mut alive: HashSet<(u32, u64)> = HashSet::new();
        for (child, caller) in self.children_now() {
            let Some(start) = procfs::start_ticks(child) else { continue };
            let key = (child, start);
            alive.insert(key);
            if let Some(seen) = self.children.get_mut(&key) {
                seen.look_again();
            } else if self.children.len() < MAX_CHILDREN {
                self.totals.creations += 1;
                let seen = first_sight(child, caller);
                let program = seen.creation.place.program();
                if self.told.insert(program)
                    && let Some(known) = procfs::program_of(caller)
                    && procfs::is_still(program) != Some(false)
                {
                    sink(Event::Program(SeenProgram { key: program, known, cut: false }));
                }
                self.children.insert(key, seen);
            } else {
                self.totals.lost_live += 1;
            }
        }
        if self.told.len() >= MAX_CHILDREN {
            self.told.clear();
        }
        self.children.retain(|key, seen| {
            let ended = !alive.contains(key);
            // A child stays known while it lives: its own children are watched through it.
            if !seen.reported && (ended || seen.creation.execed()) {
                seen.reported = true;
                let mut creation = seen.creation.clone();
                if ended {
                    creation.end = ChildEnd::Unknown;
                }
                // An exec between two looks is missed. Only a child that lived long is taken to
                // have made none.
                if !creation.execed() && seen.first.elapsed() < LIVED_ON {
                    creation.flags = CloneFlags(SHARED);
                    creation.kind = creation.flags.kind();
                }
                sink(Event::Created(Box::new(creation)));
            }
            !ended
        });
    }

    /// (child, its parent) below all watched processes.
    fn children_now(&self) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        let mut next: Vec<u32> = self.watched.clone();
        while let Some(pid) = next.pop() {
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                for child in list.split_whitespace().filter_map(|word| word.parse().ok()) {
                    found.push((child, pid));
                    if found.len() >= MAX_CHILDREN {
                        return found;
                    }
                    next.push(child);
                }
            }
        }
        found
    }
}

/// Whether two processes share their memory, by kcmp(2); `None` if it may not be asked or is not
/// built in.
fn share_memory(a: u32, b: u32) -> Option<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: kcmp takes numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0usize, 0usize) } {
        0 => Some(true),
        1..=3 => Some(false),
        _ => None,
    }
}

fn first_sight(child: u32, caller: u32) -> Seen {
    let callers_exe = exe_of(caller);
    let callers_arguments = procfs::arguments_at(caller);
    // Only CLONE_VM can be told. Unknown counts as shared, which is never a finding.
    let flags = CloneFlags(if share_memory(child, caller) == Some(false) { 0 } else { SHARED });
    let mut seen = Seen {
        creation: Creation {
            call: CreatingCall::Unknown,
            flags,
            kind: flags.kind(),
            caller,
            caller_thread: caller,
            caller_comm: procfs::comm_of(caller).unwrap_or_default(),
            place: Place { pid: caller, nr: 0, ip: 0, word: 0, image: callers_arguments.unwrap_or(0) },
            memory: procfs::memory_of(caller),
            child,
            child_comm: procfs::comm_of(child).unwrap_or_default(),
            at_ns: procfs::monotonic_ns(),
            ..Creation::unseen()
        },
        callers_exe,
        callers_arguments,
        first: Instant::now(),
        reported: false,
    };
    seen.look_again();
    // After its exec a child always has its own memory: the kind of its creation can no longer be
    // told.
    if seen.creation.execed() {
        seen.creation.flags = CloneFlags(SHARED);
        seen.creation.kind = seen.creation.flags.kind();
    }
    seen
}

impl Seen {
    fn look_again(&mut self) {
        if self.creation.execs > 0 {
            return;
        }
        let Some(exe) = exe_of(self.creation.child) else { return };
        // Finds an exec of the same file, too: a shell that starts a shell, busybox's applets.
        let moved = self
            .callers_arguments
            .zip(procfs::arguments_at(self.creation.child))
            .is_some_and(|(callers, childs)| callers != childs);
        if moved || self.callers_exe.as_ref().is_some_and(|callers| *callers != exe) {
            self.creation.execs = 1;
            self.creation.exec_path = Some(exe);
            self.creation.argv = procfs::arguments(self.creation.child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{WatchTarget, WatchedCommand};

    #[test]
    fn a_process_shares_memory_with_itself() {
        let own = std::process::id();
        assert!(matches!(share_memory(own, own), Some(true) | None));
        assert_eq!(share_memory(own, 1 << 23), None);
    }

    /// A shell's subshell that lives on is a fork alone; a shell that it starts is none, though it
    /// runs the same file.
    #[test]
    fn an_exec_of_the_same_file_is_told_from_a_fork() {
        let of = |line: &str| {
            let command = WatchedCommand::new(["sh", "-c", line]);
            let target = ResolvedTarget {
                command: Some(command),
                ..WatchTarget::All.resolve().expect("all is there")
            };
            let target = ResolvedTarget { all: false, ..target };
            let mut sampler = Sampler::start(&target).expect("sh runs");
            let mut created = Vec::new();
            while !sampler.command_ended() {
                sampler.poll(Duration::from_millis(50), |event| {
                    if let Event::Created(creation) = event {
                        created.push(creation);
                    }
                });
            }
            sampler.poll(Duration::from_millis(50), |event| {
                if let Event::Created(creation) = event {
                    created.push(creation);
                }
            });
            let command = sampler.command.as_mut().expect("it was started");
            let pid = command.child.id();
            command.child.wait().expect("it ended");
            created.into_iter().find(|creation| creation.caller == pid).expect("its child was seen")
        };
        // `read` waits without another process; the writer of the pipe is the test's own clock.
        let wait = "sleep 1.5 | { read x; :; }";
        let fork = of(&format!("( {wait} ) ; :"));
        assert!(!fork.execed() && fork.kind == crate::CreationKind::FullFork, "{fork:?}");
        let exec = of(&format!("sh -c '{wait}' ; :"));
        assert!(exec.execed(), "{exec:?}");
    }

    #[test]
    fn a_child_that_lives_long_enough_is_seen() {
        // Several children: on a busy machine one may be seen only between its fork and its exec,
        // or never.
        let target = ResolvedTarget {
            all: false,
            cgroup: None,
            cgroup_directory: None,
            pids: Vec::new(),
            command: Some(WatchedCommand::new(["sh", "-c", "for i in 1 2 3 4 5; do sleep 0.3; done"])),
        };
        let mut sampler = Sampler::start(&target).expect("sh runs");
        let mut programs = Vec::new();
        while !sampler.command_ended() {
            sampler.poll(Duration::from_millis(50), |event| {
                if let Event::Created(creation) = event {
                    programs.extend(creation.exec_path);
                }
            });
        }
        sampler.command.expect("it was started").child.wait().expect("it ended");
        assert!(
            programs.iter().any(|path| path.ends_with("sleep") || path.ends_with("coreutils")),
            "{programs:?}"
        );
    }
}
