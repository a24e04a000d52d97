//! Lines: mostly ones that are run directly, some at the edge, some mangled.

/// xorshift64*: the same lines for the same seed on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % bound
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'t, T: ?Sized>(&mut self, from: &[&'t T]) -> &'t T {
        from[self.below(from.len())]
    }
}

const PROGRAMS: &[&str] = &["obs", "obs", "obs", "ok", "no", "rc3", "err", "both", "copy"];
const RARE_PROGRAMS: &[&str] = &[
    "t9",
    "t13",
    "t15",
    "missing",
    "./missing",
    "plainfile",
    "./plainfile",
    "script",
    "badinterp",
    "sub/obs",
    "./sub",
    "/bin/true",
    "\"ok\"",
    "o\\bs",
    "$TOOL",
    "\"$TOOL\"",
    "noexec",
    "''",
    "exec obs",
    "exec ok",
    "time obs",
];
const BUILTINS: &[&str] = &[
    "true",
    ":",
    "false",
    "exit",
    "exit 4",
    "exit 0",
    "cd sub",
    "cd sub/deep",
    "cd ..",
    "cd .",
    "cd missing",
    "cd \"$DIR\"",
    "cd plainfile",
    "true a b",
    ": \"$PLAIN\"",
    "cd ../work",
    "cd sub/.",
    "exit 255",
    "false x",
];
const WORDS: &[&str] = &[
    "a",
    "-x",
    "--long=value",
    "a.c",
    "'single quoted'",
    "\"double quoted\"",
    "mix'ed q'\"uo te\"d",
    "back\\ slash",
    "\"es\\$c\\\"a\\\\p\\`e\\d\"",
    "\"$PLAIN\"",
    "\"${PLAIN}\"",
    "$PLAIN",
    "${PLAIN}",
    "pre$PLAIN",
    "\"$SPACED\"",
    "\"$EMPTY\"",
    "\"$UNSET\"",
    "\"x${UNSET}y\"",
    "\"$HOSTILE\"",
    "$EMPTY",
    "$SPACED",
    "''",
    "\"\"",
    "a=b",
    "A=~",
    "x~",
    "~",
    "#no",
    "a#b",
    "if",
    "then",
    "}",
    "{}",
    "{a,b}",
    "{x",
    "x}",
    "!",
    "1",
    "22",
    "%1",
    "@",
    "+",
    ",",
    "a:b",
    "\\*",
    "'*'",
    "\"?\"",
    "*",
    "[a]",
    "\\\\",
    "'\\'",
    "\"\\\\\"",
    "$",
    "a$",
    "\"a$\"",
    "\"$ b\"",
    "$.",
    "\"$/\"",
    "\\#",
    "\\a",
    "a\\\nb",
    "\"a\\\nb\"",
    "'a\nb'",
    "'a\\\nb'",
    "\t'\t'",
    "\u{e9}",
    "\"\u{4e2d}\u{6587}\"",
    "^",
    "\"!\"",
    "a'b'\"c\"$PLAIN\\d",
    "\"'\"",
    "'\"'",
    "\"a'b\"",
    "..",
    "./sub",
    "-",
    "--",
    "=",
    "=a",
    "a+=b",
    "\"\\x\"",
    "'$PLAIN'",
    "\\$PLAIN",
    "\"\\$PLAIN\"",
    "${PLAIN:-z}",
    "\"${#PLAIN}\"",
    "$?",
    "$(ok)",
    "`ok`",
    "$((1))",
    "$'a'",
    "]",
    "a]",
    "_",
    "\"$LATIN\"",
    "$TILDE",
    "\"$TILDE\"",
    "\\~",
    "\\!",
    "a\\;b",
    "';'",
    "\"&&\"",
    "\\|",
    "'a'=b",
];
const NAMES: &[&str] =
    &["A", "B", "PLAIN", "EMPTY", "ZZ", "LC_ALL", "LANG", "TERM", "C4", "HOME", "MAIL", "x", "_x9"];
const ASSIGNED: &[&str] = &[
    "1",
    "",
    "'a b'",
    "\"$PLAIN\"",
    "$PLAIN",
    "C",
    "a=b",
    "\"\"",
    "\\x",
    "a:b",
    "a#",
    "\"$SPACED\"",
    "a:~",
    "~x",
];
const TARGETS: &[&str] = &[
    "out1",
    "out2",
    "'out 3'",
    "\"$OUT\"",
    "sub/out4",
    "missing/out",
    "plainfile",
    "input2",
    "/dev/null",
    "sub",
    "$OUT",
    "out\\ 5",
    "./out1",
    "missing",
    "out6>out7",
    "2",
    "''",
];
const OPERATORS: &[&str] = &["<", ">", ">>", "<>", ">|", "<", ">", "> ", "< ", ">>  "];
const DESCRIPTORS: &[&str] = &["", "", "", "1", "2", "0", "3", "4", "9", "5"];
const DUPLICATES: &[&str] = &[
    "2>&1", "1>&2", ">&2", "2>&-", "<&3", "3>&1", "4>&3", "<&-", "5<&0", "1>&3", "2>&9", ">&-", "3<&-",
    ">&1", "2>& 1", "2<&1", "0<&3", "7>&7", "1>&\"2\"",
];
const SEPARATORS: &[&str] = &[
    " && ",
    " || ",
    "; ",
    "\n",
    "&&",
    "||",
    ";",
    " ;\n",
    " &&\n",
    " # note\n",
    "\n\n",
    " && \\\n",
    ";\\\n",
    "\n# c\n",
    " \\\n&& ",
];
const TRAILERS: &[&str] =
    &["", "", "", "", "", "\n", ";", " ", " # end", "\n\n", "\n# end", " ;\n", " \\\n", "; # x\n", "\t"];
const MANGLERS: &[&str] = &[
    "\\", "\n", "\\\n", "'", "\"", " ", "#", "$", "~", "!", "=", "{", "}", ";", "&", "|", "<", ">", "(", ")",
    "*", "0", "-", "A", "\t", "%", "2", ",", "..", "`", "[", "]", "\u{81}", "\r", "\x01", "\x7f", "^", ":",
];

pub(crate) fn line(random: &mut Random) -> Vec<u8> {
    let mut line = String::new();
    if random.one_in(12) {
        line.push_str(random.pick(&["\n", " ", "# c\n", "\t", "\\\n", ";", "\n\n"]));
    }
    let pipelines = [1, 1, 1, 2, 2, 3, 4][random.below(7)];
    for index in 0..pipelines {
        if index > 0 {
            line.push_str(random.pick(SEPARATORS));
        }
        if random.one_in(14) {
            line.push_str(random.pick(&["! ", "! ", "!", "!  ! "]));
        }
        if random.one_in(4) {
            line.push_str(random.pick(BUILTINS));
            continue;
        }
        let stages = [1, 1, 1, 1, 2, 3][random.below(6)];
        for stage in 0..stages {
            if stage > 0 {
                line.push_str(random.pick(&[" | ", " | ", "|", " |\n", "| ", " |\\\n "]));
            }
            command(random, &mut line);
        }
    }
    line.push_str(random.pick(TRAILERS));
    let mut line = line.into_bytes();
    if random.one_in(5) {
        for _ in 0..=random.below(2) {
            let at = random.below(line.len() + 1);
            let text = random.pick(MANGLERS).bytes();
            if random.one_in(3) && at < line.len() {
                line.remove(at);
            }
            line.splice(at..at, text);
        }
    }
    line
}

fn command(random: &mut Random, line: &mut String) {
    if random.one_in(10) {
        redirection(random, line);
        line.push(' ');
    }
    if random.one_in(5) {
        for _ in 0..=random.below(3) {
            let (name, value) = (random.pick(NAMES), random.pick(ASSIGNED));
            line.push_str(&format!("{name}={value} "));
        }
    }
    line.push_str(if random.one_in(5) { random.pick(RARE_PROGRAMS) } else { random.pick(PROGRAMS) });
    for _ in 0..[0, 0, 1, 1, 2, 3, 5][random.below(7)] {
        line.push_str(random.pick(&[" ", " ", " ", "  ", "\t", " \\\n "]));
        line.push_str(random.pick(WORDS));
    }
    for _ in 0..[0, 0, 0, 1, 1, 2, 3][random.below(7)] {
        if !random.one_in(6) {
            line.push(' ');
        }
        redirection(random, line);
    }
}

fn redirection(random: &mut Random, line: &mut String) {
    if random.one_in(3) {
        line.push_str(random.pick(DUPLICATES));
    } else {
        line.push_str(random.pick(DESCRIPTORS));
        line.push_str(random.pick(OPERATORS));
        line.push_str(random.pick(TARGETS));
    }
}

/// A random environment beside what every line needs.
pub(crate) fn environment(random: &mut Random) -> Vec<&'static str> {
    const POOL: &[&str] = &[
        "SHLVL=0",
        "SHLVL=7",
        "SHLVL=42",
        "_=/usr/bin/before",
        "OLDPWD=/tmp",
        "OLDPWD=/nonexistent",
        "OLDPWD=relative",
        "PWD=/nonexistent",
        "PWD=relative",
        "not.valid=1",
        "also-not=2",
        "9x=3",
        "%=5",
        "LANG=C.UTF-8",
        "LC_ALL=C",
        "HOME=/root",
        "SHELL=/bin/sh",
        "USER=u",
        "LOGNAME=u",
        "TERM=xterm",
        "LS_COLORS=x=1:y=2",
        "MAIL=/m",
        "PS1=p",
        "PS4=q",
        "ENV=/nonexistent",
        "DISPLAY=:0",
        "XDG_RUNTIME_DIR=/r",
        "EDITOR=vi",
        "PAGER=less",
        "A=outer",
        "ZZ=outer",
        "x=lower",
        "CDPATH=/usr",
        "TZ=UTC",
        "HOSTNAME=h",
        "MAKEFLAGS= -j2",
        "MAKELEVEL=1",
        "LD_LIBRARY_PATH=",
        "POSIXLY_CORRECT=1",
        "RANDOM=4",
        "PPID=1",
        "IFS=x",
        "OPTIND=3",
        "SHELLOPTS=noglob",
        "COLUMNS=80",
        "FUNCNAME=f",
        "LINENO=7",
        "UID=0",
        "BASH_ENV=/nonexistent",
        "C4=x",
        "CX=y",
        "CH=z",
        "DV=w",
        "CL=u",
        "CP=t",
        "q.r=1",
        "MAILCHECK=0",
    ];
    let mut chosen: Vec<&str> = Vec::new();
    for _ in 0..random.below(14) {
        // The last ones make most lines the shell's.
        let entry = if random.one_in(3) { random.pick(POOL) } else { random.pick(&POOL[..37]) };
        let name = &entry[..=entry.find('=').expect("an assignment")];
        // Now and then one is there twice.
        if !chosen.iter().any(|other| other.starts_with(name)) || random.one_in(4) {
            chosen.push(entry);
        }
    }
    chosen
}
