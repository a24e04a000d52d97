//! How a process was started, as a line for a shell. A report's commands are made of such lines.
//! There is no line where the arguments are uncertain (the process wrote a title over them) or hold
//! control characters.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Longer lines are unreadable. A report then gives the program's path alone.
const LONGEST: usize = 240;

/// A process's arguments, and the directory of the relative paths in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    words: Vec<String>,
    directory: Option<String>,
}

impl Invocation {
    /// `None` if the process is gone or has no arguments (a kernel thread, a zombie).
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let line = String::from_utf8(fs::read(format!("/proc/{pid}/cmdline")).ok()?).ok()?;
        let mut words: Vec<String> = line.strip_suffix('\0')?.split('\0').map(str::to_owned).collect();
        let exe = format!("/proc/{pid}/exe");
        let directory = fs::read_link(format!("/proc/{pid}/cwd")).ok();
        let first = words.first()?;
        if !starts(first, directory.as_deref()?, &exe) {
            // The first word is a title, or a name like `-bash`. Only after a name come the real
            // arguments.
            if first.contains(char::is_whitespace) || first.contains(':') {
                return None;
            }
            words[0] = fs::read_link(exe).ok()?.to_str()?.to_owned();
        }
        // The directory matters only if an argument names a file in it.
        let relative =
            |word: &String| !word.starts_with(['/', '-']) && (word.contains('/') || word.contains('.'));
        let here = std::env::current_dir().ok();
        let directory = directory.filter(|there| {
            Some(there) != here.as_ref()
                && words.iter().any(|word| relative(word) && there.join(word).exists())
        });
        let directory = directory.and_then(|there| there.to_str().map(str::to_owned));
        Some(Self { words, directory })
    }

    /// By the arguments of a process that is gone: its directory is not known. `None` for a title
    /// that the process has written over them.
    pub(crate) fn of_arguments(exe: Option<&str>, arguments: &[String]) -> Option<Self> {
        let first = arguments.first()?;
        if first.contains(char::is_whitespace) || first.contains(':') {
            return None;
        }
        let mut words = arguments.to_vec();
        // A login shell's name, or one that only exec -a made.
        if first.starts_with('-') {
            words[0] = exe?.to_owned();
        }
        Some(Self { words, directory: None })
    }

    /// The invocation of a command that runs in our own directory.
    pub(crate) fn of_command(argv: &[std::ffi::OsString]) -> Option<Self> {
        let words: Option<Vec<String>> = argv.iter().map(|word| word.to_str().map(str::to_owned)).collect();
        Some(Self { words: words?, directory: None })
    }

    /// A line that starts it again, with `before` in front of the program.
    pub(crate) fn line(&self, before: &str) -> Option<String> {
        let (first, others) = self.words.split_first()?;
        let first = quoted_first(first);
        let words: Option<Vec<String>> =
            [first].into_iter().chain(others.iter().map(|word| quoted(word))).collect();
        let line = format!("{before}{}", words?.join(" "));
        let line = match &self.directory {
            Some(directory) => format!("cd {} && {line}", quoted(directory)?),
            None => line,
        };
        (line.len() <= LONGEST).then_some(line)
    }
}

/// Whether our PATH finds the file that the process runs under its name. One file may be several
/// programs: `redis-server` is a link to `redis-check-rdb` on Debian.
pub(crate) fn is_found_as(pid: u32, name: &str) -> bool {
    !name.contains('/') && starts(name, Path::new(""), &format!("/proc/{pid}/exe"))
}

/// Whether `name`, in `directory` or along our PATH, is the file that the process runs.
fn starts(name: &str, directory: &Path, exe: &str) -> bool {
    let Ok(runs) = fs::metadata(exe) else { return false };
    let is_it = |path: PathBuf| {
        fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (runs.dev(), runs.ino()))
    };
    if name.contains('/') {
        return is_it(directory.join(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .is_some_and(is_it)
}

/// The word quoted for a shell; `None` if it has control characters.
pub(crate) fn quoted(word: &str) -> Option<String> {
    if word.chars().any(char::is_control) {
        return None;
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=/.,:@%".contains(c);
    // zsh takes a word that begins with `=` for a program's path.
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('=') {
        return Some(word.to_owned());
    }
    Some(format!("'{}'", word.replace('\'', "'\\''")))
}

/// The same of a program's name. With a plain `=` it would be an assignment, and the next word the
/// program.
pub(crate) fn quoted_first(word: &str) -> Option<String> {
    let plain = quoted(word)?;
    Some(if plain == word && word.contains('=') { format!("'{word}'") } else { plain })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_a_shell_the_same_words() {
        let words = ["printf", "%s|", "a b", "it's", "", "$HOME", "x=1", "~", "*"].map(str::to_owned);
        let invocation = Invocation { words: words.to_vec(), directory: Some("/usr/share".into()) };
        let line = invocation.line("exec ").expect("it is short and plain");
        let output = std::process::Command::new("sh").args(["-c", &line]).output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a b|it's||$HOME|x=1|~|*|", "{line}");
        assert_eq!(quoted("a\nb"), None);
        assert_eq!(quoted_first("x=1").as_deref(), Some("'x=1'"));
        let long = Invocation { words: vec!["x".repeat(LONGEST + 1)], directory: None };
        assert_eq!(long.line(""), None);
    }

    #[test]
    fn what_was_started_is_found_and_a_title_is_not_taken_for_it() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read x; exec sleep 60", "./sh"])
            .current_dir("/bin")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("sh runs");
        // The caller goes on before the new program's arguments are in place (exec_mmap() in the
        // kernel's fs/exec.c).
        let arrived = |pid: u32| {
            while fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty()) {
                std::thread::yield_now();
            }
            Invocation::of(pid)
        };
        let found = arrived(child.id());
        // /bin/sh is a link to dash, or to another shell.
        let names = ["sh", "cat", "/bin/sh"].map(|name| is_found_as(child.id(), name));
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        let line = found.and_then(|found| found.line("nice -n 5 "));
        assert_eq!(line.as_deref(), Some("cd /usr/bin && nice -n 5 sh -c 'read x; exec sleep 60' ./sh"));
        assert_eq!(Invocation::of(child.id()), None);
        assert_eq!(names, [true, false, false]);

        use std::os::unix::process::CommandExt as _;
        let mut titled = std::process::Command::new("sleep")
            .arg0("redis-server *:6379")
            .arg("60")
            .spawn()
            .expect("sleep runs");
        let found = arrived(titled.id());
        titled.kill().expect("it is ours");
        titled.wait().expect("it ends");
        assert_eq!(found, None);
    }
}
