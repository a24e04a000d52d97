//! The library's promises, tested from outside: a module for each theme, a process for each case
//! (`support`).

#![allow(unreachable_pub, reason = "a binary: modules are its only readers")]
#![allow(dead_code, reason = "support serves every theme")]
#![allow(
    clippy::incompatible_msrv,
    reason = "tests are built with the workspace's compiler, not the libraries' oldest"
)]
mod attributes;
mod descriptors;
mod environment;
mod facilities;
mod faults;
mod life;
mod mechanism;
mod orphans;
mod parity;
mod posixsubprocess;
mod signals;
mod support;
mod switch;
mod talk;
mod threads;
mod torture;

fn main() -> std::process::ExitCode {
    support::main(
        &[
            parity::CASES,
            posixsubprocess::CASES,
            descriptors::CASES,
            environment::CASES,
            facilities::CASES,
            mechanism::CASES,
            signals::CASES,
            switch::CASES,
            talk::CASES,
            threads::CASES,
            orphans::CASES,
            torture::CASES,
            faults::CASES,
            life::CASES,
            attributes::CASES,
        ],
        &[
            descriptors::WORKERS,
            environment::WORKERS,
            facilities::WORKERS,
            mechanism::WORKERS,
            signals::WORKERS,
            switch::WORKERS,
            talk::WORKERS,
            faults::WORKERS,
            orphans::WORKERS,
            attributes::WORKERS,
        ],
    )
}
