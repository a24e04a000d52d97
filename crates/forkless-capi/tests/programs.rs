//! C programs against the library, compiled by each compiler: what they check is in their own text.

mod support;

use support::{CLANG, GCC, Link, c_sources, compile, have, run, tiny};

/// Compiles with each compiler that is there, links each way once, and runs.
fn everywhere(program: &str, args: &[&str]) {
    for (compiler, link) in [(GCC, Link::Shared), (CLANG, Link::Shared), (GCC, Link::Static)] {
        if have(compiler) {
            run(&compile(compiler, &c_sources().join(program), link), args);
        }
    }
}

#[test]
fn faults_end_in_their_documented_error_and_leave_nothing() {
    everywhere("faults.c", &[]);
}

#[test]
fn null_is_answered_as_documented() {
    everywhere("nulls.c", &[]);
}

#[test]
fn drop_ins_behave_as_libcs() {
    let tiny = tiny().to_str().expect("a path");
    everywhere("dropins.c", &[tiny]);
}
