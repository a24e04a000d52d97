//! How the preloaded library is linked: against nothing, bound at load, in as few mappings as
//! possible.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=layout.ld");
    for arg in [
        // No DT_NEEDED: the library calls the program's own C library, glibc or musl.
        "-nostdlib",
        // Lazy binding would enter the loader, its locks and its stack use from a signal handler.
        "-Wl,-z,now",
        // Every program of the tree maps the library. Two mappings (text with constants, and data)
        // and no mprotect cost it 18 us less than four mappings and one mprotect. relro would
        // protect a handful of pointers. They lie beside the interposers' slots, which are written
        // at run time anyway.
        "-Wl,-z,norelro",
        "-Wl,-z,noseparate-code",
        "-Wl,-z,nodelete",
        // A function's other name goes to this library's function, even if another library with
        // that name comes first. No table of jumps is needed for it, which would lie behind the
        // reserve and be one more mapping of every program that speculates.
        "-Wl,-Bsymbolic-functions",
        "-Wl,-z,noexecstack",
        "-Wl,-soname,libforkless-run.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    if links_with_lld() {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--no-rosegment");
        // Text and data begin at a page of the file. The relocated part is just under a page, and
        // so lies in one page instead of two.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
        // Read while the build script runs: a script compiled in another checkout would name that
        // checkout's file.
        let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{here}/layout.ld");
    }
}

/// Whether the linker is Rust's own lld. GNU ld before 2.44 does not know this flag, and keeps
/// constants and text together without it.
fn links_with_lld() -> bool {
    let own_choice = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS")
            .is_ok_and(|flags| ["linker", "link-arg", "link-self"].iter().any(|one| flags.contains(one)));
    env::var("TARGET").is_ok_and(|target| target == "x86_64-unknown-linux-gnu") && !own_choice
}
