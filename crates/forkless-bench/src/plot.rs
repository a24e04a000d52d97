//! Plots as SVG elements: values with intervals, one a line of text; and lines over an axis of
//! numbers. Colours of text, axes and marks are the page's classes, so that they follow the
//! reader's setting.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::render::number;

/// A value with its interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlottedValue {
    /// What it is of.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Its 95 % interval, or the value twice.
    pub ci95: [f64; 2],
    /// Between which values most of the samples are, where that is drawn.
    pub spread: Option<[f64; 2]>,
    /// The samples, where their distribution is drawn.
    pub samples: Vec<f64>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlottedLine {
    /// What it is of.
    pub name: String,
    /// Lines of one group have one colour.
    pub group: String,
    /// Lines of one kind have one pattern.
    pub kind: String,
    /// Points, by ascending abscissa, with the interval of the ordinate where there is one.
    pub points: Vec<([f64; 2], Option<[f64; 2]>)>,
}

/// The vertical axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordinate {
    /// Linear, from zero.
    FromZero,
    /// Powers of ten.
    Logarithmic,
}

/// Where values are on the page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Whole powers of ten that hold all values. `None` where there is nothing above zero.
    pub(crate) fn logarithmic(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Axis> {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|&value| value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        let low = low.log10().floor();
        let high = high.log10().ceil().max(low + 1.0);
        low.is_finite().then_some(Axis { logarithmic: true, low, high, from, to })
    }

    /// Logarithmic from one value above zero to another.
    pub(crate) fn logarithmic_between([low, high]: [f64; 2], from: f64, to: f64) -> Axis {
        Axis { logarithmic: true, low: low.log10(), high: high.log10(), from, to }
    }

    pub(crate) fn linear(low: f64, high: f64, from: f64, to: f64) -> Axis {
        Axis { logarithmic: false, low, high: high.max(low + 1e-9), from, to }
    }

    fn share(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(1e-12).log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    fn holds(&self, value: f64) -> bool {
        (value > 0.0 || !self.logarithmic) && (0.0..=1.0).contains(&self.share(value))
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        self.from + self.share(value).clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub(crate) fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        if self.logarithmic {
            // Of one or two powers of ten alone, a reader could not tell a value between them.
            let between: &[f64] = if self.high - self.low <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let mut power = self.low;
            while power <= self.high {
                ticks.extend(between.iter().map(|step| step * 10_f64.powf(power)));
                power += 1.0;
            }
            ticks.retain(|&tick| self.holds(tick));
            return ticks;
        }
        let step = round_step(self.high - self.low);
        let mut tick = (self.low / step).ceil() * step;
        while tick <= self.high + step * 1e-9 {
            ticks.push(tick);
            tick += step;
        }
        ticks
    }
}

/// A tick's label: as short as it can be.
pub(crate) fn label(tick: f64) -> String {
    let (value, unit) = match tick.abs() {
        size if size >= 1e6 => (tick / 1e6, "M"),
        size if size >= 1e4 => (tick / 1e3, "k"),
        _ => (tick, ""),
    };
    if value != 0.0 && !(0.001..1e6).contains(&value.abs()) {
        return number(tick);
    }
    // Sums of steps are not round in the last digits.
    let digits = format!("{value:.6}");
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A round step that divides `high` into about five.
fn round_step(high: f64) -> f64 {
    let power = 10_f64.powf((high / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| high / step <= 6.0).unwrap_or(high)
}

/// A position on the page: a tenth of a pixel is enough.
pub(crate) fn px(position: f64) -> String {
    format!("{position:.1}")
}

/// Width of every picture. A telephone shows it at half its size, with letters twice as large (the
/// page's style): so every text has room for that.
const WIDTH: f64 = 640.0;

/// How many values or lines are shown before the reader asks for more.
const AT_FIRST: usize = 8;

/// Values on a logarithmic axis, each below its name: a line across at the value, the interval as a
/// bar, the spread as a thin line with ends, and hills of the samples. Those after the first eight
/// are behind a line that says how many there are. `None` where there is nothing to draw.
#[must_use]
pub fn values(title: &str, unit: &str, values: &[PlottedValue]) -> Option<Markup> {
    let all =
        values.iter().flat_map(|one| one.spread.into_iter().flatten().chain(one.ci95).chain([one.value]));
    let axis = Axis::logarithmic(all, 36.0, WIDTH - 48.0)?;
    let (first, more) = values.split_at(values.len().min(AT_FIRST));
    Some(html! {
        (marks(title, unit, &axis, first))
        @if !more.is_empty() {
            details {
                summary { (more.len()) " more" }
                (marks(title, unit, &axis, more))
            }
        }
    })
}

#[expect(clippy::cast_precision_loss, reason = "a number of values")]
fn marks(title: &str, unit: &str, axis: &Axis, values: &[PlottedValue]) -> Markup {
    const PITCH: f64 = 50.0;
    let bottom = 8.0 + PITCH * values.len() as f64;
    let rows = values.iter().enumerate().map(|(index, one)| (one, 36.0 + PITCH * index as f64));
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (px(bottom + 52.0)) } role="img" aria-label=(title) {
            @for tick in axis.ticks() {
                @let x = px(axis.at(tick));
                line.axis x1=(x) x2=(x) y1="2" y2=(px(bottom)) {}
                text x=(x) y=(px(bottom + 20.0)) text-anchor="middle" { (label(tick)) }
            }
            text.name x=(px(WIDTH / 2.0)) y=(px(bottom + 44.0)) text-anchor="middle" { (unit) ", logarithmic" }
            @for (one, y) in rows {
                @let [low, high] = one.ci95.map(|end| axis.at(end));
                @let at = axis.at(one.value);
                @let bounds = format!(" [{}, {}]", number(one.ci95[0]), number(one.ci95[1]));
                @let has_interval = one.ci95[0] < one.ci95[1];
                g {
                    title { (one.name) ": " (number(one.value)) @if has_interval { (bounds) } " " (unit) }
                    (hills(&one.samples, axis, y + 6.0))
                    text.name x="2" y=(px(y - 16.0)) { (one.name) }
                    text x=(WIDTH - 2.0) y=(px(y - 16.0)) text-anchor="end" {
                        (number(one.value))
                        @if has_interval { tspan.wide { (bounds) } }
                    }
                    @if let Some(ends) = one.spread.map(|ends| ends.map(|end| axis.at(end))) {
                        (whisker(ends, y))
                    }
                    rect.mark x=(px(low)) width=(px((high - low).max(1.0))) y=(px(y - 4.0)) height="8" {}
                    line.middle x1=(px(at)) x2=(px(at)) y1=(px(y - 8.0)) y2=(px(y + 8.0)) {}
                }
            }
        }
    }
}

/// A thin line with an end on either side.
fn whisker([from, to]: [f64; 2], y: f64) -> Markup {
    html! {
        line.spread x1=(px(from)) x2=(px(to)) y1=(px(y)) y2=(px(y)) {}
        @for end in [from, to] { line.spread x1=(px(end)) x2=(px(end)) y1=(px(y - 4.0)) y2=(px(y + 4.0)) {} }
    }
}

/// How samples are spread, in bins of equal width on the page, standing on their value's line; what
/// is beyond the axis is left out.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a position on the page, not negative"
)]
fn hills(samples: &[f64], axis: &Axis, y: f64) -> Markup {
    const HEIGHT: f64 = 14.0;
    const BIN: f64 = 4.0;
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for &sample in samples.iter().filter(|&&sample| axis.holds(sample)) {
        *counts.entry(((axis.at(sample) - axis.from) / BIN) as u32).or_default() += 1;
    }
    let most = f64::from(counts.values().copied().max().unwrap_or(1));
    let bins = counts
        .into_iter()
        .map(|(bin, count)| (axis.from + BIN * f64::from(bin), HEIGHT * f64::from(count) / most));
    html! {
        // Less cannot be seen, and thousands of such bins make a page slow.
        @for (x, height) in bins.filter(|&(_, height)| height >= 0.5) {
            rect.bin x=(px(x)) y=(px(y - height)) width=(BIN) height=(px(height)) {}
        }
    }
}

/// A line through points of the page, as the attribute `points` has it.
pub(crate) fn course(points: impl Iterator<Item = [f64; 2]>) -> String {
    points.map(|[x, y]| format!("{},{}", px(x), px(y))).collect::<Vec<_>>().join(" ")
}

/// An upright line with an end of so many pixels to either side.
pub(crate) fn interval(across: f64, ends: [f64; 2], half: f64) -> Markup {
    let [from, to] = ends.map(px);
    html! {
        line x1=(px(across)) x2=(px(across)) y1=(from) y2=(to) {}
        @for end in [from, to] { line x1=(px(across - half)) x2=(px(across + half)) y1=(end) y2=(end) {} }
    }
}

/// Where something stands in a list, which it joins if it is new.
fn place<'t>(list: &mut Vec<&'t str>, one: &'t str) -> usize {
    list.iter().position(|known| *known == one).unwrap_or_else(|| {
        list.push(one);
        list.len() - 1
    })
}

/// Lines over an axis of numbers, with the names of both axes, each with its unit. Below it the
/// reader chooses lines: the first eight are shown. `None` where there is nothing to draw.
#[must_use]
pub fn lines(
    title: &str,
    [x_name, y_name]: [&str; 2],
    ordinate: Ordinate,
    lines: &[PlottedLine],
) -> Option<Markup> {
    const LEFT: f64 = 84.0;
    const RIGHT: f64 = WIDTH - 36.0;
    const TOP: f64 = 40.0;
    const BOTTOM: f64 = 380.0;
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_low = points().map(|(point, _)| point[0]).fold(f64::INFINITY, f64::min);
    let x_high = points().map(|(point, _)| point[0]).fold(f64::NEG_INFINITY, f64::max);
    let y_all = points().flat_map(|&(point, ci95)| ci95.into_iter().flatten().chain([point[1]]));
    let y_high = y_all.clone().fold(0.0, f64::max);
    if !x_low.is_finite() || y_high <= 0.0 {
        return None;
    }
    let x = Axis::linear(x_low, x_high, LEFT + 12.0, RIGHT);
    let (y, scale) = match ordinate {
        Ordinate::FromZero => (Axis::linear(0.0, y_high, BOTTOM, TOP), ""),
        Ordinate::Logarithmic => (Axis::logarithmic(y_all, BOTTOM, TOP)?, ", logarithmic"),
    };
    let (mut groups, mut kinds) = (Vec::new(), Vec::new());
    let drawn: Vec<Drawn<'_>> = lines
        .iter()
        .enumerate()
        .map(|(index, line)| Drawn {
            line,
            colour: format!("series c{}", place(&mut groups, &line.group) % AT_FIRST),
            dashes: DASHES[place(&mut kinds, &line.kind) % DASHES.len()],
            is_first: index < AT_FIRST,
        })
        .collect();
    Some(html! {
        div.plot {
            svg viewBox={ "0 0 " (WIDTH) " " (px(BOTTOM + 56.0)) } role="img" aria-label=(title) {
                text.name x="2" y="18" { (y_name) (scale) }
                @for tick in y.ticks() {
                    line.axis x1=(LEFT) x2=(RIGHT) y1=(px(y.at(tick))) y2=(px(y.at(tick))) {}
                    text x=(LEFT - 8.0) y=(px(y.at(tick) + 4.0)) text-anchor="end" { (label(tick)) }
                }
                @for tick in x.ticks() {
                    line.axis x1=(px(x.at(tick))) x2=(px(x.at(tick))) y1=(BOTTOM) y2=(BOTTOM + 6.0) {}
                    text x=(px(x.at(tick))) y=(BOTTOM + 24.0) text-anchor="middle" { (label(tick)) }
                }
                text.name x=(px(LEFT.midpoint(RIGHT))) y=(BOTTOM + 48.0) text-anchor="middle" { (x_name) }
                @for one in &drawn { (one.on(&x, &y)) }
            }
            fieldset {
                @for one in &drawn {
                    label {
                        input type="checkbox" checked[one.is_first];
                        svg.swatch viewBox="0 0 34 10" aria-hidden="true" {
                            g class=(one.colour) { line x1="1" x2="33" y1="5" y2="5" stroke-dasharray=(one.dashes) {} }
                        }
                        (one.line.name)
                    }
                }
            }
        }
    })
}

/// Patterns of lines, one for each kind.
const DASHES: [&str; 5] = ["none", "7 4", "2 3", "10 3 2 3", "1 5"];

/// A line with its look.
struct Drawn<'a> {
    line: &'a PlottedLine,
    colour: String,
    dashes: &'static str,
    is_first: bool,
}

impl Drawn<'_> {
    fn on(&self, x: &Axis, y: &Axis) -> Markup {
        let points = &self.line.points;
        let course = course(points.iter().map(|(point, _)| [x.at(point[0]), y.at(point[1])]));
        html! {
            g class=(self.colour) hidden[!self.is_first] {
                polyline stroke-dasharray=(self.dashes) points=(course) {}
                @for &([at, value], ci95) in points {
                    @let across = x.at(at);
                    @if let Some(ends) = ci95 { (interval(across, ends.map(|end| y.at(end)), 5.0)) }
                    circle cx=(px(across)) cy=(px(y.at(value))) r="3" {
                        title { (self.line.name) ", " (number(at)) ": " (number(value)) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, points: &[[f64; 2]]) -> PlottedLine {
        let points = points.iter().map(|&point| (point, None)).collect();
        PlottedLine { name: name.into(), points, ..PlottedLine::default() }
    }

    fn value(name: &str, ci95: [f64; 2]) -> PlottedValue {
        PlottedValue {
            name: name.into(),
            value: 3.0,
            ci95,
            samples: vec![2.0, 3.0, 0.0],
            ..PlottedValue::default()
        }
    }

    fn both(name: &str) -> [String; 3] {
        let all = [line(name, &[[0.0, 1.0], [1.0, 5.0]]), line("empty", &[])];
        let lines = |ordinate| lines("t", ["x", "y"], ordinate, &all).expect("lines").into_string();
        let values = values("t", "us", &[value(name, [0.0, 4.0])]).expect("values").into_string();
        [lines(Ordinate::FromZero), lines(Ordinate::Logarithmic), values]
    }

    #[test]
    fn plots_are_closed_escaped_and_free_of_what_is_no_number() {
        for svg in both("a<b") {
            assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("a<b"), "{svg}");
        }
    }

    #[test]
    fn both_axes_have_names_with_their_units() {
        let [from_zero, logarithmic, values] = both("a");
        for (plot, names) in [
            (&from_zero, &[">x</text>", ">y</text>"][..]),
            (&logarithmic, &[">x</text>", ">y, logarithmic</text>"]),
            (&values, &[">us, logarithmic</text>"]),
        ] {
            assert!(names.iter().all(|name| plot.contains(name)), "{plot}");
        }
    }

    #[test]
    fn eight_are_shown_and_the_others_are_there_by_choice() {
        let all: Vec<PlottedLine> =
            (0..11).map(|i| line(&format!("<{i}>"), &[[0.0, 1.0], [1.0, 2.0]])).collect();
        let svg = lines("t", ["x", "y"], Ordinate::FromZero, &all).expect("lines").into_string();
        assert_eq!((svg.matches("<polyline").count(), svg.matches(" hidden>").count()), (11, 3));
        assert_eq!((svg.matches("type=\"checkbox\"").count(), svg.matches(" checked>").count()), (11, 8));
        let all: Vec<PlottedValue> = (0..11).map(|i| value(&format!("m{i}"), [2.0, 4.0])).collect();
        let svg = values("t", "us", &all).expect("values").into_string();
        let (first, more) = svg.split_once("<details>").expect("the others");
        assert_eq!(
            (first.matches("<rect class=\"mark\"").count(), more.matches("<rect class=\"mark\"").count()),
            (8, 3)
        );
        assert!(more.contains("<summary>3 more</summary>"), "{more}");
    }

    #[test]
    fn nothing_to_draw_draws_nothing() {
        assert!(lines("t", ["x", "y"], Ordinate::FromZero, &[]).is_none());
        assert!(lines("t", ["x", "y"], Ordinate::Logarithmic, &[line("zero", &[[1.0, 0.0]])]).is_none());
        assert!(values("t", "us", &[]).is_none());
    }

    #[test]
    fn ticks_are_round_and_their_labels_short() {
        let labels = |axis: Axis| axis.ticks().into_iter().map(label).collect::<Vec<_>>();
        assert_eq!(labels(Axis::linear(0.0, 1024.0, 0.0, 1.0)), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(
            labels(Axis::linear(0.0, 0.3, 0.0, 1.0)),
            ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]
        );
        let narrow = Axis::logarithmic([20.0, 70.0].into_iter(), 0.0, 1.0).unwrap();
        assert_eq!(labels(narrow), ["10", "20", "50", "100"]);
        let wide = Axis::logarithmic([0.02, 7000.0].into_iter(), 0.0, 1.0).unwrap();
        assert_eq!(labels(wide), ["0.01", "0.1", "1", "10", "100", "1000", "10k"]);
    }

    #[test]
    fn an_axis_has_about_five_round_ticks() {
        for high in [0.03, 1.0, 7.3, 65.0, 12_345.0] {
            let ticks = high / round_step(high);
            assert!((2.0..=6.0).contains(&ticks), "{high}: {ticks}");
        }
    }
}
