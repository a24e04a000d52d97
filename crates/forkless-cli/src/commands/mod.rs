//! One module a subcommand: its flags (`Args`) and its `run`, which returns an [`Exit`](crate::exit::Exit).

pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod diagnose;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod repair;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod sh;
