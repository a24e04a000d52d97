//! What the shared library says of itself to the dynamic linker.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Programs ask for it by this name. It rises with every incompatible change of the C ABI.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libforkless.so.0");
    // A child, or a thread of the library, may still run this code when the last dlclose comes.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Nothing is to be resolved lazily in a child that shares memory.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
}
