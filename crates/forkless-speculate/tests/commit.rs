//! Commit and abort as an exhaustive small model. Parent, child and kernel take every order of
//! steps. The child may be killed at each step. Exec may fail or kill. The program may ignore
//! SIGCHLD, and another thread may wait with `__WALL`.
//!
//! The parent's decision is the library's own ([`forkless_speculate::commit::committed`]). Child
//! and kernel are modelled from kernel/fork.c, kernel/exit.c, kernel/signal.c and fs/exec.c.

use std::cell::RefCell;
use std::collections::BTreeSet;

use forkless_speculate::commit::{WaitAnswer, WaitQuestion, committed};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Child {
    Speculating,
    /// The mark is set, execve is under way and may still fail.
    Executing,
    /// Past `de_thread`: the exit signal is SIGCHLD, the old memory is not yet given up.
    Committed,
    /// The new program runs; the parent is awake.
    Program,
    Zombie,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct World {
    child: Child,
    marked: bool,
    sigchld: bool,
    /// The parent has been woken: the child has left its memory.
    woken: bool,
    executed: bool,
    killed: bool,
    ignores_sigchld: bool,
    thief: bool,
    /// Whether the first question is refused, as by a seccomp filter.
    refuses: bool,
}

impl World {
    /// Every step that child and environment may take.
    fn steps(self) -> Vec<World> {
        let mut next = Vec::new();
        match self.child {
            Child::Speculating => {
                next.push(World { child: Child::Executing, marked: true, ..self });
                next.push(self.ends()); // an abort
            }
            Child::Executing => {
                next.push(World { child: Child::Speculating, marked: false, ..self });
                next.push(World { child: Child::Committed, sigchld: true, executed: true, ..self });
            }
            // Also an exec that dies after the point of no return: the plain fork's child would
            // have died so, too.
            Child::Committed => next.push(World { child: Child::Program, woken: true, ..self }),
            Child::Program => next.push(self.ends()),
            Child::Zombie if self.thief => next.push(World { child: Child::Gone, ..self }),
            Child::Zombie | Child::Gone => {}
        }
        if !matches!(self.child, Child::Zombie | Child::Gone) {
            next.push(World { killed: true, ..self }.ends());
        }
        next
    }

    /// `do_exit`: memory first (which wakes the parent), then a zombie, or nothing where SIGCHLD is
    /// ignored.
    fn ends(self) -> World {
        let reaped = self.sigchld && self.ignores_sigchld;
        World { woken: true, child: if reaped { Child::Gone } else { Child::Zombie }, ..self }
    }

    fn answer(self, question: WaitQuestion) -> Option<(WaitAnswer, World)> {
        match (question, self.child) {
            (WaitQuestion::Executed, _) if self.refuses => Some((WaitAnswer::Refused, self)),
            (_, Child::Gone) => Some((WaitAnswer::NoChild, self)),
            (WaitQuestion::Executed, _) => {
                Some((if self.sigchld { WaitAnswer::Yes } else { WaitAnswer::NoChild }, self))
            }
            (WaitQuestion::End, Child::Zombie) => {
                Some((WaitAnswer::Yes, World { child: Child::Gone, ..self }))
            }
            // Blocks: the others move on.
            (WaitQuestion::End, _) => None,
        }
    }
}

/// Every world reachable from `from` by any number of steps.
fn reachable(from: World) -> BTreeSet<World> {
    let mut seen = BTreeSet::from([from]);
    let mut todo = vec![from];
    while let Some(world) = todo.pop() {
        for next in world.steps() {
            if seen.insert(next) {
                todo.push(next);
            }
        }
    }
    seen
}

/// Runs the parent's decision against every order of steps between its questions; calls `check`
/// with each outcome.
fn explore(start: World, check: &mut impl FnMut(bool, World)) -> usize {
    /// One way the questions may be answered: the worlds in which they are.
    fn go(world: World, answers: &[WaitAnswer], check: &mut impl FnMut(bool, World)) -> usize {
        // Asks again with the answers so far. The first question without an answer shows where the
        // parent stands.
        let open = RefCell::new(None);
        let given = RefCell::new(answers.iter());
        let commits = committed(
            |question| match given.borrow_mut().next() {
                Some(answer) => *answer,
                None => {
                    open.borrow_mut().get_or_insert(question);
                    WaitAnswer::NoChild
                }
            },
            || world.marked,
        );
        let Some(question) = open.into_inner() else {
            check(commits, world);
            return 1;
        };
        let mut paths = 0;
        for later in reachable(world) {
            if let Some((answer, after)) = later.answer(question) {
                let mut all = answers.to_vec();
                all.push(answer);
                paths += go(after, &all, check);
            }
        }
        paths
    }
    reachable(start).into_iter().filter(|w| w.woken).map(|w| go(w, &[], check)).sum()
}

fn start(ignores_sigchld: bool, thief: bool, refuses: bool) -> World {
    World {
        child: Child::Speculating,
        marked: false,
        sigchld: false,
        woken: false,
        executed: false,
        killed: false,
        ignores_sigchld,
        thief,
        refuses,
    }
}

/// Every kind of start.
fn starts() -> impl Iterator<Item = World> {
    (0..8).map(|bits| start(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0))
}

#[test]
fn a_program_is_executed_once_in_every_order_of_events() {
    for start in starts() {
        let paths = explore(start, &mut |commit, world| {
            // A replacement after an exec would execute the program twice.
            assert!(commit || !world.executed, "executed and replaced: {world:?}");
            // A commit without exec would lose the program, unless somebody killed the child. A
            // kill would have ended the plain fork's child as well.
            assert!(!commit || world.executed || world.killed, "lost: {world:?}");
        });
        assert!(paths >= 8, "{paths} paths: the model does not move");
    }
}

#[test]
fn a_replaced_child_is_never_left_as_a_zombie() {
    for start in starts().filter(|s| !s.thief) {
        explore(start, &mut |commit, world| {
            assert!(commit || world.child == Child::Gone, "{world:?}");
        });
    }
}

#[test]
fn an_interrupted_question_is_put_again() {
    let mut answers =
        [WaitAnswer::Interrupted, WaitAnswer::NoChild, WaitAnswer::Interrupted, WaitAnswer::Yes].into_iter();
    let mut asked = Vec::new();
    let ended_by_itself = committed(
        |question| {
            asked.push(question);
            answers.next().expect("no further question")
        },
        || true,
    );
    assert!(!ended_by_itself);
    assert_eq!(asked, [WaitQuestion::Executed, WaitQuestion::Executed, WaitQuestion::End, WaitQuestion::End]);
}

#[test]
fn the_mark_decides_where_the_child_was_reaped_by_another() {
    assert!(committed(|_| WaitAnswer::NoChild, || true));
    assert!(!committed(|_| WaitAnswer::NoChild, || false));
}

/// The model can fail: end of file on a pipe as the sign of a commit, the first idea, is wrong in
/// it.
#[test]
fn waking_up_is_not_a_commit() {
    let wrong =
        reachable(start(false, false, false)).into_iter().filter(|w| w.woken && !w.executed && !w.killed);
    assert!(wrong.count() > 0);
}
