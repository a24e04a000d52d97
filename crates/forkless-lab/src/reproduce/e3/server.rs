//! The server, with small and with huge pages. What cannot be measured is missing with its reason;
//! nothing here ends the experiment.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forkless::{Command, OnDrop, Stdio};
use forkless_bench::engine::Silent;
use forkless_bench::error::Error;
use forkless_bench::page_kinds::Pages;
use forkless_bench::stats::bootstrap::Samples;
use forkless_run::HugePages;

use super::held::{Held, tunables};
use super::{pool, profile};
use crate::last_lines::last_words;
use crate::reproduce::plot::{Mark, Plot};
use crate::reproduce::text;
use crate::reproduce::{Bench, Experiment, Figure, TitledGrid};
use crate::victims::apache::{Apache, Instance, Load, footprint, get};
use crate::victims::kept::huge_pages;
use crate::victims::stage::Stage;

const NAME: &str = "E3";
/// Everything that rests on the server.
const ALL: [&str; 7] = [
    "clone.gain",
    "requests.gain",
    "rss.after_percent",
    "rss.hugetlb_percent",
    "pool.start_failed",
    "pool.sigbus",
    "gigantic.serves",
];
const PROFILE: &str = "profile.copy_percent_of_clone";

pub(super) fn measure(bench: &mut Bench<'_>, experiment: &mut Experiment) {
    let options = bench.options.clone();
    let Some(spec) = options.victims() else {
        return experiment
            .miss(&[&ALL[..], &[PROFILE]].concat(), "there is nothing to keep a server from outliving this");
    };
    let Some(guard) = bench.guard.as_deref_mut() else {
        return experiment
            .miss(&[&ALL[..], &[PROFILE]].concat(), "nobody would restore the settings after a crash");
    };
    let mut silent = Silent;
    let outcome = Stage::new(&spec, guard, &mut silent, 1)
        .and_then(|mut stage| whole(&mut stage, &options, experiment));
    if let Err(error) = outcome {
        let absent: Vec<&str> =
            ALL.into_iter().chain([PROFILE]).filter(|name| experiment.figure(name).is_none()).collect();
        experiment.miss(&absent, error.to_string());
    }
}

fn whole(
    stage: &mut Stage<'_>,
    options: &crate::reproduce::ReproduceOptions,
    experiment: &mut Experiment,
) -> Result<(), Error> {
    let mut apache = Apache::found(NAME, stage)?;
    let strace = stage.need("strace", "strace")?;
    let ab = stage.need("ab", "apache2-utils")?;
    // Two servers at a time; a pool takes its pages away from everybody.
    forkless_bench::memory::require(4 * footprint(stage) + (1 << 30))?;
    let hosts = if options.quick { 10_000 } else { forkless_bench::published::huge_pages::HOSTS };
    let seed = options.seed;
    let rounds = if options.quick { 3 } else { 10 };

    let plain = apache.start(NAME, stage, None, "cgid", &[])?;
    let before = Watched::of(&plain, &strace, stage, rounds * 3)?;
    let rss = before.memory.rss;
    experiment.scaled.push(format!(
        "{hosts} virtual hosts hold {} MB here, not 4 GB: they are bare, and this is another Apache",
        rss >> 10
    ));
    profiled(&ab, &plain, stage, seed, experiment);

    let huge = if options.run {
        // The article's remedy put malloc's memory into huge pages. This Apache's is not malloc's:
        // APR maps it in small pieces.
        let _madvise = Pages::Thp(2048).enable(rss << 10, Some(stage.guard))?;
        let huge = apache.start(NAME, stage, Some(huge_pages(HugePages::Transparent)), "cgid", &[])?;
        // The first clone gathers the pages.
        for _ in 0..4 {
            get(huge.port).map_err(Error::io("ask Apache"))?;
        }
        let after = Watched::of(&huge, &strace, stage, rounds * 3)?;
        // Without the pages there is nothing to say about them.
        if after.memory.huge < rss / 2 {
            let why = format!(
                "only {} of {} MB of Apache's memory came to be huge pages",
                after.memory.huge >> 10,
                rss >> 10
            );
            experiment.miss(&["clone.gain", "requests.gain"], why);
        } else {
            report_clone(&before, &after, hosts, seed, experiment);
            requests(&ab, [&plain, &huge], rounds, seed, experiment)?;
        }
        Some(huge)
    } else {
        experiment.miss(
            &["clone.gain", "requests.gain"],
            "forkless run, which puts Apache's memory into huge pages, is not built",
        );
        None
    };
    drop((plain, huge));
    if let Err(error) = pool::measure(stage, options, experiment) {
        experiment.miss(
            &["rss.after_percent", "rss.hugetlb_percent", "pool.start_failed", "pool.sigbus"],
            error.to_string(),
        );
    }
    apache.environment = tunables(1 << 20);
    // With small pages it answers within a few seconds; with a tenth of the hosts, in less than
    // one.
    apache.patience = Duration::from_secs(if options.quick { 5 } else { 20 });
    gigantic(&apache, stage, experiment);
    Ok(())
}

/// What the tracer saw of the process that starts the scripts, and what that process holds.
struct Watched {
    clone_ms: Samples,
    memory: Held,
}

impl Watched {
    fn of(
        instance: &Instance,
        strace: &Path,
        stage: &mut Stage<'_>,
        requests: usize,
    ) -> Result<Watched, Error> {
        let (text, said) =
            traced(instance, strace, stage, &["-T", "-e", "trace=clone,clone3,fork,vfork"], requests)?;
        let (pid, times) = clones(&text)
            .ok_or_else(|| Error::Missing(format!("strace saw no clone of the server: {said}")))?;
        Ok(Watched { clone_ms: Samples::one_a_round(times), memory: Held::of(pid) })
    }
}

/// Every process of the server, the first one included.
fn processes(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name, in brackets, may hold anything; the parent is the second word behind it.
        let parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        if parent == Some(root) {
            found.push(pid);
        }
    }
    found
}

/// What strace writes about the server's processes while it answers so many requests.
fn traced(
    instance: &Instance,
    strace: &Path,
    stage: &mut Stage<'_>,
    flags: &[&str],
    requests: usize,
) -> Result<(String, String), Error> {
    let (file, errors) = (stage.file("trace"), stage.file("errors"));
    let complaints = fs::File::create(&errors).map_err(Error::io("make a file for strace"))?;
    let mut command = Command::new(strace);
    command.args(["-q", "-o"]).arg(&file).args(flags);
    for pid in processes(instance.pid) {
        command.arg("-p").arg(pid.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
    command.parent_death_signal(libc::SIGKILL).on_drop(OnDrop::Kill);
    let mut tracer =
        command.spawn().map_err(|error| Error::io("start strace")(std::io::Error::from(error)))?;
    let tracing = || {
        fs::read_to_string(format!("/proc/{}/status", instance.pid))
            .is_ok_and(|text| !text.contains("TracerPid:\t0"))
    };
    let end = Instant::now() + Duration::from_secs(10);
    while !tracing() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    // It attaches to one process after the other.
    std::thread::sleep(Duration::from_millis(200));
    for _ in 0..requests {
        // A request that fails is for the trace to explain.
        let _ = get(instance.port);
    }
    // It detaches and ends by itself.
    let _ = tracer.signal(libc::SIGINT);
    let _ = tracer.wait_timeout(Duration::from_secs(10));
    drop(tracer);
    let text = fs::read_to_string(&file).map_err(Error::io("read what strace wrote"))?;
    Ok((text, last_words([errors.as_path()])))
}

/// The process that made most clones, and the milliseconds each took: `1234  clone(...) = 1300
/// <0.012345>`.
fn clones(text: &str) -> Option<(u32, Vec<f64>)> {
    let mut all: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for line in text.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let Ok(pid) = pid.parse() else { continue };
        if !rest.trim_start().starts_with(['c', 'f', 'v']) {
            continue;
        }
        let time = rest.rsplit_once('<').and_then(|(_, time)| time.strip_suffix('>')?.parse::<f64>().ok());
        if let Some(seconds) = time {
            all.entry(pid).or_default().push(seconds * 1e3);
        }
    }
    all.into_iter().max_by_key(|(_, times)| times.len())
}

fn report_clone(before: &Watched, after: &Watched, hosts: u64, seed: u64, experiment: &mut Experiment) {
    let ratio = Figure::ratio(
        "clone.gain",
        "clone, small pages against huge",
        &before.clone_ms,
        &after.clone_ms,
        seed,
    );
    experiment.add(ratio);
    let mut table = TitledGrid::new(
        format!("mod_cgid's daemon, {hosts} virtual hosts"),
        &["memory in", "clone, ms (strace)", "published", "RSS, MB", "of it huge, MB"],
        1,
    );
    let mut marks = Vec::new();
    for (key, name, watched, author) in [
        ("before", "small pages", before, forkless_bench::published::huge_pages::CLONE_S[0]),
        ("after", "2 MB pages (THP)", after, forkless_bench::published::huge_pages::CLONE_S[1]),
    ] {
        let figure =
            Figure::of(&format!("clone.{key}_ms"), &format!("clone, {name}"), "ms", &watched.clone_ms, seed);
        let mb = |kib: u64| (kib >> 10).to_string();
        table.line([
            name.to_owned(),
            text::figure(&figure),
            format!("{:.1}", author * 1e3),
            mb(watched.memory.rss),
            mb(watched.memory.huge),
        ]);
        let ci95 = figure.bounds().map(|bound| bound.clamp(0.0, 1e9));
        marks.push(Mark { name: name.to_owned(), value: figure.value, ci95 });
        experiment.add(figure);
    }
    experiment.tables.push(table);
    experiment.plots.push(Plot::Marks { title: "The clone of the daemon".into(), unit: "ms".into(), marks });
}

fn requests(
    ab: &Path,
    servers: [&Instance; 2],
    rounds: usize,
    seed: u64,
    experiment: &mut Experiment,
) -> Result<(), Error> {
    let served = Cell::new(0);
    let mut rates: [Vec<f64>; 2] = Default::default();
    for round in 0..rounds {
        for step in 0..2 {
            let index = (step + round) % 2;
            let load = Load { generator: ab.to_owned(), server: servers[index], served: &served };
            rates[index].push(load.second()?);
        }
    }
    let [before, after] = rates.map(Samples::one_a_round);
    experiment.add(Figure::ratio(
        "requests.gain",
        "requests a second, huge pages against small",
        &after,
        &before,
        seed,
    ));
    let mut table =
        TitledGrid::new("CGI requests a second (ab, 4 at a time)", &["memory in", "requests a second"], 1);
    for (key, name, samples) in [("before", "small pages", &before), ("after", "2 MB pages (THP)", &after)] {
        let figure =
            Figure::of(&format!("requests.{key}"), &format!("requests, {name}"), "1/s", samples, seed);
        table.line([name.to_owned(), text::figure(&figure)]);
        experiment.add(figure);
    }
    experiment.tables.push(table);
    Ok(())
}

fn profiled(ab: &Path, server: &Instance, stage: &mut Stage<'_>, seed: u64, experiment: &mut Experiment) {
    let perf = match stage.need("perf", "linux-perf") {
        Ok(perf) => perf,
        Err(error) => return experiment.miss(&[PROFILE], error.to_string()),
    };
    let file: PathBuf = stage.file("profile");
    let url = server.url();
    let ab = ab.to_string_lossy().into_owned();
    let load = [ab.as_str(), "-q", "-t", "3", "-n", "100000", "-c", "4", &url];
    if let Err(error) = profile::record(&perf, &file, &load, seed, experiment) {
        experiment.miss(&[PROFILE], error.to_string());
    }
}

/// Pages of 1 GiB, two of them.
fn gigantic(apache: &Apache, stage: &mut Stage<'_>, experiment: &mut Experiment) {
    let pool = match Pages::Hugetlb(1 << 20).enable(1 << 30, Some(stage.guard)) {
        Ok(pool) => pool,
        Err(error) => return experiment.miss(&["gigantic.serves"], error.to_string()),
    };
    experiment.notes.extend(pool.note.clone());
    let served = apache.start(NAME, stage, None, "cgid", &[]).map(|server| {
        let answered =
            (0..10).filter(|_| get(server.port).is_ok_and(|answer| answer.contains("hello"))).count();
        (answered, Held::of(server.pid))
    });
    let serves = match served {
        Ok((answered, held)) => {
            experiment.notes.push(format!(
                "with pages of 1 GiB: {answered} of 10 requests answered, {} MB from the pool",
                held.pool >> 10
            ));
            answered == 10
        }
        Err(error) => {
            experiment.notes.push(format!("with pages of 1 GiB: {error}"));
            false
        }
    };
    experiment.add(Figure::answer("gigantic.serves", "starts and answers with 1 GiB pages", serves));
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkless_bench::stats::median;

    #[test]
    fn the_daemon_is_the_process_that_clones_most() {
        let text = "12 clone(child_stack=NULL, flags=SIGCHLD) = 40 <0.010000>\n\
                    13    clone(child_stack=NULL) = 41 <0.020000>\n13 vfork() = 42 <0.022000>\n\
                    13 --- SIGCHLD {si_signo=SIGCHLD} ---\n13 clone(x) = ? <unfinished ...>\n";
        let (pid, times) = clones(text).unwrap();
        assert_eq!((pid, times.len()), (13, 2));
        assert!((median(&times) - 21.0).abs() < 1e-9);
        assert!(clones("12 --- SIGBUS ---\n").is_none());
    }
}
