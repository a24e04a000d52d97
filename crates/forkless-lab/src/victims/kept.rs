//! The command line of a victim: a [kept](crate::subreaper) program, plain or with the preloaded
//! library in it; and the library's counts there.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use forkless_bench::error::Error;
use forkless_run::{
    Counter, EnvironmentEntries, ForkMode, HugePages, Launcher, RecordFile, Report, Settings,
};

/// Executes a program with more variables. The victim gets the library so; the subreaper, which
/// starts it, must not have it.
const ENV: &str = "/usr/bin/env";

/// Variables that a victim gets from the suite alone, whatever the bench was started with.
const NEVER_INHERITED: [&str; 6] =
    ["FORKLESS", "FORKLESS_RUN", "LD_PRELOAD", "TZ", "GLIBC_TUNABLES", "MALLOC_CONF"];

/// Forks stay as they are, and memory is put into huge pages.
pub(crate) fn huge_pages(huge_pages: HugePages) -> Settings {
    Settings { fork: ForkMode::Off, huge_pages, ..Settings::default() }
}

/// A program to be kept.
pub(super) struct Kept<'a> {
    /// The `forkless` command.
    pub(super) forkless: &'a Path,
    /// The flag of `bench keep` that says how the program hears of its end.
    pub(super) ending: &'a str,
    /// How the library treats the program; `None` for a plain one.
    pub(super) settings: Option<Settings>,
    /// Where the record is made.
    pub(super) records: &'a Path,
    pub(super) program: &'a OsStr,
    pub(super) arguments: &'a [OsString],
    /// More variables, for the subreaper, too.
    pub(super) variables: &'a [(&'a str, OsString)],
}

impl Kept<'_> {
    /// The command, and what will be counted in it.
    pub(super) fn command(&self) -> Result<(Command, Counts), Error> {
        let mut command = Command::new(self.forkless);
        command.args(["bench", "keep", self.ending, "--"]);
        let counts = match self.settings {
            Some(settings) => self.put_library(settings, &mut command)?,
            None => Counts(None),
        };
        command.arg(self.program).args(self.arguments);
        for name in NEVER_INHERITED {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C").envs(self.variables.iter().map(|(name, value)| (name, value)));
        // Of a group of its own: a ^C, or a timeout(1), ends the bench's whole group, and the
        // subreaper has work to do then.
        command.stdin(Stdio::piped()).process_group(0);
        Ok((command, counts))
    }

    /// Puts the words before the program by which it gets the library.
    fn put_library(&self, settings: Settings, command: &mut Command) -> Result<Counts, Error> {
        let program = self.program.display();
        let argv = [&[self.program.to_owned()], self.arguments].concat();
        let plain = self.environment();
        let launcher = Launcher::new(argv, settings, plain.clone());
        let launcher = launcher.map_err(Error::io(format!("find {program}")))?;
        let cannot = || Error::io(format!("put the preloaded library into {program}"));
        let mut prepared = launcher.examine().map_err(|why| cannot()(io::Error::other(why)))?.prepare();
        let record = RecordFile::create_in(self.records).map_err(|why| cannot()(io::Error::other(why)))?;
        prepared.count_into(&record);
        prepared.hand_on(command);
        command.arg(ENV);
        for (name, value) in prepared.environment().pairs() {
            if !plain.pairs().any(|pair| pair == (name, value)) {
                command.arg([name, value].join(OsStr::new("=")));
            }
        }
        Ok(Counts(Some(record)))
    }

    /// The environment of the plain program.
    fn environment(&self) -> EnvironmentEntries {
        let mut environment = EnvironmentEntries::current();
        for name in NEVER_INHERITED {
            environment.remove(name);
        }
        environment.set("LC_ALL", b"C");
        for (name, value) in self.variables {
            environment.set(name, value.as_bytes());
        }
        environment
    }
}

/// A running victim with its subreaper. When the input closes, the subreaper ends the victim, and
/// itself after it; dropping this closes the input and waits for that.
#[derive(Debug)]
pub(super) struct KeptProcess {
    pub(super) child: Child,
    pub(super) input: Option<ChildStdin>,
    counts: Counts,
}

impl KeptProcess {
    pub(super) fn new(mut child: Child, counts: Counts) -> KeptProcess {
        let input = child.stdin.take();
        KeptProcess { child, input, counts }
    }

    /// Ends the victim.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        drop(self.input.take());
        self.child.wait()
    }

    /// The library's counts in the victim.
    pub(super) fn counted(&self) -> Counted {
        self.counts.counted()
    }
}

impl Drop for KeptProcess {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What the library counts in a victim; nothing in a plain one.
#[derive(Debug)]
pub(super) struct Counts(Option<RecordFile>);

impl Counts {
    /// What was counted until now: all of it, once the subreaper has ended.
    pub(super) fn counted(&self) -> Counted {
        Counted(self.0.as_ref().map(RecordFile::report))
    }
}

/// What the library has counted: the evidence behind every figure.
#[derive(Debug)]
pub(crate) struct Counted(Option<Report>);

impl Counted {
    /// A counter's value.
    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.0.as_ref().map_or(0, |report| report.count(counter))
    }

    /// The commonest reason why forks were not committed.
    fn why(&self) -> String {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let sites = self.0.iter().flat_map(|report| &report.sites);
        for (reason, count) in sites.flat_map(|site| &site.reasons) {
            *counts.entry(reason.to_string()).or_default() += u64::from(*count);
        }
        let most = counts.into_iter().max_by_key(|&(_, count)| count);
        most.map_or_else(String::new, |(reason, count)| format!("; {count} times: {reason}"))
    }

    /// Evidence that the children of so many forks committed: of all but ten, 95 in a hundred. A
    /// call site learns from its first forks what its children use.
    ///
    /// # Errors
    /// The sentence that says how few they were, and why.
    pub(super) fn commits(&self, forks: u64) -> Result<String, String> {
        const FIRST: u64 = 10;
        let committed = self.count(Counter::Committed);
        let due = forks.saturating_sub(FIRST);
        if due > 0 && committed * 100 >= due * 95 {
            return Ok(format!("{committed} committed in {forks} operations"));
        }
        Err(format!("only {committed} committed in {forks} operations{}", self.why()))
    }

    /// Evidence that at least nine in ten of so many operations were counted. Time limits on a busy
    /// machine take a small share; a larger one would show in the median.
    ///
    /// # Errors
    /// The sentence that says how few they were, and why.
    pub(super) fn most(&self, counter: Counter, operations: u64) -> Result<String, String> {
        let count = self.count(counter);
        let words = counter.key().replace('_', " ");
        if operations > 0 && count * 10 >= operations * 9 {
            return Ok(format!("{count} {words} in {operations} operations"));
        }
        Err(format!("only {count} {words} in {operations} operations{}", self.why()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use forkless_run::AbortKind;

    use super::*;

    #[test]
    fn a_signal_to_the_whole_bench_does_not_reach_the_keeper() {
        let kept = Kept {
            forkless: Path::new("/bin/cat"),
            ending: "--on-terminate",
            settings: None,
            records: Path::new("/tmp"),
            program: "-".as_ref(),
            arguments: &[],
            variables: &[],
        };
        let mut subreaper = kept.command().unwrap().0.stderr(Stdio::null()).spawn().unwrap();
        let pid = subreaper.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        subreaper.wait().unwrap();
        // The fields behind the name: state, parent, process group.
        let group = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(2)).unwrap();
        assert_eq!(group, pid.to_string());
    }

    #[test]
    fn evidence_needs_nearly_all_operations_and_names_the_reason_otherwise() {
        let counts = Counts(Some(RecordFile::create().unwrap()));
        let record = counts.0.as_ref().unwrap().record();
        record.add(Counter::Committed, 95);
        let site = record.site(1, |_| 0).unwrap();
        (0..5).for_each(|_| site.because(AbortKind::Threads.into()));
        let counted = counts.counted();
        assert_eq!(counted.most(Counter::Committed, 100), Ok("95 committed in 100 operations".into()));
        let why = counted.most(Counter::Committed, 200).unwrap_err();
        assert!(why.contains("only 95") && why.contains("5 times: more than one thread"), "{why}");
        // 95 in a hundred, of all but the first ten.
        assert_eq!(counted.commits(110), Ok("95 committed in 110 operations".into()));
        assert!(counted.commits(111).unwrap_err().contains("5 times: more than one thread"));
        // Nothing done proves nothing.
        assert!(Counts(None).counted().commits(5).is_err());
        assert!(Counts(None).counted().most(Counter::Committed, 0).is_err());
    }
}
