//! Loading and attaching the BPF programs one by one, and what the kernel's refusals mean. Which are needed when, `watch`
//! knows.

use aya::programs::{BtfTracePoint, FEntry, FExit, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};

use crate::error::WatchError;

/// The kernel side, built from `bpf/` (see its README). Aligned, because the ELF parser reads it in place.
pub(crate) static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/built/watch.bpf.o");

pub(crate) fn missing_map(name: &str) -> WatchError {
    WatchError::Unsupported { why: format!("the BPF object has no map {name}") }
}

pub(crate) fn map_error(map: &'static str) -> impl Fn(aya::maps::MapError) -> WatchError {
    move |source| WatchError::Map { map, source }
}

/// The whole chain of causes: aya's outermost message alone says only "the BPF_PROG_LOAD syscall failed".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    // Without a log the loader still announces one.
    let text = text.trim_end().trim_end_matches("Verifier output:").trim_end_matches([' ', '.']).to_owned();
    // A verifier's log has thousands of lines; its last ones hold the reason.
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > 6 {
        format!("{} ... {}", lines[0], lines[lines.len() - 4..].join(" | "))
    } else {
        lines.join(" | ")
    }
}

pub(crate) fn load_error(error: EbpfError) -> WatchError {
    let why = chain(&error);
    if why.contains("not permitted") || why.contains("Permission denied") {
        WatchError::NotPermitted { why: format!("loading BPF maps is refused ({why})") }
    } else {
        WatchError::Unsupported { why }
    }
}

fn program_error(program: &'static str) -> impl Fn(ProgramError) -> WatchError {
    move |error| {
        let why = chain(&error);
        if why.contains("not permitted") || why.contains("Permission denied (os error 13)") {
            WatchError::NotPermitted { why: format!("the kernel refuses BPF program {program} ({why})") }
        } else if ["unknown func bpf_probe_read", "cannot use helper bpf_probe_read"]
            .iter()
            .any(|says| why.contains(says))
        {
            // bpf_tracing_func_proto() has none of them under lockdown (kernel/trace/bpf_trace.c), which the verifier says in one way on Linux 6.1 and
            // in the other later; the loader has then replaced
            // bpf_probe_read_kernel by the older helper.
            WatchError::LockedDown
        } else {
            WatchError::Program { program, why }
        }
    }
}

fn no_program(name: &str) -> WatchError {
    WatchError::Unsupported { why: format!("the BPF object has no program {name}") }
}

fn tracepoint_program<'b>(
    bpf: &'b mut Ebpf,
    name: &'static str,
) -> Result<&'b mut BtfTracePoint, WatchError> {
    bpf.program_mut(name).ok_or_else(|| no_program(name))?.try_into().map_err(program_error(name))
}

pub(crate) fn load_tracepoint(
    bpf: &mut Ebpf,
    btf: &Btf,
    name: &'static str,
    tracepoint: &str,
) -> Result<(), WatchError> {
    tracepoint_program(bpf, name)?.load(tracepoint, btf).map_err(program_error(name))
}

pub(crate) fn attach(bpf: &mut Ebpf, name: &'static str) -> Result<(), WatchError> {
    tracepoint_program(bpf, name)?.attach().map(drop).map_err(program_error(name))
}

pub(crate) fn attach_tracepoint(
    bpf: &mut Ebpf,
    btf: &Btf,
    name: &'static str,
    tracepoint: &str,
) -> Result<(), WatchError> {
    load_tracepoint(bpf, btf, name, tracepoint)?;
    attach(bpf, name)
}

/// The kernel side counts in the initial pid namespace's numbers. From within another, ours and the target's are other
/// numbers there, and nothing would ever match.
pub(crate) fn in_first_pid_namespace() -> Result<(), WatchError> {
    /// PROC_PID_INIT_INO, include/linux/proc_ns.h.
    const INITIAL: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(link) if link.as_os_str() != INITIAL => Err(WatchError::Unsupported {
            why:
                "this is not the initial pid namespace (a container?): run it on the host, or with --pid=host"
                    .to_owned(),
        }),
        _ => Ok(()),
    }
}

/// By uname(2); an unreadable release counts as old.
pub(crate) fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

pub(crate) fn attach_fentry(bpf: &mut Ebpf, btf: &Btf) -> Result<(), WatchError> {
    let name = "on_clone_enter";
    let program: &mut FEntry =
        bpf.program_mut(name).ok_or_else(|| no_program(name))?.try_into().map_err(program_error(name))?;
    program.load("kernel_clone", btf).map_err(program_error(name))?;
    program.attach().map_err(program_error(name))?;
    Ok(())
}

pub(crate) fn attach_fexit(bpf: &mut Ebpf, btf: &Btf) -> Result<(), WatchError> {
    let name = "on_clone_exit";
    let program: &mut FExit =
        bpf.program_mut(name).ok_or_else(|| no_program(name))?.try_into().map_err(program_error(name))?;
    program.load("kernel_clone", btf).map_err(program_error(name))?;
    program.attach().map_err(program_error(name))?;
    Ok(())
}

/// The object with maps as small as they can be, for a try.
fn load_smallest(btf: &Btf) -> Result<Ebpf, WatchError> {
    EbpfLoader::new()
        .btf(Some(btf))
        .map_max_entries("calls", 1)
        .map_max_entries("live", 1)
        .map_max_entries("watched", 1)
        .map_max_entries("ring", 4096)
        .load(OBJECT)
        .map_err(load_error)
}

/// Loads and attaches the smallest fentry program there is here, and takes it out again.
pub(crate) fn try_fentry(btf: &Btf) -> Result<(), WatchError> {
    in_first_pid_namespace()?;
    let mut bpf = load_smallest(btf)?;
    attach_fentry(&mut bpf, btf)
}

/// Loads and attaches one tracepoint program, and takes it out again.
pub(crate) fn try_tracepoint(btf: &Btf) -> Result<(), WatchError> {
    in_first_pid_namespace()?;
    let mut bpf = load_smallest(btf)?;
    attach_tracepoint(&mut bpf, btf, "on_exec", "sched_process_exec")
}
