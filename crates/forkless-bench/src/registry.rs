//! The differences between suites for the code that shows, compares and undoes. A suite registers
//! its name, columns, plots, fitted lines, yardstick and clean-up. But for [`crate::figure`], which
//! draws one suite, nothing else in this crate asks for a suite's name.
//!
//! A registry is made of lists, one for each crate that has suites ([`crate::suites::ALL`]). A
//! suite that no list has, as in a file saved by another version, is shown as
//! [`Registration::DEFAULT`].

use std::io;

use crate::engine::Arm;
use crate::error::Error;
use crate::guard::Undo;
use crate::results::{Fit, Row, Suite};

/// The properties of one suite.
#[derive(Debug, Clone, Copy)]
pub struct Registration {
    /// The suite's name in results.
    pub name: &'static str,
    /// How its rows become a table.
    pub columns: Columns,
    /// What is plotted, in this order.
    pub plots: &'static [MetricPlot],
    /// Lines fitted through its rows.
    pub fits: Option<Fits>,
    /// The row that a row is measured against where two machines have no common measure.
    pub yardstick: for<'a> fn(&'a [Row], &Row) -> Option<&'a Row>,
    /// A picture made of letters, below the table.
    pub picture: Option<fn(&Suite) -> String>,
    /// Changes that the guarding process is told of and undoes.
    pub undos: &'static [Undo],
    /// The suite's part in a process with the preloaded library.
    pub host: Option<Host>,
}

/// Fits lines through rows; the seed is that of the intervals.
pub type Fits = fn(&[Row], u64) -> Vec<Fit>;

/// Builds what the setup, in JSON, asks for, and has its arm served.
pub type Host =
    fn(&serde_json::Value, &mut dyn FnMut(&mut dyn Arm) -> io::Result<()>) -> Result<io::Result<()>, Error>;

/// How rows become a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// A line for each method under its parameters, a column for each metric.
    Metrics {
        /// Whether a narrow table has the estimates and every metric's ratio, too, and not the
        /// ratio of `wall` alone.
        all: bool,
    },
    /// Rows that have hardly a metric in common: one a line, headed by this parameter.
    Rows {
        /// The parameter.
        subject: &'static str,
    },
}

/// A metric and how it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricPlot {
    /// The metric's name.
    pub metric: &'static str,
    /// Over the memory used, a line for each method and kind of pages; otherwise one mark a row.
    pub over_memory: bool,
}

impl MetricPlot {
    /// One mark a row.
    #[must_use]
    pub const fn marks(metric: &'static str) -> MetricPlot {
        MetricPlot { metric, over_memory: false }
    }

    /// A line over the memory used.
    #[must_use]
    pub const fn over_memory(metric: &'static str) -> MetricPlot {
        MetricPlot { metric, over_memory: true }
    }
}

impl Registration {
    /// The properties of a suite that registers nothing.
    pub const DEFAULT: Registration = Registration {
        name: "",
        columns: Columns::Metrics { all: false },
        plots: &[MetricPlot::marks("real")],
        fits: None,
        yardstick: vfork_exec,
        picture: None,
        undos: &[],
        host: None,
    };
}

/// The plain way to start a program, under the same parameters if there is one.
fn vfork_exec<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    let plain = |other: &&Row| other.metric == row.metric && other.method == "vfork_exec";
    let plain = || rows.iter().filter(plain);
    plain().find(|other| other.params == row.params).or_else(|| plain().next())
}

/// The row of a method, and of the metric of the row given.
#[must_use]
pub fn row_of<'a>(rows: &'a [Row], method: &str, like: &Row) -> Option<&'a Row> {
    rows.iter().find(|other| other.metric == like.metric && other.method == method)
}

/// All suites that a program knows.
#[derive(Debug, Clone, Copy)]
pub struct Registry(pub &'static [&'static [Registration]]);

impl Registry {
    fn all(self) -> impl Iterator<Item = &'static Registration> {
        self.0.iter().copied().flatten()
    }

    /// What the suite of this name has registered.
    #[must_use]
    pub fn of(self, name: &str) -> &'static Registration {
        self.all().find(|suite| suite.name == name).unwrap_or(&Registration::DEFAULT)
    }

    /// Every suite's way to undo what it changes.
    #[must_use]
    pub fn undos(self) -> Vec<Undo> {
        self.all().flat_map(|suite| suite.undos).copied().collect()
    }
}
