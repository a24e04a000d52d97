//! The bill of materials of a release, CycloneDX 1.6, from `cargo metadata` and `Cargo.lock`.
//!
//! cargo-cyclonedx and cargo-sbom write one document for each crate, with the time and a random
//! number in it. A release is one thing, and the same tree has to give the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{packages, tree};

/// What is shipped: the command, the C library, the preloaded library.
const SHIPPED: &[&str] = &["forkless-cli", "forkless-capi", "forkless-preload"];

pub(crate) fn print() -> Result<String> {
    let metadata = packages::metadata(&["--filter-platform=x86_64-unknown-linux-gnu"])?;
    let lock = fs::read_to_string(tree::root().join("Cargo.lock"))?;
    let document = document(&metadata, &checksums(&lock), &packages::version()?)?;
    Ok(serde_json::to_string_pretty(&document)?)
}

/// SHA-256 of the packages of a registry, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for block in lock.split("[[package]]") {
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
            line.and_then(|value| value.strip_suffix('"')).map(str::to_owned)
        };
        if let (Some(name), Some(version), Some(sum)) = (field("name"), field("version"), field("checksum")) {
            all.insert((name, version), sum);
        }
    }
    all
}

/// The packages that end up in what is shipped, and what each needs.
struct Shipped<'a> {
    by_id: BTreeMap<String, &'a Value>,
    needs: BTreeMap<String, Vec<String>>,
    /// Package URLs and ids, sorted.
    reached: Vec<(String, String)>,
}

impl Shipped<'_> {
    fn of(metadata: &Value) -> Result<Shipped<'_>> {
        let packages = metadata["packages"].as_array().context("no packages")?;
        let nodes = metadata["resolve"]["nodes"].as_array().context("no resolve")?;
        let needs: BTreeMap<String, Vec<String>> =
            nodes.iter().map(|node| (text(&node["id"]), linked(node))).collect();
        let mut open: Vec<String> = packages
            .iter()
            .filter(|package| SHIPPED.iter().any(|name| package["name"] == *name))
            .map(|package| text(&package["id"]))
            .collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            open.extend(needs.get(&id).into_iter().flatten().filter(|other| !seen.contains(*other)).cloned());
            seen.insert(id);
        }
        let by_id = packages.iter().map(|package| (text(&package["id"]), package)).collect();
        let mut all = Shipped { by_id, needs, reached: Vec::new() };
        all.reached = seen.into_iter().filter_map(|id| Some((all.purl(&id)?, id))).collect();
        all.reached.sort();
        Ok(all)
    }

    fn purl(&self, id: &String) -> Option<String> {
        let package = self.by_id.get(id)?;
        Some(format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"])))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The licences of the other packages that are linked in, with the texts that they come with. Most
/// ask for that.
pub(crate) fn notices() -> Result<String> {
    let metadata = packages::metadata(&["--filter-platform=x86_64-unknown-linux-gnu"])?;
    let shipped = Shipped::of(&metadata)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, id) in &shipped.reached {
        let package = shipped.by_id[id];
        // Those of this repository have no source.
        if package["source"].is_null() {
            continue;
        }
        let who = format!(
            "{} {} ({})",
            text(&package["name"]),
            text(&package["version"]),
            text(&package["license"])
        );
        let manifest = text(&package["manifest_path"]);
        let folder = Path::new(&manifest).parent().context("a manifest without a folder")?;
        let mut own = String::new();
        let mut files: Vec<_> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let is_one = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
            if file.is_file() && is_one.iter().any(|begin| name.starts_with(begin)) {
                own.push_str(fs::read_to_string(&file)?.trim());
                own.push_str("\n\n");
            }
        }
        texts.entry(own).or_default().push(who);
    }
    let mut out = String::from("The command and the libraries contain these packages.\n");
    for (own, packages) in texts {
        out.push_str(&format!("\n{}\n{}\n\n{own}", "-".repeat(100), packages.join("\n")));
    }
    Ok(out)
}

fn document(metadata: &Value, sums: &BTreeMap<(String, String), String>, version: &str) -> Result<Value> {
    let shipped = Shipped::of(metadata)?;
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for (reference, id) in &shipped.reached {
        let package = shipped.by_id[id];
        let (name, number) = (text(&package["name"]), text(&package["version"]));
        let mut component = json!({
            "type": "library",
            "bom-ref": reference,
            "name": name,
            "version": number,
            "description": text(&package["description"]).trim(),
            "licenses": [{ "expression": text(&package["license"]).replace('/', " OR ") }],
            "purl": reference,
        });
        if let Some(sum) = sums.get(&(name, number)) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        components.push(component);
        let mut on: Vec<String> =
            shipped.needs.get(id).into_iter().flatten().filter_map(|other| shipped.purl(other)).collect();
        on.sort();
        on.dedup();
        dependencies.push(json!({ "ref": reference, "dependsOn": on }));
    }
    let whole = format!("pkg:generic/forkless@{version}");
    let parts: Vec<String> = SHIPPED.iter().map(|name| format!("pkg:cargo/{name}@{version}")).collect();
    dependencies.push(json!({ "ref": whole, "dependsOn": parts }));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": whole, "name": "forkless", "version": version, "purl": whole,
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The packages that a package's code is linked with, or that run when it is built. Those of its
/// tests are none of them.
fn linked(node: &Value) -> Vec<String> {
    let none = Vec::new();
    let all = node["deps"].as_array().unwrap_or(&none).iter();
    all.filter(|one| {
        one["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k["kind"] != "dev"))
    })
    .filter_map(|one| one["pkg"].as_str().map(str::to_owned))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_with_its_sum_and_what_only_tests_need_is_not() {
        let package =
            |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let node = |id: &str, deps: Value| json!({ "id": id, "deps": deps });
        let on = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package("forkless-cli"), package("a"), package("b"), package("c")],
            "resolve": { "nodes": [
                node("forkless-cli", json!([on("a", Value::Null), on("b", "dev".into())])),
                node("a", json!([on("c", "build".into())])),
                node("b", json!([])),
                node("c", json!([])),
            ] },
        });
        let lock =
            "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n\n[[package]]\nname = \"b\"";
        let document = document(&metadata, &checksums(lock), "0.1.0").expect("a document");
        let components = document["components"].as_array().expect("a list");
        let names: Vec<&str> = components.iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["a", "c", "forkless-cli"]);
        assert_eq!(components[0]["hashes"][0]["content"], "ab");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
