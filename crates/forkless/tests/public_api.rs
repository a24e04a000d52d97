//! The public API as a text that is reviewed: `docs/api/forkless.txt`. A change of it shows up in a
//! diff.
//!
//! It is read from the source: the lint `unreachable_pub` makes sure that `pub` means public. After
//! an intended change: `FORKLESS_UPDATE_API=1 cargo test -p forkless --test public_api`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            into.push(path);
        }
    }
}

/// Declarations of one file, each with the type or `impl` it is in.
fn declarations(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The item at the margin that the lines below belong to; `None` for an item that is not public.
    let mut within: Option<String> = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("#[cfg(test)]") {
            break;
        }
        let code = line.trim_start();
        let margin = line.len() == code.len();
        let is_enum = within.as_ref().is_some_and(|w| w.starts_with("pub enum"));
        let variant = is_enum
            && !margin
            && line.starts_with("    ")
            && code.starts_with(|c: char| c.is_ascii_uppercase());
        let mut whole = code.to_owned();
        // Signatures may take several lines; fields and variants do not.
        if code.starts_with("pub ") && code.contains("fn ") {
            while !whole.ends_with('{') && !whole.ends_with(';') {
                let Some(next) = lines.next() else { break };
                whole.push(' ');
                whole.push_str(next.trim());
            }
        }
        let whole = whole.trim_end_matches(['{', ',', ';', ' ']).replace("( ", "(").replace(", )", ")");
        if margin {
            if code.starts_with("pub ") {
                found.push(whole.clone());
                within = Some(whole);
            } else if code.starts_with("impl") {
                within = Some(whole);
            } else if code.starts_with(|c: char| c.is_ascii_alphabetic()) {
                within = None;
            }
        } else if let (Some(of), true) = (&within, variant || code.starts_with("pub ")) {
            found.push(format!("{of} :: {whole}"));
        }
    }
    found
}

#[test]
fn the_public_api_is_the_reviewed_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    files.sort();
    let mut listing = String::from(
        "# Public API of the crate forkless. Generated: FORKLESS_UPDATE_API=1 cargo test -p forkless --test public_api\n",
    );
    for file in files {
        let items = declarations(&std::fs::read_to_string(&file).unwrap());
        if !items.is_empty() {
            let name = file.strip_prefix(root).unwrap().display();
            let _ = writeln!(listing, "\n## {name}");
            items.iter().for_each(|i| listing.push_str(&format!("{i}\n")));
        }
    }
    let reviewed = root.join("../../docs/api/forkless.txt");
    if std::env::var_os("FORKLESS_UPDATE_API").is_some() {
        std::fs::create_dir_all(reviewed.parent().unwrap()).unwrap();
        std::fs::write(&reviewed, &listing).unwrap();
    }
    let was = std::fs::read_to_string(&reviewed).unwrap_or_default();
    let new: Vec<&str> = listing.lines().filter(|l| !was.lines().any(|w| w == *l)).collect();
    let gone: Vec<&str> = was.lines().filter(|l| !listing.lines().any(|w| w == *l)).collect();
    assert!(
        listing == was,
        "the public API changed; new: {new:#?}, gone: {gone:#?}. If that is meant, run with FORKLESS_UPDATE_API=1 and review the diff"
    );
}
