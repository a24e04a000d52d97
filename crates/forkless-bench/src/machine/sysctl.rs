//! The machine as FreeBSD and macOS describe it by sysctl(3) and getloadavg(3). Properties that
//! have no name there stay unknown.

use super::Told;
use crate::sysctl;

pub(super) fn told() -> Told {
    // macOS's name first; the other is FreeBSD's, and the model of the whole computer on macOS.
    let cpu = sysctl::text(c"machdep.cpu.brand_string").or_else(|| sysctl::text(c"hw.model"));
    // FreeBSD names the hypervisor, or "none"; macOS has a flag.
    let guest = sysctl::text(c"kern.vm_guest").map(|name| name != "none");
    Told {
        cpu,
        virtual_machine: guest.or_else(|| sysctl::number(c"kern.hv_vmm_present").map(|flag| flag != 0)),
        memory_total: sysctl::number(c"hw.memsize").or_else(|| sysctl::number(c"hw.physmem")),
        clocksource: sysctl::text(c"kern.timecounter.hardware"),
        load: load(),
        boot_id: sysctl::text(c"kern.bootsessionuuid").or_else(|| sysctl::text(c"kern.boot_id")),
        ..Told::default()
    }
}

fn load() -> Option<f64> {
    let mut averages = [0.0_f64; 1];
    // SAFETY: room for the one average asked for.
    (unsafe { libc::getloadavg(averages.as_mut_ptr(), 1) } == 1).then_some(averages[0])
}
