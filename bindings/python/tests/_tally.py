"""A pytest plugin of `./x python`: closes with the lines that `cargo xtask ci` counts."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    stats = terminalreporter.stats
    failed = [*stats.get("failed", []), *stats.get("error", [])]
    skipped = stats.get("skipped", [])
    terminalreporter.write_line("")
    for report in failed:
        terminalreporter.write_line("test %s ... FAILED" % report.nodeid)
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "see above"
        reason = reason[len("Skipped: ") :] if reason.startswith("Skipped: ") else reason
        terminalreporter.write_line("test %s ... skipped: %s" % (report.nodeid, reason))
    for report in stats.get("xfailed", []):
        terminalreporter.write_line("test %s ... skipped: %s" % (report.nodeid, report.wasxfail))
    terminalreporter.write_line(
        "test result: %s. %d passed; %d failed; %d skipped"
        % (
            "FAILED" if failed else "ok",
            len(stats.get("passed", [])) + len(stats.get("xpassed", [])),
            len(failed),
            len(skipped) + len(stats.get("xfailed", [])),
        )
    )
