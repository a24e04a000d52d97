//! Runs a script that makes the passes and prints them: first whether its process may have huge
//! pages (`0`, `1` or `-`), then a line of milliseconds for each run.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use forkless_bench::error::Error;
use forkless_bench::published::cow;

use super::Run;
use crate::reproduce::tools;

/// Who runs the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum User {
    /// Somebody without rights: this user, or nobody where this is root. Ruby's `has_privilege`
    /// (process.c) makes it fork for root.
    Ordinary,
    /// This user.
    Own,
}

/// nobody and nogroup of Debian.
const NOBODY: u32 = 65_534;

/// What the script said.
#[derive(Debug)]
pub(super) struct Said {
    /// Whether its process may have huge pages, where the kernel tells.
    pub(super) thp: Option<bool>,
    /// The passes of every run.
    pub(super) runs: Vec<Run>,
}

/// Runs it; `size` is pages and runs.
pub(super) fn run(
    launcher: Option<&[OsString]>,
    interpreter: &Path,
    script: &Path,
    mode: &str,
    size: [u64; 2],
    user: User,
) -> Result<Said, Error> {
    let mut command = tools::behind(launcher, interpreter.as_os_str());
    command.arg(script).arg(mode);
    command.args([size[0].to_string(), cow::PASSES.to_string(), size[1].to_string()]);
    if user == User::Ordinary && forkless_bench::machine::is_root() {
        command.uid(NOBODY).gid(NOBODY).groups(&[]);
    }
    let name = format!("{} ({mode})", interpreter.display());
    let text = tools::run(&mut command, Duration::from_secs(120))?.fine(&name)?;
    let said = parse(&text).filter(|said| said.runs.len() as u64 == size[1]);
    said.ok_or_else(|| Error::Missing(format!("{name} printed something else than its passes")))
}

fn parse(text: &str) -> Option<Said> {
    let mut lines = text.lines();
    let thp = match lines.next()? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    let run = |line: &str| -> Option<Run> {
        let times: Run = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        (times.len() == 2 * cow::PASSES).then_some(times)
    };
    Some(Said { thp, runs: lines.map(run).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_read_and_anything_else_is_refused() {
        let line = vec!["1.5"; 2 * cow::PASSES].join(" ");
        let said = parse(&format!("0\n{line}\n{line}\n")).unwrap();
        assert_eq!((said.thp, said.runs.len()), (Some(false), 2));
        assert_eq!(parse(&format!("-\n{line}\n")).unwrap().thp, None);
        assert!(parse("1\n1.5 1.5\n").is_none() && parse("").is_none() && parse("1\nnonsense\n").is_none());
    }
}
