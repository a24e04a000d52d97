//! The report: what a record holds, in types; where it is written; and reasons in words.

use std::cmp::Reverse;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{AbortKind, AbortReason, CommandOf, Counter, Record, SiteCounters};

#[cfg(target_arch = "x86_64")]
use super::call_names;

/// What the library has done in a tree of processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    counts: [u64; Counter::ALL.len()],
    /// The call sites, those with most forks first.
    pub sites: Vec<SiteReport>,
}

/// One place in one program that forks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteReport {
    /// `object+0xoffset`.
    pub name: String,
    /// Forks seen here.
    pub forks: u64,
    /// Speculations begun.
    pub speculated: u64,
    /// Speculations that ended in an exec.
    pub committed: u64,
    /// Speculations aborted.
    pub aborted: u64,
    /// Why forks stayed plain, and how often.
    pub reasons: Vec<(AbortReason, u32)>,
}

impl Report {
    pub(super) fn of(record: &Record) -> Report {
        let mut sites: Vec<_> = record.sites().map(SiteReport::of).collect();
        sites.sort_by_key(|site| Reverse(site.forks));
        let mut counts = [0; Counter::ALL.len()];
        for (count, counter) in counts.iter_mut().zip(Counter::ALL) {
            *count = record.get(*counter);
        }
        Report { counts, sites }
    }

    /// Adds what another record holds: of the same tree, or of another run of the same program.
    pub fn add(&mut self, other: Report) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.wrapping_add(more);
        }
        for site in other.sites {
            match self.sites.iter_mut().find(|known| known.name == site.name) {
                Some(known) => known.add(site),
                None => self.sites.push(site),
            }
        }
        self.sites.sort_by_key(|site| Reverse(site.forks));
    }

    /// A counter's value.
    pub fn count(&self, counter: Counter) -> u64 {
        self.counts[counter as usize]
    }
}

impl SiteReport {
    fn add(&mut self, other: SiteReport) {
        let counts = [
            (&mut self.forks, other.forks),
            (&mut self.speculated, other.speculated),
            (&mut self.committed, other.committed),
            (&mut self.aborted, other.aborted),
        ];
        for (count, more) in counts {
            *count = count.wrapping_add(more);
        }
        for (reason, more) in other.reasons {
            match self.reasons.iter_mut().find(|known| known.0 == reason) {
                Some(known) => known.1 = known.1.wrapping_add(more),
                None => self.reasons.push((reason, more)),
            }
        }
    }

    fn of(site: &SiteCounters) -> SiteReport {
        let count = |n: &AtomicU64| n.load(Relaxed);
        let mut name = [0; 128];
        let len = site.name(&mut name);
        SiteReport {
            name: shown(&name[..len]),
            forks: count(&site.forks),
            speculated: count(&site.speculated),
            committed: count(&site.committed),
            aborted: count(&site.aborted),
            reasons: site.reasons().collect(),
        }
    }
}

/// A name that a program has chosen, without characters that would steer a terminal.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Where a report is written. It is opened before the program starts, so that an unwritable one is
/// refused then.
#[derive(Debug)]
pub struct Destination {
    output: File,
    /// Nothing but the report is in it, so that a later report replaces an earlier one.
    is_ours: bool,
}

impl Destination {
    /// Standard error.
    ///
    /// # Errors
    /// Where it is closed.
    pub fn standard_error() -> io::Result<Destination> {
        let output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Destination { output, is_ours: false })
    }

    /// A file, emptied or made.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn file(path: &Path) -> io::Result<Destination> {
        let output = File::create(path)?;
        let is_ours = output.metadata().is_ok_and(|about| about.is_file());
        Ok(Destination { output, is_ours })
    }

    /// Writes with one write call, so that the text does not mix with what the tree still prints.
    pub(super) fn write(&self, text: &str) -> io::Result<()> {
        let mut output = &self.output;
        if self.is_ours {
            output.set_len(0)?;
            output.rewind()?;
        }
        output.write_all(text.as_bytes())
    }
}

impl AsRawFd for Destination {
    fn as_raw_fd(&self) -> RawFd {
        self.output.as_raw_fd()
    }
}

/// The reason in words, with the system call and its command by name, or the signal by number.
impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.kind().text();
        let detail = self.detail();
        if let Some((of, number)) = self.as_command() {
            return Command(of, number).fmt(f);
        }
        match self.kind() {
            AbortKind::Call => write!(f, "{text} {}", Call(detail)),
            // Other commands of fcntl abort whatever they are used on.
            #[cfg(target_arch = "x86_64")]
            AbortKind::Inherited if i64::from(detail) == libc::SYS_fcntl => {
                write!(f, "fcntl(F_SETFL) of an {text}")
            }
            AbortKind::Inherited => write!(f, "{} of an {text}", Call(detail)),
            AbortKind::Signal => write!(f, "{text} {detail}"),
            _ => f.write_str(text),
        }
    }
}

/// A system call by its number.
struct Call(u32);

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(target_arch = "x86_64")]
        if let Some(name) = call_names::call(self.0) {
            return f.write_str(name);
        }
        write!(f, "number {}", self.0)
    }
}

/// A command of a system call.
struct Command(CommandOf, u32);

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Command(of, number) = self;
        let call = match of {
            CommandOf::Fcntl => "fcntl",
            CommandOf::Ioctl => "ioctl",
            CommandOf::Prctl => "prctl",
        };
        #[cfg(target_arch = "x86_64")]
        if let Some(name) = call_names::command(of, number) {
            return write!(f, "{call}({name})");
        }
        write!(f, "{call}({number:#x})")
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "a zeroed record, as a fresh file is")]
mod tests {
    use super::*;

    #[test]
    fn sites_with_most_forks_come_first() {
        // SAFETY: a record is made of atomic numbers, for which zero is a value.
        let record: Record = unsafe { std::mem::zeroed() };
        for (key, name, forks) in [(1, b"few+0x1", 1), (2, b"all+0x2", 9)] {
            let site = record.site(key, |into| {
                into[..7].copy_from_slice(name);
                7
            });
            let site = site.unwrap();
            site.forks.fetch_add(forks, Relaxed);
            site.because(AbortKind::Threads.into());
        }
        record.add(Counter::Forks, 10);
        let report = Report::of(&record);
        assert_eq!(report.count(Counter::Forks), 10);
        assert_eq!(report.count(Counter::Committed), 0);
        let names: Vec<_> = report.sites.iter().map(|site| (site.name.as_str(), site.forks)).collect();
        assert_eq!(names, [("all+0x2", 9), ("few+0x1", 1)]);
        assert_eq!(report.sites[0].reasons, [(AbortKind::Threads.into(), 1)]);
    }

    #[test]
    fn a_name_steers_no_terminal() {
        assert_eq!(shown(b"a\x1b[31m\n\x7f\xc2\x9bb\xff+0x1"), "a?[31m???b\u{fffd}+0x1");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn reasons_name_the_call_the_command_and_the_signal() {
        let call = |kind, number: i64| AbortReason::new(kind, u32::try_from(number).unwrap()).to_string();
        assert_eq!(call(AbortKind::Call, libc::SYS_timer_settime), "system call timer_settime");
        assert_eq!(call(AbortKind::Inherited, libc::SYS_write), "write of an inherited descriptor");
        let flags = call(AbortKind::Inherited, libc::SYS_fcntl);
        assert_eq!(flags, "fcntl(F_SETFL) of an inherited descriptor");
        assert_eq!(call(AbortKind::Call, 4000), "system call number 4000");
        assert_eq!(call(AbortKind::Signal, 15), "signal arrived 15");
        assert_eq!(call(AbortKind::Threads, 0), "more than one thread");
        let command = |of, number| AbortReason::command(of, number).to_string();
        assert_eq!(command(CommandOf::Ioctl, 0x540e), "ioctl(TIOCSCTTY)");
        assert_eq!(command(CommandOf::Ioctl, 0x8004_5430), "ioctl(TIOCGPTN)");
        assert_eq!(command(CommandOf::Fcntl, 4), "fcntl(F_SETFL)");
        assert_eq!(command(CommandOf::Prctl, 0x5961_6d61), "prctl(PR_SET_PTRACER)");
        assert_eq!(command(CommandOf::Prctl, 0x3f_fff0), "prctl(0x3ffff0)");
    }

    /// How a caller asks for something is the caller's to say.
    #[test]
    fn no_phrase_names_a_flag() {
        for kind in AbortKind::ALL {
            assert!(!kind.text().contains("--"), "{kind:?}");
        }
    }

    #[test]
    fn in_a_file_of_its_own_a_report_replaces_an_earlier_one() {
        let path = std::env::temp_dir().join(format!("forkless-run-report-{}", std::process::id()));
        let destination = Destination::file(&path).unwrap();
        destination.write("a long first report\n").unwrap();
        destination.write("second\n").unwrap();
        let text = std::fs::read_to_string(&path);
        let _ = std::fs::remove_file(&path);
        assert_eq!(text.unwrap(), "second\n");
    }
}
