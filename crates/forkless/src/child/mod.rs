//! A running child.

pub(crate) mod handle;
