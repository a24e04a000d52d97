//! Whether the recipes of a makefile have several lines: only then one shell for a recipe saves
//! shells. A makefile is read as far as that takes; where it makes rules by itself, or includes
//! others, nothing is known.

use std::path::Path;

use crate::regular_file;

/// A larger file is not read.
const MOST: u64 = 1 << 20;

/// Whether no recipe of make's makefile has a second line. `false` where that is not known.
pub(super) fn have_one_line(directory: &Path, arguments: &[String]) -> bool {
    let Some(named) = makefile(arguments) else { return false };
    let paths: Vec<_> = match named {
        Some(file) => vec![directory.join(file)],
        // In the order of make ("Makefile Names" in its manual).
        None => ["GNUmakefile", "makefile", "Makefile"].map(|name| directory.join(name)).to_vec(),
    };
    let Some(path) = paths.into_iter().find(|path| path.is_file()) else { return false };
    // By now another file may be there.
    regular_file::text(path, MOST).is_some_and(|text| each_has_one_line(&text) == Some(true))
}

fn is_long(word: &str, option: &str) -> bool {
    word.strip_prefix("--").is_some_and(|word| word.starts_with(option))
}

/// Whether one word holds several options, as `-kf`, of which one takes a file, a directory or
/// rules: the rest of the word, or the next one.
fn is_cluster_of_names(word: &str) -> bool {
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with(['-', 'f', 'I']));
    letters.is_some_and(|letters| letters.chars().skip(1).any(|letter| "CEfI".contains(letter)))
}

/// The makefile that is named, if one is; `None` for options that add rules or directories.
fn makefile(arguments: &[String]) -> Option<Option<&str>> {
    let mut named = None;
    let mut words = arguments.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        let long = word.strip_prefix("--file=").or_else(|| word.strip_prefix("--makefile="));
        let file = match word {
            "-f" | "--file" | "--makefile" => Some(words.next()?),
            _ if word.starts_with("-C") || word.starts_with("-E") || is_cluster_of_names(word) => {
                return None;
            }
            _ if ["dir", "eval"].iter().any(|other| is_long(word, other)) => return None,
            _ => long.or_else(|| word.strip_prefix("-f")),
        };
        if file.is_some() && named.replace(file).is_some() {
            return None;
        }
    }
    Some(named.flatten())
}

fn each_has_one_line(text: &str) -> Option<bool> {
    const MAKES_RULES: [&str; 8] =
        ["include", "-include", "sinclude", "define", "load", "-load", "$(eval", ".RECIPEPREFIX"];
    let (mut lines, mut goes_on) = (0, false);
    for line in text.lines() {
        let continues = line.ends_with('\\');
        if std::mem::replace(&mut goes_on, continues) {
            continue;
        }
        let word = line.split_whitespace().next().unwrap_or_default();
        if word.is_empty() || word.starts_with('#') {
            continue;
        }
        if line.starts_with('\t') {
            // Another make has another makefile.
            if line.contains("$(MAKE)") || line.contains("${MAKE}") {
                return None;
            }
            lines += 1;
            if lines > 1 {
                return Some(false);
            }
        } else if MAKES_RULES.iter().any(|makes| word.starts_with(makes)) {
            return None;
        } else if line.contains(':') && !line.contains(":=") {
            // `target: ; line` has its first line here.
            lines = u32::from(line.contains(';'));
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_counted_line_by_line() {
        for (text, is_one) in [
            ("all: a b\na b:\n\t@true && \\\n\t  true\n# x\nc:\n\techo\n", Some(true)),
            ("a:\n\ttrue\n\n\ttrue\n", Some(false)),
            ("a: ; true\n\ttrue\n", Some(false)),
            ("x := 1\na:\n\ttrue\nifdef X\n\ttrue\nendif\n", Some(false)),
            ("include others\na:\n\ttrue\n", None),
            ("a:\n\t$(MAKE) -C b\n", None),
            ("$(eval a: b)\n", None),
            (".RECIPEPREFIX = >\na:\n> true\n> true\n", None),
        ] {
            assert_eq!(each_has_one_line(text), is_one, "{text}");
        }
    }

    #[test]
    fn the_makefile_is_the_one_that_make_reads() {
        let of = |line: &[&str]| {
            let words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
            makefile(&words).map(|named| named.map(str::to_owned))
        };
        assert_eq!(of(&["make", "-j4", "all"]), Some(None));
        assert_eq!(of(&["make", "-f", "x.mk"]), Some(Some("x.mk".to_owned())));
        assert_eq!(of(&["make", "--makefile=x.mk"]), Some(Some("x.mk".to_owned())));
        assert_eq!(of(&["make", "-ks", "-fI.mk"]), Some(Some("I.mk".to_owned())));
        let eval = concat!("--", "eval=a:");
        for unknown in [
            &["make", "-f", "a", "-f", "b"][..],
            &["make", "-C", "b"],
            &["make", "-sC", "b"],
            &["make", "-kf", "b.mk"],
            &["make", "-kfb.mk"],
            &["make", "-sI", "b"],
            &["make", "-E", "a:"],
            &["make", eval],
            &["make", "-f"],
        ] {
            assert_eq!(of(unknown), None, "{unknown:?}");
        }
        assert!(!have_one_line(Path::new("/nowhere"), &[]));
    }
}
