//! A program whose memory comes from malloc, with glibc's own remedy (glibc.malloc.hugetlb=2).
//! Measured are the RSS that it shows, and its behaviour when the pool is too small, at the start
//! and while serving. Apache will not do any more: its memory is not malloc's.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};

use forkless::{Command, OnDrop, Stdio};
use forkless_bench::error::Error;
use forkless_bench::guard::Guard;
use forkless_bench::page_kinds::Pages;
use forkless_bench::quiet_pipe;
use forkless_bench::settings::Changed;

use super::held::{Held, tunables};
use crate::last_lines::last_words;
use crate::reproduce::{Experiment, Figure, ReproduceOptions, TitledGrid};
use crate::victims::stage::Stage;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Holds so many strings of 4,000 bytes, and says so. For each line it reads, it forks a child that
/// writes to some of them, and answers with the signal that killed the child, or 0.
const SCRIPT: &str = r#"$| = 1;
my @hosts = map { "x" x 4000 } 1 .. $ARGV[0];
print "ready\n";
while (<STDIN>) {
    my $child = fork // die "fork: $!";
    if ($child == 0) {
        for (my $i = 0; $i < @hosts; $i += 500) { substr($hosts[$i], 0, 1) = "y" }
        require POSIX;
        POSIX::_exit(0);
    }
    waitpid($child, 0);
    print $? & 127, "\n";
}
"#;

/// The program, ready.
struct Served {
    child: forkless::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Served {
    fn start(
        perl: &Path,
        script: &Path,
        errors: &Path,
        hosts: u64,
        environment: &[OsString],
    ) -> Result<Served, Error> {
        let complaints = fs::File::create(errors).map_err(Error::io("make a file for Perl"))?;
        let mut command = Command::new("/usr/bin/env");
        command.args(environment).arg(perl).arg(script).arg(hosts.to_string());
        command.stdin(Stdio::piped_input()).stdout(Stdio::piped()).stderr(complaints);
        command.parent_death_signal(libc::SIGKILL).on_drop(OnDrop::Kill);
        let mut child =
            command.spawn().map_err(|error| Error::io("start Perl")(std::io::Error::from(error)))?;
        let lost = || Error::Missing("a pipe of Perl is missing".into());
        let input = child.stdin.take().ok_or_else(lost)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(lost)?);
        let mut served = Served { child, input, output };
        match served.line()?.as_str() {
            "ready" => Ok(served),
            _ => {
                let said = last_words([errors]);
                Err(Error::Missing(format!("Perl ended before it held its memory: {said}")))
            }
        }
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(Error::io("read what Perl says"))?;
        Ok(line.trim().to_owned())
    }

    /// The signal that killed the child of one request, 0 for none; an empty answer: Perl itself is
    /// gone.
    fn request(&mut self) -> Result<Option<i32>, Error> {
        if quiet_pipe::write_all(&mut self.input, b"\n").is_err() {
            return Ok(None);
        }
        Ok(self.line()?.parse().ok())
    }
}

fn number(name: &str) -> u64 {
    let text = fs::read_to_string(format!("{POOL}/{name}")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn set(pages: u64, guard: &mut Guard) -> Result<Option<Changed>, Error> {
    Changed::set(Path::new(&format!("{POOL}/nr_hugepages")), &pages.to_string(), Some(guard))
}

#[expect(clippy::cast_precision_loss, reason = "KiB")]
pub(super) fn measure(
    stage: &mut Stage<'_>,
    options: &ReproduceOptions,
    experiment: &mut Experiment,
) -> Result<(), Error> {
    let perl = stage.need("perl", "perl-base")?;
    let script = stage.file("hosts.pl");
    fs::write(&script, SCRIPT).map_err(Error::io("write a script"))?;
    let hosts = if options.quick { 10_000 } else { forkless_bench::published::huge_pages::HOSTS };
    let errors = stage.file("errors");
    let start = |environment: &[OsString]| Served::start(&perl, &script, &errors, hosts, environment);

    let plain = start(&[])?;
    let before = Held::of(plain.child.id());
    drop(plain);
    let environment = tunables(2048);
    let taken = {
        // Twice its memory: the child of a fork that writes needs copies.
        let _pool = Pages::Hugetlb(2048).enable(2 * (before.rss << 10) + (64 << 20), Some(stage.guard))?;
        let free = number("free_hugepages");
        let mut huge = start(&environment)?;
        let after = Held::of(huge.child.id());
        let taken = free - number("free_hugepages").min(free);
        experiment
            .notes
            .push(format!("HugePages_Free fell from {free} to {} at the start of Perl", free - taken));
        report(before, after, hosts, experiment);
        if huge.request()? != Some(0) {
            return Err(Error::Missing("a child died although the pool had pages left".into()));
        }
        // Now none is left for a copy.
        let spare = number("free_hugepages").saturating_sub(number("resv_hugepages"));
        let _tight = set(number("nr_hugepages").saturating_sub(spare), stage.guard)?;
        let left = number("free_hugepages");
        let answers: Vec<Option<i32>> = (0..3).map(|_| huge.request()).collect::<Result<_, _>>()?;
        let killed = answers.iter().filter(|answer| **answer == Some(libc::SIGBUS)).count();
        experiment.add(Figure::answer(
            "pool.sigbus",
            "killed by SIGBUS with no page left while serving",
            killed > 0,
        ));
        let parent = if answers.contains(&None) { "the parent died, too" } else { "the parent lived" };
        experiment.notes.push(format!(
            "with {left} free pages while serving: {killed} of 3 children that wrote were killed by SIGBUS; {parent}"
        ));
        taken
    };

    let _small = set((taken / 2).max(1), stage.guard)?;
    let about = "start fails with half of the pool";
    match start(&environment) {
        Ok(served) => {
            let held = Held::of(served.child.id());
            experiment.add(Figure::answer("pool.start_failed", about, false));
            let share = 100.0 * held.rss as f64 / before.rss.max(1) as f64;
            experiment.add(Figure::exact("pool.fell_back", "of the memory in small pages then", "%", share));
        }
        Err(error) => {
            experiment.add(Figure::answer("pool.start_failed", about, true));
            experiment.notes.push(format!("with half of the pool at the start: {error}"));
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "KiB")]
fn report(before: Held, after: Held, hosts: u64, experiment: &mut Experiment) {
    let mut table = TitledGrid::new(
        format!("Perl with {hosts} strings of 4,000 bytes, MB"),
        &["malloc in", "RSS", "from the pool"],
        1,
    );
    for (name, held) in [("small pages", before), ("2 MB pages (glibc.malloc.hugetlb=2)", after)] {
        table.line([name.to_owned(), (held.rss >> 10).to_string(), (held.pool >> 10).to_string()]);
    }
    experiment.tables.push(table);
    let all = before.rss.max(1) as f64;
    let percent = |kib: u64| 100.0 * kib as f64 / all;
    for (name, about, unit, value) in [
        ("rss.before_mb", "RSS, small pages", "MB", (before.rss >> 10) as f64),
        ("rss.after_mb", "RSS, pool", "MB", (after.rss >> 10) as f64),
        ("rss.hugetlb_mb", "HugetlbPages", "MB", (after.pool >> 10) as f64),
        ("rss.after_percent", "RSS left", "%", percent(after.rss)),
        ("rss.hugetlb_percent", "from the pool, of what RSS was", "%", percent(after.pool)),
    ] {
        experiment.add(Figure::exact(name, about, unit, value));
    }
}
