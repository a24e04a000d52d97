//! Fetches memory that a system call is about to touch, before the call. Where the program's own
//! access would fault and be served, the kernel answers EFAULT. Repeating a call after EFAULT is
//! wrong: the first try may have had half of its effect.

use forkless_run::AbortKind;
use forkless_speculate::descriptors::Parts;
use forkless_speculate::fetch::CLUSTER;

use super::super::{exclusions, program_memory};
use super::{abort, fds, fetch, stack};

/// `addr..addr + len` is present afterwards, as far as the parent has it.
pub(crate) fn bytes(addr: usize, len: usize) {
    if len == 0 {
        return;
    }
    stack::need(addr);
    // We have made this memory read-only. A write to it gives EFAULT in the kernel, where the
    // program's own write would abort. A call that only reads it aborts as well, which nobody can
    // tell.
    if exclusions::shared().overlaps(addr, len) {
        abort(AbortKind::SharedWrite);
    }
    let absent = exclusions::absent();
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
            at = (at & !(CLUSTER - 1)) + CLUSTER;
        }
        if fetch::has_holes() {
            // The kernel answers EFAULT for a hole, where a read undoes the speculation.
            for page in (addr.max(start)..end.min(stop)).step_by(4096) {
                program_memory::byte(page);
            }
            program_memory::byte(end.min(stop) - 1);
        }
        i += 1;
    }
}

/// A NUL-terminated string, which is not at 0. Returns its length.
fn string(addr: usize) -> usize {
    let mut at = addr;
    // Reading fetches by faulting. Only the length is not known beforehand.
    while program_memory::byte(at) != 0 {
        at += 1;
    }
    at - addr
}

/// The name of a file. A name that may lead to our own descriptor, through a directory with a link
/// for each, aborts.
pub(crate) fn path(addr: usize) {
    if addr == 0 {
        return;
    }
    let (mut at, mut parts) = (addr, Parts::new());
    // Reading fetches, as in `string`.
    loop {
        let byte = program_memory::byte(at);
        if parts.read(byte).is_some_and(fds::is_hidden) {
            abort(AbortKind::Collision);
        }
        if byte == 0 {
            break;
        }
        at += 1;
    }
}

/// The same, from a directory, which must not be our descriptor.
pub(crate) fn path_at(dir: usize, addr: usize) {
    if fds::is_hidden(dir) {
        abort(AbortKind::Collision);
    }
    path(addr);
}

/// A null-terminated vector of strings. A null pointer is left for the kernel to refuse. Returns
/// how many bytes the new program's stack gets for it.
pub(crate) fn vector(addr: usize) -> usize {
    if addr == 0 {
        return 0;
    }
    let (mut at, mut length) = (addr, 0);
    loop {
        let entry = program_memory::word(at);
        if entry == 0 {
            return length;
        }
        length += string(entry) + 1 + 8;
        at += 8;
    }
}

/// An array of `iovec` and what it points to. Returns the length of all.
pub(crate) fn iovec(addr: usize, count: usize) -> usize {
    let mut length = 0usize;
    bytes(addr, count.min(1024) * 16);
    for i in 0..count.min(1024) {
        let part = program_memory::word(addr + 16 * i + 8);
        bytes(program_memory::word(addr + 16 * i), part);
        length = length.saturating_add(part);
    }
    length
}

/// The kernel has moved less than the whole. It may have ended where the stack would have grown.
#[cold]
#[inline(never)]
pub(crate) fn abort_if_cut(addr: usize, count: usize) {
    for i in 0..count.min(1024) {
        let at = addr + 16 * i;
        if program_memory::word(at + 8) != 0 && stack::would_reach(program_memory::word(at)) {
            abort(AbortKind::Fault);
        }
    }
}
