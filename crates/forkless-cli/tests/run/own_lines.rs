//! Lines that the library and the launcher write on standard error, and what they make beside the
//! program: the program must notice nothing else of either.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::support::{FORKLESS, LIBRARY, compile, observe, plain, temporary};

static BAD_STDERR: LazyLock<PathBuf> = LazyLock::new(|| compile("bad_stderr.c", &[]));

/// How many free huge pages of 2 MiB this system has, or may add.
fn pool() -> u64 {
    let number = |name: &str| -> u64 {
        let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    number("free_hugepages") + number("nr_overcommit_hugepages")
}

/// The output of a program with a standard error that is made for it.
fn with_stderr(how: &str, command: &[&str]) -> String {
    let mut line = plain(&BAD_STDERR, &[&[how][..], command].concat());
    let (status, out, err) = observe(line.env("FORKLESS_LIBRARY", &*LIBRARY));
    assert_eq!((status, err.as_str()), (Some(0), ""), "{how} {command:?}: {out}");
    out
}

/// Regression: the line killed, stopped or hung a program that never writes to standard error.
#[test]
fn a_line_is_all_that_a_program_notices_of_it() {
    let preload = format!("LD_PRELOAD={}", LIBRARY.display());
    let static_program = compile("static.c", &["-static"]);
    let static_program = static_program.to_str().expect("UTF-8");
    // The masks, and the signals that are pending.
    let signals = ["grep", "-E", "^(SigPnd|ShdPnd|SigBlk|SigIgn)", "/proc/self/status"];
    let by_library = [&["env", &preload, "FORKLESS_OPTIONS=bogus"][..], &signals].concat();
    let pool_line = [&[FORKLESS, "run", "--huge-pages=hugetlb", "--"][..], &signals].concat();
    let static_line = [FORKLESS, "run", "--", static_program];
    let mut cases = vec![
        (&by_library[..], &signals[..], "unknown words"),
        (&static_line[..], &static_line[3..], "statically linked"),
    ];
    if pool() == 0 {
        cases.push((&pool_line[..], &signals[..], "no free 2 MiB huge pages"));
    } else {
        println!("skipped: this system has a pool of huge pages, and nothing is said of it");
    }
    for (command, bare, said) in cases {
        let expected = with_stderr("pipe", bare);
        assert!(expected.ends_with("exited 0\n"), "{expected}");
        let heard = with_stderr("pipe", command);
        let line = heard.strip_prefix(expected.as_str()).unwrap_or_else(|| panic!("{heard}"));
        assert!(line.contains(said) && line.matches('\n').count() == 1, "{line}");
        for how in ["no_reader", "full", "limit", "pending"] {
            assert_eq!(with_stderr(how, command), with_stderr(how, bare), "{how} {command:?}");
        }
        let shown = with_stderr("terminal", command);
        let line = shown.strip_prefix(with_stderr("terminal", bare).as_str()).unwrap_or("");
        assert!(line.contains(said), "{shown}");
    }
}

/// Regression: SIGXFSZ killed the program or its launcher, and a part of the record stayed.
#[test]
fn where_no_record_finds_room_the_program_runs_and_one_line_says_so() {
    let folder = temporary(&format!("own_lines.{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder of the test's own");
    let [record, report] = ["record", "report"].map(|name| folder.join(name).display().to_string());
    // In units of 512 bytes: of a record one part fits.
    for limit in ["0", "2"] {
        let limited = |line: &str| {
            let script = format!("ulimit -f {limit}; {line}");
            let mut command = plain(Path::new("sh"), &["-c", &script]);
            let seen = observe(command.env("FORKLESS_LIBRARY", &*LIBRARY));
            assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0, "{line}");
            seen
        };
        let program = "sh -c '/bin/echo one; sh -c \"/bin/echo two; exit 3\"'";
        let alone = format!("LD_PRELOAD={} FORKLESS_OPTIONS", LIBRARY.display());
        for line in [
            format!("{FORKLESS} run --report -- {program}"),
            format!("{FORKLESS} run --report={report} -- {program}"),
            format!("{alone}=fork=off,record={record} {program}"),
            format!("{alone}=--record={record} {program}"),
        ] {
            let (status, out, err) = limited(&line);
            assert_eq!((status, out.as_str()), (Some(3), "one\ntwo\n"), "{line}: {err}");
            assert!(err.contains("nothing is recorded") && err.lines().count() == 1, "{line}: {err}");
        }
        let (status, _, err) = limited(&format!("{alone}=quiet,record={record} {program}"));
        assert_eq!((status, err.as_str()), (Some(3), ""));
    }
    std::fs::remove_dir(&folder).expect("nothing is left in it");
}

/// Regression: the cut file stayed, and no later program counted into it or made it anew.
#[test]
fn a_record_that_a_full_disk_cut_is_made_once_there_is_room() {
    if !crate::support::root_to("mount a small file system") {
        return;
    }
    let folder = temporary(&format!("own_lines.disk.{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder of the test's own");
    let script = r#"mount -t tmpfs -o size=64k none "$DISK" || exit 77
head -c 57344 /dev/zero >"$DISK/other"
export FORKLESS_OPTIONS=record=$DISK/record
LD_PRELOAD=$LIBRARY /bin/echo full
ls "$DISK"
rm "$DISK/other"
LD_PRELOAD=$LIBRARY /bin/echo room
ls "$DISK"
"#;
    let mut command = plain(Path::new("unshare"), &["--mount", "sh", "-c", script]);
    let seen = observe(command.env("DISK", &folder).env("LIBRARY", &*LIBRARY));
    std::fs::remove_dir(&folder).expect("nothing is left in it");
    if seen.0 == Some(77) || seen.2.contains("unshare failed") {
        println!("skipped: nothing may be mounted here: {}", seen.2.trim());
        return;
    }
    assert_eq!(seen, (Some(0), "full\nother\nroom\nrecord\n".into(), String::new()));
}
