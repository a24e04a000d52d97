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
struct Axis {
    logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// `None` where there is nothing above zero.
    fn logarithmic(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Axis> {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|&value| value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        let low = low.log10().floor();
        let high = high.log10().ceil().max(low + 1.0);
        low.is_finite().then_some(Axis { logarithmic: true, low, high, from, to })
    }

    fn linear(low: f64, high: f64, from: f64, to: f64) -> Axis {
        Axis { logarithmic: false, low, high: high.max(low + 1e-9), from, to }
    }

    fn share(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(1e-12).log10() } else { value };
        (value - self.low) / (self.high - self.low)
    }

    fn holds(&self, value: f64) -> bool {
        (value > 0.0 || !self.logarithmic) && (0.0..=1.0).contains(&self.share(value))
    }

    fn at(&self, value: f64) -> f64 {
        self.from + self.share(value).clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let step = if self.logarithmic { 1.0 } else { round_step(self.high) };
        let mut ticks = Vec::new();
        let mut tick = self.low;
        while tick <= self.high {
            ticks.push(if self.logarithmic { 10_f64.powf(tick) } else { tick });
            tick += step;
        }
        ticks
    }
}

/// A round step that divides `high` into about five.
fn round_step(high: f64) -> f64 {
    let power = 10_f64.powf((high / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| high / step <= 6.0).unwrap_or(high)
}

/// The width that the longest of these names takes in a picture, or the least that is wanted. A
/// browser alone knows: 12 px letters are half as wide as high, and some more.
#[expect(clippy::cast_precision_loss, reason = "a number of letters")]
fn room_for<'t>(names: impl Iterator<Item = &'t str>, least: f64) -> f64 {
    names.map(|name| 6.8 * name.chars().count() as f64 + 12.0).fold(least, f64::max)
}

/// A position on the page: a tenth of a pixel is enough.
fn px(position: f64) -> String {
    format!("{position:.1}")
}

/// Values on a logarithmic axis: a dot, the interval as a thick line, the spread as a thin one, and
/// hills of the samples. `None` where there is nothing to draw.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a number of values")]
pub fn values(title: &str, values: &[PlottedValue]) -> Option<Markup> {
    const LEFT: f64 = 280.0;
    let left = room_for(values.iter().map(|one| one.name.as_str()), LEFT);
    let width = 900.0 - LEFT + left;
    let all =
        values.iter().flat_map(|one| one.spread.into_iter().flatten().chain(one.ci95).chain([one.value]));
    let axis = Axis::logarithmic(all, left, width - 110.0)?;
    let height = 60.0 + 20.0 * values.len() as f64;
    let rows = values.iter().enumerate().map(|(index, one)| (one, 38.0 + 20.0 * index as f64));
    Some(html! {
        svg viewBox={ "0 0 " (px(width)) " " (height) } role="img" aria-label=(title) {
            @for tick in axis.ticks() {
                @let x = px(axis.at(tick));
                line.axis x1=(x) x2=(x) y1="20" y2=(px(height - 20.0)) {}
                text x=(x) y="14" text-anchor="middle" { (tick) }
            }
            @for (one, y) in rows {
                @let ends = one.spread.unwrap_or(one.ci95).map(|end| axis.at(end));
                @let [low, high] = one.ci95.map(|end| axis.at(end));
                (hills(&one.samples, &axis, y))
                text x=(px(left - 8.0)) y=(px(y + 4.0)) text-anchor="end" { (one.name) }
                line.mark x1=(px(ends[0])) x2=(px(ends[1])) y1=(y) y2=(y) stroke-width="1" {}
                line.mark x1=(px(low)) x2=(px(high)) y1=(y) y2=(y) stroke-width="5" {}
                circle.mark cx=(px(axis.at(one.value))) cy=(y) r="4" {
                    title {
                        (one.name) ": " (number(one.value))
                        @if one.ci95[0] < one.ci95[1] { " [" (number(one.ci95[0])) ", " (number(one.ci95[1])) "]" }
                    }
                }
                text x=(px(ends[1].max(high).max(axis.at(one.value)) + 10.0)) y=(px(y + 4.0)) { (number(one.value)) }
            }
        }
    })
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
    const WIDTH: f64 = 4.0;
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for &sample in samples.iter().filter(|&&sample| axis.holds(sample)) {
        *counts.entry(((axis.at(sample) - axis.from) / WIDTH) as u32).or_default() += 1;
    }
    let most = f64::from(counts.values().copied().max().unwrap_or(1));
    let bins = counts
        .into_iter()
        .map(|(bin, count)| (axis.from + WIDTH * f64::from(bin), HEIGHT * f64::from(count) / most));
    html! {
        // Less cannot be seen, and thousands of such bins make a page slow.
        @for (x, height) in bins.filter(|&(_, height)| height >= 0.5) {
            rect.bin x=(px(x)) y=(px(y - height)) width=(WIDTH) height=(px(height)) {}
        }
    }
}

/// Where something stands in a list, which it joins if it is new.
fn place<'t>(list: &mut Vec<&'t str>, one: &'t str) -> usize {
    list.iter().position(|known| *known == one).unwrap_or_else(|| {
        list.push(one);
        list.len() - 1
    })
}

/// Lines over an axis of numbers, with the names of both axes. `None` where there is nothing to
/// draw.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a number of lines")]
pub fn lines(
    title: &str,
    [x_name, y_name]: [&str; 2],
    ordinate: Ordinate,
    lines: &[PlottedLine],
) -> Option<Markup> {
    const LEFT: f64 = 70.0;
    const RIGHT: f64 = 640.0;
    const BOTTOM: f64 = 376.0;
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_low = points().map(|(point, _)| point[0]).fold(f64::INFINITY, f64::min);
    let x_high = points().map(|(point, _)| point[0]).fold(f64::NEG_INFINITY, f64::max);
    let y_all = points().flat_map(|&(point, ci95)| ci95.into_iter().flatten().chain([point[1]]));
    let y_high = y_all.clone().fold(0.0, f64::max);
    if !x_low.is_finite() || y_high <= 0.0 {
        return None;
    }
    let x = Axis::linear(x_low, x_high, LEFT, RIGHT - 70.0);
    let y = match ordinate {
        Ordinate::FromZero => Axis::linear(0.0, y_high, BOTTOM, 26.0),
        Ordinate::Logarithmic => Axis::logarithmic(y_all, BOTTOM, 26.0)?,
    };
    // The names beside the lines may need more room than the lines.
    let height = (BOTTOM + 44.0).max(44.0 + 18.0 * lines.len() as f64);
    let width = RIGHT + 48.0 + room_for(lines.iter().map(|line| line.name.as_str()), 212.0);
    let (mut groups, mut kinds) = (Vec::new(), Vec::new());
    let drawn = lines.iter().enumerate().map(|(index, line)| {
        // Hues by the golden angle, each as different from those before as can be, with lightness
        // in the middle, so that both backgrounds do.
        let hue = place(&mut groups, &line.group) as f64 * 137.5 % 360.0;
        let dashes = ["none", "7 4", "2 3", "10 3 2 3", "1 5"];
        let dashes = dashes[place(&mut kinds, &line.kind) % dashes.len()];
        (line, format!("hsl({hue:.0} 70% 50%)"), dashes, 34.0 + 18.0 * index as f64)
    });
    Some(html! {
        svg viewBox={ "0 0 " (px(width)) " " (px(height)) } role="img" aria-label=(title) {
            @for tick in y.ticks() {
                line.axis x1=(LEFT) x2=(RIGHT) y1=(px(y.at(tick))) y2=(px(y.at(tick))) {}
                text x=(LEFT - 6.0) y=(px(y.at(tick) + 4.0)) text-anchor="end" { (number(tick)) }
            }
            @for tick in [x_low, x_low.midpoint(x_high), x_high] {
                text x=(px(x.at(tick))) y=(BOTTOM + 18.0) text-anchor="middle" { (number(tick)) }
            }
            text x=(px(x.at(x_low.midpoint(x_high)))) y=(BOTTOM + 36.0) text-anchor="middle" { (x_name) }
            text x="4" y="14" { (y_name) }
            @for (line, color, dashes, label) in drawn {
                @let path: Vec<String> =
                    line.points.iter().map(|(point, _)| format!("{:.1},{:.1}", x.at(point[0]), y.at(point[1]))).collect();
                polyline fill="none" stroke=(color) stroke-width="2" stroke-dasharray=(dashes) points=(path.join(" ")) {}
                @for &([at, value], ci95) in &line.points {
                    @if let Some([low, high]) = ci95 {
                        line stroke=(color) stroke-width="3" x1=(px(x.at(at))) x2=(px(x.at(at))) y1=(px(y.at(low)))
                            y2=(px(y.at(high))) {}
                    }
                    circle cx=(px(x.at(at))) cy=(px(y.at(value))) r="3" fill=(color) {
                        title { (line.name) ", " (number(at)) ": " (number(value)) }
                    }
                }
                line stroke=(color) stroke-width="3" stroke-dasharray=(dashes) x1=(RIGHT + 14.0) x2=(RIGHT + 42.0)
                    y1=(label - 4.0) y2=(label - 4.0) {}
                text x=(RIGHT + 48.0) y=(label) { (line.name) }
            }
        }
    })
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
        let values = values("t", &[value(name, [0.0, 4.0])]).expect("values").into_string();
        [lines(Ordinate::FromZero), lines(Ordinate::Logarithmic), values]
    }

    #[test]
    fn plots_are_closed_escaped_and_free_of_what_is_no_number() {
        for svg in both("a<b") {
            assert_eq!((svg.matches("<svg").count(), svg.matches("</svg>").count()), (1, 1));
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("a<b"), "{svg}");
        }
    }

    /// The legend of E1, "fork, child dead, THP switched off by prctl", ended beyond the picture.
    #[test]
    fn long_names_have_room() {
        let name = "fork, child dead, transparent huge pages switched off by prctl, by root";
        for svg in both(name) {
            let number = |text: &str| text.split([' ', '"']).next().and_then(|word| word.parse::<f64>().ok());
            let width = svg.split("viewBox=\"0 0 ").nth(1).and_then(number).expect("a view box");
            let text = svg
                .split("<text x=\"")
                .find(|text| text.contains(&format!(">{name}</text>")))
                .expect("the name");
            let at = number(text).expect("its place");
            // 12 px; letters of the usual faces are half as wide, and seldom more.
            let long = 6.2 * name.len() as f64;
            let (from, to) =
                if text.contains("text-anchor=\"end\"") { (at - long, at) } else { (at, at + long) };
            assert!(from >= 0.0 && to <= width, "{from} to {to} of {width}");
        }
    }

    #[test]
    fn nothing_to_draw_draws_nothing() {
        assert!(lines("t", ["x", "y"], Ordinate::FromZero, &[]).is_none());
        assert!(lines("t", ["x", "y"], Ordinate::Logarithmic, &[line("zero", &[[1.0, 0.0]])]).is_none());
        assert!(values("t", &[]).is_none());
    }

    #[test]
    fn an_axis_has_about_five_round_ticks() {
        for high in [0.03, 1.0, 7.3, 65.0, 12_345.0] {
            let ticks = high / round_step(high);
            assert!((2.0..=6.0).contains(&ticks), "{high}: {ticks}");
        }
    }
}
