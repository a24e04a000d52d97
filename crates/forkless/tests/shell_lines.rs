//! Lines without a shell: no shell was started, and nothing else differs from a run with one.

use forkless::{ShellLine, Stdio, shell};
use forkless_sys::process::{P_PID, WEXITED, WNOWAIT};
use forkless_sys::signal::Disposition;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A directory that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("forkless-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path.canonicalize().unwrap())
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The process id of the parent of the last program of `line`, which must print its own
/// `/proc/self/stat`.
fn parent_of(line: &str, tune: impl FnOnce(&mut ShellLine)) -> u32 {
    let mut line = shell(line);
    tune(&mut line);
    let out = line.output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let after_name = text.rsplit(") ").next().unwrap();
    after_name.split(' ').nth(1).unwrap_or_else(|| panic!("{text:?}")).parse().unwrap()
}

/// Lines that end in a program whose parent is this process, unless a shell came between. A shell
/// that replaces itself by the last program could not be told, so each line has a command after it.
const DIRECT: &[&str] = &[
    "cat /proc/self/stat",
    "cat /proc/self/stat && exit 0",
    "true; cat '/proc/self/stat'",
    "cat /proc/self/stat 2>/dev/null || exit 4",
    ": && A=1 cat \"/proc/self/stat\" && :",
    "cat /proc/self/stat | cat",
    "cd / && cat proc/self/stat; true",
];

#[test]
fn lines_that_need_no_shell_start_none() {
    for line in DIRECT {
        assert_eq!(parent_of(line, |_| {}), std::process::id(), "{line}");
    }
}

#[test]
fn lines_that_need_a_shell_get_one() {
    for line in [
        "cat /proc/self/sta[t]; true",
        "for x in 1; do cat /proc/self/stat; done; true",
        "cat $(printf %s /proc/self/stat); true",
    ] {
        assert_ne!(parent_of(line, |_| {}), std::process::id(), "{line}");
    }
    let forced = parent_of("cat /proc/self/stat; true", |line| {
        line.always_shell(true);
    });
    assert_ne!(forced, std::process::id());
}

#[test]
fn a_started_line_says_whether_there_is_a_shell() {
    for (line, direct) in [
        ("true_program() { :; }", false),
        ("cat /dev/null", true),
        ("cd / && cat /dev/null | cat >/dev/null", true),
        ("cat /dev/null; cat /dev/null", false),
        ("cat /dev/null || exit 1", false),
        ("exit 0", false),
    ] {
        let mut child = shell(line).spawn().unwrap();
        assert_eq!(child.is_direct(), direct, "{line}");
        assert!(child.wait().unwrap().success(), "{line}");
    }
}

/// Regression: a line that no program takes as an argument ran, and its shell could not have.
#[test]
fn a_line_that_no_shell_can_be_given_is_an_error_of_the_start() {
    let of_length = |len: usize| format!("cat /dev/null{}", " ".repeat(len - "cat /dev/null".len()));
    let mut child = shell(of_length(131_071)).spawn().unwrap();
    assert!(child.is_direct());
    assert!(child.wait().unwrap().success());
    let error = shell(of_length(131_072)).spawn().map(drop).unwrap_err();
    assert_eq!((error.step(), error.raw_os_error()), (forkless::Step::Exec, Some(libc::E2BIG)));
}

/// Everything a run shows.
#[derive(Debug, PartialEq)]
struct Seen {
    code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
}

fn see(line: &str, always_shell: bool, dir: &Path) -> Seen {
    let mut line = shell(line);
    line.always_shell(always_shell).current_dir(dir);
    line.env("NAME", "a value")
        .env("EMPTY", "")
        .env("not.valid", "1")
        .env("OLDPWD", "/nonexistent")
        .env("SHLVL", "4");
    let out = line.output().unwrap();
    Seen {
        code: out.status.code(),
        signal: out.status.signal(),
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

#[test]
fn what_is_seen_of_a_line_does_not_depend_on_the_mechanism() {
    let scratch = Scratch::new("same");
    std::fs::create_dir(scratch.path().join("sub")).unwrap();
    std::fs::write(scratch.path().join("file"), "content\n").unwrap();
    std::fs::write(scratch.path().join("noscript"), "exit 5\n").unwrap();
    std::fs::write(scratch.path().join("badscript"), "#!/nonexistent\n").unwrap();
    for name in ["noscript", "badscript"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(scratch.path().join(name), mode).unwrap();
    }
    for line in [
        "env",
        "A=1 NAME=2 env",
        "cd sub && env",
        "env | cat",
        "cat file missing 2>&1",
        "cat < file > out; cat out",
        "cat < missing",
        "ls; cat < missing; cat file",
        "missing-program",
        "missing-program 2>/dev/null || cat file",
        "cat file | missing-program",
        "./noscript",
        "./noscript; cat file",
        "./badscript",
        "cat file; ./badscript | cat",
        "./file",
        "./sub",
        "cd missing && cat file",
        "cat file; cd sub; pwd",
        "cd sub; missing-program; env",
        "exit 9",
        "false || exit",
        "! cat missing 2>/dev/null",
        "sh -c 'kill -TERM $$'",
        "sh -c 'kill -KILL $$' 2>&1",
        "sh -c 'kill -KILL $$'; cat file",
        "sh -c 'kill -TERM $$' | cat",
        "sh -c 'kill -PIPE $$'; true",
        "cat \"$NAME\" \"$EMPTY\" \"x$UNSET\"",
        "cat file >&5",
        "cat file 3>&1 1>&2 2>&3 3>&-",
        "exec cat file",
        "cat file\n\n# comment\ncat file # comment",
        "readlink /proc/self/fd/0 /proc/self/fd/3",
        "cat <&-",
        "printf '%s\\n' *",
        "echo $((1 + 1)) `cat file`",
    ] {
        let direct = see(line, false, scratch.path());
        let by_shell = see(line, true, scratch.path());
        assert_eq!(direct, by_shell, "{line}");
    }
}

#[test]
fn many_programs_write_more_than_a_pipe_holds() {
    let out = shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; head -c 1 /dev/zero | cat")
        .output()
        .unwrap();
    assert_eq!((out.stdout.len(), out.stderr.len()), (300_001, 300_000));
    let out = shell("head -c 300000 /dev/zero | cat").output().unwrap();
    assert_eq!(out.stdout.len(), 300_000);
}

#[test]
fn output_has_no_input_and_status_has_the_callers() {
    assert!(shell("cat").output().unwrap().stdout.is_empty());
    assert!(shell("cat; cat").output().unwrap().stdout.is_empty());
}

#[test]
fn a_started_line_talks_through_pipes() {
    for line in ["cat", "cat | cat", "cat; true"] {
        let mut child = shell(line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"through").unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "through", "{line}");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn standard_error_can_go_where_output_goes() {
    let mut child = shell("sh -c 'echo out; echo err >&2'")
        .stdout(Stdio::piped())
        .stderr(Stdio::same_as(1))
        .spawn()
        .unwrap();
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "out\nerr\n");
    child.wait().unwrap();
}

#[test]
fn a_line_killed_by_the_keyboards_signal_ends_there() {
    // A shell without job control starts its background programs with this signal ignored.
    let line = "env --default-signal=INT sh -c 'kill -INT $$'; echo_is_not_reached";
    let out = shell(line).output().unwrap();
    assert_eq!(out.status.signal(), Some(libc::SIGINT));
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_time_limit_holds_for_every_mechanism() {
    for line in [
        "sleep 600",
        "sleep 600 | sleep 600",
        "true && sleep 600; sleep 600",
        "sleep 600 & wait",
        "sleep 600 | cat; cat",
    ] {
        for output in [false, true] {
            let begin = Instant::now();
            let mut line_to_run = shell(line);
            line_to_run.timeout(Duration::from_millis(100)).stdin(Stdio::null());
            let error = match output {
                true => line_to_run.output().unwrap_err(),
                false => line_to_run.status().unwrap_err(),
            };
            assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{line}");
            assert!(begin.elapsed() < Duration::from_secs(300), "{line}");
        }
    }
}

#[test]
fn a_fifo_is_opened_by_the_shell_not_by_the_caller() {
    let scratch = Scratch::new("fifo");
    let made = shell("mkfifo fifo").current_dir(scratch.path()).status().unwrap();
    assert!(made.success());
    let mut child = shell("cat >fifo").current_dir(scratch.path()).stdin(Stdio::piped()).spawn().unwrap();
    assert!(!child.is_direct());
    let mut reader = shell("cat <fifo").current_dir(scratch.path()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"met").unwrap();
    let mut said = String::new();
    reader.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "met");
    assert!(child.wait().unwrap().success() && reader.wait().unwrap().success());
}

#[test]
fn nothing_is_left_behind() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let lines = [
        "cat /dev/null | cat",
        "missing-program 2>/dev/null",
        "cat /dev/null; exit 3",
        "cat </missing 2>/dev/null",
        "ls >/dev/null *",
    ];
    for line in lines {
        shell(line).output().unwrap();
    }
    let before = descriptors();
    for _ in 0..20 {
        for line in lines {
            shell(line).output().unwrap();
            shell(line).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
            shell(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap().wait().unwrap();
        }
    }
    // Other tests of this file come and go meanwhile.
    assert!(descriptors() < before + 40, "{before} before, {} after", descriptors());
}

#[test]
fn a_nul_in_line_or_environment_is_an_error() {
    use std::os::unix::ffi::OsStrExt as _;
    let line = std::ffi::OsStr::from_bytes(b"ls \0");
    assert_eq!(shell(line).status().unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(shell("ls").env("A", "b\0").status().unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

/// Regression: the path of a directory that a line had entered was looked up again for each
/// program. Where it named another directory by then, a file of that one was removed.
#[test]
fn a_line_stays_in_the_directory_that_it_has_entered() {
    for (number, line) in [
        "cd l && ln -sfn b ../l && rm keep && exec /bin/pwd -P",
        "cd l && ln -sfn b ../l && /bin/echo x > new; exec ls . ../b",
        "cd a && mv ../a ../z && touch here; exec ls ../z",
        "cd a; rm keep; rmdir ../a; true; cd ..; exec ls",
        "cd a && cat 3<keep 4<&3 <&4; exec ls",
    ]
    .into_iter()
    .enumerate()
    {
        let seen = |always_shell| {
            let scratch = Scratch::new(&format!("entered-{number}-{always_shell}"));
            for name in ["a", "b"] {
                std::fs::create_dir(scratch.path().join(name)).unwrap();
                std::fs::write(scratch.path().join(name).join("keep"), name).unwrap();
            }
            std::os::unix::fs::symlink("a", scratch.path().join("l")).unwrap();
            let mut run = shell(line);
            run.current_dir(scratch.path()).always_shell(always_shell);
            let out = run.output().unwrap();
            let text = String::from_utf8(out.stdout).unwrap();
            let mut left: Vec<String> = ["a", "b", "z"]
                .iter()
                .flat_map(|name| std::fs::read_dir(scratch.path().join(name)).into_iter().flatten())
                .map(|entry| {
                    entry.unwrap().path().strip_prefix(scratch.path()).unwrap().display().to_string()
                })
                .collect();
            left.sort();
            let text = text.replace(&*scratch.path().to_string_lossy(), "");
            (out.status.code(), text, String::from_utf8(out.stderr).unwrap(), left)
        };
        assert_eq!(seen(false), seen(true), "{line}");
    }
}

#[test]
fn a_missing_directory_is_an_error_of_the_start() {
    let error = shell("ls").current_dir("/nonexistent").status().unwrap_err();
    assert_eq!(error.to_string(), "chdir to /nonexistent: No such file or directory");
}

/// Lines that run directly and lines that do not, each of which prints the masks of a program.
const MASKS: &[&str] = &[
    "grep 'Sig[BI]' /proc/self/status",
    "exec grep 'Sig[BI]' /proc/self/status",
    "cd / && grep 'Sig[BI]' proc/self/status",
    "grep 'Sig[BI]' /proc/self/status | cat",
    "/bin/true; grep 'Sig[BI]' /proc/self/status | cat",
    "/bin/true; exec grep 'Sig[BI]' /proc/self/status",
    "cat </dev/null | cat; exec grep 'Sig[BI]' /proc/self/status",
    "/bin/true; for i in 1; do exec grep 'Sig[BI]' /proc/self/status; done",
    "grep Sig[BI] /proc/self/status",
];

#[test]
fn every_program_of_a_line_has_the_signals_a_shell_would_give_it() {
    const SIGINT: i32 = 2;
    const SIGUSR1: i32 = 10;
    for text in MASKS {
        let said = |always_shell| {
            let mut line = shell(text);
            line.always_shell(always_shell).inherit_signals(true);
            line.signal_mask(forkless::SigSet::EMPTY.with(SIGUSR1));
            line.default_signals(forkless::SigSet::EMPTY.with(SIGINT));
            String::from_utf8(line.output().unwrap().stdout).unwrap()
        };
        let direct = said(false);
        // Which programs have SIGUSR1 blocked depends on this shell.
        assert_eq!(direct, said(true), "{text}");
        let ignored =
            direct.lines().nth(1).and_then(|l| u64::from_str_radix(l.rsplit('\t').next()?, 16).ok());
        assert_eq!(ignored.unwrap() & 1 << (SIGINT - 1), 0, "{text}: {direct}");
    }
}

/// Regression: the line's programs had SIGCHLD ignored, and nobody told of a death.
#[test]
fn a_caller_that_ignores_sigchld_sees_of_a_line_what_the_shell_shows() {
    const NAME: &str = "a_caller_that_ignores_sigchld_sees_of_a_line_what_the_shell_shows";
    const CHILDS: forkless::SigSet = forkless::SigSet::EMPTY.with(libc::SIGCHLD);
    if forkless_sys::signal::disposition(libc::SIGCHLD) != Ok(Disposition::Ignore) {
        // In a process of its own: the other tests need the statuses of their children.
        let mut again = forkless::Command::new(std::env::current_exe().unwrap());
        let out = again.args(["--exact", NAME]).ignore_signals(CHILDS).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let run = |text: &str, always_shell| {
        let mut line = shell(text);
        line.always_shell(always_shell).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = line.spawn().unwrap();
        let (mut stdout, mut stderr) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        // Before Linux 6.15 the status is lost.
        let _ = child.wait();
        (child.is_direct(), stdout, stderr)
    };
    let killed = ["sh -c 'kill -KILL $$'; exit", "sh -c 'kill -KILL $$' 2>&1"];
    for text in MASKS.iter().chain(&killed) {
        let (_, stdout, stderr) = run(text, false);
        assert_eq!((false, stdout, stderr), run(text, true), "{text}");
    }
    let (is_direct, stdout, _) = run("exec grep 'Sig[BI]' /proc/self/status", false);
    assert!(is_direct, "{stdout}");
}

/// Only the command `forkless sh` owns its process.
#[test]
fn a_line_in_the_place_of_a_process_leaves_the_programs_other_children() {
    let mut other = std::process::Command::new("true").spawn().unwrap();
    forkless_sys::process::waitid(P_PID, other.id() as i32, WEXITED | WNOWAIT).unwrap();
    assert_eq!(shell("/bin/true; exit 3").exec().unwrap().code(), Some(3));
    assert!(other.wait().unwrap().success());
}

#[test]
fn a_closed_descriptor_is_in_no_program_of_a_line() {
    use std::os::fd::AsRawFd as _;
    // Below 10, where redirections work, and above.
    let files: Vec<std::fs::File> = (0..12).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    for file in &files {
        let number = file.as_raw_fd();
        forkless_sys::fd::set_cloexec(number, false).unwrap();
        let mut there = shell(format!("test -e /proc/self/fd/{number}"));
        assert_eq!(there.inherit_descriptors(true).status().unwrap().code(), Some(0), "{there:?}");
        for line in [
            format!("test -e /proc/self/fd/{number}"),
            format!("cat </dev/null | test -e /proc/self/fd/{number}"),
            format!("if test -e /proc/self/fd/{number}; then exit 0; else exit 1; fi"),
            format!("test -e /proc/self/fd/{number} 1>&{number} 2>/dev/null"),
        ] {
            let mut line = shell(line);
            line.close_descriptor(number).inherit_descriptors(true).stderr(Stdio::null());
            assert_ne!(line.status().unwrap().code(), Some(0), "{line:?}");
        }
    }
}

#[test]
fn a_line_that_begins_like_an_option_is_none() {
    let out = shell("-c 'echo wrong'").output().unwrap();
    assert_eq!(out.status.code(), Some(127));
    assert_eq!(out.stdout, b"");
}
