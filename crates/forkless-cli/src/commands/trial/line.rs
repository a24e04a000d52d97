//! Command lines as a user types them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

/// Words quoted for a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line(String);

impl Line {
    /// A command.
    pub(super) fn of(command: &[OsString]) -> Line {
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        Line(words.join(" "))
    }

    /// The same under `run`.
    pub(super) fn under_run(flags: &[String], command: &[OsString]) -> Line {
        let flags: String = flags.iter().map(|flag| format!("{flag} ")).collect();
        Line(format!("forkless run {flags}-- {}", Line::of(command)))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A word quoted for a shell. Bytes that would steer a terminal, or are no text, are written as
/// bash, ksh and zsh read them.
fn quoted(word: &OsStr) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=/.,:@%".contains(c);
    match word.to_str() {
        // A first word with `=` would be an assignment.
        Some(text) if !text.is_empty() && text.chars().all(plain) && !text.starts_with('=') => {
            text.to_owned()
        }
        Some(text) if !text.chars().any(char::is_control) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => {
            let bytes = word.as_bytes().iter().map(|&byte| match byte {
                b'\n' => "\\n".to_owned(),
                b'\t' => "\\t".to_owned(),
                b'\'' | b'\\' => format!("\\{}", char::from(byte)),
                b' '..=b'~' => char::from(byte).to_string(),
                _ => format!("\\x{byte:02x}"),
            });
            format!("$'{}'", bytes.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn bash_reads_the_same_words() {
        let words: Vec<OsString> = [
            &b"printf"[..],
            b"%s|",
            b"a b",
            b"it's",
            b"",
            b"$HOME",
            b"x=1",
            b"~",
            b"a\nb\t'\\",
            b"\xff\xfe1",
            b"\x1b[31m",
        ]
        .iter()
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
        let line = Line::of(&words);
        assert!(line.to_string().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
        let output = Command::new("bash").args(["-c", &line.to_string()]).output().unwrap();
        let expected = b"a b|it's||$HOME|x=1|~|a\nb\t'\\|\xff\xfe1|\x1b[31m|";
        assert_eq!(output.stdout, expected, "{line}");
    }

    #[test]
    fn flags_stand_before_the_command() {
        let line = Line::under_run(&["--fork=off".to_owned()], &["my server".into(), "-x".into()]);
        assert_eq!(line.to_string(), "forkless run --fork=off -- 'my server' -x");
    }
}
