//! The facilities that an unmodified program needs to lose its forks under `forkless run`.

use std::os::unix::ffi::OsStrExt as _;

use forkless::AskedShell;
use forkless_run::{
    Options, Preloading, SWITCH_FILE, SWITCH_VARIABLE, Switch, WORDS_VARIABLE, Warning, is_off,
};

use super::{Answer, Entry, State, Verdict, setting, works, works_or_not};

const DISPATCH: &str = "syscall user dispatch";
const OWN_MEMORY: &str = "/proc/self/mem";
const LIBRARY: &str = "preloaded library";
const SHELL: &str = "/bin/sh";
const FILTERS: &str = "permission for calls";

pub(super) fn entries() -> Vec<Entry> {
    // First: where a filter kills for one of its calls, the shell is not asked.
    let filters = forkless_run::filter_warning();
    let asked = if filters.is_some() { None } else { AskedShell::start() };
    vec![
        Entry::new(
            DISPATCH,
            works_or_not(forkless_run::user_dispatch()),
            "catching the system calls of a speculative child",
            "forks are left as they are",
        ),
        Entry::new(
            "PROCMAP_QUERY",
            works_or_not(forkless_run::procmap_query()),
            "finding a mapping without reading all of /proc/self/maps",
            "the maps file is read as text",
        ),
        Entry::new(
            OWN_MEMORY,
            works_or_not(forkless_run::own_memory()),
            "bringing memory into a speculative child",
            "forks are left as they are",
        ),
        Entry::new(
            "dynamic loader",
            loaders(),
            "preloading the library",
            "statically linked programs stay as they are",
        ),
        Entry::new(
            LIBRARY,
            forkless_run::find_library()
                .map(|path| path.display().to_string())
                .map_err(|why| why.to_string()),
            "everything run does",
            "programs run plainly",
        ),
        under_filters(filters.as_ref()),
        Entry::new(
            SHELL,
            match asked.and_then(AskedShell::hear) {
                Some(known) => Ok(known.traits.kind().to_string()),
                None if filters.is_some() => Err("not asked, for a filter that kills".to_owned()),
                None => Err("not a shell whose ways are known".to_owned()),
            },
            "running lines of system(), popen() and sh -c without it",
            "every line goes to the shell",
        ),
        preloaded(),
        Entry::info("off switches", switches(), "leaving alone every program that starts while one is on"),
        words(),
        Entry::info(
            "vm.overcommit_memory",
            setting("/proc/sys/vm/overcommit_memory").unwrap_or_else(|why| why),
            "2 makes a large process's fork fail with ENOMEM where a start without fork does not",
        ),
    ]
}

/// Whether the library can be found and is not switched off, or why not.
pub(super) fn is_installed() -> Result<(), String> {
    if let Some(switch) = switched_off() {
        return Err(format!("it is switched off: {switch}"));
    }
    forkless_run::find_library().map(drop).map_err(|why| why.to_string())
}

fn switched_off() -> Option<Switch> {
    Switch::turned(std::env::var_os(SWITCH_VARIABLE).as_ref().map(|value| value.as_bytes()))
}

pub(super) fn verdict(entries: &[Entry]) -> Verdict {
    if let Some(switch) = switched_off() {
        return Answer::No.because(format!("it is switched off: {switch}"));
    }
    if !works(entries, LIBRARY) {
        return Answer::No.because("the preloaded library is not there: programs run plainly");
    }
    if let Some(filters) = alone(entries) {
        return Answer::No.because(filters.detail.as_str());
    }
    if !forkless_run::SPECULATES {
        return Answer::Partly.because("forks are left as they are on this architecture");
    }
    if let Some(missing) = [DISPATCH, OWN_MEMORY].iter().find(|name| !works(entries, name)) {
        return Answer::Partly.because(format!("forks are left as they are: no {missing}"));
    }
    if works(entries, SHELL) {
        Answer::Yes.because("forks that lead to an exec are not copied, lines need no shell")
    } else {
        Answer::Partly.because("forks that lead to an exec are not copied; lines need the shell")
    }
}

pub(super) fn path(entries: &[Entry]) -> String {
    if let Some(filters) = alone(entries) {
        return filters.detail.clone();
    }
    if !forkless_run::SPECULATES {
        return Warning::NeverSpeculates.to_string();
    }
    if works(entries, DISPATCH) {
        "forks that only lead to an exec are speculated about".to_owned()
    } else {
        "forks are left as they are: the kernel lacks syscall user dispatch (Linux 5.11)".to_owned()
    }
}

/// What replaces all that `run` does.
const ALONE: &str = "forks, lines and memory are left alone";

/// What the filters over this process do, which are those over a program that it would start.
fn under_filters(warning: Option<&Warning>) -> Entry {
    let without = match warning {
        Some(Warning::FilterKills { only_lines: true, .. }) => "every line goes to the shell",
        _ => ALONE,
    };
    let outcome = warning.map_or_else(|| Ok("none kills".to_owned()), |warning| Err(warning.to_string()));
    Entry::new(FILTERS, outcome, "everything run does", without)
}

/// The facility whose lack leaves programs as they are, if it lacks.
fn alone(entries: &[Entry]) -> Option<&Entry> {
    entries.iter().find(|one| one.name == FILTERS && one.state == State::Missing && one.without == ALONE)
}

/// The lists that name the library. It is missing if the loader will not find it.
fn preloaded() -> Entry {
    let entry = |outcome| {
        Entry::new(
            "preloaded without run",
            outcome,
            "each program has the library, by LD_PRELOAD or /etc/ld.so.preload",
            "only programs that `forkless run` starts have it",
        )
    };
    let all = forkless_run::preloadings();
    let name = |one: &Preloading| format!("{} names {}", one.list, one.path.display());
    if let Some(missing) = all.iter().find(|one| one.is_missing()) {
        return entry(Err(format!(
            "{}, and there is no such file: the loader says so in every program",
            name(missing)
        )));
    }
    if all.is_empty() {
        // Most machines want it so.
        let none = entry(Ok("neither LD_PRELOAD nor /etc/ld.so.preload names it".to_owned()));
        return Entry { state: State::Info, ..none };
    }
    entry(Ok(all.iter().map(name).collect::<Vec<_>>().join("; ")))
}

fn switches() -> String {
    let variable = std::env::var_os(SWITCH_VARIABLE).filter(|value| is_off(value.as_bytes()));
    let file = SWITCH_FILE.to_string_lossy();
    format!(
        "{SWITCH_VARIABLE}: {}; {file}: {}",
        if variable.is_some() { "off" } else { "not off" },
        if forkless_run::switch_file_exists() { "there, so off" } else { "not there" },
    )
}

/// The options that the words give, and whether all words were understood. The library in a program
/// takes unknown words away, so they are seen here only if this command has no library.
fn words() -> Entry {
    let entry = |said, state| {
        let used_for = "the options of programs that have the library without run";
        Entry { state, ..Entry::info(WORDS_VARIABLE, said, used_for) }
    };
    let set = std::env::var_os(WORDS_VARIABLE);
    let text = set.as_ref().map_or(&b""[..], |text| text.as_bytes());
    let (options, understood) = Options::parse_words(text);
    let mut all = Vec::new();
    options.encode_words(&mut all);
    let mut said = String::from_utf8_lossy(&all).into_owned();
    if set.is_none() {
        said = format!("not set: {said}");
    }
    if understood {
        return entry(said, State::Info);
    }
    let unknown = |word: &&[u8]| !Options::default().read_word(word);
    let unknown: Vec<_> = forkless_run::words(text).filter(unknown).map(String::from_utf8_lossy).collect();
    entry(format!("unknown: {}; in force: {said}", unknown.join(" ")), State::Missing)
}

fn loaders() -> Result<String, String> {
    let found = forkless_run::loaders();
    if found.is_empty() { Err("no dynamic loader found".to_owned()) } else { Ok(found.join(", ")) }
}
