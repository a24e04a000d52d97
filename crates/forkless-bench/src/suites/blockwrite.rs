//! The `blockwrite` suite: the reads that appear in a pure write test, by block size. A *buffered*
//! write to part of a page-cache block that is not in memory makes the kernel read that block
//! first. A write of whole blocks does not, whatever the device's sector size. Measured on a
//! scratch file and, as root, on a loop device and a device-mapper volume that the suite makes and
//! removes. No device that was there before is ever written to.
//!
//! One repetition starts with nothing of the target in memory: it is written back and dropped
//! (`POSIX_FADV_DONTNEED`), and checked where the kernel tells the cached pages. Then the target is
//! written once from its beginning, in writes of one size. The repetition ends when the data is on
//! the device (`fdatasync`). Metrics: `throughput`; `reads`, the device's reads for every 4 KiB
//! written; `read_bytes`, the reads this process caused, in percent of the bytes written. `r/s`,
//! `rsec/s`, `w/s` and `wsec/s` are iostat's figures for the device.

#![expect(unsafe_code, reason = "posix_fadvise and cachestat")]

mod counters;
mod loop_device;
mod mapper;
mod scratch;
mod target;

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::str::FromStr;

use self::target::WriteTarget;
use crate::clock::{self, now};
use crate::engine::{self, Arm, Measured, Observer, Schedule, Turn};
use crate::error::Error;
use crate::guard::Guard;
use crate::registry::{MetricPlot, Registration};
use crate::results::{Derived, Metric, Param, Params, Row, Series, Suite, rows};
use crate::stats::bootstrap::{Resampler, Samples};
use crate::suites::in_stages;

/// The suite for those that show and undo. A row's yardstick is the whole page-cache block.
pub(crate) const SUITE: Registration = Registration {
    name: "blockwrite",
    plots: &[MetricPlot::marks("throughput"), MetricPlot::marks("rsec/s")],
    yardstick: |rows, row| {
        let mut params = row.params.clone();
        params.insert("bs".to_owned(), Param::Number(4096));
        let whole = |other: &&Row| (&other.metric, &other.method) == (&row.metric, &row.method);
        rows.iter().filter(whole).find(|other| other.params == params)
    },
    undos: &[loop_device::UNDO, mapper::UNDO],
    ..Registration::DEFAULT
};

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// What is written to.
    pub targets: Vec<TargetKind>,
    /// Bytes a write.
    pub bs: Vec<u64>,
    /// Bytes a repetition; also the size of the targets.
    pub size: u64,
    /// Where the scratch file is made; `None` for the first usual place that is on a block device.
    pub directory: Option<PathBuf>,
    /// Only `buffered` or `direct`, or both.
    pub modes: Vec<Mode>,
    /// `runs` is the number of repetitions of each.
    pub schedule: Schedule,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            targets: TargetKind::ALL.to_vec(),
            bs: vec![256, 512, 1024, 2048, 4096, 6144, 8192, 16 << 10, 64 << 10, 256 << 10, 1 << 20],
            size: 4 << 20,
            directory: None,
            modes: Mode::ALL.to_vec(),
            schedule: Schedule { runs: 20, per_turn: 1, ..Schedule::default() },
        }
    }
}

/// What is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// A file.
    File,
    /// A loop device over a file, with sectors of 512 bytes.
    Loop,
    /// A loop device with sectors of 4096 bytes.
    Loop4k,
    /// A linear device-mapper volume over a loop device.
    Mapper,
}

impl TargetKind {
    /// All of them.
    pub const ALL: [TargetKind; 4] =
        [TargetKind::File, TargetKind::Loop, TargetKind::Loop4k, TargetKind::Mapper];

    /// `file`, `loop`, `loop-4k`, `mapper`.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            TargetKind::File => "file",
            TargetKind::Loop => "loop",
            TargetKind::Loop4k => "loop-4k",
            TargetKind::Mapper => "mapper",
        }
    }
}

impl FromStr for TargetKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<TargetKind, Error> {
        TargetKind::ALL.into_iter().find(|on| on.name() == name).ok_or_else(|| {
            Error::Spec(format!("no target {name:?}: there are file, loop, loop-4k and mapper"))
        })
    }
}

/// How the writes reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Through the page cache.
    Buffered,
    /// With `O_DIRECT`.
    Direct,
}

impl Mode {
    /// Both.
    pub const ALL: [Mode; 2] = [Mode::Buffered, Mode::Direct];

    /// `buffered` or `direct`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Buffered => "buffered",
            Mode::Direct => "direct",
        }
    }
}

const METRICS: [Metric; 7] = [
    Metric { name: "throughput", unit: "MiB/s", estimate: false },
    Metric { name: "reads", unit: "per 4 KiB", estimate: false },
    Metric { name: "read_bytes", unit: "%", estimate: false },
    Metric { name: "r/s", unit: "1/s", estimate: false },
    Metric { name: "rsec/s", unit: "1/s", estimate: false },
    Metric { name: "w/s", unit: "1/s", estimate: false },
    Metric { name: "wsec/s", unit: "1/s", estimate: false },
];

/// Measures each target in turn; on one target all block sizes and modes are interleaved.
///
/// # Errors
/// [`Error::Spec`] for no target or a block size of zero or beyond the size; the first write that
/// fails. A target this machine does not give, and a block size `O_DIRECT` refuses, are notes.
pub fn run(spec: &Spec, mut guard: Option<&mut Guard>, observer: &mut dyn Observer) -> Result<Suite, Error> {
    if spec.targets.is_empty() || spec.bs.is_empty() || spec.modes.is_empty() {
        return Err(Error::Spec("nothing to write: choose a target, a block size and a mode".into()));
    }
    if spec.size == 0 {
        return Err(Error::Spec("a size of 0 leaves nothing to write: ask for 1 byte or more".into()));
    }
    if let Some(bs) = spec.bs.iter().find(|&&bs| bs == 0 || bs > spec.size) {
        return Err(Error::Spec(format!(
            "blocks of {bs} bytes cannot be written: from 1 to {} bytes, what a repetition writes",
            spec.size
        )));
    }
    let overhead = clock::overhead();
    let suite = Suite {
        name: SUITE.name.into(),
        seed: spec.schedule.seed,
        clock_overhead_ns: overhead,
        ..Suite::default()
    };
    let name = |on: &TargetKind| on.name().to_owned();
    in_stages(suite, &spec.targets, observer, name, |&on, progress, suite| {
        measure(spec, on, overhead, guard.as_deref_mut(), progress, suite)
    })
}

fn measure(
    spec: &Spec,
    on: TargetKind,
    overhead: f64,
    guard: Option<&mut Guard>,
    observer: &mut dyn Observer,
    suite: &mut Suite,
) -> Result<Option<Samples>, Error> {
    let target = WriteTarget::make(on, spec.size, spec.directory.as_deref(), guard)?;
    suite.notes.extend(target.notes.iter().map(|note| format!("{}: {note}", on.name())));
    let mut kinds: Vec<(Mode, u64)> = Vec::new();
    for &mode in &spec.modes {
        let file = match target.file(mode) {
            Ok(file) => file,
            Err(why) => {
                suite.notes.push(format!("skipped: {}, {}: {why}", on.name(), mode.name()));
                continue;
            }
        };
        let mut refused = Vec::new();
        for &bs in &spec.bs {
            match write_once(file, bs, bs) {
                Ok(()) => kinds.push((mode, bs)),
                // open(2): "Failure to observe these alignment restrictions results in EINVAL".
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && mode == Mode::Direct => {
                    refused.push(bs.to_string());
                }
                Err(error) => return Err(Error::io(format!("write to the {} target", on.name()))(error)),
            }
        }
        if !refused.is_empty() {
            suite.notes.push(format!(
                "skipped: {}, direct, bs {}: refused with EINVAL, not multiples of the sector",
                on.name(),
                refused.join(", ")
            ));
        }
    }
    let residue = std::cell::Cell::new(0_u64);
    let mut arms: Vec<Box<dyn Arm + '_>> = Vec::new();
    for &(mode, bs) in &kinds {
        arms.push(Box::new(Writes {
            target: &target,
            mode,
            bs,
            size: spec.size,
            overhead,
            residue: &residue,
        }));
    }
    if arms.is_empty() {
        return Err(Error::Missing("no block size can be written".into()));
    }
    let stages = u32::try_from(spec.targets.len()).unwrap_or(1);
    let schedule =
        Schedule { time: spec.schedule.time.map(|time| time / stages), per_turn: 1, ..spec.schedule };
    let outcome = engine::run(&mut arms, &schedule, observer)?;
    drop(arms);
    suite.rounds += outcome.rounds;
    suite.seconds += outcome.elapsed.as_secs_f64();
    if outcome.rounds < outcome.planned {
        suite.notes.push(format!(
            "{}: stopped for time after {} of {} rounds",
            on.name(),
            outcome.rounds,
            outcome.planned
        ));
    }
    if residue.get() > 0 {
        suite.notes.push(format!(
            "{}: up to {} of {} pages could not be put out of memory before a repetition",
            on.name(),
            residue.get(),
            spec.size / crate::machine::page_size()
        ));
    }
    let all = series(on, &kinds, outcome);
    let steady = all.iter().find(|one| one.metric == METRICS[0]).map(|one| one.samples.clone());
    suite.derived.extend(derived(on, &all, spec.schedule.seed));
    suite.rows.extend(rows(all, None, spec.schedule.seed));
    Ok(steady)
}

fn series(on: TargetKind, kinds: &[(Mode, u64)], outcome: Measured) -> Vec<Series> {
    let mut all = Vec::new();
    for (&(mode, bs), series) in kinds.iter().zip(outcome.series) {
        let params = Params::from([
            ("bs".to_owned(), Param::Number(bs)),
            ("target".to_owned(), Param::Word(on.name().to_owned())),
        ]);
        let limit = match mode {
            Mode::Buffered if bs % 4096 != 0 => {
                "a read of every block that is written in part, one after the other"
            }
            Mode::Buffered => "the page cache and what writes it back",
            Mode::Direct => "the device: a request for every write",
        };
        for (metric, samples) in METRICS.into_iter().zip(series) {
            if samples.values.is_empty() {
                continue;
            }
            all.push(Series {
                method: mode.name().to_owned(),
                params: params.clone(),
                metric,
                limit: Some(limit.to_owned()),
                samples,
            });
        }
    }
    all
}

/// What writes below a page cost: the published "about 3x".
fn derived(on: TargetKind, series: &[Series], seed: u64) -> Vec<Derived> {
    let throughput = |bs: u64| {
        series.iter().find(|one| {
            one.method == Mode::Buffered.name()
                && one.metric == METRICS[0]
                && one.params.get("bs") == Some(&Param::Number(bs))
        })
    };
    let Some(whole) = throughput(4096) else { return Vec::new() };
    let against = |bs: u64| {
        let part = throughput(bs)?;
        let resampler = Resampler::new([&whole.samples, &part.samples], 2000, seed);
        let ratio = resampler.medians(&whole.samples).ratio(&resampler.medians(&part.samples));
        Some(Derived {
            name: format!("throughput, bs 4096 / bs {bs}, {}, buffered", on.name()),
            unit: "x".to_owned(),
            value: crate::stats::median(&whole.samples.values) / crate::stats::median(&part.samples.values),
            ci95: ratio.interval(0.95)?,
        })
    };
    [256, 512].into_iter().filter_map(against).collect()
}

/// Writes of one size in one mode.
struct Writes<'a> {
    target: &'a WriteTarget,
    mode: Mode,
    bs: u64,
    size: u64,
    overhead: f64,
    /// The most pages ever found in memory when there should have been none.
    residue: &'a std::cell::Cell<u64>,
}

impl Arm for Writes<'_> {
    #[expect(clippy::cast_precision_loss, reason = "bytes, requests and nanoseconds of one repetition")]
    fn turn(&mut self, _settle: usize, counted: usize, turn: &mut Turn) -> Result<(), Error> {
        let cannot = || Error::io(format!("write blocks of {} bytes", self.bs));
        let file = self.target.file(self.mode).map_err(Error::Missing)?;
        // Whole blocks only: a last partial one would be a read of its own.
        let bytes = self.size / self.bs * self.bs;
        for _ in 0..counted {
            let residue = forget(&self.target.buffered, self.size)?;
            self.residue.set(self.residue.get().max(residue));
            let device = self.target.device.read()?;
            let own = counters::own_read_bytes();
            let start = now();
            write_once(file, self.bs, bytes).map_err(cannot())?;
            file.sync_data().map_err(cannot())?;
            let end = now();
            let own = counters::own_read_bytes().zip(own).map(|(after, before)| after - before);
            let used = self.target.device.read()?.since(device);
            let seconds = ((end - start) as f64 - self.overhead).max(1.0) / 1e9;
            turn.add(0, bytes as f64 / f64::from(1 << 20) / seconds);
            turn.add(1, used.reads as f64 / (bytes as f64 / 4096.0));
            if let Some(own) = own {
                turn.add(2, 100.0 * own as f64 / bytes as f64);
            }
            for (series, count) in
                [used.reads, used.sectors_read, used.writes, used.sectors_written].into_iter().enumerate()
            {
                turn.add(3 + series, count as f64 / seconds);
            }
        }
        Ok(())
    }

    fn series(&self) -> usize {
        METRICS.len()
    }
}

/// Writes `bytes` from the beginning in blocks of `bs`, from memory aligned as `O_DIRECT` wants it.
fn write_once(file: &File, bs: u64, bytes: u64) -> std::io::Result<()> {
    const ALIGNMENT: usize = 4096;
    let length = usize::try_from(bs).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let buffer = vec![0x5a_u8; length + ALIGNMENT];
    let skip = buffer.as_ptr().align_offset(ALIGNMENT);
    let block = &buffer[skip..skip + length];
    let mut offset = 0;
    while offset + bs <= bytes {
        file.write_all_at(block, offset)?;
        offset += bs;
    }
    Ok(())
}

/// Puts the target out of memory; returns how many of its pages are still in it, 0 where the kernel
/// does not tell.
fn forget(file: &File, size: u64) -> Result<u64, Error> {
    let mut left = 0;
    // A page under way to the device, or held by another processor's batch, is passed over the
    // first time.
    for _ in 0..10 {
        file.sync_data().map_err(Error::io("write the target's pages back"))?;
        // SAFETY: the descriptor is open; the call only drops clean pages from the cache.
        let errno = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if errno != 0 {
            return Err(Error::errno("drop the target's pages from memory", errno));
        }
        left = cached(file, size).unwrap_or(0);
        if left == 0 {
            break;
        }
    }
    Ok(left)
}

/// Pages of a file in memory (Linux 6.5).
fn cached(file: &File, size: u64) -> Option<u64> {
    // asm-generic/unistd.h; the libc crate has it for some targets only.
    const CACHESTAT: libc::c_long = 451;
    let range = [0_u64, size];
    // nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted
    let mut stat = [0_u64; 5];
    // SAFETY: range and result are as long as the kernel's structures (include/uapi/linux/mman.h),
    // flags must be 0.
    let result =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0_u32) };
    (result == 0).then_some(stat[0])
}

impl WriteTarget {
    fn file(&self, mode: Mode) -> Result<&File, String> {
        match mode {
            Mode::Buffered => Ok(&self.buffered),
            Mode::Direct => self.direct.as_ref().map_err(Clone::clone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Silent;

    /// Large beside the 31 pages that each processor may be about to list. These stay in the cache
    /// (mm/swap.c).
    fn quick(on: TargetKind) -> Option<Suite> {
        let spec = Spec {
            targets: vec![on],
            bs: vec![512, 4096, 6144, 8192],
            size: 3 << 20,
            schedule: Schedule { runs: 3, per_turn: 1, ..Schedule::default() },
            ..Spec::default()
        };
        let suite = run(&spec, None, &mut Silent).unwrap();
        if suite.rows.is_empty() {
            println!("skipped: {}", suite.notes.join("; "));
            return None;
        }
        Some(suite)
    }

    fn figure(suite: &Suite, mode: &str, bs: u64, metric: &str) -> Option<f64> {
        let row = suite
            .rows
            .iter()
            .find(|row| row.method == mode && row.metric == metric && row.params["bs"] == Param::Number(bs));
        row.map(|row| row.summary.median)
    }

    #[test]
    fn a_file_is_read_by_small_buffered_writes_and_by_no_others() {
        let Some(suite) = quick(TargetKind::File) else { return };
        // What this thread read is exact; the disk's own counters are everybody's.
        let Some(small) = figure(&suite, "buffered", 512, "read_bytes") else {
            println!("skipped: this kernel does not account for the bytes a process reads");
            return;
        };
        assert!((60.0..=130.0).contains(&small), "{small}");
        assert!(figure(&suite, "buffered", 4096, "read_bytes").unwrap() < 1.0);
        let a_third = figure(&suite, "buffered", 6144, "read_bytes").unwrap();
        assert!((20.0..=45.0).contains(&a_third), "{a_third}");
        if let Some(direct) = figure(&suite, "direct", 4096, "read_bytes") {
            assert!(direct < 1.0, "{direct}");
        }
        assert_eq!(suite.derived.len(), 1, "512 against 4096");
    }

    #[test]
    fn a_loop_device_counts_one_read_for_each_4_kib_of_small_writes_and_goes_away() {
        let Some(suite) = quick(TargetKind::Loop) else { return };
        assert!((0.98..1.1).contains(&figure(&suite, "buffered", 512, "reads").unwrap()));
        for bs in [4096, 8192] {
            assert!(figure(&suite, "buffered", bs, "reads").unwrap() < 0.02, "{bs}");
        }
        assert!(figure(&suite, "buffered", 512, "rsec/s").unwrap() > 0.0);
        let bound = || {
            std::fs::read_dir("/sys/block").unwrap().flatten().any(|entry| {
                let file = std::fs::read_to_string(entry.path().join("loop/backing_file"));
                file.is_ok_and(|file| file.contains(&format!("forkless-bench-{}-", std::process::id())))
            })
        };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while bound() && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!bound(), "a loop device is still bound to a scratch file");
    }

    #[test]
    fn blocks_that_do_not_fit_are_refused() {
        for spec in [
            Spec { bs: vec![0], ..Spec::default() },
            Spec { bs: vec![8 << 20], ..Spec::default() },
            Spec { bs: vec![], ..Spec::default() },
            Spec { targets: vec![], ..Spec::default() },
        ] {
            assert!(matches!(run(&spec, None, &mut Silent), Err(Error::Spec(_))));
        }
        assert!("floppy".parse::<TargetKind>().is_err());
    }
}
