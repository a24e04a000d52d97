//! Every block of shell in README.md and the guide is run. A page says what the next block needs,
//! in comments that a reader does not see:
//!
//!     <!-- test: skip REASON -->     it is not run
//!     <!-- test: needs PROGRAM -->   it is run where this program is installed
//!     <!-- test: status 1 3 -->      it may end with these exit codes, and not only with 0
//!     <!-- test: file NAME -->       it is no program, but a file of this name beside the others
//!     <!-- test: but A => B -->      it is run with B in place of A
//!     <!-- test: parsed -->          it takes long: only its subcommands and flags are looked up
//!
//! A block of text after a block of shell is what it prints, on both streams. The blocks of a page
//! run in one new directory, one after the other. Blocks of Rust, C and Python are tested by their
//! own packages, which know the same comments.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use library::LIBRARY;

mod library;

/// Languages that another package's tests compile, run or read, and text that nothing runs.
const ELSEWHERE: [&str; 9] = ["rust", "c", "python", "text", "json", "yaml", "ini", "dockerfile", "toml"];

/// Pages whose shell is run by `bindings/python/tests/test_guide.py`.
const PYTHON: [&str; 2] = ["docs/guide/python.md", "docs/guide/python-asyncio.md"];

struct Block {
    line: usize,
    language: String,
    text: String,
    orders: Vec<String>,
}

impl Block {
    fn orders<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.orders.iter().filter_map(move |order| Some(order.strip_prefix(word)?.trim_start()))
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut orders = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(order) = line.strip_prefix("<!-- test: ").and_then(|rest| rest.strip_suffix(" -->")) {
            orders.push(order.to_owned());
        } else if let Some(language) = line.strip_prefix("```") {
            let body = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            let text = body.map(|line| format!("{line}\n")).collect();
            let orders = std::mem::take(&mut orders);
            found.push(Block { line: number + 1, language: language.to_owned(), text, orders });
        } else if line.starts_with('|') {
            // An order of a table is for the tests of Python.
            orders.clear();
        }
    }
    assert!(orders.is_empty(), "an order has no block after it: {orders:?}");
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and every page of the guide, as paths from the root.
fn pages() -> Vec<String> {
    let guide = fs::read_dir(root().join("docs/guide")).expect("the guide");
    let names = guide.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    let mut all: Vec<String> = names
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"))
        .map(|name| format!("docs/guide/{name}"))
        .collect();
    all.push("README.md".to_owned());
    all.push("docs/reproduction/e3-open-questions.md".to_owned());
    all.sort();
    all
}

fn is_installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", program])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// A subcommand or flag of a line that `--help` does not name. Other programs' lines are passed by.
fn unknown(line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or_default().split(" -- ").next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["forkless", rest @ ..] = &words[..] else { return None };
    let named = rest.iter().take_while(|word| !word.starts_with('-')).count();
    // `bench spawn` has a help of its own, `compare FILE` has that of `compare`.
    let help = (1..=named.min(2)).rev().find_map(|count| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
        let output = command.args(&rest[..count]).arg("--help").output().expect("forkless");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    let Some(help) = help else { return Some(format!("no such subcommand: {line}")) };
    let flags =
        rest.iter().filter(|word| word.starts_with('-')).map(|word| word.split('=').next().unwrap_or(word));
    let missing: Vec<&str> =
        flags.filter(|flag| !help.split([' ', ',', '\n', '=', '[']).any(|word| word == *flag)).collect();
    (!missing.is_empty()).then(|| format!("--help has no {}: {line}", missing.join(" ")))
}

/// Runs the shell of one page. Returns what failed, and how many blocks ran.
fn run(page: &str) -> (Vec<String>, usize) {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pages-{}", page.replace('/', "-")));
    let _ = fs::remove_dir_all(&scratch);
    let [bin, room, temporary] = ["bin", "room", "tmp"].map(|name| scratch.join(name));
    for folder in [&bin, &room, &temporary] {
        fs::create_dir_all(folder).expect("a folder");
    }
    symlink(env!("CARGO_BIN_EXE_forkless"), bin.join("forkless")).expect("the command");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("PATH"));
    let source = fs::read_to_string(root().join(page)).expect(page);
    let blocks = blocks(&source);
    let mut failed = Vec::new();
    let mut count = 0;
    for (at, block) in blocks.iter().enumerate() {
        let place = format!("{page}:{}", block.line);
        if let Some(name) = block.orders("file").next() {
            fs::write(room.join(name), &block.text).expect("a file");
            continue;
        }
        if block.language != "sh" {
            if !ELSEWHERE.contains(&block.language.as_str()) {
                failed.push(format!("{place}: a block of {:?}: say which language, or text", block.language));
            }
            continue;
        }
        if let Some(reason) = block.orders("skip").next() {
            println!("left out: {place}: {reason}");
            continue;
        }
        if let Some(program) = block.orders("needs").find(|program| !is_installed(program)) {
            println!("skipped: {place}: no {program} here");
            continue;
        }
        count += 1;
        if block.orders.iter().any(|order| order == "parsed") {
            failed.extend(block.text.lines().filter_map(|line| Some(format!("{place}: {}", unknown(line)?))));
            continue;
        }
        let mut script = block.text.clone();
        for order in block.orders("but") {
            let (from, to) = order.split_once(" => ").expect("but A => B");
            assert!(script.contains(from), "{place}: nothing to replace: {from}");
            script = script.replace(from, to);
        }
        let output = Command::new("timeout")
            .args(["300", "bash", "-euo", "pipefail", "-c", &format!("exec 2>&1\n{script}")])
            .current_dir(&room)
            .env("PATH", &path)
            .env("FORKLESS_LIBRARY", &*LIBRARY)
            .env("XDG_DATA_HOME", scratch.join("data"))
            .env("TMPDIR", &temporary)
            .env_remove("FORKLESS")
            .stdin(Stdio::null())
            .output()
            .expect("timeout");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let code = output.status.code();
        let allowed = block.orders("status").flat_map(str::split_whitespace);
        if code != Some(0) && !allowed.into_iter().any(|one| one.parse() == Ok(code.unwrap_or(-1))) {
            failed.push(format!("{place}: {code:?}: {script}{said}"));
        }
        if let Some(expected) =
            blocks.get(at + 1).filter(|next| next.language == "text" && next.orders.is_empty())
            && said != expected.text
        {
            failed.push(format!("{place}: it printed\n{said}and the page says\n{}", expected.text));
        }
    }
    fs::remove_dir_all(&scratch).expect("the test's own");
    (failed, count)
}

#[test]
fn the_shell_of_every_page_runs() {
    // What cargo builds is built once, before the threads need it.
    let _ = &*LIBRARY;
    let pages: Vec<String> = pages().into_iter().filter(|page| !PYTHON.contains(&page.as_str())).collect();
    assert!(pages.len() > 10, "{pages:?}");
    let results: Vec<(Vec<String>, usize)> = thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let mine = pages.iter().skip(half).step_by(2);
            scope.spawn(move || mine.map(|page| run(page)).collect::<Vec<_>>())
        });
        halves.into_iter().flat_map(|half| half.join().expect("no panic")).collect()
    });
    let failed: Vec<String> = results.iter().flat_map(|(failed, _)| failed.clone()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(results.iter().map(|(_, count)| count).sum::<usize>() > 0);
}

/// Such a block has no language, so nothing would tell whether it is run.
#[test]
fn no_block_is_made_by_indentation() {
    for page in pages() {
        let source = fs::read_to_string(root().join(&page)).expect("the page");
        let (mut before, mut fenced) = ("", false);
        for (number, line) in source.lines().enumerate() {
            fenced ^= line.starts_with("```");
            assert!(
                fenced || !(before.is_empty() && line.starts_with("    ")),
                "{page}:{}: begin a block by three back-ticks and its language",
                number + 1
            );
            before = line;
        }
    }
}

#[test]
fn orders_belong_to_the_next_block() {
    let found =
        blocks("<!-- test: status 1 -->\n<!-- test: but a => b -->\n```sh\na\n```\n```text\nx\n```\n");
    assert_eq!(found[0].orders("status").collect::<Vec<_>>(), ["1"]);
    assert_eq!(found[0].orders("but").collect::<Vec<_>>(), ["a => b"]);
    assert!(found[1].orders.is_empty());
    assert_eq!((found[1].line, found[1].text.as_str()), (6, "x\n"));
}

/// The words of the tests below a folder.
fn words_below(folder: &Path, words: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            words_below(&path, words);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let found = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.extend(found.map(str::to_owned));
        }
    }
}

/// A row's claim that behaviour does not change would have no evidence.
#[test]
fn each_test_that_a_page_names_as_evidence_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut words = BTreeSet::new();
    for folder in ["crates/forkless-cli/tests/run", "crates/forkless-speculate/tests"] {
        words_below(&root.join(folder), &mut words);
    }
    let page = fs::read_to_string(root.join("docs/reproduction/unobservable.md")).expect("the page");
    let mut named = 0;
    let mut evidence = None;
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').collect();
        let heading = cells.iter().position(|cell| ["tests", "fails without it"].contains(&cell.trim()));
        evidence = heading.or(evidence);
        let cell = evidence.and_then(|at| cells.get(at)).copied().unwrap_or_default();
        // What stands in parentheses says more of a test.
        let outside = |part: &str| part.split_once(')').map_or(String::new(), |(_, rest)| rest.to_owned());
        let (first, further) = cell.split_once('(').unwrap_or((cell, ""));
        let tests = first.to_owned() + &further.split('(').map(outside).collect::<String>();
        let code = tests.split('`').skip(1).step_by(2);
        for name in code.filter(|code| code.contains('_') && !code.contains(['/', ' ', '-'])) {
            assert!(words.contains(name), "unobservable.md names {name}, which is in no test");
            named += 1;
        }
    }
    assert!(named > 150, "{named} names");
}
