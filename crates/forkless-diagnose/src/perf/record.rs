//! The records of perf_event_open(2) that the perf tier asks for, decoded from their bytes. Nothing
//! is interpreted here.
//!
//! Layouts are those of the manual page, "MMAP layout". All our events set `TID`, `TIME` and
//! `sample_id_all`, so every record that is no sample ends in process, thread and time. The crate
//! perf-event-data is no substitute: it reads user registers even where the kernel wrote none (ABI
//! none, for kernel threads).

use crate::creation::CallerMemory;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;

/// `PERF_RECORD_MISC_COMM_EXEC`: the name was changed by an exec.
const MISC_COMM_EXEC: u16 = 1 << 13;
/// `PERF_CONTEXT_MAX`: addresses of a call chain from here up are markers.
const CONTEXT_MAX: u64 = -4095_i64 as u64;

/// Which event a ring belongs to: it decides how its samples are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PerfSource {
    /// No samples: processes, names and mappings only.
    Tasks,
    /// A page fault in user mode: `IP | TID | TIME | ADDR`.
    Faults,
    /// The same with the stack: also `REGS_USER | STACK_USER`.
    FaultStacks,
    /// The tracepoint task_newtask: `TID | TIME | RAW | REGS_USER | STACK_USER`.
    NewTask {
        /// The tracepoint's number.
        id: u64,
        /// Where `clone_flags` is in the raw data, and how many bytes it has.
        flags: (usize, usize),
    },
    /// The tracepoint percpu_alloc_percpu: `TID | TIME`.
    Allocations {
        /// The tracepoint's number.
        id: u64,
    },
    /// The CPU clock: `TID | TIME | CALLCHAIN`, of the kernel only.
    Clock,
}

/// User registers and the bytes from the stack pointer up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UserStack {
    pub(super) fp: u64,
    /// The link register; 0 where there is none.
    pub(super) lr: u64,
    pub(super) sp: u64,
    pub(super) ip: u64,
    pub(super) top: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PerfRecordKind {
    /// A process or thread `child` of process `child_process` was created. The record lacks the
    /// caller's memory: it is read from /proc as soon as the record leaves the ring.
    Fork { child: u32, child_process: u32, memory: CallerMemory },
    /// The thread exits.
    Exit,
    /// The process became another program of this name. The record lacks the arguments and their
    /// address: they are read from /proc as soon as the record leaves the ring.
    Exec { comm: String, argv: Vec<String>, image: Option<u64> },
    /// The thread has a new name.
    Renamed { comm: String },
    /// A file was mapped executable.
    Map { path: String },
    /// This many records had no room in the ring.
    Lost(u64),
    /// A page fault in user mode.
    Fault { ip: u64, address: u64, stack: Option<UserStack> },
    /// The thread creates a process or thread with these flags.
    NewTask { flags: u64, stack: UserStack },
    /// The thread allocates per-CPU memory, as a new memory descriptor does.
    Allocation,
    /// The thread was running. If it was in the kernel: the kernel addresses, innermost first.
    Running { kernel: Vec<u64> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PerfRecord {
    pub(super) time: u64,
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) what: PerfRecordKind,
}

/// Takes fields off the front of a record's body.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// `REGS_USER` with frame pointer, link register (where there is one), sp and ip asked for,
    /// ascending by their number, then `STACK_USER`.
    fn user_stack(&mut self) -> Option<UserStack> {
        const ABI_NONE: u64 = 0;
        let mut stack = UserStack::default();
        if self.u64()? != ABI_NONE {
            stack.fp = self.u64()?;
            if cfg!(target_arch = "aarch64") {
                stack.lr = self.u64()?;
            }
            (stack.sp, stack.ip) = (self.u64()?, self.u64()?);
        }
        let size = usize::try_from(self.u64()?).ok()?;
        if size > 0 {
            let top = self.bytes(size)?;
            // The number of bytes that could be read follows.
            let valid = usize::try_from(self.u64()?).ok()?;
            stack.top = top.get(..valid)?.to_vec();
        }
        Some(stack)
    }
}

/// Decodes a record from its type, its `misc` bits and its body. `None` for a kind that is not
/// asked for, and for one that is shorter than its kind.
pub(super) fn decode(source: PerfSource, kind: u32, misc: u16, body: &[u8]) -> Option<PerfRecord> {
    if kind == SAMPLE {
        return sample(source, body);
    }
    // The trailer: process, thread, time.
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(16)?)?;
    let mut trailer = Fields(trailer);
    let (process, thread, time) = (trailer.u32()?, trailer.u32()?, trailer.u64()?);
    let mut fields = Fields(body);
    let record = |what| Some(PerfRecord { time, process, thread, what });
    match kind {
        FORK => {
            let (child_process, _parent, child, _parent_thread) =
                (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
            fields.u64()?; // the time once more
            record(PerfRecordKind::Fork { child, child_process, memory: CallerMemory::default() })
        }
        EXIT => {
            let (process, _parent, thread) = (fields.u32()?, fields.u32()?, fields.u32()?);
            fields.bytes(12)?;
            Some(PerfRecord { time, process, thread, what: PerfRecordKind::Exit })
        }
        COMM if misc & MISC_COMM_EXEC != 0 => {
            fields.bytes(8)?;
            let comm = crate::ring::text(fields.0);
            record(PerfRecordKind::Exec { comm, argv: Vec::new(), image: None })
        }
        COMM => {
            fields.bytes(8)?;
            record(PerfRecordKind::Renamed { comm: crate::ring::text(fields.0) })
        }
        MMAP2 => {
            // pid, tid, addr, len, pgoff, device and inode or build id, protection and flags
            fields.bytes(8 + 3 * 8 + 24 + 8)?;
            record(PerfRecordKind::Map { path: crate::ring::text(fields.0) })
        }
        LOST => {
            fields.u64()?;
            record(PerfRecordKind::Lost(fields.u64()?))
        }
        LOST_SAMPLES => record(PerfRecordKind::Lost(fields.u64()?)),
        _ => None,
    }
}

fn sample(source: PerfSource, body: &[u8]) -> Option<PerfRecord> {
    let mut fields = Fields(body);
    let ip = match source {
        PerfSource::Faults | PerfSource::FaultStacks => fields.u64()?,
        _ => 0,
    };
    let (process, thread, time) = (fields.u32()?, fields.u32()?, fields.u64()?);
    let what = match source {
        PerfSource::Tasks => return None,
        PerfSource::Faults => PerfRecordKind::Fault { ip, address: fields.u64()?, stack: None },
        PerfSource::FaultStacks => {
            PerfRecordKind::Fault { ip, address: fields.u64()?, stack: Some(fields.user_stack()?) }
        }
        PerfSource::NewTask { flags: (at, width), .. } => {
            let length = fields.u32()? as usize;
            let raw = fields.bytes(length)?;
            let mut flags = Fields(raw.get(at..)?);
            let flags = if width == 8 { flags.u64()? } else { u64::from(flags.u32()?) };
            PerfRecordKind::NewTask { flags, stack: fields.user_stack()? }
        }
        PerfSource::Allocations { .. } => PerfRecordKind::Allocation,
        PerfSource::Clock => {
            let count = fields.u64()?;
            let chain = (0..count.min(512)).map_while(|_| fields.u64());
            PerfRecordKind::Running { kernel: chain.filter(|address| *address < CONTEXT_MAX).collect() }
        }
    };
    Some(PerfRecord { time, process, thread, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn pair(low: u32, high: u32) -> u64 {
        u64::from(high) << 32 | u64::from(low)
    }

    #[test]
    fn a_fork_names_the_creator_by_its_trailer() {
        let body = words(&[pair(20, 10), pair(20, 11), 99, pair(10, 11), 100]);
        let record = decode(PerfSource::Tasks, FORK, 0, &body).expect("a fork");
        assert_eq!((record.process, record.thread, record.time), (10, 11, 100));
        assert!(
            matches!(record.what, PerfRecordKind::Fork { child: 20, child_process: 20, .. }),
            "{record:?}"
        );
    }

    #[test]
    fn an_exec_is_told_from_a_change_of_name() {
        let mut body = words(&[pair(20, 20)]);
        body.extend(b"true\0\0\0\0");
        body.extend(words(&[pair(20, 20), 7]));
        let renamed = decode(PerfSource::Tasks, COMM, 0, &body).map(|record| record.what);
        assert_eq!(renamed, Some(PerfRecordKind::Renamed { comm: "true".into() }));
        let record = decode(PerfSource::Tasks, COMM, MISC_COMM_EXEC, &body).expect("an exec");
        assert_eq!(record.what, PerfRecordKind::Exec { comm: "true".into(), argv: Vec::new(), image: None });
    }

    #[test]
    fn a_stack_is_as_long_as_the_kernel_could_read() {
        let registers: &[u64] =
            if cfg!(target_arch = "aarch64") { &[0xb, 0xc, 0xa, 0x1] } else { &[0xb, 0xa, 0x1] };
        let body = words(&[&[0x1000, pair(5, 5), 7, 0x2000, 2], registers, &[16, 1, 2, 8]].concat());
        let record = decode(PerfSource::FaultStacks, SAMPLE, 0, &body).expect("a fault");
        let PerfRecordKind::Fault { stack: Some(stack), address: 0x2000, ip: 0x1000 } = record.what else {
            panic!("{record:?}")
        };
        assert_eq!((stack.fp, stack.sp, stack.ip, stack.top.len()), (0xb, 0xa, 0x1, 8));
    }

    #[test]
    fn records_that_end_early_are_refused_whatever_they_claim() {
        let body = words(&[pair(20, 10), pair(20, 11), 99, pair(10, 11), 100]);
        for length in 0..body.len() {
            assert_eq!(decode(PerfSource::Tasks, FORK, 0, &body[..length]), None, "{length} bytes");
        }
        let claims_more = words(&[0x1000, pair(5, 5), 7, 0x2000, 2, 1, 1, 1, u64::MAX]);
        assert_eq!(decode(PerfSource::FaultStacks, SAMPLE, 0, &claims_more), None);
    }

    #[test]
    fn markers_of_a_call_chain_are_no_addresses() {
        let body = words(&[pair(5, 5), 7, 3, -128_i64 as u64, 0xffff_ffff_8100_0000, -512_i64 as u64]);
        let record = decode(PerfSource::Clock, SAMPLE, 0, &body).expect("a sample");
        assert_eq!(record.what, PerfRecordKind::Running { kernel: vec![0xffff_ffff_8100_0000] });
    }
}
