//! The figures of the write-ups that this project reproduces, as their authors measured them
//! on machines of their time. They are here and nowhere else: [`compare`](crate::compare) makes a
//! result of the tables. Shapes are to be compared, not seconds.

/// E1: milliseconds of one pass over 100,000 pages, and of the first after a fork. The first after
/// `system` took 63 ms in Ruby 2.1, which forks for it.
pub mod cow {
    /// A pass that nothing disturbs.
    pub const PASS_MS: f64 = 7.0;
    /// The first pass after a fork.
    pub const FIRST_MS: f64 = 65.0;
    /// Pages the parent holds.
    pub const PAGES: u64 = 100_000;
    /// Passes before the child, and as many after.
    pub const PASSES: usize = 10;
}

/// E2: a series of six articles of May 2014 on the cost of system calls, system by system. The last
/// has a summary: <https://flying-foozy.hatenablog.com/entry/20140527/1401186984>. Part 1 has fork
/// and execve, part 2 vfork, part 3 fstat. The figures that the others have of lstat, getpid,
/// gettimeofday, time and umask are not known here.
pub mod calls {
    /// How often calls that make or execute a process were made.
    pub const REPETITIONS: u64 = 0x1_0000;
    /// How often cheap calls were made.
    pub const CHEAP_REPETITIONS: u64 = 0x400_0000;
    /// The systems, in the order of the columns.
    pub const SYSTEMS: [&str; 3] = ["Mac OS X", "Linux", "Solaris"];
    /// Their versions; the last two in VirtualBox. The three ran on a Core i5 of 2.3 GHz each.
    pub const VERSIONS: [&str; 3] = ["10.7.5", "2.6.32", "OpenIndiana 151a2"];
    /// Call, how often it was made, and seconds on each system.
    pub const SECONDS: [(&str, u64, [f64; 3]); 6] = [
        ("vfork", REPETITIONS, [0.52, 6.03, 5.68]),
        ("fork", REPETITIONS, [27.36, 9.35, 24.32]),
        ("vfork+execve", REPETITIONS, [161.87, 25.56, 51.11]),
        ("fork+execve", REPETITIONS, [194.90, 31.06, 68.04]),
        ("execve", REPETITIONS, [157.19, 22.02, 39.41]),
        ("fstat", CHEAP_REPETITIONS, [31.12, 8.36, 62.13]),
    ];
    /// Seconds of one call on each system; `None` where they are not known.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
    pub fn one(call: &str) -> Option<[f64; 3]> {
        let (_, repetitions, seconds) = SECONDS.iter().find(|known| known.0 == call)?;
        Some(seconds.map(|seconds| seconds / *repetitions as f64))
    }
    /// vfork in percent of fork: the lowest and the highest of the systems. Of fork + execve, it
    /// saves 16.9 to 24.9 %.
    pub const VFORK_PERCENT: [f64; 2] = [1.9, 64.5];
    /// The largest share of a whole that the sum of its parts missed, in percent.
    pub const SUM_ERROR_PERCENT: f64 = 12.0;
}

/// E3: a web server of 100,000 virtual hosts.
pub mod huge_pages {
    /// Seconds of a clone with 4 KiB pages and with 2 MiB pages.
    pub const CLONE_S: [f64; 2] = [0.069, 0.0177];
    /// Bytes of page table for each page of 4 KiB.
    pub const BYTES_PER_ENTRY: f64 = 8.0;
    /// Shares of a system-wide profile, in percent.
    pub const PROFILE: [(&str, f64); 3] =
        [("copy_pte_range", 22.0), ("zap_pte_range", 18.0), ("change_pte_range", 11.0)];
    /// Virtual hosts.
    pub const HOSTS: u64 = 100_000;
}

/// E4: system calls nobody asked for.
pub mod masks {
    /// Calls of `sigprocmask`.
    pub const CALLS: u64 = 1_000_000;
    /// Nanoseconds a call: plain, and under a tracer.
    pub const CALL_NS: [f64; 2] = [47.0, 52_000.0];
    /// Pushes, and as many pops, of each of two green threads.
    pub const OPERATIONS: u64 = 10_000_000;
    /// Real, user and system seconds with getcontext and setcontext.
    pub const UCONTEXT_S: [f64; 3] = [6.147, 5.644, 0.476];
    /// The same with `_setjmp` and `_longjmp`.
    pub const SETJMP_S: [f64; 3] = [3.716, 3.692, 0.004];
    /// `rt_sigprocmask` calls of the two.
    pub const MASK_CALLS: [u64; 2] = [20_033_025, 3];
}

/// E5: popen and system without fork.
pub mod spawn {
    /// System, MB allocated, MB used, seconds of the parent with vfork + exec and with fork + exec.
    pub const BY_MEMORY: [(&str, u64, u64, f64, f64); 5] = [
        ("Linux 2.6.28", 20, 10, 1.49, 12.08),
        ("Linux 2.6.28", 20, 20, 1.53, 21.60),
        ("Linux 2.6.28", 40, 20, 1.59, 21.23),
        ("FreeBSD 7.1", 20, 10, 2.26, 20.22),
        ("FreeBSD 7.1", 40, 20, 2.44, 33.94),
    ];
    /// Runs behind each row of [`BY_METHOD`].
    pub const RUNS: u32 = 60_000;
    /// Method, and seconds of parent and children: user, system, total. A parent of 200 MB, half of
    /// it written.
    pub const BY_METHOD: [(&str, [f64; 3]); 11] = [
        ("vfork_exec", [7.4, 1.6, 9.0]),
        ("noshell_clone_compat1", [7.7, 2.1, 9.7]),
        ("noshell_clone_compat0", [7.8, 2.0, 9.9]),
        ("posix_spawn", [9.4, 2.0, 11.5]),
        ("noshell_spawn_compat0", [9.6, 2.7, 12.3]),
        ("noshell_spawn_compat1", [9.6, 2.7, 12.3]),
        ("fork_exec", [40.5, 43.8, 84.3]),
        ("noshell_fork_compat1", [41.6, 45.2, 86.8]),
        ("noshell_fork_compat0", [41.6, 45.3, 86.9]),
        ("system", [67.3, 48.1, 115.4]),
        ("popen", [70.4, 47.1, 117.5]),
    ];
    /// How many times longer a write test took with blocks below the device's.
    pub const SMALL_BLOCKS: f64 = 3.0;
}

/// E6: "Async-fork: Mitigating Query Latency Spikes Incurred by the Fork-based Snapshot Mechanism
/// from the OS Level", PVLDB 16(5), 2023 (doi 10.14778/3579075.3579079).
pub mod snapshots {
    /// By how much the tail latency of queries fell, in percent, at 8 GB and at 64 GB.
    pub const TAIL_PERCENT: [f64; 2] = [81.76, 99.84];
}
