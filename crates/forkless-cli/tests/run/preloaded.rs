//! Programs that have the library without `forkless run`: by `LD_PRELOAD` or `/etc/ld.so.preload`
//! alone. What it did is read from the record that `FORKLESS_OPTIONS` names.
//!
//! Files of `/etc` are those of a mount namespace of the test's own.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use forkless_run::{Counter, Report};

use crate::support::{
    FORKLESS, LIBRARY, compile, emulated, observe, plain, reported_by, root_to, run, temporary,
    without_dispatch,
};

static CASES: LazyLock<PathBuf> = LazyLock::new(|| compile("preloaded_cases.c", &["-lpthread"]));
static SANDBOX: LazyLock<PathBuf> = LazyLock::new(|| compile("sandbox_cases.c", &["-lpthread"]));

/// Words that have small programs speculate, on a busy machine too.
const PATIENT: &str = "fork-minimum=1M,fork-limit=60000";

type Seen = (Option<i32>, String, String);

/// A path for a test's file, which is not there.
fn fresh(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = temporary(&format!("preloaded.{name}.{}.{number}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

/// A program with these variables alone beside the test's own.
fn with(variables: &[String], program: &Path, args: &[&str]) -> Command {
    let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
    let program = program.to_str().expect("UTF-8");
    plain(Path::new("env"), &[&variables, &[program][..], args].concat())
}

fn preload(library: &Path) -> String {
    format!("LD_PRELOAD={}", library.display())
}

/// Runs a program with the library alone. The report is of the record, if programs have made it.
fn preloaded(words: &str, program: &Path, args: &[&str]) -> (Seen, Option<Report>) {
    preloaded_by(&LIBRARY, words, program, args)
}

fn preloaded_by(library: &Path, words: &str, program: &Path, args: &[&str]) -> (Seen, Option<Report>) {
    let record = fresh("record");
    let words = format!("FORKLESS_OPTIONS=record={},{words}", record.display());
    let seen = observe(&mut with(&[preload(library), words], program, args));
    (seen, taken(&record))
}

/// The report of a record, which is removed.
fn taken(record: &Path) -> Option<Report> {
    let report = Report::read(record).ok();
    let _ = fs::remove_file(record);
    report
}

fn count(report: Option<&Report>, counter: Counter) -> u64 {
    report.expect("a record").count(counter)
}

fn committed(report: Option<&Report>) -> u64 {
    count(report, Counter::Committed)
}

/// Three where this kernel can speculate.
fn three() -> u64 {
    if without_dispatch() { 0 } else { 3 }
}

#[test]
fn ld_preload_alone_is_enough() {
    let without = observe(&mut plain(&CASES, &["alone"]));
    assert_eq!(without, (Some(0), "3 of 3 children, 1\n".to_owned(), String::new()));
    let (with, report) = preloaded(PATIENT, &CASES, &["alone"]);
    assert_eq!(without, with);
    assert_eq!(committed(report.as_ref()), three(), "{report:?}");
    assert_eq!(count(report.as_ref(), Counter::Processes), 4, "the program, and the shells it executes");
}

/// The words are the flags'.
#[test]
fn options_are_words_of_the_environment() {
    let (_, report) = preloaded("fork=off", &CASES, &["alone"]);
    assert_eq!(count(report.as_ref(), Counter::Forks), 0);
    assert_eq!(count(report.as_ref(), Counter::Processes), 4);
    let (_, report) = preloaded("fork-minimum=1G", &CASES, &["alone"]);
    assert_eq!((count(report.as_ref(), Counter::Forks), committed(report.as_ref())), (3, 0));
    let (seen, report) =
        preloaded("--fork=speculate --fork-minimum=1M --fork-limit=60000", &CASES, &["beside_a_thread"]);
    assert_eq!(seen.1, "3 of 3 children, 1\n");
    assert_eq!(committed(report.as_ref()), three(), "{report:?}");
}

/// Four lines pay for the question to the shell.
#[test]
fn the_shell_is_asked_at_the_fifth_line() {
    let without = observe(&mut plain(&CASES, &["lines"]));
    for (words, [skipped, kept]) in [("", [8, 4]), ("shell=off", [0, 0])] {
        let (with, report) = preloaded(words, &CASES, &["lines"]);
        assert_eq!(without, with);
        let counts = [Counter::Shells, Counter::ShellsKept].map(|counter| count(report.as_ref(), counter));
        assert_eq!(counts, [skipped, kept], "{words}");
    }
}

/// One line for the whole tree, from the first program that has the library.
#[test]
fn an_unknown_word_is_one_line_and_the_program_runs() {
    let script = "sh -c 'env | grep ^FORKLESS_OPTIONS='; true; exec sh -c 'exit 4'";
    for (words, said) in [
        ("color=red,fork=off", "color=red"),
        ("fork=perhaps shell=off  fork-limit=0", "fork=perhaps fork-limit=0"),
        ("a\u{1b}[31m", "a?[31m"),
    ] {
        let variables = [preload(&LIBRARY), format!("FORKLESS_OPTIONS={words}")];
        let (status, out, err) = observe(&mut with(&variables, Path::new("/bin/sh"), &["-c", script]));
        assert_eq!(err, format!("forkless: FORKLESS_OPTIONS: unknown words, ignored: {said}\n"));
        assert_eq!(status, Some(4), "{words:?}");
        // Programs of the tree find the words that are known, at their places.
        let value = out.trim_end().strip_prefix("FORKLESS_OPTIONS=").expect("one variable");
        assert_eq!(value.len(), words.len());
        let known: Vec<&str> =
            words.split([' ', ',']).filter(|word| !said.contains(word) && *word != words).collect();
        let left: Vec<&str> = value.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let known: Vec<&str> = known.into_iter().filter(|word| !word.is_empty()).collect();
        assert_eq!(left, known, "{words:?}");
    }
    let long = "x".repeat(100_000);
    let variables = [preload(&LIBRARY), format!("FORKLESS_OPTIONS={long},quiet")];
    let seen = observe(&mut with(&variables, Path::new("/bin/true"), &[]));
    assert_eq!(seen, (Some(0), String::new(), String::new()), "quiet");
    let variables = [preload(&LIBRARY), format!("FORKLESS_OPTIONS={long}")];
    let (status, _, err) = observe(&mut with(&variables, Path::new("/bin/true"), &[]));
    assert_eq!((status, err.len(), err.matches('\n').count()), (Some(0), 256, 1));
    // Nobody hears it, and nobody is disturbed.
    let script = "exec 2>&-; exec /bin/echo fine";
    let seen = observe(&mut with(
        &[preload(&LIBRARY), "FORKLESS_OPTIONS=x".into()],
        Path::new("/bin/sh"),
        &["-c", script],
    ));
    assert_eq!((seen.0, seen.1.as_str()), (Some(0), "fine\n"));
}

/// The flags of `forkless run` hold in its tree, whatever the image's environment says.
#[test]
fn a_launcher_goes_before_the_words() {
    let own = fresh("passed_by");
    let ((status, _, err), report) = reported_by(|more| {
        let mut command = run(&[more, &["--fork-minimum=1M"]].concat(), &CASES, &["alone"]);
        command.env("FORKLESS_OPTIONS", format!("fork=off,record={},nonsense", own.display()));
        command
    });
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert_eq!(report.count("committed"), three());
    assert!(!own.exists());
}

#[test]
fn the_switch_in_the_environment_leaves_all_alone() {
    for value in ["off", "0", "no", "false", "OFF", "No"] {
        let record = fresh("off");
        let words = format!("FORKLESS_OPTIONS=unknown,record={}", record.display());
        let variables = [preload(&LIBRARY), words, format!("FORKLESS={value}")];
        let seen = observe(&mut with(&variables, &CASES, &["alone"]));
        assert_eq!(seen, (Some(0), "3 of 3 children, 1\n".into(), String::new()));
        assert!(!record.exists());
    }
}

/// The loader takes two files for two libraries. The second leaves everything to the first.
#[test]
fn of_two_copies_the_first_is_in_charge() {
    let folder = fresh("copies");
    fs::create_dir(&folder).expect("a folder of the test's own");
    let copy = folder.join(forkless_run::INSTALLED_NAME);
    fs::copy(&*LIBRARY, &copy).expect("a copy");
    let both = format!("LD_PRELOAD={}:{}", copy.display(), LIBRARY.display());
    let record = fresh("copies");
    let words = format!("FORKLESS_OPTIONS={PATIENT},record={},x", record.display());
    for case in ["alone", "lines"] {
        let without = observe(&mut plain(&CASES, &[case]));
        let (status, out, err) = observe(&mut with(&[both.clone(), words.clone()], &CASES, &[case]));
        assert_eq!((status, out), (without.0, without.1), "{case}");
        assert_eq!(err.lines().count(), 1, "{err}");
        let report = taken(&record).expect("a record");
        if case == "alone" {
            assert_eq!(report.count(Counter::Committed), three());
            assert_eq!(report.count(Counter::Processes), 4, "counted once each");
        }
    }
    fs::remove_dir_all(&folder).expect("the test's own");
}

/// Under its installed name, too. The options stay: see
/// [`a_child_with_the_library_all_the_same_obeys`].
#[test]
fn children_inherit_no_library_when_told() {
    let folder = fresh("children");
    fs::create_dir(&folder).expect("a folder of the test's own");
    let installed = folder.join(forkless_run::INSTALLED_NAME);
    fs::copy(&*LIBRARY, &installed).expect("a copy");
    let script = "/usr/bin/env | grep -o -e ^LD_PRELOAD -e ^FORKLESS.* | sort; exit 0";
    for (words, preloads) in [("children=follow", "LD_PRELOAD\n"), ("children=no", "")] {
        let variable = format!("FORKLESS_OPTIONS={words}");
        // `env` itself has no library: it sets the variables for the shell.
        let mut command = with(&[preload(&installed), variable], Path::new("/bin/sh"), &["-c", script]);
        // What the tests themselves were given.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"FORKLESS")) {
            command.env_remove(name);
        }
        let seen = observe(&mut command);
        let variables = format!("FORKLESS_OPTIONS={words}\n{preloads}");
        assert_eq!(seen, (Some(0), variables, String::new()), "{words}");
    }
    fs::remove_dir_all(&folder).expect("the test's own");
}

/// A file that could do harm is none: whoever may shorten a mapped file kills the programs that use
/// it, and a FIFO or a device could be waited for.
#[test]
fn a_record_that_others_may_change_is_not_taken() {
    let outcome = |record: &Path| {
        let words = format!("FORKLESS_OPTIONS=record={},{PATIENT}", record.display());
        let seen = observe(&mut with(&[preload(&LIBRARY), words], &CASES, &["alone"]));
        assert_eq!(seen, (Some(0), "3 of 3 children, 1\n".into(), String::new()));
        Report::read(record).ok().map(|report| report.count(Counter::Processes))
    };
    let record = fresh("trusted");
    assert_eq!(outcome(&record), Some(4));
    assert_eq!(outcome(&record), Some(8), "it stays, and is counted into again");
    let mode = |bits| fs::set_permissions(&record, fs::Permissions::from_mode(bits)).expect("its own file");
    mode(0o620);
    assert_eq!(outcome(&record), Some(8));
    mode(0o602);
    assert_eq!(outcome(&record), Some(8));
    mode(0o600);
    assert_eq!(outcome(&record), Some(12));
    let link = fresh("link");
    symlink(&record, &link).expect("a link");
    assert_eq!(outcome(&link), Some(12));
    assert_eq!(outcome(&record), Some(16), "not by the link");
    if root_to("give a file away") {
        std::os::unix::fs::chown(&record, Some(65_534), None).expect("root");
        assert_eq!(outcome(&record), Some(16));
    }
    for file in [&record, &link] {
        fs::remove_file(file).expect("the test's own");
    }
    let short = fresh("short");
    fs::write(&short, "nothing of ours").expect("a file");
    assert_eq!(outcome(&short), None);
    assert_eq!(fs::read(&short).expect("still there"), b"nothing of ours");
    fs::remove_file(&short).expect("the test's own");
    let fifo = fresh("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    // Reading it would wait.
    let words = format!("FORKLESS_OPTIONS=record={}", fifo.display());
    assert_eq!(observe(&mut with(&[preload(&LIBRARY), words], Path::new("/bin/true"), &[])).0, Some(0));
    fs::remove_file(&fifo).expect("the test's own");
    assert_eq!(outcome(Path::new("/nonexistent/folder/record")), None);
    assert_eq!(outcome(Path::new("/dev/full")), None);
}

/// A namespace of its own, in which a folder of the test's stands for /etc. `$LIBRARY` is the
/// installed library there. `None`: none may be made here.
fn with_own_etc(script: &str) -> Option<Seen> {
    if emulated() {
        println!("skipped: the emulated system has not the programs for this");
        return None;
    }
    if !root_to("make a mount namespace") {
        return None;
    }
    let etc = fresh("etc");
    fs::create_dir(&etc).expect("a folder of the test's own");
    let all = r#"set -e
mount -t tmpfs none "$ETC"
cp -a /etc/passwd /etc/group /etc/ld.so.cache /etc/nsswitch.conf "$ETC" 2>/dev/null || true
mkdir "$ETC/forkless" "$ETC/library"
cp "$BUILT" "$ETC/library/libforkless-run.so"
mount --bind "$ETC" /etc
LIBRARY=/etc/library/libforkless-run.so
set +e
"#;
    let mut command = plain(Path::new("unshare"), &["--mount", "sh", "-c", &format!("{all}{script}")]);
    command.env("ETC", &etc).env("BUILT", &*LIBRARY).env("CASES", &*CASES).env_remove("FORKLESS_LIBRARY");
    let seen = observe(&mut command);
    fs::remove_dir(&etc).expect("nothing is left in it");
    if seen.2.contains("unshare failed") || seen.2.contains("permission denied") {
        println!("skipped: no mount namespace may be made here: {}", seen.2.trim());
        return None;
    }
    Some(seen)
}

/// Each program says whether it has the library, and whether the library is in force.
const SAYS: &str = r#"
says() { # COMMAND...
	rm -f /etc/record
	FORKLESS_OPTIONS=record=/etc/record "$@" grep -m1 -o libforkless-run.so /proc/self/maps
	[ -e /etc/record ] && echo in force || echo idle
}
"#;

#[test]
fn a_file_switches_off_what_starts_while_it_is_there() {
    let script = format!(
        r#"{SAYS}
export LD_PRELOAD=$LIBRARY
says env
touch /etc/forkless/off
says env
rm /etc/forkless/off
ln -s nowhere /etc/forkless/off
says env
rm /etc/forkless/off
mkdir -m 0 /etc/forkless/off
says env
rmdir /etc/forkless/off
says env
"#
    );
    let Some(seen) = with_own_etc(&script) else { return };
    let name = "libforkless-run.so\n";
    let expected = format!("{name}in force\n{name}idle\n{name}idle\n{name}idle\n{name}in force\n");
    assert_eq!(seen, (Some(0), expected, String::new()));
}

/// `forkless run` names the switch, instead of a report of nothing.
#[test]
fn run_and_doctor_name_the_switch_and_the_lists() {
    let script = format!(
        r#"touch /etc/forkless/off
FORKLESS_LIBRARY=$BUILT {FORKLESS} run --report -- true 2>&1 | head -1
export LD_PRELOAD=$LIBRARY FORKLESS_OPTIONS='fork=off,nonsense'
echo /nonexistent/libforkless-run.so >/etc/ld.so.preload
FORKLESS=off {FORKLESS} doctor --json 2>/dev/null
"#
    );
    let Some((status, out, _)) = with_own_etc(&script) else { return };
    assert_eq!(status, Some(0));
    let (said, json) = out.split_once('\n').expect("two lines");
    assert_eq!(said, "forkless: /etc/forkless/off exists: the report will show nothing");
    let report: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let sections = report["sections"].as_array().expect("sections");
    let run = sections.iter().find(|section| section["name"] == "run").expect("run");
    let entry = |name: &str| {
        let entries = run["entries"].as_array().expect("entries");
        entries.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no entry {name}"))
    };
    let detail = |name: &str| entry(name)["detail"].as_str().expect("text").to_owned();
    assert_eq!(entry("preloaded without run")["state"], "missing");
    assert!(
        detail("preloaded without run").contains("/etc/ld.so.preload names /nonexistent/libforkless-run.so")
    );
    assert_eq!(detail("off switches"), "FORKLESS: off; /etc/forkless/off: there, so off");
    // The library is off in the command itself, and has taken no word away.
    assert!(
        detail("FORKLESS_OPTIONS").starts_with("unknown: nonsense; in force: fork=off,"),
        "{}",
        detail("FORKLESS_OPTIONS")
    );
    assert_eq!(entry("FORKLESS_OPTIONS")["state"], "missing");
}

/// The list of the whole system: programs that clear their environment have the library, and
/// nothing is said in a root directory without it.
#[test]
fn the_systems_list_reaches_every_program() {
    if Path::new("/lib/ld-musl-x86_64.so.1").exists() && !Path::new("/lib64/ld-linux-x86-64.so.2").exists() {
        println!("skipped: musl has no /etc/ld.so.preload");
        return;
    }
    let script = format!(
        r#"{SAYS}
echo $LIBRARY >/etc/ld.so.preload
says env
env -i grep -m1 -o libforkless-run.so /proc/self/maps
"$CASES" alone
FORKLESS_OPTIONS={PATIENT},record=/etc/counts "$CASES" alone
{FORKLESS} report --json /etc/counts | grep -o '"committed":[0-9]*,' | head -1
# A program of the launcher's has the library once, with the launcher's options.
FORKLESS_LIBRARY=$LIBRARY {FORKLESS} run -- grep -c r-xp.*libforkless-run /proc/self/maps
FORKLESS_LIBRARY=$BUILT {FORKLESS} run -- "$CASES" alone
mkdir -p /etc/root/bin /etc/root/lib /etc/root/lib64 /etc/root/proc
cp -L /bin/echo /etc/root/bin
for file in $(ldd /bin/echo | grep -o '/[^ ]*'); do mkdir -p /etc/root/${{file%/*}}; cp -L $file /etc/root/$file; done
chroot /etc/root /bin/echo in a root of its own
rm /etc/ld.so.preload
"#
    );
    let Some(seen) = with_own_etc(&script) else { return };
    let children = "3 of 3 children, 1\n";
    let name = "libforkless-run.so\n";
    let expected = format!(
        "{name}in force\n{name}{children}{children}\"committed\":{},\n1\n{children}in a root of its own\n",
        three()
    );
    assert_eq!(seen, (Some(0), expected, String::new()));
}

/// Regression: `children=no` took the variables of the options away as well. Programs that
/// `/etc/ld.so.preload` gave the library all the same then had the defaults.
#[test]
fn a_child_with_the_library_all_the_same_obeys() {
    let script = format!(
        r#"echo $LIBRARY >/etc/ld.so.preload
counted() {{ # RECORD
	FORKLESS=off {FORKLESS} report --json $1 | grep -o -e '"processes":[0-9]*' -e '"forks":[0-9]*'
}}
FORKLESS_OPTIONS=fork=off,children=no,record=/etc/words sh -c 'echo $FORKLESS_OPTIONS; "$CASES" alone; exit'
counted /etc/words
FORKLESS_LIBRARY=$LIBRARY {FORKLESS} run --children=no -- sh -c '
	echo $FORKLESS_RUN
	FORKLESS_RUN=$FORKLESS_RUN,record=/etc/run,makes-record=yes "$CASES" alone
	exit'
counted /etc/run
"#
    );
    let Some(seen) = with_own_etc(&script) else { return };
    // Each program that is executed counts, and the shell at the beginning.
    let expected = "fork=off,children=no,record=/etc/words\n3 of 3 children, 1\n\"forks\":0\n\"processes\":5\n\
                    fork=off\n3 of 3 children, 1\n\"forks\":0\n\"processes\":4\n";
    assert_eq!(seen, (Some(0), expected.into(), String::new()));
}

/// With rights that its caller lacks, a program is left alone, and believes no variable of the
/// caller's.
#[test]
fn a_program_with_more_rights_than_its_caller_is_left_alone() {
    let script = r#"echo $LIBRARY >/etc/ld.so.preload
cp "$CASES" /etc/plain
cp "$CASES" /etc/setuid
cp /bin/grep /etc/grep
chmod 755 /etc /etc/plain
chmod 4755 /etc/setuid /etc/grep
mkdir -m 777 /etc/all
chmod 1777 /etc/all
for program in plain setuid; do
	# The caller is not root, and root is not the caller.
	FORKLESS_OPTIONS=record=/etc/all/$program,fork-minimum=1M,fork-limit=60000,unknown LD_PRELOAD=$LIBRARY \
		setpriv --reuid=65534 --clear-groups sh -c "exec /etc/$program alone" 2>/etc/said
	grep -c unknown /etc/said
	cat /etc/all/$program >/dev/null 2>&1 && stat -c %u /etc/all/$program
	rm -f /etc/all/$program
done
FORKLESS_OPTIONS=unknown setpriv --reuid=65534 --clear-groups --no-new-privs true 2>&1 | grep -c unknown
setpriv --reuid=65534 --clear-groups /etc/grep -c r-xp.*libforkless-run /proc/self/maps
"#;
    let Some((status, out, err)) = with_own_etc(script) else { return };
    if err.contains("setpriv") {
        println!("skipped: no setpriv here: {err}");
        return;
    }
    assert_eq!((status, err.as_str()), (Some(0), ""));
    let children = "3 of 3 children, 1\n";
    // `setpriv` is the first to say the line and to make the record, as root; the shell and the
    // program may not write root's file. Then the set-user-ID program runs below the same.
    let expected = format!("{children}1\n0\n{children}1\n0\n1\n1\n");
    assert_eq!(out, expected);
}

/// The filters of the first process are the container's. The program of the container may have one
/// more, and be told from it, beside threads too.
#[test]
fn a_containers_filter_is_worked_under() {
    if emulated() {
        println!("skipped: the emulated system has not the programs for this");
        return;
    }
    if !root_to("make a PID namespace") {
        return;
    }
    let cases = CASES.to_str().expect("UTF-8");
    let sandbox = SANDBOX.to_str().expect("UTF-8");
    for (words, program, speculated) in [
        ("", vec![cases, "alone"], true),
        (",fork=speculate", vec![cases, "beside_a_thread"], true),
        ("", vec![sandbox, "--filtered", cases, "alone"], false),
        (",fork=speculate", vec![sandbox, "--filtered", cases, "beside_a_thread"], false),
    ] {
        let record = fresh("container");
        let line = format!(
            "LD_PRELOAD={} FORKLESS_OPTIONS={PATIENT},record={}{words} {}; exit $?",
            LIBRARY.display(),
            record.display(),
            program.join(" ")
        );
        let args = ["--filtered", "unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", &line];
        let (status, out, err) = observe(&mut plain(&SANDBOX, &args));
        if err.contains("unshare") {
            println!("skipped: no PID namespace may be made here: {err}");
            return;
        }
        assert_eq!(
            (status, out.as_str(), err.as_str()),
            (Some(0), "3 of 3 children, 1\n", ""),
            "{program:?}"
        );
        let report = taken(&record);
        assert_eq!(
            committed(report.as_ref()),
            if speculated { three() } else { 0 },
            "{program:?} {report:?}"
        );
    }
}

/// The same file, with another C library.
#[test]
fn musls_programs_have_it_by_the_same_file() {
    if emulated() || Command::new("musl-gcc").arg("--version").output().is_err() {
        println!("skipped: no musl-gcc here (apt-get install musl-tools)");
        return;
    }
    let program = temporary("preloaded_cases_musl");
    let source = crate::support::root().join("fixtures/run/preloaded_cases.c");
    let compiled = Command::new("musl-gcc").args(["-O1", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.expect("musl-gcc").success());
    for case in ["alone", "lines"] {
        let without = observe(&mut plain(&program, &[case]));
        let script = format!("exec {} {case}", program.display());
        let record = fresh("musl");
        let words = format!("{PATIENT},record={},unknown", record.display());
        // glibc's shell has the library, too.
        let variables = [preload(&LIBRARY), format!("FORKLESS_OPTIONS={words}")];
        let (status, out, err) = observe(&mut with(&variables, Path::new("/bin/sh"), &["-c", &script]));
        assert_eq!((status, out), (without.0, without.1), "{case}");
        assert_eq!(err.lines().count(), 1, "{err}");
        let report = taken(&record).expect("a record");
        match case {
            "alone" => assert_eq!(report.count(Counter::Committed), three(), "{report:?}"),
            _ => assert_eq!(report.count(Counter::Shells), 8, "{report:?}"),
        }
    }
    // musl says nothing where a file is missing.
    let missing = "LD_PRELOAD=/nonexistent/libforkless-run.so".to_owned();
    let script = format!("exec 2>&1; {} no_such_case", program.display());
    let seen = observe(&mut plain(Path::new("/bin/sh"), &["-c", &format!("export {missing}; {script}")]));
    assert_eq!(seen, (Some(2), String::new(), String::new()));
}

/// A sanitizer's runtime ends a program in which another library comes before it. No launcher has
/// set the option that permits that.
#[test]
fn a_sanitized_program_has_it() {
    let source = "preloaded_cases.c";
    let program =
        crate::support::compile_as("preloaded_cases_asan", source, &["-fsanitize=address", "-lpthread"]);
    let leaks = "ASAN_OPTIONS=detect_leaks=0".to_owned();
    let without = observe(&mut with(std::slice::from_ref(&leaks), &program, &["alone"]));
    assert_eq!(without.0, Some(0), "{without:?}");
    let record = fresh("asan");
    let words = format!("FORKLESS_OPTIONS={PATIENT},record={}", record.display());
    assert_eq!(without, observe(&mut with(&[leaks, preload(&LIBRARY), words], &program, &["alone"])));
    assert_eq!(count(taken(&record).as_ref(), Counter::Forks), 3);
}

/// Other libraries that are preloaded keep their places.
#[test]
fn beside_other_preloaded_libraries() {
    let other = compile("wrapper.c", &["-shared", "-fPIC", "-ldl"]);
    let without = observe(&mut plain(&CASES, &["alone"]));
    for order in [[&*LIBRARY, &other], [&other, &*LIBRARY]] {
        let list = format!("LD_PRELOAD={}:{}", order[0].display(), order[1].display());
        let record = fresh("beside");
        let words = format!("FORKLESS_OPTIONS={PATIENT},record={}", record.display());
        assert_eq!(without, observe(&mut with(&[list, words], &CASES, &["alone"])), "{order:?}");
        assert!(taken(&record).expect("a record").count(Counter::Processes) >= 4);
    }
}

/// The blocks of a language in the page for people who deploy.
fn recipes(language: &str) -> Vec<String> {
    let path = crate::support::root().join("docs/guide/deploy.md");
    let page = fs::read_to_string(path).expect("the page");
    let blocks = page.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).map(str::to_owned).collect()
}

/// Everything on the page that is set to `FORKLESS_OPTIONS` is understood, and the library has the
/// name under which it is installed.
#[test]
fn the_pages_options_are_words() {
    if emulated() {
        println!("skipped: the page was not brought along");
        return;
    }
    let blocks: Vec<String> = ["dockerfile", "yaml", "ini", "sh"].into_iter().flat_map(recipes).collect();
    let mut words = 0;
    for line in blocks.iter().flat_map(|block| block.lines()) {
        for (name, value) in
            line.match_indices("FORKLESS_OPTIONS").map(|(at, name)| (name, &line[at + name.len()..]))
        {
            let value = value.trim_start_matches(['=', ':', ' ']);
            let text = value.strip_prefix('"').map_or_else(
                || value.split(' ').next().unwrap_or_default(),
                |quoted| quoted.split('"').next().unwrap_or_default(),
            );
            assert!(forkless_run::Options::parse_words(text.as_bytes()).1, "{name} in {line}");
            words += 1;
        }
        for path in line.split([' ', '=', ':', '\'', ',']).filter(|word| word.contains("libforkless")) {
            assert!(forkless_run::names_library(path.trim_end_matches(']').as_bytes()), "{line}");
        }
    }
    assert!(words >= 4, "{words}");
}

/// The drop-in is one that systemd reads, and its environment is enough.
#[test]
fn the_pages_drop_in_has_forks_commit() {
    if emulated() {
        println!("skipped: the page was not brought along");
        return;
    }
    let blocks = recipes("ini");
    let [block] = &blocks[..] else { panic!("one drop-in") };
    let block = block.replace("/usr/lib/libforkless-run.so", &LIBRARY.display().to_string());
    let set = block.lines().find_map(|line| line.strip_prefix("Environment=")).expect("its line");
    let record = fresh("drop_in");
    let words = format!("FORKLESS_OPTIONS={PATIENT},record={}", record.display());
    let seen = observe(&mut with(&[set.to_owned(), words], &CASES, &["alone"]));
    assert_eq!(seen, (Some(0), "3 of 3 children, 1\n".into(), String::new()));
    assert_eq!(committed(taken(&record).as_ref()), three());

    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: no systemd-analyze here");
        return;
    }
    let units = fresh("units");
    let drop_ins = units.join("server.service.d");
    fs::create_dir_all(&drop_ins).expect("a folder of the test's own");
    fs::write(units.join("server.service"), "[Service]\nExecStart=/bin/true\n").expect("a unit");
    fs::write(drop_ins.join("forkless.conf"), block).expect("a drop-in");
    let mut verify = plain(Path::new("systemd-analyze"), &["verify", "--man=no", "server.service"]);
    verify.env("SYSTEMD_UNIT_PATH", format!("{}:", units.display())).current_dir(&units);
    let (_, out, err) = observe(&mut verify);
    fs::remove_dir_all(&units).expect("the test's own");
    let about: Vec<&str> = out.lines().chain(err.lines()).filter(|line| line.contains("forkless")).collect();
    assert_eq!(about, Vec::<&str>::new());
}

/// The pod's program finds the file where the init container puts it.
#[test]
fn the_pages_yaml_says_one_path() {
    let script = r#"
import sys, yaml
compose, pod = [yaml.safe_load(text) for text in sys.stdin.read().split("\0")]
server = compose["services"]["server"]
host, inside, _ = server["volumes"][0].split(":")
assert server["environment"]["LD_PRELOAD"] == inside == host, server
spec = pod["spec"]
init, [server] = spec["initContainers"][0], spec["containers"]
mounts = [one["volumeMounts"][0] for one in (init, server)]
assert {mount["name"] for mount in mounts} == {spec["volumes"][0]["name"]}, mounts
copy, source, folder = init["command"]
assert folder == mounts[0]["mountPath"] + "/", folder
name = source.rsplit("/", 1)[1]
assert server["env"] == [{"name": "LD_PRELOAD", "value": mounts[1]["mountPath"] + "/" + name}], server
"#;
    let can = Command::new("python3").args(["-c", "import yaml"]).output();
    if emulated() || !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: no python3 with yaml here");
        return;
    }
    let blocks = fresh("yaml");
    fs::write(&blocks, recipes("yaml").join("\0")).expect("a file");
    let mut python = plain(Path::new("python3"), &["-c", script]);
    python.stdin(fs::File::open(&blocks).expect("that file"));
    let seen = observe(&mut python);
    fs::remove_file(&blocks).expect("the test's own");
    assert_eq!(seen, (Some(0), String::new(), String::new()));
}

/// The commands for the switch do what stands beside them.
#[test]
fn the_pages_switch_commands_switch() {
    if emulated() {
        println!("skipped: the page was not brought along");
        return;
    }
    let blocks = recipes("sh");
    let block = blocks.iter().find(|block| block.contains("/etc/forkless/off")).expect("the commands");
    let [off, on] = block.lines().collect::<Vec<_>>()[..] else { panic!("two commands: {block}") };
    let script = format!("{SAYS}\nexport LD_PRELOAD=$LIBRARY\nsays env\n{off}\nsays env\n{on}\nsays env\n");
    let Some(seen) = with_own_etc(&script) else { return };
    let name = "libforkless-run.so\n";
    assert_eq!(seen, (Some(0), format!("{name}in force\n{name}idle\n{name}in force\n"), String::new()));
}

/// Regression: `bench` and `reproduce` measured the library under libc's name, in their own process
/// and in shells that they started.
#[test]
fn a_bench_is_plain_where_the_library_is_all_around() {
    if emulated() {
        println!("skipped: nothing is measured on an emulated system");
        return;
    }
    for line in [
        "bench spawn --no-save --runs 20 --restarts 2 --methods fork_exec,system",
        "bench memory --no-save --quick --sizes 8M --methods fork_exec",
        "bench cow --no-save --quick --count 2000 --filter system",
        "bench all --no-save --suites syscalls --quick --filter fork",
        "reproduce E2 --quick --short",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let (seen, report) = preloaded(PATIENT, Path::new(FORKLESS), &words);
        assert_eq!(seen.0, Some(0), "{line}: {}", seen.2);
        let report = report.expect("the command itself is started with the library");
        let counted = (report.count(Counter::Processes), report.count(Counter::Forks));
        assert_eq!(counted, (1, 0), "{line}");
    }
}

/// No environment keeps the library out there: it is switched off, but in the methods that are
/// under `run`.
#[test]
fn a_bench_switches_the_systems_list_off_and_says_so() {
    let note = "ld.so.preload brings the library into every program: plain runs have it switched off";
    let script = format!(
        r#"echo $LIBRARY >/etc/ld.so.preload
export FORKLESS_LIBRARY=$LIBRARY FORKLESS_OPTIONS=record=/etc/record,{PATIENT}
{FORKLESS} bench cow --no-save --quick --count 20000 --pages base --filter fork_exec --json /etc/result >/dev/null
FORKLESS=off {FORKLESS} report --json /etc/record | grep -o '"forks":[0-9]*' | head -1
grep -o -e '{note}' -e '[a-z_]*_under_run","params' /etc/result | sort -u
"#
    );
    let Some(seen) = with_own_etc(&script) else { return };
    // `cow` has this row only if the library speculated the forks of the second process.
    let row = if without_dispatch() { "" } else { "fork_exec_under_run\",\"params\n" };
    assert_eq!(seen, (Some(0), format!("\"forks\":0\n{row}{note}\n"), String::new()));
}
