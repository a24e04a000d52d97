//! Reading a script and its texts, and the environment of its commands.

use forkless_shell::{
    Command, CommandKind, Connector, Directory, EnvSlot, EnvString, Environment, Explanation,
    PreviousDirectory, Reason, Redirection, RedirectionKind, ShellKind, ShellTraits, Span, analyze,
};

const SHELLS: [ShellTraits; 3] = [ShellTraits::DASH, ShellTraits::BASH, ShellTraits::BUSYBOX];
const ENVIRONMENT: [&[u8]; 1] = [b"PATH=/bin"];

/// Has `look` read the script of a line.
fn read<T>(shell: ShellTraits, line: &str, look: impl FnOnce(forkless_shell::Script<'_>) -> T) -> T {
    let mut buf = [0; 1024];
    look(analyze(line.as_bytes(), &ENVIRONMENT, &shell, &mut buf).expect("a line without a shell"))
}

#[test]
fn pipelines_have_connectors_stages_and_spans() {
    let line = "! make && ls | A=1 sort -u >out || date; id";
    read(ShellTraits::DASH, line, |script| {
        let connectors = script.pipelines().map(|pipeline| pipeline.connector());
        assert!(connectors.eq([Connector::Always, Connector::And, Connector::Or, Connector::Always]));
        assert!(script.pipelines().map(|pipeline| pipeline.is_negated()).eq([true, false, false, false]));
        assert!(script.pipelines().map(|pipeline| pipeline.stage_count()).eq([1, 2, 1, 1]));
        assert_eq!(script.program_count(), 5);
        assert!(script.single().is_none());
        let second = script.pipelines().nth(1).unwrap();
        let spans = second.stages().map(|stage| stage.span().of(line.as_bytes()));
        assert!(spans.eq([&b"ls"[..], b"A=1 sort -u >out"]));
        assert_eq!(&line[second.span().start..], "ls | A=1 sort -u >out || date; id");
    });
    read(ShellTraits::DASH, " # a comment", |script| assert!(script.pipelines().next().is_none()));
}

#[test]
fn commands_have_a_kind_words_assignments_and_redirections() {
    read(ShellTraits::DASH, "A=1 B='2 3' grep 'a b' \"$PATH\" '' <in >>out 2>&1 3<&-", |script| {
        let grep = script.single().unwrap();
        assert!(grep.is_program() && grep.kind() == CommandKind::External);
        assert!(grep.words().eq([c"grep", c"a b", c"/bin", c""]));
        assert_eq!(grep.word_count(), 4);
        assert!(grep.assignments().eq([c"A=1", c"B=2 3"]));
        assert_eq!(grep.operand(), None);
        let redirection = |descriptor, kind| Redirection { descriptor, kind };
        assert!(grep.redirections().eq([
            redirection(0, RedirectionKind::Read(c"in")),
            redirection(1, RedirectionKind::Append(c"out")),
            redirection(2, RedirectionKind::Duplicate(1)),
            redirection(3, RedirectionKind::Close),
        ]));
    });
    read(ShellTraits::DASH, "cd /usr/lib; false || exit 3; exit; exec ls", |script| {
        let kinds = script.pipelines().map(|pipeline| pipeline.stages().next().unwrap().kind());
        assert!(kinds.eq([
            CommandKind::ChangeDirectory,
            CommandKind::Status(1),
            CommandKind::Exit(Some(3)),
            CommandKind::Exit(None),
            CommandKind::Exec,
        ]));
        let cd = script.pipelines().next().unwrap().stages().next().unwrap();
        assert_eq!((cd.operand(), cd.is_program()), (Some(c"/usr/lib"), false));
    });
}

fn last(script: forkless_shell::Script<'_>) -> Command<'_> {
    script.pipelines().last().unwrap().stages().last().unwrap()
}

#[test]
fn the_shell_decides_which_command_takes_its_place() {
    let replaces = |shell, line| read(shell, line, |script| last(script).replaces_shell());
    assert!(replaces(ShellTraits::BASH, "ls") && !replaces(ShellTraits::BASH, "ls | wc"));
    assert!(!replaces(ShellTraits::DASH, "ls") && replaces(ShellTraits::DASH, "exec ls"));
}

#[test]
fn only_the_program_in_busyboxs_place_ignores_sigquit() {
    let ignores = |shell: ShellTraits, line| {
        read(shell, line, |script| {
            script.pipelines().map(|p| shell.ignores_sigquit(&p.stages().last().unwrap())).collect::<Vec<_>>()
        })
    };
    assert_eq!(ignores(ShellTraits::BUSYBOX, "ls; ls"), [false, true]);
    assert_eq!(ignores(ShellTraits::BUSYBOX, "exec ls"), [false]);
    assert_eq!(ignores(ShellTraits::DASH, "ls; ls"), [false, false]);
}

#[test]
fn a_script_tells_the_room_it_takes() {
    let size = read(ShellTraits::DASH, "ls -l", |script| script.size());
    let fits = |len| analyze(b"ls -l", &ENVIRONMENT, &ShellTraits::DASH, &mut vec![0; len]).is_ok();
    assert!(!fits(size - 1) && fits(1024));
}

#[test]
fn traits_survive_as_a_number() {
    for shell in SHELLS.into_iter().chain([ShellTraits::BUSYBOX.with_applet_answer(0)]) {
        assert_eq!(ShellTraits::from_bits(shell.to_bits()), shell);
        assert!((1..128).contains(&shell.to_bits()));
    }
    assert_eq!(ShellTraits::UNKNOWN.to_bits(), 0);
    assert_eq!(ShellTraits::from_bits(0), ShellTraits::UNKNOWN);
    assert_eq!(ShellTraits::from_bits(0xff), ShellTraits::UNKNOWN);
    assert_eq!(ShellTraits::UNKNOWN.kind(), ShellKind::Unknown);
    assert_eq!(ShellKind::Busybox.to_string(), "busybox");
}

#[test]
fn an_environment_has_the_last_value_of_a_name() {
    let environment: &[&[u8]] = &[b"A=1", b"AB=2", b"A=3"];
    assert_eq!(environment.variable(b"A"), Some(&b"3"[..]));
    assert_eq!(environment.variable(b"B"), None);
}

/// The strings of `line`'s one command.
fn exported(shell: ShellTraits, line: &str, environment: &[&[u8]], directory: &Directory<'_>) -> Vec<String> {
    let (mut buf, mut slots) = ([0; 256], [EnvSlot::EMPTY; 16]);
    let mut text = vec![0; Command::environment_bytes(directory.current.len(), 16, 9)];
    let script = analyze(line.as_bytes(), &environment, &shell, &mut buf).unwrap();
    let command = script.single().unwrap();
    let count =
        shell.environment(&environment, &command, directory, b"/bin/make", &mut text, &mut slots).unwrap();
    let string = |slot: &EnvSlot<'_>| match slot.string() {
        EnvString::Inherited(index) => String::from_utf8_lossy(environment[index]).into_owned(),
        EnvString::Own(text) => text.to_str().unwrap().to_owned(),
    };
    slots[..count].iter().map(string).collect()
}

#[test]
fn dash_exports_its_table_in_its_own_order() {
    let directory = Directory { current: b"/tmp", previous: PreviousDirectory::Inherited };
    let environment: [&[u8]; 3] = [b"PATH=/bin", b"not.a.name=1", b"LANG=C"];
    // `not.a.name` is no shell variable, PWD was missing.
    assert_eq!(
        exported(ShellTraits::DASH, "A=1 make", &environment, &directory),
        ["A=1", "PATH=/bin", "LANG=C", "PWD=/tmp"]
    );
}

#[test]
fn only_bash_drops_a_stale_oldpwd_and_all_export_one_that_cd_left() {
    let environment: [&[u8]; 3] = [b"PATH=/bin", b"PWD=/", b"OLDPWD=/nonexistent"];
    let has = |shell, previous, string: &str| {
        let directory = Directory { current: b"/", previous };
        exported(shell, "make", &environment, &directory).iter().any(|other| other == string)
    };
    for shell in SHELLS {
        let keeps = shell.kind() != ShellKind::Bash;
        assert_eq!(has(shell, PreviousDirectory::Stale, "OLDPWD=/nonexistent"), keeps);
        assert!(has(shell, PreviousDirectory::Inherited, "OLDPWD=/nonexistent"));
        assert!(has(shell, PreviousDirectory::Left(b"/usr"), "OLDPWD=/usr"));
    }
}

#[test]
fn a_rejection_says_where_and_why() {
    let reject = |line: &str, environment: &[&[u8]]| {
        analyze(line.as_bytes(), &environment, &ShellTraits::DASH, &mut [0; 256]).unwrap_err()
    };
    let rejection = reject("make & ls", &ENVIRONMENT);
    assert_eq!(rejection.to_string(), "byte 5: background jobs need a shell");
    assert_eq!((rejection.span.of(b"make & ls"), rejection.variable), (&b"&"[..], None));
    let rejection = reject("ls", &[b"PATH=/bin", b"IFS=:"]);
    assert_eq!((rejection.variable, rejection.span), (Some(1), Span { start: 0, end: 0 }));
    assert_eq!(Reason::HereDocument.code(), "here_document");
    // Not the line that was analysed.
    assert_eq!(Span { start: 3, end: 6 }.of(b"rm"), b"");
}

#[test]
fn an_explanation_shows_the_script_or_points_at_the_cause() {
    let explain = |line: &[u8]| {
        let mut buf = [0; 512];
        let decision = analyze(line, &ENVIRONMENT, &ShellTraits::DASH, &mut buf);
        Explanation { line, decision: &decision }.to_string()
    };
    assert_eq!(explain(b"ls -l | wc > out"), "direct: ls -l | wc 1>out");
    assert_eq!(
        explain(b"ls -l | wc > out; echo done"),
        "shell: byte 18: this is a builtin: it acts on the shell, or differs from the program of that name\n  \
         ls -l | wc > out; echo done\n                    ^^^^"
    );
}
