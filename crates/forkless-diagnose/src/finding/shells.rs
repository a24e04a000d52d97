//! Finding 3: shells started for lines that need none.

use std::collections::HashMap;

use super::{
    Context, Cost, Finding, FindingKind,
    advice::{self, ByWords},
    evidence, gathering, interval, label, lines_evidence, storms,
};
use crate::collect::{LineCounts, ShellGroup};
use crate::creation::ProgramKey;
use crate::estimate::{Estimate, Stream};
use crate::file_name::file_name;
use crate::invocation::quoted;
use crate::program::ProcessName;
use crate::reach::{Obstacle, Reach};
use crate::remedy::{FollowUp, Remedy, Treatment};
use crate::shell::{ByRun, Fate};
use crate::stack::Frame;

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    // By process name: (processes, lines without need, lines with, reasons of need).
    let mut callers: HashMap<(String, Option<String>), Caller> = HashMap::new();
    for ((program, fate), group) in &context.collected.shells {
        let process = context.name(*program, &group.comm);
        let caller = callers.entry((label(&process), process.cgroup.clone())).or_insert_with(|| Caller {
            process,
            programs: Vec::new(),
            needless: Vec::new(),
            single: Vec::new(),
            several: 0,
            none: 0,
            needed: 0,
            unknown: 0,
        });
        if !caller.programs.contains(program) {
            caller.programs.push(*program);
        }
        match fate {
            Fate::OneProgram(by_run) => {
                caller.needless.push(group);
                caller.single.push((*by_run, group.count));
            }
            Fate::Programs => {
                caller.needless.push(group);
                caller.several += group.count;
            }
            Fate::NoProgram => {
                caller.needless.push(group);
                caller.none += group.count;
            }
            Fate::NeedsShell(_) => caller.needed += group.count,
            Fate::Unknown => caller.unknown += group.count,
        }
    }
    callers.into_values().filter_map(|caller| needless(context, &caller)).collect()
}

/// What has started the shells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Starter {
    /// The C library's system().
    System,
    /// Its popen().
    Stream,
    /// The program, which executes `/bin/sh -c` itself: Perl, Node.js, Python's subprocess.
    Own,
}

impl Starter {
    fn of(stack: &[Frame]) -> Self {
        const SYSTEM: [&str; 3] = ["system", "do_system", "__libc_system"];
        const STREAM: [&str; 5] =
            ["popen", "_IO_popen", "_IO_new_popen", "_IO_proc_open", "_IO_new_proc_open"];
        let any = |names: &[&str]| {
            stack.iter().any(|frame| frame.function.as_deref().is_some_and(|name| names.contains(&name)))
        };
        // A stripped libc has names only for its exports. There a nameless function of libc calls
        // posix_spawn.
        let nameless = |pair: &[Frame]| {
            pair[0].function.as_deref() == Some("posix_spawn")
                && pair[1].function.is_none()
                && pair[0].module == pair[1].module
        };
        if any(&STREAM) {
            Self::Stream
        } else if any(&SYSTEM) || stack.windows(2).any(nameless) {
            Self::System
        } else {
            Self::Own
        }
    }
}

/// How many of a caller's lines the preloaded library gives no shell, or why none.
fn spared(caller: &Caller<'_>, starter: Starter, reach: Option<&Reach>) -> Result<u64, Obstacle> {
    let sees_the_end = reach.is_some_and(|reach| reach.sees_the_end(starter == Starter::Stream));
    let is_spared = |by_run: ByRun| match starter {
        Starter::Own => by_run.spares_executed(),
        Starter::System | Starter::Stream => by_run.spares_libcs(sees_the_end),
    };
    let count = caller.single.iter().filter(|(by_run, _)| is_spared(*by_run)).map(|(_, count)| count).sum();
    if count > 0 {
        return Ok(count);
    }
    let any = |is_so: fn(ByRun) -> bool| caller.single.iter().any(|(by_run, _)| is_so(*by_run));
    Err(Obstacle::Shells(if starter == Starter::Own && any(|by_run| by_run.proven && !by_run.replaces) {
        "this shell waits for the command, unless the line begins with `exec`"
    } else if starter != Starter::Own && any(|by_run| by_run.proven) {
        "the program handles or blocks signals that would end a waiting shell"
    } else if caller.single.is_empty() && caller.several == 0 {
        "the line starts no program"
    } else {
        "the line is more than a command"
    }))
}

/// Whether the line's programs, started without the shell that is saved, cost more than it.
fn by_words(
    context: &Context<'_>,
    caller: &Caller<'_>,
    stack: &[Frame],
    several: bool,
    shell: Estimate,
) -> ByWords {
    let (mut count, mut forked, mut anon) = (0, 0, Stream::default());
    for group in &caller.needless {
        count += group.count;
        forked += group.forked;
        anon.merge(&group.anon);
    }
    let copies = advice::copies_by_words(&caller.process, stack, several, forked * 2 > count);
    if copies == 0 {
        return ByWords::Less;
    }
    if anon.count == 0 {
        return ByWords::Unknown;
    }
    let pages = context.pages(&caller.programs);
    let huge = anon.mean * pages.map_or(0.0, |history| history.last.huge_share());
    let entries = (anon.mean - huge) / 4096.0;
    let model = context.model;
    let copy = model.fork(entries as u64, (huge / f64::from(2 << 20)) as u64);
    let copy = copy.plus(model.mappings(context.mappings(&caller.programs)));
    // In place of the shell's start of it.
    let each = copy.plus(model.teardown_per_entry.times(entries)).minus(model.spawn).mid;
    if each * f64::from(copies) > shell.mid { ByWords::More } else { ByWords::Less }
}

struct Caller<'c> {
    process: ProcessName,
    programs: Vec<ProgramKey>,
    needless: Vec<&'c ShellGroup>,
    /// How many of them are of one program.
    single: Vec<(ByRun, u64)>,
    /// Those of them that are of several programs.
    several: u64,
    /// Those of them that start no program.
    none: u64,
    needed: u64,
    unknown: u64,
}

fn needless(context: &Context<'_>, caller: &Caller<'_>) -> Option<Finding> {
    let count: u64 = caller.needless.iter().map(|group| group.count).sum();
    let mut lines: Vec<(String, u64)> = caller.needless.iter().flat_map(|group| group.lines.top(3)).collect();
    lines.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut overhead = crate::estimate::Times::default();
    for group in &caller.needless {
        overhead.merge(&group.overhead);
    }
    // Measured if the shell's programs were seen to end, else the price of a shell on this machine.
    let saving_each: Estimate = if overhead.count() > 0 {
        overhead.median().at_least_zero()
    } else {
        context.model.shell.at_least_zero()
    };
    let saving_share = context.shares(saving_each, count);
    if count == 0 || saving_share.mid < context.thresholds.share {
        return None;
    }
    let (line, _) = lines.first()?;
    let mut read = LineCounts::default();
    caller.needless.iter().for_each(|group| read.merge(&group.read));
    let places = || caller.needless.iter().flat_map(|group| group.places.each());
    let stack = context.stack_behind(read.most(), places());
    let (lines_of_code, by) = if read.stacks().is_empty() {
        (context.compiled_lines(places()), "samples")
    } else {
        (read, "readings")
    };
    let (remedy, obstacle, by_remedy) =
        match spared(caller, Starter::of(&stack), context.reach(&caller.programs)) {
            // Changing the program gains more.
            Ok(spared) if spared * 2 < count => (Remedy::Change, None, count),
            Ok(spared) => {
                let exe = caller.process.exe.as_deref();
                let (remedy, obstacle) = context.run(Treatment::SpareShells, &caller.programs, exe);
                let by_remedy = if matches!(remedy, Remedy::Change) { count } else { spared };
                (remedy, obstacle, by_remedy)
            }
            // Where the library cannot be, what it would do with a shell is no reason.
            Err(obstacle) => {
                let in_program = context.everywhere.in_program(context.reach(&caller.programs)).err();
                let absent = in_program.filter(|why| !matches!(why, Obstacle::Loaded(_)));
                (Remedy::Change, Some(absent.unwrap_or(obstacle)), count)
            }
        };
    let several = caller.several * 2 > count;
    let by_words = by_words(context, caller, &stack, several, saving_each);
    let explanation = if caller.none * 2 > count {
        advice::WITHOUT_PROGRAM.to_owned()
    } else {
        let by_gatherer = storms::gatherer(&caller.process).map(|starter| {
            let of_name = context.collected.programs.of_name(&caller.process.name);
            without_text(starter, line, &of_name.collect::<Vec<_>>())
        });
        by_gatherer.unwrap_or_else(|| advice::for_shells(&caller.process, &stack, several, by_words))
    };
    let name = label(&caller.process);
    let total = count + caller.needed + caller.unknown;
    let shells_ns = saving_each.mid * count as f64;
    let mut list = vec![
        evidence(
            "shells for one line",
            format!("{total}: {count} need none, {} do, {} too long to tell", caller.needed, caller.unknown),
        ),
        evidence(
            "most frequent lines",
            lines
                .iter()
                .take(3)
                .map(|(line, times)| format!("{line:?} ({times})"))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        evidence("the shell's own part of each", interval(saving_each)),
    ];
    let lines_of_code = super::several(&lines_of_code);
    list.extend(lines_evidence(&lines_of_code, by));
    Some(Finding {
        title: format!("{name} starts a shell {:.1} times a second for lines that need none, such as {line:?}", context.per_second(count)),
        stack,
        lines: lines_of_code,
        cost: Cost { child_ns: Some(shells_ns), cpu_share: context.share(shells_ns), ..Cost::default() },
        evidence: list,
        reason: if caller.none == count {
            "The line starts no program: the shell is loaded, linked and started only to end."
        } else {
            "The line is plain words, pipes and redirections: the shell is loaded, linked and started only to start them."
        }
        .to_owned(),
        explanation,
        remedy,
        obstacle,
        saving_share: context.shares(saving_each, by_remedy),
        check: quoted(line).map_or_else(|| super::diagnose_again(&caller.programs), FollowUp::ShellLine),
        ..context.finding(FindingKind::NeedlessShell, &caller.process, &caller.programs, count, saving_each)
    })
}

/// For lines into which find or xargs has written a file's name. A shell line has no argument
/// vector. A loop is offered where each of the command lines allows the same one: what stands
/// behind the action is done to each file (`-delete`), and with `{} +` before it.
fn without_text(starter: &str, line: &str, command_lines: &[(&ProcessName, bool)]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let first = line.split_whitespace().next().filter(|word| word.chars().all(is_plain));
    let program = first.map_or("PROGRAM", file_name);
    let by_words = if starter == "find" {
        format!("-exec {program} ... {{}} \\;")
    } else {
        format!("xargs ... {program} ...")
    };
    // A line that was cut may go on with anything.
    let each = |(process, whole): &(&ProcessName, bool)| {
        whole.then(|| gathering::loop_for(starter, &process.arguments)).flatten()
    };
    let mut loops: Vec<Option<String>> = command_lines.iter().map(each).collect();
    loops.dedup();
    let by_loop = match &loops[..] {
        [Some(other)] => {
            format!("; else let one shell have many names as arguments, with \"$f\" for the name: {other}")
        }
        _ => String::new(),
    };
    format!(
        "Where the line is plain words, let {starter} start the program itself (`{by_words}`): a name with blanks or quotes is then one word, and no part of the line{by_loop}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(functions: &[&str]) -> Vec<Frame> {
        let frame = |name: &&str| Frame {
            function: Some((*name).to_owned()),
            offset: 0,
            module: "/x".to_owned(),
            ..Frame::default()
        };
        functions.iter().map(frame).collect()
    }

    /// The remedy for shells of Node.js and Python's subprocess was the preloaded library, which
    /// does not spare them.
    #[test]
    fn the_c_librarys_shells_are_known() {
        let of = |functions: &[&str]| Starter::of(&stack(functions));
        assert_eq!(of(&["__clone3", "__spawni", "posix_spawn", "do_system", "main"]), Starter::System);
        assert_eq!(of(&["posix_spawn", "_IO_new_proc_open", "_IO_new_popen", "main"]), Starter::Stream);
        // A stripped libc's system(), and a program's own posix_spawn beside it.
        let mut stripped = stack(&["posix_spawn", "", "main"]);
        stripped[1].function = None;
        assert_eq!(Starter::of(&stripped), Starter::System);
        stripped[1].module = "/program".to_owned();
        assert_eq!(Starter::of(&stripped), Starter::Own);
        assert_eq!(of(&["__libc_fork", "Perl_pp_system", "main"]), Starter::Own);
        assert_eq!(of(&["__libc_fork", "uv_spawn"]), Starter::Own);
        assert_eq!(of(&[]), Starter::Own);
    }

    /// Pipelines were promised, and lines of programs that survive a signal to their group.
    #[test]
    fn only_what_run_spares_is_promised() {
        let waits = ByRun { proven: true, ..ByRun::default() };
        let replaced = ByRun { replaces: true, ..waits };
        let caller = |single: &[(ByRun, u64)]| Caller {
            process: ProcessName::default(),
            programs: Vec::new(),
            needless: Vec::new(),
            single: single.to_vec(),
            several: 7,
            none: 0,
            needed: 0,
            unknown: 0,
        };
        let all = caller(&[(waits, 3), (replaced, 2), (ByRun::default(), 1)]);
        assert_eq!(spared(&all, Starter::System, None), Ok(5));
        assert_eq!(spared(&all, Starter::Own, None), Ok(2));
        assert!(spared(&caller(&[]), Starter::System, None).is_err(), "only lists and pipes");
        assert!(spared(&caller(&[(waits, 3)]), Starter::Own, None).is_err());
        let empty = Caller { several: 0, none: 7, ..caller(&[]) };
        let starts_none = Obstacle::Shells("the line starts no program");
        assert_eq!(spared(&empty, Starter::System, None), Err(starts_none));
        assert_eq!(spared(&all, Starter::Stream, Some(&Reach::handling(libc::SIGTERM))), Ok(2));
    }

    /// Regression: a C program's lines at two places had one place, without a share.
    #[test]
    fn each_place_of_compiled_code_has_its_share() {
        let place = |ip| crate::creation::Place { pid: 1, nr: 56, ip, word: 0, image: 0 };
        let frame = |function: &str, module: &str| Frame { offset: 1, ..stack_of(function, module) };
        let lines = |module| {
            let mut group = ShellGroup { count: 900, ..ShellGroup::default() };
            let mut collected = crate::collect::Collected::new();
            for (ip, function, count) in [(1, "first", 300), (2, "second", 600)] {
                group.places.add(place(ip), count);
                let stack = vec![frame("do_system", "/lib/libc.so.6"), frame(function, module)];
                collected.stacks.insert(place(ip), vec![(stack, 1)]);
            }
            group.lines.add("uname -a");
            group.overhead.add(2e6);
            collected.shells.insert((place(1).program(), Fate::OneProgram(ByRun::default())), group);
            let model = crate::model::CostModel::default();
            crate::finding::look(&collected, &HashMap::new(), &model, find).remove(0).lines
        };
        let found: Vec<(String, f64)> =
            lines("/srv/app").into_iter().map(|line| (line.place, (line.share * 3.0).round())).collect();
        assert_eq!(found, [("second (app)".to_owned(), 2.0), ("first (app)".to_owned(), 1.0)]);
        assert_eq!(lines("/usr/bin/python3"), [], "its functions tell no line of a script");
    }

    fn stack_of(function: &str, module: &str) -> Frame {
        let (function, module) = (Some(function.to_owned()), module.to_owned());
        Frame { function, module, ..Frame::default() }
    }

    /// Regression: a line of xargs was to be run by a C library.
    #[test]
    fn a_line_of_xargs_is_advised_in_words_of_a_shell() {
        let said = |line: &[&str], text: &str, whole| {
            let arguments: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
            let process = ProcessName { arguments, ..ProcessName::default() };
            without_text(line[0], text, &[(&process, whole)])
        };
        let zero = ["xargs", "-0", "-I{}", "sh", "-c", "cat {} >/dev/null"];
        let text = said(&zero, "cat a >/dev/null", true);
        assert!(text.contains("`xargs ... cat ...`") && text.contains("`xargs -0 -r sh -c 's=0; "), "{text}");
        assert!(said(&zero, "$x a", true).contains("`xargs ... PROGRAM ...`"));
        let find = |behind: &[&str], whole| {
            let line = [&["find", "d", "-exec", "sh", "-c", "cp {} bk", ";"], behind].concat();
            said(&line, "/bin/cp a bk", whole)
        };
        let text = find(&[], true);
        assert!(text.contains("`-exec cp ... {} \\;`"), "{text}");
        let needs = "done; :' _ {} +`, if nothing that find looks at later depends on it";
        assert!(text.ends_with(needs), "{text}");
        // With the loop, -delete came before the copies.
        for text in [
            find(&["-delete"], true),
            find(&["-print"], true),
            find(&["-exec", "sh", "-c", "rm {}", ";"], true),
            find(&[], false),
            said(&["find", "d", "-exec", "nice", "sh", "-c", "cp {} bk", ";"], "cp a bk", true),
            // Of `xargs -0` with -d the first file alone had its turn; an empty line is no name.
            said(&["xargs", "-I{}", "sh", "-c", "cat {}"], "cat a", true),
            said(&["xargs", "-0", "-P4", "-I{}", "sh", "-c", "cat {}"], "cat a", true),
        ] {
            assert!(text.starts_with("Where") && text.ends_with("no part of the line"), "{text}");
        }
    }

    /// Regression: `true` and `exit 0` were to be started by subprocess.Popen.
    #[test]
    fn a_line_without_a_program_is_not_to_be_started_in_another_way() {
        let place = crate::creation::Place { pid: 1, nr: 56, ip: 1, word: 0, image: 0 };
        let mut group = ShellGroup { count: 1000, ..ShellGroup::default() };
        group.lines.add("exit 0");
        group.overhead.add(2e6);
        let mut collected = crate::collect::Collected::new();
        collected.shells.insert((place.program(), Fate::NoProgram), group);
        let model = crate::model::CostModel::default();
        let found = crate::finding::look(&collected, &HashMap::new(), &model, find).remove(0);
        assert_eq!(found.explanation, advice::WITHOUT_PROGRAM);
        assert!(found.reason.contains("no program"), "{}", found.reason);
    }

    /// Regression: the line of a `spawn('true')`, which the place has most often, was said to start
    /// the shells.
    #[test]
    fn the_place_is_where_shells_were_started() {
        let frame = |function: &str, line| Frame {
            function: Some(function.to_owned()),
            line,
            module: "server".to_owned(),
            ..Frame::default()
        };
        let place = crate::creation::Place { pid: 1, nr: 56, ip: 1, word: 0, image: 0 };
        let stack = |read: &[Frame]| {
            let mut group = ShellGroup { count: 1000, ..ShellGroup::default() };
            group.places.add(place, 1000);
            group.lines.add("uname -a");
            group.overhead.add(2e6);
            if !read.is_empty() {
                group.read.add(read, 1);
            }
            let mut collected = crate::collect::Collected::new();
            collected.shells.insert((place.program(), Fate::OneProgram(ByRun::default())), group);
            collected.stacks.insert(place, vec![(vec![frame("uv_spawn", None)], 1)]);
            collected.lines_at.entry(place).or_default().add(&[frame("spawnOne", Some(13))], 99);
            let model = crate::model::CostModel::default();
            crate::finding::look(&collected, &HashMap::new(), &model, find).remove(0).stack
        };
        assert_eq!(stack(&[frame("gitLog", Some(10))]), [frame("gitLog", Some(10)), frame("uv_spawn", None)]);
        assert_eq!(stack(&[]), [frame("uv_spawn", None)], "none was read at a shell");
    }
}
