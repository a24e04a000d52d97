//! Libraries know nothing of the tool: no string of theirs holds the name of one of its commands,
//! one of its flags, or the beginning of its error messages. A library says what is wrong in types;
//! the command line spells it.
//!
//! Commands and flags are read from the command's own sources, so other programs' flags are free.
//! Comments may name the tool.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use proc_macro2::{Delimiter, TokenTree};

use crate::ratchet::only_fewer;
use crate::source::{Crate, is_punct, is_word, place, rows};

/// The crates that are the tool, or measure it.
const TOOL: &[&str] = &["forkless-cli", "forkless-lab", "xtask", "server-example"];

/// Strings that are there: the crate, and how many. A number may only fall, and the table is to
/// become empty.
const OPEN: &[(&str, usize)] = &[("forkless-preload", 1)];

/// What a string may hold in one crate, and why.
const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "forkless-preload",
        "forkless: ",
        "it writes to the standard error of a program that does not know it, and must name itself",
    ),
    ("forkless-diagnose", "--pid=host", "a flag of docker"),
];

/// Mistakes, for [`crate::layers`].
pub(crate) fn check(crates: &[Crate]) -> Result<Vec<String>> {
    let words = Words::of(crates)?;
    Ok(words.check(crates, OPEN, ALLOWED))
}

/// How the tool is spelled.
#[derive(Debug)]
struct Words {
    commands: BTreeSet<String>,
    flags: BTreeSet<String>,
}

impl Words {
    /// From clap's attributes in the command's crate: `#[arg(long)]` on a field, and the variants
    /// of `Subcommand`s.
    fn of(crates: &[Crate]) -> Result<Self> {
        let mut words = Self { commands: BTreeSet::new(), flags: BTreeSet::new() };
        let command = crates.iter().filter(|it| it.name == "forkless-cli");
        for module in command.flat_map(|it| &it.modules) {
            rows(&module.tokens, &mut |row| {
                for (at, token) in row.iter().enumerate() {
                    let TokenTree::Group(group) = token else { continue };
                    let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                    let attribute = inside.first().map(ToString::to_string).unwrap_or_default();
                    if group.delimiter() != Delimiter::Bracket || attribute != "arg" {
                        continue;
                    }
                    words.flags.extend(flag(&inside, &row[at + 1..]));
                }
            });
            words.read_commands(&module.tokens);
        }
        ensure!(
            words.flags.len() > 20 && words.commands.contains("run"),
            "the flags and commands of forkless-cli are not found: has clap's way to define them changed? {words:?}"
        );
        Ok(words)
    }

    /// The variants of `enum Command`.
    fn read_commands(&mut self, tokens: &[TokenTree]) {
        for window in tokens.windows(3) {
            if let [word, name, TokenTree::Group(body)] = window
                && is_word(word, "enum")
                && is_word(name, "Command")
            {
                let body: Vec<TokenTree> = body.stream().into_iter().collect();
                for variant in body.split(|token| is_punct(token, ',')) {
                    let name = variant.iter().find_map(|token| match token {
                        TokenTree::Ident(name) => Some(name.to_string()),
                        _ => None,
                    });
                    self.commands.extend(name.map(|name| name.to_lowercase()));
                }
            }
        }
    }

    fn check(&self, crates: &[Crate], open: &[(&str, usize)], allowed: &[(&str, &str, &str)]) -> Vec<String> {
        let mut used = vec![false; allowed.len()];
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for it in crates.iter().filter(|it| !TOOL.contains(&it.name.as_str())) {
            let found = found.entry(it.name.clone()).or_default();
            for module in &it.modules {
                rows(&module.tokens, &mut |row| {
                    for token in row.iter().filter(|token| matches!(token, TokenTree::Literal(_))) {
                        let mut text = token.to_string();
                        for (at, (name, words, _)) in allowed.iter().enumerate() {
                            if *name == it.name && text.contains(words) {
                                used[at] = true;
                                text = text.replace(words, "");
                            }
                        }
                        if let Some(word) = self.first_in(&text) {
                            found.push(format!("{}: {word}", place(module, token)));
                        }
                    }
                });
            }
        }
        let what = "strings name the tool or its flags";
        let mut wrong = only_fewer(&found, open, what, "xtask/src/tool_words.rs");
        for ((name, words, _), _) in allowed.iter().zip(used).filter(|(_, used)| !used) {
            wrong.push(format!("xtask/src/tool_words.rs: no string of {name} holds {words:?} any more"));
        }
        wrong
    }

    /// The first word of the tool's in a literal.
    fn first_in(&self, literal: &str) -> Option<String> {
        let text = literal.trim_start_matches(['b', 'c', 'r', '#']).strip_prefix('"')?;
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
        for (at, _) in text.match_indices("--") {
            let rest = &text[at + 2..];
            let long = rest.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(rest.len());
            if self.flags.contains(&rest[..long])
                && !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-')
            {
                return Some(format!("--{}", &rest[..long]));
            }
        }
        for (at, _) in text.match_indices("forkless ") {
            let rest = &text[at + "forkless ".len()..];
            let command =
                self.commands.iter().find(|name| rest.strip_prefix(name.as_str()).is_some_and(ends));
            if let Some(command) = command {
                return Some(format!("forkless {command}"));
            }
        }
        let other = if text.starts_with("forkless: ") { Some("forkless: ") } else { None };
        other.or_else(|| text.contains("`forkless ").then_some("`forkless ")).map(str::to_owned)
    }
}

/// The long flag of `#[arg(...)]`: its `long = "..."`, or the name of the field behind it.
fn flag(attribute: &[TokenTree], behind: &[TokenTree]) -> Option<String> {
    let Some(TokenTree::Group(settings)) = attribute.get(1) else { return None };
    let settings: Vec<TokenTree> = settings.stream().into_iter().collect();
    let at = settings.iter().position(|token| is_word(token, "long"))?;
    if settings.get(at + 1).is_some_and(|token| is_punct(token, '=')) {
        return Some(settings.get(at + 2)?.to_string().trim_matches('"').to_owned());
    }
    let field =
        behind.windows(2).find(|pair| is_punct(&pair[1], ':') && matches!(pair[0], TokenTree::Ident(_)))?;
    Some(field[0].to_string().trim_start_matches("r#").replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn words() -> Words {
        let of = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Words { commands: of(&["run"]), flags: of(&["fork", "huge-pages"]) }
    }

    #[test]
    fn flags_and_commands_are_read_from_claps_attributes() {
        let text = "enum Command { Run(run::Args), Repair(A) }\nstruct Args {\n#[arg(short, long, value_name = \"A\")]\nhuge_pages: X,\n\
                    #[arg(long = \"as\")]\npub(super) other: Y,\n#[arg(value_name = \"FILE\")]\nfile: Z,\n#[arg(long)]\nr#type: Q }";
        let mut words = Words { commands: BTreeSet::new(), flags: BTreeSet::new() };
        let it = sample(&[("src/lib.rs", text)]);
        words.read_commands(&it.modules[0].tokens);
        assert_eq!(words.commands.iter().collect::<Vec<_>>(), ["repair", "run"]);
        let crates = [Crate { name: "forkless-cli".to_owned(), modules: it.modules }];
        let said = Words::of(&crates).expect_err("too few to be true").to_string();
        assert!(said.contains(r#"flags: {"as", "huge-pages", "type"}"#), "{said}");
    }

    #[test]
    fn a_string_that_names_the_tool_is_found_and_another_programs_is_not() {
        let words = words();
        let named = [
            "\"see `forkless run`\"",
            "\"forkless: no\"",
            "b\"--fork=off\"",
            "r#\"a --huge-pages\"#",
            "\"forkless run\"",
        ];
        for text in named {
            assert!(words.first_in(text).is_some(), "{text}");
        }
        for text in [
            "\"--forks\"",
            "\"--port\"",
            "\"forkless runs\"",
            "\"---fork\"",
            "\"libforkless: x\"",
            "'-'",
            "1",
        ] {
            assert_eq!(words.first_in(text), None, "{text}");
        }
    }

    #[test]
    fn the_number_of_such_strings_may_only_fall() {
        let text = "//! forkless run\n/// `forkless run`\nfn f() { g(\"--fork\"); }\n#[error(\"forkless: {0}\")]\nstruct E;";
        let crates = [sample(&[("src/lib.rs", text)])];
        let wrong =
            |open: &[(&str, usize)], allowed: &[(&str, &str, &str)]| words().check(&crates, open, allowed);
        assert_eq!(wrong(&[("sample", 2)], &[]), Vec::<String>::new());
        let more = wrong(&[("sample", 1)], &[]);
        assert_eq!(more[1..], ["    src/lib.rs:3: --fork", "    src/lib.rs:4: forkless: "]);
        assert_eq!(wrong(&[("sample", 3)], &[]).len(), 1);
        assert_eq!(wrong(&[("sample", 1)], &[("sample", "forkless: ", "reason")]), Vec::<String>::new());
        assert_eq!(wrong(&[("sample", 2), ("gone", 1)], &[("sample", "unused", "reason")]).len(), 2);
    }
}
