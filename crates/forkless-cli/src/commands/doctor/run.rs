//! The facilities that an unmodified program needs to lose its forks under `forkless run`.

use forkless::AskedShell;
use forkless_run::Warning;

use super::{Entry, setting, works, works_or_not};

const DISPATCH: &str = "syscall user dispatch";

pub(super) fn entries() -> Vec<Entry> {
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
            "/proc/self/mem",
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
            "preloaded library",
            forkless_run::find_library()
                .map(|path| path.display().to_string())
                .map_err(|why| why.to_string()),
            "everything run does",
            "programs run plainly",
        ),
        Entry::new(
            "/bin/sh",
            AskedShell::start()
                .and_then(AskedShell::hear)
                .map(|known| known.traits.kind().to_string())
                .ok_or_else(|| "not a shell whose ways are known".to_owned()),
            "running lines of system() and popen() without it",
            "every line goes to the shell",
        ),
        Entry::info(
            "vm.overcommit_memory",
            setting("/proc/sys/vm/overcommit_memory").unwrap_or_else(|why| why),
            "2 makes a large process's fork fail with ENOMEM where a start without fork does not",
        ),
    ]
}

pub(super) fn path(entries: &[Entry]) -> String {
    if !forkless_run::SPECULATES {
        return Warning::NeverSpeculates.to_string();
    }
    if works(entries, DISPATCH) {
        "forks that only lead to an exec are speculated about".to_owned()
    } else {
        "forks are left as they are: the kernel lacks syscall user dispatch (Linux 5.11)".to_owned()
    }
}

fn loaders() -> Result<String, String> {
    let found = forkless_run::loaders();
    if found.is_empty() { Err("no dynamic loader found".to_owned()) } else { Ok(found.join(", ")) }
}
