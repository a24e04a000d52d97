//! `forkless bench`: the suites of `forkless-bench`, their flags, and how results reach the
//! terminal and files.

#[cfg(target_os = "linux")]
mod against;
mod all;
#[cfg(target_os = "linux")]
mod blockwrite;
mod common;
mod context;
mod cow;
mod machine;
mod memory;
mod parent;
mod progress;
mod selfcheck;
mod spawn;
mod suite;
mod syscalls;
#[cfg(target_os = "linux")]
mod victims;

use std::io::{IsTerminal as _, Write as _};

use clap::Subcommand;
use forkless_lab::SUITES;
#[cfg(target_os = "linux")]
use forkless_lab::reproduce::green::{self, How};

pub(crate) use self::common::{BENCH, from_library};
#[cfg(target_os = "linux")]
pub(crate) use self::common::{Output, guard, may_install, measure_plain};
#[cfg(target_os = "linux")]
pub(crate) use self::progress::Progress;

use crate::exit::Exit;

/// Flags of `forkless bench`.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  forkless bench spawn --rss 1G --fds 10000\n  forkless bench spawn --against ./forkless-before --fail-on-regression 10\n  forkless bench memory --pages all --html memory.html\n  \
    forkless bench all --quick --no-save --json -\n\nExit codes: 0 measured; 1 a measurement failed, a regression beyond --fail-on-regression, or what --fail-on-miss or selfcheck \
    say; 2 usage; 3 memory, a privilege or a facility is missing, and nothing was measured."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Time ways to start a program: vfork, posix_spawn, fork, system, popen and others,
    /// interleaved.
    Spawn(Box<suite::Args<spawn::Flags>>),
    /// Time process creation against the parent's memory: size, share written, kind of pages;
    /// fork's time in parts, fitted lines.
    Memory(Box<suite::Args<memory::Flags>>),
    /// Time a parent's passes over its memory before and after a fork.
    Cow(Box<suite::Args<cow::Flags>>),
    /// Time single system calls by libc, raw and by vDSO, process creation in parts and as a whole,
    /// and the cost of a tracer.
    Syscalls(Box<suite::Args<syscalls::Flags>>),
    /// Time context switches with and without system calls, and local time with and without TZ.
    Context(Box<suite::Args<context::Flags>>),
    /// Time writes by block size on a scratch file, a loop device and a mapped volume, and count
    /// the reads that they cause.
    #[cfg(target_os = "linux")]
    Blockwrite(Box<suite::Args<blockwrite::Flags>>),
    /// Time real programs with and without `forkless run`: interpreters, servers, make, git.
    #[cfg(target_os = "linux")]
    Victims(Box<victims::Args>),
    /// Run several of these suites one after the other, as one result.
    All(Box<all::Args>),
    /// Check the bench itself: compare a method with itself, and with itself slowed down, many
    /// times.
    Selfcheck(selfcheck::Args),
    /// Print the description of this machine that every result carries.
    Machine(machine::Args),
    /// Undo announced changes when standard input ends; started by the suites, not by users.
    #[command(hide = true)]
    Guard,
    /// Run a program that ends when standard input does; started by the suites, not by users.
    #[command(hide = true)]
    #[cfg(target_os = "linux")]
    Keep(victims::KeepArgs),
    /// A tokio server that starts programs with `pre_exec`; started by the suite victims, not by
    /// users.
    #[command(hide = true)]
    #[cfg(target_os = "linux")]
    TokioServer(victims::TokioServerArgs),
    /// Fork and execute as standard input asks; started under `forkless run` by suites, not by
    /// users.
    #[command(hide = true)]
    #[cfg(target_os = "linux")]
    Forker,
    /// Two green threads, one pushing and one popping; started by `forkless reproduce`, not by
    /// users.
    #[command(hide = true)]
    #[cfg(target_os = "linux")]
    GreenThreads {
        /// How they are switched: ucontext or setjmp.
        #[arg(value_parser = |name: &str| name.parse::<How>())]
        how: How,
        /// Pushes, and as many pops.
        operations: u64,
    },
}

impl Suite {
    /// Whether it measures in this process what nobody gave the library. `victims` starts its
    /// programs with and without it, and hidden subcommands are started as they are to be.
    #[cfg(target_os = "linux")]
    fn is_plain(&self) -> bool {
        matches!(
            self,
            Suite::Spawn(_)
                | Suite::Memory(_)
                | Suite::Cow(_)
                | Suite::Syscalls(_)
                | Suite::Context(_)
                | Suite::Blockwrite(_)
                | Suite::All(_)
                | Suite::Selfcheck(_)
        )
    }
}

/// Runs the chosen suite.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    #[cfg(target_os = "linux")]
    if args.suite.is_plain() {
        measure_plain()?;
    }
    match args.suite {
        Suite::Spawn(args) => spawn::run(&args),
        Suite::Memory(args) => suite::run(&args),
        Suite::Cow(args) => suite::run(&args),
        Suite::Syscalls(args) => suite::run(&args),
        Suite::Context(args) => suite::run(&args),
        #[cfg(target_os = "linux")]
        Suite::Victims(args) => victims::run(&args),
        #[cfg(target_os = "linux")]
        Suite::Blockwrite(args) => suite::run(&args),
        Suite::All(args) => all::run(&args),
        Suite::Selfcheck(args) => selfcheck::run(&args),
        Suite::Machine(args) => machine::run(&args),
        Suite::Guard => {
            let said = forkless_bench::guard::serve(std::io::stdin().lock(), &SUITES.undos());
            let mut errors = std::io::stderr();
            // Over what is left of a progress bar.
            let bar = if errors.is_terminal() { "\r\x1b[2K" } else { "" };
            for line in said {
                // The terminal may be gone with the process that was killed.
                let _ = writeln!(errors, "{bar}forkless: {line}");
            }
            Ok(Exit::Fine)
        }
        #[cfg(target_os = "linux")]
        Suite::Forker => {
            forkless_bench::under_run::serve(std::io::stdin().lock(), std::io::stdout().lock(), SUITES)?;
            Ok(Exit::Fine)
        }
        #[cfg(target_os = "linux")]
        Suite::GreenThreads { how, operations } => {
            green::main(how, operations).map_err(from_library)?;
            Ok(Exit::Fine)
        }
        #[cfg(target_os = "linux")]
        Suite::TokioServer(args) => victims::serve_tokio(args),
        #[cfg(target_os = "linux")]
        Suite::Keep(args) => Ok(victims::keep(&args)),
    }
}
