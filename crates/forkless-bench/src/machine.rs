//! The record of the machine a result was measured on: enough to tell two machines apart and to judge whether this
//! one was quiet, nothing that identifies its user. A field the system does not tell is `None`, never a guess.

#![expect(unsafe_code, reason = "sysconf, uname and gnu_get_libc_version are C functions")]

#[cfg(target_env = "gnu")]
use std::ffi::CStr;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a result says about where and in which state it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Sixteen hexadecimal digits that change with processor, processor count, memory size, kernel or C library.
    pub fingerprint: String,
    /// `uname -s`.
    pub os: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
    /// Processor model as `/proc/cpuinfo` names it.
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
    ///
    /// ```
    /// let machine = forkless_bench::machine::Machine::observe();
    /// assert!(machine.cpus >= 1);
    /// assert_eq!(machine.fingerprint.len(), 16);
    /// ```
    #[must_use]
    pub fn observe() -> Machine {
        let uname = uname();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok();
        let mut machine = Machine {
            fingerprint: String::new(),
            os: uname[0].clone(),
            kernel: uname[1].clone(),
            arch: uname[2].clone(),
            cpu: cpuinfo.as_deref().and_then(cpu_model),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: cpuinfo.as_deref().and_then(has_hypervisor),
            emulator: emulator(cpuinfo.as_deref().unwrap_or_default()),
            memory_total: memory_total(),
            page_size: page_size(),
            libc: libc_version(),
            shell: fs::canonicalize("/bin/sh").ok().map(|path| path.display().to_string()),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            thp: line("/sys/kernel/mm/transparent_hugepage/enabled").as_deref().and_then(bracketed),
            load: line("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            boot_id: line("/proc/sys/kernel/random/boot_id"),
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
        // FNV-1a: the fingerprint names files and must stay the same across versions, which std's hasher does not promise.
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

/// The first line of a file, without its end; `None` where it cannot be read or is empty.
fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let first = text.lines().next()?.trim();
    (!first.is_empty()).then(|| first.to_owned())
}

/// The chosen word of a sysfs selection such as `always [madvise] never`.
fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

/// `model name` on x86; arm64 has only numbers, of which implementer and part are kept.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    field("model name")
        .or_else(|| Some(format!("implementer {} part {}", field("CPU implementer")?, field("CPU part")?)))
}

/// The `hypervisor` flag exists only on x86; elsewhere nothing can be said.
fn has_hypervisor(cpuinfo: &str) -> Option<bool> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// qemu without hardware virtualisation: a processor that says so, or one of another architecture than this program's.
fn emulator(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| {
        cpuinfo.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)
    };
    let is = |name: &str, value: &str| field(name).is_some_and(|(_, found)| found.trim() == value);
    // Implementer 0 is reserved for software (Arm ARM, MIDR_EL1); qemu's `-cpu max` uses it.
    if has_tcg_signature() || is("CPU implementer", "0x00") {
        return Some("qemu TCG".to_owned());
    }
    // qemu-user passes the host's file on.
    let foreign = if cfg!(target_arch = "x86_64") { "CPU implementer" } else { "vendor_id" };
    field(foreign).is_some().then(|| "qemu-user".to_owned())
}

/// The hypervisor's name in CPUID leaf 0x4000_0000.
#[cfg(target_arch = "x86_64")]
fn has_tcg_signature() -> bool {
    use std::arch::x86_64::__cpuid;
    // Bit 31 of ecx of leaf 1 says that there is a hypervisor to ask.
    if __cpuid(1).ecx & 1 << 31 == 0 {
        return false;
    }
    let leaf = __cpuid(0x4000_0000);
    [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat() == b"TCGTCGTCGTCG"
}

#[cfg(not(target_arch = "x86_64"))]
fn has_tcg_signature() -> bool {
    false
}

fn memory_total() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
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
    fn the_chosen_word_of_a_sysfs_selection_is_the_bracketed_one() {
        assert_eq!(bracketed("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(bracketed("[always]").as_deref(), Some("always"));
        assert_eq!(bracketed("always madvise"), None);
    }

    #[test]
    fn the_model_is_read_from_x86_and_arm_cpuinfo() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: A B\n").as_deref(), Some("A B"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(cpu_model(""), None);
    }

    #[test]
    fn a_processor_of_software_or_of_another_kind_is_an_emulator() {
        let foreign =
            if cfg!(target_arch = "x86_64") { "CPU implementer\t: 0x41\n" } else { "vendor_id\t: X\n" };
        assert_eq!(emulator(foreign).as_deref(), Some("qemu-user"));
        assert_eq!(emulator("CPU implementer\t: 0x00\n").as_deref(), Some("qemu TCG"));
    }

    #[test]
    fn the_fingerprint_ignores_the_state_and_notices_the_kernel() {
        let machine = Machine::observe();
        let busy = Machine { load: Some(99.0), thp: None, ..machine.clone() };
        assert_eq!(busy.compute_fingerprint(), machine.fingerprint);
        let other = Machine { kernel: "other".into(), ..machine.clone() };
        assert_ne!(other.compute_fingerprint(), machine.fingerprint);
    }
}
