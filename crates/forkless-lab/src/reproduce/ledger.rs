//! The ledger: every claim of the articles with the figures that decide it, the bounds they are
//! held against, and what each outcome means. The verdict is arithmetic on figures; nothing here
//! knows what this machine will say.
//!
//! - `holds`: every bound of the claim is met, each by the figure's whole interval.
//! - `no longer holds`: the effect is gone; every bound that says so is met, by the whole interval
//!   too.
//! - `differs`: neither. The effect is there with another size, or the interval leaves it open.
//! - `not run here`: a figure that the claim rests on was not measured.
//!
//! A claim that names a size holds within a factor of [`SIZE`] of it. The machines are fifteen
//! years apart, and an effect's size depends on the machine more than its existence does.

use forkless_bench::check::Bound;
use serde::{Deserialize, Serialize};

use super::{Experiment, Figure, Id};

mod claims;

use self::claims::CLAIMS;

/// How far a size may lie from the published one, up or down, before the claim differs.
pub(crate) const SIZE: f64 = 3.0;

/// A pass, a time or a count that is at most so many times another is the same.
pub(crate) const SAME: f64 = 1.5;

/// What became of a claim on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    /// As published.
    Holds,
    /// The effect is gone.
    NoLongerHolds,
    /// The effect is there, with another size.
    Differs,
    /// Could not be decided.
    NotRun,
}

impl ClaimVerdict {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            ClaimVerdict::Holds => "holds",
            ClaimVerdict::NoLongerHolds => "no longer holds",
            ClaimVerdict::Differs => "differs",
            ClaimVerdict::NotRun => "not run here",
        }
    }
}

/// A bound on a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FigureBound {
    /// The figure's name.
    pub figure: &'static str,
    /// Which side of the bound.
    pub side: Bound,
    /// The bound, in the figure's unit.
    pub bound: f64,
}

impl FigureBound {
    /// Whether the figure's whole interval is on the right side.
    #[must_use]
    pub(crate) fn met_by(&self, figure: &Figure) -> bool {
        let [low, high] = figure.bounds();
        match self.side {
            Bound::AtLeast => low >= self.bound,
            Bound::AtMost => high <= self.bound,
        }
    }
}

const fn at_least(figure: &'static str, bound: f64) -> FigureBound {
    FigureBound { figure, side: Bound::AtLeast, bound }
}

const fn at_most(figure: &'static str, bound: f64) -> FigureBound {
    FigureBound { figure, side: Bound::AtMost, bound }
}

/// A claim, and how it is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    /// Its number: the experiment's, a dot, and its own.
    pub id: &'static str,
    /// What is claimed.
    pub text: &'static str,
    /// The author's figures.
    pub published: &'static str,
    /// Figures that a reader wants beside those that decide.
    pub beside: &'static [&'static str],
    /// All met: it holds.
    pub holds: &'static [FigureBound],
    /// Not that, but all of these met: it no longer holds. None: it cannot be gone, only differ.
    pub gone: &'static [FigureBound],
    /// Why it holds, is gone, or differs, in a sentence each.
    pub because: [&'static str; 3],
}

impl Claim {
    /// The experiment it is of.
    #[must_use]
    pub(crate) fn experiment(&self) -> Id {
        Id::ALL.into_iter().find(|id| id.to_string()[1..] == self.id[..1]).unwrap_or(Id::E1)
    }

    /// The verdict that the figures give.
    #[must_use]
    pub(crate) fn judge(&self, experiment: &Experiment) -> Judged {
        let mut deciding: Vec<&str> = Vec::new();
        for bound in self.holds.iter().chain(self.gone) {
            if !deciding.contains(&bound.figure) {
                deciding.push(bound.figure);
            }
        }
        let met =
            |bound: &FigureBound| experiment.figure(bound.figure).is_some_and(|figure| bound.met_by(figure));
        let agrees = |bound: &FigureBound| {
            experiment
                .figure(bound.figure)
                .is_some_and(|figure| bound.met_by(&Figure { ci95: None, ..figure.clone() }))
        };
        let absent = deciding.iter().find(|name| experiment.figure(name).is_none());
        let [holds, gone, differs] = self.because;
        let (verdict, reason) = if let Some(name) = absent {
            let why = experiment.missing.get(*name).cloned();
            (ClaimVerdict::NotRun, why.unwrap_or_else(|| format!("{name} was not measured")))
        } else if self.holds.iter().all(met) {
            (ClaimVerdict::Holds, holds.to_owned())
        } else if !self.gone.is_empty() && self.gone.iter().all(met) {
            (ClaimVerdict::NoLongerHolds, gone.to_owned())
        } else if self.holds.iter().all(agrees) {
            (
                ClaimVerdict::Differs,
                "left open: the medians agree, but an interval reaches across a bound".to_owned(),
            )
        } else {
            (ClaimVerdict::Differs, differs.to_owned())
        };
        let figures = deciding.into_iter().chain(self.beside.iter().copied());
        let bounds = |bounds: &[FigureBound]| bounds.iter().map(Criterion::from).collect();
        Judged {
            id: self.id.to_owned(),
            claim: self.text.to_owned(),
            published: self.published.to_owned(),
            verdict,
            reason,
            figures: figures.map(str::to_owned).collect(),
            holds_if: bounds(self.holds),
            gone_if: bounds(self.gone),
        }
    }
}

/// A bound as results show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Criterion {
    /// The figure's name.
    pub figure: String,
    /// Which side of the bound its whole interval must lie on.
    pub is: Bound,
    /// The bound, in the figure's unit.
    pub bound: f64,
}

impl From<&FigureBound> for Criterion {
    fn from(bound: &FigureBound) -> Criterion {
        Criterion { figure: bound.figure.to_owned(), is: bound.side, bound: bound.bound }
    }
}

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Its number.
    pub id: String,
    /// What was claimed.
    pub claim: String,
    /// The author's figures.
    pub published: String,
    /// What became of it.
    pub verdict: ClaimVerdict,
    /// Why, in a sentence.
    pub reason: String,
    /// Names of the figures that decide it, and of those shown beside.
    pub figures: Vec<String>,
    /// All met by whole intervals: it holds.
    pub holds_if: Vec<Criterion>,
    /// Else, all of these met: it no longer holds.
    pub gone_if: Vec<Criterion>,
}

/// Judges every claim of an experiment.
#[must_use]
pub(crate) fn judge(experiment: &Experiment) -> Vec<Judged> {
    let own = CLAIMS.iter().filter(|claim| claim.experiment() == experiment.id);
    own.map(|claim| claim.judge(experiment)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::reproduce::ReproduceOptions;

    /// An experiment whose figures sit on the given bounds, moved by `by` of the bound's size
    /// towards the right side.
    fn meeting(claim: &Claim, bounds: &[FigureBound], by: f64) -> Experiment {
        let mut between: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for bound in bounds {
            let range = between.entry(bound.figure).or_insert((f64::NEG_INFINITY, f64::INFINITY));
            match bound.side {
                Bound::AtLeast => range.0 = range.0.max(bound.bound),
                Bound::AtMost => range.1 = range.1.min(bound.bound),
            }
        }
        let mut experiment = Experiment::begin(claim.experiment(), &ReproduceOptions::default(), "", "");
        for (name, (low, high)) in between {
            let margin = |bound: f64| by * bound.abs().max(0.01);
            let value = match (low.is_finite(), high.is_finite()) {
                (true, true) => low.midpoint(high),
                (true, false) => low + margin(low),
                _ => high - margin(high),
            };
            experiment.add(Figure::exact(name, "", "", value));
        }
        experiment
    }

    fn fill(experiment: &mut Experiment, claim: &Claim) {
        for bound in claim.holds.iter().chain(claim.gone) {
            if experiment.figure(bound.figure).is_none() {
                experiment.add(Figure::exact(bound.figure, "", "", 0.5));
            }
        }
    }

    #[test]
    fn every_claim_is_there_once_with_its_number() {
        let ids: Vec<&str> = CLAIMS.iter().map(|claim| claim.id).collect();
        let expected: Vec<String> = [(1, 5), (2, 5), (3, 7), (4, 4), (5, 6), (6, 4)]
            .iter()
            .flat_map(|&(experiment, count)| (1..=count).map(move |n| format!("{experiment}.{n}")))
            .collect();
        assert_eq!(ids, expected);
        for claim in CLAIMS {
            assert!(claim.id.starts_with(&claim.experiment().to_string()[1..]));
            assert!(!claim.holds.is_empty(), "{}: nothing decides it", claim.id);
        }
    }

    #[test]
    fn each_claim_holds_where_its_bounds_are_met_and_not_where_one_is_broken() {
        for claim in CLAIMS {
            let mut good = meeting(claim, claim.holds, 0.01);
            fill(&mut good, claim);
            assert_eq!(claim.judge(&good).verdict, ClaimVerdict::Holds, "{}: {good:?}", claim.id);
            for broken in claim.holds {
                let mut bad = good.clone();
                let figure = bad.figures.iter_mut().find(|figure| figure.name == broken.figure).unwrap();
                let step = 0.01 * broken.bound.abs().max(0.01);
                figure.value = match broken.side {
                    Bound::AtLeast => broken.bound - step,
                    Bound::AtMost => broken.bound + step,
                };
                assert_ne!(claim.judge(&bad).verdict, ClaimVerdict::Holds, "{}: {}", claim.id, broken.figure);
            }
        }
    }

    #[test]
    fn each_claim_that_can_be_gone_is_gone_where_that_is_shown() {
        for claim in CLAIMS.iter().filter(|claim| !claim.gone.is_empty()) {
            let mut gone = meeting(claim, claim.gone, 0.01);
            fill(&mut gone, claim);
            assert_eq!(claim.judge(&gone).verdict, ClaimVerdict::NoLongerHolds, "{}: {gone:?}", claim.id);
        }
    }

    #[test]
    fn an_interval_across_a_bound_leaves_the_claim_open() {
        for claim in CLAIMS {
            let mut good = meeting(claim, claim.holds, 0.01);
            fill(&mut good, claim);
            let name = claim.holds[0].figure;
            let figure = good.figures.iter_mut().find(|figure| figure.name == name).unwrap();
            figure.ci95 = Some([f64::MIN, f64::MAX]);
            let judged = claim.judge(&good);
            assert_eq!(judged.verdict, ClaimVerdict::Differs, "{}", claim.id);
            assert!(judged.reason.starts_with("left open"), "{}: {}", claim.id, judged.reason);
        }
    }

    #[test]
    fn a_claim_without_its_figures_is_not_run_and_says_why() {
        for claim in CLAIMS {
            let mut experiment = Experiment::begin(claim.experiment(), &ReproduceOptions::default(), "", "");
            let judged = claim.judge(&experiment);
            assert_eq!(judged.verdict, ClaimVerdict::NotRun);
            assert!(judged.reason.contains("was not measured"), "{}", judged.reason);
            experiment.miss(&[claim.holds[0].figure], "no Ruby here");
            assert_eq!(claim.judge(&experiment).reason, "no Ruby here");
        }
    }
}
