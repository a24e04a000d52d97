//! Command lines of find and xargs that start one program for each file: which other line gives one
//! program many files, and does the same. Decided by what the program does with its operands: the
//! line of another program may fail, or silently do something else.

use crate::file_name::file_name;
use crate::interpreter::is_shell;
use crate::invocation::quoted;

/// How one program gets many files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Gathered {
    pub(super) text: String,
    /// Whether it is known that the other line does the same, with one program for them all.
    pub(super) certain: bool,
    /// Whether shells are what it saves. The programs of their lines remain.
    pub(super) shells: bool,
}

/// What a command does with many files in the place of one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Many {
    /// The same as with each, if they stand last. What it adds, if anything.
    Same(&'static str),
    /// These words before the files do the same. What must be so for that, if anything.
    Words(Vec<String>, String),
    /// A loop of one shell does the same. The words behind its line, and the file's name in it.
    Loop(String, &'static str),
    Unknown,
    Different,
}

use Many::{Different, Same, Unknown};

/// What the command does, a file of which stands at `at`, with many of them. Without GNU's programs
/// (busybox) there are no options of GNU's.
fn many(words: &[String], at: usize, gnu: bool) -> Many {
    let Some(program) = words.first().filter(|_| at > 0) else { return Different };
    let before = &words[1..at];
    let after = words.get(at + 1..).unwrap_or_default();
    let name = file_name(program);
    if is_shell(name) {
        return if after.is_empty() { of_shell(before) } else { Different };
    }
    let given = |letters: &str, long: &[&str]| {
        before.iter().any(|word| match word.strip_prefix("--") {
            Some(word) => long.iter().any(|long| word.starts_with(long)),
            None => word.strip_prefix('-').is_some_and(|word| word.contains(|c| letters.contains(c))),
        })
    };
    // Where an option waits for its value, the file is that.
    let is_value_of = |letters: &str| {
        before.last().is_some_and(|word| {
            word.starts_with('-') && !word.starts_with("--") && word.ends_with(|c| letters.contains(c))
        })
    };
    let with = |words: &[&str], condition: &str| {
        let words = std::iter::once(program.as_str()).chain(words.iter().copied()).map(str::to_owned);
        Many::Words(words.collect(), condition.to_owned())
    };
    let words = || before.iter().map(String::as_str);
    // The only one whose files may stand before a last word, beside basename.
    if let "cp" | "mv" | "ln" | "install" = name {
        let to = given("t", &["target-directory"]) && !is_value_of("t");
        let makes = name == "install" && given("d", &["directory"]);
        return match after {
            [] if to || makes => Same(""),
            [to] if gnu && !to.starts_with('-') && !given("tTd", &["target", "no-target", "directory"]) => {
                let words: Vec<&str> = words().chain(["-t", to]).collect();
                with(&words, &format!(" (if {to} is a directory)"))
            }
            _ => Different,
        };
    }
    if name == "basename" {
        return match (before, after) {
            _ if after.is_empty() && given("as", &["multiple", "suffix"]) && !is_value_of("s") => Same(""),
            ([], []) if gnu => with(&["-a"], ""),
            ([], [suffix]) if gnu => with(&["-s", suffix], ""),
            _ => Different,
        };
    }
    if !after.is_empty() {
        return Different;
    }
    /// Names, options whose value is the next word, and options with which many are another thing
    /// than each.
    type Plain = (&'static [&'static str], &'static str, &'static str, &'static [&'static str]);
    const PLAIN: [Plain; 12] = [
        (&["true", "false", "rm", "rmdir", "chown", "chgrp", "chmod", "realpath"], "", "", &[]),
        (
            &["cksum", "md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum"],
            "l",
            "",
            &[],
        ),
        (&["cat"], "", "nbs", &["number", "squeeze"]),
        (&["touch"], "rdt", "", &[]),
        (&["mkdir"], "m", "", &[]),
        (&["truncate"], "sr", "", &[]),
        (&["stat"], "c", "", &[]),
        (&["kill"], "sn", "lL", &["list", "table"]),
        (&["gzip", "gunzip", "zcat", "bzip2", "bunzip2", "bzcat"], "S", "l", &["list"]),
        (&["xz", "unxz", "xzcat"], "STMF", "l", &["list", "files"]),
        (&["cut"], "bcdf", "", &[]),
        (&["strings"], "nte", "", &[]),
    ];
    if let Some((_, valued, other, other_long)) = PLAIN.iter().find(|(names, ..)| names.contains(&name)) {
        return if is_value_of(valued) || given(other, other_long) { Different } else { Same("") };
    }
    match name {
        // All on one line.
        "echo" => match before {
            [] => Many::Words(vec!["printf".to_owned(), "%s\\n".to_owned()], String::new()),
            _ => Different,
        },
        "printf" => match before {
            [format] if conversions(format) == Some(1) => Same(""),
            _ => Different,
        },
        "dirname" if gnu => Same(""),
        "readlink" if gnu && !given("n", &["no-newline"]) => Same(""),
        "wc" if !given("", &["files0-from", "total"]) => Same(" (wc adds a line with their sum)"),
        // Without it the names get the same width.
        "file" if given("b", &["brief"]) => Same(""),
        "file" if gnu && !is_value_of("efFmP") => {
            let words: Vec<&str> = std::iter::once("-N").chain(words()).collect();
            with(&words, "")
        }
        "head" | "tail" => {
            let old = name == "tail" && words().any(is_number_of_tail);
            if old || is_value_of("nc") || given("vfF", &["verbose", "follow"]) {
                return Different;
            }
            // Without it each file gets a line with its name.
            let words: Vec<&str> = words().chain(["-q"]).collect();
            if given("q", &["quiet", "silent"]) { Same("") } else { with(&words, "") }
        }
        "grep" | "egrep" | "fgrep" => of_grep(program, before),
        "cmp" | "diff" | "diff3" | "sdiff" | "comm" | "join" | "paste" | "test" | "[" | "expr" | "dd"
        | "link" | "unlink" | "split" | "csplit" | "uniq" | "tsort" | "base64" | "base32" | "tr" | "seq"
        | "sleep" | "date" | "tee" | "sort" | "nl" | "pr" | "od" | "ls" | "du" | "sum" | "dirname"
        | "readlink" | "wc" | "file" => Different,
        _ => Unknown,
    }
}

/// `-5` and `+5`, after which tail takes one file only.
fn is_number_of_tail(word: &str) -> bool {
    word.strip_prefix(['-', '+']).is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

/// How many arguments a format of printf takes; `None` where it ends the output or takes a width.
fn conversions(format: &str) -> Option<usize> {
    let rest = format.replace("%%", "");
    let is_plain = !format.starts_with('-') && !rest.contains(['*', '$']) && !rest.contains("\\c");
    is_plain.then(|| rest.matches('%').count())
}

/// With several files grep writes their names, unless it is told otherwise.
fn of_grep(program: &str, before: &[String]) -> Many {
    let (mut letters, mut patterns, mut valued) = (String::new(), 0, false);
    for word in before {
        if std::mem::take(&mut valued) {
            continue;
        }
        match (word.strip_prefix("--"), word.strip_prefix('-')) {
            (Some(long), _) => letters.push(match long.split('=').next().unwrap_or_default() {
                "files-with-matches" | "files-without-match" => 'l',
                "with-filename" | "no-filename" => 'h',
                "regexp" | "file" if long.contains('=') => 'e',
                "color" | "colour" | "ignore-case" | "fixed-strings" | "extended-regexp" | "word-regexp"
                | "invert-match" | "line-number" | "count" | "only-matching" | "perl-regexp" => '.',
                _ => return Unknown,
            }),
            (_, Some(short)) if !short.is_empty() => {
                // What follows one with a value is that value.
                let value = short.find(|c| "efmABCdD".contains(c));
                letters.push_str(&short[..value.map_or(short.len(), |at| at + 1)]);
                valued = value.is_some_and(|at| at + 1 == short.len());
            }
            _ => patterns += 1,
        }
    }
    let has = |any: &str| letters.contains(|c| any.contains(c));
    let pattern = patterns == usize::from(!has("ef"));
    if valued || !pattern || has("qrRdD") {
        Different
    } else if has("lLhH") {
        Same("")
    } else {
        let words = [program, "-h"].into_iter().map(str::to_owned);
        Many::Words(words.chain(before.iter().cloned()).collect(), String::new())
    }
}

/// `sh -c LINE`, and the word behind it that is $0, before the file.
fn of_shell(before: &[String]) -> Many {
    /// What they change lasts until the shell's end, or is it.
    const LASTS: [&str; 17] = [
        "exit", "exec", "return", "break", "continue", "cd", "set", "shift", "trap", "umask", "export",
        "read", "eval", "ulimit", "unset", "wait", "$@",
    ];
    let (line, name) = match before {
        [c, line] if c == "-c" => (line, None),
        [c, line, name] if c == "-c" => (line, Some(name)),
        _ => return Different,
    };
    let file = if name.is_some() { "$1" } else { "$0" };
    let all = ["$@", "$*", "$#", "${@", "${*", "${#}", "${2", "$2"];
    if lasts(line, &LASTS) || all.iter().any(|word| line.contains(word)) {
        return Different;
    }
    let name = name.and_then(|name| quoted(name)).unwrap_or_else(|| "_".to_owned());
    Many::Loop(name, file)
}

/// Whether one of these words is in a shell's line, or an assignment to a variable.
fn lasts(line: &str, words: &[&str]) -> bool {
    let mut all = line.split(|c: char| c.is_whitespace() || ";&|(){}`\"".contains(c));
    all.any(|word| {
        let assigned = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        });
        assigned || words.contains(&word)
    })
}

/// Words as a shell reads them; `...` in place of what is long or cannot be printed.
fn spelled(words: &[String]) -> String {
    const LONGEST: usize = 80;
    let all: Option<Vec<String>> = words.iter().map(|word| quoted(word)).collect();
    match (all.map(|all| all.join(" ")), words.first()) {
        (Some(line), _) if line.len() <= LONGEST => line,
        (_, Some(program)) => format!("{} ...", file_name(program)),
        _ => "...".to_owned(),
    }
}

fn program_of(words: &[String]) -> String {
    words.first().map_or("program", |word| file_name(word)).chars().take(40).collect()
}

/// What find's `-exec` does otherwise. `None`: nothing does the same with fewer programs.
pub(super) fn of_find(arguments: &[String], gnu: bool) -> Option<Gathered> {
    let certain = |text: String| Gathered { text, certain: true, shells: false };
    let perhaps = |text: String| Gathered { text, certain: false, shells: false };
    let action = |word: &String| matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
    // One action for each file; those that end with `{} +` are none.
    let mut each = Vec::new();
    let mut rest = arguments;
    while let Some(at) = rest.iter().position(action) {
        let command = &rest[at + 1..];
        let many = command.windows(2).position(|pair| pair[0] == "{}" && pair[1] == "+").map(|at| at + 1);
        let Some(end) = command.iter().position(|word| word == ";").into_iter().chain(many).min() else {
            return Some(perhaps(
                "End -exec with {} + and not with {} \\;, if its program does with many files what it does with one".to_owned(),
            ));
        };
        if command[end] == ";" {
            each.push((rest[at].as_str(), &command[..end], &command[end + 1..]));
        }
        rest = &command[end + 1..];
    }
    let [(action, command, behind)] = each[..] else { return None };
    if action.starts_with("-ok") {
        return None;
    }
    let mut with = command.iter().enumerate().filter(|(_, word)| word.contains("{}"));
    let at = match (with.next(), with.next()) {
        (Some((at, word)), None) if word == "{}" => at,
        _ => return None,
    };
    let program = program_of(command);
    let ends =
        format!("End {action} with {{}} + and not with {{}} \\;, so that one {program} gets many files");
    let what = many(command, at, gnu);
    // `{} +` is always true: what stands behind it would be done whether the program fails or not.
    if behind.iter().any(|word| word != ")") {
        return matches!(what, Same(_))
            .then(|| perhaps(format!("{ends}, if nothing behind it depends on its result")));
    }
    let mut gathered = match what {
        Same(adds) => certain(format!("{ends}{adds}")),
        Many::Words(words, condition) => certain(format!(
            "Let one {} have many files: {action} {} {{}} +{condition}",
            program_of(&words),
            spelled(&words)
        )),
        Many::Loop(name, file) => Gathered {
            shells: true,
            ..certain(format!(
                "Let one shell have many files: {action} {} -c 'for f do ...; done' {name} {{}} +, with \"$f\" in place of {file}",
                spelled(&command[..1])
            ))
        },
        Unknown => perhaps(format!(
            "End {action} with {{}} + and not with {{}} \\;, if {program} does with many files what it does with one"
        )),
        Different => return None,
    };
    // One for each directory.
    gathered.certain &= action == "-exec";
    Some(gathered)
}

/// A command line of xargs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Xargs {
    /// What limits the arguments of each program, as it is written.
    limit: Option<(String, u64)>,
    /// -L: the words of lines, of which each may have several.
    of_lines: bool,
    /// -I as it is written, and what is replaced.
    replaced: Option<(String, String)>,
    /// What separates the arguments, if not blanks and lines.
    separator: Option<String>,
    beside: Option<String>,
    asks: bool,
    command: Vec<String>,
}

impl Xargs {
    fn of(arguments: &[String]) -> Option<Self> {
        let mut xargs = Self::default();
        let mut words = arguments.iter().skip(1);
        while let Some(word) = words.clone().next().filter(|word| word.len() > 1 && word.starts_with('-')) {
            words.next();
            if word == "--" {
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, value) =
                    long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                let short = match name {
                    "max-args" => 'n',
                    "max-lines" => 'l',
                    "replace" => 'i',
                    "null" => '0',
                    "delimiter" => 'd',
                    "max-procs" => 'P',
                    "interactive" => 'p',
                    "arg-file" | "process-slot-var" => 'a',
                    "max-chars" => 's',
                    _ => 't',
                };
                let next = value.is_none() && "ndPas".contains(short);
                let value = if next { words.next()?.as_str() } else { value.unwrap_or_default() };
                let written = if next { format!("{word} {value}") } else { word.clone() };
                xargs.option(short, value, written)?;
                continue;
            }
            for (at, letter) in word[1..].char_indices() {
                if !"adEILnPseil".contains(letter) {
                    xargs.option(letter, "", String::new())?;
                    continue;
                }
                let behind = &word[1 + at + letter.len_utf8()..];
                let next = behind.is_empty() && !"eil".contains(letter);
                let value = if next { words.next()?.as_str() } else { behind };
                let blank = if next { " " } else { "" };
                xargs.option(letter, value, format!("-{letter}{blank}{value}"))?;
                break;
            }
        }
        xargs.command = words.cloned().collect();
        if xargs.command.is_empty() {
            xargs.command.push("echo".to_owned());
        }
        Some(xargs)
    }

    /// Takes over an option. `None` where its number is none.
    fn option(&mut self, letter: char, value: &str, written: String) -> Option<()> {
        match letter {
            'n' | 'L' | 'l' => {
                let number = if letter == 'l' && value.is_empty() { 1 } else { value.parse().ok()? };
                self.limit = Some((written, number));
                self.of_lines = letter != 'n';
                self.replaced = None;
            }
            'I' | 'i' => {
                let replaced = if value.is_empty() { "{}" } else { value };
                self.replaced = Some((written, replaced.to_owned()));
            }
            '0' => self.separator = Some("-0".to_owned()),
            'd' => self.separator = Some(format!("-d {}", quoted(value)?)),
            'P' => self.beside = Some(written),
            'p' => self.asks = true,
            _ => {}
        }
        Some(())
    }
}

/// What xargs does otherwise. `None`: nothing does the same with fewer programs.
pub(super) fn of_xargs(arguments: &[String], gnu: bool) -> Option<Gathered> {
    let certain = |text: String| Gathered { text, certain: true, shells: false };
    let xargs = Xargs::of(arguments)?;
    if xargs.asks {
        return None;
    }
    let program = program_of(&xargs.command);
    if let Some((option, replaced)) = &xargs.replaced {
        return of_lines(&xargs, option, replaced, gnu);
    }
    let Some((option, number)) = &xargs.limit else {
        return Some(certain(
            "Give each program more arguments: raise -s, or let it read its input".to_owned(),
        ));
    };
    let (leave, certainly) = match &xargs.beside {
        None => (format!("leave {option} out, or raise its number"), true),
        // One program takes the place of those that ran beside each other.
        Some(beside) => (format!("raise the number of {option}, and leave {beside} enough programs"), false),
    };
    let what = many(&xargs.command, xargs.command.len(), gnu);
    // Several words for each program may have a role each.
    let one_each = *number == 1 && !xargs.of_lines;
    let mut gathered = match what {
        Same(adds) => certain(format!("Give each {program} many arguments: {leave}{adds}")),
        Many::Words(words, condition) if one_each => {
            let out = leave.replace(", or raise its number", "");
            certain(format!(
                "Let one {} have many: {out}: {}{condition}",
                program_of(&words),
                spelled(&words)
            ))
        }
        Many::Loop(name, file) if one_each => Gathered {
            shells: true,
            ..certain(format!(
                "Let one shell have many: {leave}: {} -c 'for f do ...; done' {name}, with \"$f\" in place of {file}",
                spelled(&xargs.command[..1])
            ))
        },
        Unknown if one_each => Gathered {
            certain: false,
            ..certain(format!("If {program} does with many arguments what it does with one, {leave}"))
        },
        _ => return None,
    };
    gathered.certain &= certainly;
    Some(gathered)
}

/// The same of a program for each line (-I).
fn of_lines(xargs: &Xargs, option: &str, replaced: &str, gnu: bool) -> Option<Gathered> {
    let command = &xargs.command;
    // A line is one argument, whatever blanks are in it.
    let separator = match &xargs.separator {
        Some(separator) => separator.as_str(),
        None if gnu => "-d '\\n'",
        None => return None,
    };
    let beside = xargs.beside.as_ref().map_or_else(String::new, |beside| format!(" {beside} -n 100"));
    let option: String = option.chars().take(20).collect();
    let instead = format!("in place of {option}: xargs {separator}{beside}");
    let mut with = command.iter().enumerate().filter(|(_, word)| word.contains(replaced));
    let at = match (with.next(), with.next()) {
        (Some((at, word)), None) if word == replaced => at,
        _ => return None,
    };
    let program = program_of(command);
    let (text, certain, shells) = match many(command, at, gnu) {
        Same(adds) => (
            format!("Let one {program} have many lines, {instead} {}{adds}", spelled(&command[..at])),
            true,
            false,
        ),
        Many::Words(words, condition) => (
            format!(
                "Let one {} have many lines, {instead} {}{condition}",
                program_of(&words),
                spelled(&words)
            ),
            true,
            false,
        ),
        Many::Loop(name, file) => (
            format!(
                "Let one shell have many lines, {instead} {} -c 'for f do ...; done' {name}, with \"$f\" in place of {file}",
                spelled(&command[..1])
            ),
            true,
            true,
        ),
        Unknown => (
            format!(
                "If {program} does with many lines what it does with one, {instead} {}",
                spelled(&command[..at])
            ),
            false,
            false,
        ),
        Different => return None,
    };
    Some(Gathered { text, certain: certain && xargs.beside.is_none(), shells })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<String> {
        line.iter().map(|word| (*word).to_owned()).collect()
    }

    fn told(gathered: Option<Gathered>) -> String {
        gathered.map_or_else(String::new, |gathered| {
            let perhaps = if gathered.certain { "" } else { "? " };
            format!("{perhaps}{}", gathered.text)
        })
    }

    /// Regression: every line of find was told to end with `{} +`.
    #[test]
    fn another_line_of_find_does_the_same() {
        let of = |line: &[&str]| told(of_find(&words(&[&["find", "."], line].concat()), true));
        let chmod = "End -exec with {} + and not with {} \\;, so that one chmod gets many files";
        assert_eq!(of(&["-exec", "chmod", "644", "{}", ";"]), chmod);
        assert_eq!(of(&["(", "-exec", "/bin/chmod", "644", "{}", ";", ")"]), chmod);
        for (line, text) in [
            (&["-exec", "cp", "-p", "{}", "to", ";"][..], "-exec cp -p -t to {} + (if to is a directory)"),
            (&["-exec", "basename", "{}", ";"], "-exec basename -a {} +"),
            (&["-exec", "basename", "{}", ".txt", ";"], "-exec basename -s .txt {} +"),
            (&["-exec", "grep", "x", "{}", ";"], "-exec grep -h x {} +"),
            (&["-exec", "head", "-n", "1", "{}", ";"], "-exec head -n 1 -q {} +"),
            (&["-exec", "echo", "{}", ";"], "-exec printf '%s\\n' {} +"),
            (
                &["-exec", "sh", "-c", "echo $1", "_", "{}", ";"],
                "sh -c 'for f do ...; done' _ {} +, with \"$f\" in place of $1",
            ),
            (
                &["-exec", "sh", "-c", "echo $0", "{}", ";"],
                "sh -c 'for f do ...; done' _ {} +, with \"$f\" in place of $0",
            ),
            (&["-exec", "app", "{}", ";"], "? End -exec with {} + and not with {} \\;, if app does"),
            (&["-execdir", "rm", "{}", ";"], "? End -execdir with"),
            (&["-exec", "rm", "{}", ";", "-o", "-name", "x"], "if nothing behind it depends on its result"),
            (&["-exec", "cp", "-t", "to", "{}", ";"], "so that one cp gets many files"),
            // The kernel's part of the line ends here.
            (&["-exec", "chmod"], "? End -exec"),
        ] {
            assert!(of(line).contains(text), "{line:?}: {}", of(line));
        }
        for line in [
            &["-exec", "mv", "{}", "{}.old", ";"][..],
            &["-exec", "cmp", "{}", "other", ";"],
            &["-exec", "cat", "-n", "{}", ";"],
            &["-exec", "app", "--file={}", ";"],
            &["-exec", "app", "{}", "out", ";"],
            &["-exec", "date", ";"],
            &["-ok", "rm", "{}", ";"],
            &["-exec", "grep", "-q", "x", "{}", ";", "-print"],
            &["-exec", "sh", "-c", "cd /; echo $1", "_", "{}", ";"],
            &["-exec", "sh", "-c", "echo $1 $2", "_", "a", "{}", ";"],
            &["-exec", "rm", "{}", ";", "-exec", "echo", "{}", ";"],
            &["-exec", "touch", "-r", "{}", ";"],
            &["-exec", "dd", "{}", ";"],
            &["-exec", "rm", "{}", "+"],
        ] {
            assert_eq!(of(line), "", "{line:?}");
        }
        // What busybox's programs cannot.
        assert_eq!(of_find(&words(&["find", "-exec", "basename", "{}", ";"]), false), None);
    }

    /// Regression: every line of xargs was told to leave -n1 out.
    #[test]
    fn another_line_of_xargs_does_the_same() {
        let of = |line: &[&str]| told(of_xargs(&words(&[&["xargs"], line].concat()), true));
        assert_eq!(
            of(&["-0", "-n1", "chmod", "644"]),
            "Give each chmod many arguments: leave -n1 out, or raise its number"
        );
        for (line, text) in [
            (&["-rn", "1", "rm", "-n"][..], "leave -n 1 out"),
            (&["--max-args=1", "rm"], "leave --max-args=1 out"),
            (&["-n2", "rm"], "leave -n2 out"),
            (&["-L1", "touch"], "leave -L1 out"),
            (&["-n1"], "leave -n1 out: printf '%s\\n'"),
            (&["-n1", "basename"], "Let one basename have many: leave -n1 out: basename -a"),
            (&["-n1", "basename", "-s", ".c"], "Give each basename many arguments"),
            (&["-n1", "printf", "%s.c\\n"], "Give each printf many"),
            (
                &["-n1", "-P4", "gzip"],
                "? Give each gzip many arguments: raise the number of -n1, and leave -P4",
            ),
            (
                &["-n1", "sh", "-c", "echo $1", "_"],
                "sh -c 'for f do ...; done' _, with \"$f\" in place of $1",
            ),
            (&["-n1", "app"], "? If app does with many arguments what it does with one, leave -n1 out"),
            (&["-I{}", "rm", "-f", "{}"], "in place of -I{}: xargs -d '\\n' rm -f"),
            (&["-0I", "@", "cp", "@", "to"], "in place of -I @: xargs -0 cp -t to (if to is a directory)"),
            (&["true"], "raise -s"),
        ] {
            assert!(of(line).contains(text), "{line:?}: {}", of(line));
        }
        for line in [
            &["-n2", "cmp"][..],
            &["-n2", "mv"],
            &["-n1", "mv"],
            &["-n1", "diff", "other"],
            &["-n2"],
            &["-n2", "app"],
            &["-n2", "sh", "-c", "echo $1", "_"],
            &["-L1", "basename"],
            &["-n2", "grep", "x"],
            &["-n2", "printf", "%s-%s\\n"],
            &["-n1", "expr", "1", "+"],
            &["-n1", "test", "-f"],
            &["-p", "-n1", "rm"],
            // Without -I the command has no {}, and -I has no number.
            &["-I{}", "ln", "-sf", "{}", "to/l{}"],
            &["-I{}", "sh", "-c", "echo {}"],
        ] {
            assert_eq!(of(line), "", "{line:?}");
        }
    }

    #[test]
    fn a_shell_whose_line_lasts_is_not_made_a_loop() {
        let of = |line: &str| of_shell(&words(&["-c", line, "_"]));
        assert_eq!(of("wc -l < $1"), Many::Loop("_".to_owned(), "$1"));
        for line in ["cd $1; ls", "n=$(wc -l < $1); echo $n", "exec cat $1", "echo $@", "[ -f $1 ] || exit"] {
            assert_eq!(of(line), Different, "{line}");
        }
    }
}
