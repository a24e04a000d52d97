//! Event loops that stand still: their thread is in fork, or waits for a child's exec or end.

use std::collections::HashMap;

use super::{Context, Cost, Finding, FindingKind, evidence, forks, label, time};
use crate::collect::Blocked;
use crate::creation::{Place, ProgramKey};
use crate::estimate::Estimate;
use crate::program::ProcessName;
use crate::reach::speculated_from;
use crate::remedy::{Remedy, Treatment};
use crate::stack::Frame;

/// A loop must stand still for so many times the least share of a finding: by default 2 % of the
/// time.
const SHARE: f64 = 20.0;

struct Merged {
    process: ProcessName,
    programs: Vec<ProgramKey>,
    places: HashMap<Place, u64>,
    stack: Vec<Frame>,
    blocked: Blocked,
}

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    type Key = (String, Option<String>, Vec<Frame>);
    let mut merged: HashMap<Key, Merged> = HashMap::new();
    for (place, blocked) in context.collected.loops.iter() {
        let program = place.program();
        let process = context.name(program, &blocked.comm);
        let key = (label(&process), process.cgroup.clone(), context.native_or_lines(place));
        let known = merged.entry(key).or_insert_with(|| Merged {
            process,
            programs: Vec::new(),
            places: HashMap::new(),
            stack: Vec::new(),
            blocked: Blocked::default(),
        });
        if !known.programs.contains(&program) {
            known.programs.push(program);
        }
        *known.places.entry(*place).or_default() += blocked.count;
        known.blocked.merge(blocked);
    }
    for found in merged.values_mut() {
        found.stack = context.stack_of(found.places.iter().map(|(place, count)| (place, *count)));
    }
    for merged in merged.values_mut().filter(|merged| has_own_loop(&merged.stack)) {
        merged.blocked.end_waits = merged.blocked.count;
        merged.blocked.end_ns = merged.blocked.rest_ns;
    }
    merged.into_values().filter_map(|merged| finding(context, &merged)).collect()
}

/// Whether the call waits for its child's end in a loop of its own: spawnSync of Node.js and its
/// kin. What the caller waits in then does not tell.
fn has_own_loop(stack: &[Frame]) -> bool {
    let names = stack.iter().filter_map(|frame| frame.function.as_deref());
    names.into_iter().any(|name| name.contains("SyncProcessRunner"))
}

/// What the loop mostly stands still for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Call,
    Exec,
    End,
}

/// A loop that does not wait for the end waits for nothing before it.
fn mostly(blocked: &Blocked) -> For {
    if blocked.end_waits * 2 >= blocked.count {
        For::End
    } else if blocked.exec_ns > blocked.call_ns {
        For::Exec
    } else {
        For::Call
    }
}

fn finding(context: &Context<'_>, merged: &Merged) -> Option<Finding> {
    let Merged { process, programs, stack, blocked, .. } = merged;
    let count = blocked.count;
    let ns = blocked.ns() as f64;
    if count == 0 || context.share(ns) < context.thresholds.share * SHARE {
        return None;
    }
    let what = mostly(blocked);
    let each = ns / count as f64;
    let (explanation, speculates) = advice(process, blocked, what);
    let saved = if speculates { saved_by_run(context, merged, what) } else { None };
    let all = Estimate { low: each, mid: each, high: each };
    // With the change the loop still starts each program.
    let saving_each = saved.unwrap_or_else(|| all.minus(context.model.spawn).at_least_zero());
    if saving_each.mid <= 0.0 {
        return None;
    }
    let started = blocked.programs.top(3);
    let first = started.first().map_or("a child", |(name, _)| name.as_str());
    let mut list = vec![
        evidence("it stands still", format!("{} each time, {} in all", time(each), time(ns))),
        evidence("of it in the creating calls", time(blocked.call_ns as f64)),
    ];
    let waited = [("exec", blocked.exec_waits, blocked.exec_ns), ("end", blocked.end_waits, blocked.end_ns)];
    for (what, waits, ns) in waited.into_iter().filter(|(_, waits, _)| *waits > 0) {
        list.push(evidence(
            &format!("of it in the wait for the child's {what}"),
            format!("{}, {waits} of {count} times", time(ns as f64)),
        ));
    }
    if !started.is_empty() {
        let all: Vec<String> = started.iter().map(|(name, times)| format!("{name} ({times})")).collect();
        list.push(evidence("programs executed", all.join(", ")));
    }
    if let Some(saved) = saved {
        list.push(evidence(
            "of it the forks' copying, which the preloaded library leaves out",
            format!("{} each time (predicted); the change saves the rest, too", time(saved.mid)),
        ));
    }
    let remedy = match process.exe.as_deref().filter(|_| saved.is_some()) {
        Some(exe) => Remedy::Run {
            treatment: Treatment::SpeculateForks,
            program: Some(context.program(programs, exe)),
        },
        None => Remedy::Change,
    };
    let does = match what {
        For::Call => "creates",
        For::Exec => "waits until the exec of",
        For::End => "waits for the end of",
    };
    Some(Finding {
        title: format!(
            "{}'s event loop stands still for {:.1} % of the time: it {does} {first}, {} each, {:.1} a second",
            process.name,
            context.share(ns) * 100.0,
            time(each),
            context.per_second(count),
        ),
        call_site: stack.clone(),
        cost: Cost { caller_ns: Some(ns), cpu_share: context.share(ns), ..Cost::default() },
        evidence: list,
        reason: "The thread that waits for events creates processes itself: nothing that the loop serves goes on meanwhile.".to_owned(),
        explanation: explanation.to_owned(),
        remedy,
        saving_in_caller_ns: Some(saving_each),
        ..context.finding(FindingKind::LoopBlocked, process, programs, count, saving_each)
    })
}

/// What the preloaded library saves of each pause, if it is a remedy: the copy, and its taking down
/// where the loop waits for the exec. The rest of the pause stays.
fn saved_by_run(context: &Context<'_>, merged: &Merged, what: For) -> Option<Estimate> {
    let Merged { process, places, stack, blocked, .. } = merged;
    let [in_all, in_caller] = forks::saved_by_run(context, process, stack, places.keys())?;
    let each = if what == For::Call { in_caller } else { in_all };
    let copies = blocked.copies as f64 / blocked.count as f64;
    let pause = blocked.ns() as f64 / blocked.count as f64;
    let Estimate { low, mid, high } = each.times(copies.min(1.0));
    let most = |ns: f64| ns.min(pause);
    Some(Estimate { low: most(low), mid: most(mid), high: most(high) }).filter(|saved| saved.mid > 0.0)
}

/// The change that lets the loop go on, and whether the preloaded library does the same.
fn advice(process: &ProcessName, blocked: &Blocked, what: For) -> (&'static str, bool) {
    let exe = process.exe.as_deref().unwrap_or_default();
    let file = exe.rsplit('/').next().unwrap_or_default();
    let is = |name: &str| file.starts_with(name);
    match what {
        For::End if is("python") || is("pypy") => (
            "Await asyncio.create_subprocess_exec, or run the call in a thread (asyncio.to_thread), and not subprocess.run in the loop",
            false,
        ),
        For::End if is("node") => (
            "Use child_process.execFile or spawn with a callback, and not spawnSync, execSync or execFileSync",
            false,
        ),
        For::End if is("ruby") => (
            "Start it in a thread of its own (Thread.new, Open3), and not by system or backticks in the loop",
            false,
        ),
        For::End => (
            "Start the program and let the loop watch its pidfd or its pipe, and not wait for its end in a callback",
            false,
        ),
        For::Exec | For::Call if is("node") => (
            "Start programs from a worker (node:worker_threads), or from a small process that the loop writes to",
            blocked.anon >= speculated_from(),
        ),
        For::Exec | For::Call if blocked.copies * 2 > blocked.count => (
            "Start programs with posix_spawn or vfork (libraries: forkless), or from a small process that the loop writes to",
            blocked.anon >= speculated_from(),
        ),
        For::Exec | For::Call if is("python") => {
            ("Start programs by forkless.asyncio, which does not wait for the exec, or from a thread", false)
        }
        For::Exec | For::Call => (
            "Start programs from another thread, or by a call that does not wait for the exec (libraries: forkless)",
            false,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::{Collected, Group, Outcome};
    use crate::finding::look;
    use crate::model::CostModel;

    /// Regression: nearly the whole pause was promised of `forkless run`, 61.09 ms of 61.21. Under
    /// it the loop still waits for the exec.
    #[test]
    fn of_a_pause_run_saves_what_it_saves_of_the_fork() {
        let exact = |ns| Estimate { low: ns, mid: ns, high: ns };
        let model = CostModel {
            fork_per_entry: exact(25.0),
            teardown_per_entry: exact(20.0),
            spawn: exact(100e3),
            ..CostModel::default()
        };
        let place = Place { pid: 1, nr: 56, ip: 1, word: 0, image: 0 };
        let forks = |exec_failed| {
            let mut group = Group { count: 200, exec_failed, ..Group::default() };
            group.anon.add(f64::from(256 << 20));
            group.caller.add(20e6);
            group.exec.add(9e6);
            HashMap::from([((place, Outcome::ForkThenExec), group)])
        };
        let merged = |exec_ns: u64| Merged {
            process: ProcessName { exe: Some("/srv/web".to_owned()), ..ProcessName::default() },
            programs: vec![place.program()],
            places: HashMap::from([(place, 200)]),
            stack: Vec::new(),
            blocked: Blocked {
                count: 200,
                call_ns: 200 * 20_000_000,
                exec_ns: 200 * exec_ns,
                copies: 200,
                anon: 256 << 20,
                ..Blocked::default()
            },
        };
        let found = |groups: &_, exec_ns| {
            look(&Collected::new(), groups, &model, |context| finding(context, &merged(exec_ns)))
                .expect("a loop that stands still")
        };
        let of_fork = look(&Collected::new(), &forks(0), &model, forks::find).remove(0);
        let for_exec = found(&forks(0), 40_000_000);
        assert!(matches!(for_exec.remedy, Remedy::Run { .. }), "{for_exec:?}");
        assert_eq!(for_exec.saving_each_ns, of_fork.saving_each_ns);
        assert!(for_exec.saving_each_ns.mid < 29e6, "of a pause of 60 ms: {for_exec:?}");
        let for_call = found(&forks(0), 0);
        assert_eq!(Some(for_call.saving_each_ns), of_fork.saving_in_caller_ns);
        // It leaves these forks as they are.
        let failing = found(&forks(200), 40_000_000);
        assert!(matches!(failing.remedy, Remedy::Change), "{failing:?}");
        assert!(failing.saving_each_ns.mid > 59e6, "{failing:?}");
    }

    #[test]
    fn the_remedy_is_for_what_the_loop_stands_still_for() {
        let process = |exe: &str| ProcessName { exe: Some(exe.to_owned()), ..ProcessName::default() };
        let blocked = |call_ns, exec_ns, end_ns| {
            let end_waits = u64::from(end_ns > 0);
            Blocked { count: 1, call_ns, exec_ns, end_ns, end_waits, ..Blocked::default() }
        };
        let told = |exe: &str, blocked: &Blocked| advice(&process(exe), blocked, mostly(blocked));
        let (text, _) = told("/usr/bin/python3.11", &blocked(1, 0, 9));
        assert!(text.starts_with("Await asyncio.create_subprocess_exec"), "{text}");
        // On a busy machine the exec takes longer than the program.
        assert!(told("/usr/bin/node", &blocked(1, 99, 9)).0.contains("execFile"));
        assert!(told("/usr/bin/node", &blocked(1, 9, 0)).0.contains("node:worker_threads"));
        assert!(told("/srv/web", &blocked(1, 9, 0)).0.contains("another thread"));
        let forks = Blocked { copies: 1, anon: 1 << 30, ..blocked(9, 0, 0) };
        let (text, speculates) = told("/srv/web", &forks);
        assert!(text.contains("posix_spawn") && speculates);
        assert!(!told("/srv/web", &Blocked { anon: 0, ..forks }).1, "too little memory");
    }
}
