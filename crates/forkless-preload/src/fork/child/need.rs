//! Memory a system call is about to touch, fetched before it is made. The kernel answers EFAULT where the program's own access would
//! fault and be served; repeating after EFAULT is wrong, for the first try may have had half of its effect.

use forkless_run::AbortKind as Kind;

use super::super::{memory, plan};
use super::{abort, fds, fetch};

/// `addr..addr + len` is present afterwards, as far as the parent has it.
pub(crate) fn bytes(addr: usize, len: usize) {
    if len == 0 {
        return;
    }
    // Memory that we have made read-only: EFAULT here, too, where the program's own write would abort. A call that only reads it is given
    // up as well, which nobody can tell.
    if plan::shared().overlaps(addr, len) {
        abort(Kind::SharedWrite);
    }
    let absent = plan::absent();
    if !absent.overlaps(addr, len) {
        return;
    }
    let end = addr.saturating_add(len);
    let mut i = absent.at_or_after(addr);
    while i < absent.len() {
        let (start, stop, _) = absent.get(i);
        if start >= end {
            break;
        }
        let mut at = addr.max(start);
        while at < end.min(stop) {
            fetch::fetch(at);
            at = (at & !(fetch::CLUSTER - 1)) + fetch::CLUSTER;
        }
        i += 1;
    }
}

/// A NUL-terminated string. A null pointer is left for the kernel to refuse.
pub(crate) fn string(addr: usize) {
    if addr == 0 {
        return;
    }
    let mut at = addr;
    // Reading fetches by faulting; only the length is not known beforehand.
    while memory::byte(at) != 0 {
        at += 1;
    }
}

/// The name of a file. One that may lead to our own descriptor, through a directory that has a link for each, ends the speculation.
pub(crate) fn path(addr: usize) {
    if addr == 0 {
        return;
    }
    // Parts that are numbers. Reading fetches, as in `string`.
    let (mut at, mut number) = (addr, Some(0usize));
    loop {
        number = match memory::byte(at) {
            0 | b'/' if number.is_some_and(fds::is_hidden) => abort(Kind::Collision),
            0 => break,
            b'/' => Some(0),
            digit @ b'0'..=b'9' => number.map(|n| n.wrapping_mul(10).wrapping_add(usize::from(digit - b'0'))),
            _ => None,
        };
        at += 1;
    }
}

/// The same, from a directory, which is not ours to look from.
pub(crate) fn path_at(dir: usize, addr: usize) {
    if fds::is_hidden(dir) {
        abort(Kind::Collision);
    }
    path(addr);
}

/// A null-terminated vector of strings.
pub(crate) fn vector(addr: usize) {
    if addr == 0 {
        return;
    }
    let mut at = addr;
    loop {
        let entry = memory::word(at);
        if entry == 0 {
            return;
        }
        string(entry);
        at += 8;
    }
}

/// An array of `iovec` and what it points to.
pub(crate) fn iovec(addr: usize, count: usize) {
    bytes(addr, count.min(1024) * 16);
    for i in 0..count.min(1024) {
        bytes(memory::word(addr + 16 * i), memory::word(addr + 16 * i + 8));
    }
}
