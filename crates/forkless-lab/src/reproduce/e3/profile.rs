//! A system-wide profile while the server answers, by perf: whole stacks, sampled by the
//! processor's clock.

use std::path::Path;
use std::time::Duration;

use forkless::Command;
use forkless_bench::error::Error;
use forkless_bench::stats::bootstrap::Samples;

use crate::reproduce::tools;
use crate::reproduce::{Experiment, Figure};

/// What a sample's stack shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    clone: bool,
    copy: bool,
    zap: bool,
    change: bool,
}

/// Records while `load` runs and adds the shares to the experiment.
pub(super) fn record(
    perf: &Path,
    file: &Path,
    load: &[&str],
    seed: u64,
    experiment: &mut Experiment,
) -> Result<(), Error> {
    let mut command = Command::new(perf);
    command
        .args(["record", "-q", "-a", "-g", "-F", "997", "-e", "cpu-clock", "-o"])
        .arg(file)
        .arg("--")
        .args(load);
    tools::run(&mut command, Duration::from_secs(60))?.fine("perf record")?;
    let mut command = Command::new(perf);
    command.args(["script", "-F", "comm,ip,sym", "-i"]).arg(file);
    let text = tools::run(&mut command, Duration::from_secs(60))?.fine("perf script")?;
    let samples = parse(&text);
    if samples.iter().filter(|seen| seen.clone).count() < 100 {
        return Err(Error::Missing(
            "perf saw too little of clone (no symbols of the kernel, or no samples)".into(),
        ));
    }
    let share = |of: &dyn Fn(&Seen) -> bool, among: &dyn Fn(&Seen) -> bool| {
        // Eight stretches of time: their scatter is the interval.
        let parts = samples.chunks(samples.len().div_ceil(8)).filter_map(|part| {
            let all = part.iter().filter(|seen| among(seen)).count();
            #[expect(clippy::cast_precision_loss, reason = "counts of samples")]
            (all > 0).then(|| {
                100.0 * part.iter().filter(|seen| among(seen) && of(seen)).count() as f64 / all as f64
            })
        });
        Samples::one_a_round(parts.collect())
    };
    let any = |_: &Seen| true;
    for (name, about, samples) in [
        (
            "profile.copy_percent_of_clone",
            "copy_page_range in what runs under clone",
            share(&|s| s.copy, &|s| s.clone),
        ),
        ("profile.copy_percent", "copy_page_range in the whole system", share(&|s| s.copy, &any)),
        ("profile.zap_percent", "unmapping (zap) in the whole system", share(&|s| s.zap, &any)),
        ("profile.change_percent", "change_protection in the whole system", share(&|s| s.change, &any)),
    ] {
        experiment.add(Figure::of(name, about, "%", &samples, seed));
    }
    experiment.notes.push(format!("profile: {} samples of busy processors", samples.len()));
    Ok(())
}

/// A sample is a line with the program's name and then one line a frame, address and symbol, up to
/// an empty line.
fn parse(text: &str) -> Vec<Seen> {
    let mut samples = Vec::new();
    for block in text.split("\n\n") {
        let mut lines = block.lines().filter(|line| !line.trim().is_empty());
        let Some(head) = lines.next() else { continue };
        // Idle processors belong to nobody.
        if head.trim().starts_with("swapper") {
            continue;
        }
        let mut seen = Seen::default();
        for line in lines {
            let symbol = line.split_whitespace().nth(1).unwrap_or_default();
            // Which of the names is there depends on what the compiler put into what.
            match symbol {
                "kernel_clone" | "copy_process" | "__do_sys_clone" | "__do_sys_clone3" | "_do_fork" => {
                    seen.clone = true
                }
                "copy_page_range"
                | "copy_pte_range"
                | "copy_present_ptes"
                | "copy_p4d_range"
                | "copy_huge_pmd"
                | "copy_hugetlb_page_range" => seen.copy = true,
                "unmap_page_range" | "zap_pte_range" | "zap_pmd_range" | "unmap_vmas"
                | "unmap_single_vma" => seen.zap = true,
                "change_protection" | "change_pte_range" | "change_protection_range" => seen.change = true,
                _ => {}
            }
        }
        samples.push(seen);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_told_apart_and_idle_processors_left_out() {
        let text = "apache2 \n\tffffffff8112 copy_page_range\n\tffffffff8111 dup_mmap\n\tffffffff8110 kernel_clone\n\n\
                    swapper \n\tffffffff8100 default_idle\n\nhello \n\tffffffff8113 unmap_page_range\n\tffff exit_mmap\n\n";
        let samples = parse(text);
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[0], Seen { clone: true, copy: true, ..Seen::default() });
        assert_eq!(samples[1], Seen { zap: true, ..Seen::default() });
    }
}
