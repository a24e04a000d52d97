//! `--json`: the report as docs/diagnose.schema.json describes it.

use std::io::Write;

use forkless_diagnose::{
    CostModel, CreationCounts, DiagnosisReport, Finding, Origin, StartSummary, Thresholds, Tier, Timeline,
    Totals,
};

use super::{EndReason, remedy};

/// The version of the schema.
pub(super) const SCHEMA: u32 = 1;

#[derive(serde::Serialize)]
struct JsonReport<'r> {
    partial: Option<&'static str>,
    schema: u32,
    tier: Tier,
    refused: Vec<JsonRefused<'r>>,
    limits: Vec<&'r String>,
    command: Option<String>,
    window_ns: u64,
    totals: Totals,
    creations: CreationCounts,
    still_running: &'r [u32],
    starts: &'r StartSummary,
    origins: &'r [Origin],
    timeline: &'r Timeline,
    system_calls: bool,
    thresholds: Thresholds,
    model: CostModel,
    findings: Vec<JsonFinding<'r>>,
}

#[derive(serde::Serialize)]
struct JsonRefused<'r> {
    tier: Tier,
    why: Option<&'r str>,
}

#[derive(serde::Serialize)]
struct JsonFinding<'r> {
    #[serde(flatten)]
    finding: &'r Finding,
    /// The stack's innermost frame of the program itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    remedy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not_run: Option<String>,
    command: String,
}

pub(super) fn print(out: &mut impl Write, report: &DiagnosisReport, reason: EndReason) -> anyhow::Result<()> {
    let json = JsonReport {
        partial: (reason == EndReason::Interrupted).then_some("interrupted"),
        schema: SCHEMA,
        tier: report.tier,
        refused: report
            .refused
            .iter()
            .map(|probe| JsonRefused { tier: probe.tier, why: probe.refused.as_deref() })
            .collect(),
        limits: report.limits.iter().chain(&report.losses).collect(),
        command: report.command.as_ref().map(|command| command.line("")),
        window_ns: report.window_ns,
        totals: report.totals,
        creations: report.creations,
        still_running: &report.still_running,
        starts: &report.starts,
        origins: &report.origins,
        timeline: &report.timeline,
        system_calls: report.system_calls,
        thresholds: report.thresholds,
        model: report.model,
        findings: report
            .findings
            .iter()
            .map(|finding| JsonFinding {
                finding,
                place: finding.place().map(ToString::to_string),
                remedy: remedy::sentence(finding),
                why_not_run: remedy::why_not_run(finding),
                command: remedy::command(report, finding),
            })
            .collect(),
    };
    serde_json::to_writer(&mut *out, &json)?;
    Ok(out.write_all(b"\n")?)
}
