//! Data that every tier reports: creations and stacks one by one, everything else as sums. Nothing
//! is interpreted here.

use forkless_frames::{Look, Moment};

use crate::creation::{Creation, Place, ProgramKey};
use crate::program::KnownProgram;
use crate::refusal::RefusedCreation;
use crate::ring::{self, NR_EROSION, RawCall, RawCallKey, RawCaller, RawProgram, RawStackHead};

/// One report of a watch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A creation. Its child has ended and its caller has run on.
    Created(Box<Creation>),
    /// The top of the stack at a system call.
    Stack(StackTop),
    /// The caller of a creation that is about to be made.
    Caller(Box<CreatingThread>),
    /// The program that a creating process is, before its first creation is reported.
    Program(SeenProgram),
    /// A creation that the kernel has refused. Of many at one place only some are reported.
    Refused(Box<RefusedCreation>),
}

/// A thread that creates a process. What its interpreter runs can be read while it waits, or of the
/// memory that was copied at the creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatingThread {
    pub(crate) pid: u32,
    /// 0 where the tier does not tell.
    pub(crate) thread: u32,
    pub(crate) stack_pointer: u64,
    /// As in its [`Creation`](crate::Creation); 0 where the tier does not tell.
    pub(crate) asked: u64,
    /// What was copied, if it was known what to copy.
    pub(crate) moment: Option<Moment>,
    /// The creations of its place that this one stands for: only some are reported.
    pub(crate) stands_for: u64,
}

impl CreatingThread {
    pub(crate) fn from_raw(raw: &RawCaller) -> Self {
        let frames = raw.frame.iter().take(raw.frames as usize);
        let moment = (raw.frames > 0).then(|| Moment {
            stack_pointer: raw.sp,
            first: raw.first,
            words: raw.word,
            structure: raw.structure.to_vec(),
            frames: frames.map(|frame| (frame.at, frame.bytes.to_vec())).collect(),
        });
        Self {
            pid: raw.tgid,
            thread: raw.tid,
            stack_pointer: raw.sp,
            asked: raw.asked,
            moment,
            stands_for: raw.stands_for,
        }
    }
}

/// Where a thread's interpreter has its frames: what is to be copied at its creations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadLook {
    pub(crate) thread: u32,
    /// As in [`ProgramKey`].
    pub(crate) image: u64,
    pub(crate) look: Look,
}

/// A program as it was at a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenProgram {
    pub(crate) key: ProgramKey,
    pub(crate) known: KnownProgram,
    /// Whether its arguments were too long to be seen in whole.
    pub(crate) cut: bool,
}

impl SeenProgram {
    pub(crate) fn from_raw(raw: &RawProgram) -> Self {
        let bytes = &raw.argv[..(raw.argv_bytes as usize).min(raw.argv.len())];
        let (arguments, cut) = ring::arguments(bytes);
        let path = ring::text(&raw.path);
        let known = KnownProgram {
            comm: ring::text(&raw.comm),
            path: (!path.is_empty()).then_some(path),
            arguments,
            ..KnownProgram::default()
        };
        Self { key: ProgramKey { pid: raw.tgid, image: raw.image }, known, cut }
    }
}

/// The top of a user stack. It must be unwound while the process exists.
#[derive(Debug, Clone)]
pub struct StackTop {
    /// The place.
    pub place: Place,
    /// Class of the system call, or that of a creation.
    pub class: u16,
    /// Pages or creations that the stack stands for. 0: it says where they come from, and nothing
    /// of their number.
    pub stands_for: u64,
    /// The stack pointer at the system call.
    pub sp: u64,
    /// The frame pointer register.
    pub fp: u64,
    /// The link register; 0 where the architecture has none.
    pub lr: u64,
    /// The bytes from `sp` up.
    pub top: Vec<u8>,
}

impl StackTop {
    /// The stack of a creation, of which nothing was copied.
    #[cfg(test)]
    pub(crate) fn empty(place: Place) -> Self {
        Self {
            place,
            class: crate::ring::CLASS_CREATION,
            stands_for: 1,
            sp: 0,
            fp: 0,
            lr: 0,
            top: Vec::new(),
        }
    }

    pub(crate) fn new(head: &RawStackHead, top: &[u8]) -> Self {
        let mut place = Place::from_raw(&head.place);
        let stands_for =
            if place.nr == NR_EROSION { std::mem::take(&mut place.word) } else { head.stands_for };
        Self {
            place,
            class: head.class as u16,
            stands_for,
            sp: head.sp,
            fp: head.fp,
            lr: head.lr,
            top: top.to_vec(),
        }
    }
}

/// Everything the kernel side counted and lost. `None` is a number that the tier does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    /// Process creations.
    pub creations: u64,
    /// Thread creations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Creations, programs and stacks lost because the ring was full.
    pub lost_ring: u64,
    /// Creations lost because too many children lived at once.
    pub lost_live: u64,
    /// System calls lost because the table of places was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_calls: Option<u64>,
    /// Stacks dropped by the rate limit, or because too many waited for their symbols. Only stacks
    /// are lost by it.
    pub stacks_skipped: u64,
}

impl Totals {
    /// Events that are missing from the counts.
    pub fn lost(&self) -> u64 {
        self.lost_ring + self.lost_live + self.lost_calls.unwrap_or(0)
    }
}

/// System calls of one place and one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallCount {
    pub(crate) key: RawCallKey,
    pub(crate) count: u64,
    /// Calls with the same result as the call before.
    pub(crate) same: u64,
    pub(crate) bytes: u64,
    /// One of the results.
    pub(crate) last: i64,
}

/// Pages that the children of a process have made private at one instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErodedPages {
    pub(crate) creator: ProgramKey,
    pub(crate) ip: u64,
    pub(crate) pages: u64,
}

/// Refused creations of one place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RefusalCount {
    pub(crate) count: u64,
    /// Refusals whose time is known.
    pub(crate) timed: u64,
    /// Their time in the caller, nanoseconds.
    pub(crate) ns: u64,
}

/// Device reads that partial writes caused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlockReads {
    pub(crate) reads: u64,
    /// Reads whose time is known.
    pub(crate) timed: u64,
    /// Time the writers waited for these timed reads, nanoseconds.
    pub(crate) ns: u64,
}

impl CallCount {
    pub(crate) fn sum(key: RawCallKey, values: &[RawCall]) -> Self {
        let sum = |field: fn(&RawCall) -> u64| values.iter().map(field).sum::<u64>();
        Self {
            key,
            count: sum(|c| c.count),
            same: sum(|c| c.same),
            bytes: sum(|c| c.bytes),
            last: values.iter().rfind(|c| c.count > 0).map_or(0, |c| c.last),
        }
    }
}

/// CPU time of a process, in samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuSamples {
    pub(crate) all: u64,
    pub(crate) in_kernel: u64,
    /// Samples below `kernel_clone`, thread creations included.
    pub(crate) creating: u64,
}
