//! `--folded`: one line a path, `program;outer;inner;fork, exec date 1234`, in microseconds. Flame
//! graph tools read it: flamegraph.pl, inferno, speedscope.

use std::collections::BTreeMap;
use std::io::{self, Write};

use forkless_diagnose::DiagnosisReport;

use super::origins::{microseconds, path};
use crate::terminal;

pub(super) fn print(out: &mut impl Write, report: &DiagnosisReport) -> io::Result<()> {
    let mut paths: BTreeMap<String, u64> = BTreeMap::new();
    for origin in &report.origins {
        let parts: Vec<String> = path(origin).iter().map(|part| plain(part)).collect();
        *paths.entry(parts.join(";")).or_default() += microseconds(origin);
    }
    for (path, cost) in paths {
        writeln!(out, "{path} {cost}")?;
    }
    Ok(())
}

/// A name may hold what ends a part or a line, and what controls a terminal.
fn plain(name: &str) -> String {
    terminal::plain(&terminal::in_line(name)).replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_one_line() {
        assert_eq!(plain("a;b\nc\x1b[2J"), "a:b\\nc\\u{1b}[2J");
    }
}
