//! The other outputs of a watch: a page of HTML, the live view, and metrics that a real Prometheus
//! scrapes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::support::{
    FORKLESS, alone, check_against_schema, find, has_schema, known_problem, skip, trial, wait_until,
};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    type Test = (&'static str, fn(), Option<&'static str>);
    let tests: [Test; 8] = [
        ("outputs::the_schema_in_docs_tells_reports_from_others", schema, None),
        ("outputs::without_a_terminal_a_line_says_that_the_watch_has_begun", begun, None),
        ("outputs::html_is_one_page_without_foreign_markup", html, None),
        (
            "outputs::the_flame_graph_of_a_telephone_says_that_it_scrolls",
            scrolls,
            find("perl").is_none().then_some("no perl"),
        ),
        ("outputs::bytes_that_are_no_text_look_the_same_in_all_forms", no_text, None),
        ("outputs::folded_paths_lead_from_the_program_to_what_it_started", folded, None),
        (
            "outputs::pprof_reads_the_profile",
            pprof,
            find("go").is_none().then_some("no go, whose pprof would read it"),
        ),
        (
            "outputs::the_live_view_is_for_terminals_only",
            live,
            find("script").is_none().then_some("no script(1)"),
        ),
    ];
    let of_the_machine: [Test; 3] = [
        ("outputs::an_exporter_that_is_stopped_has_not_failed", stopped, None),
        ("outputs::metrics_have_cgroups_and_no_pids", metrics, None),
        (
            "outputs::prometheus_scrapes_the_metrics",
            prometheus,
            find("prometheus").is_none().then_some("no prometheus: apt-get install prometheus"),
        ),
    ];
    let tests = tests.into_iter().map(|(name, test, missing)| (name, trial(name, test), missing));
    let of_the_machine =
        of_the_machine.into_iter().map(|(name, test, missing)| (name, alone(name, test), missing));
    for (name, trial, missing) in tests.chain(of_the_machine) {
        if let Some(why) = missing {
            eprintln!("{name}: ignored, {why}");
        }
        trials.push(trial.with_ignored_flag(missing.is_some()));
    }
}

/// Every report of these tests is checked against the schema. So it must also reject something.
fn schema() {
    let (mut values, ..) = crate::support::diagnose(&[], &["nothing", "10"]);
    let mut report = values.remove(0);
    assert!(has_schema(&report), "{report}");
    report["findings"] = serde_json::json!([{"kind": "full_fork_then_exec"}]);
    assert!(!has_schema(&report), "a finding without its fields");
    assert!(!has_schema(&serde_json::json!({"schema": 1, "findings": []})));
}

/// A program whose name, on disk and in its arguments, would be markup or break a line, and whose
/// bytes are no text.
fn html() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
    std::fs::create_dir_all(&folder).expect("our own folder");
    let program = folder.join(std::ffi::OsStr::from_bytes(b"<\nscript>\xff\x1b[2J"));
    std::fs::copy(find("true").expect("true"), &program).expect("our own file");
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--html", "--", "sh", "-c"])
        .arg("for i in 1 2 3; do \"$0\" '</script><script>x()</script>'; sh -c 'true \"<b>&\"'; done")
        .arg(&program)
        .output()
        .expect("forkless runs");
    std::fs::remove_dir_all(&folder).expect("our own folder");
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"), "{page}");
    assert_eq!(page.matches("<script").count(), 2, "the data and the page's own: {page}");
    assert_eq!(page.matches("</script>").count(), 2, "{page}");
    assert!(!page.contains("<b>") && !page.contains('\x1b'), "{page}");
    assert!(!page.contains("http://") && !page.contains("https://"), "the page stands alone");
    let (_, data) = page.split_once("application/json\">").expect("the data of the pictures");
    let (data, _) = data.split_once("</script>").expect("their end");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["seen"].as_array().map(Vec::len), Some(6), "{data}");
    let started = data["started"].as_array().expect("a list");
    assert!(started.iter().any(|name| name == "<\nscript>\u{fffd}\u{1b}[2J"), "{data}");
    assert!(page.contains("class=\"flame\""), "{page}");

    let nothing =
        Command::new(FORKLESS).args(["diagnose", "--html", "--", "true"]).output().expect("forkless runs");
    let page = String::from_utf8_lossy(&nothing.stdout);
    assert!(page.contains("there is nothing to draw"), "{page}");

    // The place stood after all evidence.
    let found = Command::new(FORKLESS)
        .args(["diagnose", "--html", "--min-share", "0", "--"])
        .arg(known_problem().expect("checked before"))
        .args(["pathmiss", "20"])
        .output()
        .expect("forkless runs");
    let page = String::from_utf8_lossy(&found.stdout);
    let names: Vec<&str> =
        page.split("<dt>").skip(1).take(3).filter_map(|row| row.split("</dt>").next()).collect();
    assert_eq!(names, ["saves", "where", "who"], "{page}");
}

/// Runs after the page's scripts, in a frame as wide as a telephone. It reads what shows that the
/// flame graph scrolls, before and after it was scrolled.
const PROBE: &str = "<script>setTimeout(()=>{const box=document.querySelector('.tower'),cue=box.parentElement,\
cues=()=>['above','below'].filter(name=>cue.classList.contains(name)),\
said=()=>getComputedStyle(cue,'::after').content,result={tab:box.tabIndex,start:cues().join(' '),said:said().replaceAll('\"',''),\
wide:document.documentElement.scrollWidth>document.documentElement.clientWidth};\
box.scrollTop=box.scrollHeight;box.dispatchEvent(new Event('scroll'));result.end=cues().join(' ');\
parent.document.body.dataset.result=JSON.stringify(result)},300)</script>";

/// Regression: on a telephone, which shows no bars, nothing said that the flame graph goes on.
fn scrolls() {
    let Some(chromium) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(find) else {
        return skip("no chromium (apt-get install chromium)");
    };
    let line = "$m = 'x' x (32 << 20); \
                sub f { my $n = shift; return f($n - 1) . 'x' if $n; `sleep 0.1` for 1 .. 4 } f(40)";
    let page = Command::new(FORKLESS)
        .args(["diagnose", "--html", "--", "perl", "-e", line])
        .stdin(Stdio::null())
        .output()
        .expect("forkless runs");
    let page = String::from_utf8_lossy(&page.stdout).replace("</body>", &format!("{PROBE}</body>"));
    let escaped = page.replace('&', "&amp;").replace('"', "&quot;");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scrolls");
    std::fs::create_dir_all(&folder).expect("our own folder");
    let frame = folder.join("frame.html");
    let framed =
        format!("<!doctype html><body><iframe width=390 height=844 srcdoc=\"{escaped}\"></iframe></body>");
    std::fs::write(&frame, framed).expect("our own file");
    let output = Command::new("timeout")
        .arg("300")
        .arg(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"])
        .args(["--disable-background-networking", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", frame.display()))
        .env("HOME", &folder)
        .stdin(Stdio::null())
        .output()
        .expect("chromium runs");
    std::fs::remove_dir_all(&folder).expect("our own folder");
    let dom = String::from_utf8_lossy(&output.stdout).replace("&quot;", "\"");
    let (_, result) = dom.split_once("data-result=\"").unwrap_or_else(|| panic!("{output:?}"));
    let (result, _) = result.split_once("}\"").expect("its end");
    let result: Value = serde_json::from_str(&format!("{result}}}")).expect("JSON");
    assert_eq!(result["wide"], false, "{result}");
    assert_eq!(result["tab"], 0, "the keyboard gets there: {result}");
    assert_eq!((&result["start"], &result["end"]), (&"below".into(), &"above".into()), "{result}");
    assert!(result["said"].as_str().is_some_and(|said| said.contains("scroll for more")), "{result}");
}

/// A program and its argument have a byte that is no UTF-8.
fn no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-text");
    std::fs::create_dir_all(&folder).expect("our own folder");
    let program = folder.join(std::ffi::OsStr::from_bytes(b"pro\xffgram"));
    std::fs::copy(find("true").expect("true"), &program).expect("our own file");
    for form in [
        &["--json", "--min-share", "0"][..],
        &["--html", "--min-share", "0"],
        &["--verbose", "--min-share", "0"],
        &["--folded"],
        &["--log"],
        &["--log", "--json"],
    ] {
        let output = Command::new(FORKLESS)
            .arg("diagnose")
            .args(form)
            .args(["--", "sh", "-c"])
            .arg(r#""$0" 1; "$0" 2; "$0" 3"#)
            .args([program.as_os_str(), std::ffi::OsStr::from_bytes(b"argu\xffment")])
            .stdin(Stdio::null())
            .output()
            .expect("forkless runs");
        let said = String::from_utf8(output.stdout).unwrap_or_else(|error| panic!("{form:?}: {error}"));
        assert!(said.contains("pro\u{fffd}gram"), "{form:?}: {said}");
        if form[0] == "--json" {
            let report: Value = serde_json::from_str(&said).expect("JSON");
            // A command line with such a byte could not be given to a shell.
            assert!(report["command"].as_str().is_some_and(|line| line.ends_with("...")), "{report}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("our own folder");
}

/// Where nothing is drawn, a script that starts the load has no other sign.
fn begun() {
    let own = std::process::id().to_string();
    let output = Command::new(FORKLESS)
        .args(["diagnose", "--json", "-d", "0.1", "-p", &own])
        .stdin(Stdio::null())
        .output()
        .expect("forkless runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "the watch has begun\n");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    check_against_schema(&report);
}

/// Writes an output of a watch into a file, since the program prints on standard output itself.
fn written(form: &str, name: &str, program: &[&str]) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(FORKLESS)
        .args(["diagnose", form, "--output"])
        .arg(&file)
        .arg("--")
        .arg(known_problem().expect("checked before"))
        .args(program)
        .output()
        .expect("forkless runs");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    file
}

fn folded() {
    let file = written("--folded", "paths.folded", &["forkexec", "6", "16"]);
    let text = std::fs::read_to_string(&file).expect("written");
    std::fs::remove_file(&file).expect("our own file");
    let is_a_path = |line: &str| {
        let (path, cost) = line.rsplit_once(' ')?;
        cost.parse::<u64>().ok()?;
        let parts: Vec<&str> = path.split(';').collect();
        let of_program = parts.iter().any(|part| part.starts_with("fork_for_exec (known_problem"));
        let ends = parts.first() == Some(&"known_problem") && parts.last() == Some(&"fork, exec true");
        (of_program && ends).then_some(())
    };
    assert!(!text.is_empty() && text.lines().all(|line| is_a_path(line).is_some()), "{text}");
}

fn pprof() {
    let file = written("--pprof", "forks.pb.gz", &["spawn", "6", "16"]);
    let shown = |options: &[&str]| {
        let output = Command::new("go")
            .args(["tool", "pprof"])
            .args(options)
            .arg(&file)
            .env("GOTOOLCHAIN", "local")
            .output()
            .expect("go runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // The cost is what is shown at first; the values of the whole file are in -raw.
    let top = shown(&["-top", "-cum", "-nodecount=100"]);
    for part in ["Type: cost", "known_problem", "spawn true"] {
        assert!(top.contains(part), "no {part} in {top}");
    }
    let counts = shown(&["-sample_index=creations", "-top", "-nodecount=100"]);
    assert!(counts.contains("6 total"), "{counts}");
    std::fs::remove_file(&file).expect("our own file");
}

/// script(1) gives the tool a terminal.
fn live() {
    let mut process = waiting_program();
    let mut script = Command::new("script")
        .args(["-qec", &format!("{FORKLESS} diagnose -p {}", process.id()), "/dev/null"])
        // The tool does not draw on a dumb terminal, and takes a terminal without a name for one.
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    let mut out = script.stdout.take().expect("piped");
    let (mut shown, mut part) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&shown).contains("nothing found so far") {
        let bytes = out.read(&mut part).expect("a pipe");
        assert!(bytes > 0, "{:?}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&part[..bytes]);
    }
    // The watch ends with its target.
    process.kill().expect("it waits");
    process.wait().expect("it ends");
    out.read_to_end(&mut shown).expect("a pipe");
    script.wait().expect("it ends");
    let text = String::from_utf8_lossy(&shown);
    assert!(text.contains("\x1b[H"), "{text:?}");
    assert!(text.contains("Nothing found."), "the report follows: {text:?}");

    let mut process = waiting_program();
    let output = Command::new(FORKLESS)
        .args(["diagnose", "-d", "1.5", "-p", &process.id().to_string()])
        .output()
        .expect("forkless runs");
    assert!(!output.stdout.contains(&0x1b), "no drawing into a pipe");
    process.kill().expect("it waits");
    process.wait().expect("it ends");
}

fn waiting_program() -> Child {
    let mut process = Command::new(known_problem().expect("checked before"))
        .args(["nothing", "1"])
        .env("KNOWN_PROBLEM_WAIT", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut ready = [0u8; 6];
    process.stdout.as_mut().expect("piped").read_exact(&mut ready).expect("the program is ready");
    process
}

/// The tool, which watches everything and serves metrics on a free port.
struct Serving {
    tool: Child,
    address: SocketAddr,
    // Kept open: the tool writes its tiers there.
    _stderr: BufReader<std::process::ChildStderr>,
}

impl Serving {
    fn start() -> Self {
        let mut tool = Command::new(FORKLESS)
            .args(["diagnose", "--json", "--all", "--system-calls", "yes", "--min-share", "0"])
            .args(["--prometheus", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("forkless runs");
        let mut stderr = BufReader::new(tool.stderr.take().expect("piped"));
        let address = address_of_metrics(&mut stderr);
        let serving = Self { tool, address, _stderr: stderr };
        serving.wait_for("forkless_events_lost_total");
        serving
    }

    fn get(&self) -> String {
        get(self.address, "/metrics")
    }

    /// Ends it as a service manager does.
    fn stop(mut self) -> Output {
        let pid = rustix::process::Pid::from_child(&self.tool);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
        let mut stdout = Vec::new();
        let mut pipe = self.tool.stdout.take().expect("piped");
        std::io::Read::read_to_end(&mut pipe, &mut stdout).expect("a report");
        let status = self.tool.wait().expect("it ends");
        Output { status, stdout, stderr: Vec::new() }
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let mut page = String::new();
        let there = wait_until(|| {
            page = self.get();
            page.contains(text)
        });
        assert!(there, "no {text} in {page}");
        page
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself, if the test found that it did.
        let _ = self.tool.kill();
        let _ = self.tool.wait();
    }
}

/// Where the tool says that it serves metrics, in its first line.
pub(crate) fn address_of_metrics(stderr: &mut impl std::io::Read) -> SocketAddr {
    let mut line = String::new();
    BufReader::with_capacity(1, stderr).read_line(&mut line).expect("it says where");
    let address = line.trim().trim_start_matches("metrics at http://").trim_end_matches("/metrics");
    address.parse().unwrap_or_else(|_| panic!("no address: {line}"))
}

pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in UTF-8");
    answer
}

fn run_known_problem(arguments: &[&str]) {
    let status =
        Command::new(known_problem().expect("checked before")).args(arguments).stdout(Stdio::null()).status();
    assert!(status.expect("the program runs").success());
}

/// Regression: the findings, which the metrics have told, made a stopped service a failed one.
fn stopped() {
    let serving = Serving::start();
    run_known_problem(&["forkexec", "7", "16"]);
    serving.wait_for("kind=\"full_fork_then_exec\"");
    let report = serving.stop();
    assert_eq!(report.status.code(), Some(0), "{report:?}");
    let text: Value = serde_json::from_slice(&report.stdout).expect("a report");
    assert!(text["findings"].as_array().is_some_and(|all| !all.is_empty()), "{text}");
}

fn metrics() {
    let serving = Serving::start();
    run_known_problem(&["forkexec", "7", "16"]);
    let page = serving.wait_for("kind=\"full_fork_then_exec\"");
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    assert!(!page.contains("# EOF"), "nobody asked for OpenMetrics: {page}");
    check_with_promtool(&page);
    assert!(!page.contains("pid="), "{page}");
    assert!(get(serving.address, "/").starts_with("HTTP/1.1 404"));
}

/// Debian's prometheus package brings it. Its lints are part of it.
fn check_with_promtool(page: &str) {
    let Some(promtool) = find("promtool") else { return skip("no promtool checks the metrics") };
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    let (_, body) = page.split_once("\r\n\r\n").expect("headers and a body");
    check.stdin.take().expect("piped").write_all(body.as_bytes()).expect("it reads");
    let output = check.wait_with_output().expect("promtool ends");
    assert!(output.status.success(), "{}{page}", String::from_utf8_lossy(&output.stderr));
}

fn prometheus() {
    let serving = Serving::start();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus");
    std::fs::create_dir_all(&directory).expect("a directory for it");
    let config = directory.join("prometheus.yml");
    let target = serving.address;
    std::fs::write(
        &config,
        format!("global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: forkless\n  static_configs: [{{targets: ['{target}']}}]\n"),
    )
    .expect("its configuration");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus runs");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    run_known_problem(&["forkexec", "7", "16"]);

    let query =
        "/api/v1/query?query=sum(forkless_process_creations_total%7Bkind=%22full_fork_then_exec%22%7D)";
    let mut answer = String::new();
    wait_until(|| {
        if TcpStream::connect(address).is_ok() {
            answer = get(address, query);
        }
        answer.contains("\"value\"")
    });
    let ended = prometheus.kill().and_then(|()| prometheus.wait());
    let removed = std::fs::remove_dir_all(&directory);
    // The program's forks at least. Other processes of this machine may fork, too.
    let value = answer
        .split_once("\"value\":[")
        .and_then(|(_, value)| value.split('"').nth(1))
        .and_then(|value| value.parse::<u64>().ok());
    assert!(value >= Some(7), "{answer}");
    ended.expect("prometheus ends");
    removed.expect("its files go");
}
