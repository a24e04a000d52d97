//! One engine: only forkless-child and forkless-sys create processes. Every other place that does
//! is listed, with its reason.
//!
//! It finds calls of libc's functions, declarations of them, system calls by number, and
//! forkless-sys's own clones. What `std::process::Command` starts is not looked at: tools and tests
//! may start programs.

use std::collections::BTreeMap;
use std::path::Path;

use proc_macro2::{Delimiter, TokenTree};

use crate::source::{Crate, Module, is_path_mark, is_punct, is_word, place, rows};

/// The crates whose purpose it is.
const ENGINE: &[&str] = &["forkless-child", "forkless-sys"];

/// The files that may create processes by themselves, and why.
const ALLOWED: &[(&str, &str)] = &[
    (
        "crates/forkless/src/start/create.rs",
        "hands the child's data to forkless-child, with the way the kernel allows",
    ),
    (
        "crates/forkless/src/kernel/emulated_vm.rs",
        "asks whether the kernel copies memory despite CLONE_VM; its child writes a word",
    ),
    ("crates/forkless-preload/src/fork/parent.rs", "makes the program's own fork, speculated"),
    (
        "crates/forkless-preload/src/fork/helper.rs",
        "a thread that opens files beside others, and attends to the child",
    ),
    (
        "crates/forkless-preload/src/fork/memory_source.rs",
        "a process that shares memory and hands pages to the child",
    ),
    (
        "crates/forkless-preload/src/interpose/x86_64.rs",
        "compares the number of the program's call, in assembly",
    ),
    ("crates/forkless-capi/src/debug_fork.rs", "popen-noshell's debug mode is fork"),
    (
        "crates/forkless-run/src/launcher/collector.rs",
        "the collector goes on as this program, without an exec",
    ),
    ("crates/forkless-run/src/launcher/filters.rs", "a child tries system calls for which a filter may kill"),
    ("crates/forkless-diagnose/src/model.rs", "times fork and clone, to predict what they cost"),
    ("crates/forkless-bench/src/spawn/libc_methods.rs", "a method: posix_spawn"),
    ("crates/forkless-bench/src/spawn/linux/clone_vm.rs", "a method: clone with shared memory"),
    ("crates/forkless-bench/src/spawn/linux/noshell.rs", "a method: popen-noshell as its author wrote it"),
    ("crates/forkless-bench/src/spawn/vfork.rs", "a method: vfork"),
    ("crates/forkless-bench/src/spawn/worker.rs", "a method: fork, and the workers that measure"),
    (
        "crates/forkless-bench/src/suites/context.rs",
        "measures in a forked child, which changes its environment",
    ),
    ("crates/forkless-bench/src/suites/context/count/linux.rs", "a forked child that is traced"),
    ("crates/forkless-bench/src/suites/syscalls/linux.rs", "a chain of execs begins with posix_spawn"),
    ("crates/forkless-lab/src/reproduce/e1.rs", "an experiment about fork"),
    ("crates/forkless-lab/src/reproduce/e3.rs", "an experiment about fork"),
    ("crates/forkless-lab/src/reproduce/trace.rs", "a forked child that is traced"),
];

const FUNCTIONS: &[&str] =
    &["fork", "vfork", "_Fork", "clone", "posix_spawn", "posix_spawnp", "forkpty", "daemon"];
const NUMBERS: &[&str] = &["fork", "vfork", "clone", "clone3"];

/// Mistakes, for [`crate::layers`].
pub(crate) fn check(crates: &[Crate]) -> Vec<String> {
    check_against(crates, ALLOWED)
}

fn check_against(crates: &[Crate], allowed: &[(&str, &str)]) -> Vec<String> {
    let mut allowed: BTreeMap<&Path, bool> =
        allowed.iter().map(|(file, _)| (Path::new(*file), false)).collect();
    let mut wrong = Vec::new();
    for it in crates.iter().filter(|it| !ENGINE.contains(&it.name.as_str())) {
        for module in &it.modules {
            let found = creations(module);
            match allowed.get_mut(module.file.as_path()) {
                Some(used) => *used |= !found.is_empty(),
                None => wrong.extend(found),
            }
        }
    }
    let stale = allowed.iter().filter(|(_, used)| !**used).map(|(file, _)| {
        format!("xtask/src/engine.rs: {} creates no process any more: take it out of ALLOWED", file.display())
    });
    wrong.extend(stale);
    wrong
}

/// Each place of a module that creates a process.
fn creations(module: &Module) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |token: &TokenTree, how: String| {
        found.push(format!("{}: {how}: processes are created by forkless-child only", place(module, token)));
    };
    rows(&module.tokens, &mut |row| {
        for (at, token) in row.iter().enumerate() {
            let name = token.to_string();
            if matches!(token, TokenTree::Ident(_)) && is_call(row, at) {
                let of =
                    at.checked_sub(3).filter(|_| is_path_mark(row, at.saturating_sub(2))).map(|at| &row[at]);
                let is_libcs = of.is_some_and(|of| is_word(of, "libc")) && FUNCTIONS.contains(&name.as_str());
                let is_ours =
                    of.is_some_and(|of| is_word(of, "clone")) && ["clone", "clone3"].contains(&name.as_str());
                if is_libcs || is_ours {
                    add(token, format!("{}::{name}", if is_libcs { "libc" } else { "clone" }));
                }
            }
            // A system call by number: the number is an argument of a function or a macro. Patterns
            // are none.
            let before = |back: usize| at.checked_sub(back).map(|at| &row[at]);
            let is_called =
                before(1).is_some_and(|it| is_punct(it, '!') || matches!(it, TokenTree::Ident(_)));
            if let TokenTree::Group(arguments) = token
                && arguments.delimiter() == Delimiter::Parenthesis
                && is_called
                && before(2).is_none_or(|it| !is_word(it, "matches"))
            {
                for argument in arguments.stream() {
                    let number = argument.to_string();
                    let call = number.strip_prefix("SYS_").or_else(|| number.strip_prefix("__NR_"));
                    if call.is_some_and(|call| NUMBERS.contains(&call)) {
                        add(&argument, number);
                    }
                }
            }
            // extern "C" { fn vfork() -> pid_t; }
            if let TokenTree::Group(body) = token
                && at > 1
                && is_word(&row[at - 2], "extern")
            {
                let body: Vec<TokenTree> = body.stream().into_iter().collect();
                for pair in body.windows(2).filter(|pair| is_word(&pair[0], "fn")) {
                    if FUNCTIONS.contains(&pair[1].to_string().as_str()) {
                        add(&pair[1], format!("extern {}", pair[1]));
                    }
                }
            }
        }
    });
    found
}

/// Whether arguments follow the name at `at`.
fn is_call(row: &[TokenTree], at: usize) -> bool {
    matches!(row.get(at + 1), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn wrong(text: &str, allowed: &[(&str, &str)]) -> Vec<String> {
        let found = check_against(&[sample(&[("src/lib.rs", text)])], allowed);
        found.iter().map(|line| line.split(": processes").next().unwrap_or(line).to_owned()).collect()
    }

    #[test]
    fn every_way_to_create_a_process_is_found() {
        let text = "unsafe extern \"C\" {\n fn vfork() -> i32;\n}\nfn f() {\n unsafe { libc::fork() };\n unsafe { libc::posix_spawnp(a, b) };\n\
                    libc::syscall(libc::SYS_clone3, &args);\n call!(__NR_vfork);\n clone::clone3(&args, child, data);\n}";
        let found =
            ["src/lib.rs:2: extern vfork", "src/lib.rs:5: libc::fork", "src/lib.rs:6: libc::posix_spawnp"];
        let numbers = ["src/lib.rs:7: SYS_clone3", "src/lib.rs:8: __NR_vfork", "src/lib.rs:9: clone::clone3"];
        let mut all = wrong(text, &[]);
        all.sort();
        assert_eq!(all, [&found[..], &numbers[..]].concat());
    }

    #[test]
    fn a_name_a_number_in_a_pattern_and_a_test_create_nothing() {
        let text = "fn f(&self) { self.fork(); let a: libc::posix_spawn_file_actions_t; match b { (libc::SYS_fork, _) => \"fork()\", libc::SYS_clone => 1 }\n matches!(c, libc::SYS_vfork);\n\
                    x.clone(); }\n#[cfg(test)]\nmod tests { fn g() { libc::fork(); } }";
        assert_eq!(wrong(text, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_listed_file_may_and_a_stale_entry_may_not_stay() {
        assert_eq!(wrong("fn f() { libc::fork(); }", &[("src/lib.rs", "a reason")]), Vec::<String>::new());
        assert_eq!(wrong("fn f() {}", &[("src/lib.rs", "a reason")]).len(), 1);
    }
}
