//! The description of the machine a result was measured on: enough to tell two machines apart and
//! to judge whether this one was quiet, nothing that identifies its user. A field the system does
//! not tell is `None`, never a guess.

#![expect(unsafe_code, reason = "sysconf, uname, geteuid and gnu_get_libc_version are C functions")]

#[cfg(target_env = "gnu")]
use std::ffi::CStr;
use std::fs;

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
#[path = "machine/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "machine/sysctl.rs"]
mod system;

/// What every system tells in a way of its own.
#[derive(Debug, Default)]
struct Told {
    cpu: Option<String>,
    virtual_machine: Option<bool>,
    emulator: Option<String>,
    memory_total: Option<u64>,
    governor: Option<String>,
    clocksource: Option<String>,
    thp: Option<String>,
    load: Option<f64>,
    boot_id: Option<String>,
}

/// What a result says about where and in which state it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Sixteen hexadecimal digits that change with processor, processor count, memory size, kernel
    /// or C library.
    pub fingerprint: String,
    /// `uname -s`.
    pub os: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
    /// Processor model as the system names it (`/proc/cpuinfo` on Linux).
    pub cpu: Option<String>,
    /// Processors this process may run on.
    pub cpus: usize,
    /// Whether the processor reports a hypervisor.
    pub virtual_machine: Option<bool>,
    /// The emulator this runs in, where it can be told; its clock is no measure of anything.
    #[serde(default)]
    pub emulator: Option<String>,
    /// Total memory in bytes.
    pub memory_total: Option<u64>,
    /// Base page size in bytes.
    pub page_size: u64,
    /// C library and version, e.g. `glibc 2.36`.
    pub libc: String,
    /// What `/bin/sh` resolves to.
    pub shell: Option<String>,
    /// `cpufreq` governor of the first processor.
    pub governor: Option<String>,
    /// Clock source of the kernel, e.g. `tsc` or `kvm-clock`.
    pub clocksource: Option<String>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub thp: Option<String>,
    /// Load average over one minute at the start.
    pub load: Option<f64>,
    /// Identifier of this boot: results of two boots differ by more than two runs of one.
    pub boot_id: Option<String>,
}

impl Machine {
    /// Looks at the machine now.
    #[must_use]
    pub fn observe() -> Machine {
        let uname = uname();
        let told = system::told();
        let mut machine = Machine {
            fingerprint: String::new(),
            os: uname[0].clone(),
            kernel: uname[1].clone(),
            arch: uname[2].clone(),
            cpu: told.cpu,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: told.virtual_machine,
            emulator: told.emulator,
            memory_total: told.memory_total,
            page_size: page_size(),
            libc: libc_version(),
            shell: fs::canonicalize("/bin/sh").ok().map(|path| path.display().to_string()),
            governor: told.governor,
            clocksource: told.clocksource,
            thp: told.thp,
            load: told.load,
            boot_id: told.boot_id,
        };
        machine.fingerprint = machine.compute_fingerprint();
        machine
    }

    /// Every field as a name and a printable value, in the order of the structure.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        fn or_unknown<T: ToString>(value: Option<T>) -> String {
            value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
        }
        vec![
            ("fingerprint", self.fingerprint.clone()),
            ("os", format!("{} {}", self.os, self.kernel)),
            ("arch", self.arch.clone()),
            ("cpu", or_unknown(self.cpu.clone())),
            ("cpus", self.cpus.to_string()),
            ("virtual machine", or_unknown(self.virtual_machine)),
            ("emulator", self.emulator.clone().unwrap_or_else(|| "none seen".to_owned())),
            ("memory", or_unknown(self.memory_total.map(|bytes| format!("{} MiB", bytes >> 20)))),
            ("page size", self.page_size.to_string()),
            ("libc", self.libc.clone()),
            ("shell", or_unknown(self.shell.clone())),
            ("governor", or_unknown(self.governor.clone())),
            ("clocksource", or_unknown(self.clocksource.clone())),
            ("thp", or_unknown(self.thp.clone())),
            ("load", or_unknown(self.load)),
            ("boot", or_unknown(self.boot_id.clone())),
        ]
    }

    fn compute_fingerprint(&self) -> String {
        // FNV-1a: the fingerprint names files and must stay the same across versions, which std's
        // hasher does not promise.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let cpus = self.cpus.to_string();
        let memory = self.memory_total.unwrap_or(0).to_string();
        let cpu = self.cpu.as_deref().unwrap_or("");
        for part in [&self.os, &self.kernel, &self.arch, cpu, &cpus, &memory, &self.libc] {
            for byte in part.bytes().chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        format!("{hash:016x}")
    }
}

/// Whether this process's effective user is root.
#[cfg(target_os = "linux")]
pub fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// A field of this process's status (proc_pid_status(5)). `None` where the system does not tell.
#[must_use]
pub fn own_status(field: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// The base page size in bytes.
#[must_use]
pub fn page_size() -> u64 {
    // SAFETY: sysconf reads a constant of the system and has no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// System, release and machine as `uname(2)` gives them; empty strings where it fails.
fn uname() -> [String; 3] {
    // SAFETY: utsname is an array of bytes; all zero is a valid value of it.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `names` is writable memory of the size the call fills.
    if unsafe { libc::uname(&raw mut names) } != 0 {
        return [const { String::new() }; 3];
    }
    [&names.sysname[..], &names.release[..], &names.machine[..]].map(|field| {
        let bytes: Vec<u8> = field.iter().flat_map(|c| c.to_ne_bytes()).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(target_env = "gnu")]
fn libc_version() -> String {
    // SAFETY: the function takes nothing and returns a static string of the library.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: it is NUL-terminated and lives as long as the program.
    let version = unsafe { CStr::from_ptr(version) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(target_env = "musl")]
fn libc_version() -> String {
    "musl".to_owned()
}

#[cfg(not(any(target_env = "gnu", target_env = "musl")))]
fn libc_version() -> String {
    std::env::consts::OS.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_ignores_the_state_and_notices_the_kernel() {
        let machine = Machine::observe();
        let busy = Machine { load: Some(99.0), thp: None, ..machine.clone() };
        assert_eq!(busy.compute_fingerprint(), machine.fingerprint);
        let other = Machine { kernel: "other".into(), ..machine.clone() };
        assert_ne!(other.compute_fingerprint(), machine.fingerprint);
    }
}
