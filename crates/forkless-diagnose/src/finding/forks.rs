//! Findings 1 and 2: full forks with and without an exec.

use std::collections::HashMap;

use super::{
    Context, Cost, Evidence, Finding, FindingKind, ForkTimes, advice, evidence, interval, label,
    lines_evidence, living, mib, place_in, several, site, time,
};
use crate::collect::{Group, LineCounts, LineShare, Outcome};
use crate::creation::{CallerMemory, Place, ProgramKey};
use crate::estimate::Estimate;
use crate::file_name::file_name;
use crate::forecast::HUGE_ENOUGH;
use crate::mappings::MappingCount;
use crate::program::ProcessName;
use crate::reach::{self, Obstacle};
use crate::remedy::{Remedy, Treatment};
use crate::stack::Frame;

/// Groups of one process name, outcome and stack: a prefork server's workers have one place.
struct Merged {
    process: ProcessName,
    programs: Vec<ProgramKey>,
    stack: Vec<Frame>,
    group: Group,
    /// The places in the user's code, by the stacks that were sampled.
    sampled: LineCounts,
    /// How many of its creations had no stack.
    unplaced: u64,
    /// Its stack is that of other creations of the same program.
    is_borrowed: bool,
    /// Its stacks were sampled at forks of another outcome, too, and come from several places.
    is_mixed: bool,
}

impl Merged {
    /// The user's lines, if there are several.
    fn lines(&self) -> Vec<LineShare> {
        several(if self.is_read() { &self.group.lines } else { &self.sampled })
    }

    fn is_read(&self) -> bool {
        !self.group.lines.stacks().is_empty()
    }

    /// The same as a fact, or why there is no line.
    fn lines_evidence(&self, context: &Context<'_>) -> Option<Evidence> {
        let by = if self.is_read() { "readings" } else { "samples" };
        let unread = || unread_evidence(context, &self.programs).filter(|_| !self.is_read());
        lines_evidence(&self.lines(), by).or_else(unread)
    }

    fn unplaced_evidence(&self) -> Option<Evidence> {
        if self.is_borrowed {
            return Some(evidence(
                &format!("{ITS_PLACE} was not seen"),
                "it is that of other forks of this program, which start another program",
            ));
        }
        // The lines were read at these forks.
        if self.is_mixed && !self.is_read() {
            return Some(evidence(
                &format!("{ITS_PLACE} is not told from that of other forks"),
                "they came from one address of the C library, and the samples are of all of them",
            ));
        }
        let (unplaced, all) = (self.unplaced, self.group.count);
        (unplaced > 0)
            .then(|| evidence("of them, at a place that was not seen", format!("{unplaced} of {all}")))
    }
}

/// The creations of a place for which no stack stands: too many came at once, or their process was
/// gone. The draws are random, so that a few are none.
fn not_drawn(context: &Context<'_>, place: &Place, of_stacks: u64) -> u64 {
    let outcomes = [Outcome::ForkThenExec, Outcome::ForkAlone, Outcome::Shared, Outcome::Speculated];
    let all: u64 = outcomes
        .iter()
        .filter_map(|outcome| context.groups.get(&(*place, *outcome)))
        .map(|group| group.count)
        .sum();
    let missing = all.saturating_sub(of_stacks);
    if of_stacks > 0 && missing * 4 > all { missing } else { 0 }
}

/// Whether samples of a place may be of forks with another outcome. Until the kernel side knows
/// where the C library has its return address, one of its places is all that is known.
fn is_mixed(context: &Context<'_>, place: &Place, outcome: Outcome) -> bool {
    let others = [Outcome::ForkThenExec, Outcome::ForkAlone].into_iter().filter(|other| *other != outcome);
    let stacks = context.collected.stacks.get(place).map_or(&[][..], Vec::as_slice);
    let is_another = |(stack, _): &(Vec<Frame>, u64)| place_in(stack) != place_in(&stacks[0].0);
    stacks.iter().any(is_another)
        && others.into_iter().any(|other| context.groups.contains_key(&(*place, other)))
}

/// How the evidence begins that a place is, or may be, that of other forks.
pub(super) const ITS_PLACE: &str = "its place";

/// How the evidence about a script's line begins.
pub(super) const LINE_OF: &str = "the line of its";

/// Why the script of one of these processes has no line.
pub(super) fn unread_evidence(context: &Context<'_>, programs: &[ProgramKey]) -> Option<Evidence> {
    let unread = programs.iter().find_map(|program| context.collected.lines.unread(program.pid))?;
    let what = format!("{LINE_OF} {} code", unread.language);
    Some(evidence(&what, format!("not known after {} readings: {}", unread.count, unread.why)))
}

/// Name, cgroup and stack; without a stack, the program that is started.
type Key = (String, Option<String>, Vec<Frame>, Option<String>);

/// The program that most children of a group became.
fn started(group: &Group) -> Option<String> {
    group.programs.top(1).pop().map(|(path, _)| path)
}

/// Places of programs of one name with one stack of native code are one finding, whatever lines of
/// a script were read at each: the lines of all are added up. Workers of a server differ in the
/// line that was read most often, and of a program that renames itself one name may be unread.
fn merge(context: &Context<'_>, outcome: Outcome) -> Vec<Merged> {
    let mut merged: HashMap<Key, Merged> = HashMap::new();
    let of_outcome = context.groups.iter().filter(|((_, found), _)| *found == outcome);
    let mut places: Vec<(&Place, &Group)> = of_outcome.map(|((place, _), group)| (place, group)).collect();
    places.sort_by_key(|(place, _)| *place);
    for (place, group) in places {
        let process = context.name(place.program(), &group.comm);
        // If samples show several stacks for one place, it is filed under the most frequent. The
        // samples are too few to split counts by.
        let native = context.stack(place);
        let known = if native.is_empty() { group.lines.most().to_vec() } else { site(&native) };
        let starts = if known.is_empty() { started(group) } else { None };
        let key = (label(&process), process.cgroup.clone(), known, starts);
        let entry = merged.entry(key).or_insert_with(|| Merged {
            process,
            programs: Vec::new(),
            stack: native,
            group: Group::default(),
            sampled: LineCounts::default(),
            unplaced: 0,
            is_borrowed: false,
            is_mixed: false,
        });
        entry.is_mixed |= is_mixed(context, place, outcome);
        if !entry.programs.contains(&place.program()) {
            entry.programs.push(place.program());
        }
        let mut of_stacks = 0;
        for (frames, count) in context.collected.stacks.get(place).into_iter().flatten() {
            entry.sampled.add(place_in(frames).map_or(&[], std::slice::from_ref), *count);
            of_stacks += count;
        }
        entry.sampled.add(&[], not_drawn(context, place, of_stacks));
        entry.group.merge(group);
    }
    for found in merged.values_mut() {
        found.stack.splice(0..0, found.group.lines.most().iter().cloned());
    }
    place_the_stackless(&mut merged);
    merged.into_values().collect()
}

/// Creations without a stack (their process was gone) join the creations of the same program that
/// started the same. Before, a script's subshells were a finding of their own, without a place.
fn place_the_stackless(merged: &mut HashMap<Key, Merged>) {
    let without: Vec<Key> = merged.keys().filter(|(_, _, stack, _)| stack.is_empty()).cloned().collect();
    for key in without {
        let known = merged
            .iter()
            .filter(|(other, found)| {
                (&other.0, &other.1) == (&key.0, &key.1)
                    && !other.2.is_empty()
                    && started(&found.group) == key.3
            })
            .max_by_key(|(other, found)| (found.group.count, other.2.len()))
            .map(|(other, _)| other.clone());
        if let Some(known) = known
            && let Some(gone) = merged.remove(&key)
            && let Some(place) = merged.get_mut(&known)
        {
            place.unplaced += gone.group.count;
            place.programs.extend(gone.programs);
            place.group.merge(&gone.group);
        }
    }
    borrow_places(merged);
}

/// What is left without a stack gets that of the program's most frequent other place.
fn borrow_places(merged: &mut HashMap<Key, Merged>) {
    let mut known: HashMap<(String, Option<String>), (u64, Vec<Frame>)> = HashMap::new();
    for ((name, cgroup, ..), found) in merged.iter().filter(|((_, _, stack, _), _)| !stack.is_empty()) {
        let most = known.entry((name.clone(), cgroup.clone())).or_default();
        if (found.group.count, found.stack.len()) > (most.0, most.1.len()) {
            *most = (found.group.count, found.stack.clone());
        }
    }
    for ((name, cgroup, ..), found) in merged.iter_mut().filter(|((_, _, stack, _), _)| stack.is_empty()) {
        if let Some((_, stack)) = known.get(&(name.clone(), cgroup.clone())) {
            found.stack.clone_from(stack);
            found.is_borrowed = true;
        }
    }
}

pub(super) fn find(context: &Context<'_>) -> Vec<Finding> {
    let then_exec =
        merge(context, Outcome::ForkThenExec).into_iter().filter_map(|m| fork_then_exec(context, &m));
    let alone = merge(context, Outcome::ForkAlone).into_iter().filter_map(|merged| {
        let pages = copied(context, &merged);
        // By the prices: of measured times nobody can tell which part is whose.
        let of_entries = context.model.fork_per_entry.mid * pages.entries;
        if pages.mappings.all > MANY_MAPPINGS && pages.of_mappings.mid > of_entries {
            // Its pages alone may be worth a word.
            of_many_mappings(context, &merged, &pages).or_else(|| fork_alone(context, &merged))
        } else {
            fork_alone(context, &merged)
        }
    });
    then_exec.chain(alone).collect()
}

/// What is copied at each fork, as far as the page kinds are known.
struct Copied {
    /// Page-table entries.
    entries: f64,
    mappings: MappingCount,
    /// What the mappings cost.
    of_mappings: Estimate,
    huge_share: Option<f64>,
}

fn copied(context: &Context<'_>, merged: &Merged) -> Copied {
    let history = context.pages(&merged.programs);
    let huge_share = history.map(|history| history.last.huge_share());
    let huge_bytes = merged.group.anon.mean * huge_share.unwrap_or(0.0);
    let mappings = context.mappings(&merged.programs);
    Copied {
        mappings,
        of_mappings: context.model.mappings(mappings),
        entries: (merged.group.anon.mean - huge_bytes + merged.group.swap.mean).max(0.0) / 4096.0,
        huge_share,
    }
}

/// Faults (copied, reused) that these forks caused. The kernel side counts a process's faults since
/// its first fork, without telling which fork caused them. So each fork of the process gets the
/// same share.
fn faults(context: &Context<'_>, merged: &Merged) -> (u64, u64) {
    let (copied, reused) = super::processes(&merged.programs)
        .iter()
        .filter_map(|pid| context.collected.faults.get(pid))
        .fold((0, 0), |sum, faults| (sum.0 + faults.0, sum.1 + faults.1));
    let part =
        |faults: u64| (faults as f64 * merged.group.count as f64 / forks_of(context, merged) as f64) as u64;
    (part(copied), part(reused))
}

/// Whether the faults of these processes were counted. The lower tiers do not count them.
fn counts_faults(context: &Context<'_>, merged: &Merged) -> bool {
    merged.programs.iter().any(|program| context.collected.faults.contains_key(&program.pid))
}

/// The number of faults, if they were counted.
fn faults_evidence(context: &Context<'_>, merged: &Merged) -> Option<Evidence> {
    let (copied, reused) = faults(context, merged);
    counts_faults(context, merged).then(|| {
        evidence(
            "write-protect faults of the caller afterwards",
            format!("{copied} copied a page, {reused} reused it"),
        )
    })
}

/// The number of all full forks of these processes, of other places and outcomes too.
fn forks_of(context: &Context<'_>, merged: &Merged) -> u64 {
    let processes = super::processes(&merged.programs);
    let of_these = context
        .groups
        .iter()
        .filter(|((place, outcome), _)| *outcome != Outcome::Shared && processes.contains(&place.pid))
        .map(|(_, group)| group.count)
        .sum::<u64>();
    of_these.max(1)
}

/// Fewer mappings are not worth a word: they cost half a millisecond.
const MANY_MAPPINGS: u64 = 1000;

fn memory_evidence(group: &Group, pages: &Copied) -> Vec<Evidence> {
    let mut list = vec![
        evidence("resident memory of the caller", mib(group.resident.mean)),
        evidence("of it anonymous", mib(group.anon.mean)),
        evidence("page tables of the caller", mib(group.page_tables.mean)),
        evidence("page-table entries copied each time (estimate)", format!("{:.0}", pages.entries)),
        evidence(
            "anonymous memory in huge pages",
            pages.huge_share.map_or_else(
                || "not looked at (small, or the process was gone)".to_owned(),
                |share| format!("{:.0} %", share * 100.0),
            ),
        ),
    ];
    if group.hugetlb.mean > 0.0 {
        list.push(evidence("hugetlb memory", mib(group.hugetlb.mean)));
    }
    if pages.mappings.all > MANY_MAPPINGS {
        let MappingCount { all, written } = pages.mappings;
        list.push(evidence("mappings copied each time", format!("{all}, {written} of them written to")));
        list.push(evidence("their part of the fork (predicted)", interval(pages.of_mappings)));
    }
    list
}

/// The cost of forks to their caller.
struct Call {
    /// Cost of one fork.
    each: Estimate,
    /// Cost of all forks.
    sum_ns: f64,
    how: &'static str,
}

/// Takes the measured times. If only the copy was timed, it adds the calibrated rest of the call.
/// If nothing was timed, it takes the CPU samples, else a prediction from the memory.
fn call_cost(context: &Context<'_>, merged: &Merged, pages: &Copied) -> Call {
    let group = &merged.group;
    let timed = group.caller.count();
    if timed > 0 {
        let rest = context.model.create.times(group.copies_timed as f64 / timed as f64);
        return Call {
            each: group.caller.median().plus(rest),
            sum_ns: (group.caller.mean() + rest.mid) * group.count as f64,
            how: if group.copies_timed > 0 {
                "fork() each time, in the caller (its copy timed, the rest as calibrated)"
            } else {
                "fork() each time, in the caller"
            },
        };
    }
    let (each, how) = match sampled_cost(context, merged) {
        Some(sampled) => (sampled, "fork() each time, in the caller (CPU samples in kernel_clone)"),
        None => (
            fork_of_pages(context, group, pages).plus(pages.of_mappings),
            "fork() each time, in the caller (predicted)",
        ),
    };
    Call { each, sum_ns: each.mid * group.count as f64, how }
}

/// The predicted cost of a fork of these pages, without that of many mappings.
fn fork_of_pages(context: &Context<'_>, group: &Group, pages: &Copied) -> Estimate {
    let huge = (group.anon.mean / 4096.0 - pages.entries).max(0.0) / 512.0;
    context.model.fork(pages.entries as u64, huge as u64).plus(sparse_tables(context, group, huge))
}

/// The cost of the caller's page tables that map next to nothing.
pub(super) fn sparse_tables(context: &Context<'_>, group: &Group, huge: f64) -> Estimate {
    let memory = CallerMemory {
        anon: group.resident.mean as u64,
        swap: group.swap.mean as u64,
        page_tables: group.page_tables.mean as u64,
        ..CallerMemory::default()
    };
    context.model.tables(crate::model::sparse_tables(&memory, huge as u64))
}

/// The time of one fork, as far as it was measured.
fn fork_times(call: Estimate, group: &Group, execs: bool) -> ForkTimes {
    ForkTimes {
        call,
        until_exec: (execs && group.child.count() > 0).then(|| group.child.median()),
        exec: (group.exec.count() > 0).then(|| group.exec.median()),
    }
}

/// The cost of one fork from the CPU samples below `kernel_clone`. `None` if there are too few: the
/// interval (two standard deviations of the count) would be wider than half the figure.
fn sampled_cost(context: &Context<'_>, merged: &Merged) -> Option<Estimate> {
    const ENOUGH: u64 = 16;
    let samples: u64 = super::processes(&merged.programs)
        .iter()
        .filter_map(|pid| context.collected.samples.get(pid))
        .map(|s| s.creating)
        .sum();
    if samples < ENOUGH {
        return None;
    }
    // Samples do not tell their creation. Creations that share memory cost next to nothing and are
    // left out.
    let each = crate::perf::CLOCK_PERIOD as f64 / forks_of(context, merged) as f64;
    let margin = 2.0 * (samples as f64).sqrt();
    Some(
        Estimate { low: samples as f64 - margin, mid: samples as f64, high: samples as f64 + margin }
            .times(each),
    )
}

/// Whether the saving of each fork is large enough for a finding: as a share of a CPU and in all,
/// or as a pause of the caller. Of the measured time only the part counts that the memory explains,
/// at the upper ends of the prices. A margin allows for caches and for a model measured on an idle
/// machine. The rest is preemption: a shell that lost its CPU during a cheap fork is no finding.
fn is_worth_a_word(
    context: &Context<'_>,
    group: &Group,
    pages: &Copied,
    each: f64,
    in_caller: f64,
    fault_each: f64,
) -> bool {
    const MARGIN: f64 = 4.0;
    let model = context.model;
    let huge_pages = ((group.anon.mean / 4096.0 - pages.entries).max(0.0) * 4096.0 + group.hugetlb.mean)
        / f64::from(2 << 20);
    let copy = model.fork_per_entry.high * pages.entries
        + model.fork_per_huge_page.unwrap_or_default().high * huge_pages
        + sparse_tables(context, group, huge_pages).high
        + pages.of_mappings.high;
    let teardown = model.teardown_per_entry.high * pages.entries;
    let explained_in_caller = MARGIN * copy + fault_each;
    let each = each.min(explained_in_caller + MARGIN * teardown);
    let in_caller = in_caller.min(explained_in_caller);
    let total = each * group.count as f64;
    context.share(total) >= context.thresholds.share && total >= context.thresholds.total_ns
        || in_caller >= context.thresholds.pause_ns
}

/// The call site as the preloaded library tells it: the return address into the program.
fn library_site(stack: &[Frame]) -> Option<&Frame> {
    stack.iter().find(|frame| !frame.is_of_c_library() && !frame.is_of_script())
}

/// Children of one call site of the library's.
#[derive(Clone, Copy, Default)]
struct Children {
    execute: u64,
    /// Those whose exec fails.
    fail: u64,
    /// Those that create threads or processes before their exec.
    make: u64,
    /// Those that work.
    work: u64,
}

impl Children {
    fn add(&mut self, outcome: Outcome, group: &Group) {
        match outcome {
            Outcome::ForkThenExec => {
                self.execute += group.count - group.exec_failed - group.made;
                self.fail += group.exec_failed;
                self.make += group.made;
            }
            Outcome::ForkAlone => self.work += group.count,
            Outcome::Shared | Outcome::Speculated => {}
        }
    }

    /// Those for a program.
    fn for_programs(&self) -> u64 {
        self.execute + self.fail + self.make
    }

    /// The share of the forks for a program that commit under the library. A child whose exec fails
    /// is undone, and its site does not pause (`Said::Tries` of forkless-speculate). A child that
    /// makes a thread is undone like one that works.
    fn speculated(&self) -> f64 {
        let speculated = reach::speculated_share(self.execute + self.fail, self.work + self.make);
        speculated * self.execute as f64 / self.for_programs().max(1) as f64
    }
}

/// The program's children of the library's call site of these forks.
fn siblings(context: &Context<'_>, merged: &Merged) -> Children {
    let mut children = Children::default();
    if let Some(site) = library_site(&merged.stack) {
        // Forks from before the program had so much memory are none of the library's.
        let others = context.groups.iter().filter(|((place, _), group)| {
            merged.programs.contains(&place.program())
                && group.anon.mean >= reach::speculated_from() as f64
                && library_site(&context.stack(place)) == Some(site)
        });
        others.for_each(|((_, outcome), group)| children.add(*outcome, group));
    }
    if children.for_programs() < merged.group.count {
        children = Children { work: children.work, ..Children::default() };
        children.add(Outcome::ForkThenExec, &merged.group);
    }
    children
}

/// The share of these forks that the preloaded library speculates, or why it does none any good.
fn speculated(context: &Context<'_>, merged: &Merged, teardown: Estimate) -> Result<f64, Obstacle> {
    /// From a smaller share on it is no remedy.
    const LEAST: f64 = 0.5;
    let group = &merged.group;
    context.everywhere.in_forks(context.reach(&merged.programs), group.anon.mean as u64)?;
    // A speculation has no copy that the exec takes down.
    let is_answered = group.closing_ns > 0 && super::calls::are_closes_answered(context, &merged.programs);
    let quickest = if is_answered { group.least_with_answers } else { group.least_before_exec };
    let quickest = quickest.map(|ns| ns as f64);
    let quickest = quickest.or_else(|| group.child.least().map(|ns| ns - teardown.high));
    reach::too_slow(quickest, group.child.count())?;
    let children = siblings(context, merged);
    let share = children.speculated();
    if share < LEAST {
        let Children { execute, fail, make, work } = children;
        if (Children { execute: execute + make, make: 0, ..children }).speculated() >= LEAST {
            return Err(Obstacle::Acts(
                "its children create threads or processes before they execute a program",
            ));
        }
        return Err(Obstacle::SeldomExecs(execute + make, execute + fail + make + work));
    }
    Ok(share)
}

/// What is saved of a fork if only a share of them is speculated: at least nothing.
fn part(saving: Estimate, share: f64) -> Estimate {
    if share >= 1.0 { saving } else { Estimate { low: 0.0, ..saving.times(share) } }
}

/// What a fork that leads to an exec costs.
struct Costs {
    pages: Copied,
    call: Call,
    fault_each: Estimate,
    teardown: Estimate,
    /// To its caller.
    pause: Estimate,
    /// To caller and child.
    whole: Estimate,
}

fn costs(context: &Context<'_>, merged: &Merged) -> Costs {
    let (group, model) = (&merged.group, context.model);
    let pages = copied(context, merged);
    let (faults_copied, faults_reused) = faults(context, merged);
    let fault_each = model
        .fault_copied
        .times(faults_copied as f64 / group.count as f64)
        .plus(model.fault_reused.times(faults_reused as f64 / group.count as f64));
    let teardown = model.teardown_per_entry.times(pages.entries);
    let call = call_cost(context, merged, &pages);
    // The child's exec tears the copy down. If the exec was timed, its whole time is added, since
    // the price of a spawn contains an exec too. Otherwise the price of tearing down so many
    // entries is added.
    let pause = call.each.plus(fault_each);
    let whole = pause.plus(if group.exec.count() > 0 { group.exec.median() } else { teardown });
    Costs { pages, call, fault_each, teardown, pause, whole }
}

/// What the preloaded library saves of a fork.
struct UnderRun {
    /// The share of the forks that it speculates.
    share: f64,
    in_all: Estimate,
    in_caller: Estimate,
}

/// What the pages of a fork cost at most, in all and in the caller, if much of its time may be that
/// of its mappings. Of what was measured beyond both predictions nobody can tell which part is
/// whose.
fn most_of_pages(context: &Context<'_>, merged: &Merged, costs: &Costs) -> [f64; 2] {
    if costs.pages.mappings.all <= MANY_MAPPINGS {
        return [f64::INFINITY; 2];
    }
    let in_caller = fork_of_pages(context, &merged.group, &costs.pages).high + costs.fault_each.high;
    // An exec that was timed takes the child's mappings down, too. A spawn's does not.
    let exec = if merged.group.exec.count() > 0 { context.model.spawn.mid } else { 0.0 };
    [in_caller + costs.teardown.high + exec, in_caller]
}

fn under_run(context: &Context<'_>, merged: &Merged, costs: &Costs) -> Result<UnderRun, Obstacle> {
    let share = speculated(context, merged, costs.teardown)?;
    // Each start still costs a speculation.
    let price = context.speculation(&merged.programs);
    let anon = merged.group.anon.mean as u64;
    let lacked = 1.0 - context.reach(&merged.programs).map_or(0.0, |reach| reach.left(anon));
    let [most_in_all, most_in_caller] = most_of_pages(context, merged, costs);
    // A child that lacks a mapping's memory costs its mapping all the same.
    let saving = |cost: Estimate, most, price| {
        let of_pages = cost.minus(costs.pages.of_mappings).at_least_zero().at_most(most);
        part(of_pages.times(lacked).minus(price).at_least_zero(), share)
    };
    let in_all = saving(costs.whole, most_in_all, price.in_all);
    if in_all.mid <= 0.0 {
        return Err(Obstacle::Cheap);
    }
    Ok(UnderRun { share, in_all, in_caller: saving(costs.pause, most_in_caller, price.in_caller) })
}

/// What the preloaded library saves of each fork at these places, as the forks' own finding says
/// it: with the child's exec, and in the caller alone. `None` if it does nothing for them.
pub(super) fn saved_by_run<'p>(
    context: &Context<'_>,
    process: &ProcessName,
    stack: &[Frame],
    places: impl Iterator<Item = &'p Place>,
) -> Option<[Estimate; 2]> {
    let mut merged = Merged {
        process: process.clone(),
        programs: Vec::new(),
        stack: stack.to_vec(),
        group: Group::default(),
        sampled: LineCounts::default(),
        unplaced: 0,
        is_borrowed: false,
        is_mixed: false,
    };
    for place in places {
        let Some(group) = context.groups.get(&(*place, Outcome::ForkThenExec)) else { continue };
        if !merged.programs.contains(&place.program()) {
            merged.programs.push(place.program());
        }
        merged.group.merge(group);
    }
    if merged.group.count == 0 {
        return None;
    }
    let saved = under_run(context, &merged, &costs(context, &merged)).ok()?;
    Some([saved.in_all, saved.in_caller])
}

/// The facts about forks that lead to the exec of these programs.
fn start_evidence(
    context: &Context<'_>,
    merged: &Merged,
    costs: &Costs,
    programs: &[(String, u64)],
    speculated: Result<&UnderRun, &Obstacle>,
) -> Vec<Evidence> {
    let group = &merged.group;
    let mut list = vec![evidence(costs.call.how, interval(costs.call.each))];
    list.extend(memory_evidence(group, &costs.pages));
    if group.child.count() > 0 {
        let median = interval(group.child.median());
        list.push(evidence("from the copy to the new program, in the child", median));
    }
    if group.closing_ns > 0 && super::calls::are_closes_answered(context, &merged.programs) {
        let each = group.closing_ns as f64 / group.count as f64;
        list.push(evidence("of it a loop of closes, which the preloaded library answers", time(each)));
    }
    list.push(if group.exec.count() > 0 {
        evidence("of it the exec, which takes the copy down", interval(group.exec.median()))
    } else {
        evidence("of it taking down the copy (predicted)", interval(costs.teardown))
    });
    list.extend(faults_evidence(context, merged));
    let programs: Vec<String> = programs.iter().map(|(path, times)| format!("{path} ({times})")).collect();
    list.push(evidence("programs executed", programs.join(", ")));
    list.push(evidence("a spawn here costs its caller (measured)", interval(context.model.spawn)));
    list.push(evidence(
        "under the preloaded library",
        match speculated {
            Ok(saved) => format!(
                "{:.0} % commit, {} each in the caller (predicted)",
                saved.share * 100.0,
                time(context.speculation(&merged.programs).in_caller.mid)
            ),
            Err(obstacle) => format!("left as they are: {obstacle}"),
        },
    ));
    list.extend(merged.lines_evidence(context));
    list.extend(merged.unplaced_evidence());
    list
}

fn fork_then_exec(context: &Context<'_>, merged: &Merged) -> Option<Finding> {
    let group = &merged.group;
    let model = context.model;
    let count = group.count;
    let costs = costs(context, merged);
    let Costs { pages, fault_each, teardown, pause, whole, .. } = &costs;
    let Call { each: call, sum_ns: caller_ns, .. } = costs.call;
    // With the best remedy, each start still costs a spawn.
    let by_spawn = [*whole, *pause].map(|cost| cost.minus(model.spawn).at_least_zero());
    if !is_worth_a_word(context, group, pages, by_spawn[0].mid, by_spawn[1].mid, fault_each.mid) {
        return None;
    }
    let speculated = under_run(context, merged, &costs);
    let [saving_each, in_caller] =
        speculated.as_ref().map_or(by_spawn, |saved| [saved.in_all, saved.in_caller]);
    // Nobody can make a shell or xargs create processes in another way. Where they start many, that
    // is a storm.
    if matches!(speculated, Err(Obstacle::Small(_))) && super::storms::is_starter(&merged.process) {
        return None;
    }
    let name = label(&merged.process);
    let programs = group.programs.top(3);
    let list = start_evidence(context, merged, &costs, &programs, speculated.as_ref());
    let child_ns = if group.exec.count() > 0 { group.exec.mean() } else { teardown.mid } * count as f64;
    let faults_ns = fault_each.mid * count as f64;
    Some(Finding {
        title: format!(
            "{name} forks {} to start {}: {} each, {:.1} a second",
            mib(group.resident.mean),
            started_programs(&programs),
            time(call.mid),
            context.per_second(count),
        ),
        stack: merged.stack.clone(),
        lines: merged.lines(),
        cost: Cost {
            caller_ns: Some(caller_ns),
            child_ns: Some(child_ns),
            faults_ns: counts_faults(context, merged).then_some(faults_ns),
            cpu_share: context.share(caller_ns + child_ns + faults_ns),
            ..Cost::default()
        },
        fork_times: Some(fork_times(call, group, true)),
        evidence: list,
        reason: format!(
            "fork() copies {} that the exec throws away, and write-protects every page of the caller.",
            copied_things(pages)
        ),
        explanation: advice::for_starts(
            &merged.process,
            &merged.stack,
            context.reach(&merged.programs).map(|reach| reach.root),
        ),
        remedy: if speculated.is_ok() {
            Remedy::Run {
                treatment: Treatment::SpeculateForks,
                program: merged.process.exe.as_deref().map(|exe| context.program(&merged.programs, exe)),
            }
        } else {
            Remedy::Change
        },
        obstacle: speculated.err(),
        saving_in_caller_ns: Some(in_caller),
        // `is_worth_a_word` looks at the sum.
        counts_at_any_cost: true,
        ..context.finding(
            FindingKind::FullForkThenExec,
            &merged.process,
            &merged.programs,
            count,
            saving_each,
        )
    })
}

/// The programs of a title, the most frequent first.
fn started_programs(programs: &[(String, u64)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (path, _) in programs {
        if !names.contains(&file_name(path)) {
            names.push(file_name(path));
        }
    }
    match names[..] {
        [] => "a program".to_owned(),
        [one] => one.to_owned(),
        [one, other] => format!("{one} and {other}"),
        [one, other, ..] => format!("{one}, {other} and others"),
    }
}

/// What a fork copies, in words.
fn copied_things(pages: &Copied) -> String {
    let entries = format!("about {:.0} page-table entries", pages.entries);
    match pages.mappings.all {
        all if all > MANY_MAPPINGS => format!("{all} mappings and {entries}"),
        _ => entries,
    }
}

/// The facts about forks whose children go on with the memory.
fn worker_evidence(
    context: &Context<'_>,
    merged: &Merged,
    pages: &Copied,
    call: &Call,
    with_huge_pages: Estimate,
) -> Vec<Evidence> {
    let group = &merged.group;
    let mut list = vec![evidence(call.how, interval(call.each))];
    list.extend(memory_evidence(group, pages));
    if let Some(history) = context.pages(&merged.programs)
        && history.last.anon_huge < history.first.anon_huge
    {
        list.push(evidence(
            "huge pages lost during the watch",
            format!(
                "{} of {}",
                mib((history.first.anon_huge - history.last.anon_huge) as f64),
                mib(history.first.anon_huge as f64)
            ),
        ));
    }
    list.extend(faults_evidence(context, merged));
    list.push(evidence(
        "the children live",
        format!("{} on average, {} still run", time(group.child.mean()), group.still_running),
    ));
    list.push(evidence("the same fork with huge pages (predicted)", interval(with_huge_pages)));
    list.extend(merged.lines_evidence(context));
    list.extend(merged.unplaced_evidence());
    let looked_at = context.pages(&merged.programs);
    if looked_at.is_none_or(|history| history.mergeable.is_none()) {
        list.push(evidence("memory that cannot be in huge pages", "not looked at: none is assumed"));
    }
    if looked_at.is_some_and(|history| history.refuses_huge) {
        list.push(evidence(
            "the program has turned transparent huge pages off for itself",
            "prctl(PR_SET_THP_DISABLE); its own setting decides (redis: disable-thp no)",
        ));
    }
    list
}

fn fork_alone(context: &Context<'_>, merged: &Merged) -> Option<Finding> {
    let group = &merged.group;
    let model = context.model;
    let count = group.count;
    let pages = copied(context, merged);
    let cost = call_cost(context, merged, &pages);
    let Call { each: call, sum_ns: caller_ns, .. } = cost;
    // No huge page could be had for a try.
    model.fork_per_huge_page?;
    let history = context.pages(&merged.programs);
    let mergeable = history.and_then(|history| history.mergeable);
    // With the remedy, the memory that can be merged is in huge pages.
    let with_huge_pages = match mergeable {
        Some(mergeable) => mergeable.fork(group.anon.mean, model)?,
        None => model.fork(0, (group.anon.mean / f64::from(2 << 20)) as u64),
    };
    let with_huge_pages = with_huge_pages.plus(pages.of_mappings);
    let mut saving_each = call.minus(with_huge_pages).at_least_zero();
    if mergeable.is_none() {
        // Perhaps nothing of its memory can be merged.
        saving_each.low = 0.0;
    }
    if saving_each.mid <= 0.0
        || pages.huge_share.is_some_and(|share| share >= HUGE_ENOUGH)
        || !is_worth_a_word(context, group, &pages, saving_each.mid, saving_each.mid, 0.0)
    {
        return None;
    }
    let (faults_copied, faults_reused) = faults(context, merged);
    let name = label(&merged.process);
    let list = worker_evidence(context, merged, &pages, &cost, with_huge_pages);
    let faults_ns =
        model.fault_copied.mid * faults_copied as f64 + model.fault_reused.mid * faults_reused as f64;
    // What a watched command left behind is repaired by running the command again.
    let (remedy, obstacle) = match (living(&merged.programs), &merged.process.exe) {
        // Nobody else can turn them on again.
        _ if history.is_some_and(|history| history.refuses_huge) => {
            (Remedy::Change, Some(Obstacle::RefusesHugePages))
        }
        (Some(pid), _) if context.command.is_none() => (Remedy::Repair { pid }, None),
        (_, Some(exe)) => context.run(Treatment::UseHugePages, &merged.programs, Some(exe)),
        (_, None) => (Remedy::Change, None),
    };
    Some(Finding {
        title: format!(
            "{name} forks {} in small pages and goes on: {} each",
            mib(group.resident.mean),
            time(call.mid)
        ),
        stack: merged.stack.clone(),
        lines: merged.lines(),
        cost: Cost {
            caller_ns: Some(caller_ns),
            child_ns: None,
            faults_ns: counts_faults(context, merged).then_some(faults_ns),
            cpu_share: context.share(caller_ns + faults_ns),
            ..Cost::default()
        },
        fork_times: Some(fork_times(call, group, false)),
        evidence: list,
        reason: format!(
            "The child is meant to have the memory, but in 4 KiB pages about {:.0} entries are copied where {:.0} huge pages would do.",
            pages.entries,
            group.anon.mean / f64::from(2 << 20)
        ),
        explanation: advice::for_workers(&merged.process, &merged.stack),
        remedy,
        obstacle,
        saving_in_caller_ns: Some(saving_each),
        counts_at_any_cost: true,
        ..context.finding(
            FindingKind::ForkOfSmallPages,
            &merged.process,
            &merged.programs,
            count,
            saving_each,
        )
    })
}

/// A fork whose child goes on, and which copies many mappings.
fn of_many_mappings(context: &Context<'_>, merged: &Merged, pages: &Copied) -> Option<Finding> {
    let group = &merged.group;
    let call = call_cost(context, merged, pages);
    let without = fork_of_pages(context, group, pages);
    // What was measured tells more than the prices, as far as they explain it.
    let (rest, most) = (call.each.minus(without).at_least_zero(), pages.of_mappings.high);
    let saving_each = rest.at_most(most);
    if !is_worth_a_word(context, group, pages, saving_each.mid, saving_each.mid, 0.0) {
        return None;
    }
    let name = label(&merged.process);
    let all = pages.mappings.all;
    let mut list = vec![evidence(call.how, interval(call.each))];
    list.extend(memory_evidence(group, pages));
    list.push(evidence("the same fork with few mappings (predicted)", interval(without)));
    list.extend(merged.lines_evidence(context));
    list.extend(merged.unplaced_evidence());
    Some(Finding {
        title: format!("{name} forks {all} mappings and goes on: {} each", time(call.each.mid)),
        stack: merged.stack.clone(),
        lines: merged.lines(),
        cost: Cost { caller_ns: Some(call.sum_ns), cpu_share: context.share(call.sum_ns), ..Cost::default() },
        fork_times: Some(fork_times(call.each, group, false)),
        evidence: list,
        reason: format!(
            "The kernel copies what it keeps of each mapping: fork() copies {}.",
            copied_things(pages)
        ),
        explanation: advice::for_many_mappings(&merged.process, &merged.stack).to_owned(),
        saving_in_caller_ns: Some(saving_each),
        counts_at_any_cost: true,
        ..context.finding(
            FindingKind::ForkOfManyMappings,
            &merged.process,
            &merged.programs,
            group.count,
            saving_each,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::{Collected, PageHistory};
    use crate::finding::look;
    use crate::model::CostModel;
    use crate::program::KnownProgram;

    /// Findings of one fork with exec in a minute that copied `anon_bytes` in `fork_ns`.
    fn findings(anon_bytes: f64, fork_ns: f64) -> Vec<Finding> {
        findings_by(&model(), anon_bytes, fork_ns)
    }

    fn model() -> CostModel {
        CostModel {
            fork_fixed: Estimate::exact(60e3),
            fork_per_entry: Estimate::exact(25.0),
            teardown_per_entry: Estimate::exact(20.0),
            spawn: Estimate::exact(80e3),
            ..CostModel::default()
        }
    }

    fn findings_by(model: &CostModel, anon_bytes: f64, fork_ns: f64) -> Vec<Finding> {
        let mut group = Group { count: 1, ..Group::default() };
        group.caller.add(fork_ns);
        group.anon.add(anon_bytes);
        findings_of(model, group)
    }

    fn findings_of(model: &CostModel, group: Group) -> Vec<Finding> {
        let place = Place { pid: 1, nr: 56, ip: 1, word: 0, image: 0 };
        let groups = HashMap::from([((place, Outcome::ForkThenExec), group)]);
        look(&Collected::new(), &groups, model, find)
    }

    /// All faults of a shell's hundred subshells and one program were charged to the program: 1.7
    /// ms too much.
    #[test]
    fn the_faults_of_a_process_are_shared_by_all_its_forks() {
        let place = |ip| Place { pid: 1, nr: 56, ip, word: 0, image: 0 };
        let group = |count| Group { count, ..Group::default() };
        let groups = HashMap::from([
            ((place(1), Outcome::ForkThenExec), group(1)),
            ((place(2), Outcome::ForkAlone), group(99)),
        ]);
        let mut collected = Collected::new();
        collected.faults.insert(1, (500, 1000));
        look(&collected, &groups, &CostModel::default(), |context| {
            let of = |outcome| {
                merge(context, outcome).iter().map(|merged| faults(context, merged)).collect::<Vec<_>>()
            };
            assert_eq!(of(Outcome::ForkThenExec), [(5, 10)]);
            assert_eq!(of(Outcome::ForkAlone), [(495, 990)]);
            let said = faults_evidence(context, &merge(context, Outcome::ForkThenExec)[0]);
            assert_eq!(said.expect("they were counted").value, "5 copied a page, 10 reused it");
        });
    }

    /// Subshells live for a millisecond. Some of a script's hundred forks had no name and no stack,
    /// and were findings of their own.
    #[test]
    fn forks_of_processes_that_were_gone_join_those_that_were_met() {
        let place = |pid| Place { pid, nr: 56, ip: 1, word: 0, image: 0 };
        let group = |count| Group { count, comm: "bash".to_owned(), ..Group::default() };
        // Another place of the same program starts another program.
        let mut sed = group(7);
        sed.programs.add("/bin/sed");
        let groups = HashMap::from([
            ((place(1), Outcome::ForkThenExec), group(60)),
            ((place(2), Outcome::ForkThenExec), group(40)),
            ((place(3), Outcome::ForkThenExec), Group { comm: "other".to_owned(), ..group(5) }),
            ((place(4), Outcome::ForkThenExec), sed),
        ]);
        let mut collected = Collected::new();
        let told = |pid, exe: Option<&str>| {
            let exe = exe.map(str::to_owned);
            let known = KnownProgram { comm: "bash".into(), exe, ..KnownProgram::default() };
            let key = ProgramKey { pid, image: 0 };
            crate::Event::Program(crate::SeenProgram { key, known, cut: false })
        };
        collected.event(told(1, Some("/bin/bash")));
        collected.event(told(2, None));
        let frame = Frame {
            function: Some("make_child".into()),
            offset: 1,
            module: "/bin/bash".into(),
            ..Frame::default()
        };
        collected.stacks.insert(place(1), vec![(vec![frame], 1)]);
        let merge_execs = |context: &Context<'_>| merge(context, Outcome::ForkThenExec);
        let mut found = look(&collected, &groups, &CostModel::default(), merge_execs);
        found.sort_by_key(|merged| merged.group.count);
        let counts: Vec<_> =
            found.iter().map(|merged| (merged.group.count, merged.unplaced, merged.programs.len())).collect();
        assert_eq!(counts, [(5, 0, 1), (7, 0, 1), (100, 40, 2)]);
    }

    /// Regression: the first fork of a loop was a finding of its own. asyncio had no thread then,
    /// and Python called its functions in another way.
    #[test]
    fn ways_of_one_call_are_one_place() {
        let frame = |function: &str, module: &str, offset| Frame {
            function: Some(function.into()),
            module: module.into(),
            offset,
            ..Frame::default()
        };
        let libc = |offset| frame("__libc_fork", "/lib/libc.so.6", offset);
        let python = |function: &str| frame(function, "/usr/lib/libpython3.11.so.1.0", 9);
        let starts = |offset| frame("do_fork_exec", "/lib/_posixsubprocess.so", offset);
        let first = [libc(74), starts(1), python("cfunction_call"), python("TaskStepMethWrapper_call")];
        let later = [libc(761), starts(1), python("_PyEval_EvalFrameDefault"), python("task_step")];
        assert_eq!(site(&first), site(&later));
        assert_ne!(site(&[libc(74), starts(1)]), site(&[libc(74), starts(2)]));
        // A program's own function of such a name is a place.
        let own = |name| [libc(74), frame("vm_exec", "/srv/app", 1), frame(name, "/srv/app", 2)];
        assert_ne!(site(&own("first")), site(&own("second")));
        assert_eq!(site(&own("first")).len(), 3);
    }

    /// Two workers of one server, each read most often at another line, were two findings.
    #[test]
    fn workers_that_are_read_at_other_lines_are_one_finding() {
        let frame = |function: &str, line: Option<u32>| Frame {
            function: Some(function.into()),
            line,
            module: "server".into(),
            ..Frame::default()
        };
        let worker = |counts: [u64; 2]| {
            let mut group = Group { count: 10, comm: "server".to_owned(), ..Group::default() };
            for (line, count) in [7, 8].into_iter().zip(counts) {
                group.lines.add(&[frame("start", Some(line))], count);
            }
            group
        };
        let place = |pid| Place { pid, nr: 56, ip: 1, word: 0, image: 0 };
        let groups = HashMap::from([
            ((place(1), Outcome::ForkThenExec), worker([5, 3])),
            ((place(2), Outcome::ForkThenExec), worker([3, 4])),
        ]);
        let mut collected = Collected::new();
        for pid in [1, 2] {
            collected.stacks.insert(place(pid), vec![(vec![frame("spawn", None)], 1)]);
        }
        look(&collected, &groups, &CostModel::default(), |context| {
            let found = merge(context, Outcome::ForkThenExec);
            let [one] = found.as_slice() else { panic!("{} findings", found.len()) };
            assert_eq!((one.group.count, one.programs.len()), (20, 2));
            assert_eq!(one.stack, [frame("start", Some(7)), frame("spawn", None)]);
            let said = one.lines_evidence(context).expect("two lines").value;
            assert_eq!(said, "start (server:7) 53 %, start (server:8) 47 %");
        });
    }

    /// Regression: the one worker of celery had the place of its subprocess's forks, and nothing
    /// said so.
    #[test]
    fn a_place_of_other_forks_is_said_to_be_so() {
        let place = Place { pid: 1, nr: 56, ip: 1, word: 0, image: 0 };
        let frame = |name: &str| Frame {
            function: Some(name.into()),
            offset: 1,
            module: "/usr/bin/python3".into(),
            ..Frame::default()
        };
        let said = |alone: bool, stacks: &[&str]| {
            let group = |count| Group { count, comm: "python3".to_owned(), ..Group::default() };
            let mut groups = HashMap::from([((place, Outcome::ForkAlone), group(1))]);
            if !alone {
                groups.insert((place, Outcome::ForkThenExec), group(12));
            }
            let mut collected = Collected::new();
            collected.stacks.insert(place, stacks.iter().map(|name| (vec![frame(name)], 1)).collect());
            look(&collected, &groups, &CostModel::default(), |context| {
                merge(context, Outcome::ForkAlone)[0].unplaced_evidence().map(|said| said.what)
            })
        };
        let both = ["do_fork_exec", "os_fork_impl"];
        assert!(said(false, &both).is_some_and(|what| what.starts_with(ITS_PLACE)));
        assert_eq!(said(false, &both[..1]), None, "all are from one place");
        assert_eq!(said(true, &both), None, "no other fork");
    }

    /// On a machine that was slower at first, 32 MiB more seemed to cost a fork nothing, and forks
    /// of 256 MiB were no finding.
    #[test]
    fn prices_that_were_lost_in_noise_hide_no_fork() {
        let lost = Estimate { low: 0.0, mid: 0.0, high: 500.0 };
        let noisy = CostModel { fork_per_entry: lost, teardown_per_entry: lost, ..model() };
        assert_eq!(findings_by(&noisy, f64::from(256 << 20), 13e6).len(), 1);
    }

    /// On a busy machine gunicorn's children took 207 ms to their new program, most of it the exec
    /// that took down the copy. They were said to be too slow for the preloaded library.
    #[test]
    fn an_exec_that_takes_a_copy_down_makes_no_child_slow() {
        let group = |exec: Option<u64>| {
            let mut group = Group { count: 3, ..Group::default() };
            group.anon.add(f64::from(256 << 20));
            (0..3).for_each(|_| group.caller.add(100e6));
            (0..3).for_each(|_| group.child.add(207e6));
            group.least_before_exec = exec.map(|ns| 207_000_000 - ns);
            group
        };
        let obstacle = |exec| findings_of(&model(), group(exec))[0].obstacle.clone();
        assert_eq!(obstacle(Some(190_000_000)), None);
        assert_eq!(obstacle(Some(10_000_000)), Some(Obstacle::Slow(197_000_000)));
        // By its prices the copy takes some 1 ms to take down.
        assert!(matches!(obstacle(None), Some(Obstacle::Slow(ns)) if ns > 200_000_000));
    }

    /// Regression: a fork of 40 ms, of which 24 were predicted for its mappings, was to take 16 ms
    /// less under `run`, which copies them, too.
    #[test]
    fn what_many_mappings_take_beyond_their_price_is_not_promised() {
        let each = Estimate::exact(1e3);
        let model = CostModel { fork_per_mapping: each, fork_per_written_mapping: each, ..model() };
        let place = Place { pid: 1, nr: 56, ip: 1, word: 0, image: 0 };
        let found = |anon_bytes: f64, mappings| {
            let mut group = Group { count: 20, ..Group::default() };
            group.caller.add(40e6);
            group.anon.add(anon_bytes);
            let mut collected = Collected::new();
            let history = PageHistory::with_mappings(MappingCount { all: mappings, written: 0 });
            collected.pages.insert(place.program(), history);
            let groups = HashMap::from([((place, Outcome::ForkThenExec), group)]);
            look(&collected, &groups, &model, find).remove(0)
        };
        let few = found(f64::from(512 << 20), 64);
        assert!(few.obstacle.is_none() && few.saving_each_ns.mid > 30e6, "{few:#?}");
        assert_eq!(found(f64::from(16 << 20), 20_000).obstacle, Some(Obstacle::Cheap));
        let large = found(f64::from(512 << 20), 20_000);
        // 131,072 entries are 3.3 ms of a fork, and 2.6 ms of its exec.
        assert!(large.obstacle.is_none() && (5e6..6e6).contains(&large.saving_each_ns.mid), "{large:#?}");
    }

    /// A server that asks for an absent program: the fork of a child whose exec fails is made
    /// again.
    #[test]
    fn a_child_whose_exec_fails_is_not_spared() {
        let finding = |exec_failed| {
            let mut group = Group { count: 30, exec_failed, ..Group::default() };
            group.anon.add(f64::from(256 << 20));
            group.caller.add(20e6);
            findings_of(&model(), group).remove(0)
        };
        let under_library = |finding: &Finding| {
            let said = finding.evidence.iter().find(|said| said.what.contains("preloaded"));
            said.expect("it is told").value.clone()
        };
        let (all, most, few) = (finding(0), finding(3), finding(20));
        assert!(under_library(&all).starts_with("100 % commit"), "{}", under_library(&all));
        assert!(under_library(&most).starts_with("90 % commit"), "{}", under_library(&most));
        assert_eq!(few.obstacle, Some(Obstacle::SeldomExecs(10, 30)));
    }

    /// PyTorch's children create threads after torch.set_num_threads: 0 of 30 commit.
    #[test]
    fn children_that_create_threads_are_not_promised() {
        let obstacle = |made| {
            let mut group = Group { count: 30, made, ..Group::default() };
            group.anon.add(f64::from(256 << 20));
            group.caller.add(20e6);
            findings_of(&model(), group).remove(0).obstacle
        };
        assert_eq!(obstacle(1), None);
        assert!(matches!(obstacle(30), Some(Obstacle::Acts(act)) if act.contains("create threads")));
    }

    /// "to start echo" was said of ten echo and ten true.
    #[test]
    fn a_title_names_what_is_started() {
        let of = |names: &[&str]| {
            started_programs(&names.iter().map(|name| ((*name).to_owned(), 1)).collect::<Vec<_>>())
        };
        assert_eq!(of(&["/bin/echo", "/bin/true"]), "echo and true");
        assert_eq!(of(&["/bin/sh", "/usr/bin/sh"]), "sh");
        assert_eq!(of(&["/a", "/b", "/c"]), "a, b and others");
        assert_eq!(of(&[]), "a program");
    }

    #[test]
    fn a_pause_is_a_finding_where_the_memory_explains_it() {
        let found = findings(f64::from(512 << 20), 5e6);
        assert_eq!(found.len(), 1);
        let about_faults = found[0].evidence.iter().find(|said| said.what.contains("faults"));
        assert_eq!(about_faults, None, "nobody counted them");
        assert_eq!(findings(0.0, 200e6).len(), 0, "a shell that was preempted in fork");
        assert_eq!(findings(f64::from(2 << 20), 200e6).len(), 0);
    }
}
