//! Command lines of find and xargs that start one program for each file: which other line gives one
//! program many files, and does the same. The answer depends on the program and its operands: for
//! another program the same change may fail, silently do something else, or destroy files. In doubt
//! there is no remedy, and no saving without its condition.

use crate::file_name::file_name;
use crate::interpreter::is_shell;
use crate::invocation::quoted;

/// How one program gets many files.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The same as with each, if they stand last. What it adds or needs, if anything.
    Same(&'static str),
    /// These words before the files do the same. What must be so for that, if anything.
    Words(Vec<String>, String),
    /// A loop of one shell does the same. The words behind its line, and the file's name in it.
    Loop(String, &'static str),
    Unknown,
    Different,
}

use Many::{Different, Same, Unknown};

/// The words between a program and its files.
struct Given<'w> {
    letters: String,
    long: Vec<&'w str>,
    operands: Vec<&'w str>,
    /// Where the options end, at `--` or before the files.
    end: usize,
    words: &'w [String],
}

impl<'w> Given<'w> {
    /// `None` where an option is not among those named here, is abbreviated, or waits for the file
    /// as its value.
    fn of(
        words: &'w [String],
        (flags, valued): (&str, &str),
        (long_flags, long_valued): (&[&str], &[&str]),
    ) -> Option<Self> {
        let mut given =
            Self { letters: String::new(), long: Vec::new(), operands: Vec::new(), end: words.len(), words };
        let mut at = 0;
        while let Some(word) = words.get(at) {
            at += 1;
            if word == "--" {
                given.end = at - 1;
                given.operands.extend(words[at..].iter().map(String::as_str));
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, known) = match long.split_once('=') {
                    Some((name, _)) => (name, long_valued),
                    None => (long, long_flags),
                };
                given.long.push(known.contains(&name).then_some(name)?);
            } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
                for (index, letter) in short.char_indices() {
                    given.letters.push(letter);
                    if valued.contains(letter) {
                        if index + letter.len_utf8() == short.len() {
                            words.get(at)?;
                            at += 1;
                        }
                        break;
                    }
                    flags.contains(letter).then_some(())?;
                }
            } else {
                given.operands.push(word);
            }
        }
        Some(given)
    }

    fn has(&self, letters: &str, long: &[&str]) -> bool {
        self.letters.contains(|c| letters.contains(c)) || self.long.iter().any(|name| long.contains(name))
    }

    /// The command with further options, which stand before `--`.
    fn with(&self, program: &str, options: &[&str], condition: &str) -> Many {
        let (options_before, behind) = self.words.split_at(self.end);
        let own = |words: &[String]| words.to_vec();
        let options: Vec<String> = options.iter().map(|&word| word.to_owned()).collect();
        let words = [vec![program.to_owned()], own(options_before), options, own(behind)].concat();
        Many::Words(words, condition.to_owned())
    }
}

/// Programs that do with each operand what they do with one. The names, the options and the options
/// with a value that change nothing of that, by letters and in full. With those that are not named
/// here the files would be another thing, be asked about (`rm -I`), or be read as values.
type Plain = (
    &'static [&'static str],
    (&'static str, &'static str),
    (&'static [&'static str], &'static [&'static str]),
);
const PLAIN: [Plain; 15] = [
    (&["rm"], ("dfrRv", ""), (&["force", "recursive", "dir", "verbose", "one-file-system"], &[])),
    (&["rmdir"], ("pv", ""), (&["ignore-fail-on-non-empty", "parents", "verbose"], &[])),
    (&["realpath"], ("emLPqsz", ""), (&["zero", "strip"], &["relative-to", "relative-base"])),
    (
        &["cksum", "md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum"],
        ("btz", "al"),
        (&["tag", "zero", "binary", "text"], &["algorithm", "length"]),
    ),
    (&["cat"], ("uvETAet", ""), (&["show-all", "show-ends", "show-tabs", "show-nonprinting"], &[])),
    (&["touch"], ("acfmh", "rdt"), (&["no-create", "no-dereference"], &["date", "reference", "time"])),
    (&["mkdir"], ("pv", "m"), (&["parents", "verbose"], &["mode"])),
    (&["truncate"], ("co", "sr"), (&["no-create"], &["size", "reference"])),
    (&["stat"], ("Lft", "c"), (&["dereference", "file-system", "terse"], &["format", "printf"])),
    (
        &["gzip", "gunzip", "zcat"],
        ("cdfkNnqtrv123456789", "S"),
        (
            &[
                "stdout",
                "to-stdout",
                "decompress",
                "uncompress",
                "force",
                "keep",
                "name",
                "no-name",
                "fast",
                "best",
            ],
            &["suffix"],
        ),
    ),
    (
        &["bzip2", "bunzip2", "bzcat"],
        ("cdzfktqv123456789", ""),
        (&["stdout", "decompress", "force", "keep"], &[]),
    ),
    (
        &["xz", "unxz", "xzcat"],
        ("cdzfktqe0123456789", "STMF"),
        (&["stdout", "decompress", "compress", "force", "keep", "extreme"], &["suffix", "threads", "format"]),
    ),
    (
        &["cut"],
        ("snz", "bcdf"),
        (
            &["only-delimited", "complement", "zero-terminated"],
            &["bytes", "characters", "delimiter", "fields", "output-delimiter"],
        ),
    ),
    (&["strings"], ("afo", "nte"), (&["all", "print-file-name"], &["bytes", "radix", "encoding"])),
    (&["dirname"], ("z", ""), (&["zero"], &[])),
];

/// What the command does, a file of which stands at `at`, with many of them. Without GNU's programs
/// (busybox) there are no options of GNU's.
fn many(words: &[String], at: usize, gnu: bool) -> Many {
    let Some(program) = words.first().filter(|_| at > 0) else { return Different };
    let before = &words[1..at];
    let after = words.get(at + 1..).unwrap_or_default();
    let name = file_name(program);
    if is_shell(name) {
        return if after.is_empty() { of_shell(before, gnu) } else { Different };
    }
    // The only ones whose files may stand before a last word.
    let placed = match name {
        "cp" | "mv" | "ln" | "install" => of_copies(program, before, after, gnu),
        "basename" => of_basename(program, before, after, gnu),
        _ if after.is_empty() => of_last(program, before, gnu),
        _ => None,
    };
    placed.unwrap_or(Different)
}

/// Of two files of one name each program overwrites the first; one for them all refuses the second,
/// or tells of it.
fn of_copies(program: &str, before: &[String], after: &[String], gnu: bool) -> Option<Many> {
    let name = file_name(program);
    let (short, long): (_, (&[&str], &[&str])) = match name {
        "cp" => (
            ("adfHlLnpPrRsuvx", "t"),
            (
                &[
                    "archive",
                    "dereference",
                    "force",
                    "link",
                    "no-clobber",
                    "preserve",
                    "recursive",
                    "verbose",
                ],
                &["preserve", "reflink", "target-directory"],
            ),
        ),
        "mv" => (("fnuv", "t"), (&["force", "no-clobber", "update", "verbose"], &["target-directory"])),
        // With -n a target that is a link to a directory is replaced.
        "ln" => (("fsvLPr", "t"), (&["force", "relative", "symbolic", "verbose"], &["target-directory"])),
        _ => (
            ("Cdpsv", "gmot"),
            (&["compare", "directory", "strip", "verbose"], &["group", "mode", "owner", "target-directory"]),
        ),
    };
    let given = Given::of(before, short, long).filter(|given| given.operands.is_empty())?;
    let makes = name == "install" && given.has("d", &["directory"]);
    let to = given.has("t", &["target-directory"]);
    match after {
        [] if makes => Some(Same("")),
        [] if to => Some(Same(" (if no two files have one name)")),
        [to] if gnu && !given.has("td", &["directory", "target-directory"]) && !to.starts_with('-') => {
            const LONGEST: usize = 60;
            let target = quoted(to).filter(|to| to.len() <= LONGEST);
            let target = target.unwrap_or_else(|| "the target".to_owned());
            let condition = format!(" (if {target} is a directory and no two files have one name)");
            Some(given.with(program, &["-t", to], &condition))
        }
        _ => None,
    }
}

fn of_basename(program: &str, before: &[String], after: &[String], gnu: bool) -> Option<Many> {
    let given = Given::of(before, ("az", "s"), (&["multiple", "zero"], &["suffix"]))?;
    if !given.operands.is_empty() {
        return None;
    }
    match after {
        [] if given.has("as", &["multiple", "suffix"]) => Some(Same("")),
        [] if gnu => Some(given.with(program, &["-a"], "")),
        [suffix] if gnu && !given.has("as", &["multiple", "suffix"]) && !suffix.starts_with('-') => {
            Some(given.with(program, &["-s", suffix], ""))
        }
        _ => None,
    }
}

/// Of a program whose files stand last. `None`: it does something else with many.
fn of_last(program: &str, before: &[String], gnu: bool) -> Option<Many> {
    let name = file_name(program);
    if let Some((_, short, long)) = PLAIN.iter().find(|(names, ..)| names.contains(&name)) {
        // A fixed operand would be taken once, and not with each file.
        let given = Given::of(before, *short, *long)?;
        return (given.operands.is_empty() && (gnu || name != "dirname")).then_some(Same(""));
    }
    let words = || before.iter().map(String::as_str);
    match name {
        "true" | "false" => Some(Same("")),
        // Without their first operand the first file is that.
        "chmod" | "chown" | "chgrp" => {
            let is_mode = |word: &&String| {
                let mode = word.strip_prefix('-').unwrap_or_default();
                name == "chmod" && !mode.is_empty() && mode.chars().all(|c| "rwxXst".contains(c))
            };
            let (modes, rest): (Vec<&String>, Vec<&String>) = before.iter().partition(is_mode);
            let rest: Vec<String> = rest.into_iter().cloned().collect();
            let long =
                ["changes", "silent", "quiet", "verbose", "recursive", "dereference", "no-dereference"];
            let given = Given::of(&rest, ("cfvRhHLP", ""), (&long, &["from", "reference"]))?;
            let fixed = modes.len() + given.operands.len() + usize::from(given.has("", &["reference"]));
            (fixed == 1).then_some(Same(""))
        }
        "kill" => {
            let is_signal = |word: &str| word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
            let is_known = match before {
                [] => true,
                [signal] => signal
                    .strip_prefix('-')
                    .is_some_and(|name| !name.is_empty() && is_signal(name) && name != "L"),
                [option, signal] => option == "-s" && is_signal(signal),
                _ => false,
            };
            is_known.then_some(Same(""))
        }
        // All on one line.
        "echo" => before
            .is_empty()
            .then(|| Many::Words(vec!["printf".to_owned(), "%s\\n".to_owned()], String::new())),
        "printf" => match before {
            [format] if conversions(format) == Some(1) => Some(Same("")),
            _ => None,
        },
        "readlink" if gnu => {
            let long = ["canonicalize", "canonicalize-existing", "canonicalize-missing", "zero"];
            let given = Given::of(before, ("efmqsvz", ""), (&long, &[]))?;
            given.operands.is_empty().then_some(Same(""))
        }
        "wc" => {
            let long = ["bytes", "chars", "lines", "words", "max-line-length"];
            let given = Given::of(before, ("clmwL", ""), (&long, &[]))?;
            given.operands.is_empty().then_some(Same(" (wc adds a line with their sum)"))
        }
        "file" => {
            let long = ["brief", "mime", "mime-type", "mime-encoding", "no-pad"];
            let given = Given::of(before, ("bihkLNprsz", "eFmP"), (&long, &[]))?;
            match given.operands[..] {
                // Without these the names get the same width.
                [] if given.has("bN", &["brief", "no-pad"]) => Some(Same("")),
                [] if gnu => Some(given.with(program, &["-N"], "")),
                _ => None,
            }
        }
        "head" | "tail" => {
            // `-5` and `+5` are options of the past: tail takes one file only with them.
            let old = words().any(|word| {
                let number = word.strip_prefix(['-', '+']);
                number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
            });
            let count = before.first().filter(|_| name == "head" && old);
            let is_count = |word: &String| {
                word.strip_prefix('-').is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()))
            };
            let rest = if count.is_some_and(is_count) { &before[1..] } else { before };
            let long: (&[&str], &[&str]) = (&["quiet", "silent", "zero-terminated"], &["lines", "bytes"]);
            let given = Given::of(rest, ("qz", "nc"), long).filter(|given| given.operands.is_empty())?;
            if given.has("q", &["quiet", "silent"]) {
                return Some(Same(""));
            }
            // Without it each file gets a line with its name.
            let end = given.end + before.len() - rest.len();
            Some(Given { words: before, end, ..given }.with(program, &["-q"], ""))
        }
        "grep" | "egrep" | "fgrep" => of_grep(program, before),
        "cmp" | "diff" | "diff3" | "sdiff" | "comm" | "join" | "paste" | "test" | "[" | "expr" | "dd"
        | "link" | "unlink" | "split" | "csplit" | "uniq" | "tsort" | "base64" | "base32" | "tr" | "seq"
        | "sleep" | "date" | "tee" | "sort" | "nl" | "pr" | "od" | "ls" | "du" | "sum" | "readlink"
        | "tar" | "bsdtar" | "unzip" | "patch" | "mount" | "ssh" | "scp" | "rsync" | "rename" => None,
        // These start another program.
        "busybox" | "toybox" => None,
        _ => (!before.iter().any(|word| is_shell(file_name(word)))).then_some(Unknown),
    }
}

/// How many arguments a format of printf takes; `None` where it ends the output or takes a width.
fn conversions(format: &str) -> Option<usize> {
    let rest = format.replace("%%", "");
    let is_plain = !format.starts_with('-') && !rest.contains(['*', '$']) && !rest.contains("\\c");
    is_plain.then(|| rest.matches('%').count())
}

/// With several files grep writes their names, unless it is told otherwise; and with -A, -B and -C
/// a line between what it found in two files.
fn of_grep(program: &str, before: &[String]) -> Option<Many> {
    let names = ["files-with-matches", "files-without-match", "with-filename", "no-filename"];
    let long = [
        &names[..],
        &["color", "colour", "ignore-case", "fixed-strings", "extended-regexp", "word-regexp"],
        &["invert-match", "line-number", "count", "only-matching", "perl-regexp"],
    ]
    .concat();
    let valued = ["color", "colour", "regexp", "file", "max-count"];
    let given = Given::of(before, ("lLhHcnoivwxyEFGPsaI", "efm"), (&long, &valued))?;
    let pattern = usize::from(!given.has("ef", &["regexp", "file"]));
    if given.operands.len() != pattern {
        return None;
    }
    if given.has("lLhH", &names) {
        return Some(Same(""));
    }
    let words = [program, "-h"].into_iter().map(str::to_owned);
    Some(Many::Words(words.chain(before.iter().cloned()).collect(), String::new()))
}

/// `sh -c LINE`, and the word behind it that is $0, before the file.
fn of_shell(before: &[String], gnu: bool) -> Many {
    let (line, name) = match before {
        [c, line] if c == "-c" => (line.trim(), None),
        [c, line, name] if c == "-c" => (line.trim(), Some(name)),
        _ => return Different,
    };
    let has = |any: &[&str]| any.iter().any(|word| line.contains(word));
    if lasts(line) || has(&["${@", "$*", "${*", "$#", "${#}"]) {
        return Different;
    }
    let file = if name.is_some() { "$1" } else { "$0" };
    if let Some(body) = own_loop(line) {
        let is_of_files = name.is_some() && !body.contains("\"$@") && !has_positional(body);
        return if is_of_files { Same("") } else { Different };
    }
    // One program gets the shell's files, as it would get find's.
    if let Some(command) = line.strip_suffix(" \"$@\"") {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || " _-+=/.,:@%".contains(c);
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let is_one = name.is_some() && command.chars().all(is_plain) && !words.is_empty();
        return match is_one.then(|| many(&words, words.len(), gnu)) {
            Some(Same(adds)) => Same(adds),
            _ => Different,
        };
    }
    // The loop's own variable, and what each shell has of its own.
    let others: String = line.replace(file, "").replace(&file.replace('$', "${"), "");
    if others == line || line.contains("$@") || has_positional(&others) || has(&["$f", "${f"]) {
        return Different;
    }
    let name = name.and_then(|name| quoted(name)).unwrap_or_else(|| "_".to_owned());
    Many::Loop(name, file)
}

/// Whether $0 to $9 are in it.
fn has_positional(line: &str) -> bool {
    let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    line.match_indices('$').any(|(at, _)| {
        let rest = &line[at + 1..];
        digit(rest) || rest.strip_prefix('{').is_some_and(digit)
    })
}

/// What stands in the line's only loop, if that is one of all arguments and the whole line.
fn own_loop(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("for ")?.trim_start();
    let name = rest.find(|c: char| !(c == '_' || c.is_ascii_alphanumeric())).filter(|at| *at > 0)?;
    let rest = rest[name..].trim_start();
    let rest = rest.strip_prefix("in \"$@\"").unwrap_or(rest).trim_start();
    let rest = rest.strip_prefix(';').unwrap_or(rest).trim_start();
    let body = rest.strip_prefix("do").filter(|body| body.starts_with(char::is_whitespace))?;
    let body = body.strip_suffix("done").filter(|body| body.ends_with([' ', '\n', ';']))?;
    (!body.contains("done")).then_some(body)
}

/// Whether what a shell's line does may last until the shell's end, or be that. Where that cannot
/// be told, it may.
fn lasts(line: &str) -> bool {
    const WORDS: &str = ". : alias bg bind break builtin cd chdir command continue coproc declare dirs \
        disown enable emulate eval exec exit export f fc fg function getopts hash \
        history jobs let local logout mapfile newgrp popd pushd read readarray readonly \
        return select set setopt shift shopt source suspend times trap typeset ulimit \
        umask unalias unset unsetopt wait";
    // Assignments, arithmetic, the shell's own state, functions, here-documents, and what ends a
    // shell where it is not set (`${1:?}`).
    const PARTS: [&str; 15] = [
        "+=", "$[", ":=", "++", "((", "()", "<<", "$$", "$!", "$?", "$_", "$-", "$RANDOM", "$LINENO", "$PPID",
    ];
    let own = line.replace("&&", "").replace(">&", "").replace("<&", "").replace("&>", "");
    if own.contains('&') || PARTS.iter().any(|part| line.contains(part)) {
        return true;
    }
    if line.split("${").skip(1).any(|rest| rest.split('}').next().is_some_and(|own| own.contains(['=', '?'])))
    {
        return true;
    }
    let is_loop = own_loop(line).is_some();
    let split = |c: char| c.is_whitespace() || ";&|(){}`\"'".contains(c);
    let all: Vec<&str> = line.split(split).filter(|word| !word.is_empty()).collect();
    let sets = all.contains(&"printf") && all.contains(&"-v");
    // A loop of all arguments, within another.
    let for_all = !is_loop
        && (0..all.len()).any(|at| all[at] == "for" && all.get(at + 2).is_none_or(|word| *word != "in"));
    let others = sets || for_all;
    others
        || all.iter().any(|word| {
            let assigned = word.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
            });
            // A comment would hide the loop's end.
            assigned
                || word.starts_with('#')
                || word.trim_start_matches('-').contains("--")
                || (WORDS.split(' ').any(|own| own == *word) && !(is_loop && *word == "f"))
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

/// What find's `-exec` does otherwise. `None`: nothing does the same with fewer programs, or that
/// is not known.
pub(super) fn of_find(arguments: &[String], gnu: bool) -> Option<Gathered> {
    let action = |word: &String| matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir");
    // One action for each file; those that end with `{} +` are none.
    let mut each = Vec::new();
    let mut at = 0;
    while let Some(next) = arguments[at..].iter().position(action) {
        let begin = at + next;
        let command = &arguments[begin + 1..];
        let many = command.windows(2).position(|pair| pair[0] == "{}" && pair[1] == "+").map(|at| at + 1);
        let end = command.iter().position(|word| word == ";").into_iter().chain(many).min()?;
        at = begin + 1 + end + 1;
        if command[end] == ";" {
            each.push((begin, &command[..end], &arguments[at..]));
        }
    }
    let [(begin, command, behind)] = each[..] else { return None };
    // `{} +` is always true, and its program runs later. What stands behind it would be done to
    // each file before, whether the program fails or not: `-exec cp -t to {} + -delete` copies
    // nothing and deletes everything. -execdir runs one for each directory; -ok asks.
    if arguments[begin] != "-exec" || behind.iter().any(|word| word != ")") {
        return None;
    }
    let mut with = command.iter().enumerate().filter(|(_, word)| word.contains("{}"));
    let at = match (with.next(), with.next()) {
        (Some((at, word)), None) if word == "{}" => at,
        _ => return None,
    };
    let program = program_of(command);
    let what = many(command, at, gnu);
    let needs = looks_on(&arguments[..begin], file_name(command.first()?))?;
    let of = |text: String, certain: bool| Gathered {
        text: format!("{text}{needs}"),
        certain: certain && needs.is_empty(),
        shells: false,
    };
    Some(match what {
        Same(adds) => of(
            format!(
                "End -exec with {{}} + and not with {{}} \\;, so that one {program} gets many files{adds}"
            ),
            adds.is_empty(),
        ),
        Many::Words(words, condition) => of(
            format!(
                "Let one {} have many files: -exec {} {{}} +{condition}",
                program_of(&words),
                spelled(&words)
            ),
            condition.is_empty(),
        ),
        Many::Loop(name, file) => Gathered {
            shells: true,
            ..of(
                format!(
                    "Let one shell have many files: -exec {} -c 'for f do ...; done' {name} {{}} +, with \"$f\" in place of {file}",
                    spelled(&command[..1])
                ),
                true,
            )
        },
        Unknown => of(
            format!(
                "End -exec with {{}} + and not with {{}} \\;, if {program} does with many files what it does with one"
            ),
            false,
        ),
        Different => return None,
    })
}

/// With `{} +` find looks on before the program runs. What must be so for the same result, if
/// anything; `None` where it is another.
fn looks_on(before: &[String], program: &str) -> Option<&'static str> {
    /// These only read.
    const READ: &str = "true false echo printf cat zcat bzcat xzcat head tail wc cut strings stat file \
        grep egrep fgrep basename dirname readlink realpath cksum md5sum sha1sum \
        sha224sum sha256sum sha384sum sha512sum b2sum ls kill test expr du od sum";
    const ACTIONS: [&str; 14] = [
        "-print", "-print0", "-printf", "-ls", "-fls", "-fprint", "-fprint0", "-fprintf", "-exec",
        "-execdir", "-ok", "-okdir", "-quit", "-delete",
    ];
    let has = |any: &[&str]| before.iter().any(|word| any.contains(&word.as_str()));
    let alternatives = has(&["-o", "-or", ",", "!", "-not"]);
    let files = !alternatives && before.windows(2).any(|pair| pair[0] == "-type" && pair[1] == "f");
    // A directory that is empty only when the one in it is gone.
    let removes = matches!(program, "rmdir" | "rm" | "mv") && !files;
    if has(&["-delete"]) || (removes && has(&["-empty", "-depth", "-d"])) {
        return None;
    }
    Some(match (has(&ACTIONS), files || READ.split(' ').any(|word| word == program)) {
        (false, true) => "",
        (false, false) => ", if nothing that find looks at later depends on it",
        (true, true) => ", if the actions before it need not take turns with it",
        (true, false) => {
            ", if the actions before it need not take turns with it, and nothing that find looks at later depends on it"
        }
    })
}

/// A command line of xargs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Xargs {
    /// What limits the arguments of each program, as it is written.
    limit: Option<(String, u64)>,
    /// -L, whose lines may have several words each, or several limits.
    of_lines: bool,
    /// -I as it is written, and what is replaced.
    replaced: Option<(String, String)>,
    /// What separates the arguments, if not blanks and lines.
    separator: Option<String>,
    beside: Option<String>,
    /// Options that the words of another line do not repeat.
    others: bool,
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
                    "open-tty" => 'o',
                    "eof" | "exit" | "no-run-if-empty" | "verbose" | "show-limits" => 't',
                    // Abbreviated, and maybe with a value.
                    _ => return None,
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
                self.of_lines |= letter != 'n' || self.limit.is_some();
                self.limit = Some((written, number));
            }
            'I' | 'i' => {
                let replaced = if value.is_empty() { "{}" } else { value };
                self.replaced = Some((written, replaced.to_owned()));
            }
            '0' => self.separator = Some("-0".to_owned()),
            'd' => self.separator = Some(format!("-d {}", quoted(value)?)),
            'P' => self.beside = Some(written),
            'p' | 'o' => self.asks = true,
            'r' => {}
            _ => self.others = true,
        }
        Some(())
    }
}

/// What is said of arguments that the program would read as options.
enum Dash {
    /// They are none, or `--` ends them already.
    Harmless,
    /// The program knows `--`.
    Ends,
    Unknown,
}

/// What an argument with a dash does. As the only one it often is an error; with others it changes
/// what happens to them: `rm` of a directory and of a file called `-r`.
fn dash(command: &[String], what: &Many, gnu: bool) -> Dash {
    let name = command.first().map_or("", |word| file_name(word));
    match (name, what) {
        ("true" | "false" | "printf", _) | (_, Many::Loop(..)) => Dash::Harmless,
        // A loop of the user's has one file each.
        (_, Same(_)) if is_shell(name) && command.iter().any(|word| word.trim().starts_with("for ")) => {
            Dash::Harmless
        }
        _ if command.iter().skip(1).any(|word| word == "--") => Dash::Harmless,
        // A process group is an argument with a dash.
        ("echo" | "kill", _) | (_, Unknown) => Dash::Unknown,
        _ if is_shell(name) || !gnu => Dash::Unknown,
        _ => Dash::Ends,
    }
}

const NO_DASH: &str = ", if no argument begins with -";

/// What xargs does otherwise. `None`: nothing does the same with fewer programs, or that is not
/// known.
pub(super) fn of_xargs(arguments: &[String], gnu: bool) -> Option<Gathered> {
    let xargs = Xargs::of(arguments)?;
    // GNU's -I outlives -n1, others' does not.
    if xargs.asks || (xargs.replaced.is_some() && xargs.limit.is_some()) {
        return None;
    }
    if let Some((option, replaced)) = &xargs.replaced {
        return of_lines(&xargs, option, replaced, gnu);
    }
    let Some((option, number)) = &xargs.limit else {
        let text = "Give each program more arguments: raise -s, or let it read its input".to_owned();
        let certain = match many(&xargs.command, xargs.command.len(), gnu) {
            Different => return None,
            what => what == Same(""),
        };
        return Some(Gathered { text, certain, shells: false });
    };
    // Several words for each program may have a role each.
    if *number != 1 || xargs.of_lines {
        return None;
    }
    let leave = match &xargs.beside {
        None => format!("leave {option} out, or raise its number"),
        // Fewer starts with many files each may leave nothing to run beside each other.
        Some(beside) => format!("raise the number of {option}, and leave {beside} enough programs"),
    };
    let program = program_of(&xargs.command);
    let what = many(&xargs.command, xargs.command.len(), gnu);
    let dash = dash(&xargs.command, &what, gnu);
    let (ends, no_dash) = ends(&dash);
    let shells = matches!(what, Many::Loop(..));
    let (text, certain) = match what {
        Same(adds) => {
            let line =
                if ends.is_empty() { String::new() } else { format!(": {}{ends}", spelled(&xargs.command)) };
            (format!("Give each {program} many arguments: {leave}{line}{adds}{no_dash}"), adds.is_empty())
        }
        Many::Words(words, condition) => {
            let out = leave.replace(", or raise its number", "");
            let (program, line) = (program_of(&words), spelled(&words));
            (
                format!("Let one {program} have many: {out}: {line}{ends}{condition}{no_dash}"),
                condition.is_empty(),
            )
        }
        Many::Loop(name, file) => (
            format!(
                "Let one shell have many: {leave}: {} -c 'for f do ...; done' {name}, with \"$f\" in place of {file}",
                spelled(&xargs.command[..1])
            ),
            true,
        ),
        Unknown => {
            let text = format!("If {program} does with many arguments what it does with one");
            (format!("{text}{}, {leave}", no_dash.replace(", if", " and")), false)
        }
        Different => return None,
    };
    let certain = certain && no_dash.is_empty() && xargs.beside.is_none();
    Some(Gathered { text, certain, shells })
}

/// What ends the program's options, or what must be so.
fn ends(dash: &Dash) -> (&'static str, &'static str) {
    match dash {
        Dash::Harmless => ("", ""),
        Dash::Ends => (" --", ""),
        Dash::Unknown => ("", NO_DASH),
    }
}

/// The same of a program for each line (-I).
fn of_lines(xargs: &Xargs, option: &str, replaced: &str, gnu: bool) -> Option<Gathered> {
    let command = &xargs.command;
    if xargs.others {
        return None;
    }
    // A line is one argument, whatever blanks are in it. But -I leaves out empty lines and the
    // first blanks, and takes quotes and backslashes away.
    const PLAIN: &str = " (if no line is empty, begins with a blank or has a quote or a backslash)";
    let (separator, plain) = match &xargs.separator {
        Some(separator) => (separator.as_str(), ""),
        None if gnu => ("-d '\\n'", PLAIN),
        None => return None,
    };
    let beside = xargs.beside.as_ref().map_or_else(String::new, |beside| format!(" {beside} -n 100"));
    let option: String = option.chars().take(20).collect();
    // Without input -I starts nothing.
    let instead = format!("in place of {option}: xargs -r {separator}{beside}");
    let mut with = command.iter().enumerate().filter(|(_, word)| word.contains(replaced));
    let at = match (with.next(), with.next()) {
        (Some((at, word)), None) if word == replaced => at,
        _ => return None,
    };
    let program = program_of(command);
    // An empty line would be an empty word of a shell's line (`rm -rf "base/$1"`).
    if is_shell(&program) {
        return None;
    }
    let what = many(command, at, gnu);
    let (ends, no_dash) = ends(&dash(&command[..at], &what, gnu));
    let (text, certain) = match what {
        Same(adds) => (
            format!(
                "Let one {program} have many lines, {instead} {}{ends}{adds}{plain}{no_dash}",
                spelled(&command[..at])
            ),
            adds.is_empty(),
        ),
        Many::Words(words, condition) => (
            format!(
                "Let one {} have many lines, {instead} {}{ends}{condition}{plain}{no_dash}",
                program_of(&words),
                spelled(&words)
            ),
            condition.is_empty(),
        ),
        Unknown => (
            format!(
                "If {program} does with many lines what it does with one{}, {instead} {}{plain}",
                no_dash.replace(", if", " and"),
                spelled(&command[..at])
            ),
            false,
        ),
        Many::Loop(..) | Different => return None,
    };
    let certain = certain && plain.is_empty() && no_dash.is_empty() && xargs.beside.is_none();
    Some(Gathered { text, certain, shells: false })
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

    /// Regression: every line of find was told to end with `{} +`. Then a remedy destroyed files.
    /// Each line below with a comment had one that did something else.
    #[test]
    fn another_line_of_find_does_the_same() {
        let of = |line: &[&str]| told(of_find(&words(&[&["find", "."], line].concat()), true));
        let all = |line: &str| of(&line.split(' ').collect::<Vec<_>>());
        let chmod = "End -exec with {} + and not with {} \\;, so that one chmod gets many files";
        assert_eq!(all("-type f -exec chmod 644 {} ;"), chmod);
        assert_eq!(all("-type f ( -exec /bin/chmod 644 {} ; )"), chmod);
        let looks_on = ", if nothing that find looks at later depends on it";
        // It was certain, but without -x a directory cannot be read.
        assert_eq!(all("-exec chmod 644 {} ;"), format!("? {chmod}{looks_on}"));
        let files = "(if to is a directory and no two files have one name)";
        for (line, text) in [
            // Of a/x and b/x the second was refused.
            (
                "-type f -exec cp -p {} to ;",
                format!("? Let one cp have many files: -exec cp -p -t to {{}} + {files}"),
            ),
            ("-type f -exec cp -t to {} ;", "gets many files (if no two files have one name)".to_owned()),
            ("-type f -exec install -m 644 {} to ;", format!("install -m 644 -t to {{}} + {files}")),
            ("-type f -exec ln -s {} to ;", format!("ln -s -t to {{}} + {files}")),
            ("-type f -exec install -d {} ;", "so that one install gets many files".to_owned()),
            // The options stood behind --.
            (
                "-type f -exec mv -- {} to ;",
                format!("? Let one mv have many files: -exec mv -t to -- {{}} + {files}"),
            ),
            ("-exec head -n1 -- {} ;", "have many files: -exec head -n1 -q -- {} +".to_owned()),
            ("-exec head -5 {} ;", "-exec head -5 -q {} +".to_owned()),
            ("-exec grep x -- {} ;", "-exec grep -h x -- {} +".to_owned()),
            ("-exec basename -- {} .c ;", "-exec basename -s .c -- {} +".to_owned()),
            ("-exec file {} ;", "-exec file -N {} +".to_owned()),
            ("-exec basename {} ;", "-exec basename -a {} +".to_owned()),
            ("-exec basename {} .txt ;", "-exec basename -s .txt {} +".to_owned()),
            ("-exec grep x {} ;", "-exec grep -h x {} +".to_owned()),
            ("-exec grep -l x {} ;", "so that one grep gets many files".to_owned()),
            ("-exec head -n 1 {} ;", "-exec head -n 1 -q {} +".to_owned()),
            ("-exec echo {} ;", "-exec printf '%s\\n' {} +".to_owned()),
            ("-exec app {} ;", "? End -exec with {} + and not with {} \\;, if app does".to_owned()),
            // Find went into what they had removed only later.
            ("-exec rmdir {} ;", format!("gets many files{looks_on}")),
            ("-type d -exec rm -r {} ;", format!("gets many files{looks_on}")),
            ("-type f -o -exec rm {} ;", format!("gets many files{looks_on}")),
            (
                "-print -exec cat {} ;",
                "many files, if the actions before it need not take turns with it".to_owned(),
            ),
            ("-exec touch {} + -exec cat {} ;", "? End -exec with".to_owned()),
            ("-print -exec rm {} ;", "turns with it, and nothing that find looks at later".to_owned()),
        ] {
            assert!(all(line).contains(&text), "{line:?}: {}", all(line));
            let needs = text.contains("if ") || text.contains("turns");
            assert_eq!(all(line).starts_with("? "), needs || text.starts_with("? "), "{line}: {}", all(line));
        }
        for (line, text) in [
            ("echo \"$1\"", "sh -c 'for f do ...; done' _ {} +, with \"$f\" in place of $1"),
            // A loop of a loop.
            ("for x do echo \"$x\"; done", "so that one sh gets many files"),
            ("for f in \"$@\"; do echo \"$f\"; done", "so that one sh gets many files"),
            ("rm \"$@\"", "so that one sh gets many files"),
        ] {
            let line = of(&["-type", "f", "-exec", "sh", "-c", line, "_", "{}", ";"]);
            assert!(line.contains(text) && !line.starts_with('?'), "{line}");
        }
        let zeroth = of(&["-exec", "sh", "-c", "echo $0", "{}", ";"]);
        let loops = "sh -c 'for f do ...; done' _ {} +, with \"$f\" in place of $0";
        assert!(zeroth.contains(loops) && zeroth.contains(looks_on), "{zeroth}");
        // Its name was not quoted.
        let spaced = of(&["-exec", "cp", "{}", "my dir", ";"]);
        assert!(spaced.contains("(if 'my dir' is a directory"), "{spaced}");
        for line in [
            "-exec mv {} {}.old ;",
            "-exec cmp {} other ;",
            "-exec cat -n {} ;",
            "-exec app --file={} ;",
            "-exec app {} out ;",
            "-exec date ;",
            "-ok rm {} ;",
            "-okdir rm {} ;",
            "-exec grep -q x {} ; -print",
            "-exec rm {} ; -exec echo {} ;",
            "-exec touch -r {} ;",
            "-exec dd {} ;",
            "-exec rm {} +",
            // `cp -t bk {} +` copied nothing, and everything was deleted.
            "-exec cp -t bk {} ; -delete",
            "-exec rm {} ; -o -name x",
            "-exec rm {} ; -print",
            "-exec rm {} ; -ls",
            "-exec rm {} ; -quit",
            "-exec rm {} ; -prune",
            "-exec rm {} ; -fprint log",
            "-exec rm {} ; -ok echo {} ;",
            "-exec rm {} ; -name x",
            "( -exec rm {} ; ) -delete",
            "-delete -exec echo {} ;",
            // The kernel's part of the line ends here.
            "-exec chmod",
            // The first file is the mode of the others.
            "-type f -exec chmod {} ;",
            "-type f -exec chown -R {} ;",
            // Of nested empty directories the outer ones stayed.
            "-type d -empty -exec rmdir {} ;",
            "-depth -type d -exec rmdir {} ;",
            "-depth -exec rm -r {} ;",
            // It asks once for all, is one for each directory, or writes other lines.
            "-execdir rm {} ;",
            "-exec rm -I {} ;",
            "-exec rm -i {} ;",
            "-exec rm --interactive=once {} ;",
            "-exec rm --recurs {} ;",
            "-exec grep -A1 x {} ;",
            "-exec grep -C 2 x {} ;",
            "-exec grep -h --context=2 x {} ;",
            "-exec file -f {} ;",
            "-exec ln -sn {} to ;",
            "-exec cp -i {} to ;",
            // With each file the fixed one was taken too.
            "-exec cat head {} ;",
            "-exec cp a {} to ;",
            // It waits for its value.
            "-exec touch --date {} ;",
            "-exec cksum -a {} ;",
            "-exec sudo sh -c x {} ;",
            "-exec tar xf {} ;",
        ] {
            assert_eq!(all(line), "", "{line:?}");
        }
        for line in
            ["cd /; echo $1", "echo $1 $2", "for f do x; done; y", "for f do x; done; for f do y; done"]
        {
            assert_eq!(of(&["-exec", "sh", "-c", line, "_", "{}", ";"]), "", "{line}");
        }
        // What busybox's programs cannot.
        assert_eq!(of_find(&words(&["find", "-exec", "basename", "{}", ";"]), false), None);
    }

    /// Regression: every line of xargs was told to leave -n1 out. Then a remedy destroyed files, as
    /// that of find did.
    #[test]
    fn another_line_of_xargs_does_the_same() {
        let of = |line: &[&str]| told(of_xargs(&words(&[&["xargs"], line].concat()), true));
        // -- is new. A file called -R was the option of all.
        assert_eq!(
            of(&["-0", "-n1", "chmod", "644"]),
            "Give each chmod many arguments: leave -n1 out, or raise its number: chmod 644 --"
        );
        let dash = ", if no argument begins with -";
        let lines = "(if no line is empty, begins with a blank or has a quote or a backslash)";
        for (line, text) in [
            (&["-rn", "1", "rm", "-f"][..], "leave -n 1 out, or raise its number: rm -f --"),
            (&["--max-args=1", "rm"], "leave --max-args=1 out"),
            (&["-n1", "rm", "--"], "leave -n1 out, or raise its number"),
            (&["-n1", "cp", "-t", "to"], "? Give each cp many arguments: leave -n1 out"),
            // echo has options too.
            (&["-n1"], "? Let one printf have many: leave -n1 out: printf '%s\\n', if no"),
            (&["-n1", "basename"], "Let one basename have many: leave -n1 out: basename -a --"),
            (&["-n1", "basename", "-s", ".c"], "Give each basename many arguments"),
            (&["-n1", "printf", "%s.c\\n"], "Give each printf many"),
            (&["-n1", "grep", "x"], "leave -n1 out: grep -h x --"),
            (&["-n1", "kill", "-9"], "? Give each kill many arguments"),
            (&["-n1", "kill", "-9"], dash),
            (
                &["-n1", "-P4", "gzip"],
                "? Give each gzip many arguments: raise the number of -n1, and leave -P4",
            ),
            (
                &["-n1", "sh", "-c", "echo $1", "_"],
                "sh -c 'for f do ...; done' _, with \"$f\" in place of $1",
            ),
            (&["-n1", "sh", "-c", "rm \"$@\"", "_"], dash),
            (
                &["-n1", "app"],
                "? If app does with many arguments what it does with one and no argument begins with -, leave -n1",
            ),
            // Quotes, blanks, empty lines and an empty input.
            (
                &["-I{}", "rm", "-f", "{}"],
                "? Let one rm have many lines, in place of -I{}: xargs -r -d '\\n' rm -f --",
            ),
            (&["-I{}", "rm", "-f", "{}"], lines),
            (&["-0I{}", "rm", "-f", "{}"], "in place of -I{}: xargs -r -0 rm -f --"),
            (
                &["-I{}", "cp", "{}", "to"],
                "-t to -- (if to is a directory and no two files have one name) (if no line",
            ),
            (
                &["-0I", "@", "cp", "@", "to"],
                "? Let one cp have many lines, in place of -I @: xargs -r -0 cp -t to --",
            ),
            (&["true"], "raise -s"),
        ] {
            assert!(of(line).contains(text), "{line:?}: {}", of(line));
        }
        assert!(!of(&["-0I{}", "rm", "{}"]).contains('?'));
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
            // Pairs of a mode and a file, lines of options and files. These had a remedy.
            // Those of rm, whose operands are alike, are left out with them.
            &["-n2", "chmod"],
            &["-n1", "chmod"],
            &["-n2", "rm"],
            &["-L1", "touch"],
            &["-L1", "kill"],
            &["-l", "rm"],
            // An empty line would be `rm -rf base/`.
            &["-I{}", "sh", "-c", "rm -rf \"base/$1\"", "_", "{}"],
            &["-I{}", "sudo", "sh", "-c", "rm -rf \"base/$1\"", "_", "{}"],
            &["-a", "list", "-I{}", "rm", "{}"],
            // GNU keeps -I.
            &["-I{}", "-n1", "rm", "{}"],
            &["-n1", "-I{}", "rm", "{}"],
            &["-n1", "-L1", "rm"],
            &["--max-arg=1", "rm"],
            &["-n1", "rm", "-I"],
            &["-n1", "grep", "-A1", "x"],
            &["-n1", "touch", "-d"],
            &["-n1", "touch", "--date"],
            &["-I{}", "{}"],
        ] {
            assert_eq!(of(line), "", "{line:?}");
        }
        // busybox's programs need not know --.
        let rm = told(of_xargs(&words(&["xargs", "-n1", "rm"]), false));
        assert!(rm.starts_with("? Give each rm") && rm.ends_with(dash), "{rm}");
    }

    /// The loop has a variable f, and its shell lives on.
    #[test]
    fn a_shell_whose_line_lasts_is_not_made_a_loop() {
        let of = |line: &str| of_shell(&words(&["-c", line, "_"]), true);
        for line in ["wc -l < $1", "mv -- \"$1\" \"${1%.c}.o\"", "a \"$1\" && b 2>&1", "printf '%s' $1"] {
            assert_eq!(of(line), Many::Loop("_".to_owned(), "$1"), "{line}");
        }
        for line in [
            "cd $1; ls",
            "n=$(wc -l < $1); echo $n",
            "exec cat $1",
            "echo $@",
            "[ -f $1 ] || exit",
            "echo $1 $f",
            "echo $1 ${f}",
            "for f in a b; do echo $1 $f; done",
            "echo $1 >$$",
            "echo ${n:=$1}",
            "n+=$1",
            "echo $((n++)) $1",
            "echo $((n--)) $1",
            "((n = n + 1)); echo $1",
            "echo $[n--] $1",
            "echo ${a[n--]} $1",
            ". $1",
            "source $1",
            "local n; echo $1",
            "declare -i n; echo $1",
            "typeset n; echo $1",
            "readonly n; echo $1",
            "let n; echo $1",
            "pushd $1",
            "popd; echo $1",
            "shopt -s x; echo $1",
            "getopts a n; echo $1",
            "alias x=$1",
            "mapfile <$1",
            "set -e; x $1",
            "trap x EXIT; x $1",
            "return $1",
            "wait; x $1",
            "printf -v n $1; echo $n",
            "x $1 &",
            "x $1 # why",
            "x() { y; }; x $1",
            ": >$1",
            "echo ${1:?}",
            "cat <<E\n$1\nE",
            "echo $? $1",
            "echo \"$*\"",
            "echo $# $1",
            "cmp \"$@\"",
            "for f do echo $f; exit; done",
            "for f do echo $f $1; done",
            "f() { :; }; echo $1",
            "read n; x $1",
            "for x do for y in 1; do z $x; done; done",
            "for x do echo $x $1; done; y",
            "echo",
        ] {
            assert_eq!(of(line), Different, "{line}");
        }
    }
}
