//! No circle of imports between the modules of a crate: arrows point down only, inside a crate as
//! between crates.
//!
//! It follows `use` and every path that begins with `crate`, `super` or `self`, through re-exports
//! to the module that defines the name. An arrow between two modules counts between the siblings
//! above them. What a module and its own children take from each other does not count: the children
//! are its parts.
//!
//! Not seen: paths that begin with an imported name (their import is seen), macros' own expansions,
//! and methods.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenTree};

use crate::source::{Crate, Module, is_path_mark, is_punct, place, rows};

/// Circles that are allowed: a crate, or a folder in it, with those of its modules that are in one.
/// None is. An entry that is not needed is a mistake, too.
const OPEN_CIRCLES: &[(&str, &str)] = &[];

/// Mistakes, for [`crate::layers`].
pub(crate) fn check(crates: &[Crate]) -> Vec<String> {
    check_against(crates, OPEN_CIRCLES)
}

fn check_against(crates: &[Crate], open: &[(&str, &str)]) -> Vec<String> {
    let mut open: BTreeMap<&str, BTreeSet<&str>> =
        open.iter().map(|(folder, modules)| (*folder, modules.split(' ').collect())).collect();
    let mut wrong = Vec::new();
    for it in crates {
        for (folder, arrows) in Names::of(it).arrows() {
            let folder = [std::slice::from_ref(&it.name), &folder[..]].concat().join("::");
            let circles = circles(&arrows);
            let listed = open.remove(folder.as_str()).unwrap_or_default();
            for gone in listed.iter().filter(|name| !circles.iter().flatten().any(|found| found == **name)) {
                wrong.push(format!("{folder}: {gone} is in no circle any more: take it out of OPEN_CIRCLES"));
            }
            for circle in circles {
                if circle.iter().all(|module| listed.contains(module.as_str())) {
                    continue;
                }
                wrong.push(format!("{folder}: modules import each other in a circle: {}", circle.join(" ")));
                let inside = arrows.iter().filter(|((a, b), _)| circle.contains(a) && circle.contains(b));
                wrong.extend(inside.map(|((a, b), at)| format!("    {a} -> {b}: {at}")));
            }
        }
    }
    wrong.extend(
        open.keys().map(|gone| format!("{gone} has no circle any more: take it out of OPEN_CIRCLES")),
    );
    wrong
}

/// The arrows between siblings: where each first is.
type Arrows = BTreeMap<(String, String), String>;

/// Groups of at least two names that reach each other.
fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            for (a, b) in arrows.keys() {
                if a == at && seen.insert(b) {
                    next.push(b);
                }
            }
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|(from, _)| (from, reach(from))).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (name, reached) in all.iter().filter(|(name, reached)| reached.contains(*name)) {
        if found.iter().any(|circle| circle.contains(name)) {
            continue;
        }
        let back = |other: &&&String| all.get(**other).is_some_and(|reached| reached.contains(name));
        found.push(reached.iter().filter(back).map(|other| (*other).clone()).collect());
    }
    found
}

/// A path with the line it stands on.
#[derive(Debug, PartialEq, Eq)]
struct Reference {
    names: Vec<String>,
    at: String,
}

/// What the modules of one crate define, import and mention.
#[derive(Debug, Default)]
struct Names {
    modules: BTreeMap<Vec<String>, Scope>,
}

#[derive(Debug, Default)]
struct Scope {
    defined: BTreeSet<String>,
    /// Imported names, each with the path it stands for.
    imported: BTreeMap<String, Vec<String>>,
    /// `use path::*`.
    globs: Vec<Vec<String>>,
    references: Vec<Reference>,
}

impl Names {
    fn of(it: &Crate) -> Self {
        let mut names = Self::default();
        for module in &it.modules {
            names.modules.entry(module.path.clone()).or_default().read(module);
        }
        names
    }

    /// The arrows below each module that has children, by its path.
    fn arrows(&self) -> BTreeMap<Vec<String>, Arrows> {
        let mut found: BTreeMap<Vec<String>, Arrows> = BTreeMap::new();
        for (from, scope) in &self.modules {
            for reference in &scope.references {
                let Some(to) = self.resolve(from, &reference.names, 0) else { continue };
                let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                    let arrows = found.entry(from[..shared].to_vec()).or_default();
                    let written = || format!("{}: {}", reference.at, reference.names.join("::"));
                    arrows.entry((a.clone(), b.clone())).or_insert_with(written);
                }
            }
        }
        found
    }

    /// The module that defines what `names` stand for in the module `from`. `None`: another
    /// crate's, or unknown.
    fn resolve(&self, from: &[String], names: &[String], depth: usize) -> Option<Vec<String>> {
        if depth > 16 {
            return None;
        }
        let mut at = from.to_vec();
        let mut rest = names;
        match names.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &names[1..];
            }
            "self" => rest = &names[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let scope = self.modules.get(from)?;
                let is_child = self.modules.contains_key(&[from, &[first.to_owned()]].concat());
                if !is_child && !scope.imported.contains_key(first) {
                    return None;
                }
            }
        }
        while let Some(name) = rest.first() {
            let child = [&at[..], std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                at = child;
                rest = &rest[1..];
                continue;
            }
            let scope = self.modules.get(&at)?;
            if scope.defined.contains(name) {
                break;
            }
            if let Some(path) = scope.imported.get(name) {
                if path.first().is_some_and(|first| first == name) && path.len() == 1 {
                    return None;
                }
                let whole = [&path[..], &rest[1..]].concat();
                return self.resolve(&at, &whole, depth + 1);
            }
            let by_glob = scope.globs.iter().find_map(|glob| {
                let target = self.resolve(&at, glob, depth + 1)?;
                let scope = self.modules.get(&target)?;
                let has = scope.defined.contains(name) || scope.imported.contains_key(name);
                has.then(|| self.resolve(&target, &[&["self".to_owned()], rest].concat(), depth + 1))?
            });
            return Some(by_glob.unwrap_or(at));
        }
        Some(at)
    }
}

impl Scope {
    fn read(&mut self, module: &Module) {
        let tokens = &module.tokens;
        for (at, token) in tokens.iter().enumerate() {
            let TokenTree::Ident(word) = token else { continue };
            let named = tokens.get(at + 1).filter(|next| matches!(next, TokenTree::Ident(_)));
            match (word.to_string().as_str(), named) {
                ("fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static", Some(name)) => {
                    self.defined.insert(name.to_string());
                }
                ("use", _) => self.import(tokens, at + 1),
                _ => {}
            }
        }
        rows(tokens, &mut |row| {
            for (at, token) in row.iter().enumerate() {
                let begins =
                    ["crate", "super", "self"].iter().any(|word| crate::source::is_word(token, word));
                let continues = at >= 2 && is_path_mark(row, at - 2);
                if begins && !continues && is_path_mark(row, at + 1) {
                    let mut paths = Vec::new();
                    tree(row, at, &[], &mut paths);
                    let at = place(module, token);
                    self.references
                        .extend(paths.into_iter().map(|(names, _)| Reference { names, at: at.clone() }));
                }
            }
        });
    }

    fn import(&mut self, tokens: &[TokenTree], at: usize) {
        let mut paths = Vec::new();
        tree(tokens, at, &[], &mut paths);
        for (names, alias) in paths {
            match alias.as_str() {
                "*" => self.globs.push(names),
                _ => drop(self.imported.insert(alias, names)),
            }
        }
    }
}

/// Takes one tree of a path apart, `a::{b, c::d as e, f::*}`, into paths with the names they get.
fn tree(tokens: &[TokenTree], mut at: usize, before: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let mut names = before.to_vec();
    if is_path_mark(tokens, at) {
        at += 2;
    }
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(name)) => names.push(name.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in inside.split(|token| is_punct(token, ',')).filter(|part| !part.is_empty()) {
                    tree(part, 0, &names, found);
                }
                return;
            }
            Some(token) if is_punct(token, '*') => {
                found.push((names, "*".to_owned()));
                return;
            }
            // `Type::<T>` and other ends.
            _ => break,
        }
        if !is_path_mark(tokens, at + 1) {
            break;
        }
        at += 3;
    }
    // `a::{self}` is `a`.
    if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
        names.pop();
    }
    let renamed = tokens.get(at + 1).is_some_and(|token| crate::source::is_word(token, "as"));
    let alias = if renamed { tokens.get(at + 2).map(ToString::to_string) } else { names.last().cloned() };
    if let Some(alias) = alias {
        found.push((names, alias));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sample;

    fn wrong(files: &[(&str, &str)], open: &[(&str, &str)]) -> Vec<String> {
        check_against(&[sample(files)], open)
    }

    const CIRCLE: &[(&str, &str)] = &[
        ("src/lib.rs", "mod a; mod b; mod c;"),
        ("src/a.rs", "use crate::{b::{self, B}, c};"),
        ("src/b.rs", "fn f() { super::a::g(); }"),
        ("src/c.rs", "#[cfg(test)] mod tests { use crate::a; }"),
    ];

    #[test]
    fn a_circle_is_named_with_the_lines_that_close_it() {
        let found = wrong(CIRCLE, &[]);
        assert_eq!(
            found,
            [
                "sample: modules import each other in a circle: a b",
                "    a -> b: src/a.rs:1: crate::b",
                "    b -> a: src/b.rs:1: super::a::g"
            ]
        );
    }

    #[test]
    fn an_open_circle_is_exactly_the_one_that_is_listed() {
        assert_eq!(wrong(CIRCLE, &[("sample", "a b")]), Vec::<String>::new());
        assert_eq!(wrong(CIRCLE, &[("sample", "a")]).len(), 3, "b has joined it");
        let gone = wrong(CIRCLE, &[("sample", "a b c")]);
        assert_eq!(gone, ["sample: c is in no circle any more: take it out of OPEN_CIRCLES"]);
        assert_eq!(wrong(&[("src/lib.rs", "")], &[("other", "a")]).len(), 1);
    }

    #[test]
    fn a_name_that_is_exported_again_belongs_to_the_module_that_defines_it() {
        let files = [
            ("src/lib.rs", "mod a; mod b; pub use a::Error; pub(crate) use b::*;"),
            ("src/a.rs", "pub struct Error; fn f() { crate::helper(); }"),
            ("src/b.rs", "pub fn helper() -> crate::Error { crate::Error }"),
        ];
        assert_eq!(wrong(&files, &[])[0], "sample: modules import each other in a circle: a b");
    }

    #[test]
    fn a_module_and_its_children_are_one() {
        let files = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "mod x; mod y; use crate::b; pub(crate) fn f() { x::g(); }"),
            ("src/a/x.rs", "use super::f; use super::y::h;"),
            ("src/a/y.rs", "pub(super) fn h() { super::f(); }"),
            ("src/b.rs", "use std::a; pub(crate) fn k(self) { self.a(); }"),
        ];
        assert_eq!(wrong(&files, &[]), Vec::<String>::new());
    }

    #[test]
    fn a_circle_in_a_folder_is_named_with_the_folder() {
        let files = [
            ("src/lib.rs", "mod a;"),
            ("src/a.rs", "mod x; mod y;"),
            ("src/a/x.rs", "use super::y::h;"),
            ("src/a/y.rs", "use crate::a::x;"),
        ];
        assert_eq!(wrong(&files, &[])[0], "sample::a: modules import each other in a circle: x y");
        assert_eq!(wrong(&files, &[("sample::a", "x y")]), Vec::<String>::new());
    }
}
