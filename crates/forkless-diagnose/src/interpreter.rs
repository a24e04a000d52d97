//! Interpreters and shells, told by a file's name whatever its version: `python3.11`, `sh`,
//! `libruby-3.1.so.3.1`. What follows from the family stands where it is used.

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
        Some(match unversioned(path) {
            "python" => Self::Python(python_minor(path)),
            "pypy" => Self::PyPy,
            "node" | "nodejs" => Self::Node,
            "ruby" => Self::Ruby,
            "perl" => Self::Perl,
            "php" | "php-cgi" => Self::Php,
            "php-fpm" => Self::PhpFpm,
            "java" | "jvm" => Self::Java,
            "bash" => Self::Bash,
            "sh" | "dash" | "ash" | "ksh" | "mksh" | "zsh" => Self::Shell,
            "make" | "gmake" => Self::Make,
            "lua" | "tclsh" | "Rscript" | "deno" | "bun" | "awk" => Self::Other,
            _ => return None,
        })
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

/// The file's name without its version, and without what makes it a shared library's.
pub(crate) fn unversioned(path: &str) -> &str {
    // The kernel's word for the mapping of a file that an update has replaced.
    let file = file_name(path).trim_end_matches(" (deleted)");
    let name = file.split_once(".so").map_or(file, |(name, _)| name.strip_prefix("lib").unwrap_or(name));
    let Some(at) = name.find(|c: char| c.is_ascii_digit()) else { return name };
    // A version may have builds (python3.13t, perl5.36-x86_64-linux-gnu). sh2pdf is no shell.
    let build = name[at..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    if build.len() <= 1 || build.starts_with('-') { name[..at].trim_end_matches(['-', '.']) } else { name }
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
        ] {
            assert_eq!(Family::of_file(path), Some(family), "{path}");
        }
        for none in ["/srv/dashboard", "/srv/node_exporter", "pythonic", "sh2pdf", "libapp.so", "7z", ""] {
            assert_eq!(Family::of_file(none), None, "{none}");
        }
    }

    /// Three lists of shells differed: one lacked mksh, another ksh and zsh.
    #[test]
    fn each_shell_is_one_everywhere() {
        for shell in ["sh", "/bin/dash", "bash", "/bin/ash", "/bin/ksh93", "/bin/mksh", "/usr/bin/zsh-5.9"] {
            assert!(is_shell(shell), "{shell}");
        }
        assert!(!is_shell("/usr/bin/python3") && !is_shell("/usr/bin/make"));
    }
}
