//! `forkless run` from outside: each case runs plainly and under forkless. The tests compare what
//! an observer sees, and the report says which mechanism ran. The programs are in C, in
//! `fixtures/run`, and are compiled here.

mod asking;
mod bench;
mod beside;
mod close_loops;
mod cpython;
mod exec_lines;
mod faults;
mod fork;
mod huge_pages;
mod launch;
mod memory;
mod merging;
mod outside;
mod own_lines;
mod policy;
mod preloaded;
mod random;
mod real_programs;
mod remedies;
mod sandbox;
mod servers;
mod shell_ends;
mod shell_lines;
mod signals;
mod soak;
mod support;
mod threads;
mod unwinding;
