//! `forkless doctor`: the facilities of this machine that each part of the tool can use, and the
//! replacements of missing ones. A section is a part of the tool, in a module of its own that
//! answers with [`Entry`]s. Facilities are tried, wherever that has no side effect.

mod diagnose;
mod memory;
mod run;
mod spawn;

use comfy_table::{ContentArrangement, Table, presets};
use forkless_bench::machine::Machine;
use serde::Serialize;

use crate::exit::Exit;
use crate::terminal;

/// Flags of `forkless doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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

/// A part of the tool and what it found.
#[derive(Debug, Clone, Serialize)]
struct Section {
    name: &'static str,
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
    let sections = vec![
        section("spawn", spawn::entries(), spawn::path),
        section("run", run::entries(), run::path),
        section("diagnose", diagnose::entries(), diagnose::path),
        section("memory", memory::entries(), memory::path),
    ];
    let report = DoctorReport { schema: "forkless.doctor/1", machine: Machine::observe(), sections };
    if args.json {
        terminal::print_json(&report)?;
        return Ok(Exit::Fine);
    }
    let machine = &report.machine;
    let mut text = format!(
        "{} {} {}, {} processors, {}\n",
        machine.os, machine.kernel, machine.arch, machine.cpus, machine.libc
    );
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

fn section(name: &'static str, entries: Vec<Entry>, path: fn(&[Entry]) -> String) -> Section {
    Section { name, path: path(&entries), entries }
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
