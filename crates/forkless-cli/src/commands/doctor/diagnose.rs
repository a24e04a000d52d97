//! The tiers by which `forkless diagnose` can watch here.

use std::path::Path;

use forkless_diagnose::{CAPABILITIES, Tier};

use super::{Answer, Entry, State, Verdict, setting};

pub(super) fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = forkless_diagnose::probe_tiers()
        .into_iter()
        .map(|probe| {
            let outcome = probe.refused.map_or_else(|| Ok("works".to_owned()), Err);
            let (used_for, without) = match probe.tier {
                Tier::BpfFentry => ("all findings, at no cost to other system calls", "the next one"),
                Tier::BpfTracepoints => ("all findings, --log, --all and --cgroup", "the next one"),
                Tier::Perf => ("full forks and their place, where BPF is refused", "the next one"),
                _ => ("children of one's own processes, by looking often", "no diagnosis"),
            };
            Entry::new(probe.tier.to_string(), outcome, used_for, without)
        })
        .collect();
    let exists =
        |path: &str| if Path::new(path).exists() { Ok(path.to_owned()) } else { Err(format!("no {path}")) };
    entries.push(Entry::new(
        "kernel type information",
        exists("/sys/kernel/btf/vmlinux"),
        "BPF objects that fit any kernel",
        "perf events: no BPF",
    ));
    entries.push(Entry::new(
        "tracefs",
        tracefs(),
        "clone flags and copy times where BPF is refused",
        "mount -t tracefs tracefs /sys/kernel/tracing",
    ));
    for (path, meaning) in [
        (
            "/proc/sys/kernel/perf_event_paranoid",
            "above 1, sampling the kernel needs CAP_PERFMON; above 2 (Debian's patch), everything does",
        ),
        ("/proc/sys/kernel/unprivileged_bpf_disabled", "other than 0, BPF needs CAP_BPF"),
        (
            "/proc/sys/kernel/yama/ptrace_scope",
            "above 0, only descendants can be traced without CAP_SYS_PTRACE",
        ),
    ] {
        // A setting that does not exist restricts nothing.
        let value = setting(path).unwrap_or_else(|_| "not set here".to_owned());
        entries.push(Entry::info(path.trim_start_matches("/proc/sys/").replace('/', "."), value, meaning));
    }
    entries.push(Entry::info(
        "lockdown",
        setting("/sys/kernel/security/lockdown").unwrap_or_else(|_| "not built in or not mounted".to_owned()),
        "[confidentiality] refuses BPF that reads kernel memory, and tracefs",
    ));
    entries
}

/// Mounted by most systems, for root alone.
fn tracefs() -> Result<String, String> {
    let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let look = |place: &str| std::fs::read_dir(Path::new(place).join("events"));
    let mut why = format!("no {}/events", places[0]);
    for place in places {
        match look(place) {
            Ok(_) => return Ok(format!("{place}/events")),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && mounted(place) => {
                why = format!("{place} is there, and not for this user ({error})");
            }
            Err(_) => {}
        }
    }
    Err(why)
}

fn mounted(place: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(place))
}

/// The first tier that works. The tiers come first in the entries, the best of them first.
fn best(entries: &[Entry]) -> Option<&str> {
    let is_tier = |entry: &&Entry| TIERS.iter().any(|kind| entry.name.starts_with(kind));
    entries.iter().filter(is_tier).find(|entry| entry.state == State::Works).map(|entry| entry.name.as_str())
}

/// How the tiers' names begin.
const TIERS: [&str; 3] = ["BPF", "perf events", "/proc alone"];

pub(super) fn verdict(entries: &[Entry]) -> Verdict {
    match best(entries) {
        Some(name) if name.starts_with("BPF") => Answer::Yes.because(format!("all findings, by {name}")),
        Some(name) if name.starts_with("perf") => {
            Answer::Partly.because("full forks and their place, by perf events: no BPF")
        }
        Some(_) => Answer::Partly.because("one's own processes, by /proc: no BPF, no perf events"),
        None => Answer::No.because("no way to watch processes"),
    }
}

pub(super) fn path(entries: &[Entry]) -> String {
    let refused =
        || format!("BPF is refused: run as root, or grant {CAPABILITIES}, unless it says otherwise below");
    match best(entries) {
        Some(name) if name.starts_with("BPF") => format!("watches with {name}"),
        Some(name) => format!("watches with {name}; {}", refused()),
        None => format!("no way to watch processes; {}", refused()),
    }
}
