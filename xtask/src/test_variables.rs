//! Environment variables that tests and scripts read stand in CONTRIBUTING.md's table. Without it
//! nobody knows that a test can be made longer, or a store put elsewhere.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::tree;

/// What begins the name of a variable that is read.
const READS: [&str; 8] = [
    "var(\"",
    "var_os(\"",
    "number(\"",
    "asked_for(\"",
    "from_environment(\"",
    "getenv(\"",
    "environ.get(\"",
    "${",
];

/// Variables that one part of a test hands to another, and nobody sets.
const HANDED_ON: [&str; 1] = ["FORKLESS_TEST_IMPORTS"];

/// Mistakes, for [`crate::layers`].
pub(crate) fn check() -> Result<Vec<String>> {
    let page = std::fs::read_to_string(tree::root().join("CONTRIBUTING.md"))?;
    let listed = table(&page);
    let mut unread = listed.clone();
    let mut wrong = Vec::new();
    for file in tree::files()?.iter().filter(|file| is_of_tests(file)) {
        let Some(text) = tree::text(file)? else { continue };
        for name in read_in(&text) {
            if !listed.contains(name) && !HANDED_ON.contains(&name) {
                wrong.push(format!("{} reads {name}, which CONTRIBUTING.md's table lacks", file.display()));
            }
            unread.remove(name);
        }
    }
    wrong.extend(unread.iter().map(|name| format!("CONTRIBUTING.md lists {name}, which no test reads")));
    Ok(wrong)
}

/// Scripts and tests; what programs read, the guide tells.
fn is_of_tests(file: &Path) -> bool {
    let is_code = file
        .extension()
        .is_none_or(|extension| ["rs", "c", "py", "sh"].iter().any(|code| extension == *code));
    is_code
        && (file == Path::new("x")
            || file.iter().any(|part| part == "tests")
            || ["fixtures", "packaging"].iter().any(|folder| file.starts_with(folder)))
}

/// The names in the first cells of the table's rows.
fn table(page: &str) -> BTreeSet<&str> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    let names = cells.flat_map(|(cell, _)| cell.split(", ").map(|name| name.trim_matches('`')));
    names.filter(|name| name.starts_with("FORKLESS_") && !name.contains([' ', '='])).collect()
}

/// The variables of ours that a text reads. In a shell, those that may be unset.
fn read_in(text: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for begins in READS {
        for (at, _) in text.match_indices(begins) {
            let rest = &text[at + begins.len()..];
            let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let (name, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
            let may_be_unset = after.starts_with('"') || after.starts_with('-') || after.starts_with(":-");
            if name.starts_with("FORKLESS_") && may_be_unset {
                names.insert(name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_told_from_settings_and_rows_are_found() {
        let text = r#"
            let n = number("FORKLESS_A"); std::env::var_os("FORKLESS_B"); command.env("FORKLESS_C", "1");
            getenv("OTHER"); "${FORKLESS_D-}" ${FORKLESS_E:-x} ${FORKLESS_F##*,} ${FORKLESS_G:+set}"#;
        let expected = ["FORKLESS_A", "FORKLESS_B", "FORKLESS_D", "FORKLESS_E"];
        assert_eq!(read_in(text), BTreeSet::from(expected));
        let page = "`FORKLESS_X`\n| `FORKLESS_A`, `FORKLESS_B2` | x | y |\n| `FORKLESS_C=1 test` | x |\n";
        assert_eq!(table(page), BTreeSet::from(["FORKLESS_A", "FORKLESS_B2"]));
    }
}
