//! The machine as Linux describes it in files below `/proc` and `/sys`.

use std::fs;

use crate::settings::THP;
use std::path::Path;

use super::Told;

pub(super) fn told() -> Told {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok();
    Told {
        cpu: cpuinfo.as_deref().and_then(cpu_model),
        virtual_machine: cpuinfo.as_deref().and_then(has_hypervisor),
        emulator: emulator(cpuinfo.as_deref().unwrap_or_default()),
        memory_total: memory_total(),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        thp: line(format!("{THP}/enabled")).as_deref().and_then(bracketed),
        load: line("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        boot_id: line("/proc/sys/kernel/random/boot_id"),
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

/// qemu without hardware virtualisation: a processor that says so, or one of another architecture
/// than this program's.
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
}
