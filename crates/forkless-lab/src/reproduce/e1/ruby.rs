//! The author's scripts in the Ruby of this system, and the search for programs that switch
//! transparent huge pages off.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use forkless::{Command, OnDrop, Stdio};
use forkless_bench::error::Error;

use super::script::{self, User};
use super::{ChildMethod, thp_always};
use crate::reproduce::tools;
use crate::reproduce::{Bench, Experiment, Figure};

/// Arguments: how to make the child, pages, passes, runs. Prints whether it may have huge pages,
/// then a line of milliseconds a run.
const SCRIPT: &str = r#"mode = ARGV[0]
pages, passes, runs = ARGV[1..3].map(&:to_i)
puts File.read("/proc/self/status")[/^THP_enabled:\s*(\d)/, 1] || "-"
memory = "\0" * (pages * 4096)
pass = lambda do
  start = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  at = 0
  size = memory.bytesize
  while at < size
    memory.setbyte(at, 1)
    at += 4096
  end
  (Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) - start) * 1e3
end
runs.times do
  pass.call
  times = Array.new(passes) { pass.call }
  case mode
  when "fork" then Process.wait(fork { exit! })
  when "fork_exec" then Process.wait(fork { exec "/bin/true" })
  when "system" then system("true") or exit 1
  end
  times.concat(Array.new(passes) { pass.call })
  puts times.map { |time| "%.4f" % time }.join(" ")
end
"#;

const CLAIMED: [&str; 3] = ["ruby_system.first", "ruby_fork_exec.first", "ruby.disables_thp"];

/// Runs the script in every mode; what cannot be run is missing with its reason.
pub(super) fn methods(
    bench: &mut Bench<'_>,
    experiment: &mut Experiment,
    pages: u64,
    runs: usize,
) -> Vec<ChildMethod> {
    let ruby = match tools::provide(bench, "ruby", "ruby") {
        Ok(ruby) => ruby,
        Err(why) => {
            experiment.miss(&CLAIMED, why);
            return Vec::new();
        }
    };
    match with(&ruby, bench, experiment, pages, runs) {
        Ok(methods) => methods,
        Err(error) => {
            experiment.miss(&CLAIMED, error.to_string());
            Vec::new()
        }
    }
}

fn with(
    ruby: &Path,
    bench: &mut Bench<'_>,
    experiment: &mut Experiment,
    pages: u64,
    runs: usize,
) -> Result<Vec<ChildMethod>, Error> {
    let version = tools::run(Command::new(ruby).arg("--version"), Duration::from_secs(20))?;
    let version = version.fine("ruby --version")?;
    let version = version.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    experiment.notes.push(format!("the Ruby of this system is {version}"));
    let scratch = tools::scratch(bench)?;
    let file = scratch.write("passes.rb", SCRIPT)?;
    let size = [pages, runs as u64];

    let mut methods = Vec::new();
    let mut enabled = None;
    for (key, mode, name) in [
        ("ruby_fork", "fork", "Ruby, fork { }"),
        ("ruby_fork_exec", "fork_exec", "Ruby, fork { exec }"),
        ("ruby_system", "system", "Ruby, system(\"true\")"),
    ] {
        let mut method = ChildMethod::new(key, name);
        let said = script::run(None, ruby, &file, mode, size, User::Ordinary)?;
        enabled = enabled.or(said.thp);
        method.runs = said.runs;
        methods.push(method);
    }
    if forkless_bench::machine::is_root() {
        let mut method = ChildMethod::new("ruby_root_system", "Ruby, system(\"true\"), by root");
        method.runs = script::run(None, ruby, &file, "system", size, User::Own)?.runs;
        methods.push(method);
        experiment.notes.push(
            "Ruby runs as nobody: for root its system() forks, lest a vfork child share memory with one of other rights".into(),
        );
    }
    match thp_always(bench) {
        Ok(_always) => {
            let mut method = ChildMethod::new("ruby_thp_fork", "Ruby, fork { }, THP always");
            method.runs = script::run(None, ruby, &file, "fork", size, User::Ordinary)?.runs;
            methods.push(method);
        }
        Err(error) => experiment.miss(&["ruby_thp_fork.first"], error.to_string()),
    }
    match enabled {
        Some(enabled) => {
            let about = format!("{version} switches THP off for itself");
            experiment.add(Figure::answer("ruby.disables_thp", &about, !enabled));
        }
        None => experiment.miss(
            &["ruby.disables_thp"],
            "this kernel does not say which processes have transparent huge pages (THP_enabled, Linux 5.0)",
        ),
    }
    let found = disabling();
    #[expect(clippy::cast_precision_loss, reason = "a handful of programs")]
    let count = found.len() as f64;
    experiment.add(Figure::exact("runtimes.disabling", "programs found here that switch THP off", "", count));
    if !found.is_empty() {
        experiment
            .notes
            .push(format!("programs that switch transparent huge pages off: {}", found.join(", ")));
    }
    Ok(methods)
}

/// Interpreters and servers that are installed, asked by starting each for a moment; and whatever
/// runs already.
fn disabling() -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (program, arguments) in [
        ("python3", &["-c", "import time; time.sleep(9)"][..]),
        ("perl", &["-e", "sleep 9"]),
        ("node", &["-e", "setTimeout(() => {}, 9000)"]),
        ("php", &["-r", "sleep(9);"]),
        ("redis-server", &["--port", "0", "--save", "", "--dir", "/tmp"]),
        ("ruby", &["-e", "sleep 9"]),
    ] {
        let Some(path) = tools::find(program) else { continue };
        let mut command = Command::new(&path);
        command.args(arguments.iter().map(OsStr::new)).on_drop(OnDrop::Kill);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.parent_death_signal(libc::SIGKILL);
        let Ok(child) = command.spawn() else { continue };
        // An interpreter decides this before it runs its first line; a server, when it begins to
        // serve.
        std::thread::sleep(Duration::from_millis(400));
        if thp_enabled(child.id()) == Some(false) {
            found.push(program.to_owned());
        }
    }
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if thp_enabled(pid) == Some(false) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
            if !name.is_empty() && !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

fn thp_enabled(pid: u32) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"))?;
    // A process without memory of its own (a kernel thread, a zombie) has no such line.
    Some(line.trim() != "0")
}
