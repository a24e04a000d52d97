//! How far the preloaded library reaches: whether it can be in a program, and what it would do with
//! its forks. The rules are its own. Each is named where it is applied.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use forkless_run::{AbortReason, ProgramError, Report, Switch};
use forkless_sys::signal::{SENT, SigSet};

use crate::interpreter::unversioned;
use crate::{procfs, regular_file};

/// What keeps the preloaded library from a program, or from its forks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// Forks are left as they are on this machine, for this reason.
    Machine(String),
    /// A switch leaves every program as it is.
    Switched(Switch),
    /// The program's loader does not preload it.
    Program(ProgramError),
    /// The loader of the watched command's own program does not preload it.
    Command(ProgramError),
    /// The watched command begins with this program, which clears the environment.
    Cleared(String),
    /// The program has an environment without the variables of the watched command's.
    Environment,
    /// The watched command removes `LD_PRELOAD` from the environment, or replaces it.
    Preload,
    /// The library's file is not in the program's root directory, or is hidden there.
    Hidden(PathBuf),
    /// A debugger or tracer watches the program.
    Traced,
    /// The shells that it starts stay, for this reason.
    Shells(&'static str),
    /// The program runs under it already. These are its reasons to leave forks as they are, the
    /// most frequent first; none if they were not recorded.
    Loaded(Vec<(String, u64)>),
    /// So much memory, in bytes, is too little to gain.
    Small(u64),
    /// A copy costs no more than a speculation.
    Cheap,
    /// Nearly all its memory lies in mappings that are too small to be kept from a child.
    Pieces,
    /// The program has turned transparent huge pages off for itself.
    RefusesHugePages,
    /// So many mappings must be looked at that it costs more than a copy.
    Mappings(u64),
    /// The quickest of the children took so many nanoseconds until its exec, more than the limit.
    Slow(u64),
    /// Its children do this before they execute a program.
    Acts(&'static str),
    /// Only so many of the forks of the call site lead to an exec, of so many.
    SeldomExecs(u64, u64),
    /// The library leaves most closes of the loop to the kernel, for this reason.
    Closes(&'static str),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(why) => f.write_str(why),
            Self::Switched(switch) => write!(f, "{switch}"),
            Self::Program(why) => write!(f, "{why}"),
            Self::Command(why) => write!(f, "the command's own program takes no library: {why}"),
            Self::Cleared(program) => {
                write!(f, "{program} clears the environment, so it must stand behind {program}")
            }
            Self::Environment => f.write_str(
                "the command cleared the environment before this program, so it must stand right before it",
            ),
            Self::Preload => f.write_str(
                "the command removes or replaces LD_PRELOAD before this program, so it must stand right before it",
            ),
            Self::Hidden(library) => write!(
                f,
                "the program has a root directory or mounts of its own, without {}",
                library.display()
            ),
            Self::Traced => f.write_str("a debugger or tracer watches it, and its forks are left alone"),
            Self::Shells(why) => f.write_str(why),
            Self::Loaded(reasons) => {
                f.write_str("the program has it already")?;
                let mut before = ", and it left forks for this: ";
                for (reason, count) in reasons.iter().take(3) {
                    write!(f, "{before}{reason} ({count})")?;
                    before = ", ";
                }
                Ok(())
            }
            Self::Small(_) => {
                let least = speculated_from() >> 20;
                write!(f, "it has less than {least} MiB of anonymous memory, and its forks are left alone")
            }
            Self::Cheap => f.write_str("a copy of its memory costs no more than it would"),
            Self::RefusesHugePages => f.write_str(
                "the program has turned transparent huge pages off for itself (redis: disable-thp no)",
            ),
            Self::Mappings(count) => {
                write!(f, "looking at its {count} mappings would cost more than the copy")
            }
            Self::Pieces => {
                f.write_str("its memory lies in mappings of less than 128 KiB, which each child gets")
            }
            Self::Slow(ns) => write!(
                f,
                "its children take {:.0} ms before they execute a program, and {} ms are the limit",
                *ns as f64 / 1e6,
                limit_ns() / 1_000_000
            ),
            Self::Acts(why) | Self::Closes(why) => f.write_str(why),
            Self::SeldomExecs(0, _) => f.write_str("no child of this place gets to execute a program"),
            Self::SeldomExecs(execs, forks) => {
                write!(f, "only {execs} of {forks} children of this place execute a program")
            }
        }
    }
}

/// Least memory, in bytes, of a process whose forks the preloaded library speculates by default.
pub(crate) fn speculated_from() -> u64 {
    forkless_run::Options::default().minimum
}

/// The time of a loop of closes, in multiples of the time with the library's answers: 10 million
/// took 4.0 to 4.7 s, and 0.11 to 0.15 s.
pub(crate) const CLOSE_LOOP_SPEEDUP: u64 = 30;

/// The time of one close with the library's answer, by the longest of these times.
pub(crate) const ANSWERED_CLOSE_NS: u64 = 15;

/// The time that a child may take before its exec, nanoseconds.
fn limit_ns() -> u64 {
    u64::from(forkless_run::Settings::default().limit_ms) * 1_000_000
}

/// What decides about the library in all programs of a watch.
#[derive(Debug)]
pub(crate) struct Everywhere {
    /// Whether it is not switched off.
    on: Result<(), Obstacle>,
    /// Whether it speculates forks on this machine.
    speculates: Result<(), Obstacle>,
    answers_closes: Result<(), Obstacle>,
    /// Whether it comes into what the watched command starts.
    command: Result<(), Obstacle>,
    /// Whether a command is watched. Its environment is ours.
    is_of_command: bool,
}

impl Everywhere {
    /// For a watch of a command of these words, or of something that runs already.
    pub(crate) fn look(command: Option<&[OsString]>) -> Self {
        let off = forkless_run::switch_file_exists();
        Self {
            on: if off { Err(Obstacle::Switched(Switch::File)) } else { Ok(()) },
            speculates: speculates(),
            answers_closes: answers_closes(),
            command: command.map_or(Ok(()), through_words),
            is_of_command: command.is_some(),
        }
    }

    /// What keeps the library from a program of which `reach` is known.
    pub(crate) fn in_program(&self, reach: Option<&Reach>) -> Result<(), Obstacle> {
        self.on.clone()?;
        self.command.clone()?;
        let Some(reach) = reach else { return Ok(()) };
        reach.of_program()?;
        if self.is_of_command && reach.inherits == Some(false) { Err(Obstacle::Environment) } else { Ok(()) }
    }

    /// What keeps it from its loops of closes.
    pub(crate) fn in_close_loops(&self, reach: Option<&Reach>) -> Result<(), Obstacle> {
        self.in_program(reach)?;
        self.answers_closes.clone()?;
        reach.map_or(Ok(()), Reach::of_close_loops)
    }

    /// What keeps it from its forks, which copy `anon` bytes.
    pub(crate) fn in_forks(&self, reach: Option<&Reach>, anon: u64) -> Result<(), Obstacle> {
        self.in_program(reach)?;
        self.speculates.clone()?;
        match reach {
            Some(reach) => reach.of_forks(anon),
            None if anon < speculated_from() => Err(Obstacle::Small(anon)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
impl Default for Everywhere {
    /// Nothing keeps it from anything.
    fn default() -> Self {
        Self { on: Ok(()), speculates: Ok(()), answers_closes: Ok(()), command: Ok(()), is_of_command: false }
    }
}

/// Whether the library speculates forks on this machine.
pub(crate) fn speculates() -> Result<(), Obstacle> {
    if !forkless_run::SPECULATES {
        return Err(Obstacle::Machine("forks are left as they are on this architecture".to_owned()));
    }
    let machine = |what: &str, answer: std::io::Result<()>| {
        answer.map_err(|error| Obstacle::Machine(format!("no {what} here ({error})")))
    };
    machine("syscall user dispatch", forkless_run::user_dispatch())?;
    machine("/proc/self/mem", forkless_run::own_memory())
}

/// Whether the library answers loops of closes on this machine (`system_calls_show` of
/// forkless-preload).
pub(crate) fn answers_closes() -> Result<(), Obstacle> {
    if !forkless_run::SPECULATES {
        return Err(Obstacle::Machine("close loops are left as they are on this architecture".to_owned()));
    }
    let has_fred = procfs::read("/proc/cpuinfo").is_some_and(|info| {
        let flags = info.lines().find(|line| line.starts_with("flags"));
        flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "fred"))
    });
    if has_fred {
        return Err(Obstacle::Machine("close loops are left as they are on processors with FRED".to_owned()));
    }
    Ok(())
}

/// The same for all words of a command.
fn through_words(words: &[OsString]) -> Result<(), Obstacle> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let is_env = Path::new(program).file_name().is_some_and(|name| name == "env");
    if is_env && changes_preloading(arguments) { Err(Obstacle::Preload) } else { through_command(program) }
}

/// Whether these arguments of env(1) remove `LD_PRELOAD` or give it another value.
fn changes_preloading(arguments: &[OsString]) -> bool {
    const PRELOAD: &str = "LD_PRELOAD";
    let mut words = arguments.iter().map(|word| word.to_str().unwrap_or_default());
    while let Some(word) = words.next() {
        let removed = match word {
            "-u" | "--unset" => words.next(),
            "-C" | "--chdir" => words.next().and(None),
            _ => word.strip_prefix("--unset=").or_else(|| word.strip_prefix("-u")),
        };
        let set = word.split_once('=').map(|(name, _)| name);
        if [removed, set].contains(&Some(PRELOAD)) {
            return true;
        }
        // This is the program, and what follows is its own.
        if !word.starts_with('-') && set.is_none() {
            return false;
        }
    }
    false
}

/// Whether the library comes into what a command starts, if the command is started under it.
fn through_command(program: &OsStr) -> Result<(), Obstacle> {
    let file = Path::new(program).file_name().unwrap_or_default();
    // sudo(8), "SECURITY NOTES": variables of the loader are removed.
    if ["sudo", "doas", "pkexec"].iter().any(|name| file == *name) {
        return Err(Obstacle::Cleared(file.to_string_lossy().into_owned()));
    }
    forkless_run::preloadable_program(program).map_err(Obstacle::Command)
}

/// Programs whose children do something before their exec that others could notice. The results of
/// `tests/commits/run.sh` have the reasons.
fn known_act(exe: &str) -> Option<&'static str> {
    Some(match unversioned(exe) {
        "zsh" => "zsh's children write to a pipe of the shell before they execute a program",
        "erl_child_setup" | "socat" => "its children read from their parent before they execute a program",
        "expect" => "its children open a terminal before they execute a program",
        _ => return None,
    })
}

/// So many ranges of memory at most are kept from a speculative child.
pub(crate) const RANGES: u64 = 512;

/// What decides about the library in a process, read while the process lives.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// The library is in it.
    loaded: bool,
    /// Why the library cannot be in it.
    program: Option<ProgramError>,
    /// Its environment switches the library off.
    off: bool,
    /// [`inherits_ours`].
    inherits: Option<bool>,
    /// The library's file, if the process does not find it by that path.
    hidden: Option<PathBuf>,
    /// A debugger or tracer watches it.
    traced: bool,
    /// Signals for which it has a handler, and those that its first thread blocks.
    handled: SigSet,
    blocked: SigSet,
    /// Its writable mappings: a speculation looks at each.
    mappings: u64,
    /// `None` if its mappings are not known.
    writable: Option<Writable>,
    threads: u64,
    /// Its user.
    pub(crate) root: bool,
    act: Option<&'static str>,
    /// What the library counts in its tree. Open, since the file goes with the tree.
    record: Option<File>,
}

/// Bytes of a process's writable mappings, used or not.
#[derive(Debug, Clone, Copy, Default)]
struct Writable {
    /// Of private mappings.
    private: u64,
    /// Of memory that children may lack.
    within_reach: u64,
}

impl Writable {
    fn of(mappings: &[WritableMapping]) -> Self {
        let private = mappings.iter().filter(|mapping| mapping.is_private).map(|mapping| mapping.bytes);
        Self { private: private.sum(), within_reach: within_reach(mappings) }
    }
}

impl Reach {
    /// Without the reasons for which the library left forks as they are: each takes a descriptor.
    pub(crate) fn without_reasons(self) -> Self {
        Self { record: None, ..self }
    }

    /// A process with a handler for a signal.
    #[cfg(test)]
    pub(crate) fn handling(signal: i32) -> Self {
        Self { handled: SigSet::EMPTY.with(signal), threads: 1, ..Self::default() }
    }

    /// `None` if the process is gone, or is another user's.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let maps = procfs::read(&format!("/proc/{pid}/maps")).filter(|maps| !maps.is_empty())?;
        let exe = format!("/proc/{pid}/exe");
        let environment = fs::read(format!("/proc/{pid}/environ")).ok();
        let status = procfs::status_of(pid);
        let mut reach = Self {
            program: forkless_run::preloadable_program(OsStr::new(&exe)).err(),
            off: environment.iter().flat_map(|all| all.split(|byte| *byte == 0)).any(switches_off),
            inherits: environment.as_deref().and_then(inherits_ours),
            hidden: forkless_run::find_library().ok().filter(|library| is_hidden(pid, library)),
            traced: procfs::is_traced(&status),
            handled: procfs::signals(&status, "SigCgt"),
            blocked: blocked_by_program(&status),
            threads: procfs::threads_of(pid).unwrap_or(1),
            root: procfs::is_roots(&status),
            act: procfs::exe_of(pid).as_deref().and_then(known_act),
            ..Self::default()
        };
        if is_secure(pid) {
            reach.program = Some(ProgramError::SetId);
        }
        let writable: Vec<WritableMapping> = maps.lines().filter_map(writable_mapping).collect();
        reach.mappings = writable.len() as u64;
        reach.writable = Some(Writable::of(&writable));
        for line in maps.lines() {
            let Some(path) = line.find('/').map(|at| &line[at..]) else { continue };
            reach.loaded |= forkless_run::names_library(path.as_bytes());
            // The record's folder in memory, or in /tmp where there is no /dev/shm.
            if reach.record.is_none()
                && (path.starts_with("/dev/shm/forkless-") || path.starts_with("/tmp/forkless-"))
            {
                // Another file may be there by now: a FIFO would be waited for.
                reach.record = regular_file::open(format!("/proc/{pid}/root{path}"));
            }
        }
        Some(reach)
    }

    /// What keeps the library from this program.
    pub(crate) fn of_program(&self) -> Result<(), Obstacle> {
        if self.loaded {
            return Err(Obstacle::Loaded(self.reasons()));
        }
        if self.off {
            return Err(Obstacle::Switched(Switch::Variable));
        }
        if let Some(library) = &self.hidden {
            return Err(Obstacle::Hidden(library.clone()));
        }
        self.program.map_or(Ok(()), |why| Err(Obstacle::Program(why)))
    }

    /// What keeps the library from this program's loops of closes.
    pub(crate) fn of_close_loops(&self) -> Result<(), Obstacle> {
        self.of_program()?;
        if self.traced { Err(Obstacle::Traced) } else { Ok(()) }
    }

    /// What keeps the library from forks that copy `anon` bytes.
    pub(crate) fn of_forks(&self, anon: u64) -> Result<(), Obstacle> {
        self.of_program()?;
        if self.traced {
            return Err(Obstacle::Traced);
        }
        if anon < speculated_from() {
            return Err(Obstacle::Small(anon));
        }
        let absent = self.absent(anon);
        if absent < speculated_from() {
            return Err(Obstacle::Pieces);
        }
        if let Some(act) = self.act {
            return Err(Obstacle::Acts(act));
        }
        // `costs_too_many_looks` of forkless-preload.
        const USUAL: u64 = 128;
        const PAGES_A_LOOK: u64 = 5;
        if absent / 4096 < self.looks(USUAL) * PAGES_A_LOOK {
            return Err(Obstacle::Mappings(self.mappings));
        }
        Ok(())
    }

    /// Whether it may learn of the end of a shell of system() or popen() in another way than by
    /// waiting for it (`may_see_the_end` of forkless-preload). Whether a handler for SIGCHLD asks
    /// for details, which counts there, nobody can see.
    pub(crate) fn sees_the_end(&self, is_stream: bool) -> bool {
        // Of a system() that waits, libc itself blocks SIGCHLD.
        let sent = if is_stream { SENT } else { SENT.without(libc::SIGINT).without(libc::SIGQUIT) };
        self.handled.and(sent) != SigSet::EMPTY
            || self.blocked.and(sent) != SigSet::EMPTY
            || self.handled.has(libc::SIGCHLD) && (is_stream || self.threads > 1)
    }

    /// Mappings that a speculation looks at beside the usual ones: beside threads three times.
    fn looks(&self, usual: u64) -> u64 {
        self.mappings.saturating_sub(usual) * if self.threads > 1 { 3 } else { 1 }
    }

    /// Of `anon` bytes that a fork copied, those that a child may lack. A server may have given its
    /// memory back after the request that forked: then the mappings that were read had no room for
    /// so many bytes, and say nothing.
    fn absent(&self, anon: u64) -> u64 {
        // The kernel's counters are exact to some tens of pages, and pages that were made read-only
        // since are anonymous, too.
        const INEXACT: u64 = 1 << 20;
        match self.writable {
            Some(writable) if anon <= writable.private + INEXACT => anon.min(writable.within_reach),
            _ => anon,
        }
    }

    /// The share of `anon` bytes that a speculation copies all the same.
    pub(crate) fn left(&self, anon: u64) -> f64 {
        let absent = self.absent(anon);
        1.0 - absent as f64 / anon.max(1) as f64
    }

    /// The time that a speculation takes to look at the mappings, nanoseconds.
    pub(crate) fn looking_ns(&self) -> f64 {
        const EACH_NS: f64 = 400.0;
        self.looks(0) as f64 * EACH_NS
    }

    fn reasons(&self) -> Vec<(String, u64)> {
        let Some(record) = &self.record else { return Vec::new() };
        let own = format!("/proc/self/fd/{}", record.as_raw_fd());
        let Ok(report) = Report::read(Path::new(&own)) else { return Vec::new() };
        let mut sums: Vec<(AbortReason, u64)> = Vec::new();
        for (reason, count) in report.sites.into_iter().flat_map(|site| site.reasons) {
            match sums.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum += u64::from(count),
                None => sums.push((reason, u64::from(count))),
            }
        }
        sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        sums.into_iter().map(|(reason, count)| (reason.to_string(), count)).collect()
    }
}

/// A writable mapping.
#[derive(Debug, Clone, Copy)]
struct WritableMapping {
    bytes: u64,
    is_private: bool,
    /// Children may lack it.
    may_lack: bool,
}

/// That of a line of maps.
fn writable_mapping(line: &str) -> Option<WritableMapping> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights, inode) = (words.next()?, words.next()?, words.nth(2)?);
    let (start, end) = range.split_once('-')?;
    let bytes = u64::from_str_radix(end, 16).ok()?.checked_sub(u64::from_str_radix(start, 16).ok()?)?;
    let is_private = rights.ends_with('p');
    let may_lack = rights.starts_with("rw") && is_private && inode == "0";
    (rights.get(1..2)? == "w").then_some(WritableMapping { bytes, is_private, may_lack })
}

/// Bytes that children may lack of writable mappings: of the first so many that are large enough
/// (`Ranges` and `SMALLEST` of forkless-speculate and forkless-preload).
fn within_reach(mappings: &[WritableMapping]) -> u64 {
    const SMALLEST: u64 = 128 << 10;
    let large = mappings.iter().filter(|mapping| mapping.may_lack && mapping.bytes >= SMALLEST);
    large.take(RANGES as usize).map(|mapping| mapping.bytes).sum()
}

/// The signals that the first thread of a process blocks, by its status. For a moment of each spawn
/// libc itself blocks all, also its own, which no program can block.
fn blocked_by_program(status: &str) -> SigSet {
    const FIRST_OF_LIBC: i32 = 32;
    let blocked = procfs::signals(status, "SigBlk");
    if blocked.has(FIRST_OF_LIBC) { SigSet::EMPTY } else { blocked }
}

/// Whether a variable of an environment is the switch that turns the library off.
fn switches_off(variable: &[u8]) -> bool {
    let value = variable.strip_prefix(forkless_run::SWITCH_VARIABLE.as_bytes());
    value.and_then(|value| value.strip_prefix(b"=")).is_some_and(forkless_run::is_off)
}

/// Whether a process has variables of ours (`LD_PRELOAD` would come to it as they did). `None`: it
/// has overwritten its environment, or we have no variable to know it by.
fn inherits_ours(environment: &[u8]) -> Option<bool> {
    /// Programs that clear the environment set these anew: su(1), login(1), and shells.
    const SET_ANEW: [&str; 14] = [
        "HOME", "SHELL", "USER", "LOGNAME", "PATH", "TERM", "MAIL", "LANG", "TZ", "PWD", "OLDPWD", "SHLVL",
        "DISPLAY", "_",
    ];
    let theirs: HashSet<&[u8]> = environment.split(|byte| *byte == 0).collect();
    if !environment.is_empty() && !theirs.iter().any(|variable| variable.contains(&b'=')) {
        return None;
    }
    let mut ours =
        std::env::vars_os().filter(|(name, _)| SET_ANEW.iter().all(|known| name != known)).peekable();
    ours.peek()?;
    Some(ours.any(|(name, value)| theirs.contains(&[name.as_bytes(), b"=", value.as_bytes()].concat()[..])))
}

/// Whether a process has no file by this path: it is chrooted, or in a mount namespace without it.
/// `/proc/PID/root` shows files as the process sees them (proc_pid_root(5)).
fn is_hidden(pid: u32, file: &Path) -> bool {
    let root = PathBuf::from(format!("/proc/{pid}/root/"));
    let inside = root.join(file.strip_prefix("/").unwrap_or(file));
    let is_missing =
        |error: std::io::Error| matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
    fs::metadata(inside).is_err_and(is_missing) && fs::metadata(root).is_ok()
}

/// Whether the kernel told the loader to ignore `LD_PRELOAD` (AT_SECURE, getauxval(3)).
fn is_secure(pid: u32) -> bool {
    const AT_SECURE: u64 = 23;
    let auxiliary = fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    auxiliary.chunks_exact(16).any(|pair| word(&pair[..8]) == AT_SECURE && word(&pair[8..]) != 0)
}

/// The quickest of at least three children took longer than the library lets one take. On a busy
/// machine most wait for a processor, and that does not count.
pub(crate) fn too_slow(quickest_ns: Option<f64>, children: u64) -> Result<(), Obstacle> {
    match quickest_ns {
        Some(ns) if children >= 3 && ns > limit_ns() as f64 => Err(Obstacle::Slow(ns as u64)),
        _ => Ok(()),
    }
}

/// The share of the forks that exec which the library would speculate at a call site, where
/// `alone` other forks do not. After a child that works it pauses, for 4 forks, then for four times
/// as many each time (`History` of forkless-speculate). The children are taken to come in no order.
pub(crate) fn speculated_share(execs: u64, alone: u64) -> f64 {
    const FIRST_PAUSE: f64 = 4.0;
    const LONGEST: i32 = 5;
    let works = alone as f64 / (execs + alone).max(1) as f64;
    if works == 0.0 {
        return 1.0;
    }
    // The chance that an abort follows so many others, times the pause that it brings.
    let after = |aborts: i32| (1.0 - works) * works.powi(aborts) * FIRST_PAUSE * 4f64.powi(aborts);
    let longest = works.powi(LONGEST) * FIRST_PAUSE * 4f64.powi(LONGEST);
    let pause: f64 = (0..LONGEST).map(after).sum::<f64>() + longest;
    1.0 / (1.0 + works * pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_judged_by_the_librarys_own_rules() {
        let own = Reach::of(std::process::id()).expect("our own process");
        assert_eq!(own.of_program(), Ok(()));
        assert_eq!(own.of_forks(1 << 20), Err(Obstacle::Small(1 << 20)));
        assert!(own.mappings > 0 && own.threads > 0);
        let many = Reach { mappings: 1128, threads: 1, ..Reach::default() };
        assert_eq!(many.of_forks(16 << 20), Err(Obstacle::Mappings(1128)));
        assert_eq!(many.of_forks(64 << 20), Ok(()));
        let beside_threads = Reach { threads: 2, ..many };
        assert_eq!(beside_threads.of_forks(50 << 20), Err(Obstacle::Mappings(1128)));
        // Of many small mappings a speculation keeps only the first ones from a child.
        let maps = "7f00-7f01 rw-s 0 00:01 5\n".to_owned()
            + &"7f0000000000-7f0000021000 rw-p 00000000 00:00 0\n7f0000021000-7f0000022000 r--p 0 00:00 0\n"
                .repeat(3000);
        let mappings: Vec<WritableMapping> = maps.lines().filter_map(writable_mapping).collect();
        let writable = Writable::of(&mappings);
        let Writable { private, within_reach } = writable;
        assert_eq!((mappings.len(), private, within_reach), (3001, 3000 * 0x21000, 512 * 0x21000));
        let writable = Writable { private: 400 << 20, ..writable };
        let cut = Reach { mappings: 3001, writable: Some(writable), threads: 1, ..Reach::default() };
        assert_eq!(cut.of_forks(400 << 20), Ok(()));
        assert!((cut.left(400 << 20) - (1.0 - 66.0 / 400.0)).abs() < 1e-9 && cut.left(1 << 20) == 0.0);
        let cut = Reach { mappings: 4000, ..cut };
        assert_eq!(cut.of_forks(400 << 20), Err(Obstacle::Mappings(4000)));
        let pieces = Reach { writable: Some(Writable { within_reach: 1 << 20, ..writable }), ..cut };
        assert_eq!(pieces.of_forks(400 << 20), Err(Obstacle::Pieces));
        // php-fpm gives a page's memory back at its end, and its mappings are read later.
        let given_back = Writable { private: 40 << 20, within_reach: 1 << 20 };
        let between = Reach { mappings: 90, writable: Some(given_back), threads: 1, ..Reach::default() };
        assert_eq!(between.of_forks(400 << 20), Ok(()));
        assert_eq!((between.left(400 << 20), between.of_forks(40 << 20)), (0.0, Err(Obstacle::Pieces)));
        let loaded = Reach { loaded: true, off: true, ..Reach::default() };
        assert_eq!(loaded.of_program(), Err(Obstacle::Loaded(Vec::new())));
        assert!(Reach::of(1 << 23).is_none());
        assert!(switches_off(b"FORKLESS=off") && !switches_off(b"FORKLESS=on") && !switches_off(b"FORKLESS"));
    }

    #[test]
    fn a_command_that_keeps_the_library_out_is_known() {
        assert!(matches!(through_command(OsStr::new("/usr/bin/sudo")), Err(Obstacle::Cleared(_))));
        assert_eq!(through_command(OsStr::new("sh")), Ok(()));
        assert_eq!(through_command(OsStr::new("/nonexistent")), Ok(()), "its exec says so");
    }

    /// Forks were said to be saved where the loader got no library.
    #[test]
    fn an_env_that_takes_the_library_away_is_known() {
        let through = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            through_words(&words)
        };
        for taken in ["-u LD_PRELOAD", "--unset=LD_PRELOAD", "-uLD_PRELOAD", "A=1 -u B --unset LD_PRELOAD"] {
            assert_eq!(through(&format!("/usr/bin/env {taken} sh")), Err(Obstacle::Preload), "{taken}");
        }
        assert_eq!(through("env LD_PRELOAD=/lib/other.so sh"), Err(Obstacle::Preload));
        assert_eq!(through("env -u A B=1 sh -u LD_PRELOAD"), Ok(()), "the program's own");
        assert_eq!(through("sh -u LD_PRELOAD"), Ok(()));
    }

    #[test]
    fn a_library_that_a_program_does_not_see_is_known() {
        let own = std::process::id();
        assert!(!is_hidden(own, Path::new("/proc/self/status")));
        assert!(is_hidden(own, Path::new("/nonexistent/library.so")));
        assert!(!is_hidden(1 << 23, Path::new("/nonexistent/library.so")), "there is no such process");
        let hidden = Reach { hidden: Some("/usr/lib/x.so".into()), ..Reach::default() };
        let why = hidden.of_program().expect_err("it is hidden");
        assert_eq!(
            why.to_string(),
            "the program has a root directory or mounts of its own, without /usr/lib/x.so"
        );
        assert_eq!(Reach::of(own).expect("our own process").hidden, None);
    }

    #[test]
    fn an_environment_that_was_cleared_is_known() {
        assert_eq!(Reach::of(std::process::id()).expect("our own process").inherits, Some(true));
        assert_eq!(inherits_ours(b"PATH=/usr/bin\0HOME=/root\0"), Some(false));
        assert_eq!(inherits_ours(b""), Some(false));
        assert_eq!(inherits_ours(b"postgres: writer process\0\0"), None, "a title was written over it");
        let cleared = Reach { inherits: Some(false), ..Reach::default() };
        let of_command = Everywhere { is_of_command: true, ..Everywhere::default() };
        assert_eq!(of_command.in_program(Some(&cleared)), Err(Obstacle::Environment));
        assert_eq!(
            Everywhere::default().in_program(Some(&cleared)),
            Ok(()),
            "nobody knows where it came from"
        );
        let traced = Reach { traced: true, ..Reach::default() };
        assert_eq!(traced.of_forks(64 << 20), Err(Obstacle::Traced));
    }

    #[test]
    fn a_caller_that_survives_a_signal_to_its_group_sees_the_end_of_its_shell() {
        let handles =
            |signal, threads| Reach { handled: SigSet::EMPTY.with(signal), threads, ..Reach::default() };
        assert!(
            !Reach { blocked: SigSet::EMPTY.with(libc::SIGCHLD), ..Reach::default() }.sees_the_end(false)
        );
        assert!(Reach { blocked: SigSet::EMPTY.with(libc::SIGHUP), ..Reach::default() }.sees_the_end(false));
        assert_eq!(blocked_by_program("SigBlk:\tfffffffffffbfeff\n"), SigSet::EMPTY, "in a spawn");
        assert_eq!(blocked_by_program("SigPnd:\t1\nSigBlk:\t0000000000000002\n"), SigSet(2));
        assert!(handles(libc::SIGTERM, 1).sees_the_end(false) && handles(libc::SIGINT, 1).sees_the_end(true));
        assert!(
            !handles(libc::SIGINT, 1).sees_the_end(false) && !handles(libc::SIGSEGV, 1).sees_the_end(true)
        );
        assert!(
            !handles(libc::SIGCHLD, 1).sees_the_end(false) && handles(libc::SIGCHLD, 2).sees_the_end(false)
        );
    }

    #[test]
    fn children_that_work_make_the_library_pause() {
        assert_eq!(speculated_share(10, 0), 1.0);
        let share = |alone| speculated_share(100, alone);
        assert!((0.9..1.0).contains(&share(2)), "{}", share(2));
        assert!(share(10) < share(5) && share(100) < 0.1, "{}", share(100));
        let worker = speculated_share(0, 100);
        assert!(worker > 0.0 && worker < 0.001, "{worker}");
    }

    #[test]
    fn one_slow_child_proves_nothing() {
        assert!(
            too_slow(Some(9e7), 1).is_ok() && too_slow(None, 9).is_ok() && too_slow(Some(1e6), 9).is_ok()
        );
        assert_eq!(too_slow(Some(9e7), 3), Err(Obstacle::Slow(90_000_000)));
    }
}
