//! The same procedure in Perl, whose system() forks and execs to this day: an unmodified program
//! for `forkless run` to help.

use forkless_bench::error::Error;

use super::{ChildMethod, script};
use crate::reproduce::tools;
use crate::reproduce::{Bench, Experiment};

/// Arguments and output as those of the Ruby script.
const SCRIPT: &str = r#"use Time::HiRes qw(clock_gettime);
my ($mode, $pages, $passes, $runs) = @ARGV;
my $memory = "\0" x ($pages * 4096);
sub pass {
    my $start = clock_gettime(3);
    for (my $at = 0; $at < $pages * 4096; $at += 4096) { substr($memory, $at, 1, "\1") }
    return (clock_gettime(3) - $start) * 1e3;
}
print "-\n";
for (1 .. $runs) {
    pass();
    my @times = map { pass() } 1 .. $passes;
    system("/bin/true") == 0 or exit 1;
    push @times, map { pass() } 1 .. $passes;
    print join(" ", map { sprintf "%.4f", $_ } @times), "\n";
}
"#;

/// Perl's system(), plain and under `forkless run`; what cannot be run is a note.
pub(super) fn methods(
    bench: &mut Bench<'_>,
    experiment: &mut Experiment,
    pages: u64,
    runs: usize,
) -> Result<Vec<ChildMethod>, Error> {
    let Some(perl) = tools::find("perl") else {
        experiment.notes.push("skipped: Perl's system(): perl is not installed".into());
        return Ok(Vec::new());
    };
    let scratch = tools::scratch(bench)?;
    let file = scratch.write("passes.pl", SCRIPT)?;
    let mut methods = Vec::new();
    let launcher = bench.options.launcher();
    let launcher = launcher.as_deref();
    for (key, name, launcher) in [
        ("perl_system", "Perl, system(\"true\")", None),
        ("perl_run_system", "the same Perl, under forkless run", launcher),
    ] {
        if key == "perl_run_system" && launcher.is_none() {
            experiment.notes.push("skipped: Perl under forkless run: its library is not built".into());
            continue;
        }
        let said = script::run(launcher, &perl, &file, "system", [pages, runs as u64], script::User::Own);
        match said {
            Ok(said) => {
                let mut method = ChildMethod::new(key, name);
                method.runs = said.runs;
                methods.push(method);
            }
            Err(error) => experiment.notes.push(format!("skipped: {name}: {error}")),
        }
    }
    Ok(methods)
}
