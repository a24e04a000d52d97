//! What /proc says about a process.

use std::fs;
use std::io::{self, Read as _};

use crate::maps::Mapping;

/// A process as it was when it was looked at.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) mappings: Vec<Mapping>,
}

/// /proc/PID/maps of a program with 65,530 mappings is about 6 MiB.
const LONGEST_MAPS: u64 = 16 << 20;

impl Process {
    pub(crate) fn look_at(pid: u32) -> Option<Self> {
        let maps = read(&format!("/proc/{pid}/maps"))?;
        let mappings: Vec<Mapping> = maps.split(|&byte| byte == b'\n').filter_map(Mapping::parse).collect();
        (!mappings.is_empty()).then_some(Self { pid, mappings })
    }

    /// The name of the executable's file, without the directory.
    pub(crate) fn executable(&self) -> Option<String> {
        let path = fs::read_link(format!("/proc/{}/exe", self.pid)).ok()?;
        Some(path.file_name()?.to_string_lossy().trim_end_matches(" (deleted)").to_owned())
    }

    /// The process's arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let line = read(&format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        line.split(|&byte| byte == 0).map(crate::memory::text).collect()
    }

    /// The system call that a thread is in.
    pub(crate) fn call(&self, tid: u32) -> Option<ThreadCall> {
        ThreadCall::of(self.pid, tid).ok()?
    }
}

/// The system call that a thread is in, as the kernel tells it of a thread that stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadCall {
    /// The call's number; -1 for a thread that waits elsewhere, such as for a page.
    pub number: i64,
    /// Its first two arguments.
    pub arguments: [u64; 2],
    /// The thread's stack pointer.
    pub stack_pointer: u64,
}

impl ThreadCall {
    /// The call of a thread of a process. `None` while the thread runs.
    ///
    /// # Errors
    /// The thread is gone, or may not be looked at.
    pub fn of(pid: u32, tid: u32) -> io::Result<Option<Self>> {
        let mut line = String::with_capacity(256);
        fs::File::open(format!("/proc/{pid}/task/{tid}/syscall"))?.read_to_string(&mut line)?;
        Ok(Self::parse(&line))
    }

    /// "running", or: number, six arguments, stack pointer, program counter. Of -1 there are no
    /// arguments.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |at: usize| u64::from_str_radix(words.get(at)?.strip_prefix("0x")?, 16).ok();
        let number = words.first()?.parse().ok()?;
        let arguments = if number < 0 { [0; 2] } else { [value(1)?, value(2)?] };
        Some(Self { number, arguments, stack_pointer: value(words.len().checked_sub(2)?)? })
    }
}

/// A process's or thread's number as it knows it itself: in a container it is another. `None` if it
/// is gone.
pub fn own_number(id: u32) -> Option<u32> {
    let status = read(&format!("/proc/{id}/status"))?;
    let status = String::from_utf8_lossy(&status);
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

fn read(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(LONGEST_MAPS).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_calls_line_has_arguments_and_a_stack_pointer() {
        let line = "61 0xffffffff 0x7ffd10 0x0 0x0 0x8 0x40 0x7ffcff 0x7f45\n";
        let call = ThreadCall { number: 61, arguments: [0xffff_ffff, 0x7f_fd10], stack_pointer: 0x7f_fcff };
        assert_eq!(ThreadCall::parse(line), Some(call));
        assert_eq!(ThreadCall::parse("running\n"), None);
        let elsewhere = ThreadCall { number: -1, arguments: [0; 2], stack_pointer: 0x7ffd };
        assert_eq!(ThreadCall::parse("-1 0x7ffd 0x7f\n"), Some(elsewhere));
    }

    #[test]
    fn a_thread_that_is_gone_is_told_from_one_that_runs() {
        assert!(ThreadCall::of(std::process::id(), 1 << 23).is_err());
        assert_eq!(own_number(1 << 23), None);
        assert!(own_number(std::process::id()).is_some());
    }
}
