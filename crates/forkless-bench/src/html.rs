//! Results as one self-contained HTML page: a plot with intervals and a sortable table for each suite, light and dark by the
//! reader's setting, nothing fetched from anywhere.

use std::fmt::Write as _;

use crate::registry::{MetricPlot, Registration, Registry};
use crate::render::{Grid, Style, legend, limits, number, param, title};
use crate::results::{Param, Results, Row, Suite};

/// How all pages look.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--ink:light-dark(#1b1b1f,#e8e8ec);--soft:light-dark(#63636e,#a0a0ab);\
--line:light-dark(#d8d8de,#3a3a42);--page:light-dark(#fff,#17171a);--mark:light-dark(#0b62c4,#6cb0ff)}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:76rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}\
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}\
th{cursor:pointer;position:sticky;top:0;background:var(--page)}th:hover{color:var(--mark)}\
.text{text-align:left}.scroll{overflow-x:auto}p.note,p.legend{color:var(--soft);margin:.3rem 0}\
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .axis{stroke:var(--line)}\
svg .mark{fill:var(--mark);stroke:var(--mark)}svg .bin{fill:var(--mark);opacity:.3}pre{font-size:12px;overflow-x:auto}\
nav a{color:var(--mark);margin-right:1rem}th[aria-sort=ascending]::after{content:' \\2191'}\
th[aria-sort=descending]::after{content:' \\2193'}h1{margin-top:2.5rem}";

/// The browser itself keeps the page from fetching anything.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Sorts a table by the column whose head is clicked, or chosen by the Enter key; numbers by value, once up and once down.
pub const SCRIPT: &str = "\
document.querySelectorAll('thead th').forEach(th=>{th.tabIndex=0;\
th.onkeydown=e=>{if(e.key=='Enter')th.click()};\
th.onclick=()=>{const t=th.closest('table'),b=t.tBodies[0],i=[...th.parentNode.children].indexOf(th),\
d=th.ariaSort=='ascending'?-1:1,v=r=>r.children[i].textContent;\
th.parentNode.querySelectorAll('th').forEach(o=>o.ariaSort=null);th.ariaSort=d>0?'ascending':'descending';\
[...b.rows].sort((x,y)=>{const a=parseFloat(v(x)),c=parseFloat(v(y));\
return d*(isNaN(a)||isNaN(c)?v(x).localeCompare(v(y)):a-c)}).forEach(r=>b.append(r))}})";

/// The page.
#[must_use]
pub fn page(results: &Results, registry: Registry) -> String {
    let names: Vec<&str> = results.suites.iter().map(|suite| suite.name.as_str()).collect();
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <title>forkless bench: {}</title><style>{STYLE}</style></head><body>\n",
        escape(&names.join(", "))
    );
    text.push_str("<nav>");
    for (index, name) in names.iter().enumerate() {
        let _ = write!(text, "<a href=\"#suite-{index}\">{}</a>", escape(name));
    }
    text.push_str("<a href=\"#machine\">machine</a></nav>\n");
    for (index, suite) in results.suites.iter().enumerate() {
        section(&mut text, suite, registry.of(&suite.name), index);
    }
    text.push_str("<h1 id=machine>Machine</h1>\n<table><tbody>");
    for (name, value) in results.machine.lines() {
        let _ = write!(
            text,
            "<tr><td class=text>{}</td><td class=text>{}</td></tr>",
            escape(name),
            escape(&value)
        );
    }
    let _ = write!(
        text,
        "</tbody></table>\n<p class=legend>forkless {}, {}</p>\n<script>{SCRIPT}</script></body></html>\n",
        escape(&results.version),
        crate::store::timestamp(results.created)
    );
    text
}

fn section(text: &mut String, suite: &Suite, registered: &Registration, index: usize) {
    let _ = writeln!(text, "<h1 id=suite-{index}>{}</h1>", escape(&title(suite)));
    let plots = plots(suite, registered);
    for plot in &plots {
        let _ = writeln!(text, "{plot}");
    }
    if plots.iter().any(|plot| plot.contains("class=bin")) {
        text.push_str(
            "<p class=legend>dot: median; thick line: its 95 % interval; thin line: 5th to 95th percentile; hills: how the samples \
             are spread, each as high as its fullest bin</p>\n",
        );
    }
    table(text, &Grid::of(suite, registered.columns, Style::Bounds));
    let _ = writeln!(text, "<p class=legend>{}</p>", escape(&legend(suite)));
    if !suite.fits.is_empty() {
        text.push_str("<h2>Fitted to the memory used</h2>\n");
        table(text, &Grid::of_fits(suite));
    }
    if !suite.checks.is_empty() {
        text.push_str("<h2>Figures and their evidence</h2>\n");
        table(text, &Grid::of_checks(suite));
    }
    if !suite.derived.is_empty() {
        text.push_str("<h2>Derived</h2>\n<table><tbody>");
        for one in &suite.derived {
            let [low, high] = one.ci95.map(number);
            let _ = write!(
                text,
                "<tr><td class=text>{}</td><td>{} [{low}, {high}] {}</td></tr>",
                escape(&one.name),
                number(one.value),
                escape(&one.unit)
            );
        }
        text.push_str("</tbody></table>\n");
    }
    let stars = registered.picture.map_or_else(String::new, |picture| picture(suite));
    if !stars.is_empty() {
        let _ = writeln!(text, "<pre>{}</pre>", escape(&stars));
    }
    for limit in limits(suite) {
        let _ = writeln!(text, "<p class=note>limited by {}</p>", escape(&limit));
    }
    for note in &suite.notes {
        let _ = writeln!(text, "<p class=note>{}</p>", escape(note));
    }
}

/// Adds a table.
pub fn table(text: &mut String, grid: &Grid) {
    let class = |index: usize| if index < grid.text_columns { " class=text" } else { "" };
    text.push_str("<div class=scroll><table><thead><tr>");
    for (index, head) in grid.heads.iter().enumerate() {
        let _ = write!(text, "<th{}>{}</th>", class(index), escape(head));
    }
    text.push_str("</tr></thead><tbody>");
    for line in &grid.lines {
        text.push_str("<tr>");
        for (index, cell) in line.iter().enumerate() {
            let _ = write!(text, "<td{}>{}</td>", class(index), escape(cell));
        }
        text.push_str("</tr>");
    }
    text.push_str("</tbody></table></div>\n");
}

/// What is plotted of a suite: its leading metrics.
fn plots(suite: &Suite, registered: &Registration) -> Vec<String> {
    let drawn = |plot: &MetricPlot| {
        let rows: Vec<&Row> = suite.rows.iter().filter(|row| row.metric == plot.metric).collect();
        if plot.over_memory { curves(&rows, plot.metric) } else { dots(&rows, plot.metric, suite) }
    };
    registered.plots.iter().filter_map(drawn).collect()
}

/// A scale of powers of ten between two positive values.
struct Log {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Log {
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Log> {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|&value| value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if high <= 0.0 {
            return None;
        }
        Some(Log {
            low: low.log10().floor(),
            high: high.log10().ceil().max(low.log10().floor() + 1.0),
            from,
            to,
        })
    }

    fn holds(&self, value: f64) -> bool {
        value > 0.0 && (self.low..=self.high).contains(&value.log10())
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(1e-9).log10() - self.low) / (self.high - self.low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        let mut power = self.low;
        while power <= self.high {
            ticks.push(10_f64.powf(power));
            power += 1.0;
        }
        ticks
    }
}

/// One line a row: the median as a dot, its 95 % interval as a thick bar, p5 to p95 as a thin one.
#[expect(clippy::cast_precision_loss, reason = "a number of rows")]
fn dots(rows: &[&Row], metric: &str, suite: &Suite) -> Option<String> {
    const LEFT: f64 = 300.0;
    let first = rows.first()?;
    let label = |row: &Row| {
        let varies =
            |name: &str, value: &Param| suite.rows.iter().any(|other| other.params.get(name) != Some(value));
        let varying = row.params.iter().filter(|(name, value)| varies(name, value));
        let varying: Vec<String> = varying.map(|(name, value)| param(name, value)).collect();
        format!("{} {}", row.method, varying.join(" ")).trim().to_owned()
    };
    let labels: Vec<String> = rows.iter().map(|row| label(row)).collect();
    let left = room_for(labels.iter().map(String::as_str), LEFT);
    let width = 900.0 - LEFT + left;
    let scale = Log::new(rows.iter().flat_map(|row| [row.summary.p05, row.summary.p95]), left, width - 40.0)?;
    let height = 60.0 + 20.0 * rows.len() as f64;
    let mut svg = format!(
        "<h2>{metric}, {unit}</h2>\n<svg viewBox=\"0 0 {width:.0} {height}\" role=\"img\" aria-label=\"{metric} by method\">",
        metric = escape(metric),
        unit = escape(&first.unit)
    );
    for tick in scale.ticks() {
        let x = scale.at(tick);
        let _ = write!(
            svg,
            "<line class=axis x1={x:.1} x2={x:.1} y1=20 y2={:.1} /><text x={x:.1} y=14 text-anchor=middle>{tick}</text>",
            height - 20.0
        );
    }
    for (index, (row, label)) in rows.iter().zip(&labels).enumerate() {
        let y = 38.0 + 20.0 * index as f64;
        let [low, high] = row.ci95.map(|value| scale.at(value));
        hills(&mut svg, row, &scale, y);
        let _ = write!(
            svg,
            "<text x={:.0} y={:.1} text-anchor=end>{}</text>\
             <line class=mark x1={:.1} x2={:.1} y1={y} y2={y} stroke-width=1 />\
             <line class=mark x1={low:.1} x2={high:.1} y1={y} y2={y} stroke-width=5 />\
             <circle class=mark cx={:.1} cy={y} r=4><title>{}: {} [{}, {}]</title></circle>",
            left - 8.0,
            y + 4.0,
            escape(label),
            scale.at(row.summary.p05),
            scale.at(row.summary.p95),
            scale.at(row.summary.median),
            escape(label),
            number(row.summary.median),
            number(row.ci95[0]),
            number(row.ci95[1]),
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// How the row's samples are spread, in bins of equal width on the scale, standing on the row's line; what is beyond the scale
/// is left out.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a position on the page, not negative"
)]
fn hills(svg: &mut String, row: &Row, scale: &Log, y: f64) {
    const HEIGHT: f64 = 14.0;
    const WIDTH: f64 = 4.0;
    let mut counts: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
    for &sample in row.samples.iter().filter(|&&sample| scale.holds(sample)) {
        *counts.entry(((scale.at(sample) - scale.from) / WIDTH) as u32).or_default() += 1;
    }
    let most = f64::from(counts.values().copied().max().unwrap_or(1));
    for (bin, count) in counts {
        let height = HEIGHT * f64::from(count) / most;
        // Less cannot be seen, and thousands of such bins make a page slow.
        if height >= 0.5 {
            let x = scale.from + WIDTH * f64::from(bin);
            let _ = write!(
                svg,
                "<rect class=bin x={x:.1} y={:.1} width={WIDTH} height={height:.1} />",
                y - height
            );
        }
    }
}

/// Where something stands in a list, which it joins if it is new.
fn place<T: PartialEq>(list: &mut Vec<T>, one: T) -> usize {
    list.iter().position(|known| *known == one).unwrap_or_else(|| {
        list.push(one);
        list.len() - 1
    })
}

/// Time against memory used, one line for each method and kind of pages.
#[expect(clippy::cast_precision_loss, reason = "sizes of memory fit a double")]
fn curves(rows: &[&Row], metric: &str) -> Option<String> {
    const WIDTH: f64 = 900.0;
    const HEIGHT: f64 = 420.0;
    let used = |row: &Row| match row.params.get("used") {
        Some(&Param::Number(bytes)) => bytes as f64 / f64::from(1 << 20),
        _ => 0.0,
    };
    let first = rows.first()?;
    let largest = rows.iter().map(|row| used(row)).fold(1.0, f64::max);
    let x = |mib: f64| 70.0 + mib / largest * (WIDTH - 330.0);
    let y = Log::new(rows.iter().flat_map(|row| row.ci95), HEIGHT - 40.0, 20.0)?;
    let mut lines: Vec<(&str, String, Vec<&Row>)> = Vec::new();
    for row in rows {
        let pages = row.params.get("pages").map(ToString::to_string).unwrap_or_default();
        match lines.iter_mut().find(|(method, known, _)| *method == row.method && *known == pages) {
            Some((.., line)) => line.push(row),
            None => lines.push((&row.method, pages, vec![row])),
        }
    }
    let names: Vec<String> = lines.iter().map(|(method, pages, _)| format!("{method} {pages}")).collect();
    // The names beside the lines may need more room than the lines.
    let width = WIDTH - 212.0 + room_for(names.iter().map(String::as_str), 212.0);
    let height = HEIGHT.max(30.0 + 18.0 * lines.len() as f64);
    let mut svg = format!(
        "<h2>{}, {} by MiB used</h2>\n<svg viewBox=\"0 0 {width:.0} {height}\" role=\"img\" aria-label=\"time by memory\">",
        escape(metric),
        escape(&first.unit)
    );
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<line class=axis x1=70 x2={:.0} y1={at:.1} y2={at:.1} /><text x=64 y={:.1} text-anchor=end>{tick}</text>",
            WIDTH - 260.0,
            at + 4.0
        );
    }
    let mut methods: Vec<&str> = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for (index, ((method, pages, mut line), name)) in lines.into_iter().zip(&names).enumerate() {
        line.sort_by(|a, b| used(a).total_cmp(&used(b)));
        // A method has a hue, by the golden angle as different from those before as can be, with lightness in the middle, so that
        // both backgrounds do; a kind of pages has a pattern.
        let hue = place(&mut methods, method) as f64 * 137.5 % 360.0;
        let color = format!("hsl({hue:.0} 70% 50%)");
        let dashes = ["none", "7 4", "2 3", "10 3 2 3", "1 5"];
        let dashes = dashes[place(&mut kinds, pages) % dashes.len()];
        let points: Vec<String> =
            line.iter().map(|row| format!("{:.1},{:.1}", x(used(row)), y.at(row.summary.median))).collect();
        let _ = write!(
            svg,
            "<polyline fill=none stroke=\"{color}\" stroke-width=2 stroke-dasharray=\"{dashes}\" points=\"{}\" />",
            points.join(" ")
        );
        for row in &line {
            let [low, high] = row.ci95.map(|value| y.at(value));
            let at = x(used(row));
            let _ = write!(
                svg,
                "<line stroke=\"{color}\" stroke-width=3 x1={at:.1} x2={at:.1} y1={low:.1} y2={high:.1}><title>{}: {}</title>\
                 </line>",
                escape(name),
                number(row.summary.median)
            );
        }
        let label = 24.0 + 18.0 * index as f64;
        let _ = write!(
            svg,
            "<line stroke=\"{color}\" stroke-width=3 stroke-dasharray=\"{dashes}\" x1={:.0} x2={:.0} y1={y:.1} y2={y:.1} />\
             <text x={:.0} y={label:.1}>{}</text>",
            WIDTH - 246.0,
            WIDTH - 218.0,
            WIDTH - 212.0,
            escape(name),
            y = label - 4.0
        );
    }
    for mib in [0.0, largest / 2.0, largest] {
        let _ =
            write!(svg, "<text x={:.1} y={:.0} text-anchor=middle>{mib:.0}</text>", x(mib), HEIGHT - 16.0);
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// The width that the longest of these names takes in a picture, or the least that is wanted. A browser alone knows: 12 px letters are
/// half as wide as high, and some more.
#[expect(clippy::cast_precision_loss, reason = "a number of letters")]
pub fn room_for<'t>(names: impl Iterator<Item = &'t str>, least: f64) -> f64 {
    names.map(|name| 6.8 * name.chars().count() as f64 + 12.0).fold(least, f64::max)
}

/// Text as text of a page.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Plan, Silent};
    use crate::spawn::{self, Method, Spec};
    use crate::suites::{SUITES, memory};

    #[test]
    fn the_page_shows_every_method_escapes_and_fetches_nothing() {
        let plan = Plan { runs: 10, ..Plan::default() };
        let methods = vec![Method::VforkExec, Method::ForkExec];
        let mut suite =
            spawn::run(&Spec { methods: methods.clone(), plan, ..Spec::default() }, None, &mut Silent)
                .unwrap();
        suite.notes.push("<script>alert(1)</script>".into());
        let sizes = vec![0, 4 << 20, 8 << 20];
        let pages = vec![crate::pages::Pages::Base];
        let memory = memory::Spec { sizes, pages, methods, plan, ..memory::Spec::default() };
        let memory = memory::run(&memory, None, &mut Silent).unwrap();
        let page = page(&Results { suites: vec![suite, memory], ..Results::begin() }, SUITES);
        assert!(page.contains("vfork_exec") && page.contains("fork_exec"));
        assert!(page.matches("<svg").count() >= 4, "{}", page.matches("<svg").count());
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(!page.contains("<script>alert"));
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
        // The script's isNaN aside.
        let figures = page.replace("isNaN", "");
        let around = figures.find("NaN").map(|at| &figures[at.saturating_sub(40)..at]);
        assert_eq!(around, None);
    }
}
