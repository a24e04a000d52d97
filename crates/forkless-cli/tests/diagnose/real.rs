//! Programs that people run: Apache's CGI, redis, a switch of contexts, and scripts of Perl, Ruby,
//! Python, PHP, Node.js and bash that start programs. Each must get its finding first, with the
//! right count and remedy. Once the remedy is applied, it must save as much as was predicted. So
//! must the remedies of storms.
//!
//! Ignored unless asked for. The tests need these programs (as root, with FORKLESS_INSTALL=1, they
//! are installed), a gigabyte of memory and a quiet machine:
//!
//!     FORKLESS_INSTALL=1 cargo test --release -p forkless-cli --test diagnose -- --ignored real::
//!
//! A test that cannot run says SKIPPED with the reason, and fails: it was asked for and not shown.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::Value;

use crate::library::LIBRARY;
use crate::support::{FORKLESS, alone, diagnose, find, fixture, known_problem, report_in, wait_until};

pub(crate) fn add(trials: &mut Vec<Trial>) {
    let tests: [(&str, fn()); 13] = [
        ("real::perl_system", perl),
        ("real::ruby_as_root", ruby),
        ("real::python_preexec", python),
        ("real::php_proc_open", php),
        ("real::bash_script", bash),
        ("real::node_spawn_sync", node),
        ("real::bash_builtins", bash_builtins),
        ("real::find_with_many_files", find_with_many_files),
        ("real::xargs_with_many_arguments", xargs_with_many_arguments),
        ("real::make_with_one_shell", make_with_one_shell),
        ("real::swapcontext", swapcontext),
        ("real::redis_bgsave", redis),
        ("real::apache_cgi", apache),
    ];
    for (name, test) in tests {
        trials.push(alone(name, test).with_ignored_flag(true));
    }
}

#[track_caller]
fn need(program: &str, package: &str) {
    if find(program).is_some() || Path::new("/usr/sbin").join(program).exists() {
        return;
    }
    if std::env::var_os("FORKLESS_INSTALL").is_some() {
        let status =
            Command::new("apt-get").args(["install", "-y", "-qq", package]).stdout(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "apt-get install {package}");
        return;
    }
    panic!("SKIPPED: no {program}: apt-get install {package}, or set FORKLESS_INSTALL=1");
}

/// The first finding, which must be of this kind.
#[track_caller]
fn first(report: &Value, kind: &str) -> Value {
    let findings = report["findings"].as_array().expect("a list");
    let titles: Vec<&Value> = findings.iter().map(|finding| &finding["title"]).collect();
    assert_eq!(findings.first().map(|finding| &finding["kind"]), Some(&Value::from(kind)), "{titles:?}");
    findings[0].clone()
}

/// The saving that was predicted for each call, and the saving that followed. Both are measured in
/// turns, since a machine's speed changes from minute to minute. The median of the ratios must be
/// within 25 %.
#[track_caller]
fn came_true(what: &str, turns: &[(f64, f64)]) {
    let mut ratios: Vec<f64> = Vec::new();
    for (predicted, measured) in turns {
        let ratio = predicted / measured;
        println!(
            "{what}: predicted {:.4} ms, measured {:.4} ms, ratio {ratio:.2}",
            predicted / 1e6,
            measured / 1e6
        );
        ratios.push(ratio);
    }
    let ratio = median(&mut ratios);
    println!("{what}: ratio {ratio:.2} in the middle of {} turns", turns.len());
    assert!((ratio - 1.0).abs() <= 0.25, "{what}: {turns:?}");
}

const TURNS: usize = 3;

fn saving(finding: &Value) -> f64 {
    finding["saving_each_ns"]["mid"].as_f64().expect("ns")
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs a program that prints the nanoseconds of each operation, one a line. Returns their median.
fn timed(command: &mut Command) -> f64 {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    median_of_lines(&String::from_utf8_lossy(&output.stdout))
}

#[track_caller]
fn median_of_lines(text: &str) -> f64 {
    let mut times: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(times.len() >= 10, "{text}");
    median(&mut times)
}

/// The command that a finding prints, with these arguments of the program: it has dots, or those
/// that were watched. It must be of `forkless run`.
#[track_caller]
fn printed(finding: &Value, arguments: &[&str]) -> Command {
    let text = finding["command"].as_str().expect("text");
    let words: Vec<&str> = text.split(' ').collect();
    let program = words.iter().position(|word| *word == "--").map(|dashes| dashes + 1);
    let options = match (words.as_slice(), program) {
        (["forkless", "run", ..], Some(program)) if program < words.len() => &words[2..=program],
        _ => panic!("no command to apply: {finding}"),
    };
    let mut command = Command::new(FORKLESS);
    command.arg("run").args(options).args(arguments).env("FORKLESS_LIBRARY", &*LIBRARY);
    command
}

/// A program starts 30 others, waits for each and prints the time that each took. It runs plainly
/// while it is watched, and under the remedy, in turns. So the prediction is of the very calls that
/// are compared.
fn starter(program: &str, arguments: &[&str]) {
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let output = Command::new(FORKLESS)
            .args(["diagnose", "--json", "--", program])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("forkless runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let report =
            text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok().filter(|v| v.is_object()));
        let report = report.expect("a report");
        let finding = first(&report, "full_fork_then_exec");
        assert_eq!(finding["count"], 30, "{finding}");
        let plain = median_of_lines(&text);
        let remedied = timed(&mut printed(&finding, arguments));
        println!("{program}: {:.3} ms each, {}: {:.3} ms", plain / 1e6, finding["command"], remedied / 1e6);
        turns.push((saving(&finding), plain - remedied));
    }
    came_true(program, &turns);
}

fn perl() {
    need("perl", "perl");
    // With a list perl starts no shell. The pattern is written, so that the memory is there.
    let script = r#"use Time::HiRes 'time'; $| = 1; my $memory = "x" x (512 << 20);
        for (1 .. 30) { my $begin = time; system { "/bin/true" } "true", "a"; printf "%.0f\n", (time - $begin) * 1e9 }"#;
    starter("perl", &["-e", script]);
}

fn node() {
    need("node", "nodejs");
    let script = "const memory = Buffer.alloc(512 << 20, 1); const { spawnSync } = require('child_process');
        for (let i = 0; i < 30; i++) { const begin = process.hrtime.bigint(); spawnSync('/bin/true', ['a']);
        console.log(String(process.hrtime.bigint() - begin)); } memory[0] = 2;";
    starter("node", &["-e", script]);
}

/// As root: for other users Ruby does not fork.
fn ruby() {
    need("ruby", "ruby");
    let script = r#"$stdout.sync = true; memory = "x" * (256 << 20)
        30.times { began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond); system "/bin/true", "a"
        puts Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - began }; memory.size"#;
    starter("ruby", &["-e", script]);
}

fn python() {
    need("python3", "python3");
    let script = "import os, subprocess, time; memory = bytearray(os.urandom(1 << 20) * 256)
for _ in range(30):
    began = time.perf_counter_ns(); subprocess.run(['/bin/true'], preexec_fn=os.getpgrp)
    print(time.perf_counter_ns() - began, flush=True)";
    // Not one of PATH, which may be a script that starts others first.
    starter("/usr/bin/python3", &["-c", script]);
}

fn php() {
    need("php", "php-cli");
    let script = "$memory = str_repeat('x', 256 << 20); for ($i = 0; $i < 30; $i++) { $began = hrtime(true);
        proc_close(proc_open(['/bin/true'], [], $pipes)); echo hrtime(true) - $began, PHP_EOL; }";
    starter("php", &["-r", script]);
}

/// The substitutions of a script are calls of one place, and each executes its program.
fn bash() {
    need("bash", "bash");
    let script = r#"memory=$(head -c 64000000 /dev/zero | tr '\0' x)
        for _ in {1..30}; do began=${EPOCHREALTIME/./}; /bin/true a
        echo $(((${EPOCHREALTIME/./} - began) * 1000)); done; : ${#memory}"#;
    starter("bash", &["-c", script]);
}

/// Nanoseconds of a call vary from one minute to the next: they are predicted and measured in
/// turns.
/// Nanoseconds of processors that a command and its children take, by `cutime` and `cstime` of
/// proc_pid_stat(5), which have ticks of 10 ms.
fn processor_ns(command: &[&str]) -> f64 {
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("our own");
        let fields = stat.rsplit(')').next().expect("the name ends").split_whitespace();
        fields.skip(13).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
    };
    let before = ticks();
    let mut run = Command::new(command[0]);
    run.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(run.status().is_ok_and(|status| status.success()), "{command:?}");
    (ticks() - before) as f64 * 1e7
}

/// Of one the ticks are too long.
const STORMS: u32 = 4;

/// A storm, and the same work with the remedy applied, in turns.
fn storm(what: &str, plain: &[&str], remedied: &[&str]) {
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let saved = (0..STORMS).map(|_| processor_ns(plain) - processor_ns(remedied));
        let measured = saved.sum::<f64>() / f64::from(STORMS);
        let report = report_in("tracepoints", plain).expect("a tier");
        let finding = crate::support::of_kind(&report, "start_storm");
        let count = finding["count"].as_u64().expect("a count") as f64;
        turns.push((saving(&finding), measured / count));
    }
    came_true(what, &turns);
}

/// Regression: half of what was saved was predicted.
fn bash_builtins() {
    storm("builtins", &["bash", &fixture("dates.sh")], &["bash", &fixture("dates_by_bash.sh")]);
}

/// Makes a directory with some files.
fn with_files(of: impl FnOnce(&str)) {
    let files = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real-files");
    std::fs::create_dir_all(&files).expect("a directory");
    (0..600).for_each(|file| std::fs::write(files.join(file.to_string()), "a line\n").expect("a file"));
    of(&files.to_string_lossy());
    std::fs::remove_dir_all(&files).expect("its files go");
}

fn find_with_many_files() {
    with_files(|files| {
        let end = |end| ["find", files, "-type", "f", "-exec", "grep", "-l", "line", "{}", end];
        storm("find", &end(";"), &end("+"));
    });
}

fn xargs_with_many_arguments() {
    with_files(|files| {
        let line = |options: &str| format!("find {files} -type f | xargs {options} cksum");
        storm("xargs", &["sh", "-c", &line("-n1")], &["sh", "-c", &line("")]);
    });
}

/// The recipes have three lines. How many they have is not seen, and half of the shells is
/// predicted: the share that came true is within the bounds all the same.
fn make_with_one_shell() {
    need("make", "make");
    let recipes = fixture("recipes.mk");
    storm("make", &["make", "-f", &recipes], &["make", "-f", &recipes, "ONE=1"]);
}

fn swapcontext() {
    let arguments = ["swapcontext", "1000000"];
    let binary = known_problem().expect("checked before").to_string_lossy().into_owned();
    let wall = |command: &mut Command| {
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str::<Value>(text.trim()).expect("JSON")["wall_ns"].as_f64().expect("ns")
    };
    let mut turns = Vec::new();
    for _ in 0..5 {
        let (mut values, _, _) = diagnose(&[], &arguments);
        let finding = first(&values.remove(0), "needless_signal_mask");
        let plain = wall(Command::new(&binary).args(arguments));
        let remedied = wall(&mut printed(&finding, &arguments));
        turns.push((saving(&finding), (plain - remedied) / finding["count"].as_f64().expect("a count")));
    }
    came_true("swapcontext", &turns);
}

/// A server of a test: ended when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM, for its own children's sake.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

fn wait_for_port(port: u16) {
    let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert!(wait_until(listens), "nobody listens on {port}");
}

/// `forkless diagnose -p`, while `work` is done.
fn diagnose_while(pid: u32, work: impl FnOnce()) -> Value {
    let tool = Command::new(FORKLESS)
        .args(["diagnose", "--json", "-p", &pid.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("forkless runs");
    crate::support::wait_for_program(&tool, "on_bio_queue");
    work();
    rustix::process::kill_process(rustix::process::Pid::from_child(&tool), rustix::process::Signal::TERM)
        .expect("it runs");
    let output = tool.wait_with_output().expect("forkless ends");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn redis_command(port: u16, command: &str) -> String {
    let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).expect("redis listens"));
    write!(stream.get_mut(), "{command}\r\n").expect("a command");
    let mut first = String::new();
    stream.read_line(&mut first).expect("an answer");
    let Some(length) = first.strip_prefix('$').and_then(|length| length.trim().parse::<usize>().ok()) else {
        return first;
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("all of it");
    String::from_utf8_lossy(&body).into_owned()
}

/// One snapshot; the time of its fork as redis itself has it, nanoseconds.
fn snapshot(port: u16) -> f64 {
    assert!(redis_command(port, "BGSAVE").contains("Background saving started"));
    let field = |name: &str| -> String {
        let info = redis_command(port, "INFO");
        let line = info.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name} in INFO"))
    };
    while field("rdb_bgsave_in_progress:") != "0" {
        std::thread::sleep(Duration::from_millis(20));
    }
    field("latest_fork_usec:").parse::<f64>().expect("microseconds") * 1e3
}

/// A redis with half a million keys.
struct Redis {
    server: Server,
    directory: PathBuf,
    port: u16,
}

impl Redis {
    fn start(name: &str) -> Self {
        let port = free_port();
        // The directory is of this run alone: redis loads the files of an earlier one.
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("redis-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        // disable-thp no: else redis forbids the remedy (the report says so).
        let server = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--disable-thp",
                "no",
                "--enable-debug-command",
                "yes",
            ])
            .arg("--dir")
            .arg(&directory)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server starts");
        let redis = Self { server: Server(server), directory, port };
        wait_for_port(port);
        assert!(redis_command(port, "DEBUG POPULATE 500000 key 500").contains("OK"));
        redis
    }

    fn repair(&self) {
        let pid = self.server.0.id().to_string();
        let repaired =
            Command::new(FORKLESS).args(["repair", "-p", &pid, "--duty", "1"]).output().expect("runs");
        assert!(repaired.status.success(), "{}", String::from_utf8_lossy(&repaired.stderr));
    }

    fn stop(self) {
        drop(self.server);
        std::fs::remove_dir_all(&self.directory).expect("its files go");
    }
}

/// Two servers have the same data, and one is repaired. In turns, each takes three snapshots, one
/// after the other, while the plain one is watched. Writes during a snapshot split huge pages, so
/// every turn begins with a repair.
fn redis() {
    need("redis-server", "redis-server");
    let (plain, remedied) = (Redis::start("plain"), Redis::start("repaired"));
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        remedied.repair();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let report = diagnose_while(plain.server.0.id(), || {
            for _ in 0..3 {
                before.push(snapshot(plain.port));
                after.push(snapshot(remedied.port));
            }
        });
        let finding = first(&report, "fork_of_small_pages");
        assert_eq!(finding["count"], 3, "{finding}");
        assert!(finding["command"].as_str().is_some_and(|command| command.starts_with("forkless repair")));
        let (before, after) = (median(&mut before), median(&mut after));
        println!("redis: fork {:.3} ms, after repair {:.3} ms", before / 1e6, after / 1e6);
        turns.push((saving(&finding), before - after));
    }
    plain.stop();
    remedied.stop();
    came_true("redis BGSAVE", &turns);
}

fn get(port: u16, path: &str) -> f64 {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("apache listens");
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    begin.elapsed().as_nanos() as f64
}

/// Prefork, mod_cgi, and the memory of many virtual hosts.
struct Apache {
    server: Server,
    directory: PathBuf,
    port: u16,
}

impl Apache {
    /// Plainly, or with the remedy of a finding.
    fn start(name: &str, remedy: Option<&Value>) -> Self {
        let directory = std::env::temp_dir().join(format!("forkless-apache-{name}-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("cgi")).expect("a directory");
        let port = free_port();
        let modules = "/usr/lib/apache2/modules";
        let root = directory.display();
        let mut config = format!(
            "ServerRoot {root}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {root}/pid\nErrorLog {root}/error\n\
             LoadModule mpm_prefork_module {modules}/mod_mpm_prefork.so\nLoadModule cgi_module {modules}/mod_cgi.so\n\
             LoadModule alias_module {modules}/mod_alias.so\nLoadModule authz_core_module {modules}/mod_authz_core.so\n\
             StartServers 1\nMinSpareServers 1\nMaxSpareServers 1\nMaxRequestWorkers 1\nMaxConnectionsPerChild 0\n\
             User www-data\nGroup www-data\nScriptAlias /cgi/ {root}/cgi/\n"
        );
        for host in 0..20_000 {
            config += &format!(
                "<VirtualHost *:{port}>\nServerName h{host}.example\nDocumentRoot {root}/d{host}\nScriptAlias /cgi/ {root}/cgi/\n</VirtualHost>\n"
            );
        }
        std::fs::write(directory.join("conf"), config).expect("its configuration");
        let script = directory.join("cgi/true");
        std::fs::copy(tiny_cgi(), &script).expect("the script");
        use std::os::unix::fs::PermissionsExt as _;
        for (path, mode) in [(&directory, 0o755), (&script, 0o755)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
        }
        let conf = directory.join("conf").display().to_string();
        let arguments = ["-DFOREGROUND", "-f", &conf];
        let mut command = if let Some(finding) = remedy {
            // Readable for www-data, as an installed library is.
            let library = directory.join(LIBRARY.file_name().expect("a file"));
            std::fs::copy(&*LIBRARY, &library).expect("the library");
            std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o755)).expect("its mode");
            let mut command = printed(finding, &arguments);
            command.env("FORKLESS_LIBRARY", library);
            command
        } else {
            let mut command = Command::new("/usr/sbin/apache2");
            command.args(arguments);
            command
        };
        // At its end it signals its process group, which must not be that of the tests.
        command.process_group(0);
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("apache2 starts");
        let apache = Self { server: Server(server), directory, port };
        wait_for_port(port);
        for _ in 0..3 {
            get(port, "/cgi/true");
        }
        apache
    }

    fn requests(&self, count: usize) -> Vec<f64> {
        (0..count).map(|_| get(self.port, "/cgi/true")).collect()
    }

    fn stop(self) {
        drop(self.server);
        std::fs::remove_dir_all(&self.directory).expect("its files go");
    }
}

/// A CGI program that costs nothing itself.
fn tiny_cgi() -> PathBuf {
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cgi");
    let source = binary.with_extension("c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nint main(void) { puts(\"Content-Type: text/plain\\n\\nok\"); }\n",
    )
    .expect("its source");
    let status = Command::new("cc").args(["-O1", "-static", "-o"]).arg(&binary).arg(&source).status();
    assert!(status.is_ok_and(|status| status.success()));
    binary
}

/// One short watch gives the command that applies the remedy. Then a plain and a remedied server
/// get requests, one after the other, while the plain one is watched.
fn apache() {
    need("apache2", "apache2");
    let plain = Apache::start("plain", None);
    let mut requests = 0;
    let report = diagnose_while(plain.server.0.id(), || requests = plain.requests(10).len());
    let finding = first(&report, "full_fork_then_exec");
    assert_eq!(finding["count"], requests, "{finding}");
    let remedied = Apache::start("run", Some(&finding));
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let report = diagnose_while(plain.server.0.id(), || {
            for _ in 0..30 {
                before.extend(plain.requests(1));
                after.extend(remedied.requests(1));
            }
        });
        let finding = first(&report, "full_fork_then_exec");
        assert_eq!(finding["count"], 30, "{finding}");
        let (before, after) = (median(&mut before), median(&mut after));
        println!("apache: {:.3} ms a request, under forkless run {:.3} ms", before / 1e6, after / 1e6);
        turns.push((saving(&finding), before - after));
    }
    plain.stop();
    remedied.stop();
    came_true("apache CGI", &turns);
}
