//! Many short programs that a script, xargs, find or make starts, one for each small thing. Only
//! starters with a remedy of their own are found: a server that starts programs by posix_spawn is
//! healthy.

use super::gathering::{self, Gathered};
use super::recipes;
use super::{Context, Cost, Finding, FindingKind, evidence, interval, lines_evidence, several, time};
use crate::builtin::Builtin;
use crate::collect::{Group, LineCounts, Outcome, Starter};
use crate::creation::{Place, ProgramKey};
use crate::estimate::Estimate;
use crate::file_name::file_name;
use crate::interpreter::{Family, is_shell};
use crate::model::CostModel;
use crate::program::ProcessName;
use crate::stack::Frame;

/// From so many programs on it is a storm.
const FROM: u64 = 50;
/// A storm must cost so many times the least share of a finding: by default 2 % of a CPU.
const SHARE: f64 = 20.0;
/// Programs that one process must start in a row, where it is no script.
const BY_ONE: u64 = 10;
/// Part of the programs that the advice must save. Of 73 programs of a configure script one dirname
/// was to be replaced.
const SAVED: f64 = 0.05;
/// Part of the programs that must be short.
const SHORT: f64 = 0.9;

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    context.starters.iter().filter_map(|(_, starter)| storm(context, starter)).collect()
}

/// Starters whose storms have a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bash,
    Shell,
    Xargs,
    Find,
    Make,
}

/// Whether the remedies of this module are for such a program, and not those of a program that can
/// be changed to create processes in another way.
pub(super) fn is_starter(process: &ProcessName) -> bool {
    kind_of(process).is_some()
}

/// Whether it is xargs or find, and which.
pub(super) fn gatherer(process: &ProcessName) -> Option<&'static str> {
    match kind_of(process)? {
        Kind::Xargs => Some("xargs"),
        Kind::Find => Some("find"),
        Kind::Bash | Kind::Shell | Kind::Make => None,
    }
}

/// By the program's file. Only busybox is what it was called: any other program may have been given
/// a shell's name (`exec -a`).
fn kind_of(process: &ProcessName) -> Option<Kind> {
    let called = || process.arguments.first().map(|word| file_name(word.trim_start_matches('-')));
    let exe = process.exe.as_deref().map(file_name);
    let name = exe.filter(|exe| !is_many(exe)).or_else(called)?;
    match (Family::of_file(name), name) {
        (Some(Family::Bash), _) => Some(Kind::Bash),
        (Some(Family::Shell), _) => Some(Kind::Shell),
        (Some(Family::Make), _) => Some(Kind::Make),
        (_, "xargs" | "gxargs") => Some(Kind::Xargs),
        (_, "find" | "gfind") => Some(Kind::Find),
        _ => None,
    }
}

/// Whether a file is many programs.
fn is_many(file: &str) -> bool {
    file.starts_with("busybox") || file.starts_with("toybox")
}

/// Whether a shell carries out a script: then it is not called by its own name alone.
fn is_script(process: &ProcessName) -> bool {
    let first = process.arguments.first().map(|word| word.trim_start_matches('-'));
    first.is_none_or(|first| file_name(first) != process.name)
}

/// Of these no program does the work of several starts.
const ONE_EACH: [&str; 22] = [
    "[", "basename", "bc", "date", "dirname", "dc", "echo", "env", "expr", "false", "hostname", "id", "kill",
    "mktemp", "printf", "pwd", "seq", "sleep", "test", "true", "tty", "uname",
];

struct Advice {
    text: String,
    /// The programs of which it saves starts, where it is not all of them.
    of: Option<Vec<String>>,
    /// Share of all starts that it saves.
    saves: Estimate,
    /// Whether of shells it saves nothing but what a shell adds to its line's programs.
    shells: bool,
}

impl Advice {
    fn is_about(&self, program: &str) -> bool {
        self.of.as_ref().is_none_or(|of| of.iter().any(|name| name == program))
    }
}

/// The remedy that fits the starter, if there is one. `started` has the most frequent programs;
/// `builtin` tells what stands for all starts of one that were seen; `command_lines` are those of
/// all starters of the name, each with whether it is whole.
fn advice(
    kind: Kind,
    command_lines: &[(&ProcessName, bool)],
    started: &[(String, u64)],
    programs: u64,
    builtin: impl Fn(&str) -> Option<&'static Builtin>,
) -> Option<Advice> {
    let share = |count: u64| count as f64 / programs.max(1) as f64;
    // At most: starting each program once.
    let once = share(programs.saturating_sub(started.len() as u64));
    match kind {
        Kind::Bash | Kind::Shell => {
            let own = |name: &str| builtin(name).filter(|own| kind == Kind::Bash || !own.is_of_bash);
            let own = started.iter().filter_map(|(name, count)| Some((name, *count, own(name)?)));
            let own: Vec<(&String, u64, &Builtin)> = own.collect();
            let sum = |certain| share(own.iter().filter(|it| it.2.certain == certain).map(|it| it.1).sum());
            let (certain, perhaps) = (sum(true), sum(false));
            if certain + perhaps / 2.0 < SAVED {
                return one_for_many(started, share);
            }
            let words: Vec<&str> = own.iter().map(|(.., own)| own.text).collect();
            Some(Advice {
                text: format!("Use what the shell does itself: {}", words.join(", ")),
                saves: Estimate { low: certain, mid: certain + perhaps / 2.0, high: certain + perhaps },
                of: Some(own.into_iter().map(|(name, ..)| name.clone()).collect()),
                shells: false,
            })
        }
        Kind::Xargs | Kind::Find => {
            let Gathered { text, certain, shells } = gathered(kind, command_lines)?;
            // Whether the program takes many is not known.
            let unsure = Estimate { low: 0.0, mid: once / 2.0, high: once };
            Some(Advice {
                text,
                of: None,
                saves: if certain { Estimate::exact(once) } else { unsure },
                shells,
            })
        }
        Kind::Make => {
            let of = started.iter().filter(|(name, _)| is_shell(name));
            let shells = share(of.clone().map(|(_, count)| count).sum());
            // make starts a plain line itself only if SHELL is as it is by default
            // (`construct_command_argv_internal` of its job.c).
            let text = match started.iter().find(|(name, _)| is_chosen(name)) {
                Some((shell, _)) => format!(
                    "Leave SHELL as it is (/bin/sh) where no line needs {shell}: with another every line gets a shell, even a plain one; else, where a recipe has several lines, {ONE_SHELL}"
                ),
                None => format!(
                    "Where a recipe has several lines, {ONE_SHELL}; a recipe of one line gains nothing by that, but no shell is started for plain words, without redirections, wildcards, variables, pipes and commands of the shell's own"
                ),
            };
            // How many lines a recipe has is not seen: one shell for each recipe is left.
            let saves = Estimate { low: 0.0, mid: shells / 2.0, high: shells };
            let of = Some(of.map(|(name, _)| name.clone()).collect());
            Some(Advice { text, of, saves, shells: false })
        }
    }
}

/// One shell ends at the first line that fails, as make does, only where `&&` joins the lines. A
/// line of several commands would end otherwise (`a || b`), and no shell knows the `@` of a line.
/// .ONESHELL and .SHELLFLAGS would change each recipe and each `$(shell ...)` of the makefile.
const ONE_SHELL: &str = "let one shell run them all: join them with &&, if each line is one command or pipeline (no ;, ||, & or #), none begins with -, + or @, and none needs a shell of its own (cd, exit, variables)";

/// A loop that starts sed once for each line may give one sed all lines. Whether that prints the
/// same is not known.
fn one_for_many(started: &[(String, u64)], share: impl Fn(u64) -> f64) -> Option<Advice> {
    const NAMED: usize = 3;
    let may = |name: &str| !ONE_EACH.contains(&name) && !is_shell(name) && name != crate::collect::UNKNOWN;
    let named = started.iter().filter(|(name, count)| *count > 1 && may(name)).take(NAMED);
    let named: Vec<&(String, u64)> = named.collect();
    let names: Vec<String> = named.iter().map(|(name, _)| name.clone()).collect();
    let (last, others) = names.split_last()?;
    let which = if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) };
    let once = share(named.iter().map(|(_, count)| count - 1).sum());
    Some(Advice {
        text: format!(
            "If one {which} for many lines or files gives the same as one for each, start it once: let a loop write the lines into its input, or give it all the files"
        ),
        saves: Estimate { low: 0.0, mid: once / 2.0, high: once },
        of: Some(names),
        shells: false,
    })
}

/// Whether a makefile has chosen this shell. dash and ash may be /bin/sh.
fn is_chosen(shell: &str) -> bool {
    is_shell(shell) && !matches!(shell, "sh" | "dash" | "ash")
}

/// What most of these command lines of find or xargs do otherwise. It is certain only if it is the
/// same for each. A line that was cut may go on with anything: for it nothing is known.
fn gathered(kind: Kind, command_lines: &[(&ProcessName, bool)]) -> Option<Gathered> {
    let starts = |process: &ProcessName| {
        let is_action = |word: &String| word.starts_with("-exec") || word.starts_with("-ok");
        kind == Kind::Xargs || process.arguments.iter().any(is_action)
    };
    let mut told: Vec<(Option<Gathered>, usize)> = Vec::new();
    for (process, whole) in command_lines.iter().filter(|(process, whole)| !whole || starts(process)) {
        // Beside GNU's find there are GNU's programs.
        let gnu = process.exe.as_deref().is_none_or(|exe| !is_many(file_name(exe)));
        let of = if kind == Kind::Find { gathering::of_find } else { gathering::of_xargs };
        let found = whole.then(|| of(&process.arguments, gnu)).flatten();
        match told.iter_mut().find(|(other, _)| *other == found) {
            Some((_, count)) => *count += 1,
            None => told.push((found, 1)),
        }
    }
    let all: usize = told.iter().map(|(_, count)| count).sum();
    let is_same = told.len() == 1;
    // Of those that are as frequent, the first that has a remedy.
    let most = told.into_iter().rev().max_by_key(|(found, count)| (*count, found.is_some()))?;
    let (Some(found), count) = most else { return None };
    if is_same {
        return Some(found);
    }
    let text = format!("{} (so for {count} of {all} command lines that were seen)", found.text);
    Some(Gathered { text, certain: false, ..found })
}

/// What a start of a program takes of processors, from its creation to its end. `busy` is what it
/// took without its waits for a processor, if it was seen to end. Its own work is in that, and its
/// waits for input.
fn start(kind: Kind, model: &CostModel, caller_ns: f64, busy: Option<Estimate>) -> Estimate {
    /// `true`, `wc`, `basename` and `date`, started by find and bash, took 2.0 to 2.6 times the
    /// price of the smallest program, and `grep` and `sed` 3.
    const USUAL: f64 = 2.0;
    /// What takes longer works or waits: how long its start took is not seen.
    const MOST: f64 = 4.0;
    let least = model.program.plus(Estimate::exact(caller_ns));
    // Meanwhile and afterwards the caller writes to pages that it shared, reads a pipe and waits:
    // that took 0.1 to 0.2 ms, as long as the call or somewhat longer. On a busy machine the call
    // has waits for a processor in it. make's calls share memory, and last until the exec.
    let afterwards = if kind == Kind::Make { 0.0 } else { caller_ns.min(model.spawn.mid) };
    match busy {
        Some(busy) if busy.mid <= MOST * model.program.mid => busy.plus(Estimate::exact(afterwards)),
        Some(busy) => {
            let mid = (USUAL * model.program.mid).max(least.mid);
            Estimate { low: least.low, mid, high: busy.mid.max(mid) }
        }
        None => least,
    }
}

/// What a start of a shell is without the programs of its line, which the shell that is left starts
/// in its place. If there are none, all of it is saved.
fn shell_alone(model: &CostModel, start: Estimate) -> Estimate {
    let Estimate { low, mid, .. } = model.shell.at_least_zero();
    Estimate { low: low.min(start.high), mid: mid.min(start.high), high: start.high }
}

/// The mean of programs by how often they were started.
fn mean_start<'s>(
    programs: impl Iterator<Item = &'s (String, u64)>,
    each: impl Fn(&str) -> Estimate,
) -> Estimate {
    let (mut sum, mut all) = (Estimate::default(), 0);
    for (name, count) in programs {
        let Estimate { low, mid, high } = each(name).times(*count as f64);
        sum = Estimate { low: sum.low + low, mid: sum.mid + mid, high: sum.high + high };
        all += count;
    }
    sum.times(1.0 / all.max(1) as f64)
}

fn storm(context: &Context<'_>, starter: &Starter) -> Option<Finding> {
    let programs = starter.programs;
    let program = starter.program?;
    if programs < FROM || (starter.short as f64) < SHORT * programs as f64 {
        return None;
    }
    let process = context.name(program, "");
    let kind = kind_of(&process)?;
    // A thousand shells with a line each are no storm of one shell; whoever starts them is asked.
    // A script's subshells are processes of their own, and belong to it.
    let is_script = matches!(kind, Kind::Bash | Kind::Shell) && is_script(&process);
    if !is_script && programs < BY_ONE * starter.turns {
        return None;
    }
    let model = context.model;
    let caller_ns = starter.caller_ns(model);
    let caller_each = caller_ns / programs as f64;
    let start = |name: &str| start(kind, model, caller_each, starter.busy_ns(name));
    let started = starter.started.top(32);
    let cost_ns = mean_start(started.iter(), start).mid * programs as f64;
    let child_ns = (cost_ns - caller_ns).max(0.0);
    if context.share(cost_ns) < context.thresholds.share * SHARE {
        return None;
    }
    let of_name = context.collected.programs.of_name(&process.name);
    let mut command_lines: Vec<(&ProcessName, bool)> =
        of_name.filter(|(known, _)| kind_of(known) == Some(kind)).collect();
    if command_lines.is_empty() {
        command_lines.push((&process, false));
    }
    // A shell that is not make's can be left out. One shell for a recipe of one line is no fewer.
    if kind == Kind::Make
        && !started.iter().any(|(shell, _)| is_chosen(shell))
        && context.collected.programs.directory(program).is_some_and(|directory| {
            matches!(command_lines[..], [(make, true)] if recipes::have_one_line(directory, &make.arguments))
        })
    {
        return None;
    }
    let remedy = advice(kind, &command_lines, &started, programs, |name| starter.builtin(name))?;
    let Advice { text, saves, shells, .. } = &remedy;
    if saves.mid < SAVED {
        return None;
    }
    let saved = started.iter().filter(|(name, _)| remedy.is_about(name));
    let each = mean_start(saved, start);
    let each = if *shells { shell_alone(model, each) } else { each };
    let saving_each =
        Estimate { low: each.low * saves.low, mid: each.mid * saves.mid, high: each.high * saves.high };
    if context.shares(saving_each, programs).mid < context.thresholds.share {
        return None;
    }
    let names = names(&started, programs);
    let mut list = vec![
        evidence("programs started", format!("{programs}, {:.1} a second", context.per_second(programs))),
        evidence(
            "which",
            started.iter().take(8).map(|(name, n)| format!("{name} ({n})")).collect::<Vec<_>>().join(", "),
        ),
        evidence("they live", format!("{} on average", time(starter.mean_life_ns()))),
        evidence("of it without waits for a processor", time(starter.mean_busy_ns())),
        evidence(
            "exec, dynamic loading and exit of the smallest program (/bin/true, as calibrated)",
            interval(model.program),
        ),
        evidence("creating each, in its caller", time(caller_ns / programs as f64)),
    ];
    if kind == Kind::Make {
        let unseen = "not seen: one shell for all of them saves nothing where a recipe has one line";
        list.push(evidence("lines of a recipe", unseen));
    }
    if let Some(exec) = starter.mean_exec_ns() {
        list.push(evidence("of it the exec (measured)", time(exec)));
    }
    let (stack, lines) = place(context, &process.name);
    if places(context, &process.name).next().is_none() {
        list.push(super::no_place("its starts copy no memory, and their stacks are not kept"));
    }
    let lines = several(&lines);
    list.extend(lines_evidence(&lines, "readings"));
    Some(Finding {
        title: format!(
            "{} starts {programs} short programs, {:.1} a second: {}",
            process.name,
            context.per_second(programs),
            names
        ),
        stack,
        lines,
        cost: Cost {
            caller_ns: Some(caller_ns),
            child_ns: Some(child_ns),
            faults_ns: None,
            cpu_share: context.share(cost_ns),
            ..Cost::default()
        },
        evidence: list,
        reason: "Each program is created, executed, linked with its libraries and taken down again, which takes longer than its work.".to_owned(),
        explanation: text.clone(),
        ..context.finding(FindingKind::StartStorm, &process, &[program], programs, saving_each)
    })
}

/// The most frequent programs, and how many were others.
fn names(started: &[(String, u64)], programs: u64) -> String {
    const NAMED: usize = 3;
    let named = || started.iter().take(NAMED);
    let mut names: Vec<String> = named().map(|(name, count)| format!("{name} {count}")).collect();
    let others = programs.saturating_sub(named().map(|(_, count)| count).sum());
    if others > 0 {
        names.push(format!("others {others}"));
    }
    names.join(", ")
}

/// The most frequent place from which a program of this name starts others, below the user's line
/// that was read most often, and the lines of all its places. Each subshell of a script is a
/// process.
fn place(context: &Context<'_>, name: &str) -> (Vec<Frame>, LineCounts) {
    let mut lines = LineCounts::default();
    places(context, name).for_each(|(_, group)| lines.merge(&group.lines));
    let most = places(context, name).max_by_key(|((place, _), group)| (group.count, *place));
    let native = most.map_or_else(Vec::new, |((place, _), _)| context.stack(place));
    ([lines.most(), &native].concat(), lines)
}

/// The places from which programs of this name start others by forks.
fn places<'c>(
    context: &'c Context<'_>,
    name: &'c str,
) -> impl Iterator<Item = (&'c (Place, Outcome), &'c Group)> {
    let of_name = move |program: ProgramKey| {
        context.collected.programs.name(program).is_some_and(|process| process.name == name)
    };
    let starts = context.groups.iter().filter(|((_, outcome), _)| *outcome == Outcome::ForkThenExec);
    starts.filter(move |((place, _), _)| of_name(place.program()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::builtin;
    use crate::collect::Collected;
    use crate::event::{Event, SeenProgram};
    use crate::finding::look;
    use crate::program::KnownProgram;

    /// A configure script was found at an address of dash's.
    #[test]
    fn the_place_of_a_storm_is_the_users_line() {
        let at = |pid| Place { pid, nr: 56, ip: 1, word: 0, image: 0 };
        let frame = |function: &str, line| {
            let (function, module) = (Some(function.to_owned()), "/srv/configure".to_owned());
            Frame { function, module, line, ..Frame::default() }
        };
        let starts = |count, line| {
            let mut group = Group { count, ..Group::default() };
            group.lines.add(&[frame("check", Some(line))], count);
            group
        };
        let mut collected = Collected::new();
        for (pid, name) in [(1, "configure"), (2, "configure"), (3, "other")] {
            let known = KnownProgram { comm: name.into(), ..KnownProgram::default() };
            collected.event(Event::Program(SeenProgram { key: at(pid).program(), known, cut: false }));
            collected.stacks.insert(at(pid), vec![(vec![frame("fork", None)], 1)]);
        }
        let groups = HashMap::from([
            ((at(1), Outcome::ForkThenExec), starts(9, 7)),
            ((at(2), Outcome::ForkThenExec), starts(20, 8)),
            ((at(3), Outcome::ForkThenExec), starts(50, 9)),
        ]);
        let (stack, lines) =
            look(&collected, &groups, &CostModel::default(), |context| place(context, "configure"));
        assert_eq!(stack, [frame("check", Some(8)), frame("fork", None)]);
        assert_eq!(lines.each().len(), 2);
    }

    /// Three of six programs were named as if they were all.
    #[test]
    fn a_title_says_that_there_are_others() {
        let started = |counts: &[u64]| -> Vec<(String, u64)> {
            counts.iter().zip('a'..).map(|(count, name)| (name.to_string(), *count)).collect()
        };
        assert_eq!(names(&started(&[9, 8, 7, 6, 5, 4]), 39), "a 9, b 8, c 7, others 15");
        assert_eq!(names(&started(&[9, 8]), 17), "a 9, b 8");
    }

    fn process(exe: &str, line: &[&str]) -> ProcessName {
        ProcessName {
            exe: Some(exe.to_owned()),
            arguments: line.iter().map(|word| (*word).to_owned()).collect(),
            ..ProcessName::default()
        }
    }

    fn advised(kind: Kind, process: &ProcessName, started: &[(&str, u64)]) -> Option<Advice> {
        let started: Vec<_> = started.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let programs = started.iter().map(|(_, count)| count).sum();
        advice(kind, &[(process, true)], &started, programs, builtin::of)
    }

    #[test]
    fn a_remedy_fits_who_starts_the_programs() {
        let said = |kind, process: &ProcessName, started: &[(&str, u64)]| {
            let Advice { text, saves, .. } = advised(kind, process, started).expect("a remedy");
            (text, saves)
        };
        let bash = process("/usr/bin/bash", &["bash", "build.sh"]);
        let (text, saves) = said(Kind::Bash, &bash, &[("date", 90), ("gcc", 10)]);
        let date = "Use what the shell does itself: printf '%(FORMAT)T\\n' -1 for date +FORMAT (bash only)";
        assert_eq!((text.as_str(), saves), (date, Estimate::exact(0.9)));
        // dash's printf knows no times, and no program knows many.
        let (text, saves) = said(Kind::Shell, &bash, &[("date", 90), ("gcc", 10)]);
        assert!(text.starts_with("If one gcc for many lines or files gives the same"), "{text}");
        assert_eq!(saves, Estimate { low: 0.0, mid: 0.045, high: 0.09 });
        let make = process("/usr/bin/make", &["make", "SHELL=/bin/mksh"]);
        let (text, saves) = said(Kind::Make, &make, &[("mksh", 80), ("cc", 20)]);
        assert!(text.contains("no line needs mksh") && saves.mid == 0.4, "{text} {saves:?}");
        let (text, saves) = said(Kind::Make, &make, &[("sh", 80), ("cc", 20)]);
        // Regression: with .ONESHELL: a build that failed succeeded, or one failed that had not.
        assert!(text.contains("join them with &&, if each") && !text.contains("ONESHELL"), "{text}");
        // Regression: 300 recipes of one line were told of one shell, which changed nothing.
        assert!(text.starts_with("Where a recipe has several lines, let one shell run"), "{text}");
        assert!(text.contains("a recipe of one line gains nothing"), "{text}");
        assert_eq!(saves.low, 0.0, "how many lines is not seen");
    }

    /// Regression: three of six remedies were named, and all six were the saving.
    #[test]
    fn what_is_saved_is_what_is_named() {
        let bash = process("/usr/bin/bash", &["bash", "build.sh"]);
        let all = [("sed", 9), ("date", 8), ("cut", 7), ("cat", 6), ("awk", 5), ("dirname", 4), ("cc", 1)];
        let Advice { text, saves, of, .. } = advised(Kind::Bash, &bash, &all).expect("a remedy");
        let named =
            |name: &str| text.contains(&format!("for {name} ")) || text.contains(&format!("$({name} "));
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).filter(|name| named(name)).collect();
        assert_eq!(names, ["date", "cat", "dirname"], "{text}");
        assert_eq!(of, Some(names.iter().map(|&name| name.to_owned()).collect()));
        let of_forty = [saves.low, saves.mid, saves.high].map(|share| (share * 40.0).round());
        assert_eq!(of_forty, [12.0, 15.0, 18.0], "whether a variable gets the output of cat is not seen");
    }

    /// Regression: a loop that sleeps was to `read -t`, which eats its input.
    #[test]
    fn a_loop_that_waits_has_no_remedy() {
        let bash = process("/usr/bin/bash", &["bash", "wait.sh"]);
        for started in [&[("sleep", 90)][..], &[("sleep", 90), ("date", 3)], &[("test", 50), ("sh", 50)]] {
            assert!(advised(Kind::Bash, &bash, started).is_none(), "{started:?}");
        }
        let many = advised(Kind::Bash, &bash, &[("sed", 50), ("awk", 40), ("sleep", 9), ("gcc", 1)]);
        let Advice { text, of, .. } = many.expect("a remedy");
        assert!(
            text.starts_with("If one sed or awk for many") && of.is_some_and(|of| of.len() == 2),
            "{text}"
        );
    }

    /// Regression: find and xargs were told the same words, whatever they started.
    #[test]
    fn find_and_xargs_are_advised_by_their_whole_command_lines() {
        let rm = process("/usr/bin/xargs", &["xargs", "-n1", "rm"]);
        let app = process("/usr/bin/xargs", &["xargs", "-n1", "app"]);
        let mv = process("/usr/bin/xargs", &["xargs", "-n2", "mv"]);
        let saves = |lines: &[(&ProcessName, bool)]| {
            advice(Kind::Xargs, lines, &[("rm".to_owned(), 100)], 100, builtin::of)
                .map(|advice| advice.saves.low)
        };
        assert_eq!(saves(&[(&rm, true)]), Some(0.99));
        assert_eq!(saves(&[(&rm, true), (&rm, true)]), Some(0.99));
        // Whether it holds is not known, or not for each.
        for lines in [&[(&app, true)][..], &[(&rm, true), (&mv, true)]] {
            assert_eq!(saves(lines), Some(0.0), "{lines:?}");
        }
        // Half of a saving was told of a line that was cut. What is behind may be -delete.
        for lines in [&[(&mv, true)][..], &[(&rm, false)], &[(&mv, true), (&rm, true), (&mv, true)]] {
            assert_eq!(saves(lines), None, "{lines:?}");
        }
        // The first of the alphabet was told.
        let said = |lines: &[(&ProcessName, bool)]| {
            advice(Kind::Xargs, lines, &[("rm".to_owned(), 100)], 100, builtin::of)
                .map_or_else(String::new, |it| it.text)
        };
        let text = said(&[(&app, true), (&rm, true), (&rm, true)]);
        assert!(
            text.starts_with("Let one rm have") && text.contains("(so for 2 of 3 command lines"),
            "{text}"
        );
        assert!(!said(&[(&rm, true), (&rm, true)]).contains("so for"));
        let find = |line: &[&str]| process("/usr/bin/find", &[&["find", "."], line].concat());
        let (plain, each) = (find(&["-type", "f"]), find(&["-type", "f", "-exec", "rm", "{}", ";"]));
        let saves = |lines: &[(&ProcessName, bool)]| {
            advice(Kind::Find, lines, &[("rm".to_owned(), 100)], 100, builtin::of)
                .map(|advice| advice.saves.low)
        };
        assert_eq!(saves(&[(&plain, true), (&each, true)]), Some(0.99), "the other starts nothing");
        assert_eq!(saves(&[(&plain, true)]), None);
        // Without -type f find may look at what rm removes later.
        let each = find(&["-exec", "rm", "{}", ";"]);
        assert_eq!(saves(&[(&each, true)]), Some(0.0));
    }

    /// A shell's programs are started all the same.
    #[test]
    fn a_loop_saves_what_a_shell_adds() {
        let model = CostModel { shell: Estimate::exact(300.0), ..CostModel::default() };
        let whole = Estimate { low: 800.0, mid: 900.0, high: 1_000.0 };
        assert_eq!(shell_alone(&model, whole), Estimate { low: 300.0, mid: 300.0, high: 1_000.0 });
        let find = process("/usr/bin/find", &["find", "-exec", "sh", "-c", "echo $1", "_", "{}", ";"]);
        assert!(advised(Kind::Find, &find, &[("sh", 90)]).is_some_and(|advice| advice.shells));
    }

    /// Regression: date, basename and expr took twice the price of the smallest program. Builtins
    /// saved 1.6 s of processor time, and 0.74 were predicted; `find +` 295 ms, and 178.
    #[test]
    fn what_a_start_saves_is_what_it_took() {
        let bash = process("/usr/bin/bash", &["bash", "build.sh"]);
        let of = |kind, program: &str| {
            let advice = advised(kind, &bash, &[("date", 90), ("dash", 90)]);
            advice.is_some_and(|advice| advice.is_about(program))
        };
        assert!(of(Kind::Bash, "date") && !of(Kind::Bash, "gcc"));
        assert!(!of(Kind::Make, "gcc") && of(Kind::Make, "dash"));
        let (program, spawn) = (Estimate::exact(500.0), Estimate::exact(100.0));
        let model = CostModel { program, spawn, ..CostModel::default() };
        let of = |kind, caller_ns, busy| start(kind, &model, caller_ns, Some(Estimate::exact(busy))).mid;
        assert_eq!(of(Kind::Bash, 9_000.0, 1_200.0), 1_300.0, "the call waited for a processor");
        assert_eq!(of(Kind::Make, 70.0, 1_200.0), 1_200.0);
        let start = |busy: Option<f64>| start(Kind::Bash, &model, 70.0, busy.map(Estimate::exact));
        assert_eq!(start(Some(1_200.0)), Estimate::exact(1_270.0));
        assert_eq!(start(None), Estimate::exact(570.0), "none was seen to end");
        let long = Estimate { low: 570.0, mid: 1_000.0, high: 90_000.0 };
        assert_eq!(start(Some(90_000.0)), long, "most of it is work");
        let started = [("date".to_owned(), 30), ("gcc".to_owned(), 10)];
        let mean =
            mean_start(started.iter(), |name| start(Some(if name == "date" { 600.0 } else { 1_000.0 })));
        assert_eq!(mean, Estimate::exact(770.0));
    }

    #[test]
    fn only_starters_with_a_remedy_are_found() {
        let kind = |exe: &str, line: &[&str]| kind_of(&process(exe, line));
        assert_eq!(kind("/usr/bin/dash", &["/bin/sh", "./configure"]), Some(Kind::Shell));
        assert_eq!(kind("/usr/bin/make", &["make", "-j4"]), Some(Kind::Make));
        assert_eq!(kind("/bin/busybox", &["xargs", "-n", "1"]), Some(Kind::Xargs));
        assert_eq!(kind("/usr/sbin/httpd", &["httpd"]), None);
        // Regression: each was a shell or make.
        assert_eq!(kind("/srv/sh1", &["./sh1"]), None);
        assert_eq!(kind("/srv/make2", &["make2"]), None);
        assert_eq!(kind("/srv/app", &["bash"]), None, "exec -a");
        assert_eq!(kind("/usr/bin/bash", &["-bash"]), Some(Kind::Bash));
        assert_eq!(kind_of(&ProcessName::default()), None);
    }
}
