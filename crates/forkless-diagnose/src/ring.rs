//! The records of `bpf/records.h`, field by field, and their safe decoding from the kernel's bytes.
//! Nothing is interpreted here.
//!
//! A stale object cannot be misread: aya refuses a map whose key or value has another size, and
//! [`RingItem::decode`] a ring record of another length.

#![expect(unsafe_code, reason = "records from the kernel are plain old data, read from their bytes")]

use std::mem::size_of;

pub(crate) const PATH_BYTES: usize = 128;
pub(crate) const ARGV_BYTES: usize = 384;
pub(crate) const STACK_BYTES: usize = 8192;

pub(crate) const LOOK_WORDS: usize = 2;
const LOOK_FRAMES: usize = 32;
const FRAME_BYTES: usize = 120;
const STRUCTURE_BYTES: usize = 64;
/// An offset of [`RawLook`] that there is none of.
pub(crate) const NOT_THERE: u64 = u64::MAX;

const KIND_CREATION: u32 = 1;
const KIND_STACK: u32 = 2;
const KIND_PROGRAM: u32 = 3;
const KIND_REFUSED: u32 = 4;
const KIND_CALLER: u32 = 5;

pub(crate) const STATE_RETURNED: u32 = 1;

pub(crate) const CLASS_ANY: u16 = 0;
pub(crate) const CLASS_SIGMASK_NEEDLESS: u16 = 1;
pub(crate) const CLASS_LOCALTIME: u16 = 2;
pub(crate) const CLASS_ZONEINFO: u16 = 3;
pub(crate) const CLASS_CLOSE_UNUSED: u16 = 4;
pub(crate) const CLASS_BLOCK_WRITE_PARTIAL: u16 = 5;
/// The class of a creation's stack.
pub(crate) const CLASS_CREATION: u16 = 6;
/// What the stack of a child that makes pages private has in place of a system call's number.
pub(crate) const NR_EROSION: u32 = 0xffff_fffe;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct RawPlace {
    pub(crate) ip: u64,
    pub(crate) word: u64,
    pub(crate) image: u64,
    pub(crate) tgid: u32,
    pub(crate) nr: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawReturnKey {
    pub(crate) ip: u64,
    pub(crate) tgid: u32,
    pub(crate) pad: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawReturnAt {
    pub(crate) image: u64,
    pub(crate) above_sp: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawProgram {
    pub(crate) kind: u32,
    pub(crate) tgid: u32,
    pub(crate) image: u64,
    pub(crate) argv_bytes: u32,
    pub(crate) pad: u32,
    pub(crate) comm: [u8; 16],
    pub(crate) path: [u8; PATH_BYTES],
    pub(crate) argv: [u8; ARGV_BYTES],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawCreation {
    pub(crate) kind: u32,
    pub(crate) state: u32,
    pub(crate) start_ns: u64,
    pub(crate) copied_ns: u64,
    pub(crate) returned_ns: u64,
    pub(crate) exec_enter_ns: u64,
    pub(crate) exec_ns: u64,
    pub(crate) exit_ns: u64,
    pub(crate) flags: u64,
    pub(crate) cgroup: u64,
    pub(crate) place: RawPlace,
    pub(crate) anon_pages: u64,
    pub(crate) file_pages: u64,
    pub(crate) shmem_pages: u64,
    pub(crate) swap_pages: u64,
    pub(crate) hugetlb_pages: u64,
    pub(crate) pgtables_bytes: u64,
    pub(crate) child_copied: u64,
    pub(crate) child_reused: u64,
    pub(crate) child_made: u64,
    pub(crate) closing_ns: u64,
    pub(crate) closes: u64,
    pub(crate) close_ns: u64,
    pub(crate) close_migrations: u64,
    pub(crate) close_number: u32,
    pub(crate) close_streak: u32,
    pub(crate) stalled: u64,
    pub(crate) stalled_ns: u64,
    pub(crate) caller_tid: u32,
    pub(crate) child: u32,
    pub(crate) exec_tid: u32,
    pub(crate) exit_code: i32,
    pub(crate) execs: u32,
    pub(crate) exec_tries: u32,
    pub(crate) exec_missing: u32,
    pub(crate) exec_busy: u32,
    pub(crate) exec_other: u32,
    pub(crate) exec_errno: i32,
    pub(crate) argv_bytes: u32,
    pub(crate) uid: u32,
    pub(crate) caller_at_exec: u32,
    pub(crate) caller_at_exit: u32,
    pub(crate) argument_at_exec: u64,
    pub(crate) processor_wait_ns: u64,
    pub(crate) asked: u64,
    pub(crate) caller_comm: [u8; 16],
    pub(crate) child_comm: [u8; 16],
    pub(crate) exec_path: [u8; PATH_BYTES],
    pub(crate) failed_path: [u8; PATH_BYTES],
    pub(crate) argv: [u8; ARGV_BYTES],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawStackHead {
    pub(crate) kind: u32,
    pub(crate) bytes: u32,
    pub(crate) place: RawPlace,
    pub(crate) ns: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    pub(crate) lr: u64,
    pub(crate) tid: u32,
    pub(crate) class: u32,
    pub(crate) stands_for: u64,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawCaller {
    pub(crate) kind: u32,
    pub(crate) tgid: u32,
    pub(crate) sp: u64,
    pub(crate) stands_for: u64,
    pub(crate) asked: u64,
    pub(crate) tid: u32,
    pub(crate) frames: u32,
    pub(crate) first: u64,
    pub(crate) word: [u64; LOOK_WORDS],
    pub(crate) structure: [u8; STRUCTURE_BYTES],
    pub(crate) frame: [RawFrame; LOOK_FRAMES],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawFrame {
    pub(crate) at: u64,
    pub(crate) bytes: [u8; FRAME_BYTES],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawLook {
    pub(crate) image: u64,
    pub(crate) head: u64,
    pub(crate) through: u64,
    pub(crate) next: u64,
    pub(crate) stride: u64,
    pub(crate) last: u64,
    pub(crate) word: [u64; LOOK_WORDS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct RawErosionKey {
    pub(crate) ip: u64,
    pub(crate) image: u64,
    pub(crate) tgid: u32,
    pub(crate) pad: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawEroded {
    pub(crate) pages: u64,
    pub(crate) next_stack: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct RawRefusalKey {
    pub(crate) place: RawPlace,
    pub(crate) error: u32,
    pub(crate) is_thread: u16,
    pub(crate) shares_memory: u16,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawRefusals {
    pub(crate) count: u64,
    pub(crate) timed: u64,
    pub(crate) ns: u64,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawRefused {
    pub(crate) kind: u32,
    pub(crate) uid: u32,
    pub(crate) key: RawRefusalKey,
    pub(crate) capabilities: u64,
    pub(crate) user_limit: u64,
    pub(crate) user_count: u64,
    pub(crate) pids_limit: u64,
    pub(crate) pids_cgroup: u64,
    pub(crate) data_pages: u64,
    pub(crate) cgroup: u64,
    pub(crate) no_init: u32,
    pub(crate) tid: u32,
    pub(crate) comm: [u8; 16],
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawAfterFork {
    pub(crate) copied: u64,
    pub(crate) reused: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct RawCallKey {
    pub(crate) ip: u64,
    pub(crate) image: u64,
    pub(crate) tgid: u32,
    pub(crate) nr: u16,
    pub(crate) class: u16,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawCall {
    pub(crate) count: u64,
    pub(crate) same: u64,
    pub(crate) last: i64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawBlockReads {
    pub(crate) reads: u64,
    pub(crate) timed: u64,
    pub(crate) ns: u64,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawTotals {
    pub(crate) creations: u64,
    pub(crate) threads: u64,
    pub(crate) ring_full: u64,
    pub(crate) live_full: u64,
    pub(crate) calls_full: u64,
    pub(crate) stacks_skipped: u64,
}

macro_rules! pods {
    ($($record:ident,)*) => {
        $(
            // SAFETY: repr(C), integers and byte arrays only, no implicit padding (the C side pads
            // explicitly), so that every bit pattern is one.
            unsafe impl aya::Pod for $record {}
        )*
    };
}

pods! {
    RawPlace,
    RawCreation,
    RawReturnKey,
    RawReturnAt,
    RawAfterFork,
    RawCallKey,
    RawCall,
    RawBlockReads,
    RawTotals,
    RawStackHead,
    RawProgram,
    RawErosionKey,
    RawEroded,
    RawRefusalKey,
    RawRefusals,
    RawRefused,
    RawCaller,
    RawLook,
}

/// The kinds of ring records, and their lengths.
#[cfg(any(fuzzing, test))]
pub(crate) const LENGTHS: [(u32, usize); 5] = [
    (KIND_CREATION, size_of::<RawCreation>()),
    (KIND_STACK, size_of::<RawStackHead>() + STACK_BYTES),
    (KIND_PROGRAM, size_of::<RawProgram>()),
    (KIND_REFUSED, size_of::<RawRefused>()),
    (KIND_CALLER, size_of::<RawCaller>()),
];

/// One item of the ring.
#[derive(Debug)]
pub(crate) enum RingItem<'a> {
    Creation(Box<RawCreation>),
    Stack(RawStackHead, &'a [u8]),
    Program(Box<RawProgram>),
    Refused(Box<RawRefused>),
    Caller(Box<RawCaller>),
}

fn read<T: aya::Pod>(bytes: &[u8]) -> Option<T> {
    let head = bytes.get(..size_of::<T>())?;
    // SAFETY: `head` is as long as T, and T is plain old data for which every bit pattern is valid.
    Some(unsafe { head.as_ptr().cast::<T>().read_unaligned() })
}

impl<'a> RingItem<'a> {
    /// `None` for a record of another kind or length.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        match read::<u32>(bytes)? {
            KIND_CREATION if bytes.len() == size_of::<RawCreation>() => {
                Some(RingItem::Creation(Box::new(read(bytes)?)))
            }
            KIND_PROGRAM if bytes.len() == size_of::<RawProgram>() => {
                Some(RingItem::Program(Box::new(read(bytes)?)))
            }
            KIND_REFUSED if bytes.len() == size_of::<RawRefused>() => {
                Some(RingItem::Refused(Box::new(read(bytes)?)))
            }
            KIND_CALLER if bytes.len() == size_of::<RawCaller>() => {
                Some(RingItem::Caller(Box::new(read(bytes)?)))
            }
            KIND_STACK if bytes.len() == size_of::<RawStackHead>() + STACK_BYTES => {
                let head: RawStackHead = read(bytes)?;
                let top = &bytes[size_of::<RawStackHead>()..];
                let valid = (head.bytes as usize).min(STACK_BYTES);
                Some(RingItem::Stack(head, &top[..valid]))
            }
            _ => None,
        }
    }
}

/// NUL-separated arguments, and whether they were cut. The kernel stores each argument with its
/// NUL, so a list that does not end in NUL was cut.
pub(crate) fn arguments(bytes: &[u8]) -> (Vec<String>, bool) {
    let words = match bytes {
        [] => Vec::new(),
        bytes => bytes
            .strip_suffix(&[0])
            .unwrap_or(bytes)
            .split(|&b| b == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
    };
    (words, bytes.last().is_some_and(|&last| last != 0))
}

/// Text up to the first NUL; bytes that are not UTF-8 are replaced, since people read it.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_foreign_kind_or_length_are_refused() {
        assert!(RingItem::decode(&[]).is_none());
        assert!(RingItem::decode(&9u32.to_ne_bytes()).is_none());
        let mut short = vec![0u8; size_of::<RawCreation>() - 1];
        short[..4].copy_from_slice(&KIND_CREATION.to_ne_bytes());
        assert!(RingItem::decode(&short).is_none());
    }

    #[test]
    fn a_stack_that_claims_more_bytes_than_it_has_is_cut() {
        let mut bytes = vec![0u8; size_of::<RawStackHead>() + STACK_BYTES];
        bytes[..4].copy_from_slice(&KIND_STACK.to_ne_bytes());
        bytes[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        match RingItem::decode(&bytes) {
            Some(RingItem::Stack(_, top)) => assert_eq!(top.len(), STACK_BYTES),
            other => panic!("not a stack: {other:?}"),
        }
    }

    #[test]
    fn the_mirrors_have_no_hidden_padding() {
        assert_eq!(size_of::<RawPlace>(), 32);
        assert_eq!(size_of::<RawProgram>(), 8 + 8 + 8 + 16 + PATH_BYTES + ARGV_BYTES);
        assert_eq!(
            size_of::<RawCreation>(),
            8 + 8 * 8 + 32 + 15 * 8 + 16 * 4 + 3 * 8 + 32 + 2 * PATH_BYTES + ARGV_BYTES
        );
        assert_eq!(size_of::<RawStackHead>(), 8 + 32 + 32 + 16);
        let frames = LOOK_FRAMES * (8 + FRAME_BYTES);
        assert_eq!(size_of::<RawCaller>(), 5 * 8 + (2 + LOOK_WORDS) * 8 - 8 + STRUCTURE_BYTES + frames);
        assert_eq!(size_of::<RawLook>(), (6 + LOOK_WORDS) * 8);
        assert_eq!(size_of::<RawCallKey>(), 24);
        assert_eq!(size_of::<RawRefusalKey>(), 32 + 8);
        assert_eq!(size_of::<RawRefused>(), 8 + 40 + 7 * 8 + 8 + 16);
    }
}
