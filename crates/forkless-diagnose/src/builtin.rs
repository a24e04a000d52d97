//! What a shell does itself, for programs that its scripts start. A program's name does not tell
//! that. The shell's own `echo` interprets backslashes, `expr 08 + 1` is an error in `$((...))`,
//! and `$(<file)` alone executes the file's text. So a remedy is for arguments of one shape, which
//! are known to give the same. For others there is none.

/// What stands for a program, for arguments of one shape.
#[derive(Debug)]
pub(crate) struct Builtin {
    /// The program's file.
    pub(crate) program: &'static str,
    /// What does the same, for which shape, and what must be so where the arguments do not tell.
    pub(crate) text: &'static str,
    /// Whether other shells than bash lack it.
    pub(crate) is_of_bash: bool,
    /// Whether it saves each start: the output's use need not be known for that.
    pub(crate) certain: bool,
    has_shape: fn(&[&str]) -> bool,
}

const ALL: [Builtin; 8] = [
    Builtin {
        program: "basename",
        text: "${file##*/} for $(basename FILE) (where no FILE ends with /; elsewhere with printf '%s\\n')",
        is_of_bash: false,
        certain: true,
        has_shape: |words| matches!(words, [path] if is_path(path)),
    },
    Builtin {
        program: "dirname",
        text: "${file%/*} for $(dirname FILE) (where each FILE has a name before and behind its last /; elsewhere with printf '%s\\n')",
        is_of_bash: false,
        certain: true,
        has_shape: |words| {
            let has_folder = |path: &str| {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                !folder.is_empty() && !folder.ends_with('/')
            };
            matches!(words, [path] if is_path(path) && has_folder(path))
        },
    },
    Builtin {
        program: "expr",
        text: "$((a + b)) for $(expr A + B) (elsewhere with echo; where both are whole numbers without a leading 0; expr fails if the result is 0)",
        is_of_bash: false,
        certain: true,
        has_shape: |words| matches!(words, [a, "+" | "-", b] if is_number(a) && is_number(b) && (a != b || words[1] == "+") && words != ["0", "+", "0"]),
    },
    Builtin {
        program: "date",
        text: "printf '%(FORMAT)T\\n' -1 for date +FORMAT (bash only)",
        is_of_bash: true,
        certain: true,
        has_shape: |words| matches!(words, [format] if is_format(format)),
    },
    Builtin {
        program: "cat",
        text: "x=$(<file) for x=$(cat file) (bash only; where file is no directory; for no other use of cat)",
        is_of_bash: true,
        certain: false,
        has_shape: |words| matches!(words, [path] if is_text(path)),
    },
    Builtin {
        program: "echo",
        text: "printf '%s\\n' TEXT for /bin/echo TEXT (where TEXT is one word)",
        is_of_bash: false,
        certain: true,
        has_shape: |words| matches!(words, [text] if is_text(text)),
    },
    Builtin {
        program: "true",
        text: "true for /bin/true",
        is_of_bash: false,
        certain: true,
        has_shape: |words| words.is_empty(),
    },
    Builtin {
        program: "false",
        text: "false for /bin/false",
        is_of_bash: false,
        certain: true,
        has_shape: |words| words.is_empty(),
    },
];

/// Of a program's file.
pub(crate) fn of(program: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|builtin| builtin.program == program)
}

impl Builtin {
    /// Whether it does the same as a program with these arguments, of which the first is its name.
    pub(crate) fn is_for(&self, arguments: &[String]) -> bool {
        let words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
        !arguments.is_empty() && (self.has_shape)(&words)
    }
}

/// Whether it is neither an option nor empty. A substitution takes newlines at an end away, and a
/// variable keeps them. Bytes that are no UTF-8 were replaced.
fn is_text(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with('-')
        && !word.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER)
}

fn is_path(word: &str) -> bool {
    is_text(word) && !word.ends_with('/')
}

/// `08` is an error in `$((...))`, and `010` is 8.
fn is_number(word: &str) -> bool {
    const DIGITS: usize = 9;
    let digits = !word.is_empty() && word.len() <= DIGITS && word.bytes().all(|byte| byte.is_ascii_digit());
    digits && (word == "0" || !word.starts_with('0'))
}

/// A format of date(1) that strftime(3) knows, too, and that needs no quotes in one of printf.
fn is_format(word: &str) -> bool {
    const LETTERS: &str = "YmdHMSFTsjy";
    const LONGEST: usize = 60;
    let Some(format) = word.strip_prefix('+').filter(|format| !format.is_empty()) else { return false };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " _-:./,".contains(c);
    let mut parts = format.split('%');
    format.len() <= LONGEST
        && parts.next().is_some_and(|part| part.chars().all(is_plain))
        && parts.all(|part| part.starts_with(|c| LETTERS.contains(c)) && part.chars().all(is_plain))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    /// A line with `$1` and so on, in a shell.
    fn run(shell: &str, line: &str, words: &[&str]) -> Option<Output> {
        let mut command = Command::new(shell);
        command.args(["-c", line, "shell"]).args(words).current_dir("/etc");
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            output => Some(output.expect("the shell runs")),
        }
    }

    /// Each remedy, applied to awkward words. `None`: there is none for them.
    #[test]
    fn a_builtin_gives_the_same_as_its_program() {
        const PATHS: [&str; 19] = [
            "a",
            "a/b",
            "/a/b",
            "/a",
            "./a",
            "../a b",
            "a//b",
            "a/b/",
            "/",
            "//",
            "",
            "a\\tb/c\\n",
            "-a",
            "--help",
            "a\nb/c\n",
            ".",
            "a/.",
            "a /*",
            "/a/b.c",
        ];
        const NUMBERS: [&str; 10] =
            ["5", "0", "08", "010", "-1", "", "a", "999999999", "9999999999999999999", "+1"];
        if let Some(shell) = ["bash", "dash"].into_iter().find(|shell| run(shell, ":", &[]).is_none()) {
            println!("skipped: no {shell}");
            return;
        }
        let mut tried = std::collections::BTreeMap::new();
        let mut same = |program: &'static str, plain: &str, remedy: &str, words: &[&str]| {
            let builtin = of(program).expect("it is listed");
            let arguments: Vec<String> = [&[program], words].concat().iter().map(|&w| w.to_owned()).collect();
            if !builtin.is_for(&arguments) {
                return;
            }
            let shells: &[&str] = if builtin.is_of_bash { &["bash"] } else { &["bash", "dash"] };
            for shell in shells {
                let [plain, own] = [plain, remedy].map(|line| run(shell, line, words).expect("it is there"));
                assert_eq!(own, plain, "{shell}: {remedy} {words:?}");
                *tried.entry(program).or_insert(0) += 1;
            }
        };
        for path in PATHS {
            same(
                "basename",
                "x=$(basename \"$1\"); echo $?; printf '<%s>' \"$x\"",
                "file=$1; x=${file##*/}; echo $?; printf '<%s>' \"$x\"",
                &[path],
            );
            same(
                "dirname",
                "x=$(dirname \"$1\"); echo $?; printf '<%s>' \"$x\"",
                "file=$1; x=${file%/*}; echo $?; printf '<%s>' \"$x\"",
                &[path],
            );
            for (program, remedy) in [("basename", "${file##*/}"), ("dirname", "${file%/*}")] {
                let printed = format!("file=$1; printf '%s\\n' \"{remedy}\"");
                same(program, &format!("{program} \"$1\""), &printed, &[path]);
            }
            same("echo", "/bin/echo \"$1\"", "printf '%s\\n' \"$1\"", &[path]);
            same("echo", "x=$(/bin/echo \"$1\")", "x=$(printf '%s\\n' \"$1\")", &[path]);
        }
        for (a, b) in NUMBERS.into_iter().flat_map(|a| NUMBERS.map(|b| (a, b))) {
            for (sign, sum) in [("+", "echo $(($1 + $3))"), ("-", "echo $(($1 - $3))")] {
                same("expr", "expr \"$1\" \"$2\" \"$3\"", sum, &[a, sign, b]);
            }
        }
        for format in ["+%Y", "+%Y-%m-%d", "+x %F_%j", "+%y,%m/%d.", "+%Y  %Y"] {
            let remedy = "printf \"%(${1#+})T\\n\" -1";
            same("date", "date \"$1\"", remedy, &[format]);
            same(
                "date",
                "TZ=Asia/Tokyo; export TZ; date \"$1\"",
                &format!("TZ=Asia/Tokyo; {remedy}"),
                &[format],
            );
        }
        for file in ["/etc/passwd", "/proc/version", "/nowhere"] {
            let line = |read: &str| format!("{{ x=$({read}); }} 2>/dev/null; echo $?; printf '<%s>' \"$x\"");
            same("cat", &line("cat \"$1\""), &line("<\"$1\""), &[file]);
        }
        same("true", "/bin/true", "true", &[]);
        same("false", "/bin/false", "false", &[]);
        assert_eq!(tried.len(), ALL.len(), "{tried:?}");
    }

    /// Regression: the name alone was looked at. Each of these had a remedy with another result.
    #[test]
    fn other_arguments_have_no_builtin() {
        for line in [
            "basename a/ ",
            "basename -s .c x.c",
            "basename x.c .c",
            "basename",
            "dirname a",
            "dirname /a",
            "dirname a/b/",
            "dirname a//b",
            "expr 08 + 1",
            "expr a = b",
            "expr abc : ab",
            "expr length a",
            "expr 1 - 1",
            "expr 0 + 0",
            "expr 1 / 2",
            "expr -1 + 2",
            "date",
            "date -u +%H",
            "date -d yesterday",
            "date +%N",
            "date -r ff",
            "date +%H%%",
            "date +",
            "date +%c",
            "date +%-d",
            "date +%s)T",
            "cat",
            "cat -n a",
            "cat a b",
            "cat -",
            "echo",
            "echo -n a",
            "echo a b",
            "true --help",
        ] {
            let words: Vec<String> = line.trim_end().split(' ').map(str::to_owned).collect();
            let builtin = of(&words[0]).expect("its program is listed");
            assert!(!builtin.is_for(&words), "{line}");
        }
        for program in
            ["pwd", "sleep", "sed", "grep", "tr", "cut", "awk", "bc", "seq", "test", "printf", "kill"]
        {
            assert!(of(program).is_none(), "{program}");
        }
        assert!(!of("true").expect("listed").is_for(&[]), "its arguments were not seen");
    }
}
