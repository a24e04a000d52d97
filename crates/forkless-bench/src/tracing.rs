//! Whether this process is traced, by strace or a debugger, and what keeps it from tracing its own
//! children. For messages and notes: what measures asks the kernel itself.

use std::fs;

use crate::error::Error;
use crate::machine::own_status;

/// Who traces this process: `strace (process 12)`. `None` where nobody does, or the system does
/// not tell.
#[must_use]
pub fn tracer() -> Option<String> {
    let pid = own_status("TracerPid").filter(|pid| pid != "0")?;
    let name = fs::read(format!("/proc/{pid}/comm")).ok();
    let name = name.map(|name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned());
    Some(format!("{} (process {pid})", name.as_deref().unwrap_or("another process")))
}

/// A sentence about it, for a result.
#[must_use]
pub fn note() -> Option<String> {
    let tracer = tracer()?;
    Some(format!("noisy: {tracer} traces this process, so that system calls and starts stop for it"))
}

/// What here keeps a process from tracing its child, as far as the system tells, and what to do.
#[must_use]
pub fn why_refused() -> Option<String> {
    if let Some(tracer) = tracer() {
        return Some(format!("{tracer} traces this process already: run it without"));
    }
    // The kernel's Documentation/admin-guide/LSM/Yama.rst: 2 and 3 are for PTRACE_TRACEME, too.
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match yama.trim() {
        "2" => return Some("kernel.yama.ptrace_scope is 2: run as root".to_owned()),
        "3" => return Some("kernel.yama.ptrace_scope is 3: nobody may trace until the next boot".to_owned()),
        _ => {}
    }
    let is_filtered = own_status("Seccomp").is_some_and(|mode| mode == "2");
    is_filtered.then(|| "a seccomp filter is in force, as in a container: permit ptrace there".to_owned())
}

/// The error of a trace that is refused, with the system's answer where there is one.
#[must_use]
pub fn refused(answer: &str) -> Error {
    let why = why_refused().map_or_else(String::new, |why| format!(" ({why})"));
    Error::Missing(format!("tracing is refused here{answer}{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_nobody_traces_is_not_said_to_be_traced() {
        let pid = own_status("TracerPid").unwrap();
        assert_eq!(tracer().is_none(), pid == "0");
        assert_eq!(note().is_some(), tracer().is_some());
        assert_eq!(own_status("TracerPi"), None, "a field by its whole name");
    }
}
