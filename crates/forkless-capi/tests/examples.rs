//! The C examples, compiled by each compiler, as C and, where they are both, as C++. The comment at
//! the head of each says what it prints.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use support::{CLANG, GCC, Link, compile, compile_with, have, root, run, scratch};

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

/// The output that the comment at the head promises, and whether only its beginning.
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

/// A program with AddressSanitizer in its CI must not be told that memory of the library's is lost.
#[test]
fn a_leak_checker_finds_nothing_in_the_examples() {
    let nothing = scratch().join("nothing.c");
    fs::write(&nothing, "int main(void) { return 0; }\n").expect("source");
    let probe = Command::new(GCC).args(ASAN).arg(nothing).arg("-o").arg(scratch().join("nothing")).output();
    let checks = Command::new(scratch().join("nothing")).status();
    if !probe.is_ok_and(|o| o.status.success()) || !checks.is_ok_and(|s| s.success()) {
        println!("skipped: gcc has no AddressSanitizer here, or it may not look for leaks");
        return;
    }
    for example in examples() {
        run(&compile_with(GCC, &example, Link::Shared, &ASAN), &[]);
    }
}

const ASAN: [&str; 2] = ["-fsanitize=address", "-fno-omit-frame-pointer"];

#[test]
fn there_are_examples() {
    assert!(examples().len() >= 10);
}

/// The fenced blocks of a page: language and text, in order.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text = lines.by_ref().take_while(|l| *l != "```").map(|l| format!("{l}\n")).collect();
            all.push((language.to_owned(), text));
        }
    }
    all
}

#[test]
fn programs_in_the_documentation_print_what_it_says() {
    if !have(GCC) {
        return;
    }
    for (name, least) in [("docs/guide/c.md", 2), ("README.md", 1)] {
        let page = fs::read_to_string(root().join(name)).expect("the page");
        let blocks = blocks(&page);
        let mut seen = 0;
        for pair in blocks.windows(2) {
            if let [(c, source), (text, expected)] = pair
                && (c.as_str(), text.as_str()) == ("c", "text")
            {
                seen += 1;
                let path = scratch().join(format!("{}-{seen}.c", name.replace('/', "-")));
                fs::write(&path, source).expect("source");
                let said = run(&compile(GCC, &path, Link::Shared), &[]).stdout;
                assert_eq!(&String::from_utf8_lossy(&said), expected, "program {seen} of {name}");
            }
        }
        assert_eq!(
            seen,
            blocks.iter().filter(|b| b.0 == "c").count(),
            "{name}: each program has its output after it"
        );
        assert!(seen >= least, "{name}");
    }
}
