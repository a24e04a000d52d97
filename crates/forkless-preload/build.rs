//! How the preloaded library is linked: against nothing, bound at load.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // No DT_NEEDED: the program's own C library is the one we call, glibc or musl.
        "-nostdlib",
        // Lazy binding would enter the loader, its locks and its stack use from a signal handler.
        "-Wl,-z,now",
        "-Wl,-z,relro",
        "-Wl,-z,nodelete",
        "-Wl,-z,noexecstack",
        "-Wl,-soname,libforkless_preload.so",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
