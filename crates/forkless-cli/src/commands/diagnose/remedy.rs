//! Findings' remedies and checks as command lines of this tool. The library has them as data and
//! knows no flag.

use forkless_diagnose::{DiagnosisReport, Finding, FollowUp, Obstacle, Remedy, Treatment};

/// What to do, in a sentence.
pub(super) fn sentence(finding: &Finding) -> String {
    let alternative = match &finding.remedy {
        Remedy::Run { treatment, .. } => {
            let mut command = "forkless run".to_owned();
            if let Some(flag) = flag(*treatment) {
                command += &format!(" {flag}");
            }
            format!(", or run the program unchanged under `{command}`")
        }
        Remedy::Repair { .. } => ", or from outside `forkless repair`".to_owned(),
        _ => match why_not_run(finding) {
            Some(why) if matches!(finding.obstacle, Some(Obstacle::Shells(_))) => {
                format!(" (`forkless run` leaves the shell, as {why})")
            }
            Some(why) => format!(" (`forkless run` does not help here: {why})"),
            None => String::new(),
        },
    };
    format!("{}{alternative}.", finding.explanation)
}

/// Why `forkless run` is no remedy, where it is one for others. Too little memory is the usual
/// reason, and the evidence has it.
pub(super) fn why_not_run(finding: &Finding) -> Option<String> {
    match finding.obstacle.as_ref()? {
        Obstacle::Small(_) | Obstacle::Cheap => None,
        slow @ Obstacle::Slow(_) => Some(format!("{slow}, unless --fork-limit raises it")),
        obstacle => Some(obstacle.to_string()),
    }
}

/// The command that applies the remedy, or else checks the finding.
pub(super) fn command(report: &DiagnosisReport, finding: &Finding) -> String {
    match &finding.remedy {
        Remedy::Run { treatment, program: Some(program) } => {
            let flag = flag(*treatment).map(|flag| format!("{flag} ")).unwrap_or_default();
            program.line(&format!("forkless run {flag}-- "))
        }
        Remedy::Repair { pid } => format!("forkless repair -p {pid}"),
        Remedy::SetVariable { name, value, program } => program.line(&format!("{name}={value} ")),
        _ => check(report, &finding.check),
    }
}

/// The flag of `forkless run` for what it does not do by default.
fn flag(treatment: Treatment) -> Option<&'static str> {
    match treatment {
        Treatment::SwitchContexts => Some("--context=fast"),
        Treatment::UseHugePages => Some("--huge-pages=thp"),
        _ => None,
    }
}

fn check(report: &DiagnosisReport, check: &FollowUp) -> String {
    // A command that was watched is watched again.
    let again = |options: &str, pid: Option<u32>| match (&report.command, pid) {
        (Some(command), _) => command.line(&format!("forkless diagnose {options}-- ")),
        (None, Some(pid)) => format!("forkless diagnose {options}-p {pid}"),
        (None, None) => format!("forkless diagnose {options}--all -d 60"),
    };
    match check {
        FollowUp::Log { pid } => again("--log ", *pid),
        FollowUp::ShellLine(line) => {
            // Quotes don't keep the line from being an option.
            let ends = if line.trim_start_matches('\'').starts_with('-') { "-- " } else { "" };
            format!("forkless sh --explain {ends}{line}")
        }
        FollowUp::Command(command) => command.clone(),
        FollowUp::Diagnose { pid } => again("", *pid),
        // Every finding can be looked for again.
        _ => again("", None),
    }
}
