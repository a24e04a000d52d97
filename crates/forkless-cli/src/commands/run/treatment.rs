//! The flags by which a user says how a program is treated: those of `run`, and of `try`, which
//! tries them.

use forkless_run::{ForkMode, HugePages, LONGEST_LIMIT_MS, Settings};

use crate::args;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(in crate::commands) struct TreatmentArgs {
    /// Which processes speculate, and what a child may read beside threads.
    #[arg(long, value_enum, default_value_t = ForkArg::Exact, value_name = "MODE")]
    fork: ForkArg,

    /// Leave alone the forks of a process with less private memory than this.
    #[arg(long, value_name = "SIZE", value_parser = args::size, default_value = "8M")]
    fork_minimum: u64,

    /// Abort a speculation whose child has run or slept for this many milliseconds, and has not
    /// executed a program. Time in which it waits for a processor does not count, up to 20 times
    /// the limit.
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(LONGEST_LIMIT_MS)))]
    fork_limit: u32,

    /// Speculate at every call site, whatever became of earlier children. For tests.
    #[arg(long, hide = true)]
    fork_always: bool,

    /// Run lines of system(), popen() and `sh -c` that need no shell without one.
    #[arg(long, value_enum, default_value_t = ShellArg::Bypass, value_name = "MODE")]
    shell: ShellArg,

    /// Back malloc's memory with huge pages, for forks that cannot be avoided.
    #[arg(long, value_enum, default_value_t = HugePagesArg::Off, value_name = "KIND")]
    huge_pages: HugePagesArg,

    /// Set TZ where it is unset, so that localtime() no longer looks at /etc/localtime every time.
    /// A change of that file is then not noticed until the program starts again.
    #[arg(long)]
    tz: bool,

    /// Make no system calls for the signal mask in user-level context switches (swapcontext and
    /// related functions). All contexts then share one mask.
    #[arg(long, value_enum, default_value_t = ContextArg::Off, value_name = "MODE")]
    context: ContextArg,

    /// The programs that have the library.
    #[arg(long, value_enum, default_value_t = ChildrenArg::Follow, value_name = "WHICH")]
    children: ChildrenArg,
}

/// Which processes speculate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ForkArg {
    /// All processes. Beside threads a child commits only with memory as it was at the fork.
    Exact,
    /// Processes with one thread.
    Strict,
    /// All processes. Beside threads a child may read memory as it is after the fork.
    Speculate,
    /// None.
    Off,
}

/// What happens to the lines of system(), popen() and `sh -c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ShellArg {
    /// Lines that need no shell run without one.
    Bypass,
    /// All lines go to /bin/sh.
    Off,
}

/// Huge pages for the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum HugePagesArg {
    /// Transparent huge pages; other memory than malloc's is merged, too.
    Thp,
    /// Pages of the system's pool (vm.nr_hugepages); executed programs do not inherit this.
    Hugetlb,
    /// No change.
    Off,
}

/// How contexts are switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ContextArg {
    /// Without these system calls.
    Fast,
    /// As libc does.
    Off,
}

/// Who gets the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ChildrenArg {
    /// The program and every program that it executes.
    Follow,
    /// Only the program itself.
    No,
}

impl TreatmentArgs {
    /// What the launcher is told.
    pub(in crate::commands) fn settings(&self) -> Settings {
        Settings {
            fork: match self.fork {
                ForkArg::Exact => ForkMode::Exact,
                ForkArg::Strict => ForkMode::Strict,
                ForkArg::Speculate => ForkMode::Speculate,
                ForkArg::Off => ForkMode::Off,
            },
            minimum: self.fork_minimum,
            limit_ms: self.fork_limit,
            learn: !self.fork_always,
            skip_shells: self.shell == ShellArg::Bypass,
            huge_pages: match self.huge_pages {
                HugePagesArg::Thp => HugePages::Transparent,
                HugePagesArg::Hugetlb => HugePages::Pool,
                HugePagesArg::Off => HugePages::Off,
            },
            fast_context: self.context == ContextArg::Fast,
            time_zone: self.tz,
            children: self.children == ChildrenArg::Follow,
            quiet: false,
        }
    }

    /// The flags that are not the default, as they are typed.
    pub(in crate::commands) fn flags(&self) -> Vec<String> {
        let usual = Settings::default();
        let chosen = self.settings();
        let mut flags = Vec::new();
        let mut add = |is_unusual: bool, name: &str, value: String| {
            if is_unusual {
                flags.push(format!("--{name}{value}"));
            }
        };
        add(chosen.fork != usual.fork, "fork", equals(self.fork));
        add(chosen.minimum != usual.minimum, "fork-minimum", format!("={}", self.fork_minimum));
        add(chosen.limit_ms != usual.limit_ms, "fork-limit", format!("={}", self.fork_limit));
        add(chosen.learn != usual.learn, "fork-always", String::new());
        add(chosen.skip_shells != usual.skip_shells, "shell", equals(self.shell));
        add(chosen.huge_pages != usual.huge_pages, "huge-pages", equals(self.huge_pages));
        add(chosen.time_zone != usual.time_zone, "tz", String::new());
        add(chosen.fast_context != usual.fast_context, "context", equals(self.context));
        add(chosen.children != usual.children, "children", equals(self.children));
        flags
    }
}

/// A value as it is typed behind its flag.
fn equals(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| format!("={}", value.get_name()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::TreatmentArgs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        treatment: TreatmentArgs,
    }

    #[test]
    fn flags_that_are_not_the_default_come_out_as_they_went_in() {
        let flags = |line: &[&str]| Line::parse_from(std::iter::once(&"x").chain(line)).treatment.flags();
        assert_eq!(flags(&["--fork=exact", "--fork-minimum=8M", "--shell=bypass"]), [""; 0]);
        let all = [
            "--fork=off",
            "--fork-minimum=1024",
            "--fork-limit=7",
            "--fork-always",
            "--shell=off",
            "--huge-pages=thp",
            "--tz",
            "--context=fast",
            "--children=no",
        ];
        assert_eq!(flags(&all), all);
    }
}
