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
    /// These words before the files do the same. What must be so for that, if anything.
    Words(Vec<String>, String),
    /// A loop of one shell does the same. The word behind its line, and the file's name in it.
    Loop(String, &'static str),
    Unknown,
    Different,
}

use Many::{Different, Unknown};

/// A loop in the place of shells whose statuses find takes no notice of.
const LOOP_OF_FIND: &str = "for f do ...; done; :";
/// A loop that fails if any of its turns does, as xargs fails if any of its programs does. For that
/// xargs has one status, except for programs at which it ends.
const LOOP_OF_XARGS: &str = "s=0; for f do { ...; } || s=1; done; exit $s";
const NO_TURN: &str = "no turn ends with 255 or by a signal";

/// The words between a program and its files.
struct Given<'w> {
    letters: String,
    long: Vec<&'w str>,
    operands: usize,
    /// Where the options end, at `--` or before the files.
    end: usize,
    words: &'w [String],
}

impl<'w> Given<'w> {
    /// `None` where an option is not among those named here, is abbreviated, or waits for the file
    /// as its value.
    fn of(words: &'w [String], flags: &str, valued: &str, long_flags: &[&str]) -> Option<Self> {
        let mut given =
            Self { letters: String::new(), long: Vec::new(), operands: 0, end: words.len(), words };
        let mut at = 0;
        while let Some(word) = words.get(at) {
            at += 1;
            if word == "--" {
                given.end = at - 1;
                given.operands += words.len() - at;
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                given.long.push(long_flags.contains(&long).then_some(long)?);
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
                given.operands += 1;
            }
        }
        Some(given)
    }

    fn has(&self, letters: &str, long: &[&str]) -> bool {
        self.letters.contains(|c| letters.contains(c)) || self.long.iter().any(|name| long.contains(name))
    }

    /// The command with further options, which stand before `--`.
    fn with(&self, program: &str, options: &[&str], condition: &str) -> Many {
        let (before, behind) = self.words.split_at(self.end);
        let options: Vec<String> = options.iter().map(|&word| word.to_owned()).collect();
        let words = [&[program.to_owned()], before, &options, behind].concat();
        Many::Words(words, condition.to_owned())
    }
}

/// Programs that do with each operand what they do with one, go on behind one that fails, and fail
/// if any does. Their names, their options without and with a value that change nothing of that,
/// and options in full. With others the files would be another thing, be asked about (`rm -I`), or
/// be read as values. `gzip -d` ends at the first broken file.
type Plain = (&'static [&'static str], &'static str, &'static str, &'static [&'static str]);
const PLAIN: [Plain; 9] = [
    (&["rm"], "dfrRv", "", &["force", "recursive", "dir", "verbose"]),
    (&["rmdir"], "pv", "", &["parents", "verbose"]),
    (&["mkdir"], "pv", "m", &["parents", "verbose"]),
    (&["touch"], "acmh", "dt", &["no-create", "no-dereference"]),
    (&["cat"], "uvETAet", "", &[]),
    (&["realpath"], "emLPqsz", "", &[]),
    (&["stat"], "Lft", "c", &["dereference"]),
    (&["cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum"], "btz", "", &["tag"]),
    (&["gzip"], "fknNqv123456789", "", &["force", "keep", "fast", "best"]),
];

/// Programs that do something else with many files, or for which nothing is known to do the same.
const OTHERS: &str = "bsdtar bunzip2 busybox bzcat bzip2 cmp comm csplit cut date dd diff diff3 dirname du \
    egrep expr fgrep file gunzip install join kill link ln ls mount nl od paste patch pr printf readlink \
    rename rsync scp sdiff seq sleep sort split ssh strings sum tail tar tee test toybox tr tsort uniq \
    unlink unxz unzip wc xz xzcat zcat base32 base64 [";

/// What the command does, a file of which stands at `at`, with many of them. Without GNU's programs
/// (busybox) there are no options of GNU's.
fn many(words: &[String], at: usize, gnu: bool) -> Many {
    let Some(program) = words.first().filter(|_| at > 0) else { return Different };
    let before = &words[1..at];
    let after = words.get(at + 1..).unwrap_or_default();
    let name = file_name(program);
    // The only ones whose files may stand before a last word.
    let placed = match name {
        "cp" | "mv" => of_copies(program, before, after, gnu),
        "basename" => of_basename(program, before, after, gnu),
        _ if !after.is_empty() => None,
        _ if is_shell(name) => of_shell(before),
        _ => of_last(program, before),
    };
    placed.unwrap_or(Different)
}

/// Of two files of one name each program overwrites the first; one for them all refuses the second.
/// With -a or -d one cp keeps hard links between the files, and so does one mv to another disk.
fn of_copies(program: &str, before: &[String], after: &[String], gnu: bool) -> Option<Many> {
    let flags = if file_name(program) == "cp" { "fHlLnpPrRsuvx" } else { "fnuv" };
    let given = Given::of(before, flags, "t", &["force", "verbose"]).filter(|given| given.operands == 0)?;
    let are = if file_name(program) == "cp" { "have one name" } else { "have one name or are one file" };
    match after {
        [] if given.has("t", &[]) => Some(given.with(program, &[], &format!(" (if no two files {are})"))),
        [to] if gnu && !given.has("t", &[]) && !to.starts_with('-') => {
            const LONGEST: usize = 60;
            let target = quoted(to).filter(|to| to.len() <= LONGEST);
            let target = target.unwrap_or_else(|| "the target".to_owned());
            let condition = format!(" (if {target} is a directory and no two files {are})");
            Some(given.with(program, &["-t", to], &condition))
        }
        _ => None,
    }
}

fn of_basename(program: &str, before: &[String], after: &[String], gnu: bool) -> Option<Many> {
    let given = Given::of(before, "az", "s", &["multiple", "zero"]).filter(|given| given.operands == 0)?;
    let takes_many = given.has("as", &["multiple"]);
    match after {
        [] if takes_many => Some(given.with(program, &[], "")),
        [] if gnu => Some(given.with(program, &["-a"], "")),
        [suffix] if gnu && !takes_many && !suffix.starts_with('-') => {
            Some(given.with(program, &["-s", suffix], ""))
        }
        _ => None,
    }
}

/// Of a program whose files stand last. `None`: it does something else with many.
fn of_last(program: &str, before: &[String]) -> Option<Many> {
    let name = file_name(program);
    if let Some((_, flags, valued, long)) = PLAIN.iter().find(|(names, ..)| names.contains(&name)) {
        // A fixed operand would be taken once, and not with each file.
        let given = Given::of(before, flags, valued, long).filter(|given| given.operands == 0)?;
        return Some(given.with(program, &[], ""));
    }
    let words = |words: &[&str]| {
        let words = [words, &before.iter().map(String::as_str).collect::<Vec<_>>()].concat();
        Many::Words(words.into_iter().map(str::to_owned).collect(), String::new())
    };
    match name {
        "true" | "false" => Some(words(&[program])),
        // Without their first operand the first file is that.
        "chmod" | "chown" | "chgrp" => {
            let given = Given::of(before, "cfvRhHLP", "", &["changes", "verbose", "recursive"])?;
            (given.operands == 1).then(|| given.with(program, &[], ""))
        }
        // All on one line.
        "echo" => before.is_empty().then(|| words(&["printf", "%s\\n"])),
        "printf" if before == ["%s\\n"] => Some(words(&[program])),
        // Without -q each file gets a line with its name.
        "head" => {
            let given = Given::of(before, "qz", "nc", &["quiet"]).filter(|given| given.operands == 0)?;
            let quiet = given.has("q", &["quiet"]);
            Some(given.with(program, if quiet { &[] } else { &["-q"] }, ""))
        }
        // With several files grep writes their names, unless it is told otherwise. With -f of a
        // pipe the first grep would take the patterns of all.
        "grep" => {
            let names = ["files-with-matches", "with-filename", "no-filename"];
            let others = ["ignore-case", "fixed-strings", "extended-regexp", "line-number", "count"];
            let given = Given::of(before, "lhHcnoivwxEFPsaI", "em", &[&names[..], &others].concat())?;
            let pattern = usize::from(!given.has("e", &[]));
            let own: &[&str] = if given.has("lhH", &names) { &[program] } else { &[program, "-h"] };
            (given.operands == pattern).then(|| words(own))
        }
        _ if OTHERS.split_whitespace().any(|other| other == name) => None,
        _ => (!before.iter().any(|word| is_shell(file_name(word)))).then_some(Unknown),
    }
}

/// `sh -c LINE`, and the word behind it that is $0, before the file.
fn of_shell(before: &[String]) -> Option<Many> {
    let (line, name) = match before {
        [c, line] if c == "-c" => (line, None),
        [c, line, name] if c == "-c" => (line, Some(name)),
        _ => return None,
    };
    let (file, number) = if name.is_some() { ("$1", "1") } else { ("$0", "0") };
    let is_in_name = |c: char| c == '_' || c.is_ascii_alphanumeric();
    // `$1_x` would be a variable f_x, and `${1:0:1}` is an error that ends dash.
    let is_other = |rest: &str| match (rest.strip_prefix('{'), rest.strip_prefix(number)) {
        (Some(rest), _) => {
            let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
            let number = is_number.then(|| rest.strip_prefix(number).unwrap_or_default());
            let behind = number.unwrap_or_else(|| rest.trim_start_matches(is_in_name));
            let is_plain = ["}", "%", "#", "-", "+", ":-", ":+"].iter().any(|it| behind.starts_with(it));
            behind == rest || !is_plain
        }
        (None, Some(behind)) => behind.starts_with(is_in_name),
        (None, None) => rest.starts_with(|c: char| "@*#".contains(c) || c.is_ascii_digit()),
    };
    let own = ["$f", "${f", "$s", "${s"];
    // In quotes a $1 is another program's.
    let is_quoted = line.contains('\\')
        || (line.contains('\'') && line.contains('"'))
        || line.split('\'').skip(1).step_by(2).any(|part| part.contains('$'));
    let is_of_file = line.contains(file) || line.contains(&file.replace('$', "${"));
    let is_of_others = line.split('$').skip(1).any(is_other) || own.iter().any(|own| line.contains(own));
    if lasts(line) || is_quoted || is_of_others || !is_of_file {
        return None;
    }
    let name = name.and_then(|name| quoted(name)).unwrap_or_else(|| "_".to_owned());
    Some(Many::Loop(name, file))
}

/// Whether what a shell's line does may last until the shell's end, or be that. Where that cannot
/// be told, it may. Behind a line that ends with `;` that of a loop is an error.
fn lasts(line: &str) -> bool {
    const WORDS: &str = ". : alias bg bind break builtin cd chdir command continue coproc declare dirs \
        disown enable emulate eval exec exit export fc fg for function getopts hash \
        history jobs let local logout mapfile newgrp popd pushd read readarray readonly \
        return select set setopt shift shopt source suspend times trap typeset ulimit \
        umask unalias unset unsetopt wait";
    // Assignments, arithmetic, the shell's own state, functions, here-documents, and what ends a
    // shell where it is not set (`${1:?}`).
    const PARTS: [&str; 15] = [
        "+=", "$[", ":=", "++", "((", "()", "<<", "$$", "$!", "$?", "$_", "$-", "$RANDOM", "$LINENO", "$PPID",
    ];
    let own = line.replace("&&", "").replace(">&", "").replace("<&", "").replace("&>", "");
    let in_braces = |rest: &str| rest.split('}').next().is_some_and(|own| own.contains(['=', '?']));
    if own.contains('&')
        || line.trim_end_matches([' ', '\t']).ends_with([';', '\n'])
        || PARTS.iter().any(|part| line.contains(part))
        || line.split("${").skip(1).any(in_braces)
    {
        return true;
    }
    let split = |c: char| c.is_whitespace() || ";&|(){}`\"'".contains(c);
    let words = || line.split(split).filter(|word| !word.is_empty());
    let sets = words().any(|word| word == "printf") && words().any(|word| word == "-v");
    sets || words().any(|word| {
        let assigned = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        });
        // A comment would hide the loop's end.
        assigned
            || word.starts_with('#')
            || word.trim_start_matches('-').contains("--")
            || WORDS.split_whitespace().any(|own| own == word)
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

/// Where the only action of find stands that starts a program for each file, and its command.
/// `None` where `{} +` in its place would be another thing.
fn the_action(arguments: &[String]) -> Option<(usize, &[String])> {
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
    (arguments[begin] == "-exec" && behind.iter().all(|word| word == ")")).then_some((begin, command))
}

/// A loop of one shell. It replaces one shell for each name, which find or xargs writes into the
/// shell's line. `None` where the loop may do something else. Without -0, it would take an empty
/// line for an empty name.
pub(super) fn loop_for(starter: &str, arguments: &[String]) -> Option<String> {
    let shell = |command: &[String]| match command {
        [shell, c, line] if is_shell(file_name(shell)) && c == "-c" && !lasts(line) => quoted(shell),
        _ => None,
    };
    if starter == "find" {
        let (begin, command) = the_action(arguments)?;
        let (shell, needs) = (shell(command)?, looks_on(&arguments[..begin], "")?);
        return Some(format!("`-exec {shell} -c '{LOOP_OF_FIND}' _ {{}} +`{needs}"));
    }
    let xargs = Xargs::of(arguments).filter(|it| it.limit.is_none() && it.beside.is_none())?;
    let (_, separator, shell) = (xargs.replaced?, xargs.separator?, shell(&xargs.command)?);
    Some(format!("`xargs {separator} -r {shell} -c '{LOOP_OF_XARGS}' _`, if {NO_TURN}"))
}

/// What find's `-exec` does otherwise. `None`: nothing does the same with fewer programs, or that
/// is not known.
pub(super) fn of_find(arguments: &[String], gnu: bool) -> Option<Gathered> {
    let (begin, command) = the_action(arguments)?;
    let at = the_only(command, "{}")?;
    let program = program_of(command);
    let needs = looks_on(&arguments[..begin], file_name(command.first()?))?;
    // Of `{} ;` find takes no notice.
    let fails = match program.as_str() {
        "echo" | "printf" | "true" => String::new(),
        "grep" => "; find then fails where grep finds nothing".to_owned(),
        _ => format!("; find then fails where {program} fails"),
    };
    let what = many(command, at, gnu);
    let shells = matches!(what, Many::Loop(..));
    let (text, certain) = match what {
        Many::Words(words, condition) => {
            let (program, line) = (program_of(&words), spelled(&words));
            let text =
                format!("Let one {program} have many files: `-exec {line} {{}} +`{condition}{needs}{fails}");
            (text, condition.is_empty() && needs.is_empty())
        }
        Many::Loop(name, file) => {
            let shell = spelled(&command[..1]);
            let text = format!(
                "Let one shell have many files: `-exec {shell} -c '{LOOP_OF_FIND}' {name} {{}} +`, with $f in place of {file}{needs}"
            );
            (text, needs.is_empty())
        }
        Unknown => {
            let line = spelled(&command[..at]);
            let text = format!(
                "If {program} does with many files what it does with one, let it have many: `-exec {line} {{}} +`{needs}{fails}"
            );
            (text, false)
        }
        Different => return None,
    };
    Some(Gathered { text, certain, shells })
}

/// Where the file stands, if it does once and alone.
fn the_only(command: &[String], replaced: &str) -> Option<usize> {
    let mut with = command.iter().enumerate().filter(|(_, word)| word.contains(replaced));
    match (with.next(), with.next()) {
        (Some((at, word)), None) if word == replaced => Some(at),
        _ => None,
    }
}

/// With `{} +` find looks on before the program runs. What must be so for the same result, if
/// anything; `None` where it is another.
fn looks_on(before: &[String], program: &str) -> Option<&'static str> {
    /// These only read.
    const READ: &str = "true false echo printf cat head stat grep basename realpath cksum md5sum sha1sum \
        sha256sum sha512sum";
    /// Of a regular file they change or remove nothing but it.
    const IN_PLACE: &str = "rm chmod chown chgrp touch";
    const ACTIONS: [&str; 14] = [
        "-print", "-print0", "-printf", "-ls", "-fls", "-fprint", "-fprint0", "-fprintf", "-exec",
        "-execdir", "-ok", "-okdir", "-quit", "-delete",
    ];
    /// With these a file may be found otherwise once another name of it was removed or changed.
    const OTHERWISE: &str = "-o -or , ! -not -L -follow -links -perm -ctime -cmin -cnewer -samefile";
    let has = |any: &[&str]| before.iter().any(|word| any.contains(&word.as_str()));
    let is_of = |programs: &str| programs.split_whitespace().any(|word| word == program);
    let is_otherwise =
        |word: &String| word.starts_with("-newer") || OTHERWISE.split_whitespace().any(|other| other == word);
    let files = !before.iter().any(is_otherwise)
        && before.windows(2).any(|pair| pair[0] == "-type" && pair[1] == "f");
    // A directory that is empty only when the one in it is gone.
    let removes = is_of("rmdir rm mv") && !files;
    if has(&["-delete"]) || (removes && has(&["-empty", "-depth", "-d", "-links", "-L", "-follow"])) {
        return None;
    }
    Some(match (has(&ACTIONS), is_of(READ) || (files && is_of(IN_PLACE))) {
        (false, true) => "",
        (false, false) => ", if nothing that find looks at later depends on it",
        (true, true) => ", if the actions before it need not take turns with it",
        (true, false) => {
            ", if the actions before it need not take turns with it, and nothing that find looks at later depends on it"
        }
    })
}

/// A command line of xargs, of the options that another line can repeat or leave out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Xargs {
    /// -n.
    limit: Option<u64>,
    /// -I: what is replaced.
    replaced: Option<String>,
    /// What separates the arguments, if not blanks and lines.
    separator: Option<String>,
    /// -P.
    beside: Option<String>,
    /// -r.
    only_with_input: bool,
    command: Vec<String>,
}

impl Xargs {
    /// `None` for others, and for those in full. -L's lines may have several words each; -p asks.
    fn of(arguments: &[String]) -> Option<Self> {
        let mut xargs = Self::default();
        let mut words = arguments.iter().skip(1);
        while let Some(word) = words.clone().next().filter(|word| word.len() > 1 && word.starts_with('-')) {
            words.next();
            if word == "--" {
                break;
            }
            for (at, letter) in word[1..].char_indices() {
                if "0r".contains(letter) {
                    xargs.option(letter, "")?;
                    continue;
                }
                let behind = &word[1 + at + letter.len_utf8()..];
                let next = behind.is_empty() && letter != 'i';
                xargs.option(letter, if next { words.next()? } else { behind })?;
                break;
            }
        }
        xargs.command = words.cloned().collect();
        if xargs.command.is_empty() {
            xargs.command.push("echo".to_owned());
        }
        Some(xargs)
    }

    fn option(&mut self, letter: char, value: &str) -> Option<()> {
        match letter {
            // Of several the last one would hold, or none.
            'n' if self.limit.is_none() => self.limit = Some(value.parse().ok()?),
            'I' | 'i' if self.replaced.is_none() => {
                self.replaced = Some(if value.is_empty() { "{}" } else { value }.to_owned());
            }
            '0' => self.separator = Some("-0".to_owned()),
            'd' => self.separator = Some(format!("-d {}", quoted(value)?)),
            'P' => self.beside = Some(quoted(value)?),
            'r' => self.only_with_input = true,
            _ => return None,
        }
        Some(())
    }
}

/// Whether the program, which would read an argument with a dash as an option, knows `--`. As the
/// only one such an argument often is an error. With others it changes what happens to them: `rm`
/// of a directory and of a file called `-r`. `None`: it is not known.
fn ends(command: &[String], what: &Many, gnu: bool) -> Option<&'static str> {
    let name = command.first().map_or("", |word| file_name(word));
    match (name, what) {
        ("true" | "false" | "printf", _) | (_, Many::Loop(..)) => Some(""),
        _ if command.iter().skip(1).any(|word| word == "--") => Some(""),
        ("echo", _) | (_, Unknown) => None,
        _ => gnu.then_some(" --"),
    }
}

/// What xargs does otherwise. `None`: nothing does the same with fewer programs, or that is not
/// known.
pub(super) fn of_xargs(arguments: &[String], gnu: bool) -> Option<Gathered> {
    // A line of -I is one argument, whatever blanks are in it. But -I leaves out empty lines and
    // the first blanks, and takes quotes and backslashes away.
    const PLAIN_LINES: &str = " (if no line is empty, begins with a blank or has a quote or a backslash)";
    let xargs = Xargs::of(arguments)?;
    let command = &xargs.command;
    let (at, separator, lines) = match (&xargs.replaced, xargs.limit) {
        // Several words for each program may have a role each.
        (None, Some(1)) => (command.len(), xargs.separator.clone(), ""),
        // An empty line would be an empty word of a shell's line (`rm -rf "base/$1"`).
        (Some(_), None) if is_shell(&program_of(command)) => return None,
        (Some(replaced), None) => {
            let at = the_only(command, replaced)?;
            let lines = if xargs.separator.is_none() { PLAIN_LINES } else { "" };
            let separator = xargs.separator.clone().or_else(|| gnu.then(|| "-d '\\n'".to_owned()))?;
            (at, Some(separator), lines)
        }
        // GNU's -I outlives -n1, others' does not.
        _ => return None,
    };
    // Without input -I starts nothing.
    let only_with_input = xargs.only_with_input || xargs.replaced.is_some();
    let options = [
        separator.map(|separator| format!("{separator} ")),
        only_with_input.then(|| "-r ".to_owned()),
        // Fewer starts with many files each may leave nothing to run beside each other.
        xargs.beside.as_ref().map(|beside| format!("-P {beside} -n 100 ")),
    ];
    let other = format!("xargs {}", options.into_iter().flatten().collect::<String>());
    let program = program_of(command);
    let what = many(command, at, gnu);
    let shells = matches!(what, Many::Loop(..));
    let ends = ends(&command[..at], &what, gnu);
    let dash = if ends.is_none() { ", if no argument begins with -" } else { "" };
    let ends = ends.unwrap_or_default();
    let (text, certain) = match what {
        Many::Words(words, condition) => {
            // xargs fails if any of its programs does, and one grep for all does so if none has it.
            let fails =
                if program == "grep" { "; xargs then fails only if no file has the pattern" } else { "" };
            let (program, line) = (program_of(&words), spelled(&words));
            let text = format!(
                "Let one {program} have many arguments: `{other}{line}{ends}`{condition}{lines}{dash}{fails}"
            );
            (text, condition.is_empty())
        }
        Many::Loop(name, file) => {
            let input = if only_with_input { "" } else { "there is input and " };
            let shell = spelled(&command[..1]);
            let text = format!(
                "Let one shell have many arguments: `{other}{shell} -c '{LOOP_OF_XARGS}' {name}`, with $f in place of {file}, if {input}{NO_TURN}"
            );
            (text, true)
        }
        Unknown => {
            let line = spelled(&command[..at]);
            let dash = dash.replace(", if", ", and");
            let text = format!(
                "If {program} does with many arguments what it does with one, its status included{dash}, let it have many: `{other}{line}`{lines}"
            );
            (text, false)
        }
        Different => return None,
    };
    let certain = certain && lines.is_empty() && dash.is_empty() && xargs.beside.is_none();
    Some(Gathered { text, certain, shells })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

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
        let chmod =
            "Let one chmod have many files: `-exec /bin/chmod 644 {} +`; find then fails where chmod fails";
        assert_eq!(all("-type f -exec /bin/chmod 644 {} ;"), chmod);
        assert_eq!(all("-type f ( -exec /bin/chmod 644 {} ; )"), chmod);
        let looks_on = ", if nothing that find looks at later depends on it";
        // It was certain, but without -x a directory cannot be read.
        assert_eq!(
            all("-exec /bin/chmod 644 {} ;"),
            format!("? {}", chmod.replace(';', &format!("{looks_on};")))
        );
        let files = "(if to is a directory and no two files have one name)";
        for (line, text) in [
            // Of a/x and b/x the second was refused.
            (
                "-type f -exec cp -p {} to ;",
                format!("? Let one cp have many files: `-exec cp -p -t to {{}} +` {files}"),
            ),
            (
                "-type f -exec cp -t to {} ;",
                "`-exec cp -t to {} +` (if no two files have one name)".to_owned(),
            ),
            // The options stood behind --.
            (
                "-type f -exec mv -- {} to ;",
                "`-exec mv -t to -- {} +` (if to is a directory and no two files have one name or are one file)".to_owned(),
            ),
            ("-exec head -n1 -- {} ;", "have many files: `-exec head -n1 -q -- {} +`".to_owned()),
            (
                "-exec grep x -- {} ;",
                "`-exec grep -h x -- {} +`; find then fails where grep finds nothing".to_owned(),
            ),
            ("-exec basename -- {} .c ;", "`-exec basename -s .c -- {} +`".to_owned()),
            ("-exec basename {} ;", "`-exec basename -a {} +`".to_owned()),
            ("-exec grep -l x {} ;", "`-exec grep -l x {} +`".to_owned()),
            ("-exec echo {} ;", "`-exec printf '%s\\n' {} +`".to_owned()),
            ("-exec app {} ;", "? If app does with many files what it does with one, let it".to_owned()),
            // Find went into what they had removed only later.
            ("-exec rmdir {} ;", format!("`-exec rmdir {{}} +`{looks_on}")),
            ("-type d -exec rm -r {} ;", format!("`-exec rm -r {{}} +`{looks_on}")),
            ("-type f -o -exec rm {} ;", format!("`-exec rm {{}} +`{looks_on}")),
            // It may see the copies.
            ("-type f -exec gzip {} ;", format!("`-exec gzip {{}} +`{looks_on}")),
            (
                "-print -exec cat {} ;",
                "`-exec cat {} +`, if the actions before it need not take turns with it".to_owned(),
            ),
            ("-exec touch {} + -exec cat {} ;", "? Let one cat".to_owned()),
            // Of two names of one file the second was found otherwise.
            ("-L -type f -exec chmod 600 {} ;", format!("{{}} +`{looks_on}")),
            ("-type f -perm 644 -exec chmod u-w {} ;", format!("{{}} +`{looks_on}")),
            ("-type f -cmin +60 -exec rm {} ;", format!("{{}} +`{looks_on}")),
            ("-print -exec rm {} ;", "turns with it, and nothing that find looks at later".to_owned()),
        ] {
            assert!(all(line).contains(&text), "{line:?}: {}", all(line));
            let needs = text.contains("if ") || text.contains("turns");
            assert_eq!(all(line).starts_with("? "), needs || text.starts_with("? "), "{line}: {}", all(line));
        }
        let zeroth = of(&["-exec", "sh", "-c", "echo $0", "{}", ";"]);
        let loops = "`-exec sh -c 'for f do ...; done; :' _ {} +`, with $f in place of $0";
        assert!(zeroth.contains(loops) && zeroth.ends_with(looks_on), "{zeroth}");
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
            // One cp keeps hard links.
            "-type f -exec cp -a {} to ;",
            "-type f -exec cp -d {} to ;",
            // Of an outer directory whose links were counted, and through links.
            "-type d -links 2 -exec rm -r {} ;",
            "-L -type f -exec rm {} ;",
            "-follow -type f -exec rm {} ;",
            // With each file the fixed one was taken too.
            "-exec cat head {} ;",
            "-exec cp a {} to ;",
            // It waits for its value.
            "-exec touch --date {} ;",
            "-exec cksum -a {} ;",
            "-exec sudo sh -c x {} ;",
            "-exec tar xf {} ;",
            // The first one takes all patterns, or ends the output of all.
            "-exec grep -f /dev/stdin {} ;",
            "-exec printf %b\\n {} ;",
            // It ends at the first broken file.
            "-exec gzip -d {} ;",
            "-exec zcat {} ;",
        ] {
            assert_eq!(all(line), "", "{line:?}");
        }
        for line in ["cd /; echo $1", "echo $1 $2", "for f do x; done", "rm \"$@\""] {
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
            "Let one chmod have many arguments: `xargs -0 chmod 644 --`"
        );
        let lines = "(if no line is empty, begins with a blank or has a quote or a backslash)";
        for (line, text) in [
            (&["-rn", "1", "rm", "-f"][..], "`xargs -r rm -f --`"),
            (&["-n1", "rm", "--"], "`xargs rm --`"),
            (&["-n1", "cp", "-t", "to"], "? Let one cp have many arguments: `xargs cp -t to --` (if no two"),
            // echo has options too.
            (&["-n1"], "? Let one printf have many arguments: `xargs printf '%s\\n'`, if no argument begins"),
            (&["-n1", "basename"], "Let one basename have many arguments: `xargs basename -a --`"),
            (&["-n1", "basename", "-s", ".c"], "`xargs basename -s .c --`"),
            (&["-n1", "printf", "%s\\n"], "`xargs printf '%s\\n'`"),
            (&["-n1", "grep", "x"], "`xargs grep -h x --`; xargs then fails only if no file has the pattern"),
            (&["-n1", "-P4", "gzip"], "? Let one gzip have many arguments: `xargs -P 4 -n 100 gzip --`"),
            (
                &["-n1", "sh", "-c", "echo $1", "_"],
                "`xargs sh -c 's=0; for f do { ...; } || s=1; done; exit $s' _`, with $f in place of $1, if there is input and no turn ends with 255 or by a signal",
            ),
            (
                &["-n1", "app"],
                "? If app does with many arguments what it does with one, its status included, and no argument begins with -, let it have many: `xargs app`",
            ),
            // Quotes, blanks, empty lines and an empty input.
            (&["-I{}", "rm", "-f", "{}"], "? Let one rm have many arguments: `xargs -d '\\n' -r rm -f --`"),
            (&["-I{}", "rm", "-f", "{}"], lines),
            (&["-0I{}", "rm", "-f", "{}"], "`xargs -0 -r rm -f --`"),
            (
                &["-I{}", "cp", "{}", "to"],
                "-t to --` (if to is a directory and no two files have one name) (if no line",
            ),
            (&["-0I", "@", "cp", "@", "to"], "? Let one cp have many arguments: `xargs -0 -r cp -t to --`"),
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
            &["-n1", "printf", "%b\\n"],
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
            &["--max-args=1", "rm"],
            &["-n1", "rm", "-I"],
            &["-n1", "grep", "-A1", "x"],
            &["-n1", "touch", "-d"],
            &["-n1", "touch", "--date"],
            &["-I{}", "{}"],
            &["true"],
        ] {
            assert_eq!(of(line), "", "{line:?}");
        }
        // busybox's programs need not know --.
        let rm = told(of_xargs(&words(&["xargs", "-n1", "rm"]), false));
        assert_eq!(rm, "? Let one rm have many arguments: `xargs rm`, if no argument begins with -");
    }

    /// The loop has variables f and s, and its shell lives on.
    #[test]
    fn a_shell_whose_line_lasts_is_not_made_a_loop() {
        let of = |line: &str| of_shell(&words(&["-c", line, "_"]));
        for line in [
            "wc -l < $1",
            "mv -- \"$1\" \"${1%.c}.o\"",
            "a \"$1\" && b 2>&1",
            "printf '%s' $1",
            "echo $1-x ${1}_x ${1:-x} $HOME ${HOME}",
        ] {
            assert_eq!(of(line), Some(Many::Loop("_".to_owned(), "$1")), "{line}");
        }
        for line in [
            "cd $1; ls",
            "n=$(wc -l < $1); echo $n",
            "exec cat $1",
            "echo $@",
            "[ -f $1 ] || exit",
            "echo $1 $f",
            "echo $1 ${f}",
            "echo $1 $s",
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
            // Once `rm -rf "cache/$1_tmp"` became one of "cache/", by a variable f_tmp.
            "rm -rf \"cache/$1_tmp\"",
            "echo $1_old",
            "echo $1x",
            "echo $10",
            "echo ${1_x}",
            // Errors of dash's end the loop, and of syntax the whole.
            "echo ${1:0:1}",
            "echo ${HOME:0:1} $1",
            "echo ${1/a/b}",
            "echo ${1^}",
            "echo ${1@Q}",
            "echo $1;",
            "echo $1; ",
            "echo $1\n",
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
            // The eleventh one, another name of it, and awk's.
            "echo $1 ${11}",
            "echo ${11}",
            "echo $1 ${!1}",
            "echo $1 ${#1}",
            "awk '{ print $1 }' $1",
            "awk \"{ print \\$1 }\" $1",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    /// A directory of files with awkward names, anew for each line.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("forkless-{name}-{}", std::process::id())))
        }

        /// The output of a line in it, what it leaves there, and its status.
        fn run(&self, line: &str) -> (String, Option<i32>) {
            let _ = fs::remove_dir_all(&self.0);
            for folder in ["in/sub", "to"] {
                fs::create_dir_all(self.0.join(folder)).expect("a directory");
            }
            let names =
                ["a b", " c", "d\\e", "-n", "f'\"", "$HOME", "*", "new\nline", "g.txt", "sub/h.txt", "008"];
            for (name, number) in names.iter().zip(0..) {
                fs::write(self.0.join("in").join(name), format!("x {number}\ny")).expect("a file");
            }
            fs::write(self.0.join("in/empty"), "").expect("a file");
            let left = "find . -type f -printf '%p %m %s\\n' -o -printf '%p\\n' | sort";
            let script = format!("{{ {line}; }} 2>/dev/null; s=$?; {left}; exit $s");
            let output = Command::new("sh").args(["-c", &script]).current_dir(&self.0).output();
            let output = output.expect("sh runs");
            (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The line in a remedy, with the shell's line in place of its dots.
    fn other_line(text: &str, body: &str) -> String {
        let line = text.split('`').nth(1).unwrap_or_else(|| panic!("no line: {text}"));
        let body = body.replace("$1", "$f").replace("${1", "${f").replace("$0", "$f");
        line.replace("...", &body)
    }

    fn body_of(command: &[&str]) -> String {
        let at = command.iter().position(|word| *word == "-c");
        at.map_or_else(String::new, |at| command[at + 1].to_owned())
    }

    fn line_of(words: &[&str]) -> String {
        words.iter().map(|word| quoted(word).expect("it can be printed")).collect::<Vec<_>>().join(" ")
    }

    /// Each remedy of find, applied. Regression: nothing said that find then fails.
    #[test]
    fn what_find_is_advised_gives_the_same() {
        let files = Files::new("find");
        for (command, fails) in [
            (&["chmod", "600", "{}"][..], false),
            (&["chmod", "-v", "u-x", "{}"], false),
            (&["cat", "{}"], false),
            (&["rm", "-f", "--", "{}"], false),
            (&["touch", "-c", "{}"], false),
            (&["mkdir", "-p", "{}"], true),
            (&["rmdir", "{}"], true),
            (&["realpath", "{}"], false),
            (&["stat", "-c", "%n %s", "{}"], false),
            (&["md5sum", "{}"], false),
            (&["gzip", "-kn", "{}"], false),
            (&["grep", "x", "{}"], true),
            (&["grep", "zzz", "{}"], true),
            (&["grep", "-l", "-e", "3", "{}"], true),
            (&["grep", "-c", "x", "{}"], true),
            (&["grep", "-Hn", "y", "--", "{}"], true),
            (&["head", "-n", "1", "{}"], false),
            (&["head", "-qc3", "{}"], false),
            (&["echo", "{}"], false),
            (&["printf", "%s\\n", "{}"], false),
            (&["true", "{}"], false),
            (&["false", "{}"], true),
            (&["basename", "{}"], false),
            (&["basename", "{}", ".txt"], false),
            (&["basename", "-s", ".txt", "{}"], false),
            (&["cp", "-p", "{}", "to"], false),
            (&["cp", "-t", "to", "{}"], false),
            (&["mv", "--", "{}", "to"], false),
            (&["sh", "-c", "echo $1", "_", "{}"], false),
            (&["sh", "-c", "echo \"$0\"; false", "{}"], false),
            (&["sh", "-c", "cat \"$1\" | tr x z; [ -s \"$1\" ]", "_", "{}"], false),
            (&["sh", "-c", "mv -- \"$1\" \"${1%.txt}.o\"", "_", "{}"], false),
            (&["sh", "-c", "echo \"${1}_old\" \"${1:-x}\" >to/log; cat to/log", "_", "{}"], false),
        ] {
            let before = ["find", "in", "-type", "f"];
            let plain = [&before[..], &["-exec"], command, &[";"]].concat();
            let Gathered { text, .. } = of_find(&words(&plain), true).unwrap_or_else(|| panic!("{plain:?}"));
            let other = format!("{} {}", line_of(&before), other_line(&text, &body_of(command)));
            let (same, mended) = (files.run(&line_of(&plain)), files.run(&other));
            assert_eq!(mended.0, same.0, "{plain:?}: {other}");
            assert_eq!(same.1, Some(0), "find takes no notice of {command:?}");
            assert!(mended.1 == Some(0) || text.contains("; find then fails where"), "{text}");
            assert!(fails || mended.1 == Some(0), "{other}");
        }
    }

    /// Each remedy of xargs, applied. Regression: a loop took the status of its last turn.
    #[test]
    fn what_xargs_is_advised_gives_the_same() {
        let files = Files::new("xargs");
        let inputs = [
            ("-0", "find in -type f -print0"),
            ("-0", "printf '%s\\0' in/g.txt in/none in/008 in/sub ''"),
            ("", "printf '%s\\n' in/g.txt '\"in/a b\"' in/a\\\\\\ b in/none in/sub/h.txt 5"),
            ("-d\\n", "printf '%s\\n' in/g.txt 'in/a b' '' in/none 'in/d\\e'"),
            ("-r", ":"),
            ("", ":"),
        ];
        let commands = [
            &["chmod", "600"][..],
            &["cat"],
            &["rm", "-f", "--"],
            &["rm"],
            &["touch"],
            &["mkdir", "-p"],
            &["rmdir"],
            &["realpath"],
            &["stat", "-c", "%n %s"],
            &["sha256sum"],
            &["gzip", "-kn"],
            &["grep", "x"],
            &["grep", "zzz"],
            &["head", "-n1"],
            &["echo"],
            &["printf", "%s\\n"],
            &["true"],
            &["false"],
            &["basename"],
            &["basename", "-s", ".txt"],
            &["cp", "-t", "to"],
            &["mv", "-t", "to"],
            &["sh", "-c", "case $1 in 5) false;; esac", "_"],
            &["sh", "-c", "echo \"$0\"; false; cat \"$0\""],
            &["sh", "-c", "cat $1 && echo \"${1%.txt}\" || echo none", "_"],
        ];
        let of = |plain: &[&str]| of_xargs(&words(plain), true);
        for (options, input) in inputs {
            let options: Vec<&str> = options.split_whitespace().collect();
            for command in commands {
                for each in [&["-n1"][..], &["-I{}"]] {
                    let own: &[&str] = if each == ["-I{}"] { &["{}"] } else { &[] };
                    let plain = [&["xargs"], &options[..], each, command, own].concat();
                    let Some(Gathered { text, .. }) = of(&plain) else {
                        assert!(command[0] == "sh" && own == ["{}"], "{plain:?}");
                        continue;
                    };
                    // What the remedy says must be so.
                    let has_condition = (text.contains("if no line is empty") && input.contains('"'))
                        || (text.contains("if there is input") && input == ":");
                    if has_condition {
                        continue;
                    }
                    let other = other_line(&text, &body_of(command));
                    let run = |line: &str| files.run(&format!("{input} | {line}"));
                    let (same, mended) = (run(&line_of(&plain)), run(&other));
                    assert_eq!(mended.0, same.0, "{input}: {plain:?}: {other}");
                    let says = text.contains("; xargs then fails only if no file");
                    assert!(mended.1 == same.1 || says, "{input}: {plain:?}: {other}: {mended:?}, {same:?}");
                    assert!(same.1.is_some_and(|status| [0, 123].contains(&status)), "{same:?}");
                }
            }
        }
    }
}
