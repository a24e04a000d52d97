//! How the preloaded library is linked: against nothing, bound at load, in as few mappings as will do.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=layout.ld");
    for arg in [
        // No DT_NEEDED: the program's own C library is the one we call, glibc or musl.
        "-nostdlib",
        // Lazy binding would enter the loader, its locks and its stack use from a signal handler.
        "-Wl,-z,now",
        // Every program of the tree maps us: two mappings (text with constants, and data) and no mprotect cost it 18 us less than
        // four and one. What relro would protect, a handful of pointers, lies beside the interposers' slots, which are written
        // at run time anyway.
        "-Wl,-z,norelro",
        "-Wl,-z,noseparate-code",
        "-Wl,-z,nodelete",
        "-Wl,-z,noexecstack",
        "-Wl,-soname,libforkless_preload.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    if links_with_lld() {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--no-rosegment");
        // Both at the beginning of a page of the file: what is relocated is just under a page, and lies in one instead of two.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
        // Read while it runs: a script compiled in another checkout would name that checkout's file.
        let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{here}/layout.ld");
    }
}

/// Whether the linker is the one that comes with Rust. GNU ld before 2.44 does not know this flag, and keeps constants and text
/// together without it.
fn links_with_lld() -> bool {
    let own_choice = env::var_os("RUSTC_LINKER").is_some()
        || env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("link"));
    env::var("TARGET").is_ok_and(|target| target == "x86_64-unknown-linux-gnu") && !own_choice
}
