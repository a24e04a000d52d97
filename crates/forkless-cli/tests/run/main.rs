//! `forkless run` from outside: every case runs plainly and under forkless, what an observer sees is compared, and the report says which
//! mechanism ran. The programs are C, under `fixtures/run`, compiled here.

mod asking;
mod bench;
mod cpython;
mod faults;
mod fork;
mod huge_pages;
mod launch;
mod memory;
mod outside;
mod random;
mod real_programs;
mod remedies;
mod sandbox;
mod servers;
mod signals;
mod support;
