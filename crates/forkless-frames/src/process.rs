//! What /proc says about a process.

use std::fs;
use std::io::Read as _;

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

    /// A thread's number as the process knows it: in a container it is another.
    pub(crate) fn own_number(&self, tid: u32) -> u32 {
        let status = read(&format!("/proc/{}/task/{tid}/status", self.pid)).unwrap_or_default();
        String::from_utf8_lossy(&status)
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))
            .and_then(|numbers| numbers.split_whitespace().next_back()?.parse().ok())
            .unwrap_or(tid)
    }

    /// The number of the system call that a thread is in.
    pub(crate) fn system_call(&self, tid: u32) -> Option<i64> {
        let line = read(&format!("/proc/{}/task/{tid}/syscall", self.pid))?;
        String::from_utf8_lossy(&line).split_whitespace().next()?.parse().ok()
    }

    /// The stack pointer of a thread in a system call.
    pub(crate) fn stack_pointer(&self, tid: u32) -> Option<u64> {
        let line = read(&format!("/proc/{}/task/{tid}/syscall", self.pid))?;
        // Number, six arguments, stack pointer, program counter; "running" else.
        let line = String::from_utf8_lossy(&line);
        let pointer = line.split_whitespace().rev().nth(1)?.strip_prefix("0x")?;
        u64::from_str_radix(pointer, 16).ok()
    }
}

fn read(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(LONGEST_MAPS).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
