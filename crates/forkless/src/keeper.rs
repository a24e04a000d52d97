//! Starting children from a thread that lives as long as the process.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that created the child ends (`forget_original_parent`, kernel/exit.c), which is not
//! what anybody means by the parent's death. So a start that asks for it from another thread than the first is handed to this one.
#![expect(unsafe_code, reason = "lends the caller's borrows to a thread the caller waits for")]

use crate::error::{SpawnError, Step as At};
use crate::own;
use crate::start::{self, Request, Started, Until};
use crate::thread;
use forkless_child::Step;
use forkless_sys::sched;
use forkless_sys::signal::SigSet;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// What a child is made on: a start needs little.
const STACK: usize = 256 * 1024;

/// The thread's queue.
pub(crate) type Queue = Sender<Job>;

/// As [`start::start_as`], from the keeper. What Linux keeps for each thread is taken from the caller: its mask, and as steps of the
/// child its affinity, policy and nice value.
pub(crate) fn start(request: Request<'_>, caller_mask: SigSet) -> Result<Started, SpawnError> {
    let mut affinity = vec![0u64; 1 << 10];
    let words = sched::affinity(&mut affinity).unwrap_or(0);
    affinity.truncate(words);
    let affinity: Arc<[u64]> = affinity.into();
    let policy = sched::scheduler().ok();
    let nice = sched::nice().ok();
    // The child reads the affinity from this call's memory, so every start waits for exec here.
    // The child reads the affinity from this call's memory, so every start waits for exec here.
    let request = Request { until: Until::Exec, ..request };
    let (done, result) = channel();
    let job = move || {
        let mask: *const [u64] = &raw const *affinity;
        let mut first: Vec<Step<'static>> = Vec::new();
        if words > 0 {
            // SAFETY: `affinity` lives until the start below has returned, which is after exec.
            first.push(Step::Affinity { mask: unsafe { &*mask } });
        }
        if let Some((policy, priority)) = policy
            && sched::scheduler() != Ok((policy, priority))
        {
            first.push(Step::Scheduler { policy, priority });
        }
        if let Some(value) = nice
            && sched::nice() != Ok(value)
        {
            first.push(Step::Nice { value });
        }
        let _ = done.send(start::start_as(request, caller_mask, &first));
    };
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(job);
    // SAFETY: this function does not return before the job has run or been dropped: `recv` ends with either, since the job owns the
    // sending side. So its borrows are not used afterwards.
    let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
    submit(job)?;
    result.recv().unwrap_or_else(|_| {
        Err(SpawnError::new(At::Clone, String::from("the keeper thread is gone"), libc::EAGAIN))
    })
}

fn submit(job: Job) -> Result<(), SpawnError> {
    let mut keeper = own::state().keeper.lock().unwrap_or_else(PoisonError::into_inner);
    let job = match &*keeper {
        Some(queue) => match queue.send(job) {
            Ok(()) => return Ok(()),
            Err(returned) => returned.0,
        },
        None => job,
    };
    let (queue, jobs) = channel::<Job>();
    thread::start("forkless-keeper", STACK, move || jobs.iter().for_each(|job| job())).map_err(|e| {
        let what = String::from("keeper thread for the parent death signal");
        SpawnError::new(At::Clone, what, e.raw_os_error().unwrap_or(libc::EAGAIN))
    })?;
    let sent = queue.send(job).is_ok();
    debug_assert!(sent, "the thread holds the other side");
    *keeper = Some(queue);
    Ok(())
}
