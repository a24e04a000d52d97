//! The laboratory: what this project measures to know itself, on top of `forkless-bench`.
//!
//! - [`victims`]: real programs with and without `forkless run`.
//! - [`reproduce`]: the published experiments by their authors' procedures, and a ledger of their claims.
//! - [`subreaper`]: ends the programs that either starts.
//!
//! All of it is for Linux; elsewhere there is the registry of suites alone.

#[cfg(target_os = "linux")]
mod install;
#[cfg(target_os = "linux")]
pub mod reproduce;
#[cfg(target_os = "linux")]
pub mod subreaper;
#[cfg(target_os = "linux")]
pub mod victims;
#[cfg(target_os = "linux")]
mod words;

use forkless_bench::registry::Registry;
use forkless_bench::suites;

/// All suites there are: those of `forkless-bench` and `victims`.
#[cfg(target_os = "linux")]
pub const SUITES: Registry = Registry(&[suites::ALL, &[victims::SUITE]]);

/// All suites there are.
#[cfg(not(target_os = "linux"))]
pub const SUITES: Registry = suites::SUITES;
