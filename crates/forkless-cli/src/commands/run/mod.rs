//! `forkless run`: prepares the environment the preloaded library reads, then executes the program in this very process: its
//! status, signals and terminal are the program's own. What the library does is in `crates/forkless-preload`.

mod collector;
mod environment;
mod exec;
mod huge_pages;
pub(super) mod inherited;
pub(super) mod library;
mod record;
mod report;
pub(super) mod shell;
mod target;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::args;
use crate::exit::Exit;

/// Run a program unmodified, without the cost of its forks.
///
/// The program is executed in this process, under a preloaded library. Its forks become speculative: the child runs on almost
/// no copied memory, execve commits, and anything that another process could notice aborts to a real fork. Lines of system() and
/// popen() run without their shell where that is provably the same.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "forkless run [OPTIONS] [--] <PROGRAM> [ARGS]...",
    after_help = "Examples:\n  forkless run --report -- perl script.pl\n  forkless run --fork=speculate -- node server.js\n  \
    forkless run --fork=off --huge-pages=thp -- redis-server\n\nExit status: the program's own; 125 when forkless itself fails, 126 when the program cannot be executed, 127 \
    when it is not found. FORKLESS=off in the environment leaves everything as it is."
)]
pub(crate) struct Args {
    /// Speculative fork: in processes with one thread, in all, or in none.
    #[arg(long, value_enum, default_value_t = Fork::Strict, value_name = "MODE")]
    fork: Fork,

    /// Leave forks of processes with less private memory than this alone.
    #[arg(long, value_name = "SIZE", value_parser = args::size, default_value = "8M")]
    fork_minimum: u64,

    /// Undo a child that has not executed a program after this many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    fork_limit: u32,

    /// Speculate at every call site, whatever became of earlier children. For tests.
    #[arg(long, hide = true)]
    fork_always: bool,

    /// Run lines of system() and popen() that need no shell without one.
    #[arg(long, value_enum, default_value_t = Shell::Bypass, value_name = "MODE")]
    shell: Shell,

    /// Back malloc's memory with huge pages, for forks that cannot be avoided.
    #[arg(long, value_enum, default_value_t = HugePages::Off, value_name = "KIND")]
    huge_pages: HugePages,

    /// Set TZ where it is unset, so that localtime() no longer looks at /etc/localtime every time. A change of that file
    /// is then not noticed until the program starts again.
    #[arg(long)]
    tz: bool,

    /// User-level context switches (swapcontext and its kin) without system calls for the signal mask. A context then
    /// no longer has a mask of its own.
    #[arg(long, value_enum, default_value_t = Context::Off, value_name = "MODE")]
    context: Context,

    /// Whether programs that PROGRAM executes get the same treatment.
    #[arg(long, value_enum, default_value_t = Children::Follow, value_name = "WHICH")]
    children: Children,

    /// At exit, say what was done in the whole process tree, on standard error or in FILE.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    report: Option<Option<PathBuf>>,

    /// The report as JSON; implies --report.
    #[arg(long)]
    json: bool,

    /// Do not say why a program is run plainly.
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Which processes speculate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Fork {
    /// Processes with one thread.
    Strict,
    /// All processes.
    Speculate,
    /// None.
    Off,
}

/// What happens to the lines of system() and popen().
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    /// Those that need no shell lose it.
    Bypass,
    /// All go to /bin/sh.
    Off,
}

/// Huge pages for the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HugePages {
    /// Transparent: the kernel joins pages where it can.
    Thp,
    /// From the pool of the system (vm.nr_hugepages); never passed on to executed programs.
    Hugetlb,
    /// As the program has it.
    Off,
}

/// How contexts are switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Context {
    /// Without the mask.
    Fast,
    /// As libc does.
    Off,
}

/// Who gets the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Children {
    /// Every program that is executed.
    Follow,
    /// Only PROGRAM.
    No,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    match prepare_and_exec(&args) {
        Ok(never) => match never {},
        Err(Failure { code, error }) => {
            crate::terminal::complain!("forkless: {error:#}");
            Ok(Exit::Code(code))
        }
    }
}

/// Why PROGRAM was not executed, with the status a shell would give.
struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { code: 125, error }
    }
}

/// Nothing: a successful exec does not return.
enum Never {}

fn prepare_and_exec(args: &Args) -> Result<Never, Failure> {
    let name = &args.command[0];
    let program = target::find(name).map_err(|e| not_executable(name, e))?;
    let off = library::switched_off();
    let shell = match (args.shell, args.children) {
        _ if off => shell::Answer::None,
        (Shell::Off, _) => shell::Answer::None,
        // A single program, which may never come to need the answer. A tree of them would ask again and again.
        (Shell::Bypass, Children::No) => shell::Answer::LeftToTheLibrary,
        // First, so that it answers while the rest is prepared.
        (Shell::Bypass, Children::Follow) => {
            shell::ask().map_or(shell::Answer::None, shell::Answer::Expected)
        }
    };
    let examined = library::find().and_then(|library| Ok((library, target::examine(&program)?)));
    let environment = match examined {
        Ok((library, target)) => {
            let record = match args.report_to() {
                Some(to) => Some(record::create(to, args.json)?),
                None => None,
            };
            // An operator who switched it off knows; who reads a report of zeros may not.
            if off && record.is_some() && !args.quiet {
                crate::terminal::complain!(
                    "forkless: {} is off in the environment: the report will show nothing",
                    forkless_run::SWITCH_VARIABLE
                );
            }
            // The default is no request: who asks for the usual gets what there is without a line at every start.
            if args.fork == Fork::Speculate
                && let Some(why) = library::NEVER_SPECULATES
                && !args.quiet
            {
                crate::terminal::complain!("forkless: {why}");
            }
            let huge = huge_pages::settings(args.huge_pages);
            if !args.quiet {
                for warning in &huge.warnings {
                    crate::terminal::complain!("forkless: {warning}");
                }
            }
            let environment = environment::prepared(args, &library, record.as_ref(), &target, &huge, shell);
            if let Some(record) = record {
                collector::start(record).context("the report's collector could not be started")?;
            }
            environment
        }
        Err(why) => {
            // Before the exec, or the asked shell would be a child of PROGRAM's.
            drop(shell);
            if !args.quiet {
                crate::terminal::complain!("forkless: {}: {why}; running it plainly", name.to_string_lossy());
            }
            environment::current()
        }
    };
    inherited::give_back();
    let error = exec::exec(&program, &args.command, &environment);
    Err(not_executable(name, error))
}

impl Args {
    /// Where the report goes, if anywhere.
    fn report_to(&self) -> Option<report::Destination> {
        match (&self.report, self.json) {
            (Some(Some(path)), _) => Some(report::Destination::File(path.clone())),
            (Some(None), _) | (None, true) => Some(report::Destination::StandardError),
            (None, false) => None,
        }
    }
}

fn not_executable(name: &OsString, error: io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    Failure {
        code,
        error: anyhow::Error::new(error).context(match name.to_string_lossy() {
            empty if empty.is_empty() => "cannot run ''".to_owned(),
            name => format!("cannot run {name}"),
        }),
    }
}
