//! The HTML report in a real browser: its layout is right, it sorts, it logs no error and loads
//! nothing. Skipped without Chromium (`apt-get install chromium`, which `./x test` does as root).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
const result={up,down,wide,drawn:box.width>200&&box.height>60,\
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

#[test]
fn the_report_is_laid_out_sorts_and_asks_for_nothing() {
    let Some(chromium) = chromium() else {
        println!("skipped: no chromium (apt-get install chromium)");
        return;
    };
    let scratch = Scratch(std::env::temp_dir().join(format!("forkless-cli-page-{}", std::process::id())));
    fs::create_dir_all(&scratch.0).unwrap();
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
        .args(["--filter", "fork_exec,posix_spawn,localtime_r", "--html"])
        .arg(&page)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let html = fs::read_to_string(&page).unwrap();
    let watched = html.replacen("<head>", &format!("<head>{WATCH}"), 1);
    let watched = watched.replacen("</body>", &format!("{PROBE}</body>"), 1);
    assert_eq!(watched.len(), html.len() + WATCH.len() + PROBE.len());
    fs::write(&page, &watched).unwrap();
    let (dom, log) = dump(&chromium, &scratch.0, &page);

    let console: Vec<&str> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
    let (_, result) =
        dom.split_once("data-result=\"").unwrap_or_else(|| panic!("the probe did not run: {log}"));
    let result = result.split_once('"').unwrap().0.replace("&quot;", "\"");
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    for (name, expected) in
        [("up", true), ("down", true), ("drawn", true), ("targets", true), ("wide", false)]
    {
        assert_eq!(result[name], expected, "{name}: {result}");
    }
    assert_eq!(result["problems"].as_array().unwrap().len(), 0, "{result}");
    assert_eq!(result["requests"], 0, "{result}");
    assert!(result["tables"].as_u64() >= Some(5) && result["plots"].as_u64() >= Some(5), "{result}");
}
