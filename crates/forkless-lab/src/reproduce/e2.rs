//! E2: 65,536 of each call, the parts against the wholes. Tracing shows the system calls that
//! libc's functions really make, and which process waits for which.

#![expect(unsafe_code, reason = "the workloads are system calls")]

use std::arch::naked_asm;
use std::ffi::c_int;
use std::fs::File;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::Arc;

use super::plot::{Mark, Plot};
use super::trace::{Event, Trace, trace};
use super::{Bench, Experiment, Figure, Id, TitledGrid};
use forkless_bench::clock::{CpuTime, now};
use forkless_bench::error::Error;
use forkless_bench::program::{Kind, Program};
use forkless_bench::published::calls;
use forkless_bench::render::number;
use forkless_bench::spawn::{Method, SpawnedProgram, worker};
use forkless_bench::stats::bootstrap::Samples;
use forkless_bench::stats::median;
use forkless_bench::suites::blobs;
use forkless_bench::suites::syscalls::{exec_chain, fork_exit, vfork_exit};

const THEIRS: &str = "65,536 each of fork, vfork, execve, their combinations, fstat, lstat, getpid, gettimeofday, time and umask on Mac OS X, \
    Linux and Solaris. vfork took 1.9 % of fork's time on Mac OS X, 64.5 % on Linux, 23.4 % on Solaris; with execve it saved no more \
    than 17 to 25 % of the whole. The parts, measured apart, add up to the whole within 12 %. execve alone was measured by a program \
    that execs itself, counting an argument down. On Solaris a probe on vfork never fired, and the child ran in a thread of its own; \
    on Mac OS X the parent's own thread ran it.";
const OURS: &str = "The same calls, in blocks that take turns; each block's real, user and system time. The children exit at once or exec \
    a static program that does. libc's functions are then traced in a child: which call they issue with which flags, and \
    whether the caller goes on before the child has exec'd or exited.";

/// The rows, in the published order; the first five make processes.
const CALLS: [&str; 11] = [
    "vfork",
    "fork",
    "vfork+execve",
    "fork+execve",
    "execve",
    "fstat",
    "lstat",
    "getpid",
    "gettimeofday",
    "time",
    "umask",
];

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Experiment, Error> {
    let mut experiment = Experiment::begin(Id::E2, bench.options, THEIRS, OURS);
    let program = Program::prepare(&Kind::Exit, bench.guard.as_deref_mut())?;
    let target = SpawnedProgram::new(&program);
    table(bench, &mut experiment, &target)?;
    traces(&mut experiment, &target)?;
    Ok(experiment)
}

/// Repeats a call so many times.
type Work = Box<dyn FnMut(u64) -> Result<(), Error>>;

fn works(bench: &mut Bench<'_>, target: &Arc<SpawnedProgram>) -> Result<(Program, Vec<Work>), Error> {
    let countdown = Program::assembled(blobs::countdown(), &["0000000"], bench.guard.as_deref_mut())?;
    let each = |mut call: Box<dyn FnMut() -> Result<(), Error>>| -> Work {
        Box::new(move |count| (0..count).try_for_each(|_| call()))
    };
    let plain = |call: fn()| -> Work {
        Box::new(move |count| {
            (0..count).for_each(|_| call());
            Ok(())
        })
    };
    let mut vfork_exec = worker(Method::VforkExec, target)?;
    let mut fork_exec = worker(Method::ForkExec, target)?;
    let path = countdown.path().clone();
    let file = File::open("/dev/null").map_err(Error::io("open /dev/null"))?;
    let works: Vec<Work> = vec![
        each(Box::new(vfork_exit)),
        each(Box::new(fork_exit)),
        each(Box::new(move || vfork_exec.spawn().map(drop))),
        each(Box::new(move || fork_exec.spawn().map(drop))),
        Box::new(move |count| exec_chain(&path, count)),
        each(Box::new(move || {
            let mut buffer = MaybeUninit::<libc::stat>::uninit();
            // SAFETY: the descriptor is open, the buffer writable.
            black_box(unsafe { libc::fstat(file.as_raw_fd(), buffer.as_mut_ptr()) });
            Ok(())
        })),
        plain(|| {
            let mut buffer = MaybeUninit::<libc::stat>::uninit();
            // SAFETY: the path is a static string, the buffer writable.
            black_box(unsafe { libc::lstat(c"/dev/null".as_ptr(), buffer.as_mut_ptr()) });
        }),
        plain(|| {
            // SAFETY: getpid has no preconditions.
            black_box(unsafe { libc::getpid() });
        }),
        plain(|| {
            let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
            // SAFETY: `time` is writable; the time zone may be null.
            unsafe { libc::gettimeofday(&raw mut time, ptr::null_mut()) };
            black_box(time);
        }),
        plain(|| {
            // SAFETY: a null pointer asks for the return value alone.
            black_box(unsafe { libc::time(ptr::null_mut()) });
        }),
        umask_work(),
    ];
    // The countdown's file must outlive the closures that exec it.
    Ok((countdown, works))
}

/// umask cannot be read without being set: it is set to what it is.
fn umask_work() -> Work {
    // SAFETY: umask cannot fail.
    let mask = unsafe { libc::umask(0o077) };
    // SAFETY: as above.
    unsafe { libc::umask(mask) };
    Box::new(move |count| {
        for _ in 0..count {
            // SAFETY: as above.
            black_box(unsafe { libc::umask(mask) });
        }
        Ok(())
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds")]
fn table(
    bench: &mut Bench<'_>,
    experiment: &mut Experiment,
    target: &Arc<SpawnedProgram>,
) -> Result<(), Error> {
    let (_countdown, mut works) = works(bench, target)?;
    let blocks = bench.quick(6, 16);
    let each = bench.quick(100, calls::REPETITIONS / 16);
    let scale = calls::REPETITIONS as f64 / each as f64;
    if bench.options.quick {
        let made = each * blocks as u64;
        experiment
            .scaled
            .push(format!("{made} of each call instead of {}, times for so many", calls::REPETITIONS));
    }
    // Real, user and system seconds for 65,536, by call and block.
    let mut times: Vec<[Vec<f64>; 3]> = vec![Default::default(); CALLS.len()];
    for block in 0..blocks {
        for step in 0..CALLS.len() {
            let index = (step + block) % CALLS.len();
            // The caches as another call left them are not what is measured.
            works[index](each.div_ceil(50))?;
            let before = CpuTime::of_self_and_children();
            let start = now();
            works[index](each)?;
            let real = (now() - start) as f64 / 1e9;
            let used = CpuTime::of_self_and_children().since(before);
            for (column, value) in [real, used.user / 1e6, used.system / 1e6].into_iter().enumerate() {
                times[index][column].push(value * scale);
            }
        }
        bench.observer.progress(block + 1, blocks);
    }
    let seed = bench.options.seed;
    let real = |name: &str| {
        let index = CALLS.iter().position(|call| *call == name).unwrap_or(0);
        times[index][0].clone()
    };
    rows(experiment, &times, seed);
    let [vfork, fork, vfork_exec, fork_exec, execve] =
        ["vfork", "fork", "vfork+execve", "fork+execve", "execve"].map(real);
    let mut add = |name: &str, about: &str, unit: &str, figure: &dyn Fn(usize) -> f64| {
        let samples = Samples::one_a_round((0..blocks).map(figure).collect());
        experiment.add(Figure::of(name, about, unit, &samples, seed));
    };
    add("vfork.percent_of_fork", "vfork / fork", "%", &|i| 100.0 * vfork[i] / fork[i]);
    let about = "execve / (fork + execve)";
    add("execve.percent_of_whole", about, "%", &|i| 100.0 * execve[i] / fork_exec[i]);
    let about = "vfork saves of fork + execve";
    add("vfork.saves_percent", about, "%", &|i| 100.0 * (fork_exec[i] - vfork_exec[i]) / fork_exec[i]);
    add("execve.seconds", "execve alone, 65,536", "s", &|i| execve[i]);
    let error = |whole: &[f64], first: &[f64], i: usize| 100.0 * (whole[i] - first[i] - execve[i]) / whole[i];
    let about = "vfork + execve, whole less parts";
    add("vfork.sum_error_percent", about, "% of the whole", &|i| error(&vfork_exec, &vfork, i));
    let about = "fork + execve, whole less parts";
    add("fork.sum_error_percent", about, "% of the whole", &|i| error(&fork_exec, &fork, i));

    let mut derived = TitledGrid::new("Derived rows", &["", "Mac OS X", "Linux", "Solaris", "here"], 1);
    let known = |name: &str| calls::one(name).unwrap_or_default();
    let published = |figure: &dyn Fn(usize) -> f64| {
        (0..3).map(|system| format!("{:.1} %", figure(system))).collect::<Vec<_>>()
    };
    let (v, f, ve, fe, e) =
        (known("vfork"), known("fork"), known("vfork+execve"), known("fork+execve"), known("execve"));
    for (name, figure, author) in [
        ("vfork / fork", "vfork.percent_of_fork", published(&|i| 100.0 * v[i] / f[i])),
        (
            "what vfork saves of fork + execve",
            "vfork.saves_percent",
            published(&|i| 100.0 * (fe[i] - ve[i]) / fe[i]),
        ),
        ("execve / (fork + execve)", "execve.percent_of_whole", published(&|i| 100.0 * e[i] / fe[i])),
        (
            "vfork + execve less its parts",
            "vfork.sum_error_percent",
            published(&|i| 100.0 * (ve[i] - v[i] - e[i]) / ve[i]),
        ),
        (
            "fork + execve less its parts",
            "fork.sum_error_percent",
            published(&|i| 100.0 * (fe[i] - f[i] - e[i]) / fe[i]),
        ),
    ] {
        let here = experiment.figure(figure).map(super::text::figure).unwrap_or_default();
        derived.line([name.to_owned()].into_iter().chain(author).chain([here]));
    }
    experiment.tables.push(derived);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "65,536")]
fn rows(experiment: &mut Experiment, times: &[[Vec<f64>; 3]], seed: u64) {
    let mut table = TitledGrid::new(
        "Seconds for 65,536 calls; user and system are estimates",
        &["call", "real", "user", "system", "published: Mac OS X", "Linux", "Solaris"],
        1,
    );
    let mut marks = Vec::new();
    for (name, times) in CALLS.iter().zip(times) {
        let figure = Figure::of("", "", "", &Samples::one_a_round(times[0].clone()), seed);
        let author = calls::one(name);
        let mut cells = vec![(*name).to_owned(), super::text::figure(&figure)];
        cells.extend(times[1..].iter().map(|column| format!("{:.3}", median(column))));
        cells.extend(
            (0..3).map(|i| author.map_or_else(String::new, |one| number(one[i] * calls::REPETITIONS as f64))),
        );
        table.line(cells);
        let ci95 = figure.bounds().map(|bound| bound.clamp(0.0, 1e9));
        marks.push(Mark { name: (*name).to_owned(), value: figure.value, ci95 });
    }
    experiment.tables.push(table);
    let title = "Seconds for 65,536".to_owned();
    experiment.plots.push(Plot::Marks { title, unit: "s".into(), marks });
}

unsafe extern "C" {
    #[link_name = "vfork"]
    fn libc_vfork() -> libc::pid_t;
}

/// libc's vfork; the child exits at once, without touching the stack that it shares with its
/// parent.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn vfork_by_libc() -> c_int {
    naked_asm!(
        "push rbx", // aligned to 16
        "call {vfork}",
        "test eax, eax",
        "jnz 2f",
        "xor edi, edi",
        "mov eax, 231", // exit_group
        "syscall",
        "2:",
        "pop rbx",
        "ret",
        vfork = sym libc_vfork,
    )
}

/// libc's vfork; the child exits at once, without touching the stack that it shares with its
/// parent.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn vfork_by_libc() -> c_int {
    naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {vfork}",
        "cbnz w0, 2f",
        "mov x0, #0",
        "mov x8, #94", // exit_group
        "svc #0",
        "2:",
        "ldp x29, x30, [sp], #16",
        "ret",
        vfork = sym libc_vfork,
    )
}

/// What a function of libc did to make a process.
struct Made {
    call: &'static str,
    flags: u64,
    own_task: bool,
    waited: bool,
}

fn traces(experiment: &mut Experiment, target: &Arc<SpawnedProgram>) -> Result<(), Error> {
    let mut spawn = worker(Method::PosixSpawn, target)?;
    let mut system = worker(Method::System, target)?;
    let mut ours = worker(Method::Forkless, target)?;
    let mut table = TitledGrid::new(
        "What libc's functions ask of the kernel, and who runs the child",
        &["function", "call and flags", "the child", "the caller"],
        4,
    );
    let found = [
        (
            "vfork",
            trace(|| {
                // SAFETY: the routine touches no stack in the child.
                if unsafe { vfork_by_libc() } > 0 {
                    // SAFETY: waits for any child of this traced process.
                    unsafe { libc::wait(ptr::null_mut()) };
                }
            }),
        ),
        (
            "fork",
            trace(|| {
                let _ = fork_exit();
            }),
        ),
        (
            "posix_spawn",
            trace(|| {
                let _ = spawn.spawn();
            }),
        ),
        (
            "system",
            trace(|| {
                let _ = system.spawn();
            }),
        ),
        (
            "forkless",
            trace(|| {
                let _ = ours.spawn();
            }),
        ),
    ];
    for (name, trace) in found {
        let made = match trace.map(|trace| made(&trace)) {
            Ok(Some(made)) => made,
            Ok(None) => {
                experiment.notes.push(format!("{name} made no process while it was traced"));
                continue;
            }
            Err(error) => {
                let names = [
                    "vfork.as_named",
                    "fork.as_named",
                    "vfork.own_task",
                    "vfork.parent_waited",
                    "vfork.shares_memory",
                ];
                experiment.miss(&names, error.to_string());
                return Ok(());
            }
        };
        let shares = made.flags & clone_flag(libc::CLONE_VM) != 0;
        table.line([
            name.to_owned(),
            format!("{}({})", made.call, flags(made.flags)),
            format!(
                "{}, {}",
                if made.own_task { "a task of its own" } else { "the caller's task" },
                if shares { "in the caller's memory" } else { "in a copy of the memory" }
            ),
            if made.waited { "waits for its exec or exit" } else { "goes on" }.to_owned(),
        ]);
        if !["vfork", "fork"].contains(&name) {
            continue;
        }
        let mut answer = |key: &str, about: String, yes| {
            experiment.add(Figure::answer(&format!("{name}.{key}"), &about, yes));
        };
        answer("as_named", format!("libc's {name} issues the system call {name}"), made.call == name);
        answer("own_task", format!("{name}'s child is a task of its own"), made.own_task);
        answer("parent_waited", format!("{name}'s caller waits for the child's exec or exit"), made.waited);
        answer("shares_memory", format!("{name}'s child shares the caller's memory"), shares);
    }
    experiment.tables.push(table);
    Ok(())
}

fn clone_flag(flag: c_int) -> u64 {
    u64::from(flag.cast_unsigned())
}

/// The first process the root made, by which call, and whether it waited for it.
fn made(trace: &Trace) -> Option<Made> {
    let root = trace.root;
    let at =
        trace.events.iter().position(|event| matches!(event, Event::Made { task, .. } if *task == root))?;
    let Event::Made { child, .. } = trace.events[at] else { return None };
    let call = trace.events[..at].iter().rev().find_map(|event| match event {
        Event::Call { task, number, arguments } if *task == root => Some((*number, arguments[0])),
        _ => None,
    })?;
    let (call, flags) = match call {
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_vfork, _) => ("vfork", clone_flag(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD)),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_fork, _) => ("fork", clone_flag(libc::SIGCHLD)),
        (libc::SYS_clone, flags) => ("clone", flags),
        (libc::SYS_clone3, flags) => ("clone3", flags),
        _ => return None,
    };
    // The call by which the child leaves its parent's memory. Its end as the tracer sees it comes
    // later than the parent's wake-up.
    let leaves = |event: &Event| {
        let leaving = [libc::SYS_execve, libc::SYS_exit, libc::SYS_exit_group];
        matches!(event, Event::Call { task, number, .. } if *task == child && leaving.contains(number))
    };
    let left = trace.events.iter().position(leaves)?;
    let resumed = trace.events.iter().position(|event| *event == Event::VforkDone { task: root });
    Some(Made { call, flags, own_task: child != root, waited: resumed.is_some_and(|resumed| resumed > left) })
}

/// Clone flags by name; the low byte is the signal at the child's end.
fn flags(flags: u64) -> String {
    let known = [
        ("CLONE_VM", libc::CLONE_VM),
        ("CLONE_VFORK", libc::CLONE_VFORK),
        ("CLONE_FS", libc::CLONE_FS),
        ("CLONE_FILES", libc::CLONE_FILES),
        ("CLONE_SIGHAND", libc::CLONE_SIGHAND),
        ("CLONE_THREAD", libc::CLONE_THREAD),
        ("CLONE_PIDFD", libc::CLONE_PIDFD),
        ("CLONE_PARENT_SETTID", libc::CLONE_PARENT_SETTID),
        ("CLONE_CHILD_CLEARTID", libc::CLONE_CHILD_CLEARTID),
        ("CLONE_CHILD_SETTID", libc::CLONE_CHILD_SETTID),
        ("CLONE_SETTLS", libc::CLONE_SETTLS),
    ];
    let mut rest = flags & !0xff;
    let mut names: Vec<String> = Vec::new();
    for (name, flag) in known {
        if rest & clone_flag(flag) != 0 {
            rest &= !clone_flag(flag);
            names.push(name.to_owned());
        }
    }
    // Linux 5.5; beyond 32 bits, so clone3 only.
    if rest & (1 << 32) != 0 {
        rest &= !(1 << 32);
        names.push("CLONE_CLEAR_SIGHAND".to_owned());
    }
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    match flags & 0xff {
        0 => {}
        signal if signal == clone_flag(libc::SIGCHLD) => names.push("SIGCHLD".to_owned()),
        signal => names.push(format!("signal {signal}")),
    }
    names.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_named_and_what_is_unknown_is_not_lost() {
        assert_eq!(
            flags(clone_flag(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD)),
            "CLONE_VM|CLONE_VFORK|SIGCHLD"
        );
        assert_eq!(flags(1 << 32), "CLONE_CLEAR_SIGHAND");
        assert_eq!(flags(1 << 40), "0x10000000000");
    }

    #[test]
    fn who_waits_is_read_from_the_order_of_events() {
        let call = Event::Call { task: 1, number: libc::SYS_clone, arguments: [0x4111, 0, 0, 0, 0, 0] };
        let made_it = Event::Made { task: 1, child: 2 };
        let exec = Event::Call { task: 2, number: libc::SYS_execve, arguments: [0; 6] };
        let (done, back) = (Event::VforkDone { task: 1 }, Event::Return { task: 1 });
        let see = |events: &[Event]| made(&Trace { root: 1, events: events.to_vec() }).unwrap();
        assert!(see(&[call, made_it, exec, done, back]).waited);
        assert!(!see(&[call, made_it, done, exec, back]).waited);
        assert!(!see(&[call, made_it, back, exec]).waited);
        assert_eq!((see(&[call, made_it, exec]).call, see(&[call, made_it, exec]).flags), ("clone", 0x4111));
    }

    #[test]
    fn libcs_vfork_can_be_traced() {
        let traced = trace(|| {
            // SAFETY: the routine touches no stack in the child.
            unsafe { vfork_by_libc() };
        });
        let Ok(traced) = traced else { return eprintln!("skipped: tracing is refused") };
        let made = made(&traced).unwrap();
        assert!(made.waited && made.own_task && made.flags & clone_flag(libc::CLONE_VM) != 0);
    }
}
