//! Where creations come from, for pictures and profiles: the collected places under their names,
//! those that look the same as one.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::collect::{Collected, LineCounts, Origins, Outcome, Spent};
use crate::creation::Place;
use crate::model::CostModel;
use crate::stack::Frame;

/// More than this are the cheapest, and are summed up by program.
const MOST: usize = 2000;

/// Creations of one program, at one place, that started the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Origin {
    /// The program, as [`ProcessName::name`](crate::ProcessName::name); empty for those that had no
    /// room.
    pub program: String,
    /// The place, innermost frame first: the native frames up to the first that is not the C
    /// library's, and the user's lines, or all native frames if no line is known. Empty if the
    /// place was not seen.
    pub frames: Vec<Frame>,
    /// What the creations led to; `None` if they were summed up.
    pub outcome: Option<Outcome>,
    /// The file's name of the program that the children executed, or could not execute.
    pub started: Option<String>,
    /// How many there were.
    pub count: u64,
    /// Their cost with that of the execs, nanoseconds, as in
    /// [`StartSummary::cost_ns`](crate::StartSummary::cost_ns).
    pub cost_ns: f64,
}

/// A program with its stack and what it started.
type Row<'c, Stack> = (&'c str, Stack, Outcome, Option<&'c str>);

pub(crate) fn of(collected: &Collected, origins: &Origins, model: &CostModel) -> Vec<Origin> {
    let known = merged(collected, origins);
    let mut lines: HashMap<(&str, &[Frame]), LineCounts> = HashMap::new();
    for ((program, native, ..), (_, read)) in &known {
        lines.entry((program, native)).or_default().merge(read);
    }
    let mut rows: HashMap<Row<'_, Vec<Frame>>, Sum> = HashMap::new();
    for (&(program, native, outcome, started), (spent, read)) in &known {
        let of_place = lines.get(&(program, native)).map_or(&[][..], LineCounts::stacks);
        let stacks = match (read.stacks(), of_place) {
            // Not each program of a place was read: a script that starts others has many processes.
            ([], [one]) if !native.is_empty() => std::slice::from_ref(one),
            (read, _) => read,
        };
        let sum = Sum { count: spent.creations, cost_ns: spent.cost_ns(model) };
        for (frames, part) in shares(native, stacks, read.unread(), sum) {
            rows.entry((program, frames, outcome, started)).or_default().add(part);
        }
    }
    let mut all: Vec<Origin> = rows
        .into_iter()
        .map(|((program, frames, outcome, started), Sum { count, cost_ns })| Origin {
            program: program.to_owned(),
            frames,
            outcome: Some(outcome),
            started: started.map(str::to_owned),
            count,
            cost_ns,
        })
        .collect();
    all.sort_by(|a, b| {
        let names = (&a.program, &a.started).cmp(&(&b.program, &b.started));
        b.cost_ns.total_cmp(&a.cost_ns).then(names)
    });
    let rest = all.split_off(all.len().min(MOST));
    let mut by_program: BTreeMap<String, Sum> = BTreeMap::new();
    for origin in rest {
        let sum = Sum { count: origin.count, cost_ns: origin.cost_ns };
        by_program.entry(origin.program).or_default().add(sum);
    }
    for (program, spent) in origins.forgotten() {
        let sum = Sum { count: spent.creations, cost_ns: spent.cost_ns(model) };
        by_program.entry(program.clone()).or_default().add(sum);
    }
    all.extend(by_program.into_iter().map(|(program, Sum { count, cost_ns })| Origin {
        program,
        frames: Vec::new(),
        outcome: None,
        started: None,
        count,
        cost_ns,
    }));
    all
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sum {
    count: u64,
    cost_ns: f64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.cost_ns += other.cost_ns;
    }
}

/// The places whose native stacks look the same.
fn merged<'c>(
    collected: &'c Collected,
    origins: &'c Origins,
) -> HashMap<Row<'c, &'c [Frame]>, (Spent, LineCounts)> {
    let mut known: HashMap<_, (Spent, LineCounts)> = HashMap::new();
    for (key, origin) in origins.iter() {
        let native = native(collected, &key.place);
        let row = (origin.program.as_str(), native, key.outcome, key.started.as_deref());
        let entry = known.entry(row).or_default();
        entry.0.merge(&origin.spent);
        entry.1.merge(&origin.lines);
    }
    known
}

/// The most frequent native stack of a place.
fn native<'c>(collected: &'c Collected, place: &Place) -> &'c [Frame] {
    let stacks = collected.stacks.get(place).map_or(&[][..], Vec::as_slice);
    stacks.iter().max_by_key(|(_, count)| *count).map_or(&[], |(frames, _)| frames)
}

/// Divides creations and their cost among the stacks that were read. A stack's part is that of its
/// readings. That of the readings which failed has the native frames alone.
fn shares(native: &[Frame], stacks: &[(Vec<Frame>, u64)], unread: u64, whole: Sum) -> Vec<(Vec<Frame>, Sum)> {
    let all = stacks.iter().map(|(_, read)| read).sum::<u64>() + unread;
    if stacks.is_empty() || all == 0 {
        return vec![(native.to_vec(), whole)];
    }
    let of_library = native.iter().take_while(|frame| frame.is_of_c_library()).count();
    let call = &native[..native.len().min(of_library + 1)];
    let (mut read_so_far, mut given) = (0, 0);
    let mut part = |frames: Vec<Frame>, read: u64| {
        read_so_far += read;
        // The sum of the parts is the whole.
        let until_here = (u128::from(whole.count) * u128::from(read_so_far) / u128::from(all)) as u64;
        let count = until_here - given;
        given = until_here;
        (frames, Sum { count, cost_ns: whole.cost_ns * read as f64 / all as f64 })
    };
    let mut parts: Vec<(Vec<Frame>, Sum)> =
        stacks.iter().map(|(lines, read)| part([call, lines].concat(), *read)).collect();
    if unread > 0 {
        parts.push(part(native.to_vec(), unread));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, module: &str, line: Option<u32>) -> Frame {
        let (function, module) = (Some(function.to_owned()), module.to_owned());
        Frame { function, module, line, ..Frame::default() }
    }

    #[test]
    fn a_cost_is_divided_among_lines_as_often_as_they_were_read() {
        let native = [
            frame("_Fork", "/lib/libc.so.6", None),
            frame("fork_exec", "/lib/_posixsubprocess.so", None),
            frame("eval", "/bin/python3", None),
        ];
        let line = |number| vec![frame("start", "/srv/app.py", Some(number))];
        let sum = |count, cost_ns| Sum { count, cost_ns };
        let parts = shares(&native, &[(line(7), 2), (line(9), 1)], 0, sum(10, 90.0));
        let expected = |number| [&native[..2], &line(number)].concat();
        assert_eq!(parts, [(expected(7), sum(6, 60.0)), (expected(9), sum(4, 30.0))]);
        assert_eq!(shares(&native, &[], 7, sum(10, 90.0)), [(native.to_vec(), sum(10, 90.0))]);
        assert_eq!(shares(&[], &[(line(7), 1)], 0, sum(1, 5.0)), [(line(7), sum(1, 5.0))]);
        let parts = shares(&native, &[(line(7), 1)], 1, sum(10, 90.0));
        assert_eq!(parts, [(expected(7), sum(5, 45.0)), (native.to_vec(), sum(5, 45.0))]);
    }
}
