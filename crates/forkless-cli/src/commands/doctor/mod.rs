//! `forkless doctor`: the facilities of this machine that each part of the tool can use, and the
//! replacements of missing ones. A section is a part of the tool, in a module of its own that
//! answers with [`Entry`]s and a verdict. Facilities are tried, wherever that has no side effect.

mod diagnose;
mod memory;
mod process;
mod run;
mod spawn;

use comfy_table::{ContentArrangement, Table, presets};
use forkless_bench::machine::Machine;
use serde::Serialize;

use crate::exit::Exit;
use crate::terminal;

/// Flags of `forkless doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  forkless doctor\n  forkless doctor --verbose\n  forkless doctor -p 4711\n\nExit codes: 0 whatever works \
    here. With --pid also 2: no such process; 3: too little memory, or no /proc of this pid namespace."
)]
pub(crate) struct Args {
    /// Predict what a fork of this process costs now, under `run`, and with huge pages. The process
    /// is not changed.
    #[arg(short, long, value_name = "PID", value_parser = super::diagnose::pid, allow_negative_numbers = true)]
    pid: Option<u32>,

    /// Print each facility: whether it works, its use, and what replaces it.
    #[arg(short, long, conflicts_with_all = ["json", "pid"])]
    verbose: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Whether something works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Tried, and it does.
    Works,
    /// Tried, and it does not.
    Missing,
    /// Neither: a setting, or something that is tried only when it is needed.
    Info,
}

/// One facility or setting.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Entry {
    name: String,
    state: State,
    /// The error, the setting's value, or what works.
    detail: String,
    used_for: String,
    /// What replaces it; empty where nothing can.
    without: String,
}

impl Entry {
    pub(crate) fn new(
        name: impl Into<String>,
        outcome: Result<String, String>,
        used_for: impl Into<String>,
        without: impl Into<String>,
    ) -> Entry {
        let (state, detail) = match outcome {
            Ok(detail) => (State::Works, detail),
            Err(detail) => (State::Missing, detail),
        };
        Entry { name: name.into(), state, detail, used_for: used_for.into(), without: without.into() }
    }

    pub(crate) fn info(
        name: impl Into<String>,
        detail: impl Into<String>,
        used_for: impl Into<String>,
    ) -> Entry {
        Entry {
            name: name.into(),
            state: State::Info,
            detail: detail.into(),
            used_for: used_for.into(),
            without: String::new(),
        }
    }
}

/// How much of a part of the tool works here, in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    answer: Answer,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    Yes,
    Partly,
    No,
}

impl Answer {
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::No => "no",
        }
    }

    pub(crate) fn because(self, text: impl Into<String>) -> Verdict {
        Verdict { answer: self, text: text.into() }
    }
}

/// A part of the tool and what it found.
#[derive(Debug, Clone, Serialize)]
struct Section {
    name: &'static str,
    verdict: Verdict,
    /// How this part works here, in a sentence.
    path: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    schema: &'static str,
    machine: Machine,
    sections: Vec<Section>,
}

/// Probes and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(pid) = args.pid {
        super::need_proc()?;
        return process::run(pid, args.json);
    }
    let sections = vec![
        section("spawn", spawn::entries(), spawn::verdict, spawn::path),
        section("run", run::entries(), run::verdict, run::path),
        section("diagnose", diagnose::entries(), diagnose::verdict, diagnose::path),
        section("memory", memory::entries(), memory::verdict, memory::path),
    ];
    let report = DoctorReport { schema: "forkless.doctor/1", machine: Machine::observe(), sections };
    if args.json {
        terminal::print_json(&report)?;
        return Ok(Exit::Fine);
    }
    let machine = &report.machine;
    let machine = format!(
        "{} {} {}, {} processors, {}",
        machine.os, machine.kernel, machine.arch, machine.cpus, machine.libc
    );
    let mut text = terminal::fold("", &machine, usize::from(terminal::width()));
    for section in &report.sections {
        text.push_str(&section.summary());
    }
    if !args.verbose {
        let more = "--verbose prints every facility; -p PID says what a fork of a process costs.";
        text += &format!("\n{}", terminal::fold("", more, usize::from(terminal::width())));
        return terminal::print(&text).map(|()| Exit::Fine);
    }
    for section in &report.sections {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(terminal::width());
        table.set_header(["", "facility", "here", "used for", "without it"]);
        for entry in &section.entries {
            let mark = match entry.state {
                State::Works => "yes",
                State::Missing => "no",
                State::Info => "",
            };
            table.add_row([mark, &entry.name, &entry.detail, &entry.used_for, &entry.without]);
        }
        text.push_str(&format!("\n{}: {}\n{table}\n", section.name, section.path));
    }
    terminal::print(&text)?;
    Ok(Exit::Fine)
}

fn section(
    name: &'static str,
    entries: Vec<Entry>,
    verdict: fn(&[Entry]) -> Verdict,
    path: fn(&[Entry]) -> String,
) -> Section {
    Section { name, verdict: verdict(&entries), path: path(&entries), entries }
}

impl Section {
    /// The verdict in a line, and a line for each of the first facilities that are missing. All
    /// sections together fit on a screen of 80 by 24.
    fn summary(&self) -> String {
        /// Missing facilities that are named.
        const NAMED: usize = 3;
        let Verdict { answer, text } = &self.verdict;
        let mut summary = fitting(&format!("{:9} {:6} ", self.name, answer.word()), text);
        let missing: Vec<&Entry> =
            self.entries.iter().filter(|entry| entry.state == State::Missing).collect();
        for entry in missing.iter().take(NAMED) {
            summary += &fitting(&format!("{:16} ", ""), &format!("no {}: {}", entry.name, entry.detail));
        }
        if missing.len() > NAMED {
            summary += &format!("{:16} and {} more\n", "", missing.len() - NAMED);
        }
        summary
    }
}

/// Lines of at most 80 columns, or of the terminal's width. A kernel's reason may be long, and hold
/// lines of its own: then the end of it is left to `--verbose`.
fn fitting(head: &str, text: &str) -> String {
    fitting_in(head, text, COLUMNS.min(usize::from(terminal::width())))
}

const COLUMNS: usize = 80;

fn fitting_in(head: &str, text: &str, width: usize) -> String {
    const LINES: usize = 4;
    const MORE: &str = " ...";
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let whole = terminal::fold(head, &text, width);
    // A narrow terminal needs more lines for the same words.
    let most = LINES * COLUMNS / width.max(1);
    if whole.lines().count() <= most {
        return whole;
    }
    let mut kept: Vec<&str> = whole.lines().take(most).collect();
    // Words of the last line give their room to the mark.
    if let Some(last) = kept.last_mut() {
        while last.chars().count() + MORE.len() > width
            && let Some((words, _)) = last.trim_end().rsplit_once(' ')
            && words.chars().count() > head.chars().count()
        {
            *last = words;
        }
    }
    format!("{}{MORE}\n", kept.join("\n"))
}

/// Whether a facility of a section works.
pub(crate) fn works(entries: &[Entry], name: &str) -> bool {
    entries.iter().any(|entry| entry.name == name && entry.state == State::Works)
}

/// The outcome of a facility that was tried.
pub(crate) fn works_or_not(tried: std::io::Result<()>) -> Result<String, String> {
    tried.map(|()| "works".to_owned()).map_err(|error| error.to_string())
}

/// The first line of a file, or why there is none.
pub(crate) fn setting(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the mark of a cut text made its last line longer than the terminal.
    #[test]
    fn a_reason_that_is_cut_fits_the_terminal() {
        let text = "four ".repeat(200);
        for width in [37, 60, 80] {
            let fitted = fitting_in("diagnose  no  ", &text, width);
            assert!(fitted.lines().all(|line| line.chars().count() <= width), "{width}: {fitted}");
            assert!(fitted.ends_with("four ...\n"), "{width}: {fitted}");
            assert!(fitted.lines().count() <= 4 * COLUMNS / width, "{width}: {fitted}");
        }
        let whole = fitting_in("no x: ", "a short reason", 80);
        assert_eq!(whole, "no x: a short reason\n");
    }
}
