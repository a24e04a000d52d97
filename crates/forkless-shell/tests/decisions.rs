//! One table per rule: what is run directly and as what, what is left to the shell and why.

use forkless_shell::{Directory, EnvSlot, PreviousDirectory, Reason, ShellKind, ShellTraits, analyze};

const ENVIRONMENT: [&[u8]; 7] = [
    b"PATH=/usr/bin:/bin",
    b"HOME=/home/u",
    b"PLAIN=value",
    b"SPACED=a b",
    b"PATTERN=*.c",
    b"EMPTY=",
    b"QUOTE=a\"b'c$d`e\\f",
];

/// The direct plan of `line`, in the notation of `Display`, or why there is none.
fn decide_for(shell: &ShellTraits, line: &str) -> Result<String, Reason> {
    let mut buf = [0; 8192];
    analyze(line.as_bytes(), &ENVIRONMENT, shell, &mut buf)
        .map(|script| script.to_string())
        .map_err(|rejection| rejection.reason)
}

#[track_caller]
fn direct(table: &[(&str, &str)]) {
    for (line, plan) in table {
        for shell in [ShellTraits::DASH, ShellTraits::BASH, ShellTraits::BUSYBOX] {
            assert_eq!(decide_for(&shell, line).as_deref(), Ok(*plan), "{line:?} for {:?}", shell.kind());
        }
    }
}

#[track_caller]
fn shell(reason: Reason, lines: &[&str]) {
    for line in lines {
        for shell in [ShellTraits::DASH, ShellTraits::BASH, ShellTraits::BUSYBOX] {
            assert_eq!(decide_for(&shell, line), Err(reason), "{line:?} for {:?}", shell.kind());
        }
    }
}

#[test]
fn words_are_split_at_blanks_and_quotes_are_removed() {
    direct(&[
        ("ls", "ls"),
        ("  ls\t-l  ", "ls -l"),
        ("cat 'a b'\"c d\"e", "cat 'a bc de'"),
        (r"cat a\ b \\ \'", r"cat 'a b' '\' ''\'''"),
        (r#"cat "a\$b\"c\\d\e""#, r#"cat 'a$b"c\d\e'"#),
        (r"cat '\n' '$x' '`'", r"cat '\n' '$x' '`'"),
        ("cat '' \"\"", "cat '' ''"),
        ("cat a#b c'd'#e", "cat 'a#b' 'cd#e'"),
        ("grep if then ! } a=b", "grep if then '!' '}' a=b"),
        ("cat \\* '?' \"[\"", "cat '*' '?' '['"),
        ("'ls' l\"s\" /bin/l\\s", "ls ls /bin/ls"),
    ]);
}

#[test]
fn line_continuations_disappear() {
    direct(&[
        ("ls \\\n -l", "ls -l"),
        ("l\\\ns \"a\\\nb\"", "ls ab"),
        ("ls && \\\nls", "ls && ls"),
        ("ls;\\\nls", "ls; ls"),
    ]);
    shell(
        Reason::Continuation,
        &["ls 2\\\n>f", "A\\\n=1 ls", "ls \\\n#c", "ls >\\\n>f", "ls \"$PLA\\\nIN\""],
    );
    shell(Reason::Background, &["ls &\\\n& ls"]);
}

#[test]
fn lists_keep_their_connectors() {
    direct(&[
        ("ls && cat || sort ; uniq\nwc", "ls && cat || sort; uniq; wc"),
        ("ls &&\n\n cat |\n sort", "ls && cat | sort"),
        ("\n\nls\n\n", "ls"),
        ("ls;", "ls"),
        ("! ls | wc", "! ls | wc"),
        ("", ""),
        ("  # only a comment", ""),
        ("ls # comment ; rm\ncat", "ls; cat"),
    ]);
    shell(
        Reason::Syntax,
        &["; ls", "ls;;", "ls | | wc", "ls &&", "ls ||", "ls |", "&& ls", "ls\n; ls", "'open", "\"open"],
    );
    shell(Reason::Negation, &["!", "!;ls"]);
    shell(Reason::ReservedWord, &["! ! ls", "ls | ! wc"]);
}

#[test]
fn redirections_keep_their_order() {
    direct(&[
        ("ls >a 2>&1 <b >>c 3<>d >|e 4>&- 5<&0", "ls 1>a 2>&1 0<b 1>>c 3<>d 1>e 4>&- 5>&0"),
        (">a ls -l", "ls -l 1>a"),
        ("ls a2>b", "ls a2 1>b"),
        ("ls '2'>b", "ls 2 1>b"),
        ("ls > 'a b'", "ls 1>'a b'"),
        ("ls >& 2", "ls 1>&2"),
        ("ls >a>b", "ls 1>a 1>b"),
    ]);
    shell(Reason::DescriptorNumber, &["ls 12>a", "ls >2>a"]);
    shell(Reason::DuplicationOperand, &["ls >&file", "ls 2>&12", "ls >&\"1\"", "ls 2>&1-", "ls >&$PLAIN"]);
    shell(Reason::HereDocument, &["cat <<E\nx\nE", "cat <<<x", "cat <<-E"]);
    shell(
        Reason::RedirectionTarget,
        &["ls >/dev/stdout", "ls >/proc/self/fd/1", "ls </dev/fd/3", "ls >''", "ls </dev/tcp/a/1"],
    );
    shell(Reason::Syntax, &["ls >", "ls > ;", "ls > > a"]);
    shell(Reason::RedirectionOnly, &[">file", "<a >b"]);
}

#[test]
fn variables_of_the_environment_are_expanded_where_no_splitting_can_follow() {
    direct(&[
        ("cat \"$PLAIN\" \"${PLAIN}x\" \"$SPACED\" \"$PATTERN\"", "cat value valuex 'a b' '*.c'"),
        ("cat \"$EMPTY\" \"$UNSET\" \"a$UNSET\"", "cat '' '' a"),
        ("cat $PLAIN ${PLAIN}/x x$PLAIN", "cat value value/x xvalue"),
        ("cat \"$QUOTE\"", "cat 'a\"b'\\''c$d`e\\f'"),
        ("cat \"a$\" a$ \"$ x\" 'a$'", "cat 'a$' 'a$' '$ x' 'a$'"),
        ("A=\"$SPACED\" ls", "A='a b' ls"),
    ]);
    shell(
        Reason::UnquotedExpansion,
        &["cat $SPACED", "cat $PATTERN", "cat $EMPTY", "cat $UNSET", "cat $QUOTE"],
    );
    shell(
        Reason::SpecialParameter,
        &["cat $?", "cat \"$1\"", "cat $$", "cat \"${10}\"", "cat \"$@\"", "cat ${#PLAIN}"],
    );
    shell(Reason::ParameterOperator, &["cat ${PLAIN:-x}", "cat \"${PLAIN%e}\"", "cat \"${PLAIN"]);
    shell(
        Reason::ShellVariable,
        &["cat \"$PWD\"", "cat \"$PPID\"", "cat \"$IFS\"", "cat $RANDOM", "cat $BASH_VERSION"],
    );
    shell(Reason::UnsetVariable, &["cat \"$SHELL\"", "cat \"$TERM\""]);
    shell(Reason::CommandSubstitution, &["cat $(ls)", "cat `ls`", "cat \"`ls`\"", "cat \"$(ls)\""]);
    shell(Reason::Arithmetic, &["cat $((1+1))", "cat $[1]"]);
    shell(Reason::DollarQuote, &["cat $'a'", "cat $\"a\""]);
    shell(Reason::AssignedVariable, &["PLAIN=1 cat \"$PLAIN\"", "A=1 B=\"$A\" cat"]);
}

#[test]
fn assignments_before_a_command_are_its_environment() {
    direct(&[
        ("A=1 B='x y' ls", "A=1 B='x y' ls"),
        ("A= ls", "A= ls"),
        ("A=b=c ls", "A=b=c ls"),
        ("LC_ALL=C sort", "LC_ALL=C sort"),
        (">f A=1 ls", "A=1 ls 1>f"),
        ("ls A=1", "ls A=1"),
        ("1A=1", "1A=1"),
        ("A-B=1", "A-B=1"),
        ("'A'=1", "A=1"),
    ]);
    shell(Reason::AssignmentOnly, &["A=1", "A=1 B=2", "A=1; ls", "A=1 >f"]);
    shell(
        Reason::AssignmentEffect,
        &["PATH=/x ls", "IFS=: ls", "PWD=/ ls", "SHLVL=1 ls", "BASH_ENV=x ls", "A+=1 ls"],
    );
    shell(Reason::AssignedTwice, &["A=1 A=2 ls"]);
}

#[test]
fn what_needs_a_shell_goes_to_the_shell() {
    shell(Reason::Glob, &["ls *", "ls a?", "ls [ab]", "A=* ls", "ls >*", "ls a\"b\"*"]);
    shell(Reason::Tilde, &["ls ~", "ls ~/x", "A=~ ls", "A=x:~ ls", "ls a=~", "~/x"]);
    shell(Reason::Background, &["ls &", "ls & ls", "ls &>f", "ls 2>&1 &"]);
    shell(Reason::Parenthesis, &["(ls)", "f() { ls; }", "ls (a)", "cat <(ls)", "ls )"]);
    shell(
        Reason::ReservedWord,
        &[
            "if true; then ls; fi",
            "while true",
            "for i in a",
            "{ ls; }",
            "case x",
            "[[ a ]]",
            "time ls",
            "fi",
        ],
    );
    shell(
        Reason::Builtin,
        &[
            "echo a",
            "printf x",
            "test -f a",
            "[ -f a ]",
            "kill 1",
            "pwd",
            "export A=1",
            ". ./a",
            "eval ls",
            "command -v ls",
            "\"echo\"",
            "A=1 set",
        ],
    );
    shell(Reason::ShellOption, &["-x ls", "+x", "--version"]);
    shell(Reason::JobSpecification, &["%1"]);
    shell(Reason::EmptyCommand, &["''", "\"$UNSET\" a"]);
    shell(Reason::Syntax, &["ls \\"]);
    shell(Reason::ControlCharacter, &["ls \x01", "ls 'a\r'", "ls \x7f"]);
    shell(Reason::Nul, &["ls \0", "ls # \0"]);
    direct(&[("ls a~ b~c", "ls 'a~' 'b~c'"), ("/bin/echo a", "/bin/echo a"), ("./test", "./test")]);
}

#[test]
fn builtins_with_a_known_result_need_no_shell() {
    direct(&[
        (": && cc -o a b && :", ": && cc -o a b && :"),
        ("ls || true", "ls || true"),
        ("false || ls", "false || ls"),
        ("ls || exit 3", "ls || exit 3"),
        ("ls; exit", "ls; exit"),
        ("cd /tmp && ls", "cd /tmp && ls"),
        ("cd ../a && ls", "cd ../a && ls"),
        ("exec ls -l >f", "exec ls -l 1>f"),
        ("exec echo a", "exec echo a"),
        ("cd /x && exec ls", "cd /x && exec ls"),
    ]);
    shell(
        Reason::BuiltinOperand,
        &[
            "exit 010",
            "exit 256",
            "exit -1",
            "exit a",
            "exit 1 2",
            "cd",
            "cd -",
            "cd -P /",
            "cd a/../b",
            "cd a b",
            "exec",
            "exec >f",
            "exec -a x ls",
            "A=1 exec ls",
            ": >f",
            "A=1 :",
            "true | cat",
            "ls | exit 1",
            "! exec ls",
            "cd /x | ls",
            "ls | exec wc",
        ],
    );
}

#[test]
fn braces_are_literal_except_where_bash_expands_them() {
    direct(&[("find . -exec ls {} ';'", "find . -exec ls '{}' ';'"), ("awk '{print}'", "awk '{print}'")]);
    for line in ["ls {a,b}", "ls a{1..3}", "ls {'a,b'}", "ls a{},b}"] {
        assert_eq!(decide_for(&ShellTraits::BASH, line), Err(Reason::BraceExpansion), "{line}");
        assert!(decide_for(&ShellTraits::DASH, line).is_ok(), "{line}");
    }
}

#[test]
fn names_are_searched_for_only_along_an_absolute_path() {
    let decide = |shell: &ShellTraits, line: &str, path: &str| {
        analyze(line.as_bytes(), &[path.as_bytes()], shell, &mut [0; 512]).map(drop).map_err(|r| r.reason)
    };
    for (path, expected) in [
        ("PATH=", Err(Reason::SearchPath)),
        ("PATH=/bin:", Err(Reason::SearchPath)),
        ("PATH=.:/bin", Err(Reason::SearchPath)),
        ("PATH=/bin:/usr/bin", Ok(())),
    ] {
        for shell in [ShellTraits::DASH, ShellTraits::BASH, ShellTraits::BUSYBOX] {
            assert_eq!(decide(&shell, "ls", path), expected, "{path:?}");
            assert_eq!(decide(&shell, "/bin/ls", path), Ok(()), "{path:?}");
            assert_eq!(decide(&shell, "true && ./ls", path), Ok(()), "{path:?}");
        }
    }
    // The Almquist shells execute `/bin//ls` then, bash `/bin/ls`.
    for line in ["ls", "exec ls", "true; ls | wc"] {
        for path in ["PATH=/bin/", "PATH=/usr/bin:/bin//:/", "PATH=/"] {
            assert_eq!(decide(&ShellTraits::DASH, line, path), Ok(()), "{line} {path}");
            assert_eq!(decide(&ShellTraits::BASH, line, path), Err(Reason::SearchPath), "{line} {path}");
        }
    }
}

/// Regression: busybox exports a PATH of its own, which the line's program did not get.
#[test]
fn without_a_path_every_line_is_left_to_the_shell() {
    let decide = |shell: &ShellTraits, line: &str, environment: &[&[u8]]| {
        analyze(line.as_bytes(), environment, shell, &mut [0; 512]).map(drop).map_err(|r| r.reason)
    };
    for shell in [ShellTraits::DASH, ShellTraits::BASH, ShellTraits::BUSYBOX] {
        for line in ["ls", "/bin/ls", "exec /bin/ls", "true", ""] {
            for environment in [&[][..], &[b"HOME=/", b"PATHS=/bin"], &[b"PATH"]] as [&[&[u8]]; 3] {
                assert_eq!(decide(&shell, line, environment), Err(Reason::SearchPath), "{line:?}");
            }
        }
        assert_eq!(decide(&shell, "exec /bin/ls", &[b"HOME=/", b"PATH="]), Ok(()));
    }
}

/// Regression: a script saw `./script` in `$0`, and not the path that bash gives it.
#[test]
fn bash_makes_the_path_of_exec_absolute() {
    for line in ["exec ./ls", "exec ../a/ls", "exec a/ls b", "exec '~/ls'", "true && exec ./ls"] {
        assert_eq!(decide_for(&ShellTraits::BASH, line), Err(Reason::BuiltinOperand), "{line}");
        for shell in [ShellTraits::DASH, ShellTraits::BUSYBOX] {
            assert!(decide_for(&shell, line).is_ok(), "{line}");
        }
    }
    direct(&[("exec /a/../ls", "exec /a/../ls"), ("./ls", "./ls"), ("cd /x && a/ls", "cd /x && a/ls")]);
}

#[test]
fn environments_that_change_the_shell_are_left_to_it() {
    let mut buf = [0; 512];
    for (shell, entry) in [
        (ShellTraits::DASH, "IFS=:"),
        (ShellTraits::DASH, "PPID=1"),
        (ShellTraits::BUSYBOX, "OPTIND=4"),
        (ShellTraits::BUSYBOX, "SHLVL=x"),
        (ShellTraits::BASH, "SHELLOPTS=errexit"),
        (ShellTraits::BASH, "BASHOPTS=nullglob"),
        (ShellTraits::BASH, "BASH_FUNC_ls%%=() { :; }"),
        (ShellTraits::BASH, "BASH_ENV=/x"),
        (ShellTraits::BASH, "LC_ALL=xx_XX"),
        (ShellTraits::BASH, "PWD=/a/../a"),
        (ShellTraits::BASH, "SHLVL=-3"),
    ] {
        let environment: [&[u8]; 2] = [b"PATH=/bin", entry.as_bytes()];
        let rejection = analyze(b"ls", &environment, &shell, &mut buf).unwrap_err();
        assert_eq!((rejection.reason, rejection.variable), (Reason::EnvironmentVariable, Some(1)), "{entry}");
    }
}

/// Debian's busybox drops an entry whose name no variable can have. Its authors' busybox exports
/// it, at its place in the hash table.
#[test]
fn both_kinds_of_busybox_are_known_by_their_answers() {
    let exported = |odd: &str| {
        let entries = [
            "MAIL=",
            "CH=before MAIL",
            "SHLVL=6",
            "OLDPWD=/nonexistent/forkless",
            "Z=",
            odd,
            "_=forkless",
            "CX=before TERM",
            "TERM=dumb",
            "PATH=/usr/bin:/bin",
            "C4=before PATH",
            "MAILPATH=",
            "DS=before MAILPATH",
            "DV=before PWD and LC_ALL",
            "LC_ALL=C",
            "PWD=/",
            "BASH_VERSION=0",
        ];
        let entries = entries.iter().filter(|entry| !entry.is_empty());
        entries.fold(format!("7 (cat) R 6{} 4 0\n", " 0".repeat(28)), |answer, entry| answer + entry + "\0")
    };
    let environment: [&[u8]; 3] = [b"PATH=/bin", b"odd.name=1", b"PWD=/"];
    let mut known = Vec::new();
    for (odd, variables) in [("", 3), ("not.a.name=1", 4)] {
        let shell = ShellTraits::from_answer(exported(odd).as_bytes(), 7, b"/");
        assert_eq!(shell.kind(), ShellKind::Busybox);
        assert!(shell.needs_applet_question());
        assert_eq!(ShellTraits::from_bits(shell.to_bits()), shell);
        let (mut buf, mut text, mut slots) = ([0; 256], [0; 256], [EnvSlot::EMPTY; 8]);
        let script = analyze(b"/bin/ls", &environment, &shell, &mut buf).expect("a program by its path");
        let ls = script.single().expect("one command");
        let directory = Directory { current: b"/", previous: PreviousDirectory::Stale };
        let count = shell.environment(&environment, &ls, &directory, b"/bin/ls", &mut text, &mut slots);
        // SHLVL is its own.
        assert_eq!(count, Ok(variables), "{odd}");
        known.push(shell);
    }
    assert_ne!(known[0], known[1]);
}

#[test]
fn an_unknown_shell_gets_every_line() {
    assert_eq!(decide_for(&ShellTraits::UNKNOWN, "ls"), Err(Reason::UnknownShell));
}

#[test]
fn every_buffer_size_gives_the_same_script_or_none() {
    let line = b"A=\"$SPACED\" cat x 2>&1 >'y z' | wc -l && cd /tmp || exit 3";
    let mut full = [0; 4096];
    let expected = analyze(line, &ENVIRONMENT, &ShellTraits::DASH, &mut full).unwrap().to_string();
    let mut fitted = false;
    for size in 0..600 {
        let mut buf = vec![0; size];
        match analyze(line, &ENVIRONMENT, &ShellTraits::DASH, &mut buf) {
            Ok(script) => {
                fitted = true;
                assert_eq!(script.to_string(), expected);
            }
            Err(rejection) => {
                assert!(!fitted, "fits in fewer than {size} bytes");
                assert_eq!(rejection.reason, Reason::BufferTooSmall);
            }
        }
    }
    assert!(fitted);
}

#[test]
fn a_line_that_no_shell_can_be_given_is_left_to_it() {
    const LONGEST: usize = 131_071;
    let mut buf = vec![0; 8 * LONGEST];
    for shell in [ShellTraits::DASH, ShellTraits::BASH, ShellTraits::BUSYBOX] {
        for (len, decision) in [(LONGEST, Ok(())), (LONGEST + 1, Err(Reason::LineTooLong))] {
            let line = format!("cat /dev/null{}", " ".repeat(len - "cat /dev/null".len()));
            let decided = analyze(line.as_bytes(), &ENVIRONMENT, &shell, &mut buf).map(drop);
            assert_eq!(decided.map_err(|rejection| rejection.reason), decision, "{len} bytes");
        }
    }
}

#[test]
fn spans_name_the_offending_bytes_and_the_rest_of_the_line() {
    let mut buf = [0; 1024];
    let line = b"ls -l | wc 'x' >f && ! cat a; sort";
    let script = analyze(line, &ENVIRONMENT, &ShellTraits::DASH, &mut buf).unwrap();
    let pipelines: Vec<_> = script.pipelines().map(|p| p.span().of(line).to_vec()).collect();
    assert_eq!(pipelines, [&b"ls -l | wc 'x' >f"[..], b"! cat a", b"sort"]);
    let stages: Vec<_> =
        script.pipelines().flat_map(|p| p.stages()).map(|c| c.span().of(line).to_vec()).collect();
    assert_eq!(stages, [&b"ls -l"[..], b"wc 'x' >f", b"cat a", b"sort"]);
    for (line, span) in [
        ("ls a*b", "*"),
        ("ls; echo hi", "echo"),
        ("ls \"$(x)\"", "$("),
        ("ls ${A:-b}", "${A:"),
        ("A=1 B=2", "A=1 B=2"),
    ] {
        let rejection = analyze(line.as_bytes(), &ENVIRONMENT, &ShellTraits::DASH, &mut buf).unwrap_err();
        assert_eq!(rejection.span.of(line.as_bytes()), span.as_bytes(), "{line}");
    }
}

/// Regression: a variable that the shell or the line sets replaced each inherited entry of its
/// name. It was exported as often as it was inherited.
#[test]
fn a_name_that_is_inherited_twice_is_for_the_shell() {
    let directory = Directory { current: b"/", previous: PreviousDirectory::Inherited };
    let decide = |shell: &ShellTraits, line: &str, twice: [&[u8]; 2]| {
        let environment: [&[u8]; 5] = [b"PATH=/bin", twice[0], b"HOME=/", twice[1], b"LANG=C"];
        let (mut buf, mut text) = ([0; 512], [0; 512]);
        let script = analyze(line.as_bytes(), &environment, shell, &mut buf).expect("a direct line");
        let command = script.single().expect("one command");
        let mut slots = [EnvSlot::EMPTY; 16];
        shell.environment(&environment, &command, &directory, b"/bin/ls", &mut text, &mut slots).map(drop)
    };
    for shell in [ShellTraits::DASH, ShellTraits::BASH, ShellTraits::BUSYBOX] {
        for twice in [["PWD=/", "PWD=/"], ["PWD=/", "PWD=/x"], ["OLD=/", "OLD=b"]] {
            let rejection = decide(&shell, "ls", twice.map(str::as_bytes)).unwrap_err();
            assert_eq!((rejection.reason, rejection.variable), (Reason::DuplicateVariable, Some(1)));
        }
    }
    let assigned = decide(&ShellTraits::DASH, "A=3 ls", [b"A=1", b"A=2"]).unwrap_err();
    assert_eq!(assigned.reason, Reason::DuplicateVariable);
    // bash exports the line's own alone.
    assert_eq!(decide(&ShellTraits::BASH, "A=3 ls", [b"A=1", b"A=2"]), Ok(()));
}
