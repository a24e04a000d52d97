//! Comments of Rust, C, shell, TOML and linker scripts and prose of Markdown end at column 100.
//! rustfmt's `comment_width` works in nightly only.
//!
//! Tables, code blocks, headings and lines with a link are free, as are words without a space to
//! break at. So are results of a day that the command has written.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::ratchet::only_fewer;
use crate::tree;

const WIDTH: usize = 100;

/// Lines that are too long and may be: the crate or folder, and how many. They are comments of C
/// and shell.
const OPEN: &[(&str, usize)] = &[
    ("bindings", 5),
    ("bpf", 3),
    ("fixtures", 42),
    ("forkless-capi", 9),
    ("forkless-lab", 10),
    ("include", 1),
    ("packaging", 22),
    ("tests", 10),
    ("xtask", 7),
];

/// Mistakes, for [`crate::layers`].
pub(crate) fn check() -> Result<Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in tree::files()? {
        let long: fn(&str) -> Vec<usize> = match file.extension().and_then(|extension| extension.to_str()) {
            Some("md") => long_prose,
            Some("rs") => |text| long_comments(text, "//"),
            Some("toml" | "sh") => |text| long_comments(text, "#"),
            Some("c" | "h" | "ld") => long_comments_of_c,
            _ => continue,
        };
        if is_a_result(&file) {
            continue;
        }
        let Some(text) = tree::text(&file)? else { continue };
        let long = long(&text);
        let places = long.into_iter().map(|line| format!("{}:{line}", file.display()));
        found.entry(room(&file)).or_default().extend(places);
    }
    let what = format!("lines of prose pass column {WIDTH}");
    Ok(only_fewer(&found, OPEN, &what, "xtask/src/width.rs"))
}

/// Whether the page is what `forkless reproduce` wrote on a day: its name begins with the date.
fn is_a_result(file: &Path) -> bool {
    let name = file.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
    file.starts_with("docs/reproduction") && name.starts_with("20")
}

/// The crate of a file, else its folder at the top; `/` for pages at the root.
fn room(file: &Path) -> String {
    let parts: Vec<String> = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match &parts[..] {
        [top, name, _, ..] if top == "crates" => name.clone(),
        [top, _, ..] => top.clone(),
        _ => "/".to_owned(),
    }
}

/// The numbers of the lines, from 1, that are only a comment, and too long.
fn long_comments(text: &str, begins: &str) -> Vec<usize> {
    let mut fenced = false;
    numbers(text, |line| {
        let Some(comment) = line.trim_start().strip_prefix(begins) else {
            fenced = false;
            return false;
        };
        is_long_prose(line, comment.trim_start_matches(['/', '!']).trim_start(), &mut fenced)
    })
}

/// The same for C, whose comments may go on over lines.
fn long_comments_of_c(text: &str) -> Vec<usize> {
    let mut inside = false;
    numbers(text, |line| {
        let code = line.trim_start();
        let begins = code.starts_with("/*");
        let is_comment = inside || begins || code.starts_with("//");
        inside = (inside || begins) && !code.ends_with("*/");
        is_comment && is_long_prose(line, code.trim_start_matches(['/', '*']).trim_start(), &mut false)
    })
}

fn long_prose(text: &str) -> Vec<usize> {
    let mut fenced = false;
    numbers(text, |line| is_long_prose(line, line.trim_start(), &mut fenced))
}

fn numbers(text: &str, mut is_long: impl FnMut(&str) -> bool) -> Vec<usize> {
    text.lines().enumerate().filter(|(_, line)| is_long(line)).map(|(at, _)| at + 1).collect()
}

fn is_long_prose(line: &str, prose: &str, fenced: &mut bool) -> bool {
    if prose.starts_with("```") {
        *fenced = !*fenced;
    }
    let is_free = prose.starts_with(['|', '#'])
        || prose.contains("://")
        || prose.contains("](")
        || !prose.contains(' ');
    !*fenced && !is_free && line.chars().count() > WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_comment_is_found_and_a_long_line_of_code_is_not() {
        let words = "word ".repeat(20);
        let text = format!(
            "// {words}\n    /// {words}\nlet x = \"{words}\"; // {words}\n// short\n//! | {words} |\n// {}\n",
            "w".repeat(100)
        );
        assert_eq!(long_comments(&text, "//"), [1, 2]);
        let text = format!(
            "/// ```\n/// {words}\n/// ```\n/// {words}\nfn f() {{}}\n// https://example.org {words}\n"
        );
        assert_eq!(long_comments(&text, "//"), [4]);
    }

    #[test]
    fn a_long_comment_of_another_language_is_found() {
        let words = "word ".repeat(20);
        assert_eq!(long_comments(&format!("# {words}\nname = \"{words}\" # {words}\n"), "#"), [1]);
        let text = format!(
            "/* short\n * {words}\n {words}\n */\nint x; /* {words} */\n\t// {words}\n/* {words} */\n"
        );
        assert_eq!(long_comments_of_c(&text), [2, 3, 6, 7]);
    }

    #[test]
    fn prose_of_a_page_is_measured_without_its_tables_code_and_links() {
        let words = "word ".repeat(21);
        let text =
            format!("{words}\n| {words} |\n```\n{words}\n```\n# {words}\n[{words}](x.md)\n- {words}\n");
        assert_eq!(long_prose(&text), [1, 8]);
    }

    #[test]
    fn a_file_belongs_to_its_crate_or_its_folder() {
        let rooms = ["crates/forkless-sys/src/fd.rs", "docs/guide/run.md", "README.md"]
            .map(|file| room(Path::new(file)));
        assert_eq!(rooms, ["forkless-sys", "docs", "/"]);
    }
}
