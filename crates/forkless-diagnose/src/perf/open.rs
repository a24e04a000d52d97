//! Opens perf events and their rings. Each CPU and kind of event has its own ring: an event that
//! children inherit can have no ring across CPUs (perf_event_mmap in kernel/events/core.c).
//! Dropping a ring closes its events.

#![expect(
    unsafe_code,
    reason = "the ring's descriptor is lent as a number, and PERF_EVENT_IOC_SET_OUTPUT takes one"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use perf_event::events::{Software, Tracepoint};
use perf_event::{Builder, Clock, Counter, SampleFlag, Sampler};
use rustix::thread::CpuSet;

use super::record::{self, PerfRecord, PerfSource};
use crate::error::WatchError;
use crate::target::{ResolvedTarget, WatchTarget};

/// bp, sp and ip: bits 6 to 8 of `enum perf_event_x86_regs`. `Fields::user_stack` takes them apart.
#[cfg(target_arch = "x86_64")]
const USER_REGISTERS: u64 = 0b111 << 6;
/// x29 (the frame pointer), lr, sp and pc: bits 29 to 32 of `enum perf_event_arm_regs`.
#[cfg(target_arch = "aarch64")]
const USER_REGISTERS: u64 = 0b1111 << 29;
/// Enough of a stack for the frames of fork() and some of its callers.
const FAULT_STACK: u32 = 4096;
const TASK_STACK: u32 = 8192;
/// Between two samples, nanoseconds of CPU time.
pub(crate) const CLOCK_PERIOD: u64 = 1_000_000;

/// A ring and the events that write into it.
pub(super) struct Ring {
    pub(super) source: PerfSource,
    sampler: Sampler,
    /// Events of other threads on the same CPU.
    _others: Vec<Counter>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Ring {
    /// The oldest record not yet taken. Unreadable records are skipped.
    pub(super) fn next(&mut self) -> Option<PerfRecord> {
        loop {
            let raw = self.sampler.next_record()?;
            if let Some(record) = record::decode(self.source, raw.ty(), raw.misc(), &raw.to_contiguous()) {
                return Some(record);
            }
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the sampler owns the descriptor and closes it no earlier than the borrow of
        // `self` ends.
        unsafe { BorrowedFd::borrow_raw(self.sampler.as_raw_fd()) }
    }
}

/// The processes that events are opened on.
enum Observed {
    /// These threads, and everything they create from now on.
    Threads(Vec<i32>),
    /// The process that the calling thread starts next, from its exec on.
    NextExec,
    Everybody,
    Cgroup(File),
}

pub(super) struct Opener {
    observed: Observed,
    cpus: Vec<usize>,
}

impl Opener {
    pub(super) fn new(target: &WatchTarget, resolved: &ResolvedTarget) -> Result<Self, WatchError> {
        let observed = match target {
            WatchTarget::All => Observed::Everybody,
            WatchTarget::Command(_) => Observed::NextExec,
            WatchTarget::Pid(_) => {
                Observed::Threads(resolved.pids.iter().flat_map(|pid| threads(*pid)).collect())
            }
            WatchTarget::Cgroup(path) => {
                let directory = resolved.cgroup_directory.as_deref().unwrap_or(path);
                Observed::Cgroup(
                    File::open(directory)
                        .map_err(|e| WatchError::NoCgroup { path: path.clone(), why: e.to_string() })?,
                )
            }
        };
        Ok(Self { observed, cpus: online_cpus()? })
    }

    /// One ring for each CPU, all or none.
    pub(super) fn open(&self, source: PerfSource) -> io::Result<Vec<Ring>> {
        self.cpus.iter().map(|&cpu| self.open_on(cpu, source)).collect()
    }

    fn open_on(&self, cpu: usize, source: PerfSource) -> io::Result<Ring> {
        let (mut builder, kib) = builder(source);
        builder.one_cpu(cpu);
        let size = kib << 10;
        match &self.observed {
            Observed::Everybody => {
                builder.any_pid().enabled(true);
                ring(source, builder.build()?, size)
            }
            Observed::Cgroup(directory) => {
                builder.enabled(true);
                // A builder that borrows the directory cannot be the one made above.
                let mut builder = builder.clone();
                ring(source, builder.observe_cgroup(directory).build()?, size)
            }
            Observed::NextExec => {
                builder.observe_self().inherit(true).enable_on_exec(true);
                ring(source, builder.build()?, size)
            }
            Observed::Threads(threads) => {
                builder.inherit(true).enabled(true);
                of_threads(source, &mut builder, threads, size)
            }
        }
    }
}

fn ring(source: PerfSource, counter: Counter, size: usize) -> io::Result<Ring> {
    Ok(Ring { source, sampler: counter.sampled(size)?, _others: Vec::new() })
}

/// All threads' events on one CPU in one ring; threads that have ended meanwhile are left out.
fn of_threads(
    source: PerfSource,
    builder: &mut Builder<'_>,
    threads: &[i32],
    size: usize,
) -> io::Result<Ring> {
    let mut ring: Option<Ring> = None;
    for &thread in threads {
        let counter = match builder.observe_pid(thread).build() {
            Ok(counter) => counter,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
            Err(error) => return Err(error),
        };
        let Some(ring) = &mut ring else {
            ring = Some(self::ring(source, counter, size)?);
            continue;
        };
        /// `_IO('$', 5)`, linux/perf_event.h.
        const SET_OUTPUT: libc::Ioctl = 0x2405;
        // SAFETY: both are open perf descriptors of ours on the same CPU; the call takes the second
        // as a number.
        if unsafe { libc::ioctl(counter.as_raw_fd(), SET_OUTPUT, ring.sampler.as_raw_fd()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        ring._others.push(counter);
    }
    ring.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// The event of a source, and the size of its ring in KiB. Together the rings stay below the 516
/// KiB a CPU that an unprivileged user may lock (perf_event_mlock_kb).
fn builder(source: PerfSource) -> (Builder<'static>, usize) {
    let mut builder = match source {
        PerfSource::Tasks => Builder::new(Software::DUMMY),
        PerfSource::Faults | PerfSource::FaultStacks => Builder::new(Software::PAGE_FAULTS),
        PerfSource::NewTask { id, .. } | PerfSource::Allocations { id } => {
            Builder::new(Tracepoint::with_id(id))
        }
        PerfSource::Clock => Builder::new(Software::CPU_CLOCK),
    };
    builder.sample(SampleFlag::TID | SampleFlag::TIME).sample_id_all(true).clockid(Clock::MONOTONIC);
    let stack = SampleFlag::REGS_USER | SampleFlag::STACK_USER;
    let kib = match source {
        PerfSource::Tasks => {
            // Each record must wake us: /proc is then asked for what the record lacks, while the
            // process exists. wakeup_events would not do. It counts samples, and this event has
            // none (perf_event_open(2)).
            builder.task(true).comm(true).comm_exec(true).mmap(true).mmap2(true).wakeup_watermark(1);
            128
        }
        PerfSource::Faults => {
            builder.sample_period(1).sample(SampleFlag::IP | SampleFlag::ADDR).wakeup_watermark(128 << 10);
            256
        }
        PerfSource::FaultStacks => {
            builder.sample_period(1).sample(SampleFlag::IP | SampleFlag::ADDR | stack);
            builder
                .sample_regs_user(USER_REGISTERS)
                .sample_stack_user(FAULT_STACK)
                .wakeup_watermark(48 << 10);
            64
        }
        PerfSource::NewTask { .. } => {
            builder.sample_period(1).exclude_kernel(false).sample(SampleFlag::RAW | stack);
            builder
                .sample_regs_user(USER_REGISTERS)
                .sample_stack_user(TASK_STACK)
                .wakeup_watermark(128 << 10);
            256
        }
        PerfSource::Allocations { .. } => {
            builder.sample_period(1).exclude_kernel(false).wakeup_watermark(16 << 10);
            32
        }
        PerfSource::Clock => {
            builder.sample_period(CLOCK_PERIOD).exclude_kernel(false).sample(SampleFlag::CALLCHAIN);
            builder.exclude_callchain_user(true).wakeup_watermark(16 << 10);
            32
        }
    };
    (builder, kib)
}

fn threads(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// The processors that are online. Without /sys (a sandbox) /proc has them.
///
/// Refused where neither says: events on one processor alone would miss the others' creations
/// without a word. In a container both files may count from 0 on (lxcfs), so that the processors
/// that this thread may run on are added: they keep the kernel's numbers.
fn online_cpus() -> Result<Vec<usize>, WatchError> {
    let [list, stat] = [ONLINE, STAT].map(|file| fs::read_to_string(file).unwrap_or_default());
    let own = rustix::thread::sched_getaffinity(None).ok();
    let own = (0..CpuSet::MAX_CPU).filter(|cpu| own.is_some_and(|set| set.is_set(*cpu)));
    let why = || format!("the processors are not known: neither {ONLINE} nor {STAT} can be read");
    watched_cpus(&list, &stat, own).ok_or_else(|| WatchError::Unsupported { why: why() })
}

const ONLINE: &str = "/sys/devices/system/cpu/online";
const STAT: &str = "/proc/stat";

/// `None` if neither text names a processor.
fn watched_cpus(list: &str, stat: &str, own: impl Iterator<Item = usize>) -> Option<Vec<usize>> {
    let mut cpus = cpus_of(list);
    if cpus.is_empty() {
        cpus = cpus_of_stat(stat);
    }
    if cpus.is_empty() {
        return None;
    }
    cpus.extend(own);
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// From the lines `cpuN` of /proc/stat: those online (show_stat() in fs/proc/stat.c).
fn cpus_of_stat(stat: &str) -> Vec<usize> {
    let number = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
    stat.lines().filter_map(number).collect()
}

/// From a list such as `0-3,5`.
fn cpus_of(list: &str) -> Vec<usize> {
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
        })
        .flatten()
        .collect()
}

/// A refusal in words.
pub(super) fn refusal(error: &io::Error) -> String {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "perf_event_open is refused ({error}; kernel.perf_event_paranoid is {}: up to 2 permits one's own processes)",
            paranoid.trim()
        ),
        Some(libc::ENOSYS) => "this kernel has no perf events".to_owned(),
        Some(libc::EMFILE) => format!("too many threads for perf events ({error}): raise ulimit -n"),
        _ => format!("perf_event_open: {error}"),
    }
}

/// Why the task records of one's own processes cannot be had; `None` if they can.
pub(crate) fn refused() -> Option<String> {
    let cpus = match online_cpus() {
        Ok(cpus) => cpus,
        Err(error) => return Some(error.to_string()),
    };
    let opener = Opener { observed: Observed::NextExec, cpus };
    opener.open(PerfSource::Tasks).err().map(|error| refusal(&error))
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// The forks of a program of 15 ms were read only at the timeout. The program was gone, and
    /// their copied memory unknown.
    #[test]
    fn a_record_of_a_task_wakes_who_waits_for_it() {
        let cpus = online_cpus().expect("/proc has the processors");
        let opener = Opener { observed: Observed::NextExec, cpus };
        let rings = match opener.open(PerfSource::Tasks) {
            Ok(rings) => rings,
            Err(error) => return println!("skipped: {}", refusal(&error)),
        };
        let mut child = std::process::Command::new("true").spawn().expect("true runs");
        let mut fds: Vec<PollFd<'_>> =
            rings.iter().map(|ring| PollFd::from_borrowed_fd(ring.fd(), PollFlags::IN)).collect();
        let woken = poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).expect("poll works");
        child.wait().expect("it ends");
        assert!(woken > 0, "nobody was woken for an exec and an exit");
    }

    #[test]
    fn a_list_of_cpus_has_ranges_and_gaps() {
        assert_eq!(cpus_of("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(cpus_of("0\n"), [0]);
    }

    /// Without /sys one processor of 64 was watched, and "0 events lost" was said.
    #[test]
    fn without_sys_the_processors_are_those_of_proc_and_without_both_none_is_guessed() {
        let stat = "cpu  9 0 9\ncpu0 4 0 4\ncpu1 5 0 5\ncpu17 5 0 5\nintr 1 2\nctxt 3\n";
        let of = |list, stat, own: &[usize]| watched_cpus(list, stat, own.iter().copied());
        assert_eq!(of("", stat, &[0]), Some(vec![0, 1, 17]));
        assert_eq!(of("0-3\n", stat, &[1]), Some(vec![0, 1, 2, 3]));
        assert_eq!(of("0-1\n", "", &[4, 5]), Some(vec![0, 1, 4, 5]), "a container's own count");
        assert_eq!(of("", "", &[0]), None);
        let here = online_cpus().expect("/proc has the processors");
        assert!(here.len() >= std::thread::available_parallelism().expect("it runs").get());
        let stat = fs::read_to_string(STAT).expect("it is readable");
        assert!(cpus_of_stat(&stat).iter().all(|cpu| here.contains(cpu)));
    }

    #[test]
    fn an_unprivileged_users_rings_fit_into_what_it_may_lock() {
        let kib: usize = [PerfSource::Tasks, PerfSource::Faults, PerfSource::FaultStacks, PerfSource::Clock]
            .into_iter()
            .map(|source| builder(source).1 + 4)
            .sum();
        assert!(kib <= 516, "{kib} KiB a CPU");
    }
}
