//! Flags of `memory` and `cow`, the suites that measure from a parent with memory: kinds of pages,
//! and methods, among them the method of `forkless run`.

use forkless_bench::page_kinds::Pages;
use forkless_bench::spawn::Method;
use forkless_bench::under_run::{self, ServingProgram};

use super::common::{Common, from_library};
use super::spawn;
use crate::exit::{Filtered, Missing, Usage};

/// Pages and methods.
#[derive(Debug, clap::Args)]
pub(crate) struct Parent {
    /// Pages behind the parent's memory: base, thp, thp-64k, hugetlb-2m, hugetlb-1g, or all that
    /// this kernel offers.
    #[arg(long, value_name = "KIND", value_delimiter = ',', default_value = "base,thp")]
    pages: Vec<String>,
    /// The methods to measure: those that `forkless bench spawn --methods list` prints, and
    /// fork_exec_under_run, fork and exec in a process under `forkless run`.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    methods: Vec<String>,
}

impl Parent {
    /// Kinds by name; `all` stands for whatever the kernel offers.
    pub(crate) fn pages(&self) -> anyhow::Result<Vec<Pages>> {
        let mut kinds: Vec<Pages> = Vec::new();
        for name in &self.pages {
            let more =
                if name == "all" { Pages::offered() } else { vec![name.parse().map_err(from_library)?] };
            for kind in more {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
        }
        if kinds.is_empty() {
            return Err(Usage("--pages names no kind of pages".into()).into());
        }
        Ok(kinds)
    }

    /// The named methods, or the usual ones, and the program of the second process where the method
    /// of `forkless run` is among them.
    pub(crate) fn methods(
        &self,
        usual: &[Method],
        common: &Common,
    ) -> anyhow::Result<(Vec<Method>, Option<ServingProgram>)> {
        let (under_run, names): (Vec<String>, Vec<String>) =
            self.methods.iter().cloned().partition(|name| name == under_run::METHOD);
        if !under_run.is_empty() && !cfg!(target_os = "linux") {
            return Err(Missing(format!("{}: forkless run is for Linux", under_run::METHOD)).into());
        }
        let wanted = cfg!(target_os = "linux")
            && (self.methods.is_empty() || !under_run.is_empty())
            && common.selects(under_run::METHOD);
        let second = if wanted {
            // Not /proc/self/exe: it is resolved by another process of this program.
            let program = std::env::current_exe().map_err(|error| Usage(format!("this program: {error}")))?;
            Some(ServingProgram(vec![program.into(), "bench".into(), "forker".into()]))
        } else {
            None
        };
        let only_run = names.is_empty() && !under_run.is_empty();
        let methods = if only_run { Vec::new() } else { spawn::chosen(&names, usual, common)? };
        if methods.is_empty() && second.is_none() {
            let list = "`forkless bench spawn --methods list`";
            let all = format!("{list} prints their names, and there is {}", under_run::METHOD);
            return Err(Filtered(format!("--filter leaves no method; {all}")).into());
        }
        Ok((methods, second))
    }
}
