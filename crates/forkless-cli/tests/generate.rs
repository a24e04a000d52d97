//! The manual and the completions, for packagers.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn forkless(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forkless")).args(args).output().unwrap()
}

/// A directory of this test's own, below the one cargo gives to tests.
fn directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    directory
}

#[test]
fn every_subcommand_the_help_shows_has_a_manual_page() {
    let directory = directory("man");
    let output = forkless(&["generate", "man", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");

    let help = String::from_utf8(forkless(&["--help"]).stdout).unwrap();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let mut pages = 0;
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        if !line.starts_with("   ") && name != "help" {
            let page = fs::read_to_string(directory.join(format!("forkless-{name}.1"))).unwrap();
            assert!(page.contains(".TH "), "{name}");
            for section in ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"] {
                assert!(
                    page.contains(&format!(".SH {section}")) || page.contains(&format!(".SH \"{section}\"")),
                    "{name}: {section}"
                );
            }
            assert!(!page.contains("EXTRA"), "{name}: a section that clap_mangen has no name for");
            pages += 1;
        }
    }
    assert!(pages >= 3, "{help}");
}

/// `docs/guide/flags.md`. After an intended change:
/// `FORKLESS_UPDATE_FLAGS=1 cargo test -p forkless-cli --test generate`.
#[test]
fn the_guide_has_every_flag() {
    let mut page =
        "# Every flag\n\nThis page has each subcommand's `--help`. The manual pages have the same text.\n"
            .to_owned();
    let mut waiting = vec![Vec::new()];
    while let Some(words) = waiting.pop() {
        let output =
            Command::new(env!("CARGO_BIN_EXE_forkless")).args(&words).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let name = [&["forkless".to_owned()][..], &words].concat().join(" ");
        page += &format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
        let list = help.split_once("Commands:\n").map_or("", |(_, list)| list);
        let below = list.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
        let names: Vec<String> =
            below.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect();
        let below = names.into_iter().rev().filter(|name| name != "help");
        waiting.extend(below.map(|name| [&words[..], &[name]].concat()));
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/flags.md");
    if std::env::var_os("FORKLESS_UPDATE_FLAGS").is_some() {
        fs::write(file, &page).unwrap();
    }
    let written = fs::read_to_string(file).unwrap();
    let differs = page.lines().zip(written.lines()).find(|(new, old)| new != old);
    assert!(page == written, "{file} is not of these flags (FORKLESS_UPDATE_FLAGS=1 writes it): {differs:?}");
}

/// A section of the header, or a function: its declaration and its comment's first sentence.
enum Entry {
    Section(String),
    Function(String, String),
}

/// What a C header declares. A comment belongs to the declaration below it, and the title of a
/// section stands between two rules.
fn declared(header: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let (mut paragraphs, mut declaration) = (Vec::<String>::new(), String::new());
    let (mut within, mut below_rule) = (false, false);
    for line in header.lines() {
        let starts = line.starts_with("/*");
        if line.starts_with("/* ---") {
            below_rule = true;
        } else if below_rule && starts {
            entries.push(Entry::Section(line.trim_matches(['/', '*', ' ']).to_owned()));
            below_rule = false;
        } else if within || starts {
            if starts {
                paragraphs = vec![String::new()];
            }
            let text = line.trim_matches(['/', '*', ' ']);
            let last = paragraphs.last_mut().unwrap();
            if text.is_empty() && !last.is_empty() {
                paragraphs.push(String::new());
            } else {
                *last += &format!(" {text}");
            }
            within = !line.ends_with("*/");
        } else if line.is_empty() {
            paragraphs.clear();
            below_rule = false;
        } else if !declaration.is_empty()
            || (line.starts_with(char::is_alphabetic) && line.contains('(') && !line.starts_with("typedef"))
        {
            declaration += &format!(" {}", line.trim());
            if line.ends_with(';') {
                let text = paragraphs.first().map_or("", |first| first.trim());
                // "system(3)." alone says too little.
                let end = text.match_indices(". ").map(|(at, _)| at).find(|at| *at > 12);
                let sentence = &text[..end.unwrap_or(text.len())];
                let sentence = sentence.trim_end_matches('.').to_owned();
                entries.push(Entry::Function(std::mem::take(&mut declaration), sentence));
            }
        }
    }
    entries
}

/// In lines of 100 columns, as an item of a list.
fn item(text: &str) -> String {
    let mut lines = vec!["-".to_owned()];
    for word in text.split_whitespace() {
        if lines[lines.len() - 1].len() + 1 + word.len() > 100 {
            lines.push(" ".to_owned());
        }
        let line = lines.last_mut().unwrap();
        *line += " ";
        *line += word;
    }
    lines.join("\n") + "\n"
}

/// `docs/guide/api.md`. After an intended change:
/// `FORKLESS_UPDATE_FLAGS=1 cargo test -p forkless-cli --test generate`.
#[test]
fn the_guide_has_every_function() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |name: &str| fs::read_to_string(format!("{root}/{name}")).unwrap();
    let mut page = "# Every function\n\nThis page has each function of the C library, and each public item of the Rust library. The manual\npages and the rustdoc have the whole text. `help(forkless)` has that of the [Python\npackage](python.md), whose names are those of the standard modules.\n".to_owned();
    let mut functions = 0;
    for header in ["forkless.h", "popen_noshell.h"] {
        page += &format!("\n## C: `{header}`\n");
        let mut in_list = false;
        for entry in declared(&read(&format!("include/{header}"))) {
            match entry {
                Entry::Section(title) => {
                    page += &format!("\n### {title}\n\n");
                    in_list = true;
                }
                Entry::Function(declaration, sentence) => {
                    page += if in_list { "" } else { "\n" };
                    in_list = true;
                    functions += 1;
                    page += &item(&format!("`{}`: {sentence}.", declaration.trim()));
                }
            }
        }
    }
    let symbols = read("crates/forkless-capi/symbols.txt");
    let exported = symbols.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    assert_eq!(functions, exported, "functions in the headers, and symbols of the library");
    let rust = read("docs/api/forkless.txt");
    let (_, rust) = rust.split_once("\n\n").unwrap();
    page += &format!("\n## Rust\n\n```text\n{}\n```\n", rust.trim_end());
    let file = format!("{root}/docs/guide/api.md");
    if std::env::var_os("FORKLESS_UPDATE_FLAGS").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap();
    let differs = page.lines().zip(written.lines()).find(|(new, old)| new != old);
    assert!(page == written, "{file} is old (FORKLESS_UPDATE_FLAGS=1 writes it): {differs:?}");
}

#[test]
fn bash_accepts_its_completions() {
    let directory = directory("completions");
    let output = forkless(&["generate", "completions", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let check = Command::new("bash").arg("-n").arg(directory.join("forkless.bash")).output().unwrap();
    assert!(check.status.success() && check.stderr.is_empty(), "{check:?}");
    for other in ["_forkless", "forkless.fish"] {
        assert!(fs::read_to_string(directory.join(other)).unwrap().contains("diagnose"), "{other}");
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_one_clear_line() {
    let output = forkless(&["generate", "man", "/dev/null/man"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.starts_with("forkless: cannot write into /dev/null/man: ") && message.lines().count() == 1,
        "{message}"
    );
}
