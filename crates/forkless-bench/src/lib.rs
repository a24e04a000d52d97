//! Workloads, executors, statistics and results of `forkless bench`, as a library that knows nothing of the command
//! line: it is given a specification, reports progress to an observer, and returns results.
//!
//! - [`machine`]: what is recorded about the machine a result was measured on.

pub mod machine;
