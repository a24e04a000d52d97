//! From "this number in the child is that descriptor" to actions in an order that loses nothing.
//!
//! Pure: numbers in, actions out. `wiring.rs` opens the descriptors and owns them.

use forkless_child::{Action, ParentDescriptor};
use forkless_sys::CPtr;

/// The file that one number of the child refers to.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// The parent's descriptor of this number, close-on-exec or not.
    Fd(i32),
    /// Another number of the child, after everything else is in place.
    SameAs(i32),
    /// A file the child opens itself.
    Open { path: CPtr<'static>, flags: u32, mode: u32 },
    /// None: the number is closed.
    Closed,
}

/// How the child comes by a descriptor table of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    /// The clone copies all of it; numbers that are not given are closed afterwards.
    Copy { close_others: bool },
    /// The table is shared until the child unshares the part it needs. The child gets higher
    /// numbers from the calling thread by `pidfd_getfd`.
    Share,
    /// The process itself execs: other numbers are marked close-on-exec, so that a failure leaves
    /// them open.
    InPlace { close_others: bool },
}

/// How to lay the actions out, beside the way to a table.
#[derive(Clone, Copy)]
pub(crate) struct MoveOptions {
    /// Close by `close_range(2)`.
    pub close_range: bool,
    /// One more than the highest number that may be open: the end of the loop that replaces
    /// `close_range`.
    pub limit: u32,
    /// The pids of this process and of the calling thread; 0 where the child gets no descriptor
    /// from them.
    pub caller: (i32, i32),
    /// The parent waits for the table to be the child's own.
    pub announce: bool,
}

/// Lower numbers are copied with the table. The child gets each higher number by `pidfd_getfd`. A
/// copy costs a few ns a number, `pidfd_getfd` about a microsecond. So the exact limit does not
/// matter.
pub(super) const FIRST_NOT_COPIED: i32 = 64;

/// The actions, and the descriptors that [`Action::GetFromParent`] names: it points into
/// `from_parent`, so keep both.
#[derive(Default)]
pub(crate) struct Moves {
    pub actions: Vec<Action<'static>>,
    pub from_parent: Vec<ParentDescriptor>,
}

/// Lays out the actions for `targets` in place of those in `out`. A target is a number in the
/// child, each number once, with its source. Numbers 0, 1 and 2 that are not named stay as they
/// are in the parent.
pub(crate) fn resolve(targets: &[(i32, Source)], table: Table, options: MoveOptions, out: &mut Moves) {
    let Moves { actions, from_parent } = out;
    actions.clear();
    from_parent.clear();
    if targets.is_empty() && table == Table::Share {
        actions.push(Action::Unshare { first: 3 });
        if options.announce {
            actions.push(Action::Staged);
        }
        return;
    }
    let mut moves: Vec<(i32, i32)> = targets
        .iter()
        .filter_map(|&(to, s)| if let Source::Fd(from) = s { Some((from, to)) } else { None })
        .collect();
    let highest_target = targets.iter().map(|&(to, _)| to).max().unwrap_or(0).max(2);

    if table == Table::Share {
        let highest_low = moves
            .iter()
            .map(|&(from, _)| from)
            .filter(|&from| from < FIRST_NOT_COPIED)
            .max()
            .unwrap_or(2)
            .max(2);
        let first = highest_low + 1;
        // Above everything that the table can hold at that point, the pidfd and one descriptor on
        // its way included.
        let above = first.max(highest_target + 1) + 2;
        for (free, m) in (above..).zip(moves.iter_mut().filter(|m| m.0 >= first)) {
            from_parent.push(ParentDescriptor { from: m.0, to: free });
            m.0 = free;
        }
        actions.push(Action::Unshare { first: first as u32 });
        if !from_parent.is_empty() {
            let (parent, thread) = options.caller;
            actions.push(Action::GetFromParent { parent, thread, fds: &[] });
        }
        if options.announce {
            actions.push(Action::Staged);
        }
    }
    let highest = moves.iter().map(|&(from, _)| from).max().unwrap_or(0).max(highest_target);
    parallel_moves(moves, highest + 1, actions);

    for &(to, source) in targets {
        if let Source::Open { path, flags, mode } = source {
            actions.push(Action::Open { path, flags, mode, to });
        }
    }
    for &(to, source) in targets {
        match source {
            Source::SameAs(other) if other != to => actions.push(Action::Dup { from: other, to }),
            Source::Closed if to >= 0 => actions.push(close(to as u32, to as u32, options)),
            _ => {}
        }
    }
    match table {
        Table::Copy { close_others: true } => {
            gaps(targets, u32::MAX, |first, last| actions.push(close(first, last, options)))
        }
        // Only numbers that were copied, below the limit of the unsharing: descriptors from the
        // parent are close-on-exec.
        Table::Share => {
            if let Some(Action::Unshare { first }) = actions.first().copied() {
                gaps(targets, first - 1, |first, last| actions.push(close(first, last, options)));
            }
        }
        Table::InPlace { close_others: true } => gaps(targets, u32::MAX, |first, last| {
            actions.push(Action::CloexecRange {
                first,
                last,
                by_range: options.close_range,
                limit: options.limit,
            });
        }),
        Table::Copy { close_others: false } | Table::InPlace { close_others: false } => {}
    }
}

impl Moves {
    /// Points [`Action::GetFromParent`] at the list. To be called once both are where they will
    /// stay.
    ///
    /// # Safety
    /// `from_parent` must not move or be freed while the actions are in use.
    #[expect(unsafe_code, reason = "the list and the action that names it live in one structure")]
    pub(crate) unsafe fn link(&mut self) {
        // SAFETY: a Vec's elements stay put while it is not changed; the caller keeps it.
        let fds: &'static [ParentDescriptor] =
            unsafe { std::slice::from_raw_parts(self.from_parent.as_ptr(), self.from_parent.len()) };
        for action in &mut self.actions {
            if let Action::GetFromParent { fds: place, .. } = action {
                *place = fds;
            }
        }
    }
}

fn close(first: u32, last: u32, options: MoveOptions) -> Action<'static> {
    Action::CloseRange { first, last, by_range: options.close_range, limit: options.limit }
}

/// Calls `each` for every run of numbers from 3 to `end` that is not a target.
fn gaps(targets: &[(i32, Source)], end: u32, mut each: impl FnMut(u32, u32)) {
    let mut kept: Vec<u32> =
        targets.iter().filter(|t| t.0 >= 3 && !matches!(t.1, Source::Closed)).map(|t| t.0 as u32).collect();
    kept.sort_unstable();
    let mut next = 3;
    for k in kept {
        if k > end {
            break;
        }
        if k > next {
            each(next, k - 1);
        }
        next = k + 1;
    }
    if next <= end {
        each(next, end);
    }
}

/// Parallel assignment: a target is written only once nothing else needs what it holds. Then only
/// cycles are left, each broken by one copy above everything involved.
fn parallel_moves(mut pending: Vec<(i32, i32)>, above: i32, actions: &mut Vec<Action<'static>>) {
    const SAVED: i32 = -1;
    pending.retain(|&(from, to)| {
        if from == to {
            actions.push(Action::Keep { fd: to });
        }
        from != to
    });
    while !pending.is_empty() {
        let ready = pending.iter().position(|&(_, to)| !pending.iter().any(|&(from, _)| from == to));
        match ready {
            Some(at) => {
                let (from, to) = pending.swap_remove(at);
                actions.push(if from == SAVED { Action::Restore { to } } else { Action::Dup { from, to } });
            }
            None => {
                // Only cycles are left, and no SAVED among them. The descriptor saved before has
                // been restored, since saving it freed its own cycle to unwind.
                let from = pending[0].0;
                actions.push(Action::Save { from, min: above });
                for m in pending.iter_mut().filter(|m| m.0 == from) {
                    m.0 = SAVED;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
