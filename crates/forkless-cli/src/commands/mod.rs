//! One module a subcommand: its flags (`Args`) and its `run`, which returns an [`Exit`](crate::exit::Exit).

pub(crate) mod bench;
pub(crate) mod compare;
#[cfg(target_os = "linux")]
pub(crate) mod diagnose;
#[cfg(target_os = "linux")]
pub(crate) mod doctor;
pub(crate) mod generate;
#[cfg(target_os = "linux")]
pub(crate) mod repair;
#[cfg(target_os = "linux")]
pub(crate) mod reproduce;
#[cfg(target_os = "linux")]
pub(crate) mod run;
#[cfg(target_os = "linux")]
pub(crate) mod sh;
