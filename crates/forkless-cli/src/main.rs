//! The forkless command.
fn main() {}
