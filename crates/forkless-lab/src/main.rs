//! Holds a saved result of `forkless bench victims --json FILE` to this project's acceptance
//! limits. It prints the verdicts, and exits with 1 when a limit was missed or a mechanism was not
//! at work.

use std::path::PathBuf;
use std::process::ExitCode;

use forkless_bench::error::Error;
use forkless_bench::render::Grid;
use forkless_bench::store::Store;
use forkless_lab::acceptance;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: forkless-lab RESULT.json");
        return ExitCode::from(2);
    };
    match judge(PathBuf::from(file)) {
        Ok(missed) => ExitCode::from(u8::from(missed)),
        Err(error) => {
            eprintln!("forkless-lab: {error}");
            ExitCode::from(2)
        }
    }
}

fn judge(file: PathBuf) -> Result<bool, Error> {
    let suite = acceptance::judge(&Store::read(&file)?)
        .ok_or_else(|| Error::Spec(format!("{} has no figures of the suite victims", file.display())))?;
    print!("{}", Grid::of_checks(&suite).to_markdown());
    Ok(acceptance::is_missed(&suite))
}
