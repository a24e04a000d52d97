//! The C examples, compiled by each compiler, as C and as C++ where they are both; each says in its head what it prints.

mod support;

use std::fs;
use std::path::PathBuf;
use support::{CLANG, GCC, Link, compile, have, root, run};

fn examples() -> Vec<PathBuf> {
    let dir = root().join("examples/c");
    let mut all: Vec<PathBuf> = fs::read_dir(dir)
        .expect("examples/c")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "c"))
        .collect();
    all.sort();
    all
}

/// What the comment at the head says is printed, and whether only the beginning of it.
fn promised(source: &str) -> (String, bool) {
    let head = source.split("*/").next().expect("a comment");
    let mut lines = head.lines().skip_while(|l| !l.starts_with(" * Prints"));
    let intro = lines.next().expect("an example says what it prints");
    let text = lines.map_while(|l| l.strip_prefix(" * ")).map(|l| format!("{l}\n")).collect::<String>();
    assert!(!text.is_empty());
    (text, intro.contains("begin with"))
}

fn every_example_with(compiler: &str) {
    if !have(compiler) {
        return;
    }
    for example in examples() {
        let (text, beginning) = promised(&fs::read_to_string(&example).expect("source"));
        let said = run(&compile(compiler, &example, Link::Shared), &[]).stdout;
        let said = String::from_utf8(said).expect("text");
        if beginning {
            assert!(said.starts_with(text.trim_end()), "{}: {said}", example.display());
        } else {
            assert_eq!(said, text, "{}", example.display());
        }
    }
}

#[test]
fn examples_print_what_they_say_compiled_by_gcc() {
    every_example_with(GCC);
}

#[test]
fn examples_print_what_they_say_compiled_by_clang() {
    every_example_with(CLANG);
}

#[test]
fn there_are_examples() {
    assert!(examples().len() >= 10);
}
