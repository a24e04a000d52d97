//! The builder of a start, and the ways to run it.

pub(crate) mod attributes;
pub(crate) mod builder;
pub(crate) mod communicate;
pub(crate) mod pipeline;
pub(crate) mod prepared;
mod std_command;
