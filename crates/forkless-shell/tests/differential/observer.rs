//! The programs of tested lines: this executable under other names. It reports its arguments,
//! environment and descriptors.

use std::io::{Read, Write};

/// The names it goes by, all in one directory that is the whole `PATH`.
pub(crate) const NAMES: &[&str] = &["obs", "ok", "no", "rc3", "err", "copy", "both", "t9", "t13", "t15"];

/// Acts as the program `name` and exits; returns if there is none of that name.
pub(crate) fn act_as(name: &str) {
    let code = match name {
        "obs" => observe(),
        "ok" => 0,
        "no" => 1,
        "rc3" => 3,
        "err" => {
            say(&mut std::io::stderr(), b"err: a message\n");
            0
        }
        "both" => {
            say(&mut std::io::stdout(), b"both: out\n");
            say(&mut std::io::stderr(), b"both: err\n");
            7
        }
        "copy" => {
            let mut text = Vec::new();
            // A closed or write-only standard input reads as an error. The error is compared, too.
            let code = i32::from(std::io::stdin().read_to_end(&mut text).is_err());
            say(&mut std::io::stdout(), &text);
            code
        }
        "t9" | "t13" | "t15" => die_of(&name[1..]),
        _ => return,
    };
    std::process::exit(code);
}

/// Writes whatever becomes of it: the other end of a pipe may be gone.
fn say(to: &mut dyn Write, text: &[u8]) {
    let _ = to.write_all(text).and_then(|()| to.flush());
}

fn observe() -> i32 {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;

    let mut report = String::from("obs");
    for argument in std::env::args_os() {
        let _ = write!(report, " <{}>", argument.as_bytes().escape_ascii());
    }
    report.push('\n');
    for entry in std::fs::read("/proc/self/environ").unwrap_or_default().split(|&b| b == 0) {
        let _ = writeln!(report, " {}", entry.escape_ascii());
    }
    let cwd = std::env::current_dir().map(|path| path.display().to_string());
    let _ = writeln!(report, " in {cwd:?}");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for line in status.lines().filter(|line| line.starts_with("SigBlk") || line.starts_with("SigIgn")) {
        let _ = writeln!(report, " {line}");
    }
    for fd in 0..10 {
        // Pipes have different numbers in each run.
        if let Ok(link) = std::fs::read_link(format!("/proc/self/fd/{fd}")) {
            let link = link.display().to_string();
            let what = if link.starts_with("pipe:") { "pipe" } else { &link };
            // read_link opens nothing, so every open descriptor was inherited.
            let _ = writeln!(report, " {fd} -> {what}");
        }
    }
    say(&mut std::io::stdout(), report.as_bytes());
    0
}

fn die_of(number: &str) -> i32 {
    use nix::sys::signal::{SigHandler, Signal, raise, signal};
    let number = number.parse().ok().and_then(|number: i32| Signal::try_from(number).ok());
    let Some(number) = number else { return 99 };
    if number != Signal::SIGKILL {
        restore_default(number);
    }
    let _ = raise(number);
    return 98;

    /// The Rust runtime ignores SIGPIPE.
    #[expect(unsafe_code, reason = "signal(2) takes a handler")]
    fn restore_default(number: Signal) {
        // SAFETY: the default action is no handler, so no code runs in a signal's context.
        let _ = unsafe { signal(number, SigHandler::SigDfl) };
    }
}
