//! The process behind a handle: reaping it, signalling it, and letting go of it.

use crate::error::{SpawnError, WaitError};
use crate::kernel::facilities;
use crate::kernel::process_state;
use crate::plan::Plan;
use crate::reap::timer::ReapTimer;
use crate::reap::{by_pidfd, orphans};
use crate::spec::Spec;
use crate::spec::attributes::OnDrop;
use crate::start::{self, SlotHandle, Started};
use forkless_child::Phase;
use forkless_sys::Errno;
use forkless_sys::process::{self, CLD_DUMPED, CLD_EXITED, CLD_KILLED, WEXITED, WNOHANG};
use forkless_sys::time::Timespec;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The process behind a handle (`Child`), with its drop. A type with a drop of its own would not
/// let its fields be moved out, so `Child` has none.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) pid: i32,
    pub(super) pidfd: Option<OwnedFd>,
    reap_timer: Option<Box<ReapTimer>>,
    /// Present until it is known whether the child has executed the program.
    pub(super) pending: Option<PendingStart>,
    pub(super) pipes: Vec<HeldPipe>,
    pub(super) ended: Option<ExitStatus>,
    /// The child is gone and its status is lost, so its number may be another process's by now.
    pub(super) gone: bool,
    /// Why a non-blocking start failed: every wait says it.
    pub(super) failed: Option<SpawnError>,
    pub(super) on_drop: OnDrop,
    /// The process that started it.
    parent: process_state::Identity,
    pub(super) leads_group: bool,
    /// The start failed since a facility was refused, and the refusal was noted. The same start
    /// made again takes another way.
    pub try_again: bool,
    /// Index of the candidate that was executed, if only the end of the child told it.
    pub tried: Option<u32>,
}

/// The parent's end of a pipe.
#[derive(Debug)]
pub(super) struct HeldPipe {
    /// The child's number.
    pub(super) number: RawFd,
    pub(super) end: OwnedFd,
    pub(super) child_reads: bool,
}

/// A start that may still fail, and the plan that names its steps.
pub(super) struct PendingStart {
    pub(super) slot: SlotHandle,
    plan: Arc<Plan>,
}

impl std::fmt::Debug for PendingStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PendingStart")
    }
}

impl Held {
    pub(super) fn new(spec: &Spec, plan: &Arc<Plan>, started: Started) -> Held {
        let pipe = |(number, end)| HeldPipe { number, end, child_reads: spec.is_read_by_child(number) };
        Held {
            pid: started.pid,
            pidfd: started.pidfd,
            reap_timer: started.reap_timer,
            pending: started.slot.map(|slot| PendingStart { slot, plan: Arc::clone(plan) }),
            pipes: started.pipes.into_iter().map(pipe).collect(),
            ended: None,
            gone: false,
            failed: None,
            on_drop: spec.on_drop,
            try_again: false,
            tried: None,
            parent: process_state::identity(),
            leads_group: spec.leads_group(),
        }
    }

    /// Makes the child one whose pidfd was refused.
    #[cfg(all(test, feature = "tokio"))]
    pub(crate) fn forget_pidfd(&mut self) {
        self.pidfd = None;
    }

    /// Whether this process started the child. It may also be forked from the process that did.
    pub(super) fn is_ours(&self) -> bool {
        self.parent == process_state::identity()
    }

    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        if !signal_exists(signal) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if self.is_over() {
            return Ok(());
        }
        match by_pidfd::signal(self.pid, self.pidfd.as_ref(), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(e) => Err(io::Error::from_raw_os_error(e.raw())),
        }
    }

    pub(super) fn signal_group(&self, signal: i32) -> forkless_sys::Result<()> {
        const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 1 << 2;
        if let Some(fd) = &self.pidfd {
            match process::pidfd_send_signal(fd.as_raw_fd(), signal, PIDFD_SIGNAL_PROCESS_GROUP) {
                // A kernel before 6.9, or a filter. The kernel's own EPERM comes again below.
                Err(Errno::EINVAL | Errno::EPERM | Errno::ENOSYS) if signal_exists(signal) => {}
                sent => return sent,
            }
        }
        let reaped_elsewhere =
            |fd: &OwnedFd| process::pidfd_send_signal(fd.as_raw_fd(), 0, 0) == Err(Errno::ESRCH);
        if self.is_over() || self.pidfd.as_ref().is_some_and(reaped_elsewhere) {
            return Err(Errno::ESRCH);
        }
        process::kill(-self.pid, signal)
    }

    /// Whether the number is the child's no longer: it has been waited for, here or, as its timer
    /// tells, elsewhere.
    fn is_over(&self) -> bool {
        self.ended.is_some() || self.gone || self.reap_timer.as_ref().is_some_and(|timer| timer.is_reaped())
    }

    /// Waits until the child leads its group or session, which is its first action. Returns whether
    /// it does, or is gone.
    ///
    /// False where the child does not get that far, since it was stopped, say. Then it has started
    /// nothing yet, so it is all of its group.
    pub(super) fn will_lead_group(&self, pending: &PendingStart) -> bool {
        const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let leads = || process::getpgid(self.pid) == Ok(self.pid);
        if self.is_over() {
            return true;
        }
        let looks = Cell::new(0);
        let enough = || {
            looks.set(looks.get() + 1);
            leads() || looks.get() > 50
        };
        pending.slot.wait_until(enough, PAUSE);
        leads() || pending.slot.child_has_left()
    }

    /// Waits for the child's end and takes its status. `None` only with `WNOHANG`.
    pub(super) fn reap(&mut self, options: u32) -> Result<Option<ExitStatus>, WaitError> {
        if let Some(e) = &self.failed {
            return Err(WaitError::Start(e.clone()));
        }
        if let Some(status) = self.ended {
            return Ok(Some(status));
        }
        if self.gone {
            return Err(WaitError::Unknown);
        }
        if !self.is_ours() {
            // Only the process that started it can wait for it. By its number it could be a child
            // of this process.
            let no_child = || WaitError::Os(io::Error::from_raw_os_error(libc::ECHILD));
            return self.status_from_pidfd().flatten().map(Some).ok_or_else(no_child);
        }
        let status = loop {
            if self.is_over() {
                break None;
            }
            match by_pidfd::wait(self.pid, self.pidfd.as_ref(), WEXITED | options) {
                Ok(info) if info.pid == 0 => return Ok(None),
                // The child goes on, so the next wait asks again.
                Ok(info) if by_pidfd::is_stop(&info) => return Ok(Some(from_info(info.code, info.status))),
                Ok(info) => break Some(from_info(info.code, info.status)),
                Err(Errno::EINTR) => {}
                // Another wait of this process was first, or the kernel itself, because SIGCHLD is
                // ignored.
                Err(Errno::ECHILD) => break self.kept_status(),
                Err(e) => return Err(WaitError::Os(io::Error::from_raw_os_error(e.raw()))),
            }
        };
        self.gone = true;
        self.ended = status;
        self.reap_timer = None;
        if let Some(pending) = self.pending.take() {
            // The child is gone, so its record is final.
            let result = pending.slot.take_result();
            self.tried = result.tried.and_then(|tried| u32::try_from(tried).ok());
            if let Some(f) = result.failure {
                let e = match f.phase {
                    Phase::Files => {
                        self.try_again = start::note_refusal(result.action.as_ref(), f.errno);
                        start::failed_action(result.action.as_ref(), f.errno)
                    }
                    _ => start::failure(&pending.plan, f),
                }
                .of_child(self.pid);
                self.failed = Some(e.clone());
                return Err(WaitError::Start(e));
            }
        }
        status.map(Some).ok_or(WaitError::Unknown)
    }

    /// The status from the pidfd of a child that can no longer be waited for.
    fn kept_status(&self) -> Option<ExitStatus> {
        // waitid says ECHILD as soon as the child is dead. Its status is on the pidfd a moment
        // later (`release_task`), on a loaded machine after a while.
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            match self.status_from_pidfd() {
                Some(None) if Instant::now() < until => std::thread::sleep(Duration::from_micros(100)),
                kept => return kept?,
            }
        }
    }

    /// `Some(None)` while the child has not been reaped, `None` where the kernel keeps no status.
    fn status_from_pidfd(&self) -> Option<Option<ExitStatus>> {
        let kept = process::pidfd_exit_status(self.pidfd.as_ref()?.as_raw_fd());
        match kept {
            Ok(status) => {
                if status.is_some() {
                    facilities::get().pidfd_info.confirm();
                }
                Some(status.map(ExitStatus::from_raw))
            }
            Err(e) => {
                facilities::get().pidfd_info.refuse(e);
                None
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(pending) = &self.pending {
            pending.slot.abandon();
        }
        if self.is_over() || !self.is_ours() {
            return;
        }
        // Before a wait: a child that has filled one of these pipes would never end.
        self.pipes.clear();
        // A child that may not be killed (it changed its user) must not be waited for either: it
        // goes on, and is reaped at its end.
        let waits = match self.on_drop {
            OnDrop::Wait => true,
            OnDrop::Kill => self.signal(libc::SIGKILL).is_ok(),
            OnDrop::Detach => false,
        };
        // A child that has stopped for a tracer in this process would not end before this thread
        // goes on. That holds for a stop on its way to the end, too.
        let over = loop {
            match by_pidfd::forget_ended(self.pid, self.pidfd.as_ref(), if waits { 0 } else { WNOHANG }) {
                Err(Errno::EINTR) => {}
                over => break over,
            }
        };
        if over == Ok(false) {
            orphans::adopt(self.pid, self.pidfd.take(), self.reap_timer.take());
        }
    }
}

fn signal_exists(signal: i32) -> bool {
    (0..=forkless_sys::signal::MAX_SIGNAL).contains(&signal)
}

/// Turns `waitid`'s code and status into the status word of wait(2).
fn from_info(code: i32, status: i32) -> ExitStatus {
    ExitStatus::from_raw(match code {
        CLD_EXITED => (status & 0xff) << 8,
        CLD_KILLED => status,
        CLD_DUMPED => status | 0x80,
        // A stop. One for a tracer has the event above the signal (ptrace(2)).
        _ => status << 8 | 0x7f,
    })
}
