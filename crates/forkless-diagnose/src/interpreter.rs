//! Interpreters and shells, told by a file's name with a version as packages write it:
//! `python3.11`, `sh`, `libruby-3.1.so.3.1`. Any other number belongs to somebody's own program:
//! `node1`, `make2`. What follows from the family stands where it is used.

use forkless_frames::Language;

use crate::file_name::file_name;

/// Programs that carry out what their users write.
///
/// A new one also needs the signs by which it is seen from outside: the waits for a child in
/// `collect/lines`, the functions that take it down in `collect`, and those of its collector in
/// `finding/erosion`. `forkless-frames` reads its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// With its minor version, where the file's name tells it.
    Python(Option<u32>),
    /// It has Python's options, but counts no references and starts programs in its own way.
    PyPy,
    Node,
    Ruby,
    Perl,
    Php,
    /// PHP as a FastCGI server: its command line names no script.
    PhpFpm,
    Java,
    Bash,
    /// A shell other than bash.
    Shell,
    Make,
    /// One that gets no advice of its own.
    Other,
}

impl Family {
    /// Of a program, or of a shared library that has the interpreter in it.
    pub(crate) fn of_file(path: &str) -> Option<Self> {
        let family = match unversioned(path) {
            "python" => Self::Python(python_minor(path)),
            "pypy" => Self::PyPy,
            "node" | "nodejs" => Self::Node,
            "ruby" => Self::Ruby,
            "perl" => Self::Perl,
            "php" | "php-cgi" => Self::Php,
            "php-fpm" => Self::PhpFpm,
            "java" | "jvm" => Self::Java,
            "bash" => Self::Bash,
            "bash-static" => Self::Bash,
            "sh" | "dash" | "ash" | "ksh" | "ksh93u+m" | "mksh" | "lksh" | "zsh" => Self::Shell,
            "mksh-static" | "zsh-static" => Self::Shell,
            "make" | "gmake" | "remake" => Self::Make,
            "lua" | "tclsh" | "Rscript" | "deno" | "bun" | "awk" => Self::Other,
            _ => return None,
        };
        // A program's own libsh.so is no shell.
        (!is_library(path) || !matches!(family, Self::Bash | Self::Shell | Self::Make)).then_some(family)
    }

    /// The language of its scripts, if their lines are read.
    pub(crate) fn language(self) -> Option<&'static str> {
        let language = match self {
            Self::Python(_) => Language::Python,
            Self::Node => Language::JavaScript,
            Self::Ruby => Language::Ruby,
            Self::Perl => Language::Perl,
            Self::Php | Self::PhpFpm => Language::Php,
            Self::Bash => Language::Bash,
            _ => return None,
        };
        Some(language.name())
    }

    pub(crate) fn is_shell(self) -> bool {
        matches!(self, Self::Bash | Self::Shell)
    }
}

/// Whether a file is a shell.
pub(crate) fn is_shell(path: &str) -> bool {
    Family::of_file(path).is_some_and(Family::is_shell)
}

/// The file's name, without the kernel's word for the mapping of a file that an update replaced.
fn file_of(path: &str) -> &str {
    file_name(path).trim_end_matches(" (deleted)")
}

fn is_library(path: &str) -> bool {
    let file = file_of(path);
    file.ends_with(".so") || file.contains(".so.")
}

/// The file's name without its version, and without what makes it a shared library's.
pub(crate) fn unversioned(path: &str) -> &str {
    let file = file_of(path);
    let name = file.split_once(".so").map_or(file, |(name, _)| name.strip_prefix("lib").unwrap_or(name));
    let Some(at) = name.find(|c: char| c.is_ascii_digit()) else { return name };
    // A version may have builds (python3.13t, perl5.36-x86_64-linux-gnu). sh2pdf is no shell.
    let build = name[at..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let version = &name[at..name.len() - build.len()];
    let stem = name[..at].trim_end_matches(['-', '.']);
    let is_one = (build.len() <= 1 || build.starts_with('-')) && is_version(stem, version, &name[..at]);
    if is_one { stem } else { name }
}

/// Whether packages or the authors name the file so. `before` is the name up to the version.
fn is_version(stem: &str, version: &str, before: &str) -> bool {
    if version.trim_end_matches('.').contains('.') {
        // These have none in any name.
        return !matches!(stem, "sh" | "ash" | "java");
    }
    match stem {
        "python" | "pypy" => matches!(version, "2" | "3"),
        "ksh" => matches!(version, "93" | "2020"),
        // Debian's php5, Alpine's php82.
        "php" | "php-cgi" | "php-fpm" => version.len() <= 2 && version.starts_with(['5', '6', '7', '8']),
        // Fedora's node-20. node20 may be a machine's.
        "node" => before.ends_with('-') && version.len() == 2,
        "lua" => version.len() == 2 && version.starts_with('5'),
        _ => false,
    }
}

/// 11 of `python3.11`.
fn python_minor(path: &str) -> Option<u32> {
    let (_, version) = file_name(path).split_once("python3.")?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_told_whatever_the_version() {
        for (path, family) in [
            ("/usr/bin/python3.11", Family::Python(Some(11))),
            ("/opt/python/bin/python3", Family::Python(None)),
            ("/usr/bin/python3.13t", Family::Python(Some(13))),
            ("/usr/bin/python3.11 (deleted)", Family::Python(Some(11))),
            ("/usr/lib/libpython3.9.so.1.0", Family::Python(Some(9))),
            ("/usr/lib/libpypy3.9-c.so", Family::PyPy),
            ("/usr/bin/node", Family::Node),
            ("/usr/lib/libnode.so.108", Family::Node),
            ("/usr/bin/ruby3.1", Family::Ruby),
            ("/usr/lib/libruby-3.1.so.3.1.2", Family::Ruby),
            ("/usr/bin/perl5.36-x86_64-linux-gnu", Family::Perl),
            ("/usr/lib/libperl.so.5.36", Family::Perl),
            ("php8.2", Family::Php),
            ("/usr/lib/apache2/modules/libphp8.2.so", Family::Php),
            ("/usr/sbin/php-fpm8.2", Family::PhpFpm),
            ("/usr/lib/jvm/bin/java", Family::Java),
            ("/usr/bin/gmake", Family::Make),
            ("lua5.4", Family::Other),
            ("/usr/bin/node-20", Family::Node),
            ("/usr/bin/php82", Family::Php),
            ("/usr/lib/libphp7.so", Family::Php),
            ("/usr/bin/python3.11-dbg", Family::Python(Some(11))),
            ("/usr/bin/perl5.36.0", Family::Perl),
            ("/opt/bin/bash-5.2", Family::Bash),
            ("/opt/bin/make-4.4.1", Family::Make),
            ("/usr/bin/remake", Family::Make),
        ] {
            assert_eq!(Family::of_file(path), Some(family), "{path}");
        }
        for none in ["/srv/dashboard", "/srv/node_exporter", "pythonic", "sh2pdf", "libapp.so", "7z", ""] {
            assert_eq!(Family::of_file(none), None, "{none}");
        }
    }

    /// Regression: a C program called sh1 was a shell whose storm had advice; node1 was Node.js.
    #[test]
    fn a_name_with_a_number_is_somebodys_own() {
        for own in [
            "sh1",
            "/srv/bash5",
            "zsh5",
            "dash2",
            "make2",
            "gmake3",
            "perl5",
            "ruby2",
            "python7",
            "node1",
            "node18",
            "php1",
            "php123",
            "java8",
            "sh1.2",
            "libsh.so",
            "libbash.so.1",
            "libnode2.so",
            "lua9",
        ] {
            assert_eq!(Family::of_file(own), None, "{own}");
        }
    }

    /// Three lists of shells differed: one lacked mksh, another ksh and zsh.
    #[test]
    fn each_shell_is_one_everywhere() {
        for shell in [
            "sh",
            "/bin/dash",
            "bash",
            "/bin/ash",
            "/bin/ksh93",
            "/bin/mksh",
            "/usr/bin/zsh-5.9",
            "ksh93u+m",
            "/bin/bash-static",
        ] {
            assert!(is_shell(shell), "{shell}");
        }
        assert!(!is_shell("/usr/bin/python3") && !is_shell("/usr/bin/make"));
    }
}
