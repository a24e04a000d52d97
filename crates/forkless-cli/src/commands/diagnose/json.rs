//! `--json`: the report as docs/diagnose.schema.json describes it.

use std::io::Write;

use forkless_diagnose::{CostModel, CreationCounts, DiagnosisReport, Finding, Thresholds, Tier, Totals};

use super::{EndReason, remedy};

/// The version of the schema.
const SCHEMA: u32 = 1;

#[derive(serde::Serialize)]
struct JsonReport<'r> {
    partial: Option<&'static str>,
    schema: u32,
    tier: Tier,
    limits: &'r [String],
    window_ns: u64,
    totals: Totals,
    creations: CreationCounts,
    system_calls: bool,
    thresholds: Thresholds,
    model: CostModel,
    findings: Vec<JsonFinding<'r>>,
}

#[derive(serde::Serialize)]
struct JsonFinding<'r> {
    #[serde(flatten)]
    finding: &'r Finding,
    remedy: String,
    command: String,
}

pub(super) fn print(out: &mut impl Write, report: &DiagnosisReport, reason: EndReason) -> anyhow::Result<()> {
    let json = JsonReport {
        partial: (reason == EndReason::Interrupted).then_some("interrupted"),
        schema: SCHEMA,
        tier: report.tier,
        limits: &report.limits,
        window_ns: report.window_ns,
        totals: report.totals,
        creations: report.creations,
        system_calls: report.system_calls,
        thresholds: report.thresholds,
        model: report.model,
        findings: report
            .findings
            .iter()
            .map(|finding| JsonFinding {
                finding,
                remedy: remedy::sentence(finding),
                command: remedy::command(report, finding),
            })
            .collect(),
    };
    serde_json::to_writer(&mut *out, &json)?;
    Ok(out.write_all(b"\n")?)
}
