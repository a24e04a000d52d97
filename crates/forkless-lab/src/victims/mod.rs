//! The `victims` suite: real programs with and without `forkless run`, interleaved in one run.
//!
//! Rows are the measurements, by method: `plain`, `run`, and where there is one the yardstick, such
//! as `vfork` or `small`, the same program without the memory. Checks are figures made of them,
//! with a verdict where `run` could make a program slower; derived figures have none. Every figure
//! about `run` needs evidence from the record that the library counts into: without it the check is
//! *not shown*, whatever the clock said. A victim that needs something that the machine lacks is
//! *skipped*, with the reason.
//!
//! The victims are programs as they come: interpreters and servers of the system, and one C program
//! compiled on the spot (`stage.rs`). Each is a process that takes orders (`coprocess.rs`), so that
//! all of them hold their memory at the same time and take turns. All are [kept](crate::subreaper):
//! nothing survives the suite.

pub(crate) mod apache;
mod calls;
pub(crate) mod coprocess;
mod forks;
mod gunicorn;
pub(crate) mod kept;
mod launch;
mod parents;
pub(crate) mod redis;
pub(crate) mod server;
pub(crate) mod stage;
mod tokio;
pub mod tokio_server;

use std::path::PathBuf;

use forkless_bench::check::CheckVerdict;
use forkless_bench::engine::{Observer, Schedule};
use forkless_bench::error::Error;
use forkless_bench::guard::Guard;
use forkless_bench::noise::NoiseSnapshot;
use forkless_bench::registry::{Columns, Registration};
use forkless_bench::results::Suite;
use stage::Stage;

/// The suite for those that show it.
pub const SUITE: Registration = Registration {
    name: crate::VICTIMS,
    columns: Columns::Rows { subject: "victim" },
    plots: &[],
    ..Registration::DEFAULT
};

/// What to measure, and with what.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Words that a victim's name must contain; all when empty.
    pub filter: Vec<String>,
    /// Length and density for each victim.
    pub schedule: Schedule,
    /// The `forkless` command.
    pub forkless: PathBuf,
    /// Whether missing programs may be installed (by apt-get, as root).
    pub install: bool,
    /// Smaller parents and fewer hosts, for a rough answer.
    pub quick: bool,
    /// The most memory that a parent holds, in bytes.
    pub rss: Option<u64>,
    /// Threads of the tokio server.
    pub threads: usize,
}

/// A victim: its name, what it does, and how it is measured.
struct Victim {
    name: &'static str,
    about: &'static str,
    measure: fn(&'static str, &mut Stage<'_>) -> Result<(), Error>,
}

const fn victim(
    name: &'static str,
    about: &'static str,
    measure: fn(&'static str, &mut Stage<'_>) -> Result<(), Error>,
) -> Victim {
    Victim { name, about, measure }
}

const VICTIMS: &[Victim] = &[
    victim("c-64M", "C, fork+exec+wait, 64 MB, against vfork+execve of the same program", parents::c::<64>),
    victim("c-1G", "the same, 1 GB", parents::c::<1024>),
    victim("c-4G", "the same, 4 GB", parents::c::<4096>),
    victim("c-8G", "the same, 8 GB", parents::c::<8192>),
    victim(
        "c-pass",
        "C, a write to every page after fork+exec, 4 GB, against one without a fork",
        forks::pass,
    ),
    victim("perl-system", "Perl's system, 1 GB", parents::perl),
    victim("python-preexec", "Python's subprocess with preexec_fn, 1 GB", parents::python),
    victim("python-busy", "the same beside threads that compute", parents::python_busy),
    victim("gunicorn-gthread", "the same in gunicorn's worker with threads, by a request", gunicorn::gthread),
    victim("node-spawnsync", "Node.js's spawnSync, 1 GB of Buffers; also --fork=speculate", parents::node),
    victim("node-heap", "the same, a quarter of it JavaScript objects", parents::node_heap),
    victim(
        "tokio-preexec",
        "a tokio server with pre_exec, 8 GB, 32 threads, and its requests",
        tokio::pre_exec,
    ),
    victim("java-fork", "Java with launchMechanism=FORK, 1 GB", parents::java),
    victim("ruby-root", "Ruby as root, 500 MB: system, spawn, backticks, fork { exec }", parents::ruby),
    victim("apache-cgi", "requests to Apache with 100,000 hosts, mod_cgi under prefork", apache::cgi),
    victim("apache-cgid", "the same with mod_cgid", apache::cgid),
    victim("apache-thp", "its fork call, --fork=off --huge-pages=thp", apache::thp),
    victim("apache-hugetlb", "its fork call, --fork=off --huge-pages=hugetlb", apache::hugetlb),
    victim("worker", "a fork that never execs, 1 GB: at first, and afterwards", forks::worker::<false>),
    victim("worker-threads", "the same in a process with threads", forks::worker::<true>),
    victim("close-loop", "C, fork, 2^20 closes, exec, 64 MB: speculated, and left alone", forks::close_loop),
    victim("malloc-stall", "longest wait for malloc in another thread, 1 GB, --fork=speculate", forks::stall),
    victim("system", "system() of a simple line", calls::system),
    victim("popen", "popen() of a simple line", calls::popen),
    victim("sh-exec", "sh -c 'exec PROGRAM', executed after vfork", calls::sh_exec),
    victim("sh-spawn", "the same by posix_spawn", calls::sh_spawn),
    victim("redis-bgsave", "redis's fork for BGSAVE, 2 GB, --huge-pages=thp", redis::bgsave),
    victim("swapcontext", "a switch by swapcontext, --context=fast", calls::swapcontext),
    victim("localtime", "localtime(), --tz", calls::localtime),
    victim("small-shell", "a script of 1,000 commands, and what each costs more", launch::shell),
    victim("small-make", "make -j2 of a C project: the same", launch::make),
    victim("small-git", "git commands: the same", launch::git),
    victim("load", "what the library adds to the start of a program, beyond an empty one", launch::load),
    victim("start", "what `forkless run` itself takes to start a program", launch::start),
    victim("break-even", "the size from which speculation pays", forks::break_even),
];

/// Names and descriptions of all victims, in the order measured.
#[must_use]
pub fn list() -> Vec<(&'static str, &'static str)> {
    VICTIMS.iter().map(|victim| (victim.name, victim.about)).collect()
}

/// Measures the chosen victims one after the other; the methods of each are interleaved.
///
/// # Errors
/// [`Error::Spec`] when the filter leaves no victim; [`Error::Missing`] when `forkless run` does
/// not work here at all. A victim that cannot be measured is a check that says why.
pub fn run(spec: &Spec, guard: &mut Guard, observer: &mut dyn Observer) -> Result<Suite, Error> {
    let chosen = |victim: &&Victim| {
        spec.filter.is_empty() || spec.filter.iter().any(|word| victim.name.contains(word.as_str()))
    };
    let victims: Vec<&Victim> = VICTIMS.iter().filter(chosen).collect();
    if victims.is_empty() {
        return Err(Error::Spec("--filter leaves no victim: --list names them".into()));
    }
    let watch = NoiseSnapshot::start();
    let mut stage = Stage::new(spec, guard, observer, victims.len())?;
    stage.try_run()?;
    for victim in victims {
        let result = (victim.measure)(victim.name, &mut stage);
        match result {
            Ok(()) => {}
            Err(Error::Missing(why)) => stage.unmeasured(victim.name, CheckVerdict::Skipped, &why),
            // One victim that cannot be started must not cost the figures of the others.
            Err(error) => stage.unmeasured(victim.name, CheckVerdict::NotShown, &error.to_string()),
        }
        stage.next();
    }
    let (mut suite, steady) = stage.finish();
    suite.noise = watch.finish(steady.first());
    suite.notes.extend(suite.noise.warnings());
    Ok(suite)
}
