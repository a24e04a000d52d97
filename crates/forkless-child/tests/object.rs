//! The release build of the code that runs in shared memory refers to nothing outside itself: no
//! panic (which would print, take locks and unwind), no allocation, no libc, and no call through a
//! lazily bound table, which would run the dynamic linker on the child's small stack.

use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol};
use std::path::Path;
use std::process::Command;

fn undefined_symbols(library: &Path) -> (Vec<String>, Vec<String>) {
    let bytes = std::fs::read(library).unwrap();
    let archive = ArchiveFile::parse(&*bytes).unwrap();
    let (mut undefined, mut defined) = (Vec::new(), Vec::new());
    for member in archive.members() {
        let member = member.unwrap();
        let name = String::from_utf8_lossy(member.name()).into_owned();
        if !name.ends_with(".o") {
            continue;
        }
        let file = object::File::parse(member.data(&*bytes).unwrap()).unwrap();
        for s in file.symbols() {
            let list = if s.is_undefined() { &mut undefined } else { &mut defined };
            list.extend(s.name().ok().filter(|n| !n.is_empty()).map(str::to_owned));
        }
    }
    (undefined, defined)
}

#[test]
fn the_release_object_needs_nothing_from_outside() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("object");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "forkless-child", "--offline", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // Not the flags of a coverage or sanitizer build of the tests.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .unwrap();
    assert!(built.success(), "the release build failed");
    let (undefined, defined) = undefined_symbols(&target.join("release/libforkless_child.rlib"));
    assert!(
        defined.iter().any(|n| n.contains("forkless_child") && n.contains("start")),
        "not the object: {defined:?}"
    );
    assert_eq!(undefined, Vec::<String>::new(), "the child would leave its own code");
}
