//! See `docs/` for the house; this crate is being widened.
#![no_std]
