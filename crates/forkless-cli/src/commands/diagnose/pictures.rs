//! The pictures of the page: creations in time, by program, and a flame graph of their origins.
//! Both can be read as they are written here; the page's script adds zoom and search.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use forkless_diagnose::{DiagnosisReport, Outcome, SeenCreation, Timeline};
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::origins::path;
use super::{duration, duration_ns};

/// Programs with a lane of their own; the others share one.
const LANES: usize = 7;
/// Creations in the table.
const COSTLIEST: usize = 10;
/// A narrower box, as a share of the whole, is left out: it has no pixel.
const NARROWEST: f64 = 0.0004;
/// The height of a box, pixels, as in the style.
const BOX: usize = 20;

/// Both pictures, or a word on why there are none.
pub(super) fn pictures(report: &DiagnosisReport) -> Markup {
    if report.origins.is_empty() {
        return html! { section { p { "No process was created: there is nothing to draw." } } };
    }
    html! {
        (timeline(report))
        (flame(report))
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::ForkThenExec | Outcome::ForkAlone => "fork",
        Outcome::Speculated => "speculated fork",
        Outcome::Shared => "spawn",
    }
}

fn timeline(report: &DiagnosisReport) -> Markup {
    let Timeline { seen, left_out, columns, .. } = &report.timeline;
    let count: u64 = columns.iter().map(|column| column.count).sum();
    let mut costliest: Vec<&SeenCreation> = seen.iter().collect();
    costliest.sort_by(|a, b| b.cost_ns.total_cmp(&a.cost_ns));
    costliest.truncate(COSTLIEST);
    html! {
        section {
            h2 { "When: " (count) " creations and their cost" }
            (overview(report))
            div.tools.needs-script {
                button #closer type="button" { "Closer" }
                button #wider type="button" { "Wider" }
                button #whole type="button" { "All" }
            }
            div.needs-script {
                canvas #lanes tabindex="0" role="img"
                    aria-label="Creations in time, a lane for each program. Up and down: the creation before and after; left and right: move; plus, minus, 0: zoom." {}
                p #told.told aria-live="polite" { "Point at a creation, or drag over a time to enlarge it. Keys: arrows, +, -, 0." }
            }
            p.weak {
                "The higher a column, the more of its time went into creating, up to the highest in sight (by its root). "
                @if *left_out > 0 { "By program are the " (seen.len()) " costliest; the first picture has all." }
            }
            script #creations type="application/json" { (PreEscaped(data(report))) }
            details {
                summary { "The costliest creations" }
                div.cue { div.scroll role="region" tabindex="0" aria-label="The costliest creations" {
                    table {
                        tr { th { "after" } th { "program" } th { "what" } th { "cost" } }
                        @for one in costliest {
                            tr {
                                td.number { (duration(one.at_ns)) }
                                td { (one.program) " (" (one.caller) ")" }
                                td { (outcome(one.outcome)) " -> " (one.child) " " (one.started.as_deref().unwrap_or("")) }
                                td.number { (duration_ns(one.cost_ns)) }
                            }
                        }
                    }
                } }
            }
        }
    }
}

/// All creations in columns of time.
fn overview(report: &DiagnosisReport) -> Markup {
    const HEIGHT: f64 = 40.0;
    let Timeline { column_ns, columns, .. } = &report.timeline;
    let width = (*column_ns).max(1) as f64;
    let all = (report.window_ns as f64 / width).max(columns.len() as f64);
    let most = columns.iter().map(|column| column.cost_ns).fold(f64::MIN_POSITIVE, f64::max);
    let mut bars = String::new();
    for (at, column) in columns.iter().enumerate().filter(|(_, column)| column.count > 0) {
        let tall = (column.cost_ns / most * HEIGHT).max(1.0);
        bars += &format!("M{at} {HEIGHT}v-{tall:.1}h1v{tall:.1}z");
    }
    let label = format!(
        "All creations in {:.2} s; the highest column has {} of cost in {}",
        report.window_ns as f64 / 1e9,
        duration_ns(most),
        duration_ns(width)
    );
    html! {
        svg.all viewBox=(format!("0 0 {all:.2} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
            path d=(bars) {}
        }
        p.weak { (label) "." }
    }
}

/// A creation: beginning, cost, lane, program, caller, child, started or -1, outcome.
type Row = (f64, f64, usize, usize, u32, u32, i64, usize);

/// What the script draws. Times are microseconds since the beginning of the watch.
#[derive(Serialize)]
struct Data<'r> {
    end: f64,
    lanes: Vec<&'r str>,
    programs: Vec<&'r str>,
    started: Vec<&'r str>,
    outcomes: Vec<&'r str>,
    seen: Vec<Row>,
}

/// The numbers of names, in the order of their first use.
#[derive(Default)]
struct Names<'r> {
    numbers: HashMap<&'r str, usize>,
    names: Vec<&'r str>,
}

impl<'r> Names<'r> {
    fn number(&mut self, name: &'r str) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }
}

fn data(report: &DiagnosisReport) -> String {
    let seen = &report.timeline.seen;
    let mut costs: HashMap<&str, f64> = HashMap::new();
    for one in seen {
        *costs.entry(&one.program).or_default() += one.cost_ns;
    }
    let mut by_cost: Vec<(&str, f64)> = costs.into_iter().collect();
    by_cost.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let mut lanes: Vec<&str> = by_cost.iter().take(LANES).map(|(program, _)| *program).collect();
    let lane_of: HashMap<&str, usize> = lanes.iter().copied().zip(0..).collect();
    if by_cost.len() > LANES {
        lanes.push("other programs");
    }
    let (mut programs, mut started, mut outcomes) = (Names::default(), Names::default(), Names::default());
    let microseconds = |ns: f64| (ns / 100.0).round() / 10.0;
    let rows = seen
        .iter()
        .map(|one| {
            let lane = lane_of.get(one.program.as_str()).copied().unwrap_or(LANES);
            let started = one.started.as_deref().map_or(-1, |name| started.number(name) as i64);
            let (program, outcome) = (programs.number(&one.program), outcomes.number(outcome(one.outcome)));
            let (at, cost) = (microseconds(one.at_ns as f64), microseconds(one.cost_ns));
            (at, cost, lane, program, one.caller, one.child, started, outcome)
        })
        .collect();
    let last = seen.iter().map(|one| one.at_ns as f64 + one.cost_ns).fold(report.window_ns as f64, f64::max);
    let data = Data {
        end: microseconds(last).max(1.0),
        lanes,
        programs: programs.names,
        started: started.names,
        outcomes: outcomes.names,
        seen: rows,
    };
    in_script(&serde_json::to_string(&data).unwrap_or_else(|_| "null".to_owned()))
}

/// JSON inside of a script: no name in it may end the script, begin a comment, or be a control
/// character. Outside of its strings JSON has none of these.
fn in_script(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') || c.is_control() {
            safe += &format!("\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// A box of the flame graph with those below it.
#[derive(Default)]
struct Node {
    cost_ns: f64,
    count: u64,
    below: BTreeMap<String, Node>,
}

/// A box in its place: left end and width are shares of the whole.
struct Placed {
    name: String,
    depth: usize,
    left: f64,
    width: f64,
    cost_ns: f64,
    count: u64,
}

fn flame(report: &DiagnosisReport) -> Markup {
    let mut root = Node::default();
    for origin in &report.origins {
        let mut node = &mut root;
        let cost_ns = origin.cost_ns.max(0.0);
        node.cost_ns += cost_ns;
        node.count += origin.count;
        for part in path(origin) {
            node = node.below.entry(part).or_default();
            node.cost_ns += cost_ns;
            node.count += origin.count;
        }
    }
    let whole = root.cost_ns.max(f64::MIN_POSITIVE);
    let mut boxes = Vec::new();
    let left_out = place("all", &root, 0, 0.0, whole, &mut boxes);
    let depth = boxes.iter().map(|placed| placed.depth).max().unwrap_or(0) + 1;
    html! {
        section {
            h2 { "Where from: " (duration_ns(root.cost_ns)) " of creations and their execs" }
            div.tools.needs-script {
                input #search type="search" placeholder="Search" aria-label="Search in the flame graph";
                button #unzoom type="button" { "All" }
            }
            p #found.told.needs-script aria-live="polite" { "Click a box to enlarge it. Keys: arrows, Enter, Escape." }
            div.cue { div.tower role="region" tabindex="0" aria-label="Flame graph, all of its height" {
                div #flame.flame role="group" aria-label="Flame graph" style=(format!("height:{}px", depth * BOX)) {
                    @for (index, placed) in boxes.iter().enumerate() { (flame_box(index, placed, whole)) }
                }
            } }
            p.weak {
                "From the program at the top, over the lines of your code where they are known, to what was started. "
                "Widths are cost. "
                @match left_out {
                    0 => {},
                    1 => { "1 narrower box is left out." },
                    boxes => { (boxes) " narrower boxes are left out." },
                }
            }
        }
    }
}

/// Places a node and those below it, the costliest first. Returns how many were too narrow.
fn place(name: &str, node: &Node, depth: usize, left: f64, whole: f64, boxes: &mut Vec<Placed>) -> usize {
    let width = node.cost_ns / whole;
    boxes.push(Placed {
        name: name.to_owned(),
        depth,
        left,
        width,
        cost_ns: node.cost_ns,
        count: node.count,
    });
    let mut below: Vec<(&String, &Node)> = node.below.iter().collect();
    below.sort_by(|a, b| b.1.cost_ns.total_cmp(&a.1.cost_ns));
    let (mut at, mut left_out) = (left, 0);
    for (name, node) in below {
        if node.cost_ns / whole < NARROWEST {
            left_out += 1;
        } else {
            left_out += place(name, node, depth + 1, at, whole, boxes);
        }
        at += node.cost_ns / whole;
    }
    left_out
}

fn flame_box(index: usize, placed: &Placed, whole: f64) -> Markup {
    let Placed { name, depth, left, width, cost_ns, count } = placed;
    let style = format!(
        "left:{:.4}%;width:{:.4}%;top:{}px;--h:{}",
        left * 100.0,
        width * 100.0,
        depth * BOX,
        hue(name)
    );
    let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
    let title = format!("{name}: {}, {:.1} %, {times}", duration_ns(*cost_ns), cost_ns / whole * 100.0);
    let tab = if index == 0 { "0" } else { "-1" };
    html! {
        button type="button" tabindex=(tab) style=(style) title=(title) data-d=(depth)
            data-x=(format!("{left:.6}")) data-w=(format!("{width:.6}")) { (name) }
    }
}

/// The same name has the same colour, between red and yellow.
fn hue(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() % 50 + 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_the_script() {
        let json = serde_json::to_string("</script><!--\u{9b}\u{2028}\n&").expect("text");
        let safe = in_script(&json);
        assert!(safe.is_ascii() && !safe.contains(['<', '>', '&', '\n']), "{safe}");
        let back: String = serde_json::from_str(&safe).expect("still JSON");
        assert_eq!(back, "</script><!--\u{9b}\u{2028}\n&");
    }

    #[test]
    fn boxes_lie_below_those_they_belong_to() {
        let node = |cost_ns| Node { cost_ns, count: 1, ..Node::default() };
        let below = BTreeMap::from([("a".to_owned(), node(20.0)), ("b".to_owned(), node(80.0))]);
        let root = Node { cost_ns: 100.001, count: 2, below };
        let mut boxes = Vec::new();
        assert_eq!(place("all", &root, 0, 0.0, root.cost_ns, &mut boxes), 0);
        let lines: Vec<(&str, usize)> =
            boxes.iter().map(|placed| (placed.name.as_str(), placed.depth)).collect();
        assert_eq!(lines, [("all", 0), ("b", 1), ("a", 1)], "the costliest first");
        assert!((boxes[2].left - boxes[1].width).abs() < 1e-9);
        let shown = |placed| flame_box(0, placed, root.cost_ns).into_string();
        assert!(shown(&boxes[0]).contains(", 2 times\"") && shown(&boxes[1]).contains(", once\""));
    }
}
