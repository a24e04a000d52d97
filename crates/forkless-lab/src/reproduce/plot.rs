//! Plots as data, and as SVG. The data is in the JSON form, so that another program can draw it in another way.

use std::fmt::Write as _;

use forkless_bench::html::{escape, room_for};
use forkless_bench::render::number;
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
    /// As an SVG element with its heading.
    #[must_use]
    pub(crate) fn to_svg(&self) -> String {
        match self {
            Plot::Lines { title, x, y, lines } => curves(title, x, y, lines),
            Plot::Marks { title, unit, marks } => dots(title, unit, marks),
        }
    }
}

const WIDTH: f64 = 900.0;

/// A round step that divides `high` into about five.
fn step(high: f64) -> f64 {
    let power = 10_f64.powf((high / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| high / step <= 6.0).unwrap_or(high)
}

#[expect(clippy::cast_precision_loss, reason = "a number of lines")]
fn curves(title: &str, x_name: &str, y_name: &str, lines: &[Line]) -> String {
    const HEIGHT: f64 = 340.0;
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_low = points().map(|point| point[0]).fold(f64::INFINITY, f64::min);
    let x_high = points().map(|point| point[0]).fold(f64::NEG_INFINITY, f64::max);
    let y_high = points().map(|point| point[1]).fold(0.0, f64::max);
    if points().next().is_none() || y_high <= 0.0 {
        return String::new();
    }
    let span = (x_high - x_low).max(1e-9);
    let x = |value: f64| 60.0 + (value - x_low) / span * (WIDTH - 320.0);
    let y = |value: f64| HEIGHT - 44.0 - value / y_high * (HEIGHT - 70.0);
    // The names beside the lines may need more room than the lines.
    let height = HEIGHT.max(44.0 + 18.0 * lines.len() as f64);
    let width = WIDTH - 212.0 + room_for(lines.iter().map(|line| line.name.as_str()), 212.0);
    let mut svg = format!(
        "<h3>{}</h3>\n<svg viewBox=\"0 0 {width:.0} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(title),
        escape(title)
    );
    let unit = step(y_high);
    let mut tick = 0.0;
    while tick <= y_high {
        let at = y(tick);
        let _ = write!(
            svg,
            "<line class=axis x1=60 x2={:.0} y1={at:.1} y2={at:.1} /><text x=54 y={:.1} text-anchor=end>{}</text>",
            WIDTH - 250.0,
            at + 4.0,
            number(tick)
        );
        tick += unit;
    }
    for value in [x_low, x_low.midpoint(x_high), x_high] {
        let _ = write!(
            svg,
            "<text x={:.1} y={:.0} text-anchor=middle>{}</text>",
            x(value),
            HEIGHT - 26.0,
            number(value)
        );
    }
    let _ = write!(
        svg,
        "<text x={:.0} y={:.0} text-anchor=middle>{}</text><text x=4 y=14>{}</text>",
        x(x_low.midpoint(x_high)),
        HEIGHT - 8.0,
        escape(x_name),
        escape(y_name)
    );
    for (index, line) in lines.iter().enumerate() {
        // Hues spread over the circle; lightness in the middle, so that both backgrounds do.
        let color = format!("hsl({} 70% 50%)", index * 360 / lines.len().max(1));
        let path: Vec<String> =
            line.points.iter().map(|&[px, py]| format!("{:.1},{:.1}", x(px), y(py))).collect();
        let _ = write!(
            svg,
            "<polyline fill=none stroke=\"{color}\" stroke-width=2 points=\"{}\" />",
            path.join(" ")
        );
        for &[px, py] in &line.points {
            let _ = write!(
                svg,
                "<circle cx={:.1} cy={:.1} r=3 fill=\"{color}\"><title>{}, {}: {}</title></circle>",
                x(px),
                y(py),
                escape(&line.name),
                number(px),
                number(py)
            );
        }
        let label = 34.0 + 18.0 * index as f64;
        let _ = write!(
            svg,
            "<rect x={:.0} y={:.1} width=12 height=12 fill=\"{color}\" /><text x={:.0} y={label:.1}>{}</text>",
            WIDTH - 230.0,
            label - 10.0,
            WIDTH - 212.0,
            escape(&line.name)
        );
    }
    svg.push_str("</svg>");
    svg
}

#[expect(clippy::cast_precision_loss, reason = "a number of marks")]
fn dots(title: &str, unit: &str, marks: &[Mark]) -> String {
    const LEFT: f64 = 260.0;
    let left = room_for(marks.iter().map(|mark| mark.name.as_str()), LEFT);
    let width = WIDTH - LEFT + left;
    let values =
        || marks.iter().flat_map(|mark| [mark.value, mark.ci95[0], mark.ci95[1]]).filter(|&v| v > 0.0);
    let low = values().fold(f64::INFINITY, f64::min).log10().floor();
    let high = values().fold(0.0, f64::max).log10().ceil().max(low + 1.0);
    if !low.is_finite() {
        return String::new();
    }
    let x = |value: f64| {
        left + ((value.max(1e-12).log10() - low) / (high - low)).clamp(0.0, 1.0) * (width - left - 110.0)
    };
    let height = 50.0 + 20.0 * marks.len() as f64;
    let mut svg = format!(
        "<h3>{}, {}</h3>\n<svg viewBox=\"0 0 {width:.0} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(title),
        escape(unit),
        escape(title)
    );
    let mut power = low;
    while power <= high {
        let at = x(10_f64.powf(power));
        let _ = write!(
            svg,
            "<line class=axis x1={at:.1} x2={at:.1} y1=20 y2={:.1} /><text x={at:.1} y=14 text-anchor=middle>{}</text>",
            height - 16.0,
            10_f64.powf(power)
        );
        power += 1.0;
    }
    for (index, mark) in marks.iter().enumerate() {
        let y = 36.0 + 20.0 * index as f64;
        let [from, to] = mark.ci95.map(x);
        let _ = write!(
            svg,
            "<text x={:.0} y={:.1} text-anchor=end>{name}</text>\
             <line class=mark x1={from:.1} x2={to:.1} y1={y} y2={y} stroke-width=5 />\
             <circle class=mark cx={at:.1} cy={y} r=4><title>{name}: {value}</title></circle>\
             <text x={:.1} y={:.1}>{value}</text>",
            left - 8.0,
            y + 4.0,
            to.max(x(mark.value)) + 10.0,
            y + 4.0,
            name = escape(&mark.name),
            at = x(mark.value),
            value = number(mark.value),
        );
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_are_closed_escaped_and_free_of_what_is_no_number() {
        let line = Line { name: "a<b".into(), points: vec![[0.0, 1.0], [1.0, 5.0]] };
        let empty = Line { name: "empty".into(), points: vec![] };
        let mark = Mark { name: "m".into(), value: 3.0, ci95: [0.0, 4.0] };
        for plot in [
            Plot::Lines { title: "t".into(), x: "x".into(), y: "y".into(), lines: vec![line, empty] },
            Plot::Marks { title: "t".into(), unit: "ms".into(), marks: vec![mark] },
        ] {
            let svg = plot.to_svg();
            assert_eq!((svg.matches("<svg").count(), svg.matches("</svg>").count()), (1, 1));
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("a<b"), "{svg}");
        }
    }

    /// The legend of E1, "fork, child dead, THP switched off by prctl", ended beyond the picture.
    #[test]
    fn long_names_have_room() {
        let name = "fork, child dead, transparent huge pages switched off by prctl, by root";
        let line = Line { name: name.into(), points: vec![[0.0, 1.0], [1.0, 5.0]] };
        let mark = Mark { name: name.into(), value: 3.0, ci95: [2.0, 4.0] };
        for plot in [
            Plot::Lines { title: "t".into(), x: "x".into(), y: "y".into(), lines: vec![line] },
            Plot::Marks { title: "t".into(), unit: "ms".into(), marks: vec![mark] },
        ] {
            let svg = plot.to_svg();
            let number = |text: &str| text.split([' ', '"']).next().and_then(|word| word.parse::<f64>().ok());
            let width = svg.split("viewBox=\"0 0 ").nth(1).and_then(number).expect("a view box");
            let text = svg.split("<text x=").find(|text| text.contains(name)).expect("the name");
            let at = number(text).expect("its place");
            // 12 px; letters of the usual faces are half as wide, and seldom more.
            let long = 6.2 * name.len() as f64;
            let (from, to) = if text.contains("text-anchor=end") { (at - long, at) } else { (at, at + long) };
            assert!(from >= 0.0 && to <= width, "{from} to {to} of {width}");
        }
    }

    #[test]
    fn nothing_to_draw_draws_nothing() {
        let none = Plot::Lines { title: "t".into(), x: "x".into(), y: "y".into(), lines: vec![] };
        assert!(none.to_svg().is_empty());
        let none = Plot::Marks { title: "t".into(), unit: "ms".into(), marks: vec![] };
        assert!(none.to_svg().is_empty());
    }

    #[test]
    fn an_axis_has_about_five_round_ticks() {
        for high in [0.03, 1.0, 7.3, 65.0, 12_345.0] {
            let ticks = high / step(high);
            assert!((2.0..=6.0).contains(&ticks), "{high}: {ticks}");
        }
    }
}
