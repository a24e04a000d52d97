//! The builder of a start, and the ways to run it.

mod attributes;
mod builder;
mod communicate;
mod pipeline;
mod posixsubprocess;
mod prepared;
mod start;
mod std_command;

pub use builder::Command;
pub use communicate::Communicate;
pub use pipeline::{Children, Pipeline};
pub use prepared::Prepared;
