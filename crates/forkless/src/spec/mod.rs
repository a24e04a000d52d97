//! What the caller asked for, as data: nothing is checked or opened here.

pub(crate) mod env;
pub(crate) mod stdio;
pub(crate) mod strings;
