//! One line, run twice in the same place, and the differences.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use forkless_shell::{RedirectionKind, Rejection, Script, analyze};

use crate::observer;
use crate::process::{Outcome, Table, start, wait};
use crate::runner::{Runner, Strings};
use crate::shells::Shell;

/// How often the shell may try to do what the direct run did.
const RETRIES: usize = 40;

/// A directory tree in which lines run, rebuilt for every run.
pub(crate) struct Bench {
    base: tempdir::TempDir,
    bin: PathBuf,
    work: PathBuf,
}

/// What a run left behind.
#[derive(PartialEq, Eq)]
struct Trace {
    outcome: Outcome,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// Whether two programs of one pipeline use the same file and one of them writes it. The result is
/// then undefined.
fn is_race(script: &Script<'_>) -> bool {
    script.pipelines().any(|pipeline| {
        let mut uses: Vec<(usize, Vec<u8>, bool)> = Vec::new();
        for (stage, command) in pipeline.stages().enumerate() {
            for redirection in command.redirections() {
                let (path, writes) = match redirection.kind {
                    RedirectionKind::Read(path) => (path, false),
                    RedirectionKind::Write(path)
                    | RedirectionKind::Append(path)
                    | RedirectionKind::ReadWrite(path) => (path, true),
                    RedirectionKind::Duplicate(_) | RedirectionKind::Close => continue,
                };
                let path = path.to_bytes();
                uses.push((stage, path.strip_prefix(b"./").unwrap_or(path).to_vec(), writes));
            }
        }
        uses.iter().any(|one| {
            one.2 && one.1 != b"/dev/null" && uses.iter().any(|other| other.0 != one.0 && other.1 == one.1)
        })
    })
}

/// How a line was dealt with.
pub(crate) enum Verdict {
    /// Left to the shell: nothing to compare.
    Rejected(Rejection),
    /// Its programs race for a file.
    Race,
    /// Run directly, alike; how often the shell had to take over a part.
    Alike(usize),
}

impl Bench {
    pub(crate) fn new() -> Self {
        let base = tempdir::TempDir::new();
        let bin = base.path().join("bin");
        std::fs::create_dir(&bin).expect("create bin");
        let own = std::env::current_exe().expect("the path of this test");
        for name in observer::NAMES {
            std::os::unix::fs::symlink(&own, bin.join(name)).expect("link a program");
        }
        let write = |name: &str, text: &str, mode| {
            std::fs::write(bin.join(name), text).expect("write a script");
            std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(mode)).expect("chmod");
        };
        write("script", "obs from script\n", 0o755);
        write("badinterp", "#!/nonexistent/interpreter\n", 0o755);
        write("noexec", "obs\n", 0o644);
        // Deep enough that no generated `cd` leaves the tree.
        let work = base.path().join("1/2/3/4/5/6/7/8/work");
        Self { base, bin, work }
    }

    pub(crate) fn base(&self) -> &Path {
        self.base.path()
    }

    pub(crate) fn environment(&self, extra: &[&str]) -> Vec<CString> {
        let path = format!("PATH={}:/nonexistent/bin", self.bin.display());
        let deep = format!("DIR={}", self.work.join("sub").display());
        let usual = [
            "PLAIN=plain",
            "SPACED=two  words",
            "EMPTY=",
            "HOSTILE=a\"b'c$d`e\\f*?[x] ~",
            "OUT=out8",
            "TOOL=obs",
            "TILDE=~",
            "LATIN=\u{c0}\u{c1}\u{e9}",
        ];
        let fixed = [path.as_str(), deep.as_str()].into_iter().chain(usual);
        let name = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
        let mut all: Vec<&str> = extra.to_vec();
        for entry in fixed {
            if !all.iter().any(|other| name(other) == name(entry)) {
                let at = if all.is_empty() { 0 } else { entry.len() % all.len() };
                all.insert(at, entry);
            }
        }
        all.into_iter().map(|entry| CString::new(entry).expect("no NUL")).collect()
    }

    /// Runs `line` by `shell` and directly; the difference as text, if there is one.
    pub(crate) fn compare(
        &mut self,
        shell: &Shell,
        environment: &[CString],
        line: &[u8],
    ) -> Result<Verdict, String> {
        let strings = Strings(environment);
        let mut buf = vec![0; 65536];
        let script = match analyze(line, &strings, &shell.traits, &mut buf) {
            Ok(script) => script,
            Err(rejection) => return Ok(Verdict::Rejected(rejection)),
        };
        if is_race(&script) {
            return Ok(Verdict::Race);
        }
        let by_shell = |table: Table| {
            let argv = [c"sh".to_owned(), c"-c".to_owned(), CString::new(line).expect("no NUL")];
            wait(start(&shell.path, &argv, environment, &table).expect("start the shell"))
        };
        let expected = self.trace(by_shell);
        let mut handed_over = 0;
        let actual = self.trace(|table| {
            let mut runner = Runner::new(&shell.path, &shell.traits, line, environment, table);
            let outcome = runner.run(&script);
            handed_over = runner.handed_over;
            outcome
        });
        let leeway = Leeway {
            any_order: script.pipelines().any(|pipeline| pipeline.stage_count() > 1),
            line_numbers: handed_over > 0,
        };
        if expected.alike(&actual, leeway) {
            return Ok(Verdict::Alike(handed_over));
        }
        // Programs read a shared input, or complain, in an order that varies. Each result that the
        // shell itself gives at times is right.
        for _ in 0..if leeway.any_order { RETRIES } else { 0 } {
            let again = self.trace(by_shell);
            if again.alike(&actual, leeway) {
                return Ok(Verdict::Alike(handed_over));
            }
        }
        let mut text = format!("line: \"{}\"\nplan: {script}\n", line.escape_ascii());
        let _ = writeln!(text, "environment: {environment:?}");
        let _ = writeln!(text, "outcome: shell {:?}, direct {:?}", expected.outcome, actual.outcome);
        let names: std::collections::BTreeSet<_> = expected.files.keys().chain(actual.files.keys()).collect();
        for name in names {
            let (ours, theirs) = (actual.files.get(name), expected.files.get(name));
            if ours != theirs {
                let show = |content: Option<&Vec<u8>>| {
                    content.map(|text| String::from_utf8_lossy(text).into_owned())
                };
                let _ = writeln!(
                    text,
                    "{}:\n--- shell\n{:?}\n--- direct\n{:?}",
                    name.display(),
                    show(theirs),
                    show(ours)
                );
            }
        }
        Err(text)
    }

    /// Runs something in a fresh working directory.
    fn trace(&mut self, run: impl FnOnce(Table) -> Outcome) -> Trace {
        let parent = self.base.path().join("1");
        std::env::set_current_dir(self.base.path()).expect("leave the working directory");
        match std::fs::remove_dir_all(&parent) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                panic!("remove the last run: {error}")
            }
            _ => {}
        }
        std::fs::create_dir_all(self.work.join("sub/deep")).expect("create the working directory");
        std::env::set_current_dir(&self.work).expect("enter the working directory");
        std::fs::write("plainfile", "a plain file\n").expect("write");
        std::fs::write("input2", "input two\n").expect("write");
        std::os::unix::fs::symlink(self.bin.join("obs"), "sub/obs").expect("link");
        let outside = parent.join("streams");
        std::fs::create_dir(&outside).expect("create");
        let stream = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true);
            Some(Rc::new(options.open(outside.join(name)).expect("open a stream")))
        };
        std::fs::write(outside.join("stdin"), "line one\nline two\n").expect("write");
        let mut table: Table = [const { None }; 10];
        table[0] = Some(Rc::new(File::open(outside.join("stdin")).expect("open")));
        table[1] = stream("stdout");
        table[2] = stream("stderr");
        table[3] = stream("three");
        let outcome = run(table);
        let mut files = BTreeMap::new();
        collect(&parent, &parent, &mut files);
        Trace { outcome, files }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::env::set_current_dir("/");
    }
}

impl Trace {
    /// Whether both are the same, but for what no runner can promise.
    fn alike(&self, other: &Self, leeway: Leeway) -> bool {
        self.outcome == other.outcome
            && self.files.len() == other.files.len()
            && self
                .files
                .iter()
                .zip(&other.files)
                .all(|(ours, theirs)| ours.0 == theirs.0 && leeway.same(ours.1, theirs.1))
    }
}

/// Where two runs may differ.
#[derive(Clone, Copy)]
struct Leeway {
    /// The programs of a pipeline write in any order, busybox even its own messages in pieces.
    any_order: bool,
    /// A shell that took over counts its lines from where it began.
    line_numbers: bool,
}

impl Leeway {
    fn same(self, ours: &[u8], theirs: &[u8]) -> bool {
        ours == theirs || ((self.any_order || self.line_numbers) && self.normal(ours) == self.normal(theirs))
    }

    fn normal(self, text: &[u8]) -> Vec<u8> {
        let mut normal = Vec::new();
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let is_complaint = line.windows(4).any(|part| part == b"sh: ");
            let strip = self.line_numbers && (is_complaint || self.any_order);
            normal.extend(line.iter().filter(|byte| !(strip && byte.is_ascii_digit())));
        }
        if self.any_order {
            normal.sort_unstable();
        }
        normal
    }
}

fn collect(root: &Path, directory: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(directory).expect("list") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        let name = path.strip_prefix(root).expect("below the root").to_owned();
        if entry.file_type().expect("a type").is_dir() {
            collect(root, &path, files);
            files.insert(name, b"directory".to_vec());
        } else if !entry.file_type().expect("a type").is_symlink() {
            files.insert(name, std::fs::read(&path).expect("read"));
        }
    }
}

mod tempdir {
    //! A directory that is gone when the test is.

    use std::path::{Path, PathBuf};

    pub(crate) struct TempDir(PathBuf);

    impl TempDir {
        pub(crate) fn new() -> Self {
            // Every line has its tree built and removed twice: in memory, if there is room for it.
            let shm = Path::new("/dev/shm");
            let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
            let path = parent.join(format!("forkless-shell-{}", std::process::id()));
            std::fs::create_dir(&path).expect("create a directory for the test");
            // The shells report it as getcwd(3) does.
            Self(path.canonicalize().expect("resolve the directory"))
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
