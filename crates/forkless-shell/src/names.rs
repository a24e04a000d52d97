//! The names a shell treats specially: reserved words, builtins, and the variables it manages
//! itself.
//!
//! The lists are the union over dash 0.5.12, bash 5.2 and busybox ash 1.35: a name missing from one
//! shell but known to another is then never run directly by mistake. They are sorted for binary
//! searches. They hold no pointers, which the loader would have to relocate in every program that
//! has the preloaded library.

/// A name and its length, in the order of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Name([u8; LONGEST], u8);

const LONGEST: usize = 15;

impl Name {
    /// `None` for a name that is longer than any in a list.
    const fn new(name: &[u8]) -> Option<Name> {
        let mut padded = [0; LONGEST];
        if name.len() > LONGEST {
            return None;
        }
        // Rust 1.85 has no constant `copy_from_slice`.
        let mut at = 0;
        while at < name.len() {
            padded[at] = name[at];
            at += 1;
        }
        Some(Name(padded, name.len() as u8))
    }
}

const fn list<const N: usize>(names: [&str; N]) -> [Name; N] {
    let mut list = [Name([0; LONGEST], 0); N];
    let mut at = 0;
    while at < N {
        list[at] = Name::new(names[at].as_bytes()).expect("no name in a list is longer");
        at += 1;
    }
    list
}

/// Words that are reserved where a command may begin, in any of the supported shells.
const RESERVED: &[Name] = &list([
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "in", "select", "then", "time", "until", "while", "{", "}",
]);

/// Builtins of any of the supported shells that this crate does not carry out itself.
const BUILTINS: &[Name] = &list([
    ".",
    "[",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "chdir",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "declare",
    "dirs",
    "disown",
    "echo",
    "enable",
    "eval",
    "export",
    "fc",
    "fg",
    "getopts",
    "hash",
    "help",
    "history",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "times",
    "trap",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "wait",
]);

/// Variables that some shell sets, resets, computes or reads for itself. The environment alone
/// tells neither their value nor whether they are exported.
const MANAGED: &[Name] = &list([
    "ATTY",
    "CHILD_MAX",
    "COLUMNS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "EXECIGNORE",
    "FIGNORE",
    "FUNCNAME",
    "FUNCNEST",
    "GLOBIGNORE",
    "GROUPS",
    "HISTCMD",
    "HISTCONTROL",
    "HISTFILE",
    "HISTFILESIZE",
    "HISTIGNORE",
    "HISTSIZE",
    "HISTTIMEFORMAT",
    "HOSTFILE",
    "HOSTTYPE",
    "IFS",
    "IGNOREEOF",
    "INSIDE_EMACS",
    "LINENO",
    "LINES",
    "MACHTYPE",
    "MAPFILE",
    "OLDPWD",
    "OPTARG",
    "OPTERR",
    "OPTIND",
    "OSTYPE",
    "PIPESTATUS",
    "POSIXLY_CORRECT",
    "POSIX_PEDANTIC",
    "PPID",
    "PROMPT_COMMAND",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "PWD",
    "RANDOM",
    "REPLY",
    "SECONDS",
    "SHELLOPTS",
    "SHLVL",
    "SRANDOM",
    "TIMEFORMAT",
    "TMOUT",
    "UID",
    "_",
    "histchars",
]);

/// Variables to which a shell may give a value of its own when the environment has none (bash:
/// `set_if_not` and `set_home_var` of variables.c; dash and ash: `varinit`). A line that expands
/// one while it is unset is for the shell.
const DEFAULTED: &[Name] = &list([
    "CDPATH",
    "ENV",
    "HISTCONTROL",
    "HOME",
    "HOSTNAME",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "MAIL",
    "MAILCHECK",
    "MAILPATH",
    "PATH",
    "SHELL",
    "TERM",
    "TZ",
    "USER",
]);

/// The exported variables that dash and busybox have in their table before they read the
/// environment, in the order in which `initvar` enters them. In a bucket they stay in front of the
/// names of the environment.
pub(crate) const ASH_VARIABLES: &[&str] = &["MAIL", "MAILPATH", "PATH", "PS1", "PS2", "PS4"];

fn contains(list: &[Name], name: &[u8]) -> bool {
    Name::new(name).is_some_and(|name| list.binary_search(&name).is_ok())
}

pub(crate) fn is_reserved_word(name: &[u8]) -> bool {
    contains(RESERVED, name)
}

pub(crate) fn is_builtin(name: &[u8]) -> bool {
    contains(BUILTINS, name)
}

/// Whether the shell, not the environment, decides this variable's value.
pub(crate) fn is_managed(name: &[u8]) -> bool {
    name.starts_with(b"BASH")
        || name.starts_with(b"COMP_")
        || name.starts_with(b"READLINE_")
        || contains(MANAGED, name)
}

/// Whether some shell invents a value when the environment has none.
pub(crate) fn is_defaulted(name: &[u8]) -> bool {
    contains(DEFAULTED, name)
}

/// Whether an assignment to this variable changes bash itself: its locale, or the look of its
/// messages.
#[inline(always)]
pub(crate) fn is_locale(name: &[u8]) -> bool {
    name == b"LANG" || name == b"LANGUAGE" || name.starts_with(b"LC_")
}

pub(crate) fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a shell can hold a variable of this name.
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    name.first().is_some_and(|&b| is_name_start(b)) && name.iter().all(|&b| is_name_byte(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_so_that_binary_search_finds_every_name() {
        for list in [RESERVED, BUILTINS, MANAGED, DEFAULTED] {
            assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "{list:?}");
            assert!(list.iter().all(|Name(text, len)| contains(list, &text[..usize::from(*len)])));
        }
    }

    #[test]
    fn only_the_name_itself_is_found() {
        for other in ["i", "iff", "fi\0", "", "whilst", "a_name_longer_than_any"] {
            assert!(!contains(RESERVED, other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn names_follow_the_posix_grammar() {
        for good in ["A", "_", "a1", "_9"] {
            assert!(is_valid_name(good.as_bytes()), "{good}");
        }
        for bad in ["", "1", "a.b", "a-b", "a b", "%"] {
            assert!(!is_valid_name(bad.as_bytes()), "{bad}");
        }
    }
}
