//! Printing a decision.

use std::fmt::{self, Write as _};

use super::explained_line::{Decision, ExplainedCommand, ExplainedLine};
use crate::exit::Exit;
use crate::terminal;

pub(super) fn json(explained: &ExplainedLine) -> anyhow::Result<Exit> {
    terminal::print_json(explained)?;
    Ok(Exit::Fine)
}

pub(super) fn text(explained: &ExplainedLine) -> anyhow::Result<Exit> {
    let mut out = String::new();
    describe(&mut out, explained)?;
    terminal::print(&out)?;
    Ok(Exit::Fine)
}

fn describe(out: &mut String, explained: &ExplainedLine) -> fmt::Result {
    writeln!(out, "{}", explained.shown)?;
    if explained.decision == Decision::Shell {
        let name = explained.reason.as_ref().and_then(|why| why.variable.as_ref());
        if let Some(name) = name {
            writeln!(out, "  the variable is {name}")?;
        }
        writeln!(out, "would run: /bin/sh -c LINE (/bin/sh is {})", explained.shell)?;
        return Ok(());
    }
    writeln!(out, "as {} would:", explained.shell)?;
    let mut number = 0;
    for pipeline in &explained.pipelines {
        let mut when = match pipeline.runs {
            "and" => "if the status is 0",
            "or" => "if the status is not 0",
            _ => "",
        };
        for (index, command) in pipeline.commands.iter().enumerate() {
            number += 1;
            write!(out, "{number:>3}. {}", what(command))?;
            if index > 0 {
                when = "reading from the one before";
            }
            writeln!(out, "{}{when}", if when.is_empty() { "" } else { "   " })?;
            details(out, command)?;
        }
        if pipeline.negated {
            writeln!(out, "     then the status is negated")?;
        }
    }
    if number == 0 {
        writeln!(out, "     nothing to run; the status is 0")?;
    }
    Ok(())
}

fn what(command: &ExplainedCommand) -> String {
    let words = command.argv.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" ");
    match command.kind {
        "program" | "exec" => format!("run {words}"),
        "status" => format!("{} (no process)", command.argv[0]),
        "exit" => format!("end with status {}", command.argv.get(1).map_or("so far", String::as_str)),
        _ => format!("change directory to {}", words.trim_start_matches("\"cd\" ")),
    }
}

fn details(out: &mut String, command: &ExplainedCommand) -> fmt::Result {
    for redirection in &command.redirections {
        let (fd, target) = (redirection.descriptor, &redirection.target);
        match (redirection.operator, target.as_str()) {
            (">&", "-") => writeln!(out, "     descriptor {fd}: closed")?,
            (">&", _) => writeln!(out, "     descriptor {fd}: what {target} is by then")?,
            ("<", _) => writeln!(out, "     descriptor {fd}: reads {target:?}")?,
            (">", _) => writeln!(out, "     descriptor {fd}: writes {target:?}, emptied first")?,
            (">>", _) => writeln!(out, "     descriptor {fd}: appends to {target:?}")?,
            _ => writeln!(out, "     descriptor {fd}: reads and writes {target:?}")?,
        }
    }
    if let Some(effect) = &command.environment {
        for (name, value) in &effect.set {
            writeln!(out, "     environment: {name}={value}")?;
        }
        if !effect.dropped.is_empty() {
            writeln!(out, "     environment: without {}", effect.dropped.join(", "))?;
        }
    }
    if command.replaces_shell {
        writeln!(out, "     ends the line: a death by signal is the line's own")?;
    }
    Ok(())
}
