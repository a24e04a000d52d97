//! The Rust sources as the checks of [`crate::layers`] read them: the modules of each crate, as
//! tokens without test code.
//!
//! It follows `mod` declarations from `lib.rs` and `main.rs`. Comments are gone. So are attributes,
//! except those whose text reaches a user (`#[error("...")]`), and every item under `#[cfg(test)]`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::tree;

/// One crate: a library or a program.
#[derive(Debug)]
pub(crate) struct Crate {
    /// The name of its folder.
    pub(crate) name: String,
    pub(crate) modules: Vec<Module>,
}

/// One module. Those with two bodies, by `cfg`, appear twice.
#[derive(Debug)]
pub(crate) struct Module {
    /// Names from the root of the crate; none for the root itself.
    pub(crate) path: Vec<String>,
    pub(crate) file: PathBuf,
    /// Its own code, without its child modules.
    pub(crate) tokens: Vec<TokenTree>,
}

/// Every crate of the tree.
pub(crate) fn crates() -> Result<Vec<Crate>> {
    let mut found = Vec::new();
    for file in tree::files()? {
        let is_root = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
        let Some(folder) = file.ancestors().nth(2).filter(|_| is_root) else { continue };
        if !tree::root().join(folder).join("Cargo.toml").is_file() {
            continue;
        }
        let name = folder.file_name().context("a package without a folder")?.to_string_lossy().into_owned();
        let read = |file: &Path| tree::text(file)?.with_context(|| format!("{}: not text", file.display()));
        let modules = modules(&file, &read)?;
        found.push(Crate { name, modules });
    }
    Ok(found)
}

/// The modules below a root file; `read` gives a file's text.
pub(crate) fn modules(root: &Path, read: &dyn Fn(&Path) -> Result<String>) -> Result<Vec<Module>> {
    let mut reader = Reader { read, found: Vec::new() };
    let folder = root.parent().unwrap_or(Path::new("")).to_owned();
    reader.file(Vec::new(), root, &folder)?;
    Ok(reader.found)
}

struct Reader<'a> {
    read: &'a dyn Fn(&Path) -> Result<String>,
    found: Vec<Module>,
}

impl Reader<'_> {
    fn file(&mut self, path: Vec<String>, file: &Path, folder: &Path) -> Result<()> {
        let text = (self.read)(file).with_context(|| file.display().to_string())?;
        let tokens: TokenStream =
            text.parse().map_err(|error| anyhow!("{}: not Rust: {error}", file.display()))?;
        self.body(path, file, folder, live(tokens))
    }

    /// `folder` holds the files of its child modules.
    fn body(&mut self, path: Vec<String>, file: &Path, folder: &Path, tokens: Vec<TokenTree>) -> Result<()> {
        let at = self.found.len();
        self.found.push(Module { path: path.clone(), file: file.to_owned(), tokens: Vec::new() });
        let mut own = Vec::new();
        let mut tokens = tokens.into_iter().peekable();
        // The files of `#[path = "..."]`, relative to the folder of the file that has it.
        let mut elsewhere = Vec::new();
        while let Some(token) = tokens.next() {
            if let TokenTree::Group(attribute) = &token
                && let Some(written) = path_attribute(attribute)
            {
                elsewhere.push(written);
                continue;
            }
            let is_declaration = is_word(&token, "mod") && matches!(tokens.peek(), Some(TokenTree::Ident(_)));
            if !is_declaration {
                own.push(token);
                continue;
            }
            let name = tokens.next().map(|name| name.to_string()).unwrap_or_default();
            let child = [&path[..], std::slice::from_ref(&name)].concat();
            let inside = folder.join(&name);
            match tokens.next() {
                Some(TokenTree::Group(body)) => {
                    self.body(child, file, &inside, body.stream().into_iter().collect())?;
                }
                _ => {
                    let beside = file.parent().unwrap_or(Path::new(""));
                    let files = [inside.with_extension("rs"), inside.join("mod.rs")];
                    let usual = files.iter().find(|file| (self.read)(file).is_ok());
                    if elsewhere.is_empty() || usual.is_some() {
                        self.file(child.clone(), usual.unwrap_or(&files[0]), &inside)?;
                    }
                    for written in elsewhere.drain(..) {
                        self.file(child.clone(), &beside.join(written), beside)?;
                    }
                }
            }
        }
        self.found[at].tokens = own;
        Ok(())
    }
}

/// The tokens without test code and without attributes, but for those that hold a user's text or a
/// file's name.
fn live(tokens: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let bang = usize::from(tokens.get(at + 1).is_some_and(|token| is_punct(token, '!')));
        if is_punct(&tokens[at], '#')
            && let Some(TokenTree::Group(attribute)) = tokens.get(at + 1 + bang)
            && attribute.delimiter() == Delimiter::Bracket
        {
            at += 2 + bang;
            if is_for_tests(attribute) {
                at = after_item(&tokens, at);
            } else if is_read(attribute) {
                kept.push(TokenTree::Group(attribute.clone()));
            }
            continue;
        }
        kept.push(match &tokens[at] {
            TokenTree::Group(group) => {
                let mut inside = Group::new(group.delimiter(), live(group.stream()).into_iter().collect());
                inside.set_span(group.span());
                TokenTree::Group(inside)
            }
            other => other.clone(),
        });
        at += 1;
    }
    kept
}

/// `#[cfg(test)]` and `#[cfg(all(test, ...))]`.
fn is_for_tests(attribute: &Group) -> bool {
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,") || text == "test"
}

fn is_read(attribute: &Group) -> bool {
    let name = attribute.stream().into_iter().next();
    let is_text = name.is_some_and(|name| ["error", "arg"].iter().any(|word| is_word(&name, word)));
    is_text || path_attribute(attribute).is_some()
}

/// The file of `#[path = "..."]` or `#[cfg_attr(..., path = "...")]`.
fn path_attribute(attribute: &Group) -> Option<String> {
    let name = attribute.stream().into_iter().next()?;
    if attribute.delimiter() != Delimiter::Bracket || !(is_word(&name, "path") || is_word(&name, "cfg_attr"))
    {
        return None;
    }
    let mut found = None;
    rows(&attribute.stream().into_iter().collect::<Vec<_>>(), &mut |row| {
        for at in 2..row.len() {
            if is_word(&row[at - 2], "path") && is_punct(&row[at - 1], '=') {
                found = Some(row[at].to_string().trim_matches('"').to_owned());
            }
        }
    });
    found
}

/// The place after the item, field, arm or statement that begins at `at`, with its other
/// attributes.
fn after_item(tokens: &[TokenTree], mut at: usize) -> usize {
    while at + 1 < tokens.len() && is_punct(&tokens[at], '#') {
        at += 2;
    }
    let words = ["use", "const", "static", "type", "let", "extern"];
    let begins = tokens[at..].iter().take(4).find_map(|token| match token {
        TokenTree::Ident(word) if *word == "pub" => None,
        TokenTree::Group(_) => None,
        other => Some(words.iter().any(|word| is_word(other, word))),
    });
    // `const fn` ends with its body as every function does.
    let is_function = tokens[at..].iter().take(6).any(|token| is_word(token, "fn"));
    let to_semicolon = begins.unwrap_or(false) && !is_function;
    let is_item = |token: &TokenTree| {
        ["fn", "mod", "impl", "struct", "enum", "union", "trait", "macro_rules"]
            .iter()
            .any(|word| is_word(token, word))
    };
    let is_item = to_semicolon || tokens[at..].iter().take(6).any(is_item);
    while at < tokens.len() {
        let token = &tokens[at];
        at += 1;
        let body = matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        if is_punct(token, ';') || (body && !to_semicolon) || (!is_item && is_punct(token, ',')) {
            break;
        }
    }
    at
}

pub(crate) fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if *ident == word)
}

pub(crate) fn is_punct(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// `::` at `at`.
pub(crate) fn is_path_mark(tokens: &[TokenTree], at: usize) -> bool {
    let mark = |at: usize| tokens.get(at).is_some_and(|token| is_punct(token, ':'));
    mark(at) && mark(at + 1)
}

/// Calls `see` with every row of tokens: the module's own, and that of each group in it.
pub(crate) fn rows(tokens: &[TokenTree], see: &mut dyn FnMut(&[TokenTree])) {
    see(tokens);
    for token in tokens {
        if let TokenTree::Group(group) = token {
            rows(&group.stream().into_iter().collect::<Vec<_>>(), see);
        }
    }
}

/// `file:line` of a token.
pub(crate) fn place(module: &Module, token: &TokenTree) -> String {
    format!("{}:{}", module.file.display(), token.span().start().line)
}

/// The modules of a crate whose files are given as text.
#[cfg(test)]
pub(crate) fn sample(files: &[(&str, &str)]) -> Crate {
    let read = |file: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == file);
        found.map(|(_, text)| (*text).to_owned()).context("no such file")
    };
    let modules = modules(Path::new(files[0].0), &read).expect("the sample is Rust");
    Crate { name: "sample".to_owned(), modules }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(files: &[(&str, &str)]) -> Vec<String> {
        let show = |module: &Module| {
            let tokens: TokenStream = module.tokens.iter().cloned().collect();
            let text: String = tokens.to_string().split_whitespace().collect();
            format!("{}={text}", module.path.join("::"))
        };
        sample(files).modules.iter().map(show).collect()
    }

    #[test]
    fn modules_are_found_in_files_folders_and_bodies() {
        let files = [
            (
                "src/lib.rs",
                "mod a;\nmod b;\npub mod c { mod d; f(); }\n#[path = \"other.rs\"]\nmod e;\n\
                 #[cfg_attr(unix, path = \"c/d.rs\")]\nmod h;",
            ),
            ("src/a.rs", "mod inner;"),
            ("src/a/inner.rs", "g()"),
            ("src/b/mod.rs", "mod deep;"),
            ("src/b/deep.rs", ""),
            ("src/c/d.rs", "fn h() { let path = 1; h(); }"),
            ("src/other.rs", "i()"),
            ("src/h.rs", "j()"),
        ];
        let found = [
            "=pub",
            "a=",
            "a::inner=g()",
            "b=",
            "b::deep=",
            "c=f();",
            "c::d=fnh(){letpath=1;h();}",
            "e=i()",
            "h=j()",
            "h=fnh(){letpath=1;h();}",
        ];
        assert_eq!(shown(&files), found);
    }

    #[test]
    fn test_code_comments_and_attributes_are_left_out() {
        let text = "//! Head.\n#![expect(x, reason = \"r\")]\n/// Doc.\n#[cfg(test)]\n#[derive(A)]\npub(crate) const fn a() { b(); }\nfn c() {\n\
                    #[cfg(test)]\nlet x = S { y: 1 };\nd();\n}\n#[cfg(test)]\nuse {e, f};\n#[cfg(all(test, unix))]\nmod tests;\n\
                    enum G { #[cfg(test)] H(u8), #[error(\"i\")] J }\n#[test]\nfn k() {}\n";
        assert_eq!(shown(&[("src/lib.rs", text)]), ["=fnc(){d();}enumG{[error(\"i\")]J}"]);
    }
}
