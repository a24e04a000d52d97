//! This project's own acceptance limits for the suite `victims`: the aims of its authors. They are
//! checked on a saved result, and users of the suite do not see them.

use forkless_bench::check::{Bound, CheckVerdict};
use forkless_bench::results::{Results, Suite};

/// A victim's figure and its limit.
struct AcceptanceLimit {
    victim: &'static str,
    figure: &'static str,
    bound: Bound,
    limit: f64,
}

const fn at_least(victim: &'static str, figure: &'static str, limit: f64) -> AcceptanceLimit {
    AcceptanceLimit { victim, figure, bound: Bound::AtLeast, limit }
}

const fn at_most(victim: &'static str, figure: &'static str, limit: f64) -> AcceptanceLimit {
    AcceptanceLimit { victim, figure, bound: Bound::AtMost, limit }
}

const LIMITS: &[AcceptanceLimit] = &[
    at_most("c-64M", "run / vfork", 4.0),
    at_most("c-1G", "run / vfork", 4.0),
    at_most("c-4G", "run / vfork", 4.0),
    at_most("c-8G", "run / vfork", 4.0),
    at_most("c-pass", "after a fork / no fork", 1.03),
    at_least("perl-system", "plain / run", 100.0),
    at_least("python-preexec", "plain / run", 20.0),
    at_least("python-busy", "plain / run", 12.0),
    at_least("gunicorn-gthread", "plain / run", 12.0),
    at_least("node-spawnsync", "plain / run", 25.0),
    at_most("node-spawnsync", "run / speculate", 1.2),
    at_least("tokio-preexec", "plain / run", 50.0),
    at_most("tokio-preexec", "p99 of requests meanwhile: run / plain", 0.1),
    at_least("ruby-root", "system: plain / run", 15.0),
    at_least("ruby-root", "spawn: plain / run", 15.0),
    at_least("ruby-root", "backticks: plain / run", 15.0),
    at_least("ruby-root", "fork { exec }: plain / run", 15.0),
    at_least("apache-cgi", "run / plain", 5.0),
    at_least("apache-cgid", "run / plain", 5.0),
    at_least("apache-thp", "plain / run", 10.0),
    at_least("apache-hugetlb", "plain / run", 10.0),
    at_most("worker", "first at a call site / plain", 1.05),
    at_most("worker", "afterwards / plain", 1.01),
    at_most("worker-threads", "first at a call site / plain", 1.05),
    at_most("worker-threads", "afterwards / plain", 1.01),
    at_least("close-loop", "plain / run", 20.0),
    at_least("close-loop", "plain / left alone", 20.0),
    at_most("malloc-stall", "run / plain", 0.1),
    at_least("system", "plain / run", 4.0),
    at_least("popen", "plain / run", 4.0),
    at_least("sh-exec", "plain / run", 3.0),
    at_least("sh-spawn", "plain / run", 3.0),
    at_least("redis-bgsave", "plain / run", 12.0),
    at_least("swapcontext", "plain / run", 8.0),
    at_least("localtime", "plain / run", 7.0),
    at_most("small-shell", "children=no / plain", 1.02),
    at_most("small-shell", "follow - empty library, a program", 20.0),
    at_most("small-make", "children=no / plain", 1.02),
    at_most("small-make", "follow - empty library, a program", 20.0),
    at_most("small-git", "children=no / plain", 1.02),
    at_most("small-git", "follow - empty library, a program", 20.0),
    at_most("load", "run - empty library", 20.0),
    at_most("break-even", "break-even size", 16.0),
];

/// The checks of a result's suite `victims`, each held to its acceptance limit. `None` where the
/// result has no such suite, or no check in it.
#[must_use]
pub fn judge(results: &Results) -> Option<Suite> {
    let mut suite = results.suites.iter().find(|suite| suite.name == crate::VICTIMS)?.clone();
    suite.checks = std::mem::take(&mut suite.checks)
        .into_iter()
        .map(|check| {
            let limit =
                LIMITS.iter().find(|limit| (limit.victim, limit.figure) == (&check.name, &check.figure));
            match limit {
                Some(limit) => check.held_to(limit.bound, limit.limit),
                None => check,
            }
        })
        .collect();
    Some(suite).filter(|suite| !suite.checks.is_empty())
}

/// Whether a limit was missed, or nothing shows that it was kept.
#[must_use]
pub fn is_missed(suite: &Suite) -> bool {
    suite.checks.iter().any(|check| matches!(check.verdict, CheckVerdict::Missed | CheckVerdict::NotShown))
}

#[cfg(test)]
mod tests {
    use forkless_bench::check::Check;

    use super::*;

    fn check(name: &str, figure: &str, value: Option<f64>, verdict: &str) -> Check {
        serde_json::from_value(serde_json::json!({
            "name": name, "params": {}, "figure": figure, "unit": "times", "value": value,
            "ci95": value.map(|value| [value * 0.99, value * 1.01]), "verdict": verdict, "evidence": "",
        }))
        .unwrap()
    }

    fn judged(checks: Vec<Check>) -> Suite {
        let suite = Suite { name: crate::VICTIMS.into(), checks, ..Suite::default() };
        judge(&Results { suites: vec![suite], ..Results::begin() }).unwrap()
    }

    #[test]
    fn a_figure_is_held_to_its_own_limit() {
        let all = judged(vec![
            check("perl-system", "plain / run", Some(66.2), "reached"),
            check("python-preexec", "plain / run", Some(24.0), "reached"),
            check("c-1G", "run / vfork", Some(3.9), "shown"),
            check("node-heap", "plain / run", Some(2.0), "shown"),
            check("localtime", "", None, "skipped"),
        ]);
        let verdicts: Vec<CheckVerdict> = all.checks.iter().map(|check| check.verdict).collect();
        use CheckVerdict::{Missed, Reached, Shown, Skipped};
        assert_eq!(verdicts, [Missed, Reached, Reached, Shown, Skipped]);
        assert_eq!(all.checks[0].limit, Some(100.0));
        assert!(is_missed(&all));
    }

    #[test]
    fn each_figure_of_a_victim_has_a_limit_of_its_own() {
        let all = judged(vec![
            check("tokio-preexec", "plain / run", Some(60.0), "reached"),
            check("tokio-preexec", "p99 of requests meanwhile: run / plain", Some(0.2), "reached"),
            check("ruby-root", "system: plain / run", Some(20.0), "reached"),
            check("ruby-root", "spawn: plain / run", Some(10.0), "reached"),
        ]);
        let verdicts: Vec<CheckVerdict> = all.checks.iter().map(|check| check.verdict).collect();
        use CheckVerdict::{Missed, Reached};
        assert_eq!(verdicts, [Reached, Missed, Reached, Missed]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn every_limit_is_of_a_victim() {
        let victims = crate::victims::list();
        for limit in LIMITS {
            assert!(victims.iter().any(|(name, _)| *name == limit.victim), "{}", limit.victim);
        }
    }

    #[test]
    fn a_mechanism_that_was_not_at_work_is_a_miss_and_other_results_have_nothing_to_judge() {
        assert!(is_missed(&judged(vec![check("system", "plain / run", None, "not_shown")])));
        assert!(!is_missed(&judged(vec![check("system", "", None, "skipped")])));
        assert!(judge(&Results::begin()).is_none());
    }
}
