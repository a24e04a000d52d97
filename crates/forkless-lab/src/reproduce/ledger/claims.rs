//! The claims themselves: one table, from which everything else about them follows.

use forkless_bench::published::{calls, cow, huge_pages, masks, snapshots, spawn};

use super::{Claim, SAME, SIZE, at_least, at_most};

/// The first pass after a fork against an undisturbed one, as published.
const FIRST: f64 = cow::FIRST_MS / cow::PASS_MS;
/// A million mask calls under a tracer against plain.
const TRACED: f64 = masks::CALL_NS[1] / masks::CALL_NS[0];
/// What clone gained from huge pages.
const CLONE: f64 = huge_pages::CLONE_S[0] / huge_pages::CLONE_S[1];
/// popen against vfork + exec.
const SHELL: f64 = spawn::BY_METHOD[10].1[2] / spawn::BY_METHOD[0].1[2];
/// The tail during a snapshot with the plain fork against the one without, at 8 GB.
const TAIL: f64 = 100.0 / (100.0 - snapshots::TAIL_PERCENT[0]);
/// The slower posix_spawn forms against vfork + exec.
const POSIX_SPAWN: f64 = 1.37;

/// Every numbered claim, in order.
pub(crate) const CLAIMS: &[Claim] = &[
    Claim {
        id: "1.1",
        text: "The first pass after a fork is about 10 times slower, and only that one",
        published: "7 ms before, 65 ms in the first pass, 7 ms in the next",
        beside: &["fork.fault_us", "fork_alive.first"],
        holds: &[
            at_least("fork.first", FIRST / SIZE),
            at_most("fork.first", FIRST * SIZE),
            at_most("fork.later", SAME),
        ],
        gone: &[at_most("fork.first", SAME)],
        because: [
            "fork write-protects every page for both; the parent's next write to each takes a fault, once",
            "the parent no longer takes a fault for each page after a fork",
            "the faults are there, once; but a write that takes none has become cheaper or dearer than a fault has (0.58 us then)",
        ],
    },
    Claim {
        id: "1.2",
        text: "A system() made of vfork leaves no slow pass",
        published: "Ruby 2.2 and later: 7 ms before and after",
        beside: &["vfork.first", "posix_spawn.first", "forkless.first", "ruby_root_system.first"],
        holds: &[at_most("system.first", SAME), at_most("ruby_system.first", SAME)],
        gone: &[at_least("ruby_system.first", FIRST / SIZE)],
        because: [
            "the child borrows the parent's memory until its exec, so no page is write-protected",
            "this Ruby's system() copies the page tables",
            "the passes after it are slower than the ones before, but not as after a fork",
        ],
    },
    Claim {
        id: "1.3",
        text: "A system() made of fork leaves a slow pass",
        published: "Ruby 2.1: 63 ms in the first pass",
        beside: &["perl_system.first", "perl_run_system.first"],
        holds: &[at_least("fork_exec.first", FIRST / SIZE), at_least("ruby_fork_exec.first", FIRST / SIZE)],
        gone: &[at_most("fork_exec.first", SAME), at_most("ruby_fork_exec.first", SAME)],
        because: [
            "an exec in the child comes after the copy of the page tables (Ruby: fork { exec }, as 2.1's system did)",
            "a fork followed by an exec leaves the pages writable",
            "the slow pass is there, but costs more or less of a pass than it did",
        ],
    },
    Claim {
        id: "1.4",
        text: "Transparent huge pages remove the slow pass, even with fork",
        published: "7 ms with `always` instead of `never`",
        beside: &["thp_fork.first", "thp_fork_alive.first", "ruby_thp_fork.first"],
        holds: &[at_most("thp_fork.left_percent", 5.0)],
        gone: &[at_least("thp_fork.left_percent", 50.0)],
        because: [
            "one fault makes 512 pages writable again; so it is while the child is dead: with a living one the huge mapping is split \
             (since Linux 5.8)",
            "the huge mappings do not survive the fork",
            "fewer faults than with small pages, but the pass still shows them",
        ],
    },
    Claim {
        id: "1.5",
        text: "A runtime may switch transparent huge pages off for itself (Ruby 2.6 does), and so bring the slow pass back",
        published: "Ruby 2.6: prctl(PR_SET_THP_DISABLE)",
        beside: &["runtimes.disabling"],
        holds: &[at_least("prctl_fork.first", FIRST / SIZE), at_least("ruby.disables_thp", 1.0)],
        gone: &[at_most("prctl_fork.first", SAME)],
        because: [
            "the switch overrules the system's setting for the process and its children",
            "the switch has no effect on the passes",
            "the switch still brings the slow pass back, but the Ruby here does not use it",
        ],
    },
    Claim {
        id: "2.1",
        text: "vfork costs between 2 % and 65 % of fork",
        published: "1.9 % (Mac OS X), 64.5 % (Linux), 23.4 % (Solaris)",
        beside: &[],
        holds: &[
            at_least("vfork.percent_of_fork", calls::VFORK_PERCENT[0]),
            at_most("vfork.percent_of_fork", calls::VFORK_PERCENT[1]),
        ],
        gone: &[at_least("vfork.percent_of_fork", 95.0)],
        because: [
            "vfork copies neither page tables nor mappings; what both share is a new task and its end",
            "fork is as cheap as vfork here",
            "a parent this small has little to copy, so what both share (a new task, its end, the wait) is most of fork",
        ],
    },
    Claim {
        id: "2.2",
        text: "execve dominates, so vfork saves only 17 to 25 % of the whole",
        published: "17 % (Mac OS X), 18 % (Linux), 25 % (Solaris)",
        beside: &["execve.seconds"],
        holds: &[
            at_least("execve.percent_of_whole", 50.0),
            at_least("vfork.saves_percent", 15.0),
            at_most("vfork.saves_percent", 27.0),
        ],
        gone: &[at_most("execve.percent_of_whole", 50.0), at_least("vfork.saves_percent", 27.0)],
        because: [
            "mapping a program costs more than making the process it runs in",
            "execve of a static program is now the smaller part: fork's copy, the faults it causes in the child and its undoing cost more",
            "the parts have other proportions here than on the systems of the time",
        ],
    },
    Claim {
        id: "2.3",
        text: "The whole differs from the sum of its separately measured parts by under 12 %",
        published: "2.6 % (Mac OS X), -9.7 % (Linux), 11.8 % (Solaris); fork + execve 5.3 %",
        beside: &[],
        holds: &[
            at_most("vfork.sum_error_percent", calls::SUM_ERROR_PERCENT),
            at_least("vfork.sum_error_percent", -calls::SUM_ERROR_PERCENT),
            at_most("fork.sum_error_percent", calls::SUM_ERROR_PERCENT),
            at_least("fork.sum_error_percent", -calls::SUM_ERROR_PERCENT),
        ],
        gone: &[],
        because: [
            "the calls do not disturb each other much",
            "",
            "the parts overlap: an exec in a fresh child throws away what the copy made, and each chain measures an end of a process \
             or leaves one out",
        ],
    },
    Claim {
        id: "2.4",
        text: "The system call behind libc's vfork has another name: a probe on vfork never fires",
        published: "Solaris: libc's vfork calls forksys",
        beside: &[],
        holds: &[at_most("vfork.as_named", 0.0)],
        gone: &[at_least("vfork.as_named", 1.0), at_least("fork.as_named", 1.0)],
        because: [
            "libc reaches the kernel by another call",
            "both functions issue the call of their name",
            "vfork issues the call of its name here, but fork does not: libc's fork is clone, and a probe on fork never fires",
        ],
    },
    Claim {
        id: "2.5",
        text: "Who runs the child: a task of its own, while the caller waits until it has exec'd or exited (Solaris; on Mac OS X the \
               caller's own thread runs it)",
        published: "Solaris: a new one; Mac OS X: the parent's own",
        beside: &["fork.parent_waited"],
        holds: &[
            at_least("vfork.own_task", 1.0),
            at_least("vfork.parent_waited", 1.0),
            at_least("vfork.shares_memory", 1.0),
        ],
        gone: &[at_most("vfork.own_task", 0.0)],
        because: [
            "the child is a new task in the same memory, and the kernel keeps the calling thread asleep until its exec (other threads \
             run on)",
            "the caller's own thread runs the child",
            "the child is a task of its own, but does not share memory or does not hold its parent up",
        ],
    },
    Claim {
        id: "3.1",
        text: "Clone time is linear in page-table entries of 8 bytes: 384,000 of them, 3 MB, at 1.5 GB",
        published: "8 bytes an entry",
        beside: &["clone.ns_per_entry", "clone.entries"],
        holds: &[
            at_least("clone.r2", 0.98),
            at_least("entry.bytes", 0.97 * huge_pages::BYTES_PER_ENTRY),
            at_most("entry.bytes", 1.05 * huge_pages::BYTES_PER_ENTRY),
        ],
        gone: &[at_most("clone.r2", 0.5)],
        because: [
            "dup_mmap copies every entry of a private mapping that was ever written",
            "the time of a clone does not follow the number of entries",
            "the time grows with the entries, but not along a line",
        ],
    },
    Claim {
        id: "3.2",
        text: "copy_page_range under clone dominates the profile",
        published: "copy_pte_range 22 %, zap_pte_range 18 %, change_pte_range 11 % of the whole system",
        beside: &["profile.zap_percent", "profile.change_percent"],
        holds: &[at_least("profile.copy_percent_of_clone", 50.0)],
        gone: &[at_most("profile.copy_percent_of_clone", 10.0)],
        because: [
            "copying the entries is most of what a clone of a large process does",
            "clone does something else most of the time",
            "copying has a large share, but not half",
        ],
    },
    Claim {
        id: "3.3",
        text: "2 MB pages cut the clone's time to a quarter",
        published: "0.069 s to 0.0177 s: 3.9 times",
        beside: &["clone.before_ms", "clone.after_ms"],
        holds: &[at_least("clone.gain", CLONE / SIZE), at_most("clone.gain", CLONE * SIZE)],
        gone: &[at_most("clone.gain", 1.1)],
        because: [
            "512 times fewer entries, but each costs several times more, and the rest of the clone stays",
            "huge pages do not change the clone's time",
            "the gain has another size: 512 times fewer entries, each dearer, beside the constant part of a clone",
        ],
    },
    Claim {
        id: "3.4",
        text: "CGI requests per second rise several times",
        published: "several times",
        beside: &["requests.before", "requests.after"],
        holds: &[at_least("requests.gain", 2.0)],
        gone: &[at_most("requests.gain", 1.1)],
        because: [
            "the daemon that starts the scripts is the bottleneck, and its clone is most of a request",
            "something else than the clone bounds the requests",
            "the clone is cheaper, but the rest of a request (the script, its exec, its end) weighs more than it did",
        ],
    },
    Claim {
        id: "3.5",
        text: "RSS no longer shows the memory",
        published: "RSS shrank to 5 MB",
        beside: &["rss.before_mb", "rss.after_mb", "rss.hugetlb_mb"],
        holds: &[at_most("rss.after_percent", 25.0), at_least("rss.hugetlb_percent", 50.0)],
        gone: &[at_least("rss.after_percent", 90.0)],
        because: [
            "pages from the pool are counted in HugetlbPages of /proc/PID/status and not in VmRSS",
            "RSS shows the memory as before",
            "a part of the memory is still in small pages",
        ],
    },
    Claim {
        id: "3.6",
        text: "With too small a pool allocation fails at start, and later the program is killed by SIGBUS",
        published: "allocation failures at start; \"killed due to inadequate hugepage pool\"",
        beside: &["pool.fell_back"],
        holds: &[at_least("pool.start_failed", 1.0), at_least("pool.sigbus", 1.0)],
        gone: &[at_most("pool.start_failed", 0.0), at_most("pool.sigbus", 0.0)],
        because: [
            "the reservation is refused at mmap, and a copy on write finds no free page",
            "the C library falls back to small pages, and no process was killed",
            "one of the two is left: the C library falls back to small pages at start, but a copy on write that finds no page still kills",
        ],
    },
    Claim {
        id: "3.7",
        text: "With 1 GB pages the server does not start",
        published: "the processes died",
        beside: &[],
        holds: &[at_most("gigantic.serves", 0.0)],
        gone: &[at_least("gigantic.serves", 1.0)],
        because: [
            "the first process of the tree that inherits the setting takes the page, and its first fork has none to copy into",
            "it starts and serves: the C library falls back where the pool is empty",
            "it starts only sometimes",
        ],
    },
    Claim {
        id: "4.1",
        text: "A mask call takes 47 ns plain, a thousand times that under a tracer, whose own summary says 0",
        published: "0.047 s and 52 s a million; 0 microseconds a call in the summary",
        beside: &["mask.traced_ns"],
        holds: &[
            at_least("mask.plain_ns", masks::CALL_NS[0] / SIZE),
            at_most("mask.plain_ns", masks::CALL_NS[0] * SIZE),
            at_least("mask.traced", TRACED / SIZE),
            at_most("mask.traced", TRACED * SIZE),
            at_most("mask.summary_us", 1.0),
        ],
        gone: &[at_most("mask.traced", 10.0)],
        because: [
            "each traced call stops twice and wakes the tracer; the summary counts only the call's own system time",
            "this tracer hardly costs anything",
            "a tracer still multiplies the time; by how much depends on what entering the kernel costs here, and the summary's \
             own figure on how the tracer attributes its stops",
        ],
    },
    Claim {
        id: "4.2",
        text: "A switch by getcontext and setcontext makes two mask calls, one by _setjmp none, and the program gains 40 %",
        published: "20,033,025 calls against 3; 6.147 s against 3.716 s",
        beside: &[
            "ucontext.seconds",
            "setjmp.seconds",
            "ucontext.mask_calls",
            "setjmp.mask_calls",
            "mask.found",
            "run.calls_per_switch",
            "run.gain_percent",
            "mask.found_after",
        ],
        holds: &[
            at_least("ucontext.calls_per_switch", 1.9),
            at_most("ucontext.calls_per_switch", 2.1),
            at_most("setjmp.calls_per_switch", 0.01),
            at_least("setjmp.gain_percent", 39.5 / 1.5),
            at_most("setjmp.gain_percent", 39.5 * 1.5),
        ],
        gone: &[at_most("ucontext.calls_per_switch", 0.01)],
        because: [
            "glibc saves and restores the signal mask in each of the functions by a system call",
            "libc's context functions leave the signal mask alone here",
            "the calls are there as counted; the gain follows what the program does between two switches",
        ],
    },
    Claim {
        id: "4.3",
        text: "rt_sigprocmask has no way through the vDSO",
        published: "not among the vDSO's functions",
        beside: &["clock_gettime.syscalls"],
        holds: &[at_least("sigprocmask.syscalls", 0.99), at_most("vdso.sigprocmask", 0.0)],
        gone: &[at_most("sigprocmask.syscalls", 0.01)],
        because: [
            "the mask is the task's own and changes in the kernel; the vDSO only has what can be read from a shared page",
            "the mask is read without entering the kernel",
            "the vDSO and the count of system calls contradict each other",
        ],
    },
    Claim {
        id: "4.4",
        text: "With TZ set, localtime makes no stat a call",
        published: "thousands of stat(\"/etc/localtime\") in a page of log",
        beside: &[
            "localtime.gain",
            "stat.found",
            "stat.found_after",
            "perl.calls",
            "perl.run_calls",
            "perl.gain",
        ],
        holds: &[at_least("localtime.unset_syscalls", 0.99), at_most("localtime.set_syscalls", 0.01)],
        gone: &[at_most("localtime.unset_syscalls", 0.01)],
        because: [
            "without TZ glibc asks on every call whether /etc/localtime has changed; with it, the zone is read once",
            "this libc does not look at the file again",
            "setting TZ changes the number of calls, but not from one to none",
        ],
    },
    Claim {
        id: "5.1",
        text: "fork + exec costs twice the processor time when the used memory doubles, vfork + exec the same",
        published: "12.08 s to 21.60 s, 1.49 s to 1.53 s",
        beside: &["fork.double_large"],
        holds: &[
            at_least("fork.double_used", 1.5),
            at_most("fork.double_used", 2.2),
            at_most("vfork.double_used", 1.2),
        ],
        gone: &[at_most("fork.double_used", 1.1)],
        because: [
            "fork copies an entry for each page in use; vfork copies none",
            "fork's cost does not grow with the memory used",
            "the growth is there, but at 10 MB the constant part of a fork weighs more than it did: double 200 MB and it shows",
        ],
    },
    Claim {
        id: "5.2",
        text: "Only used memory counts, not what is allocated",
        published: "20 and 40 MB allocated, 20 MB used: 21.60 s and 21.23 s",
        beside: &["vfork.double_allocated"],
        holds: &[at_least("fork.double_allocated", 0.8), at_most("fork.double_allocated", 1.25)],
        gone: &[at_least("fork.double_allocated", SAME)],
        because: [
            "a page that was never written has no entry to copy",
            "allocated memory costs too",
            "allocating more changes the cost, though not in proportion",
        ],
    },
    Claim {
        id: "5.3",
        text: "A child of clone(CLONE_VM) may move descriptors and exec, at 8 % above vfork",
        published: "9.7 s and 9.9 s against 9.0 s",
        beside: &["noshell_clone_compat0.over_vfork"],
        holds: &[at_most("noshell_clone_compat1.over_vfork", 1.0 + SIZE * 0.08)],
        gone: &[at_least("noshell_clone_compat1.over_vfork", 2.0)],
        because: [
            "the pipe, three descriptors and the stack are all that is added",
            "the way costs twice vfork and more",
            "it costs more above vfork than it did: the pipe, /dev/null and an 8 MiB stack weigh more beside a faster vfork",
        ],
    },
    Claim {
        id: "5.4",
        text: "posix_spawn is within 37 % of vfork",
        published: "11.5 s to 12.3 s against 9.0 s",
        beside: &["noshell_spawn_compat0.over_vfork", "noshell_spawn_compat1.over_vfork"],
        holds: &[at_most("posix_spawn.over_vfork", POSIX_SPAWN)],
        gone: &[at_least("posix_spawn.over_vfork", 2.0)],
        because: [
            "libc's posix_spawn is a vfork with signals put in order around it",
            "libc's posix_spawn costs twice vfork and more",
            "it is of vfork's kind, but resetting every signal's action and mapping a stack cost more than that (glibc before 2.38)",
        ],
    },
    Claim {
        id: "5.5",
        text: "system and popen cost 12 to 13 times vfork + exec",
        published: "115.4 s and 117.5 s against 9.0 s",
        beside: &["system.shell_percent", "system.memory_percent"],
        holds: &[
            at_least("system.over_vfork", SHELL / SIZE),
            at_most("system.over_vfork", SHELL * SIZE),
            at_least("popen.over_vfork", SHELL / SIZE),
            at_most("popen.over_vfork", SHELL * SIZE),
        ],
        gone: &[at_most("system.over_vfork", SAME), at_most("popen.over_vfork", SAME)],
        because: [
            "the factor stands for another reason: libc no longer forks for them, so the parent's memory adds nothing; what costs \
             is the start of the shell",
            "system and popen cost what vfork costs",
            "the shell is still the cost, but a smaller or larger multiple of a vfork",
        ],
    },
    Claim {
        id: "5.6",
        text: "Writing to a raw device in blocks smaller than its own makes reads, and costs 3 times",
        published: "bs=256 and 512 against 512 and 4096, on a disk and on a device-mapper volume",
        beside: &["blockwrite.mapper_reads", "blockwrite.mapper_slower"],
        holds: &[
            at_least("blockwrite.small_reads", 0.9),
            at_most("blockwrite.large_reads", 0.05),
            at_least("blockwrite.slower", SAME),
            at_most("blockwrite.slower", spawn::SMALL_BLOCKS * SIZE),
        ],
        gone: &[at_most("blockwrite.small_reads", 0.05)],
        because: [
            "a buffered write of part of a page-cache block must read the rest first; it is the cache's block size that decides, not \
             the device's sector",
            "writing small blocks reads nothing",
            "the reads are there, but their price is another on this device",
        ],
    },
    Claim {
        id: "6.1",
        text: "A snapshot's fork makes queries wait: their tail during it is far above the one between snapshots",
        published: "81.76 % of the tail at 8 GB goes with the copy of the page table",
        beside: &["uniform.plain.p999", "uniform.plain.between_p999", "uniform.plain.fork_ms", "skewed.tail"],
        holds: &[at_least("uniform.tail", TAIL / SIZE)],
        gone: &[at_most("uniform.tail", 1.1)],
        because: [
            "while the kernel copies the page table, the server answers nobody, and all that arrive then wait",
            "queries wait no longer during a snapshot than between two",
            "queries wait longer during a snapshot, but not by as much",
        ],
    },
    Claim {
        id: "6.2",
        text: "Without the copy of the page table the tail during a snapshot falls by 81.76 % at 8 GB (there by a changed kernel; here by \
               huge pages)",
        published: "81.76 % at 8 GB, 99.84 % at 64 GB",
        beside: &["uniform.thp.p999", "uniform.fork_gain", "uniform.gain_max", "skewed.gain"],
        holds: &[at_least("uniform.gain", TAIL / SIZE)],
        gone: &[at_most("uniform.gain", 1.1)],
        because: [
            "512 times fewer entries to copy leave hardly a wait",
            "the tail is as long with huge pages",
            "the fork is shorter, but the tail has other causes as well: copies on write, and the child beside its parent",
        ],
    },
    Claim {
        id: "6.3",
        text: "With huge pages a write after the fork copies 2 MB, so they are to be switched off",
        published: "0.25 ms for each such write (redis #7381); \"mass copy-on-write\" (redis #2844)",
        beside: &["uniform.thp.copied_mib", "uniform.plain.copied_mib", "skewed.copied"],
        holds: &[at_least("uniform.copied", 10.0)],
        gone: &[at_most("uniform.copied", SAME)],
        because: [
            "the kernel copies the whole huge page",
            "since Linux 5.8 the write splits the mapping and copies 4 KiB (mm/huge_memory.c, do_huge_pmd_wp_page)",
            "more is copied with huge pages, but not whole ones",
        ],
    },
    Claim {
        id: "6.4",
        text: "A snapshot every minute: the fifth fork is as short as the first, though writes during each split the huge pages",
        published: "save 60 10000, redis's default",
        beside: &[
            "uniform.thp.fork_ms",
            "uniform.thp.fork_max_ms",
            "skewed.fork_fifth",
            "uniform.thp.huge_mib",
        ],
        holds: &[at_most("uniform.fork_fifth", 2.0)],
        gone: &[at_least("uniform.fork_fifth", 5.0)],
        because: [
            "between two snapshots the split pages are merged again, a little at a time",
            "the split pages stay as they are, and the next fork copies their entries",
            "a part of the pages was merged until the next fork",
        ],
    },
];
