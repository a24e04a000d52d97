//! The bounds of a suite's figures, for readers: a line for every reason, with the methods it holds
//! for.

use super::grid::{param, varying_params};
use crate::results::{Row, Suite};

/// `REASON: METHODS` for every reason among the rows; a method that has several is named with the
/// parameter that decides.
#[must_use]
pub(crate) fn limits(suite: &Suite) -> Vec<String> {
    let mut all: Vec<(&str, Vec<String>)> = Vec::new();
    for row in &suite.rows {
        let Some(limit) = row.limit.as_deref() else { continue };
        let name = name(row, suite);
        match all.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => all.push((limit, vec![name])),
        }
    }
    all.into_iter().map(|(limit, names)| format!("{limit}: {}", names.join(", "))).collect()
}

fn name(row: &Row, suite: &Suite) -> String {
    let same = || suite.rows.iter().filter(|other| other.method == row.method);
    if same().all(|other| other.limit == row.limit) {
        return row.method.clone();
    }
    let decides = |name: &&str| {
        same().all(|one| {
            same().all(|other| one.params.get(*name) != other.params.get(*name) || one.limit == other.limit)
        })
    };
    match varying_params(suite).into_iter().find(|name| decides(name)) {
        Some(deciding) => {
            let value = row.params.get(deciding).map_or_else(String::new, |value| param(deciding, value));
            format!("{} ({deciding} {value})", row.method)
        }
        None => row.method.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Metric, Param, Params, Series, rows};
    use crate::stats::bootstrap::Samples;

    #[test]
    fn a_method_with_several_limits_is_named_with_the_parameter_that_decides() {
        let metric = Metric { name: "wall", unit: "us", estimate: false };
        let one = |method: &str, pages: &str, used: u64, limit: &str| Series {
            method: method.into(),
            params: Params::from([
                ("pages".to_owned(), Param::Word(pages.into())),
                ("used".to_owned(), Param::Number(used)),
            ]),
            metric,
            limit: Some(limit.into()),
            samples: Samples::one_a_round(vec![1.0, 2.0, 3.0]),
        };
        let mut all = Vec::new();
        for used in [1 << 20, 2 << 20] {
            all.push(one("vfork", "base", used, "clone"));
            all.push(one("vfork", "thp", used, "clone"));
            all.push(one("fork", "base", used, "copies"));
            all.push(one("fork", "thp", used, "tables"));
        }
        let suite = Suite { rows: rows(all, None, 1), ..Suite::default() };
        assert_eq!(limits(&suite), ["clone: vfork", "copies: fork (pages base)", "tables: fork (pages thp)"]);
    }
}
