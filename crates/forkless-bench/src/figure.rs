//! One picture to send around: the time of a start by its parent's memory, from a result of the
//! suite `memory`. The picture is an SVG of its own, light or dark by the reader's setting, and
//! names the machine. The same result always gives the same bytes.

use maud::{Markup, PreEscaped, html};

use crate::plot::{Axis, course, interval, label, px};
use crate::render::{number, size};
use crate::results::{Results, Row};
use crate::store::date;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 440.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 330.0;

/// Names of the methods for a reader, in the order of the colours. After "under" stands the command
/// that runs programs with the preloaded library.
const NAMES: [(&str, &str); 5] = [
    ("fork_exec", "fork and exec"),
    ("posix_spawn", "posix_spawn"),
    ("fork_exec_under_run", "fork and exec, under"),
    ("forkless", "forkless, the library"),
    ("vfork_exec", "vfork and exec"),
];

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#1b1b1f}.soft{fill:#63636e}.title{font-size:16px;font-weight:600}\
.small{font-size:11px}.page{fill:#fff}.axis{stroke:#d8d8de}.s{fill:none;stroke:currentColor;stroke-width:2}\
.s circle{stroke:none}.s circle,.n{fill:currentColor}\
.c0{color:#c2410c}.c1{color:#7c3aed}.c2{color:#0b62c4}.c3{color:#0f7b4f}.c4{color:#55555f}\
@media (prefers-color-scheme:dark){text{fill:#e8e8ec}.soft{fill:#a0a0ab}.page{fill:#17171a}.axis{stroke:#3a3a42}\
.c0{color:#ff8f5c}.c1{color:#b79bff}.c2{color:#6cb0ff}.c3{color:#52cc96}.c4{color:#b4b4be}}";

/// A method's times, in milliseconds with their intervals, by bytes of memory.
struct Line {
    name: String,
    colour: usize,
    points: Vec<(f64, f64, [f64; 2])>,
}

/// The figure. `made_by` names the command that measures, and `runner` the one that runs programs
/// with the preloaded library. `None` where the result has no suite `memory`, or fewer than two
/// sizes above zero.
#[must_use]
pub fn by_memory(made_by: &str, runner: &str, results: &Results) -> Option<String> {
    let suite = results.suites.iter().find(|suite| suite.name == "memory")?;
    let pages = suite.rows.first()?.params.get("pages");
    let walls: Vec<&Row> = suite
        .rows
        .iter()
        .filter(|row| row.metric == "wall" && row.unit == "us" && row.params.get("pages") == pages)
        .collect();
    let lines: Vec<Line> = NAMES
        .iter()
        .enumerate()
        .filter_map(|(colour, &(method, name))| {
            let own = walls.iter().filter(|row| row.method == method);
            let mut points: Vec<(f64, f64, [f64; 2])> = own
                .filter_map(|row| {
                    let time = row.summary.median / 1e3;
                    Some((used(row)?, time, row.ci95.map(|end| end / 1e3))).filter(|_| time > 0.0)
                })
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            (points.len() >= 2).then(|| {
                let runner = if name.ends_with("under") { format!(" {runner}") } else { String::new() };
                Line { name: format!("{name}{runner}"), colour, points }
            })
        })
        .collect();
    let all = || lines.iter().flat_map(|line| &line.points);
    let mut sizes: Vec<f64> = all().map(|&(at, ..)| at).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let &[first, .., last] = &sizes[..] else { return None };
    let x = Axis::logarithmic_between([first, last], LEFT + 16.0, RIGHT);
    let y = Axis::logarithmic(all().flat_map(|&(_, time, [low, high])| [time, low, high]), BOTTOM, TOP)?;
    let machine = &results.machine;
    let cpu = machine.cpu.as_deref().unwrap_or("an unnamed processor");
    let system = format!(
        "{} {}, {cpu}, {} processors, {}",
        machine.os,
        machine.kernel,
        machine.cpus,
        date(results.created)
    );
    // A disturbed measurement says so wherever its picture goes.
    let noise = suite.notes.iter().find(|note| note.starts_with("noisy:"));
    let noise = noise.map_or_else(String::new, |note| format!("; {note}"));
    let drawing = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " 420" } width=(WIDTH) height="420" role="img" {
            title { "Milliseconds for one start of a program, by the memory of the process that starts it" }
            style { (PreEscaped(STYLE)) }
            rect.page width=(WIDTH) height="420" rx="8" {}
            text.title x="16" y="28" { "One start of a program, by the memory of the process that starts it" }
            text.soft x="16" y="54" { "milliseconds, logarithmic" }
            @for tick in y.ticks() {
                line.axis x1=(LEFT) x2=(RIGHT) y1=(px(y.at(tick))) y2=(px(y.at(tick))) {}
                text.soft x=(px(LEFT - 8.0)) y=(px(y.at(tick) + 4.0)) text-anchor="end" { (label(tick)) }
            }
            @for &bytes in &sizes {
                line.axis x1=(px(x.at(bytes))) x2=(px(x.at(bytes))) y1=(BOTTOM) y2=(BOTTOM + 5.0) {}
                text.soft x=(px(x.at(bytes))) y=(BOTTOM + 21.0) text-anchor="middle" { (named(bytes)) }
            }
            text.soft x=(px(LEFT.midpoint(RIGHT))) y=(BOTTOM + 42.0) text-anchor="middle" { "memory that the process has written" }
            @for line in &lines { (drawn(line, &x, &y)) }
            @for (line, at) in labels(&lines, &y) {
                text class={ "n c" (line.colour) } x=(px(RIGHT + 14.0)) y=(px(at + 4.0)) {
                    (line.name) ": " (line.points.last().map_or_else(String::new, |&(_, time, _)| number(time))) " ms"
                }
            }
            text.soft.small x="16" y="394" { "medians with 95 % intervals, measured in turns by " (made_by) " memory" (noise) }
            text.soft.small x="16" y="410" { (system) }
        }
    };
    Some(drawing.into_string() + "\n")
}

fn drawn(line: &Line, x: &Axis, y: &Axis) -> Markup {
    html! {
        g class={ "s c" (line.colour) } {
            polyline points=(course(line.points.iter().map(|&(at, time, _)| [x.at(at), y.at(time)]))) {}
            @for &(at, time, ends) in &line.points {
                (interval(x.at(at), ends.map(|end| y.at(end)), 4.0))
                circle cx=(px(x.at(at))) cy=(px(y.at(time))) r="3" {}
            }
        }
    }
}

/// Where each line's name stands: at its end, or as near to it as the other names allow.
fn labels<'a>(lines: &'a [Line], y: &Axis) -> Vec<(&'a Line, f64)> {
    const APART: f64 = 18.0;
    let mut ends: Vec<(&Line, f64)> =
        lines.iter().filter_map(|line| Some((line, y.at(line.points.last()?.1)))).collect();
    // From below upwards: the lowest line is nearest to the axis, and has no room below it.
    ends.sort_by(|one, other| other.1.total_cmp(&one.1));
    let mut limit = f64::INFINITY;
    for (_, at) in &mut ends {
        *at = at.min(limit);
        limit = *at - APART;
    }
    ends
}

#[expect(clippy::cast_precision_loss, reason = "sizes of memory fit a double")]
fn used(row: &Row) -> Option<f64> {
    row.number("used").filter(|&bytes| bytes > 0).map(|bytes| bytes as f64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size of memory")]
fn named(bytes: f64) -> String {
    size(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Param, Suite, tests::series};

    fn results(sizes: &[u64]) -> Results {
        let mut all = Vec::new();
        for &bytes in sizes {
            for (method, scale) in [("fork_exec", 1000.0), ("forkless", 6.0), ("posix_spawn", 7.0)] {
                let mut one = series(method, scale);
                one.params.insert("used".to_owned(), Param::Number(bytes));
                all.push(one);
            }
        }
        let rows = crate::results::rows(all, None, 1);
        Results {
            suites: vec![Suite { name: "memory".into(), rows, ..Suite::default() }],
            ..Results::begin()
        }
    }

    #[test]
    fn each_method_has_its_line_and_its_name_and_the_machine_is_named() {
        let results = results(&[64 << 20, 1 << 30, 4 << 30]);
        let svg = by_memory("bench", "run", &results).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 3);
        for words in [
            "fork and exec: ",
            "forkless, the library: ",
            "64 MiB",
            "4 GiB",
            "milliseconds",
            &results.machine.kernel,
        ] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        assert!(svg.contains("prefers-color-scheme") && !svg.contains("NaN"));
        assert_eq!(Some(svg), by_memory("bench", "run", &results));
    }

    #[test]
    fn names_of_lines_that_end_together_stand_apart() {
        let line = |time| Line { name: String::new(), colour: 0, points: vec![(1.0, time, [time; 2])] };
        let lines = [line(100.0), line(101.0), line(200.0), line(102.0)];
        let ends: Vec<f64> =
            labels(&lines, &Axis::linear(0.0, 1024.0, 0.0, 1024.0)).into_iter().map(|(_, at)| at).collect();
        assert_eq!(ends, [200.0, 102.0, 84.0, 66.0]);
    }

    #[test]
    fn an_interval_that_reaches_zero_is_drawn_to_the_axis() {
        let mut results = results(&[64 << 20, 1 << 30]);
        results.suites[0].rows[0].ci95[0] = 0.0;
        let svg = by_memory("bench", "run", &results).unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_result_without_sizes_has_no_figure() {
        assert_eq!(by_memory("bench", "run", &results(&[1 << 30])), None);
        assert_eq!(by_memory("bench", "run", &results(&[1 << 30, 1 << 30])), None);
        assert_eq!(by_memory("bench", "run", &Results::begin()), None);
    }
}
