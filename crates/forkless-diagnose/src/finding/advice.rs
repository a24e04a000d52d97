//! The change to a program that removes a finding's cost, in words that fit its language. A
//! sentence each, without its full stop.

use crate::file_name::file_name;
use crate::interpreter::Family;
use crate::program::ProcessName;
use crate::stack::Frame;

/// What carries a program out: by its file, else by the interpreter's library in the stack, where a
/// server has one built in. `None` for a compiled program.
fn family(process: &ProcessName, stack: &[Frame]) -> Option<Family> {
    let files = stack.iter().filter(|frame| !frame.is_of_script()).map(|frame| frame.module.as_str());
    let mut all = process.exe.as_deref().into_iter().chain(files);
    all.find_map(Family::of_file)
}

/// The functions of the interpreter that stand in a stack.
struct Calls<'s>(&'s [Frame]);

impl Calls<'_> {
    fn has(&self, names: &[&str]) -> bool {
        let is_one = |function: &str| names.contains(&function);
        self.0
            .iter()
            .filter(|frame| !frame.is_of_script())
            .any(|frame| frame.function.as_deref().is_some_and(is_one))
    }

    fn are_in(&self, module: &str) -> bool {
        self.0.iter().any(|frame| file_name(&frame.module).starts_with(module))
    }
}

const SPAWN: &str = "Start programs with posix_spawn or vfork (libraries: forkless)";

/// For forks that copy memory only to execute a program. `is_root` is known of processes of some
/// size.
pub(super) fn for_starts(process: &ProcessName, stack: &[Frame], is_root: Option<bool>) -> String {
    let calls = Calls(stack);
    let Some(family) = family(process, stack) else { return SPAWN.to_owned() };
    let text = match family {
        Family::Python(minor) => return python(minor, &calls),
        Family::Node => {
            "Let a small helper start the programs, one that was started before the data was loaded: libuv up to 1.52 forks for each (later ones do not)"
        }
        // A stripped libruby does not tell `fork` from `spawn`. Its vfork is for users without
        // privileges (process.c, `has_privilege`).
        Family::Ruby if is_root == Some(false) => {
            "Use spawn, system or backticks in place of fork and exec: of these only fork copies memory"
        }
        Family::Ruby => {
            "Run it as another user than root, and use spawn, system or backticks in place of fork and exec: for root Ruby forks for all of them"
        }
        Family::Perl => {
            "Let a small helper start the programs, one that was started before the data was loaded (open my $helper, '|-', 'sh')"
        }
        Family::Php | Family::PhpFpm => {
            "Use exec, shell_exec, passthru or popen in place of proc_open and pcntl_fork: for those the C library forks nothing"
        }
        Family::Java => {
            "Leave jdk.lang.Process.launchMechanism out, or set it to POSIX_SPAWN: FORK alone copies memory"
        }
        Family::Bash | Family::Shell => {
            "Keep much data in files or pipes and not in variables: a shell copies all it holds for each program"
        }
        Family::PyPy | Family::Make | Family::Other => SPAWN,
    };
    text.to_owned()
}

fn python(minor: Option<u32>, calls: &Calls<'_>) -> String {
    const OWN: &str = "`from forkless import subprocess`";
    if calls.has(&["forkpty"]) {
        return "Use forkless.pty in place of pty.fork: it starts the program on a new terminal without a fork".to_owned();
    }
    let by_subprocess = calls.has(&["subprocess_fork_exec"]) || calls.are_in("_posixsubprocess");
    let by_os_fork = calls.has(&["os_fork", "os_fork_impl"]);
    match minor {
        // Before 3.10 subprocess knows no vfork.
        Some(..=8) if !by_os_fork => {
            "Use Python 3.10 or newer, whose subprocess starts programs by vfork".to_owned()
        }
        Some(9) if !by_os_fork => {
            format!("Use Python 3.10 or newer, whose subprocess starts programs by vfork, or {OWN}")
        }
        _ if by_os_fork => "Use subprocess or os.posix_spawn in place of os.fork and os.exec".to_owned(),
        _ if by_subprocess => format!(
            "Give subprocess no preexec_fn, user, group or extra_groups: start_new_session, process_group, umask and cwd need no fork, and {OWN} has options for the rest"
        ),
        // The interpreter has no names.
        _ => format!(
            "Give subprocess no preexec_fn, user, group or extra_groups (start_new_session, process_group, umask and cwd need no fork, {OWN} has options for the rest), and use it in place of os.fork"
        ),
    }
}

/// For forks whose children go on with the memory.
pub(super) fn for_workers(process: &ProcessName, stack: &[Frame]) -> String {
    let text = match family(process, stack) {
        // Its command line: python3 -c 'from multiprocessing.forkserver import main; main(...)'.
        Some(Family::Python(_) | Family::PyPy)
            if process.arguments.iter().any(|word| word.contains("multiprocessing.forkserver")) =>
        {
            "Let multiprocessing's forkserver import fewer modules (set_forkserver_preload), or fork workers less often"
        }
        Some(Family::Python(_) | Family::PyPy) => {
            "Fork before the data is loaded, or let multiprocessing start workers by its forkserver (set_start_method)"
        }
        Some(Family::Bash | Family::Shell) => {
            "Keep much data in files or pipes and not in variables: a shell copies all it holds for each subshell"
        }
        Some(Family::Node | Family::Ruby | Family::Perl | Family::Php | Family::PhpFpm | Family::Java) => {
            "Fork before the data is loaded"
        }
        Some(Family::Make | Family::Other) | None => {
            "Put the heap into huge pages: madvise(MADV_HUGEPAGE), or GLIBC_TUNABLES=glibc.malloc.hugetlb=1 where malloc is glibc's"
        }
    };
    text.to_owned()
}

/// For such forks of very many mappings.
pub(super) fn for_many_mappings(process: &ProcessName, stack: &[Frame]) -> &'static str {
    match family(process, stack) {
        Some(Family::Make | Family::Other) | None => {
            "Keep memory in fewer, larger mappings (no guard page, mprotect or mmap for each small piece), or fork before they are made"
        }
        Some(_) => "Fork before the data is mapped, or map it in fewer, larger pieces",
    }
}

/// What it costs to start a line's programs by words, beside the shell that this saves: by a fork
/// each they copy what their caller holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByWords {
    /// Less than the shell.
    Less,
    /// More than the shell.
    More,
    /// It depends on the caller's memory, which is not known.
    Unknown,
}

/// How many more copies of the caller's memory a line's programs make without their shell, at
/// least. `forks`: the caller's starts of shells copy it.
pub(super) fn copies_by_words(process: &ProcessName, stack: &[Frame], several: bool, forks: bool) -> u32 {
    let programs = if several { 2 } else { 1 };
    let of_shell = u32::from(forks);
    match family(process, stack) {
        // system() and popen() of the C library copy nothing, and proc_open and the subprocess of
        // old Pythons do.
        Some(Family::Php | Family::PhpFpm | Family::Python(Some(..=9))) => programs - of_shell,
        // These start a program in the way that they start a shell.
        Some(Family::Node | Family::Ruby | Family::Perl | Family::Bash | Family::Shell) if forks => {
            programs - of_shell
        }
        _ => 0,
    }
}

/// For shells that are started for lines that need none: of one program, or of `several` with pipes
/// or one after the other.
pub(super) fn for_shells(process: &ProcessName, stack: &[Frame], several: bool, by_words: ByWords) -> String {
    let words = for_lines(process, stack, several);
    if by_words == ByWords::Less {
        return words.to_owned();
    }
    let (holder, instead) = match family(process, stack) {
        Some(Family::Python(_)) => (
            "Python",
            "Use Python 3.10 or newer, whose subprocess starts programs by vfork, and give it a list of words",
        ),
        Some(Family::Bash | Family::Shell) => (
            "the shell",
            "Keep much data in files or pipes and not in variables, then write the line into the script itself",
        ),
        Some(Family::Node) => ("Node.js", HELPER),
        Some(Family::Ruby) => ("Ruby", HELPER),
        Some(Family::Perl) => ("Perl", HELPER),
        Some(Family::Php | Family::PhpFpm) => ("PHP", HELPER),
        _ => ("the program", HELPER),
    };
    match by_words {
        ByWords::More => format!(
            "{instead}: to start each program of the line here would copy what {holder} holds, which costs more than the shell"
        ),
        _ => format!(
            "{words}, where {holder} holds little memory: each start copies it, which costs more than a shell where it is much"
        ),
    }
}

/// For lines such as `true` or `exit 0`.
pub(super) const WITHOUT_PROGRAM: &str =
    "Do without the line, or do in the program itself what it does: it starts no program";

const HELPER: &str = "Let a small helper run the line, a sh that was started before the data was loaded and reads lines from a pipe";

/// A line's programs, started by words.
fn for_lines(process: &ProcessName, stack: &[Frame], several: bool) -> &'static str {
    // Its users write commands of rules, and no calls.
    if process.exe.as_deref().is_some_and(|exe| ["ninja", "samu"].contains(&file_name(exe))) {
        return if several {
            "Let one program do the work of the rule's command: ninja starts a shell for each command"
        } else {
            "Begin the command of the rule with exec: the shell makes way for the program, and under the preloaded library no shell is started for such a line"
        };
    }
    match (family(process, stack), several) {
        (Some(Family::Python(_) | Family::PyPy), false) => {
            "Give subprocess.run a list of words, without shell=True, in place of the line"
        }
        (Some(Family::Python(_) | Family::PyPy), true) => {
            "Start each program of the line by subprocess.Popen with a list of words: for a pipe, stdout=PIPE of one is stdin of the next"
        }
        (Some(Family::Node), false) => {
            "Use execFile or spawn with a list of words in place of exec, without the option shell"
        }
        (Some(Family::Node), true) => {
            "Start each program of the line by spawn with a list of words: for a pipe, stdout.pipe() of one ends in stdin of the next"
        }
        (Some(Family::Ruby), false) => "Give system, spawn or IO.popen each word as an argument of its own",
        (Some(Family::Ruby), true) => "Give Open3.pipeline each program of a pipe as an array of words",
        (Some(Family::Perl), false) => "Give system, exec or open '-|' each word as an argument of its own",
        (Some(Family::Perl), true) => {
            "Give IPC::Run a list of words for each program, or do in Perl what the line's small programs do"
        }
        (Some(Family::Php | Family::PhpFpm), false) => "Give proc_open an array of words",
        (Some(Family::Php | Family::PhpFpm), true) => {
            "Give proc_open an array of words for each program of the line: the pipe of one is a descriptor of the next"
        }
        (Some(Family::Java), false) => "Give ProcessBuilder the program and its arguments, without sh -c",
        (Some(Family::Java), true) => {
            "Give ProcessBuilder.startPipeline a ProcessBuilder for each program, without sh -c"
        }
        // make takes no argument vector, and its shells are none of system() or popen(). A line
        // without one of `sh_chars_sh` of its job.c it executes itself.
        (Some(Family::Make), true) => {
            "Write one command a line, without quotes and redirections where it needs none: make executes such a line without a shell (SHELL as it is by default)"
        }
        (Some(Family::Make), false) => {
            "Write the line without quotes and redirections where it needs none: make executes plain words without a shell (SHELL as it is by default)"
        }
        (Some(Family::Bash | Family::Shell), _) => {
            "Write the line into the script itself: the shell that runs the script needs no second one"
        }
        (Some(Family::Other) | None, false) => {
            "Call the program with an argument vector, or run the line by `forkless::shell` or `forkless_system`"
        }
        (Some(Family::Other) | None, true) => {
            "Run the line by `forkless::shell` or `forkless_system`, or start each program of it with an argument vector and a pipe"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(exe: &str) -> ProcessName {
        ProcessName { exe: Some(exe.to_owned()), ..ProcessName::default() }
    }

    fn stack(frames: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |&(function, module): &(&str, &str)| Frame {
            function: Some(function.to_owned()),
            offset: 1,
            module: module.to_owned(),
            ..Frame::default()
        };
        frames.iter().map(frame).collect()
    }

    /// The words of a line with a pipe are no arguments of one call.
    #[test]
    fn a_line_of_several_programs_has_advice_of_its_own() {
        for (exe, way) in [
            ("/usr/bin/python3.11", "stdout=PIPE"),
            ("/usr/bin/node", "stdout.pipe()"),
            ("/usr/bin/ruby3.1", "Open3.pipeline"),
            ("/usr/bin/perl", "IPC::Run"),
            ("/usr/bin/php8.2", "the pipe of one"),
            ("/usr/lib/jvm/bin/java", "startPipeline"),
            ("/srv/web", "and a pipe"),
            ("/usr/bin/make", "one command a line"),
        ] {
            let of = |several| for_shells(&process(exe), &[], several, ByWords::Less);
            assert!(of(true).contains(way) && !of(false).contains(way), "{exe}");
        }
    }

    /// Regression: PHP, Node.js, Perl and root's Ruby of 300 MB were told to start each program of
    /// a pipe by words: 8 to 14 ms for a line became 135 to 177.
    #[test]
    fn words_that_copy_much_are_no_advice() {
        let copies = |exe, several, forks| copies_by_words(&process(exe), &[], several, forks);
        for exe in ["node", "ruby3.1", "perl", "bash", "dash"] {
            assert_eq!([copies(exe, false, true), copies(exe, true, true)], [0, 1], "{exe}");
        }
        // Its system() copies nothing.
        for exe in ["php8.2", "python3.8"] {
            assert_eq!([copies(exe, false, false), copies(exe, true, false)], [1, 2], "{exe}");
        }
        for exe in ["ruby3.1", "python3.11", "/srv/web", "java"] {
            assert_eq!(copies(exe, true, false), 0, "{exe}");
        }
        let said = |exe, by_words| for_shells(&process(exe), &[], true, by_words);
        for exe in ["php8.2", "node", "ruby3.1", "perl"] {
            let more = said(exe, ByWords::More);
            assert!(more.starts_with("Let a small helper run the line"), "{more}");
            assert!(said(exe, ByWords::Unknown).contains("holds little memory"), "{exe}");
        }
        assert!(said("python3.9", ByWords::More).contains("3.10 or newer"));
        assert!(said("bash", ByWords::More).contains("files or pipes"));
    }

    /// Regression: a line without a shell was promised, and run kept all 450 shells of a make.
    /// Nobody can give it an argument vector.
    #[test]
    fn make_is_not_promised_lines_without_a_shell() {
        for several in [true, false] {
            let said = for_shells(&process("/usr/bin/make"), &[], several, ByWords::Less);
            assert!(!said.contains("forkless") && !said.contains("argument vector"), "{said}");
            let said = for_shells(&process("/usr/bin/ninja"), &[], several, ByWords::Less);
            assert!(said.contains("the rule") && !said.contains("argument vector"), "{said}");
        }
    }

    #[test]
    fn the_family_is_told_by_the_program_or_by_its_library() {
        let of = |exe, frames: &[(&str, &str)]| family(&process(exe), &stack(frames));
        assert_eq!(of("/usr/bin/ruby3.1", &[]), Some(Family::Ruby));
        let in_server = [("f", "/usr/lib/libpython3.9.so.1.0")];
        assert_eq!(of("/usr/bin/uwsgi-core", &in_server), Some(Family::Python(Some(9))));
        assert_eq!(of("/usr/sbin/apache2", &[("f", "/usr/lib/libc.so.6")]), None);
    }

    #[test]
    fn python_is_advised_by_its_version_and_by_what_forks() {
        let said = |exe, function| {
            for_starts(&process(exe), &stack(&[("__libc_fork", "/lib/libc.so.6"), (function, exe)]), None)
        };
        let old = said("/usr/bin/python3.8", "subprocess_fork_exec");
        assert!(old.contains("3.10 or newer") && !old.contains("forkless"), "{old}");
        assert!(said("/usr/bin/python3.9", "subprocess_fork_exec").contains("from forkless import"));
        let new = said("/usr/bin/python3.12", "subprocess_fork_exec");
        assert!(new.contains("no preexec_fn") && new.contains("start_new_session"), "{new}");
        assert!(said("/usr/bin/python3.9", "os_fork_impl").contains("os.posix_spawn"));
        assert!(said("/usr/bin/python3.12", "forkpty").contains("forkless.pty"));
    }

    #[test]
    fn a_forkserver_is_not_advised_to_use_one() {
        let line = "from multiprocessing.forkserver import main; main(7, 8, [])";
        let arguments = ["python3", "-c", line].map(str::to_owned).to_vec();
        let server = ProcessName { arguments, ..process("/usr/bin/python3.11") };
        assert!(for_workers(&server, &[]).contains("set_forkserver_preload"));
        assert!(for_workers(&process("/usr/bin/python3.11"), &[]).contains("set_start_method"));
    }

    #[test]
    fn ruby_is_advised_by_its_user() {
        let said = |root| for_starts(&process("/usr/bin/ruby"), &[], root);
        assert!(said(Some(true)).contains("another user than root"));
        assert!(!said(Some(false)).contains("root"));
    }
}
