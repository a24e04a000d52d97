//! Lines without a shell, where the shell itself would have met something: its change of ids, its
//! message about a killed program, a signal for the group, limits, a filter.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::support::{
    compile, may_make_pid_namespaces, may_mount, observe, plain, reported, root_to, temporary,
};

static SHELL_ENDS: LazyLock<PathBuf> = LazyLock::new(|| compile("shell_ends.c", &["-lpthread"]));

/// A program that is killed, and the message that its shell would print.
const DIES: &str = "sh -c 'kill -TERM $$'";
/// A program that says by descriptor 9 that it runs.
const WAITS: &str = "/bin/sh -c 'echo >&9; exec 9>&-; exec sleep 20'";

/// Whether this machine's `/bin/sh` waits for the program of a line that is one command. Other
/// shells execute it in their own place.
fn shell_waits() -> bool {
    let waits = Command::new("/bin/sh").args(["-c", DIES]).stderr(std::process::Stdio::null()).status();
    let waits = waits.expect("starts").code() == Some(143);
    if !waits {
        println!("skipped: /bin/sh becomes the last program of a line, and waits for none");
    }
    waits
}

/// Runs a case with and without the library. Compares both, and the numbers of lines without and
/// with a shell.
fn alike(case: &[&str], counts: [u64; 2]) -> (Option<i32>, String, String) {
    let without = observe(&mut plain(&SHELL_ENDS, case));
    assert_eq!(without.0, Some(0), "{case:?}: {without:?}");
    let (with, report) = reported(&["--quiet"], &SHELL_ENDS, case);
    assert_eq!(without, with, "{case:?}");
    assert_eq!([report.count("shells_skipped"), report.count("shells_kept")], counts, "{case:?}");
    without
}

/// Shells give up effective ids that differ from the real ones. Regression: the line's program had
/// them.
#[test]
fn a_program_whose_ids_differ_has_a_shell_give_them_up() {
    if !root_to("take other ids") {
        return;
    }
    let user = |real, effective| vec!["ids", "id -u", real, effective, "0", "0", "0", "0"];
    assert!(alike(&user("1000", "0"), [0, 2]).1.starts_with("1000\n"));
    assert!(alike(&user("0", "1000"), [0, 2]).1.starts_with("0\n"));
    alike(&user("1000", "1000"), [0, 2]);
    alike(&user("0", "0"), [2, 0]);
    let group = ["ids", "id -g", "0", "0", "0", "1000", "0", "0"];
    assert!(alike(&group, [0, 2]).1.starts_with("1000\n"));
    let dropped = ["ids", "id -u", "1000", "1000", "1000", "1000", "1000", "1000"];
    alike(&dropped, [2, 0]);
    // One thread has other ids: the shell gets its lines, but not those of the first thread.
    alike(&["thread_ids", "id -u"], [2, 2]);
}

/// An exec takes rights away before the shell opens files, and gives rights back. Regression: files
/// were created and changed by right of the program's own.
#[test]
fn a_program_with_rights_that_an_exec_changes_has_a_shell_open_the_files() {
    if !root_to("keep capabilities, and file system ids") {
        return;
    }
    let folder = temporary(&format!("shell_ends.{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of root's");
    let file = folder.join("file");
    let line = format!("/bin/true > {}", file.display());
    alike(&["file_ids", &line, file.to_str().expect("UTF-8")], [0, 2]);
    let (_, out, err) = alike(&["capabilities", &line], [0, 2]);
    assert!(out.contains("exited") && !out.contains("exited 0") && !err.is_empty(), "{out} {err}");
    assert!(!file.exists());
    std::fs::remove_dir(&folder).expect("empty");
    let file = file_of("rights");
    let line = format!("/bin/echo text >{file}");
    for (how, counts) in [
        ("less", [1, 2]),
        ("not in force", [1, 2]),
        ("bound", [1, 2]),
        ("bound by syscall", [1, 2]),
        ("bound and less", [3, 0]),
        ("bound and inherited", [3, 0]),
        ("group", [1, 2]),
        ("half ambient", [1, 2]),
        ("ambient, not in force", [1, 2]),
        ("ambient", [3, 0]),
    ] {
        alike(&["rights", &line, how, &file], counts);
        std::fs::remove_file(&file).expect("made");
    }
}

fn file_of(name: &str) -> String {
    temporary(&format!("shell_ends.{name}.{}", std::process::id())).to_str().expect("UTF-8").to_owned()
}

/// Regression: the program itself wrote the shell's message, and died of SIGPIPE or SIGXFSZ.
#[test]
fn the_shells_message_is_not_the_programs_death() {
    let waits = shell_waits();
    let full = temporary(&format!("shell_ends.full.{}", std::process::id()));
    let full = full.to_str().expect("UTF-8");
    let (_, out, _) = alike(&["no_reader", DIES], [2, 0]);
    assert!(!waits || out == "system: signaled 13\npclose: signaled 13\n", "{out}");
    let (_, out, _) = alike(&["limit", DIES, full], [2, 0]);
    assert!(!waits || out == "system: signaled 25\npclose: signaled 25\n", "{out}");
    // If they are ignored, then in the shell too, and the program lives.
    for ignored in [vec!["no_reader", DIES, "x"], vec!["limit", DIES, full, "x"]] {
        let (_, out, _) = alike(&ignored, [2, 0]);
        assert!(!waits || out == "system: exited 143\npclose: exited 143\n", "{out}");
    }
}

/// Regression: in place of the shell, the line's program was the first process of the namespace,
/// which has no default actions.
#[test]
fn the_first_process_of_a_new_pid_namespace_is_the_shell() {
    if !may_make_pid_namespaces() {
        return;
    }
    let line = "/bin/sh -c 'echo $$; kill -TERM $$; echo alive'";
    for how in ["unshare", "syscall", "setns"] {
        for stream in [&[][..], &["x"]] {
            let case = [&["namespaces", line, how][..], stream].concat();
            let (_, out, _) = alike(&case, [0, 1]);
            assert!(!shell_waits() || (!out.contains("alive") && out.contains("exited 143")), "{out}");
        }
    }
    // The library looks at the namespace again.
    alike(&["namespaces", line, "after"], [1, 1]);
    let case = ["namespace_later", DIES];
    let without = observe(&mut plain(&SHELL_ENDS, &case));
    let (with, report) = reported(&["--quiet"], &SHELL_ENDS, &case);
    // The shell's message is missing (docs/guide/noticed.md).
    assert_eq!((report.count("shells_skipped"), with.0, &with.1), (1, without.0, &without.1));
    assert!(with.1.ends_with("first child: exited 1\n"), "{with:?}");
}

/// Threads and handlers may have 16 KiB of stack in all. Regression: a line took 16 KiB, where
/// libc's functions take 1 to 4.
#[test]
fn a_line_takes_little_of_the_callers_stack() {
    let (_, out, _) = alike(&["stack", "A=1 ls / >/dev/null"], [4, 0]);
    assert_eq!(out.matches("more than 12 KiB: 0").count(), 2, "{out}");
}

/// Regression: the line's text stayed in the library's memory, where children with fewer rights
/// could read it.
#[test]
fn a_line_that_the_program_erases_is_gone() {
    for (line, counts) in [
        ("/bin/true ", [1, 0]),
        ("A=1 /bin/true \"$PATH\" ", [1, 0]),
        ("A=1 B=", [0, 1]),
        ("A=2 /bin/true >/dev/null * ", [0, 1]),
        ("/nonexistent ", [0, 1]),
        ("B='x y' C=", [0, 1]),
    ] {
        for stream in [&[][..], &["x"]] {
            let (_, out, _) = alike(&[&["erased", line][..], stream].concat(), counts);
            assert!(out.ends_with("found: 0\n"), "{out}");
        }
    }
}

/// Other children do not have a stream's pipe, whose reader waits for its end. Regression: they had
/// it while the stream was flushed at its close. They also had it where libc opened its own for an
/// odd mode or without an environment.
#[test]
fn a_stream_is_no_other_childs() {
    let (_, out, _) = alike(&["flushing"], [2, 0]);
    assert!(out.starts_with("waits: 1\n"), "{out}");
    alike(&["odd"], [1, 0]);
}

/// Regression: the process that reports a killed program had all descriptors, and kept another
/// stream's reader from its end.
#[test]
fn the_shells_message_holds_no_stream_open() {
    if shell_waits() {
        // The program's name is not a shell's.
        let dies = format!("{} die", SHELL_ENDS.display());
        let (_, out, _) = alike(&["said_late", &dies], [2, 0]);
        assert!(out.starts_with("a shell: 1\n"), "{out}");
    }
}

/// A process that closes a descriptor of a file loses its record locks on that file. Regression:
/// the program opened and closed the file to which its line redirects standard error. It also
/// copied and closed descriptor 2.
#[test]
fn a_line_leaves_the_programs_record_locks_alone() {
    let file = temporary(&format!("shell_ends.locked.{}", std::process::id()));
    let file = file.to_str().expect("UTF-8");
    let keeps = |line: &str, errors: &[&str], counts| {
        let (_, out, _) = alike(&[&["locks", line, file][..], errors].concat(), counts);
        assert_eq!(out.matches("locked: 1").count(), 2, "{out}");
    };
    let waits = shell_waits();
    keeps(&format!("/bin/true >>{file} 2>&1"), &[], if waits { [0, 2] } else { [1, 1] });
    keeps(&format!("/bin/true 2>{file}.other"), &["x"], if waits { [0, 2] } else { [1, 1] });
    keeps(&format!("/bin/true >>{file}"), &[], [2, 0]);
    keeps(&format!("/bin/true <{file} >>{file}"), &["x"], [2, 0]);
    let _ = std::fs::remove_file(format!("{file}.other"));
    std::fs::remove_file(file).expect("made");
}

/// Regression: the message went to the file that was descriptor 2 at the time of pclose.
#[test]
fn the_shells_message_never_lands_in_another_file() {
    let file = |name: &str| temporary(&format!("shell_ends.{name}.{}", std::process::id()));
    let (errors, other) = (file("errors"), file("other"));
    let name = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let case = ["moved", DIES, &name(&errors), &name(&other)];
    let without = observe(&mut plain(&SHELL_ENDS, &case));
    let (with, report) = reported(&["--quiet"], &SHELL_ENDS, &case);
    assert_eq!((report.count("shells_skipped"), report.count("shells_kept")), (1, 0));
    // The file that was descriptor 2 is out of reach: the message is missing
    // (docs/guide/noticed.md).
    assert_eq!((with.0, &with.1), (without.0, &without.1));
    assert!(with.1.ends_with("other: DATA\n"), "{with:?}");
    // If descriptor 2 is unchanged, the message goes there.
    let (_, _, err) = alike(&["moved", DIES], [1, 0]);
    assert!(!shell_waits() || err == "Terminated\n", "{err}");
}

/// Regression: the message was written although descriptor 2 is close-on-exec or another stream,
/// neither of which the shell has. It was also written into a new file with the inode of the file
/// that was descriptor 2.
#[test]
fn the_shells_message_goes_where_the_shell_would_have_written_it() {
    let (_, out, _) = alike(&["unheard", DIES, &file_of("unheard")], [2, 0]);
    assert!(out.ends_with("stderr: 0\n"), "{out}");
    let (_, out, _) = alike(&["stream_as_errors", DIES, &file_of("stream")], [2, 0]);
    assert!(out.starts_with("descriptor 2\n") && out.ends_with("\nmine\n"), "{out}");
    let file = file_of("remade");
    if std::fs::write(&file, "").and_then(|()| std::fs::metadata(&file)?.created()).is_err() {
        println!("skipped: no file here says when it was made");
        return;
    }
    let (_, out, _) = alike(&["remade", DIES, &file], [1, 0]);
    assert!(out.ends_with("data: 5\n"), "{out}");
}

/// A shell that waits for the program is killed with it. Regression: the library took it to live
/// on.
#[test]
fn a_signal_to_the_group_is_the_shells_too() {
    if !shell_waits() {
        return;
    }
    // These signals end the program as well unless it handles them, so the shell is asked.
    for signal in ["1", "10", "13", "14", "15"] {
        for stream in ["0", "1"] {
            let (_, out, _) = alike(&["group", WAITS, signal, "1", stream], [0, 1]);
            assert!(out.contains(&format!("signaled {signal}\n")), "{out}");
            assert!(out.contains("caught 1"), "{out}");
        }
    }
    // system() itself ignores these two.
    for signal in ["2", "3"] {
        for handler in ["0", "1"] {
            let (_, out, _) = alike(&["group", WAITS, signal, handler, "0"], [1, 0]);
            assert!(out.contains(&format!("signaled {signal}\n")), "{out}");
        }
        alike(&["group", WAITS, signal, "1", "1"], [0, 1]);
    }
    // A handler that was installed after the stream was opened, and a pending signal.
    let (_, out, _) = alike(&["group", WAITS, "15", "2", "1"], [1, 0]);
    assert!(out.contains("signaled 15\n"), "{out}");
    alike(&["blocked", WAITS, "15", "0", "0"], [0, 1]);
    alike(&["blocked", WAITS, "15", "0", "1"], [0, 1]);
    // A shell survives a signal that reaches the program alone. In a stream it survives the
    // keyboard's two as well.
    for signal in ["HUP", "TERM", "SEGV", "KILL"] {
        alike(&["both", &format!("sh -c 'kill -{signal} $$'")], [2, 0]);
    }
    let (_, out, _) = alike(&["stream", "sh -c 'kill -INT $$'"], [1, 0]);
    assert!(out.contains("exited 130\n"), "{out}");
}

/// Regression: a handler for SIGCHLD learnt of the program's end, not of the shell's.
#[test]
fn a_handler_for_children_is_told_of_the_shells_end() {
    if !shell_waits() {
        return;
    }
    let (_, out, _) = alike(&["siginfo", DIES], [0, 2]);
    assert_eq!(out.matches("handler: code 1, status 143").count(), 2, "{out}");
    let (_, out, _) = alike(&["reaped", DIES], [0, 1]);
    assert!(out.starts_with("raw: exited 143\n"), "{out}");
    // While system() waits, another thread would run the handler. It would find the program, or
    // learn that it stops.
    alike(&["watched", DIES], [1, 0]);
    alike(&["watched", DIES, "x"], [0, 1]);
}

/// Where SIGCHLD is ignored a wait finds no status. Regression: so nobody told of the death.
#[test]
fn a_death_is_told_where_sigchld_is_ignored() {
    if !shell_waits() {
        return;
    }
    let (_, _, errors) = alike(&["ignored", DIES], [0, 2]);
    assert_eq!(errors.matches("Terminated").count(), 2, "{errors}");
    let (_, out, _) = alike(&["ignored", "exec grep SigIgn /proc/self/status"], [2, 0]);
    let ignored = out.lines().filter_map(|line| line.strip_prefix("SigIgn:\t"));
    let ignored: Vec<_> = ignored.map(|hex| u64::from_str_radix(hex, 16).unwrap()).collect();
    assert!(ignored.len() == 2 && ignored.iter().all(|set| set & 1 << 16 == 0), "{out}");
}

/// Regression: SIGINT and SIGQUIT stayed ignored, and the line's program was left as a child.
#[test]
fn a_thread_that_is_cancelled_in_system_leaves_nothing() {
    let line = "/bin/sh -c 'echo >&9; read x <&8; exit 0'";
    let (_, out, _) = alike(&["cancelled", line], [1, 1]);
    assert_eq!(out, "cancelled: 1\nits own: 1 1\nchild: 0\nagain: exited 4\n");
}

/// Shells move a descriptor that they redirect to 10 or above. Regression: lines ran without a
/// shell though no number was left there.
#[test]
fn a_line_fails_where_the_shell_has_no_descriptor_left() {
    if !shell_waits() {
        return;
    }
    let line = "/bin/true > /dev/null";
    for limit in ["8", "10"] {
        let (_, out, _) = alike(&["descriptors", line, limit], [0, 2]);
        assert!(out.contains("exited 2"), "{out}");
    }
    alike(&["descriptors", line, "20"], [2, 0]);
    alike(&["descriptors", "/bin/true", "8"], [2, 0]);
}

/// Regression: a variable that the shell or the line sets was exported as often as it was there.
#[test]
fn a_variable_that_is_there_twice_is_exported_once() {
    let env = "/usr/bin/env";
    for (line, variables) in [
        (env, ["PWD=/nonexistent", "PWD=/"]),
        (env, ["PWD=/", "PWD=/nonexistent"]),
        (env, ["A=1", "A=2"]),
        ("A=3 /usr/bin/env", ["A=1", "A=2"]),
    ] {
        let case = [&["environment", line, "PATH=/usr/bin:/bin"][..], &variables].concat();
        let (_, out, _) = alike(&case, [0, 2]);
        let name = &variables[0][..=variables[0].find('=').expect("a variable")];
        assert_eq!(out.lines().filter(|line| line.starts_with(name)).count(), 2, "{out}");
    }
}

/// The program's filter permits libc's calls. Regression: the line's program was killed before it
/// was executed.
#[test]
fn a_program_with_a_filter_has_libc_run_its_lines() {
    alike(&["filter", "/bin/true"], [0, 4]);
    // A stream from before the filter is closed without a call that libc would not make.
    let (_, out, _) = alike(&["filter", DIES, "x"], [1, 4]);
    assert!(out.contains("before\npclose: exited 0\n"), "{out}");
}

/// Regression: PWD was `(unreachable)/d`.
#[test]
fn a_directory_that_cannot_be_reached_is_the_shells_to_name() {
    if !may_mount("mount") {
        return;
    }
    let folder = file_of("unreachable");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (_, out, _) = alike(&["unreachable", "/usr/bin/printenv PWD", &folder], [0, 2]);
    assert!(!out.contains("(unreachable)"), "{out}");
    std::fs::remove_dir(&folder).expect("empty");
}

/// Regression: lines ran where the shell could not be executed.
#[test]
fn where_the_shell_may_not_be_executed_nothing_runs() {
    if may_mount("mount") {
        let (_, out, _) = alike(&["shell_refused", "/bin/echo ran"], [1, 2]);
        assert_eq!(out.matches("ran").count(), 1, "{out}");
    }
}

/// Each libc has its own errno for that. Regression: `popen` told glibc's callers ENOENT for
/// ENOMEM.
#[test]
fn where_no_shell_can_be_executed_libc_says_so() {
    if !root_to("change the root directory") {
        return;
    }
    let folder = temporary(&format!("shell_ends.root.{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of root's");
    alike(&["no_shell", "/bin/true", folder.to_str().expect("UTF-8")], [0, 2]);
    std::fs::remove_dir(&folder).expect("empty");
}
