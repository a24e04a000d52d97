//! The actions are run on a model of a descriptor table and compared with the targets.

use super::*;
use std::collections::BTreeMap;

const OPTIONS: MoveOptions = MoveOptions { close_range: true, limit: 1024, caller: (1, 2), announce: true };

/// A table in which number n of the parent holds the value n; all of 0..top are open.
fn run(targets: &[(i32, i32)], table: Table, top: i32) -> BTreeMap<i32, i32> {
    let sources: Vec<(i32, Source)> = targets.iter().map(|&(to, from)| (to, Source::Fd(from))).collect();
    let mut moves = Moves::default();
    resolve(&sources, table, OPTIONS, &mut moves);
    let mut fds: BTreeMap<i32, i32> = (0..top).map(|n| (n, n)).collect();
    let mut cloexec: Vec<i32> = Vec::new();
    let mut saved = -1;
    for action in &moves.actions {
        match *action {
            Action::Unshare { first } => fds.retain(|&n, _| n < first as i32),
            Action::GetFromParent { .. } => {
                for f in &moves.from_parent {
                    assert!(!fds.contains_key(&f.to), "got onto a number in use");
                    assert!(
                        fds.keys().filter(|n| **n < f.to).count() as i32 <= f.to - 2,
                        "no room for the pidfd below"
                    );
                    fds.insert(f.to, f.from);
                    cloexec.push(f.to);
                }
            }
            Action::Dup { from, to } => {
                assert_ne!(from, to, "dup3 refuses equal numbers");
                let v = fds[&from];
                fds.insert(to, v);
            }
            Action::Save { from, min } => {
                assert_eq!(saved, -1, "one at a time");
                saved = fds[&from];
                assert!(min > from);
            }
            Action::Restore { to } => {
                fds.insert(to, saved);
                saved = -1;
            }
            Action::CloseRange { first, last, .. } => {
                fds.retain(|&n, _| (n as u32) < first || n as u32 > last)
            }
            _ => {}
        }
    }
    assert_eq!(saved, -1, "every saved descriptor is put in its place");
    fds.retain(|n, _| !cloexec.contains(n) || targets.iter().any(|t| t.0 == *n));
    fds
}

fn check(targets: &[(i32, i32)], top: i32) {
    for table in [Table::Copy { close_others: true }, Table::Share] {
        let mut want: BTreeMap<i32, i32> = (0..3).map(|n| (n, n)).collect();
        want.extend(targets.iter().copied());
        assert_eq!(run(targets, table, top), want, "{targets:?} by {table:?}");
    }
}

#[test]
fn chains_swaps_and_cycles_keep_every_source() {
    check(&[], 10);
    check(&[(0, 5), (1, 6), (2, 6)], 10);
    check(&[(3, 4), (4, 3)], 10);
    check(&[(0, 1), (1, 2), (2, 0)], 10);
    check(&[(3, 4), (4, 5), (5, 3), (7, 8), (8, 7), (9, 3)], 12);
    check(&[(0, 0), (5, 5), (6, 5)], 10);
    check(&[(0, 900), (1, 901), (2, 40), (10, 41), (70, 3)], 1000);
}

#[test]
fn every_mapping_of_four_numbers_is_right() {
    for code in 0..5u32.pow(5) {
        let mut c = code;
        let mut targets = Vec::new();
        for to in 1..6 {
            let from = (c % 5) as i32;
            c /= 5;
            targets.push((to, from + 1));
        }
        check(&targets, 8);
    }
}

#[test]
fn high_numbers_come_from_the_parent_and_low_ones_are_copied() {
    let t = [(0, Source::Fd(19_000)), (1, Source::Fd(7))];
    let mut m = Moves::default();
    resolve(&t, Table::Share, OPTIONS, &mut m);
    assert!(matches!(m.actions[0], Action::Unshare { first: 8 }));
    assert!(matches!(m.actions[1], Action::GetFromParent { parent: 1, thread: 2, .. }));
    assert_eq!(m.from_parent.len(), 1);
    assert_eq!(m.from_parent[0].from, 19_000);
}
