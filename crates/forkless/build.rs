//! What this compiler's standard library has, of that which Rust 1.85 has not.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    autocfg::emit_possibility("std_pipes");
    autocfg::new().emit_path_cfg("std::io::PipeReader", "std_pipes");
}
