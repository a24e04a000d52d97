//! What a process is called in reports. Users look for the words that they started it with, or for
//! the name that it gave itself: `manage.py`, `python3 -m app`, `node server.js`, `postgres`.

use serde::Serialize;

use crate::file_name::file_name;
use crate::interpreter::{Family, is_shell};

/// A process's names in reports, as they were at its fork.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProcessName {
    /// What it is called: the title or name that it gave itself, else its script, else its
    /// program's file.
    pub name: String,
    /// The thread leader's name.
    pub comm: String,
    /// The program, as a path in the process's own mount namespace.
    pub exe: Option<String>,
    /// Its arguments, as far as they are known; a title that it wrote over them.
    pub arguments: Vec<String>,
    /// Its cgroup in the unified hierarchy.
    pub cgroup: Option<String>,
    /// The container, from the cgroup's path: a name, or the beginning of its number.
    pub container: Option<String>,
    /// The unit of systemd, from the cgroup's path.
    pub unit: Option<String>,
}

impl ProcessName {
    pub(crate) fn set_cgroup(&mut self, cgroup: String) {
        (self.container, self.unit) = owners(&cgroup);
        self.cgroup = Some(cgroup);
    }
}

/// What is known of a process that is to be named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KnownProgram {
    pub(crate) comm: String,
    pub(crate) exe: Option<String>,
    /// As execve got it: the script, for a script.
    pub(crate) path: Option<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) cgroup: Option<String>,
}

impl KnownProgram {
    pub(crate) fn name(self) -> ProcessName {
        let name = self.called();
        let (container, unit) = self.cgroup.as_deref().map_or((None, None), owners);
        ProcessName {
            name,
            comm: self.comm,
            exe: self.exe,
            arguments: self.arguments,
            cgroup: self.cgroup,
            container,
            unit,
        }
    }

    fn called(&self) -> String {
        let exe = self.exe.as_deref().map(file_name);
        let first = self.arguments.first().map(|word| word.strip_prefix('-').unwrap_or(word));
        if let Some(title) = first.and_then(|first| self.title(first)) {
            return title.to_owned();
        }
        // The kernel names the thread leader after the file that execve got: after the script, for
        // a script that was started by its own name.
        let is_comm = |path: &str| !self.comm.is_empty() && cut(file_name(path)) == self.comm;
        let told = [self.exe.as_deref(), self.path.as_deref(), first];
        if !told.iter().flatten().any(|path| is_comm(path)) || self.path.as_deref().is_some_and(is_comm) {
            let script = self.arguments.iter().skip(1).find(|word| is_comm(word));
            if let Some(script) = script {
                return script_name(script);
            }
        }
        // Runtimes name their main thread, and users did not choose these names.
        let by_runtime =
            self.comm.contains("MainThread") || exe.is_some_and(|exe| self.comm.starts_with(exe));
        let renamed = is_text(&self.comm) && !told.iter().flatten().any(|path| is_comm(path)) && !by_runtime;
        // Without a program there is nothing that the name could be compared with.
        if renamed && told.iter().flatten().next().is_some() {
            return without_open_bracket(&self.comm).to_owned();
        }
        if let Some(started) = interpreted(exe, &self.arguments) {
            return started;
        }
        let path = self.path.as_deref().map(file_name);
        let by_path = first.filter(|first| first.contains('/')).map(file_name);
        let known = exe.or(by_path).or(path).unwrap_or(&self.comm);
        if known.is_empty() { "an unknown program".to_owned() } else { known.to_owned() }
    }

    /// The first word of a title that the process has written over its arguments (setproctitle):
    /// `gunicorn: master [app]`, `redis-server *:6379`, or `shop-api` with nothing behind it.
    fn title<'w>(&self, first: &'w str) -> Option<&'w str> {
        let is_path =
            |path: &Option<String>| path.as_deref().is_some_and(|path| file_name(path) == file_name(first));
        if is_path(&self.exe) || is_path(&self.path) {
            return None;
        }
        if !(first.contains(' ') || first.ends_with(':') || self.is_one_word_of_a_title(first)) {
            return None;
        }
        let word = first.split([' ', ':']).next()?;
        let word = if word.starts_with(['/', '.']) { file_name(word) } else { word };
        let word = without_open_bracket(word);
        is_text(word).then_some(word)
    }

    /// Whether a word stands where an interpreter was started with arguments, of which nothing is
    /// left. Any other program may have been started by any name (`exec -a`).
    fn is_one_word_of_a_title(&self, first: &str) -> bool {
        let is_interpreter = |file: &str| interpreter(file_name(file)).is_some();
        self.exe.as_deref().is_some_and(is_interpreter)
            && !is_interpreter(first)
            // Perl writes blanks over what was there.
            && self.arguments.iter().skip(1).all(|word| word.trim().is_empty())
    }
}

/// The name in a title that is bracketed as a whole (`[celeryd: celery@vm:MainProcess]`), of which
/// only the beginning is there.
fn without_open_bracket(name: &str) -> &str {
    let is_open = |(open, close)| name.starts_with(open) && !name.contains(close);
    let opens = [('[', ']'), ('(', ')'), ('<', '>'), ('{', '}')].into_iter().any(is_open);
    if opens { &name[1..] } else { name }
}

/// Whether a name can be read. A program may name itself by any bytes, and those that are no UTF-8
/// were replaced.
fn is_text(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_control() || c == char::REPLACEMENT_CHARACTER)
}

/// As much of a name as the kernel keeps (TASK_COMM_LEN). Bytes that are no UTF-8 were replaced
/// before, and such a name never compares equal.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(15);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// A script's file. Some names are the same in every project, and only their directory tells them
/// apart.
fn script_name(path: &str) -> String {
    let name = file_name(path);
    if matches!(name, "__main__.py" | "__init__.py" | "index.js" | "main.js")
        && let Some(directory) = path.strip_suffix(name).map(|rest| file_name(rest.trim_end_matches('/')))
        && !directory.is_empty()
        && directory != "."
    {
        return format!("{directory}/{name}");
    }
    name.to_owned()
}

/// How a family of interpreters reads its options.
struct Interpreter {
    /// Options whose value is the next word.
    valued: &'static [&'static str],
    /// Options after which the program itself follows, as text.
    code: &'static [&'static str],
    /// Options whose value is the name of what is run: a module, an archive.
    named: &'static [&'static str],
    /// Whether short options may stand together (`-lane`).
    clusters: bool,
}

fn interpreter(called: &str) -> Option<Interpreter> {
    let (valued, code, named, clusters): (&[_], &[_], &[_], bool) = match Family::of_file(called)? {
        Family::Python(_) | Family::PyPy => {
            (&["-X", "-W", "--check-hash-based-pycs"], &["-c"], &["-m"], true)
        }
        Family::Node => (
            &["-r", "--require", "--import", "--loader", "-C", "--conditions"],
            &["-e", "--eval", "-p", "--print", "-pe"],
            &[],
            false,
        ),
        Family::Ruby => (&["-I", "-r", "-C", "-E"], &["-e"], &[], true),
        Family::Perl => (&["-I"], &["-e", "-E"], &[], true),
        Family::Php => (&["-d", "-c", "-z", "-t"], &["-r", "-B", "-R"], &["-S"], false),
        Family::Java => (
            &["-cp", "-classpath", "--class-path", "-p", "--module-path"],
            &[],
            &["-jar", "-m", "--module"],
            false,
        ),
        Family::Bash | Family::Shell => {
            (&["-o", "-O", "+O", "+o", "--rcfile", "--init-file"], &["-c"], &[], true)
        }
        Family::Other => (&[], &["-e"], &[], false),
        Family::PhpFpm | Family::Make => return None,
    };
    Some(Interpreter { valued, code, named, clusters })
}

/// What an interpreter runs, by its arguments: `python3 app.py`, `python3 -m app`, `java -jar
/// shop.jar`. Of a program that is given as text only the option: `python3 -c`. A shell's line
/// is its own finding, and the shell stays a shell.
fn interpreted(exe: Option<&str>, arguments: &[String]) -> Option<String> {
    let (first, rest) = arguments.split_first()?;
    let first = file_name(first.strip_prefix('-').unwrap_or(first));
    let exe = exe.unwrap_or(first);
    // Called by another of its names (python3 is python3.11, sh is dash), users know it by that.
    let called = if interpreter(first).is_some() { first } else { exe };
    let known = interpreter(called)?;
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let ends_in = |options: &[&str]| {
            options.contains(&word.as_str())
                || known.clusters
                    && word.starts_with('-')
                    && !word.starts_with("--")
                    && options.iter().any(|option| option.len() == 2 && word.ends_with(&option[1..]))
        };
        if ends_in(known.code) {
            return Some(if is_shell(called) { called.to_owned() } else { format!("{called} {word}") });
        }
        if ends_in(known.named) {
            let value = words.next()?;
            let value = if value.contains('/') { file_name(value) } else { value };
            return Some(format!("{called} {word} {value}"));
        }
        if word == "-f" && Family::of_file(called) == Some(Family::Php) {
            continue;
        }
        if known.valued.contains(&word.as_str()) {
            words.next();
        } else if word == "--" {
            let script = words.next()?;
            return Some(format!("{called} {}", script_name(script)));
        } else if !word.starts_with(['-', '+']) && !word.trim().is_empty() {
            return Some(format!("{called} {}", script_name(word)));
        }
    }
    Some(called.to_owned())
}

/// The container and the unit in a cgroup's path, as Docker, Podman, containerd, CRI-O, LXC,
/// systemd-nspawn and systemd make these paths.
fn owners(cgroup: &str) -> (Option<String>, Option<String>) {
    /// Characters of a container's number that its tools print.
    const SHORT: usize = 12;
    let number = |text: &str| -> Option<String> {
        let is_number = text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_number.then(|| text[..SHORT].to_owned())
    };
    let (mut container, mut unit) = (None, None);
    for part in cgroup.split('/').filter(|part| !part.is_empty()) {
        let scope = part.strip_suffix(".scope");
        let of_scope = scope.and_then(|scope| {
            // docker-NUMBER.scope, libpod-NUMBER.scope, cri-containerd-NUMBER.scope
            let numbered = scope.rsplit_once('-').and_then(|(_, last)| number(last));
            numbered.or_else(|| scope.strip_prefix("machine-").map(str::to_owned))
        });
        let named = part.strip_prefix("lxc.payload.").map(str::to_owned);
        if let Some(found) = of_scope.or_else(|| number(part)).or(named) {
            container = Some(found);
            // What is inside of a container has units of its own.
            unit = None;
        } else if part.ends_with(".service")
            || part.ends_with(".socket")
            || scope.is_some_and(|s| s != "init")
        {
            // init.scope is systemd's own, and whatever runs in a container without systemd.
            unit = Some(part.to_owned());
        }
    }
    (container, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(comm: &str, exe: Option<&str>, path: Option<&str>, line: &[&str]) -> String {
        let known = KnownProgram {
            comm: comm.to_owned(),
            exe: exe.map(str::to_owned),
            path: path.map(str::to_owned),
            arguments: line.iter().map(|word| (*word).to_owned()).collect(),
            cgroup: None,
        };
        known.name().name
    }

    #[test]
    fn a_script_is_called_as_it_was_started() {
        let python = Some("/usr/bin/python3.11");
        let name = |comm, line: &[&str]| called(comm, python, None, line);
        assert_eq!(name("manage.py", &["/usr/bin/python3", "/srv/shop/manage.py", "run"]), "manage.py");
        assert_eq!(name("python3", &["python3", "manage.py", "run"]), "python3 manage.py");
        assert_eq!(name("python3", &["python3", "-X", "dev", "-um", "shop.web"]), "python3 -um shop.web");
        assert_eq!(name("python3", &["python3", "-c", "import os"]), "python3 -c");
        assert_eq!(
            name("python3", &["/opt/venv/bin/python3", "/srv/shop/__main__.py"]),
            "python3 shop/__main__.py"
        );
        assert_eq!(name("python3", &["python3"]), "python3");
        let node = |line: &[&str]| called("node", Some("/usr/bin/node"), None, line);
        assert_eq!(node(&["node", "--require", "dotenv/config", "/srv/server.js"]), "node server.js");
        assert_eq!(called("node-MainThread", Some("/usr/bin/node"), None, &["node", "a.js"]), "node a.js");
        let java = ["java", "-Xmx1g", "-cp", "a:b", "org.example.Shop", "x"];
        assert_eq!(called("java", Some("/usr/lib/jvm/bin/java"), None, &java), "java org.example.Shop");
        assert_eq!(called("java", None, None, &["java", "-jar", "/srv/shop.jar"]), "java -jar shop.jar");
        let php = |line: &[&str]| called("php", Some("/usr/bin/php8.2"), None, line);
        assert_eq!(php(&["php", "-t", "public", "-S", "[::]:80", "router.php"]), "php -S [::]:80");
        assert_eq!(php(&["php", "-d", "a=b", "bin/console", "-S"]), "php console");
        assert_eq!(called("perl", Some("/usr/bin/perl"), None, &["perl", "-lane", "print"]), "perl -lane");
        assert_eq!(called("bash", Some("/bin/bash"), None, &["bash", "-e", "./build.sh"]), "bash build.sh");
        assert_eq!(called("sh", Some("/usr/bin/dash"), None, &["sh", "-c", "echo"]), "sh");
        assert_eq!(called("mksh", Some("/bin/mksh"), None, &["mksh", "-c", "echo"]), "mksh");
        assert_eq!(called("sh", Some("/bin/busybox"), None, &["sh", "x.sh"]), "sh x.sh");
        // A long name is cut by the kernel.
        let path = "/srv/a-very-long-name-of-a-script.sh";
        let line = ["/bin/sh", path];
        assert_eq!(called("a-very-long-nam", Some("/usr/bin/dash"), Some(path), &line), file_name(path));
    }

    #[test]
    fn a_process_that_names_itself_is_called_so() {
        let python = Some("/usr/bin/python3.11");
        let title = ["gunicorn: master [shop]", "", ""];
        assert_eq!(called("gunicorn: maste", python, None, &title), "gunicorn");
        assert_eq!(
            called("redis-server", Some("/usr/bin/redis-check-rdb"), None, &["redis-server *:6379"]),
            "redis-server"
        );
        // Celery's names were `[celeryd`, and where its title is not known, `[celeryd: celer`.
        let title = ["[celeryd: celery@vm:MainProcess] -active- (worker -l info)"];
        assert_eq!(called("[celeryd: celer", python, None, &title), "celeryd");
        assert_eq!(called("[celeryd: celer", python, None, &[]), "celeryd: celer");
        assert_eq!(without_open_bracket("(sd-pam)"), "(sd-pam)");
        assert_eq!(called("ingest", python, None, &["python3", "worker.py"]), "ingest");
        let blank = ["shop-api", "", "", ""];
        let node = Some("/usr/bin/node");
        assert_eq!(called("shop-api", node, None, &blank), "shop-api", "process.title");
        assert_eq!(called("ruby", Some("/usr/bin/ruby3.1"), None, &["unicorn[1]", "", ""]), "unicorn[1]");
        assert_eq!(called("plain", Some("/usr/bin/perl"), None, &["plain"]), "plain", "$0");
        assert_eq!(called("plain", Some("/usr/bin/perl"), None, &["plain", "    "]), "plain", "$0");
        assert_eq!(called("python3.11", python, None, &["uwsgi:web", ""]), "uwsgi");
        assert_eq!(called("prod/web", node, None, &["prod/web", ""]), "prod/web");
        assert_eq!(called("node", node, None, &["other", "server.js"]), "node server.js", "exec -a");
        let fpm = Some("/usr/sbin/php-fpm8.2");
        assert_eq!(called("php-fpm8.2", fpm, None, &["php-fpm: pool www"]), "php-fpm");
        // A path with a blank is no title.
        let app = "/opt/My App/app";
        assert_eq!(called("app", Some(app), Some(app), &[app]), "app");
        assert_eq!(called("bash", Some("/bin/bash"), None, &["-bash"]), "bash");
        assert_eq!(called("gone", None, None, &[]), "gone");
        // A name that is no text is none.
        assert_eq!(called("\u{fffd}\u{fffd}) R 1", Some("/opt/app"), None, &["app"]), "app");
        assert_eq!(called("app", Some("/opt/app"), None, &["\u{1b}[2J: x"]), "app");
        assert_eq!(called("", None, None, &["\u{fffd}\n", ""]), "an unknown program");
    }

    #[test]
    fn containers_and_units_are_read_from_the_cgroup() {
        let id = "3f1e".repeat(16);
        let short = Some(id[..12].to_owned());
        let unit = |name: &str| Some(name.to_owned());
        assert_eq!(owners("/system.slice/nginx.service"), (None, unit("nginx.service")));
        assert_eq!(owners(&format!("/system.slice/docker-{id}.scope")), (short.clone(), None));
        assert_eq!(owners(&format!("/docker/{id}")), (short.clone(), None));
        let pod = format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope");
        assert_eq!(owners(&pod), (short.clone(), None));
        assert_eq!(owners(&format!("/docker/{id}/system.slice/cron.service")), (short, unit("cron.service")));
        assert_eq!(owners("/lxc.payload.web/init.scope").0, unit("web"));
        assert_eq!(owners("/machine.slice/machine-deb.scope"), (unit("deb"), None));
        let app = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.service";
        assert_eq!(owners(app), (None, unit("app-x.service")));
        assert_eq!(owners("/"), (None, None));
    }
}
