//! The tier that uses perf_event_open(2) instead of BPF. The kernel records process creations,
//! execs and exits: of one's own processes without any privilege (perf_event_paranoid up to 2), of
//! all with CAP_PERFMON.
//!
//! It opens these events, each if permitted, and learns from them:
//! - task records: every creation, exec and exit of the watched processes, exactly as long as
//!   nothing is lost;
//! - page faults in user mode: whether a creation copied memory, and its place (see `follow`);
//! - the tracepoints task_newtask and percpu_alloc_percpu, if tracefs can be read: flags, place,
//!   and time of the copy;
//! - the CPU clock in the kernel, without the tracepoints: the mean time of creations.
//!
//! It never sees system calls, failed execs, exit statuses, write-protect faults apart from others,
//! or the waiting time of a vfork's caller.

mod follow;
mod open;
mod record;
mod tracepoint;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use self::follow::Follow;
pub(crate) use self::open::{CLOCK_PERIOD, refused};
use self::open::{Opener, Ring};
use self::record::{PerfRecord, PerfRecordKind, PerfSource};
use crate::command::Started;
use crate::creation::{CallerMemory, Creation};
use crate::error::WatchError;
use crate::event::{CpuSamples, Event, Totals};
use crate::procfs;
use crate::stack::ReturnAt;
use crate::target::WatchTarget;

/// Decodes bytes as a record of each source. Returns for how many sources they are one.
#[cfg(any(fuzzing, test))]
pub(crate) fn decoded(bytes: &[u8]) -> usize {
    let Some((&[kind, misc], body)) = bytes.split_first_chunk() else { return 0 };
    [
        PerfSource::Tasks,
        PerfSource::Faults,
        PerfSource::FaultStacks,
        PerfSource::NewTask { id: u64::from(misc), flags: (usize::from(misc), 8) },
        PerfSource::Allocations { id: u64::from(misc) },
        PerfSource::Clock,
    ]
    .into_iter()
    .filter(|source| record::decode(*source, u32::from(kind), u16::from(misc) << 8, body).is_some())
    .count()
}

/// Pause after a drain. More records gather, so that a busy creator does not wake us for each.
const GATHER: Duration = Duration::from_micros(200);
/// Time between looks at rings that poll(2) cannot wait for, or that are expected to stay empty.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// A record gets its time before it is in the ring. So a record younger than this may still be
/// overtaken.
const SETTLE: Duration = Duration::from_millis(1);

/// The reason why a wait for records ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WokenBy {
    Records,
    Time,
    Signal,
}

/// A watch through perf events.
#[derive(Debug)]
pub(crate) struct PerfWatch {
    rings: Vec<Ring>,
    follow: Follow,
    /// Records too young to be ordered.
    waiting: Vec<PerfRecord>,
    own: u32,
    command: Option<Started>,
    /// Lets poll(2) wait for the command's end; `None` where pidfd_open is refused.
    command_handle: Option<OwnedFd>,
    sees: Sees,
}

/// The events that are permitted beyond the task records.
#[derive(Debug, Clone, Copy, Default)]
struct Sees {
    faults: bool,
    /// Flags and places by tracepoint.
    tasks: bool,
    /// The copy's time by tracepoint.
    copies: bool,
    clock: bool,
}

impl PerfWatch {
    /// As [`Watch::tell_return`](crate::Watch).
    pub(crate) fn tell_return(&mut self, found: ReturnAt) {
        self.follow.tell_return(found);
    }

    /// Opens the permitted events, then starts the command if the target is a command.
    ///
    /// # Errors
    /// [`WatchError::NotPermitted`] if not even the task records are, [`WatchError::Command`] if
    /// the command cannot be run.
    pub(crate) fn start(target: &WatchTarget) -> Result<Self, WatchError> {
        let resolved = target.resolve()?;
        let opener = Opener::new(target, &resolved)?;
        let mut rings = opener
            .open(PerfSource::Tasks)
            .map_err(|e| WatchError::NotPermitted { why: open::refusal(&e) })?;
        let mut add = |source| opener.open(source).map(|more| rings.extend(more)).is_ok();
        let mut sees = Sees { faults: add(PerfSource::Faults), ..Sees::default() };
        if let Some((id, flags)) = tracepoint::task_newtask() {
            sees.tasks = add(PerfSource::NewTask { id, flags });
        }
        if sees.tasks
            && let Some(id) = tracepoint::id("percpu", "percpu_alloc_percpu")
        {
            sees.copies = add(PerfSource::Allocations { id });
        }
        if sees.faults && !sees.tasks {
            add(PerfSource::FaultStacks);
        }
        let mut kernel_clone = None;
        if !sees.copies {
            kernel_clone = tracepoint::kernel_symbol("kernel_clone");
            sees.clock = kernel_clone.is_some() && add(PerfSource::Clock);
        }
        let mut watch = Self {
            rings,
            follow: Follow::new(kernel_clone),
            waiting: Vec::new(),
            own: std::process::id(),
            command: None,
            command_handle: None,
            sees,
        };
        if let Some(command) = &resolved.command {
            // Events of this thread are inherited by what it starts now; they begin to count at its
            // exec.
            let command = Started::start(command)?;
            let pid = Pid::from_child(&command.child);
            watch.command_handle = pidfd_open(pid, PidfdFlags::empty()).ok();
            watch.command = Some(command);
        }
        Ok(watch)
    }

    /// Facts that cannot be seen, for the report.
    pub(crate) fn limits(&self) -> Vec<String> {
        let mut limits = vec![
            "system calls, failed execs, exit statuses and copy-on-write faults are not seen".to_owned(),
            "the command lines of shells that end at once may be missed".to_owned(),
        ];
        if !self.sees.tasks {
            limits.push(if self.sees.faults {
                "no tracepoints (tracefs unreadable or CAP_PERFMON missing): a full fork is known by its child's page faults, and vfork and clone count as one kind".to_owned()
            } else {
                "neither tracepoints nor page faults may be sampled: full forks cannot be told from vfork and count as sharing memory".to_owned()
            });
        }
        if !self.sees.copies {
            limits.push(if self.sees.clock {
                "the time of a fork is an average of CPU samples".to_owned()
            } else {
                "the time of a fork is predicted from the memory".to_owned()
            });
        }
        limits
    }

    /// Losses other than of task records, for the report.
    pub(crate) fn losses(&self) -> Vec<String> {
        let mut losses = Vec::new();
        if self.follow.lost_samples > 0 {
            losses.push(format!(
                "{} page-fault samples lost: some full forks may count as sharing memory",
                self.follow.lost_samples
            ));
        }
        if self.follow.unpriced > 0 {
            losses.push(format!(
                "the callers of {} full forks had ended before their memory could be read: nothing is known of what these cost",
                self.follow.unpriced
            ));
        }
        losses
    }

    pub(crate) fn command_ended(&self) -> bool {
        self.command.as_ref().is_some_and(Started::has_ended)
    }

    /// How long the command has run, or ran, if the target is one.
    pub(crate) fn command_ran(&self) -> Option<Duration> {
        self.command.as_ref().map(Started::ran)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.follow.totals()
    }

    pub(crate) fn living(&self) -> Vec<Creation> {
        self.follow.living()
    }

    /// CPU samples by process, if the clock may be sampled.
    pub(crate) fn samples(&self) -> impl Iterator<Item = (u32, CpuSamples)> + '_ {
        self.follow.samples().iter().map(|(pid, samples)| (*pid, *samples))
    }

    /// Waits up to `timeout` and hands over the creations that have ended. A signal ends the wait
    /// early.
    ///
    /// # Errors
    /// [`WatchError::Wait`] if poll(2) fails.
    pub(crate) fn poll(&mut self, timeout: Duration, mut sink: impl FnMut(Event)) -> Result<(), WatchError> {
        let until = Instant::now() + timeout;
        loop {
            let ended = self.command_ended();
            let mut left = until.saturating_duration_since(Instant::now());
            if ended {
                left = left.min(LOOK_AGAIN);
            }
            // Young records are taken in even if no more come, while their processes still exist.
            let settling = !self.waiting.is_empty();
            let woken = self.wait(if settling { left.min(SETTLE) } else { left }, ended)?;
            // Drain at once: the process behind the record may be about to end.
            self.drain(&mut sink);
            let goes_on = match woken {
                WokenBy::Records => true,
                WokenBy::Time => settling,
                WokenBy::Signal => false,
            };
            // Without this check of the clock a busy ring would keep us here for ever.
            if left.is_zero() || ended || !goes_on {
                return Ok(());
            }
            if woken == WokenBy::Records {
                std::thread::sleep(GATHER.min(left));
            }
        }
    }

    /// Waits for records and for the command's end, unless the end has been seen.
    fn wait(&self, wanted: Duration, ended: bool) -> Result<WokenBy, WatchError> {
        let mut fds: Vec<PollFd<'_>> =
            self.rings.iter().map(|ring| PollFd::from_borrowed_fd(ring.fd(), PollFlags::IN)).collect();
        if !ended {
            fds.extend(self.command_handle.as_ref().map(|handle| PollFd::new(handle, PollFlags::IN)));
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(wanted.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wanted.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => Ok(WokenBy::Time),
            Ok(_) if fds.iter().any(|fd| fd.revents().contains(PollFlags::IN)) => Ok(WokenBy::Records),
            // poll(2) reports POLLHUP for the events of a thread that has ended (perf_poll() in
            // kernel/events/core.c), though its children may still write into its ring. It would
            // return at once, over and over.
            Ok(_) => {
                std::thread::sleep(wanted.min(LOOK_AGAIN));
                Ok(WokenBy::Time)
            }
            Err(rustix::io::Errno::INTR) => Ok(WokenBy::Signal),
            Err(errno) => Err(WatchError::Wait(errno.into())),
        }
    }

    /// Takes in the records that are old enough to be ordered; all records once the command has
    /// ended.
    fn drain(&mut self, sink: &mut impl FnMut(Event)) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        let mut horizon = now.saturating_sub(SETTLE).as_nanos() as u64;
        if self.command_ended() {
            horizon = u64::MAX;
        }
        // A busy caller's memory is read once.
        let mut memories = HashMap::new();
        // By process: where its last exec of this drain waits. /proc has the arguments of the last
        // one only.
        let mut execs: HashMap<u32, usize> = HashMap::new();
        for ring in &mut self.rings {
            let source = ring.source;
            while let Some(mut record) = ring.next() {
                complete(&mut record, &mut memories);
                match record.what {
                    PerfRecordKind::Lost(count) if source == PerfSource::Tasks => self.follow.lost(count),
                    PerfRecordKind::Lost(count) if source == PerfSource::Faults => {
                        self.follow.lost_samples += count;
                    }
                    // Lost stacks and CPU samples do no harm: they are samples.
                    PerfRecordKind::Lost(_) => {}
                    // Process 0 is the idle task, or a process outside our pid namespace.
                    _ if record.process == self.own || record.process == 0 => {}
                    _ => {
                        self.waiting.push(record);
                        keep_last_exec(&mut self.waiting, &mut execs);
                    }
                }
            }
        }
        self.waiting.sort_by_key(|record| record.time);
        let settled = self.waiting.partition_point(|record| record.time <= horizon);
        for record in self.waiting.drain(..settled) {
            self.follow.take(record, sink);
        }
    }
}

/// Reads what a record lacks from /proc. `memories` has those of the callers seen before.
fn complete(record: &mut PerfRecord, memories: &mut HashMap<u32, CallerMemory>) {
    let process = record.process;
    match &mut record.what {
        PerfRecordKind::Exec { argv, image, .. } => {
            *argv = procfs::arguments(process);
            *image = procfs::arguments_at(process);
        }
        PerfRecordKind::Fork { child, child_process, memory } if child == child_process => {
            *memory = *memories.entry(process).or_insert_with(|| procfs::memory_of(process));
        }
        _ => {}
    }
}

/// If the youngest record is an exec: only the last of its process's execs keeps what /proc said.
/// `execs` has, by process, where that one waits. Rings of several processors are not in order.
fn keep_last_exec(waiting: &mut [PerfRecord], execs: &mut HashMap<u32, usize>) {
    let Some(at) = waiting.len().checked_sub(1) else { return };
    if !matches!(waiting[at].what, PerfRecordKind::Exec { .. }) {
        return;
    }
    let last = execs.entry(waiting[at].process).or_insert(at);
    if *last == at {
        return;
    }
    let is_last = waiting[*last].time < waiting[at].time;
    let earlier = if is_last { std::mem::replace(last, at) } else { at };
    if let PerfRecordKind::Exec { argv, image, .. } = &mut waiting[earlier].what {
        argv.clear();
        *image = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::WatchedCommand;

    /// The third of three execs kept the arguments beside the last one, whose record came first.
    #[test]
    fn one_exec_of_a_process_keeps_what_proc_said() {
        let exec = |process, time: u64| {
            let (comm, argv, image) = (String::new(), vec![time.to_string()], Some(time));
            PerfRecord { time, process, thread: process, what: PerfRecordKind::Exec { comm, argv, image } }
        };
        let (mut waiting, mut execs) = (Vec::new(), HashMap::new());
        for record in [exec(1, 30), exec(2, 5), exec(1, 10), exec(1, 20), exec(2, 6)] {
            waiting.push(record);
            keep_last_exec(&mut waiting, &mut execs);
        }
        let kept = waiting.iter().filter_map(|record| match &record.what {
            PerfRecordKind::Exec { argv, image, .. } if !argv.is_empty() => *image,
            _ => None,
        });
        assert_eq!(kept.collect::<Vec<_>>(), [30, 6]);
    }

    /// A drained record was taken in only with the next record, or at the end of the wait.
    #[test]
    fn a_creation_is_handed_over_while_its_caller_lives() {
        let command = WatchedCommand::new(["sh", "-c", "/bin/true; sleep 1"]);
        let mut watch = match PerfWatch::start(&WatchTarget::Command(command)) {
            Ok(watch) => watch,
            Err(error) => return println!("skipped: {error}"),
        };
        let mut created = None;
        let handed_over = |event| {
            if let Event::Created(creation) = event {
                created.get_or_insert((creation, Instant::now()));
            }
        };
        watch.poll(Duration::from_secs(20), handed_over).expect("poll works");
        watch.command.as_mut().expect("it was started").child.wait().expect("it ended");
        let (creation, at) = created.expect("true was started");
        assert!(at.elapsed() >= Duration::from_millis(500), "only at the end of the watch");
        assert!(creation.memory.anon > 0, "{creation:?}");
    }
}
