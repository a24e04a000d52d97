//! Loads and attaches the BPF programs one by one, and turns the kernel's refusals into errors.
//! `watch` decides which programs are needed.

use std::fs;

use aya::programs::{BtfTracePoint, FEntry, FExit, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};

use crate::error::WatchError;

/// The kernel side, built from `bpf/` (see its README). Aligned, because the ELF parser reads it in
/// place.
#[cfg(target_arch = "x86_64")]
pub(crate) static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/watch-x86_64.bpf.o");
#[cfg(target_arch = "aarch64")]
pub(crate) static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/watch-aarch64.bpf.o");

pub(crate) fn missing_map(name: &str) -> WatchError {
    WatchError::Unsupported { why: format!("the BPF object has no map {name}") }
}

pub(crate) fn map_error(map: &'static str) -> impl Fn(aya::maps::MapError) -> WatchError {
    move |source| WatchError::Map { map, source }
}

/// The whole chain of causes. aya's outermost message says only "the BPF_PROG_LOAD syscall failed".
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
    // The loader announces a log even if there is none.
    let text = text.trim_end().trim_end_matches("Verifier output:").trim_end_matches([' ', '.']).to_owned();
    // A verifier's log has thousands of lines. The last ones hold the reason.
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

/// The oldest kernel that can run the programs. bpf_task_pt_regs() came last, after atomics with a
/// result (5.12).
const NEEDED: (u32, u32) = (5, 15);

/// The line of a verifier's log that holds the reason.
fn last_of(why: &str) -> &str {
    let said = why.rsplit("Verifier output:").next().unwrap_or(why);
    let mut lines = said.split(" | ").map(str::trim);
    lines.find(|line| LACKING.iter().any(|says| line.contains(says))).unwrap_or(said.trim())
}

/// Verifiers' words for a facility that they do not know.
const LACKING: [&str; 4] =
    ["invalid func unknown#", "unknown func bpf_", "uses reserved fields", "unknown opcode"];

fn program_error(program: &'static str) -> impl Fn(ProgramError) -> WatchError {
    move |error| {
        let why = chain(&error);
        if why.contains("not permitted") || why.contains("Permission denied (os error 13)") {
            WatchError::NotPermitted { why: format!("the kernel refuses BPF program {program} ({why})") }
        } else if ["unknown func bpf_probe_read", "cannot use helper bpf_probe_read"]
            .iter()
            .any(|says| why.contains(says))
        {
            // Under lockdown bpf_tracing_func_proto() (kernel/trace/bpf_trace.c) offers none of
            // these helpers. The first text is that of Linux 6.1, the second that of later ones. By
            // then the loader has replaced bpf_probe_read_kernel with the older helper.
            WatchError::LockedDown
        } else if !kernel_is_at_least(NEEDED.0, NEEDED.1) && LACKING.iter().any(|says| why.contains(says)) {
            WatchError::Unsupported {
                why: format!(
                    "they need Linux {}.{} (program {program} is refused: {})",
                    NEEDED.0,
                    NEEDED.1,
                    last_of(&why)
                ),
            }
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

fn load_tracepoint(
    bpf: &mut Ebpf,
    btf: &Btf,
    (name, tracepoint): (&'static str, &str),
) -> Result<(), WatchError> {
    tracepoint_program(bpf, name)?.load(tracepoint, btf).map_err(program_error(name))
}

pub(crate) fn attach(bpf: &mut Ebpf, name: &'static str) -> Result<(), WatchError> {
    tracepoint_program(bpf, name)?.attach().map(drop).map_err(program_error(name))
}

/// `enum timing` of `bpf/watch.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Timing {
    Copy = 0,
    SystemCalls = 1,
    Fentry = 2,
}

impl Timing {
    /// The timing for kernels without fentry.
    pub(crate) fn without_fentry(exact: bool) -> Self {
        // Before Linux 6.2 a new memory descriptor allocates nothing per CPU, so its copy cannot be
        // seen.
        if exact || !kernel_is_at_least(6, 2) { Self::SystemCalls } else { Self::Copy }
    }
}

/// The programs that count write-protect faults. They are attached when a process forks.
pub(crate) const FAULTS: [(&str, &str); 2] =
    [("on_fault", "page_fault_user"), ("on_page_alloc", "mm_page_alloc")];

/// The programs that see threads wait behind a fork. They are attached with those of [`FAULTS`].
/// Linux 5.19 brought their tracepoints.
pub(crate) const STALLS: [(&str, &str); 2] =
    [("on_contention_end", "contention_end"), ("on_contention", "contention_begin")];

/// Loads the programs of [`STALLS`]; `false` where the kernel cannot have them.
pub(crate) fn load_stalls(bpf: &mut Ebpf, btf: &Btf) -> bool {
    STALLS.iter().all(|program| load_tracepoint(bpf, btf, *program).is_ok())
}

/// Whether the object has the programs of [`FAULTS`]: on aarch64 no tracepoint reports a
/// write-protect fault.
pub(crate) fn sees_faults(bpf: &Ebpf) -> bool {
    FAULTS.iter().all(|(name, _)| bpf.program(name).is_some())
}

/// The tracepoint programs of a watch, in the order of their attachment. Programs that end records
/// come before programs that begin them: otherwise a creation could stay half recorded.
fn tracepoints(timing: Timing, system_calls: bool) -> Vec<(&'static str, &'static str)> {
    let mut programs = vec![("on_exit", "sched_process_exit"), ("on_exec", "sched_process_exec")];
    if system_calls || timing == Timing::SystemCalls {
        programs.push(("on_sys_exit", "sys_exit"));
    }
    if system_calls {
        programs.extend([("on_switch", "sched_switch"), ("on_bio_queue", "block_bio_queue")]);
    }
    programs.push(("on_newtask", "task_newtask"));
    match timing {
        Timing::Fentry => {}
        Timing::SystemCalls => programs.push(("on_sys_enter", "sys_enter")),
        Timing::Copy => programs.push(("on_percpu_alloc", "percpu_alloc_percpu")),
    }
    programs
}

/// Has the kernel verify every program of a watch, and attaches none.
fn load_tracepoints(bpf: &mut Ebpf, btf: &Btf, timing: Timing, system_calls: bool) -> Result<(), WatchError> {
    for program in tracepoints(timing, system_calls) {
        load_tracepoint(bpf, btf, program)?;
    }
    if sees_faults(bpf) {
        for program in FAULTS {
            load_tracepoint(bpf, btf, program)?;
        }
    }
    Ok(())
}

/// Loads all of a watch's programs, and attaches all but those of [`FAULTS`].
pub(crate) fn start(bpf: &mut Ebpf, btf: &Btf, timing: Timing, system_calls: bool) -> Result<(), WatchError> {
    load_tracepoints(bpf, btf, timing, system_calls)?;
    if timing == Timing::Fentry {
        attach_fexit(bpf, btf)?;
    }
    for (name, _) in tracepoints(timing, system_calls) {
        attach(bpf, name)?;
    }
    if timing == Timing::Fentry {
        attach_fentry(bpf, btf)?;
    }
    Ok(())
}

/// Reads the kernel's types. An allocation that fails in the reader would end this process by
/// SIGABRT, as under `ulimit -v`; so room for all of them is tried first.
pub(crate) fn kernel_types() -> Result<Btf, WatchError> {
    const FILE: &str = "/sys/kernel/btf/vmlinux";
    /// Room for each byte of the file: this reading, and one that aya's loader makes for itself.
    /// Linux 6.18's file of 5.3 MiB took 39 MiB.
    const EACH: u64 = 9;
    let size = fs::metadata(FILE).map_or(0, |file| file.len());
    let room = usize::try_from(size * EACH).unwrap_or(usize::MAX);
    Vec::<u8>::new().try_reserve_exact(room).map_err(|_| WatchError::NoRoom { mib: room >> 20 })?;
    Btf::from_sys_fs()
        .map_err(|error| WatchError::Unsupported { why: format!("no type information in {FILE} ({error})") })
}

/// The kernel side sees pids of the initial namespace. In another namespace our pids differ from
/// these, and no process would match.
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
fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

fn attach_fentry(bpf: &mut Ebpf, btf: &Btf) -> Result<(), WatchError> {
    let name = "on_clone_enter";
    let program: &mut FEntry =
        bpf.program_mut(name).ok_or_else(|| no_program(name))?.try_into().map_err(program_error(name))?;
    program.load("kernel_clone", btf).map_err(program_error(name))?;
    program.attach().map_err(program_error(name))?;
    Ok(())
}

fn attach_fexit(bpf: &mut Ebpf, btf: &Btf) -> Result<(), WatchError> {
    let name = "on_clone_exit";
    let program: &mut FExit =
        bpf.program_mut(name).ok_or_else(|| no_program(name))?.try_into().map_err(program_error(name))?;
    program.load("kernel_clone", btf).map_err(program_error(name))?;
    program.attach().map_err(program_error(name))?;
    Ok(())
}

/// Loads the object with the smallest possible maps, for a try.
fn load_smallest(btf: &Btf, sees_parents: bool) -> Result<Ebpf, WatchError> {
    EbpfLoader::new()
        .btf(Some(btf))
        .override_global("sees_parents", &u32::from(sees_parents), true)
        .map_max_entries("calls", 1)
        .map_max_entries("live", 1)
        .map_max_entries("watched", 1)
        .map_max_entries("ring", 4096)
        .load(OBJECT)
        .map_err(load_error)
}

/// Loads, attaches and unloads the smallest fentry program.
pub(crate) fn try_fentry(btf: &Btf) -> Result<(), WatchError> {
    in_first_pid_namespace()?;
    let mut bpf = load_smallest(btf, true)?;
    attach_fentry(&mut bpf, btf)
}

/// Loads every tracepoint program that a watch may need, attaches one, and unloads all.
pub(crate) fn try_tracepoint(btf: &Btf) -> Result<(), WatchError> {
    in_first_pid_namespace()?;
    match try_tracepoints(btf, true) {
        Err(WatchError::Program { .. }) => try_tracepoints(btf, false),
        tried => tried,
    }
}

fn try_tracepoints(btf: &Btf, sees_parents: bool) -> Result<(), WatchError> {
    let mut bpf = load_smallest(btf, sees_parents)?;
    let timing = Timing::without_fentry(false);
    load_tracepoints(&mut bpf, btf, timing, true)?;
    if timing != Timing::SystemCalls {
        load_tracepoint(&mut bpf, btf, ("on_sys_enter", "sys_enter"))?;
    }
    attach(&mut bpf, "on_exec")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of Linux 5.10.
    #[test]
    fn of_a_refusal_the_reason_is_shown() {
        let said = "the BPF_PROG_LOAD syscall returned Invalid argument (os error 22). Verifier output: BPF_STX uses reserved fields";
        assert_eq!(last_of(said), "BPF_STX uses reserved fields");
        let long = "Invalid argument (os error 22). Verifier output: 0: (bf) r6 = r1 ... | invalid func unknown#175 | processed 9";
        assert_eq!(last_of(long), "invalid func unknown#175");
        assert_eq!(last_of("something else"), "something else");
    }
}
