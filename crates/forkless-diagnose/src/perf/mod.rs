//! The tier without BPF but with perf_event_open(2): process creations, execs and exits as the kernel records them, one's
//! own processes without any privilege (perf_event_paranoid up to 2), everybody's with CAP_PERFMON.
//!
//! What it asks for, each where it is permitted, and what is then known:
//! - task records: every creation, exec and exit of the watched, counted exactly as long as nothing is lost;
//! - page faults in user mode: whether a creation copied memory, and its place (see `follow`);
//! - the tracepoints task_newtask and percpu_alloc_percpu, if tracefs can be read: flags, place, and time of the copy;
//! - the CPU clock in the kernel, where the tracepoints are not to be had: how long creations take on average.
//!
//! Never seen by it: system calls, failed execs, exit statuses, write-protect faults told from others, how long a vfork's
//! caller waited.

mod follow;
mod open;
mod record;
mod tracepoint;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) use self::follow::CpuSamples;
use self::follow::Follow;
pub(crate) use self::open::{CLOCK_PERIOD, refused};
use self::open::{Opener, Ring};
use self::record::{PerfRecord, Source, What};
use crate::creation::Creation;
use crate::error::WatchError;
use crate::procfs;
use crate::target::Target;
use crate::watch::{Event, Totals, exited_unreaped};

/// After a wake-up: let more records come, so that a busy creator does not wake us for each.
const GATHER: Duration = Duration::from_micros(200);
/// Between looks at rings that poll(2) cannot wait for.
const HUNG_UP: Duration = Duration::from_millis(5);
/// A record's time is taken before it is in the ring: younger ones may still be overtaken.
const SETTLE_NS: u64 = 1_000_000;

/// A watch through perf events.
#[derive(Debug)]
pub(crate) struct PerfWatch {
    rings: Vec<Ring>,
    follow: Follow,
    /// Records that are too young to be put in order.
    waiting: Vec<PerfRecord>,
    own: u32,
    command: Option<Child>,
    sees: Sees,
}

/// What is permitted here beyond the task records.
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
    /// Opens what is permitted, then starts the command if the target is one.
    ///
    /// # Errors
    /// [`WatchError::NotPermitted`] if not even the task records are, [`WatchError::Command`] if the command cannot be run.
    pub(crate) fn start(target: &Target) -> Result<Self, WatchError> {
        let resolved = target.resolve()?;
        let opener = Opener::new(target, &resolved)?;
        let mut rings =
            opener.open(Source::Tasks).map_err(|e| WatchError::NotPermitted { why: open::refusal(&e) })?;
        let mut add = |source| opener.open(source).map(|more| rings.extend(more)).is_ok();
        let mut sees = Sees { faults: add(Source::Faults), ..Sees::default() };
        if let Some((id, flags)) = tracepoint::task_newtask() {
            sees.tasks = add(Source::NewTask { id, flags });
        }
        if sees.tasks
            && let Some(id) = tracepoint::id("percpu", "percpu_alloc_percpu")
        {
            sees.copies = add(Source::Allocations { id });
        }
        if sees.faults && !sees.tasks {
            add(Source::FaultStacks);
        }
        let mut kernel_clone = None;
        if !sees.copies {
            kernel_clone = tracepoint::kernel_symbol("kernel_clone");
            sees.clock = kernel_clone.is_some() && add(Source::Clock);
        }
        let mut watch = Self {
            rings,
            follow: Follow::new(kernel_clone),
            waiting: Vec::new(),
            own: std::process::id(),
            command: None,
            sees,
        };
        if let Some(argv) = &resolved.command {
            let (program, arguments) = argv.split_first().ok_or(WatchError::EmptyCommand)?;
            // Events of this thread are inherited by what it starts now; they begin to count at its exec.
            let child = Command::new(program).args(arguments).spawn();
            watch.command = Some(child.map_err(|source| WatchError::Command {
                program: program.to_string_lossy().into_owned(),
                source,
            })?);
        }
        Ok(watch)
    }

    /// What cannot be seen, for the report.
    pub(crate) fn limits(&self) -> Vec<String> {
        let mut limits = vec![
            "watched by perf events: system calls, failed execs, exit statuses and copy-on-write faults are not seen, the command lines of shells that end at once may be missed".to_owned(),
        ];
        if !self.sees.tasks {
            limits.push(if self.sees.faults {
                "no tracepoints (tracefs unreadable or CAP_PERFMON missing): full forks are told by their child's page faults, calls sharing memory are not told apart".to_owned()
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

    /// Records that were lost besides those that count: without them a full fork may pass for one that shares memory.
    pub(crate) fn lost_samples(&self) -> u64 {
        self.follow.lost_samples
    }

    pub(crate) fn command_ended(&self) -> bool {
        self.command.as_ref().is_some_and(exited_unreaped)
    }

    /// The number of the command, if the target is one.
    pub(crate) fn command_pid(&self) -> Option<u32> {
        self.command.as_ref().map(Child::id)
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

    /// Waits up to `timeout` and hands over what has come to its end. A signal ends the wait early.
    ///
    /// # Errors
    /// [`WatchError::Wait`] if poll(2) fails.
    pub(crate) fn poll(&mut self, timeout: Duration, mut sink: impl FnMut(Event)) -> Result<(), WatchError> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // Without a look at the clock a busy ring would keep us here for ever.
            if !self.wait(left)? || left.is_zero() || self.command_ended() {
                self.drain(&mut sink);
                return Ok(());
            }
            std::thread::sleep(GATHER.min(left));
            self.drain(&mut sink);
        }
    }

    /// True if there was something before the time was over.
    fn wait(&self, wanted: Duration) -> Result<bool, WatchError> {
        let mut fds: Vec<PollFd<'_>> =
            self.rings.iter().map(|ring| PollFd::from_borrowed_fd(ring.fd(), PollFlags::IN)).collect();
        let timeout = Timespec {
            tv_sec: i64::try_from(wanted.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wanted.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => Ok(false),
            Ok(_) if fds.iter().any(|fd| fd.revents().contains(PollFlags::IN)) => Ok(true),
            // The events of a thread that has ended are hung up from then on (perf_poll() in kernel/events/core.c), also when its
            // children go on to write into its ring: poll returns at once, over and over, and says nothing.
            Ok(_) => {
                std::thread::sleep(wanted.min(HUNG_UP));
                Ok(false)
            }
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(WatchError::Wait(errno.into())),
        }
    }

    /// Takes in what is old enough to be in order; everything once the command is over and nothing more will come.
    fn drain(&mut self, sink: &mut impl FnMut(Event)) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let mut horizon = (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).saturating_sub(SETTLE_NS);
        if self.command_ended() {
            horizon = u64::MAX;
        }
        for ring in &mut self.rings {
            let source = ring.source;
            while let Some(mut record) = ring.next() {
                if let What::Exec { argv, .. } = &mut record.what {
                    *argv = procfs::arguments(record.process);
                }
                if let What::Fork { child, child_process } = record.what
                    && child == child_process
                {
                    self.follow.meet(record.process);
                }
                match record {
                    PerfRecord { what: What::Lost(count), .. } if source == Source::Tasks => {
                        self.follow.lost(count);
                    }
                    PerfRecord { what: What::Lost(count), .. } if source == Source::Faults => {
                        self.follow.lost_samples += count;
                    }
                    // Stacks and CPU samples are samples anyway.
                    PerfRecord { what: What::Lost(_), .. } => {}
                    // 0: the idle task, or a process that our pid namespace does not have.
                    record if record.process != self.own && record.process != 0 => self.waiting.push(record),
                    _ => {}
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
