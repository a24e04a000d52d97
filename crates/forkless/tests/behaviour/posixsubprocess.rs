//! A command that keeps to the order of CPython's `_posixsubprocess`, for the Python package.

use crate::faults::Dir;
use crate::support::{cases, skip};
use forkless::{Command, Step};
use rustix::process::{getgroups, getuid};

fn the_first_file_that_runs_is_taken_and_the_first_real_error_is_told() {
    let mut command = Command::new("sh");
    command.as_posixsubprocess().args(["-c", "exit 5"]);
    let own = Dir::new();
    let no_program = own.0.join("text");
    std::fs::write(&no_program, "text").unwrap();
    let no_program = no_program.to_str().unwrap();
    command.files(["/nowhere/sh", no_program, "/bin/sh"]);
    assert_eq!(command.status().unwrap().code(), Some(5));
    command.files(["/nowhere/sh", no_program, "/nowhere/sh"]);
    let e = command.status().unwrap_err();
    assert_eq!((e.step(), e.raw_os_error()), (Step::Exec, Some(libc::EACCES)));
    command.files(["/nowhere/sh", "/dev/null/sh"]);
    assert_eq!(command.status().unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
}

fn an_exact_environment_keeps_its_order_and_its_repetitions() {
    let mut command = Command::new("env");
    command.files(["/usr/bin/env"]).exact_environment(["B=1", "A=2", "B=3"]);
    assert_eq!(command.output().unwrap().stdout, b"B=1\nA=2\nB=3\n");
}

fn the_directory_comes_before_the_group() {
    let mut command = Command::new("/bin/true");
    command.as_posixsubprocess().current_dir("/nowhere").process_group(-5);
    assert_eq!(command.status().unwrap_err().step(), Step::Chdir);
    let mut command = Command::new("/bin/true");
    command.current_dir("/nowhere").process_group(-5);
    assert_eq!(command.status().unwrap_err().step(), Step::ProcessGroup);
}

fn a_user_keeps_the_groups_and_loses_the_way_back() {
    if !getuid().is_root() {
        skip("only root changes its user");
    }
    let mine = getgroups().unwrap();
    let mut command = Command::new("grep");
    command.as_posixsubprocess().args(["-E", "^(Uid|Groups)", "/proc/self/status"]).uid(65534);
    let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let (uid, groups) = out.split_once('\n').unwrap();
    assert_eq!(uid, "Uid:\t65534\t65534\t65534\t65534");
    let groups: Vec<u32> =
        groups.trim().trim_start_matches("Groups:").split_whitespace().map(|g| g.parse().unwrap()).collect();
    let mut mine: Vec<u32> = mine.iter().map(|g| g.as_raw()).collect();
    mine.sort_unstable();
    assert_eq!(groups, mine);
}

cases![
    the_first_file_that_runs_is_taken_and_the_first_real_error_is_told,
    an_exact_environment_keeps_its_order_and_its_repetitions,
    the_directory_comes_before_the_group,
    a_user_keeps_the_groups_and_loses_the_way_back,
];
