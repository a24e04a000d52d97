//! Parameters of rows: under which circumstances a figure was taken.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A parameter's value: a number (bytes, a count) or a word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Param {
    /// A size in bytes, a count, a share in percent.
    Number(u64),
    /// A name.
    Word(String),
}

impl std::fmt::Display for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Param::Number(number) => number.fmt(f),
            Param::Word(word) => word.fmt(f),
        }
    }
}

/// Parameters of a row, by name.
pub type Params = BTreeMap<String, Param>;
