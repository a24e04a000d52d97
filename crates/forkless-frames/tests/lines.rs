//! The programs of fixtures/diagnose/lines: each stands in fork or in the wait for its child, and
//! is read from outside. Their folder's page says how what is expected stands beside the code.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use forkless_frames::{Frame, Language, Limits, Reader, Why};

fn fixture(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/diagnose/lines");
    folder.canonicalize().expect("the folder of fixtures").join(name)
}

/// How long a program may take, its reading included.
const LONGEST: Duration = Duration::from_secs(120);

/// A program whose child stands. It is ended with all that it started.
struct Standing {
    child: Child,
    /// Dropping it takes the time limit away.
    _limit: Sender<()>,
    _messages: BufReader<ChildStderr>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        let group = libc::pid_t::try_from(self.child.id()).expect("a pid");
        end(group);
        self.child.wait().expect("our own child");
    }
}

#[expect(unsafe_code, reason = "std cannot signal a process group")]
fn end(group: libc::pid_t) {
    // SAFETY: kill takes no pointer; the group's leader is our child and not reaped yet.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

impl Standing {
    /// Starts a program and waits until its child says that it stands. A program that never does
    /// is ended.
    fn start(arguments: &[&str], program: &Path) -> Self {
        let [interpreter, options @ ..] = arguments else { panic!("no interpreter") };
        let mut child = Command::new(interpreter)
            .args(options)
            .arg(program)
            .env("STAND", fixture("stand.sh"))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("an interpreter that was found");
        let group = libc::pid_t::try_from(child.id()).expect("a pid");
        let (limit, lifted) = mpsc::channel();
        std::thread::spawn(move || {
            if lifted.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
                end(group);
            }
        });
        let mut messages = BufReader::new(child.stderr.take().expect("piped"));
        let mut said = String::new();
        while !said.ends_with("standing\n") {
            let read = messages.read_line(&mut said).expect("text");
            assert!(read > 0, "{} ended and said: {said}", program.display());
        }
        Self { child, _limit: limit, _messages: messages }
    }

    fn threads(&self) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it stands");
        tasks
            .map(|task| task.expect("a name").file_name().to_string_lossy().parse().expect("a tid"))
            .collect()
    }
}

/// What stands beside the code: function and line of each frame, innermost first.
fn expected(program: &Path) -> Vec<(usize, String, u32)> {
    let text = fs::read_to_string(program).expect("a fixture");
    let mut expected: Vec<_> = text
        .lines()
        .zip(1..)
        .flat_map(|(line, number)| {
            let marks = line.split(" @").skip(1).filter_map(|mark| mark.trim().split_once(' '));
            // A variable may look like a mark.
            marks.filter_map(move |(at, function)| {
                Some((at.parse().ok()?, function.trim().to_owned(), number))
            })
        })
        .collect();
    expected.sort();
    expected
}

/// Whether the frames of this file are those expected. Runtimes differ in how they call a method's
/// class and a block, so the end of a function's name counts.
fn are(frames: &[Frame], expected: &[(usize, String, u32)], program: &Path, language: Language) -> bool {
    let frames: Vec<_> = frames.iter().filter(|frame| Path::new(&frame.file) == program).collect();
    !expected.is_empty()
        && expected.iter().all(|(at, function, line)| {
            frames.get(*at).is_some_and(|frame| {
                let name = &frame.function;
                let start = name.len().checked_sub(function.len()).unwrap_or(usize::MAX);
                name.get(start..) == Some(function)
                    && name.get(..start).is_some_and(|before| {
                        before.is_empty() || before.ends_with(['.', '#', ':', ' ', '\\'])
                    })
                    && frame.line == Some(*line)
                    && frame.language == language
            })
        })
}

fn unhurried() -> Limits {
    Limits { time: Duration::from_secs(30), ..Limits::default() }
}

/// The parent goes on from fork to the wait while we read it. It gets there within these readings.
const READINGS: usize = 500;

fn check(interpreter: &[&str], name: &str, language: Language) {
    let program = fixture(name);
    let standing = Standing::start(interpreter, &program);
    let expected = expected(&program);
    let mut seen = Vec::new();
    for _ in 0..READINGS {
        let Some(reader) = Reader::new(standing.child.id()) else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let reader = reader.with_limits(unhurried());
        seen = standing.threads().into_iter().map(|tid| (tid, reader.frames(tid))).collect();
        let finds = |result: &Result<Vec<Frame>, Why>| {
            result.as_ref().is_ok_and(|frames| are(frames, &expected, &program, language))
        };
        let threads: Vec<u32> =
            seen.iter().filter(|(_, result)| finds(result)).map(|(tid, _)| *tid).collect();
        if let [only] = threads[..] {
            assert_eq!(
                only == standing.child.id(),
                !name.starts_with("threads"),
                "{interpreter:?}: {seen:#?}"
            );
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{interpreter:?} {name}: expected {expected:?}, found {seen:#?}");
}

/// The interpreters of these names that are installed.
fn installed(names: &[&str]) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = names.iter().filter_map(|name| {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    });
    found.filter(|file| works(file)).collect()
}

/// A wrapper may stand for an interpreter that is not there.
fn works(file: &Path) -> bool {
    let status = Command::new(file).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn check_all(interpreters: &[&str], programs: &[&str], language: Language) {
    let installed = installed(interpreters);
    if installed.is_empty() {
        return println!("skipped: none of {interpreters:?} is installed");
    }
    for interpreter in installed {
        for program in programs {
            check(&[&interpreter.to_string_lossy()], program, language);
        }
    }
}

/// Every Python from 3.8 on, of PATH and of pyenv.
fn pythons() -> Vec<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| std::env::home_dir().map(|home| home.join(".pyenv")));
    let mut found: Vec<PathBuf> = ["python3.8", "python3.9"]
        .into_iter()
        .chain(["python3.10", "python3.11", "python3.12", "python3.13", "python3.14"])
        .flat_map(|name| {
            let versions = root.iter().filter_map(|root| fs::read_dir(root.join("versions")).ok());
            let folders = versions.flatten().filter_map(|entry| Some(entry.ok()?.path().join("bin")));
            let file = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
            file.into_iter().chain(installed(&[name]))
        })
        .collect();
    // pyenv's own commands lead to another, which is there already.
    found.retain(|file| works(file) && !file.components().any(|part| part.as_os_str() == "shims"));
    found.dedup();
    found
}

/// The version is the file's: `python3.8` gives 8.
fn minor(python: &Path) -> u32 {
    let name = python.file_name().map(|name| name.to_string_lossy().into_owned());
    name.and_then(|name| name.rsplit('.').next()?.parse().ok()).unwrap_or_default()
}

#[test]
fn python_stands_where_it_starts_its_child() {
    let pythons = pythons();
    if pythons.is_empty() {
        return println!("skipped: no Python from 3.8 on is installed");
    }
    for python in pythons {
        for program in ["run.py", "fork.py", "system.py", "threads.py"] {
            check(&[&python.to_string_lossy()], program, Language::Python);
        }
        // Since 3.12 a comprehension is no function.
        let program = if minor(&python) < 12 { "preexec.py" } else { "preexec_inline.py" };
        check(&[&python.to_string_lossy()], program, Language::Python);
    }
}

#[test]
fn bash_stands_where_it_starts_its_child() {
    check_all(
        &["bash"],
        &["substitution.bash", "pipe.bash", "condition.bash", "loop.bash", "source.bash"],
        Language::Bash,
    );
}

#[test]
fn dash_stands_where_it_starts_its_child() {
    if installed(&["true"]).is_empty() || !Path::new("/bin/dash").is_file() {
        return println!("skipped: dash is not installed");
    }
    for program in ["substitution.dash", "plain.dash"] {
        check(&["/bin/dash"], program, Language::Dash);
        check(&["/bin/dash", "-eu"], program, Language::Dash);
    }
}

#[test]
fn ruby_stands_where_it_starts_its_child() {
    let programs = ["system.rb", "backticks.rb", "fork.rb", "threads.rb"];
    check_all(&["ruby"], &programs, Language::Ruby);
}

#[test]
fn perl_stands_where_it_starts_its_child() {
    check_all(&["perl"], &["system.pl", "backticks.pl", "fork.pl"], Language::Perl);
}

#[test]
fn php_stands_where_it_starts_its_child() {
    check_all(&["php"], &["exec.php", "proc_open.php"], Language::Php);
}

#[test]
fn node_stands_where_it_starts_its_child() {
    check_all(&["node"], &["spawn_sync.js", "expressions.js"], Language::JavaScript);
}

/// Functions that have run some times are compiled: the places of a server had no line.
#[test]
fn javascript_compiled_by_sparkplug_has_its_lines() {
    if installed(&["node"]).is_empty() {
        return println!("skipped: node is not installed");
    }
    for name in ["spawn_sync.js", "expressions.js"] {
        check(&["node", "--always-sparkplug"], name, Language::JavaScript);
    }
}

/// Optimized code is not in the order of its bytecode: its lines are not known. The function and
/// the file are. (Node.js 24 interprets these functions all the same.)
#[test]
fn optimized_javascript_has_its_function_and_no_wrong_line() {
    if installed(&["node"]).is_empty() {
        return println!("skipped: node is not installed");
    }
    let program = fixture("spawn_sync.js");
    // Node.js 18 has its older name.
    let takes = |option: &&str| {
        let tried = Command::new("node").args([*option, "-e", "0"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let option = ["--always-turbofan", "--always-opt"].into_iter().find(takes);
    let Some(option) = option else { return println!("skipped: no option has this node optimize all") };
    let standing = Standing::start(&["node", option], &program);
    let reader = Reader::new(standing.child.id()).expect("node").with_limits(unhurried());
    let stands = |frame: &&Frame| Path::new(&frame.file) == program;
    let [start, .., outer] = &expected(&program)[..3] else { panic!("three marks") };
    for _ in 0..READINGS {
        if let Ok(frames) = reader.frames(standing.child.id())
            && let [first, .., last, _] = frames.iter().filter(stands).collect::<Vec<_>>()[..]
        {
            for (frame, (_, function, line)) in [(first, start), (last, outer)] {
                assert_eq!(frame.function, *function, "{frames:#?}");
                assert!(frame.line.is_none_or(|found| found == *line), "{frames:#?}");
            }
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no frames of {}", program.display());
}

#[test]
fn a_process_that_has_ended_is_gone() {
    let standing = Standing::start(&["bash"], &fixture("loop.bash"));
    let pid = standing.child.id();
    let reader = Reader::new(pid).expect("bash").with_limits(unhurried());
    assert!(reader.frames(pid).is_ok());
    drop(standing);
    assert_eq!(reader.frames(pid), Err(Why::Gone));
    assert!(Reader::new(pid).is_none());
}

/// The pid is the same, and the memory another program's.
#[test]
fn a_process_that_executes_another_program_is_gone() {
    let mut child = Command::new("bash")
        .args(["-c", "read -r _; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash");
    // Until its exec it is still the test.
    let found = (0..READINGS).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        Reader::new(child.id())
    });
    let reader = found.expect("bash").with_limits(unhurried());
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"go on\nword\n").expect("it reads");
    let mut word = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut word).expect("cat writes");
    assert_eq!(word, "word\n");
    assert_eq!(reader.frames(child.id()), Err(Why::Gone));
    assert!(Reader::new(child.id()).is_none(), "cat is no interpreter");
    drop(input);
    assert!(child.wait().expect("our own child").success());
}

#[test]
fn limits_bound_what_is_read() {
    let standing = Standing::start(&["bash"], &fixture("substitution.bash"));
    let pid = standing.child.id();
    let reader = Reader::new(pid).expect("bash");
    let reader = reader.with_limits(Limits { frames: 1, ..unhurried() });
    assert_eq!(reader.frames(pid).map(|frames| frames.len()), Ok(1));
    let reader = reader.with_limits(Limits { bytes: 1000, ..unhurried() });
    assert_eq!(reader.frames(pid), Err(Why::TooMuch));
    let reader = reader.with_limits(Limits { time: Duration::ZERO, ..unhurried() });
    assert_eq!(reader.frames(pid), Err(Why::TooMuch));
}
