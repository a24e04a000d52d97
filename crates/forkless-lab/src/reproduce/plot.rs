//! Plots as data, and as SVG. The data is in the JSON form, so that another program can draw it in
//! another way.

use forkless_bench::plot::{self, Ordinate, PlottedLine, PlottedValue};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

/// A picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Plot {
    /// Values over an axis of numbers.
    Lines {
        /// What it shows.
        title: String,
        /// The horizontal axis.
        x: String,
        /// The vertical axis, from zero.
        y: String,
        /// The lines.
        lines: Vec<Line>,
    },
    /// Values with intervals, one a line of text, on a logarithmic axis.
    Marks {
        /// What it shows.
        title: String,
        /// The unit of the axis.
        unit: String,
        /// The values.
        marks: Vec<Mark>,
    },
}

/// A line of a plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What it is of.
    pub name: String,
    /// Points, by ascending abscissa.
    pub points: Vec<[f64; 2]>,
}

/// A value with its interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// What it is of.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Its 95 % interval, or the value twice.
    pub ci95: [f64; 2],
}

impl Plot {
    /// The picture under its heading; nothing where there is nothing to draw.
    pub(crate) fn to_html(&self) -> Markup {
        let (heading, drawn) = match self {
            Plot::Lines { title, x, y, lines } => {
                let lines: Vec<PlottedLine> = lines.iter().map(Line::plotted).collect();
                (title.clone(), plot::lines(title, [x, y], Ordinate::FromZero, &lines))
            }
            Plot::Marks { title, unit, marks } => {
                let marks: Vec<PlottedValue> = marks.iter().map(Mark::plotted).collect();
                (format!("{title}, {unit}"), plot::values(title, unit, &marks))
            }
        };
        html! {
            @if let Some(svg) = drawn {
                h3 { (heading) }
                (svg)
            }
        }
    }
}

impl Line {
    fn plotted(&self) -> PlottedLine {
        let points = self.points.iter().map(|&point| (point, None)).collect();
        PlottedLine { name: self.name.clone(), group: self.name.clone(), points, ..PlottedLine::default() }
    }
}

impl Mark {
    fn plotted(&self) -> PlottedValue {
        PlottedValue {
            name: self.name.clone(),
            value: self.value,
            ci95: self.ci95,
            ..PlottedValue::default()
        }
    }
}
