//! The HTML report in a real browser: its layout is right on a telephone and on a screen, it sorts,
//! it logs no error and loads nothing. Skipped without Chromium (`apt-get install chromium`, which
//! `./x test` does as root).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A directory that is removed when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|directory| {
            ["chromium", "chromium-browser", "google-chrome"].map(|name| directory.join(name))
        })
        .find(|path| path.is_file())
}

/// Runs before the page's scripts and records errors.
const WATCH: &str = "<script>window.problems=[];\
addEventListener('error',e=>problems.push('error: '+e.message),true);\
addEventListener('securitypolicyviolation',e=>problems.push('refused: '+e.blockedURI))</script>";

/// Runs after the page's scripts. Does and reads what a reader would, and writes it where the test
/// finds it.
const PROBE: &str = "<script>(()=>{\
const table=document.querySelector('.scroll table'),heads=[...table.tHead.rows[0].cells],\
column=heads.findIndex(h=>h.textContent.startsWith('wall')),\
values=()=>[...table.tBodies[0].rows].map(r=>parseFloat(r.cells[column].textContent)),\
ordered=(v,d)=>v.length>1&&v.every((x,i)=>i==0||d*(x-v[i-1])>=0);\
heads[column].click();const up=ordered(values(),1)&&heads[column].ariaSort=='ascending';\
heads[column].dispatchEvent(new KeyboardEvent('keydown',{key:'Enter'}));const down=ordered(values(),-1);\
const box=document.querySelector('svg').getBoundingClientRect();\
const wide=document.documentElement.scrollWidth>document.documentElement.clientWidth;\
const result={up,down,wide,scrolls:[...document.querySelectorAll('table')].every(t=>t.closest('.scroll')),drawn:box.width>200&&box.height>60,\
tables:document.querySelectorAll('table').length,plots:document.querySelectorAll('svg').length,\
targets:[...document.querySelectorAll('nav a')].every(a=>document.querySelector(a.hash)),\
requests:performance.getEntriesByType('resource').length,problems};\
document.body.dataset.result=JSON.stringify(result)})()</script>";

fn dump(chromium: &Path, scratch: &Path, page: &Path) -> (String, String) {
    let output = Command::new("timeout")
        .arg("600")
        .arg(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--virtual-time-budget=2000"])
        .arg(format!("--user-data-dir={}", scratch.join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .env("HOME", scratch)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// A page of suites with marks, lines and a table of sentences, measured for a moment.
fn measured(scratch: &Scratch) -> PathBuf {
    let page = scratch.0.join("page.html");
    let output = Command::new(env!("CARGO_BIN_EXE_forkless"))
        .args([
            "bench",
            "all",
            "--suites",
            "spawn,memory,cow,context",
            "--quick",
            "--runs",
            "10",
            "--no-save",
        ])
        .args(["--filter", "fork,posix_spawn,localtime_r", "--html"])
        .arg(&page)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    page
}

fn scratch() -> Scratch {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("forkless-cli-page-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
    let scratch = Scratch(std::env::temp_dir().join(name));
    fs::create_dir_all(&scratch.0).unwrap();
    scratch
}

/// Measures the page in a frame, because a window cannot be as narrow as a telephone.
const FRAMED: &str = "<script>onload=()=>{const frame=document.querySelector('iframe'),page=frame.contentDocument,\
all=selector=>[...page.querySelectorAll(selector)],box=e=>e.getBoundingClientRect(),\
pictures=all('svg[role=img]'),shown=e=>box(e).width>0,\
letters=pictures.flatMap(p=>[...p.querySelectorAll('text')].filter(shown).map(t=>\
parseFloat(frame.contentWindow.getComputedStyle(t).fontSize)*box(p).width/p.viewBox.baseVal.width)),\
outside=pictures.filter(shown).flatMap(p=>[...p.querySelectorAll('text')].filter(t=>shown(t)&&\
(box(t).left<box(p).left-2||box(t).right>box(p).right+2)).map(t=>t.textContent)),\
overlapping=pictures.filter(shown).flatMap(p=>{const texts=[...p.querySelectorAll('text')].filter(shown).map(t=>[box(t),t.textContent]);\
return texts.flatMap(([a,x],i)=>texts.slice(i+1).filter(([b])=>a.left<b.right-1&&b.left<a.right-1&&a.top<b.bottom-3&&b.top<a.bottom-3)\
.map(([,y])=>x+' / '+y))}),\
lines=e=>{const r=page.createRange();r.selectNodeContents(e);return new Set([...r.getClientRects()].map(x=>Math.round(x.top))).size},\
broken=all('td').filter(c=>c.textContent.length<=32&&!c.matches('.value')&&lines(c)>1).map(c=>c.textContent);\
const plot=page.querySelector('.plot'),boxes=[...plot.querySelectorAll('input')],series=[...plot.querySelectorAll('svg .series')]\
.slice(0,boxes.length),visible=()=>series.filter(g=>g.getBBox&&frame.contentWindow.getComputedStyle(g).display!='none').length;\
const before=visible();boxes[0].click();const less=visible();if(boxes[8])boxes[8].click();const more=visible();\
document.body.dataset.result=JSON.stringify({width:frame.contentWindow.innerWidth,\
wide:page.documentElement.scrollWidth-page.documentElement.clientWidth,smallest:Math.min(...letters),outside,overlapping,broken,\
lines:boxes.length,before,less,more,pictures:pictures.length})}</script>";

fn result(dom: &str, log: &str) -> serde_json::Value {
    let (_, result) =
        dom.split_once("data-result=\"").unwrap_or_else(|| panic!("the probe did not run: {log}"));
    let result = result.split_once('"').unwrap().0.replace("&quot;", "\"").replace("&amp;", "&");
    serde_json::from_str(&result).unwrap()
}

#[test]
fn a_report_can_be_read_on_a_telephone_and_on_a_screen() {
    let Some(chromium) = chromium() else {
        println!("skipped: no chromium (apt-get install chromium)");
        return;
    };
    let scratch = scratch();
    let html = fs::read_to_string(measured(&scratch)).unwrap();
    let escaped = html.replace('&', "&amp;").replace('"', "&quot;");
    for width in [390, 1280] {
        let frame = scratch.0.join("frame.html");
        let frames =
            format!("<iframe width={width} height=900 style=\"border:0\" srcdoc=\"{escaped}\"></iframe>");
        fs::write(&frame, format!("<!doctype html><body>{frames}{FRAMED}</body>")).unwrap();
        let (dom, log) = dump(&chromium, &scratch.0, &frame);
        let result = result(&dom, &log);
        assert_eq!(result["width"], width, "{result}");
        assert_eq!(result["wide"], 0, "{result}");
        assert!(result["smallest"].as_f64() >= Some(10.0), "{result}");
        for wrong in ["outside", "overlapping", "broken"] {
            assert_eq!(result[wrong].as_array().map(Vec::len), Some(0), "{width}, {wrong}: {result}");
        }
        // At most eight lines are shown, until the reader chooses others.
        let count = |name: &str| result[name].as_u64().unwrap();
        assert_eq!(count("before"), count("lines").min(8), "{result}");
        assert_eq!(count("less"), count("before") - 1, "{result}");
        assert_eq!(count("more"), count("less") + u64::from(count("lines") > 8), "{result}");
    }
}

/// The command that made the figure in docs/figures makes the same bytes from its result.
#[test]
fn the_figure_of_the_readme_is_remade_from_its_result() {
    let figures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures"));
    let made = Command::new(env!("CARGO_BIN_EXE_forkless"))
        .arg("history")
        .arg(figures.join("start-by-memory.json"))
        .args(["--format", "svg"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let kept = fs::read(figures.join("start-by-memory.svg")).unwrap();
    assert!(made.stdout == kept, "docs/figures/README.md has the command that makes it anew");
}

#[test]
fn a_result_without_sizes_has_no_figure() {
    let scratch = scratch();
    let result = scratch.0.join("result.json");
    let output = Command::new(env!("CARGO_BIN_EXE_forkless"))
        .args([
            "bench",
            "spawn",
            "--runs",
            "2",
            "--restarts",
            "1",
            "--methods",
            "vfork_exec",
            "--no-save",
            "--json",
        ])
        .arg(&result)
        .output()
        .unwrap();
    assert!(output.status.success());
    let output = Command::new(env!("CARGO_BIN_EXE_forkless"))
        .arg("history")
        .arg(&result)
        .args(["--format", "svg"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && errors.contains("the figure needs a result of"), "{errors}");
}

#[test]
fn the_report_is_laid_out_sorts_and_asks_for_nothing() {
    let Some(chromium) = chromium() else {
        println!("skipped: no chromium (apt-get install chromium)");
        return;
    };
    let scratch = scratch();
    let page = measured(&scratch);

    let html = fs::read_to_string(&page).unwrap();
    let watched = html.replacen("<head>", &format!("<head>{WATCH}"), 1);
    let watched = watched.replacen("</body>", &format!("{PROBE}</body>"), 1);
    assert_eq!(watched.len(), html.len() + WATCH.len() + PROBE.len());
    fs::write(&page, &watched).unwrap();
    let (dom, log) = dump(&chromium, &scratch.0, &page);

    let console: Vec<&str> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    let result = result(&dom, &log);
    for (name, expected) in
        [("up", true), ("down", true), ("drawn", true), ("targets", true), ("scrolls", true), ("wide", false)]
    {
        assert_eq!(result[name], expected, "{name}: {result}");
    }
    assert_eq!(result["problems"].as_array().unwrap().len(), 0, "{result}");
    assert_eq!(result["requests"], 0, "{result}");
    assert!(result["tables"].as_u64() >= Some(5) && result["plots"].as_u64() >= Some(5), "{result}");
}

/// Regression: 2 MiB came before 512 KiB.
#[test]
fn sizes_are_sorted_by_their_bytes() {
    const PROBE: &str = "<script>(()=>{\
const table=document.querySelector('.scroll table'),heads=[...table.tHead.rows[0].cells],\
column=heads.findIndex(h=>h.textContent=='allocated'),\
values=()=>[...table.tBodies[0].rows].map(r=>r.cells[column].textContent);\
heads[column].click();const up=values();heads[column].click();\
document.body.dataset.result=JSON.stringify({up,down:values()})})()</script>";
    let Some(chromium) = chromium() else {
        println!("skipped: no chromium (apt-get install chromium)");
        return;
    };
    let scratch = scratch();
    let page = scratch.0.join("page.html");
    let output = Command::new(env!("CARGO_BIN_EXE_forkless"))
        .args(["bench", "memory", "--sizes", "2M,512K", "--pages", "base", "--methods", "vfork_exec"])
        .args(["--runs", "5", "--no-save", "--html"])
        .arg(&page)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let html = fs::read_to_string(&page).unwrap();
    fs::write(&page, html.replacen("</body>", &format!("{PROBE}</body>"), 1)).unwrap();
    let (dom, log) = dump(&chromium, &scratch.0, &page);
    let result = result(&dom, &log);
    let sizes = |first: &str, last: &str| serde_json::json!([first, last]);
    assert_eq!(result["up"], sizes("512 KiB", "2 MiB"), "{result}");
    assert_eq!(result["down"], sizes("2 MiB", "512 KiB"), "{result}");
}
