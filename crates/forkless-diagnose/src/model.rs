//! The prices of forks, faults and calls on this machine, measured just before a watch. Predictions
//! come from these prices and from observations, never from constants.
//!
//! The measurement takes some 0.4 s, forks children that exit at once, and uses up to 48 MiB
//! meanwhile. A figure's interval is the spread of its repetitions: it is wide on a busy machine.

#![expect(unsafe_code, reason = "fork, mmap and raw system calls are what is measured")]

#[cfg(target_env = "gnu")]
mod ucontext;

use std::ffi::{CStr, CString};
use std::io;
use std::process::Command;
use std::ptr;
use std::time::Instant;

use serde::Serialize;

use crate::creation::CallerMemory;
use crate::estimate::{self, Estimate, REPETITIONS};
use crate::mappings::{Mapping, MappingCount};
use crate::procfs;

/// Prices in nanoseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CostModel {
    /// fork() of a process with next to no memory, time in the caller.
    pub fork_fixed: Estimate,
    /// Creating a process that copies no memory (`CLONE_VM`), time in the caller: a fork without
    /// its copy.
    pub create: Estimate,
    /// Added by each 4 KiB page-table entry, in the caller.
    pub fork_per_entry: Estimate,
    /// Added by each transparent huge page; `None` where none could be had.
    pub fork_per_huge_page: Option<Estimate>,
    /// Added by each mapping without written pages, in the caller. The interval is from one that
    /// never had any to a piece of memory that had (a shared `anon_vma`): /proc tells no
    /// difference.
    pub fork_per_mapping: Estimate,
    /// Added by each mapping with written pages, beside their entries. The interval is from one
    /// alone to a piece of larger memory.
    pub fork_per_written_mapping: Estimate,
    /// Added by each page table that maps next to nothing, in the caller: a fork makes one of its
    /// own for it. `None` where there was no room to measure it.
    pub fork_per_table: Option<Estimate>,
    /// Taking down each copied entry, in the child (at exec or exit).
    pub teardown_per_entry: Estimate,
    /// Write-protect fault that copies a 4 KiB page, the sharer still alive.
    pub fault_copied: Estimate,
    /// Write-protect fault that finds itself the last owner.
    pub fault_reused: Estimate,
    /// posix_spawn of a small program, time in the caller.
    pub spawn: Estimate,
    /// A small program from its creation to its end, CPU time of the child: exec, dynamic loading
    /// and exit.
    pub program: Estimate,
    /// Added by `sh -c` in front of a program, until the program has ended.
    pub shell: Estimate,
    /// An execve that fails because the file is missing.
    pub failed_exec: Estimate,
    /// A system call that does next to nothing. The interval is from a refused read to getppid.
    pub system_call: Estimate,
    /// A close of a descriptor that is not open.
    pub unused_close: Estimate,
    /// A clock read as a system call, less one by the vDSO, if there is one.
    pub clock_call: Estimate,
    /// rt_sigprocmask.
    pub sigprocmask: Estimate,
    /// swapcontext, its mask call and all; `None` where the C library has none.
    pub swapcontext: Option<Estimate>,
    /// getcontext (and setcontext), the same.
    pub getcontext: Option<Estimate>,
    /// stat of /etc/localtime (or its failing).
    pub stat_localtime: Estimate,
    /// stat of a file that is missing. The interval is from a short path to a deep one.
    pub missing_stat: Estimate,
    /// open of such a file.
    pub missing_open: Estimate,
    /// readlink of a directory, which is none.
    pub readlink_of_none: Estimate,
}

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
/// Large enough for a slope, small enough for any machine.
const BLOCK: usize = 32 << 20;
/// As many more samples are taken of what a busy machine disturbs.
const MOST: usize = 10 * REPETITIONS;

impl CostModel {
    /// Measures the prices.
    ///
    /// # Errors
    /// If memory or a child process cannot be had.
    pub fn calibrate() -> io::Result<Self> {
        let mut calls = CallSamples::default();
        calls.take();
        let block = Block::new(BLOCK, libc::MADV_NOHUGEPAGE)?;
        let forks = Forks::measure(&block)?;
        calls.take();
        let (fault_copied, fault_reused) = faults(&block)?;
        drop(block);
        calls.take();
        let entries = (BLOCK / PAGE) as f64;
        let fork_per_entry = forks.caller_added.times(1.0 / entries);
        let fork_per_huge_page = per_huge_page(fork_per_entry)?;
        calls.take();
        let (spawn, program) = spawn_and_program()?;
        calls.take();
        let (fork_per_mapping, fork_per_written_mapping) = per_mapping(fork_per_entry)?;
        calls.take();
        let shell = shell_added()?;
        calls.take();
        let fork_per_table = per_table(fork_per_entry).ok();
        let create = create_without_copy()?;
        calls.take();
        let calls = calls.prices();
        Ok(Self {
            fork_fixed: forks.bare,
            create,
            fork_per_entry,
            fork_per_huge_page,
            fork_per_mapping,
            fork_per_written_mapping,
            fork_per_table,
            teardown_per_entry: forks.child_added.times(1.0 / entries),
            fault_copied,
            fault_reused,
            spawn,
            program,
            shell,
            failed_exec: calls.failed_exec,
            system_call: Estimate {
                low: calls.refused_read.low.min(calls.getuid.low),
                high: calls.getppid.high.max(calls.getuid.high),
                ..calls.getuid
            },
            unused_close: calls.close,
            clock_call: beyond_vdso(calls.clock, calls.clock_by_vdso),
            sigprocmask: calls.sigprocmask,
            #[cfg(target_env = "gnu")]
            swapcontext: Some(calls.swapcontext),
            #[cfg(target_env = "gnu")]
            getcontext: Some(calls.getcontext),
            #[cfg(not(target_env = "gnu"))]
            swapcontext: None,
            #[cfg(not(target_env = "gnu"))]
            getcontext: None,
            stat_localtime: calls.stat_localtime,
            missing_stat: by_depth([calls.stat_short, calls.stat_usual, calls.stat_deep]),
            missing_open: by_depth([calls.open_short, calls.open_usual, calls.open_deep]),
            readlink_of_none: by_depth([calls.readlink_short, calls.readlink_usual, calls.readlink_deep]),
        })
    }

    /// The price of a fork that the preloaded library speculates, as multiples of a spawn. Measured
    /// from 16 to 256 MiB: fork, exec and wait took 570 us where those of vfork took 360, and a
    /// spawn cost its caller 97; the calls alone took 205 and 46.
    pub(crate) fn speculation(&self) -> Speculation {
        const IN_CALLER: f64 = 2.6;
        const IN_ALL: f64 = 3.2;
        Speculation { in_caller: self.spawn.times(IN_CALLER), in_all: self.spawn.times(IN_ALL) }
    }

    /// The cost of a full fork of so many entries and huge pages to its caller. Huge pages of
    /// unknown price count as free.
    pub(crate) fn fork(&self, entries: u64, huge_pages: u64) -> Estimate {
        self.fork_fixed
            .plus(self.fork_per_entry.times(entries as f64))
            .plus(self.fork_per_huge_page.unwrap_or_default().times(huge_pages as f64))
    }

    /// What page tables add to a fork beside their entries: `sparse` as [`sparse_tables`] has it.
    pub(crate) fn tables(&self, sparse: u64) -> Estimate {
        let each = self.fork_per_table.unwrap_or_default();
        beyond(each.times(sparse as f64), sparse, TABLES)
    }

    /// What mappings add to a fork, beside those that each process has.
    pub(crate) fn mappings(&self, count: MappingCount) -> Estimate {
        let MappingCount { all, written } = count.beyond_usual();
        let bare = self.fork_per_mapping.times((all - written) as f64);
        // Two sums of one cause: their errors do not cancel each other.
        let sum = bare.with(self.fork_per_written_mapping.times(written as f64));
        // What does not fit the processor's caches takes longer: of 4,000 each 1.1 times as long,
        // of 16,000 1.3 times, and of 33,000 and 60,000 1.4 times.
        let doublings = (all as f64 / MAPPINGS as f64).log2().clamp(0.0, 4.0);
        let mid = sum.mid * (1.0 + 0.1 * doublings);
        beyond(Estimate { mid, high: sum.high.max(mid), ..sum }, all, MAPPINGS)
    }
}

/// The price of a fork that the preloaded library speculates, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speculation {
    /// To its caller.
    pub(crate) in_caller: Estimate,
    /// With the child's exec.
    pub(crate) in_all: Estimate,
}

impl Speculation {
    /// The same in a process whose mappings take so many nanoseconds to look at.
    pub(crate) fn looking(self, ns: f64) -> Self {
        let looking = Estimate::exact(ns);
        Self { in_caller: self.in_caller.plus(looking), in_all: self.in_all.plus(looking) }
    }
}

/// A fork in a process of a given shape, measured here.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ForkProbe {
    /// Time of fork() in its caller, nanoseconds.
    pub fork: Estimate,
    /// The share of the memory that was measured; the rest is extrapolated. 1 if all the memory
    /// could be had.
    pub scale: f64,
}

/// Measures a fork with `small` bytes in 4 KiB pages and `huge` bytes in transparent huge pages. It
/// forks this process and gives the memory back afterwards. If a quarter of the free memory does
/// not suffice, it measures a smaller fork and extrapolates.
///
/// # Errors
/// If memory or a child process cannot be had.
pub fn probe_fork(small: u64, huge: u64) -> io::Result<ForkProbe> {
    let available = available_memory().unwrap_or(1 << 30) / 4;
    let wanted = small + huge;
    let scale = if wanted > available { available as f64 / wanted as f64 } else { 1.0 };
    let block = |bytes: u64, advice| {
        let bytes = (bytes as f64 * scale) as usize / HUGE * HUGE;
        (bytes > 0).then(|| Block::new(bytes, advice)).transpose()
    };
    let small = block(small, libc::MADV_NOHUGEPAGE)?;
    let huge = block(huge, libc::MADV_HUGEPAGE)?;
    let blocks: Vec<&Block> = small.iter().chain(&huge).collect();
    let forks = Forks::measure_with(&blocks)?;
    Ok(ForkProbe { fork: forks.bare.plus(forks.caller_added.times(1.0 / scale)), scale })
}

fn available_memory() -> Option<u64> {
    procfs::bytes_of(&procfs::read("/proc/meminfo")?, "MemAvailable")
}

/// Written anonymous memory of one page kind.
struct Block {
    raw: *mut libc::c_void,
    length: usize,
    start: *mut u8,
    bytes: usize,
    /// From each written page to the next.
    step: usize,
}

impl Block {
    fn new(bytes: usize, advice: libc::c_int) -> io::Result<Self> {
        Self::with_pages(bytes, advice, PAGE)
    }

    /// One in which a page is written every `step` bytes.
    fn with_pages(bytes: usize, advice: libc::c_int, step: usize) -> io::Result<Self> {
        let block = Self::reserve(bytes, libc::PROT_READ | libc::PROT_WRITE, step)?;
        block.advise(advice)?;
        block.write(bytes);
        Ok(block)
    }

    /// One of which nothing is written yet.
    fn reserve(bytes: usize, protection: libc::c_int, step: usize) -> io::Result<Self> {
        let length = bytes + HUGE;
        // SAFETY: a fresh private mapping; no address is asked for.
        let raw = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if raw == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = raw.map_addr(|address| address.next_multiple_of(HUGE)).cast::<u8>();
        Ok(Self { raw, length, start, bytes, step })
    }

    /// Writes a byte to each page in use of the first `bytes`.
    fn write(&self, bytes: usize) {
        for offset in (0..bytes.min(self.bytes)).step_by(self.step) {
            // SAFETY: the offset is within the block.
            let at = unsafe { self.start.add(offset) };
            // SAFETY: `at` is mapped, writable, ours alone, and a byte has no invalid values;
            // volatile, because the write is for its fault.
            unsafe { at.write_volatile(at.addr() as u8) };
        }
    }

    /// Whether children get a copy of it.
    fn inherit(&self, inherited: bool) -> io::Result<()> {
        self.advise(if inherited { libc::MADV_DOFORK } else { libc::MADV_DONTFORK })
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: `start..start + bytes` lies within the mapping, which is HUGE longer. The advices
        // of this file change no content.
        if unsafe { libc::madvise(self.start.cast(), self.bytes, advice) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Protects pages of it.
    fn protect(&self, offset: usize, bytes: usize, protection: libc::c_int) -> io::Result<()> {
        let at = self.start.wrapping_add(offset);
        // SAFETY: the range lies within our mapping, and nobody holds a reference into it.
        if unsafe { libc::mprotect(at.cast(), bytes, protection) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Bytes in huge pages by the kernel's count. The kernel follows the advice only while it has
    /// free huge pages.
    fn huge_bytes(&self) -> usize {
        let mappings = Mapping::of(std::process::id()).unwrap_or_default();
        let start = self.start.addr() as u64;
        mappings.iter().find(|one| one.range.start == start).map_or(0, |one| one.anon_huge as usize)
    }
}

/// The price of a huge page at a fork. The cost of memory that stayed in small pages is subtracted.
/// `None` if less than half became huge, or MADV_HUGEPAGE is refused because THP is not built in.
fn per_huge_page(per_entry: Estimate) -> io::Result<Option<Estimate>> {
    let Ok(block) = Block::new(BLOCK, libc::MADV_HUGEPAGE) else { return Ok(None) };
    let huge = block.huge_bytes().min(BLOCK);
    if huge < BLOCK / 2 {
        return Ok(None);
    }
    let small_entries = ((BLOCK - huge) / PAGE) as f64;
    let added = Forks::measure(&block)?.caller_added.minus(per_entry.times(small_entries)).at_least_zero();
    Ok(Some(added.times(HUGE as f64 / huge as f64)))
}

/// Mappings, and page tables, that a price is measured with.
const MAPPINGS: usize = 2048;
const TABLES: usize = 512;
/// Entries of a page table.
const ENTRIES: usize = HUGE / PAGE;

/// Page tables that a fork copies and that are nearly empty: what is left of a process's tables
/// without those that its pages would fill, the one below each huge page, and the usual ones.
pub(crate) fn sparse_tables(memory: &CallerMemory, huge_pages: u64) -> u64 {
    /// Of the upper levels, and of the C library, the stack and other small mappings. A small
    /// program has 16, Python 40.
    const USUAL: u64 = 64;
    // Tables of files are not copied, and their pages lie close together.
    let pages = (memory.resident() + memory.swap) / PAGE as u64;
    let small = pages.saturating_sub(huge_pages * ENTRIES as u64);
    let filled = small.div_ceil(ENTRIES as u64) + huge_pages + USUAL;
    (memory.page_tables / PAGE as u64).saturating_sub(filled)
}

/// A sum of more than was measured. What was measured fits the processor's caches, and many times
/// as much does not: 40,000 mappings took 1.2 to 1.5 times as long each.
fn beyond(sum: Estimate, count: u64, measured: usize) -> Estimate {
    const SLOWER: f64 = 1.6;
    if count > measured as u64 { Estimate { high: sum.high * SLOWER, ..sum } } else { sum }
}

/// The price of a page table at a fork: of a block with one page in each.
fn per_table(per_entry: Estimate) -> io::Result<Estimate> {
    let block = Block::with_pages(TABLES * HUGE, libc::MADV_NOHUGEPAGE, HUGE)?;
    let copied = per_entry.times(TABLES as f64);
    let added = Forks::measure(&block)?.caller_added.minus(copied).at_least_zero();
    Ok(added.times(1.0 / TABLES as f64))
}

/// The prices of a mapping without and with written pages at a fork.
///
/// The forks without the mappings have none of them. Memory that children lack (`MADV_DONTFORK`) is
/// no measure. Linux 6.8 and later first copy the whole tree of mappings. Then they take out each
/// mapping that the child lacks, and that costs more than a copy (kernel/fork.c, `dup_mmap`).
fn per_mapping(per_entry: Estimate) -> io::Result<(Estimate, Estimate)> {
    let time = |pieces: Option<&Pieces>| {
        if let Some(pieces) = pieces {
            pieces.write_again();
        }
        let (pid, took) = fork_child(None)?;
        reap(pid)?;
        io::Result::Ok(took)
    };
    let mut samples: [Vec<f64>; 4] = Default::default();
    for round in 0..=REPETITIONS {
        let without = time(None)?;
        let mut added = [0.0; 4];
        for (shares, added) in [false, true].into_iter().zip(added.chunks_exact_mut(2)) {
            let mut pieces = Pieces::new(shares)?;
            added[0] = time(Some(&pieces))? - without;
            pieces.write();
            added[1] = time(Some(&pieces))? - without;
        }
        if round > 0 {
            samples.iter_mut().zip(added).for_each(|(samples, added)| samples.push(added));
        }
    }
    let [bare, written, bare_sharing, written_sharing] =
        samples.map(|mut samples| Estimate::of_samples(&mut samples).times(1.0 / MAPPINGS as f64));
    // Every other piece was written to.
    let of_written = |all: Estimate, bare: Estimate| {
        let half = 0.5;
        all.minus(bare.times(half)).times(1.0 / half).minus(per_entry)
    };
    let written = of_written(written, bare);
    let written_sharing = of_written(written_sharing, bare_sharing);
    Ok((bare.or(bare_sharing).at_least_zero(), written.or(written_sharing).at_least_zero()))
}

/// Memory in mappings of a page each, of which every other may be written to.
struct Pieces {
    /// With a guard on both sides, which keeps the kernel from joining it with its neighbours.
    block: Block,
    written: bool,
}

impl Pieces {
    /// `share`: the memory was written to before it was cut into pieces.
    fn new(share: bool) -> io::Result<Self> {
        let bytes = MAPPINGS * PAGE;
        let mut block = Block::reserve(bytes + 2 * HUGE, libc::PROT_NONE, 2 * PAGE)?;
        (block.start, block.bytes) = (block.start.wrapping_add(HUGE), bytes);
        block.protect(0, bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        block.advise(libc::MADV_NOHUGEPAGE)?;
        if share {
            block.write(1);
        }
        for odd in (PAGE..bytes).step_by(2 * PAGE) {
            block.protect(odd, PAGE, libc::PROT_NONE)?;
        }
        Ok(Self { block, written: false })
    }

    fn write(&mut self) {
        self.written = true;
        self.write_again();
    }

    /// All pages writable again, as in a program that uses them.
    fn write_again(&self) {
        if self.written {
            self.block.write(self.block.bytes);
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody holds a reference into it.
        unsafe { libc::munmap(self.raw, self.length) };
    }
}

/// CPU time of fork() in the caller, and of the whole child. Not wall time, because a busy machine
/// preempts both.
struct Forks {
    /// In the caller, with next to no memory to copy.
    bare: Estimate,
    /// The part of a block in the caller.
    caller_added: Estimate,
    /// The part of a block in the child, which tears it down.
    child_added: Estimate,
}

fn since(begin: Instant) -> f64 {
    begin.elapsed().as_nanos() as f64
}

/// Forks a child that exits as soon as it may read from `wait_for`, or at once.
pub(crate) fn fork_child(wait_for: Option<libc::c_int>) -> io::Result<(libc::pid_t, f64)> {
    let begin = cpu_time();
    // SAFETY: the child makes system calls only until it exits: it is safe whatever other threads
    // held.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        if let Some(fd) = wait_for {
            let mut byte = 0u8;
            // SAFETY: one byte of the child's own stack; end of file when the parent closes its
            // end.
            unsafe { libc::read(fd, ptr::from_mut(&mut byte).cast(), 1) };
        }
        // SAFETY: runs nothing of the parent's on the way out.
        unsafe { libc::_exit(0) };
    }
    let took = cpu_time() - begin;
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok((pid, took)) }
}

/// CPU time of this thread, nanoseconds.
fn cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Waits for a child; its CPU time in nanoseconds.
pub(crate) fn reap(pid: libc::pid_t) -> io::Result<f64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: a child of ours that nobody else waits for; no status is asked for, and `usage`
        // is a whole rusage.
        if unsafe { libc::wait4(pid, ptr::null_mut(), 0, usage.as_mut_ptr()) } == pid {
            // SAFETY: zeroed, and all integers: initialised whether or not the kernel wrote it.
            let usage = unsafe { usage.assume_init() };
            let ns = |t: libc::timeval| t.tv_sec as f64 * 1e9 + t.tv_usec as f64 * 1e3;
            return Ok(ns(usage.ru_utime) + ns(usage.ru_stime));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

impl Forks {
    fn measure(block: &Block) -> io::Result<Self> {
        Self::measure_with(&[block])
    }

    /// Measures with and without the blocks in turns and takes the differences of neighbours.
    /// Measured one after the other, a machine that was slower at first made copying appear free,
    /// and then no fork was a finding.
    fn measure_with(blocks: &[&Block]) -> io::Result<Self> {
        let (mut bare, mut in_caller, mut in_child) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=REPETITIONS {
            let once = |inherited: bool| {
                for block in blocks {
                    block.inherit(inherited)?;
                    if inherited {
                        block.write(block.bytes); // all pages writable again, as in a program that uses them
                    }
                }
                let (pid, took) = fork_child(None)?;
                io::Result::Ok((took, reap(pid)?))
            };
            let (without, with) = if round % 2 == 0 {
                let without = once(false)?;
                (without, once(true)?)
            } else {
                let with = once(true)?;
                (once(false)?, with)
            };
            if round > 0 {
                bare.push(without.0);
                in_caller.push(with.0 - without.0);
                in_child.push(with.1 - without.1);
            }
        }
        // The next measurement needs the blocks copied again.
        for block in blocks {
            block.inherit(true)?;
        }
        Ok(Self {
            bare: Estimate::of_samples(&mut bare),
            caller_added: Estimate::of_samples(&mut in_caller).at_least_zero(),
            child_added: Estimate::of_samples(&mut in_child).at_least_zero(),
        })
    }
}

/// Faults of writes after a fork: with the child alive (copied), and with it gone (reused).
fn faults(block: &Block) -> io::Result<(Estimate, Estimate)> {
    const WRITTEN: usize = 4 << 20;
    let pages = (WRITTEN / PAGE) as f64;
    let (mut copied, mut reused, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let begin = cpu_time();
        block.write(WRITTEN);
        plain.push((cpu_time() - begin) / pages);

        let (reader, writer) = io::pipe()?;
        let (pid, _) = fork_child(Some(std::os::fd::AsRawFd::as_raw_fd(&reader)))?;
        let begin = cpu_time();
        block.write(WRITTEN);
        copied.push((cpu_time() - begin) / pages);
        // One byte releases the child. End of file would not: the child holds the writing end too.
        let told = io::Write::write_all(&mut &writer, &[0]);
        reap(pid)?;
        told?;

        let (pid, _) = fork_child(None)?;
        reap(pid)?;
        let begin = cpu_time();
        block.write(WRITTEN);
        reused.push((cpu_time() - begin) / pages);
    }
    let plain = Estimate::of_samples(&mut plain);
    Ok((
        Estimate::of_samples(&mut copied).minus(plain).at_least_zero(),
        Estimate::of_samples(&mut reused).minus(plain).at_least_zero(),
    ))
}

extern "C" fn nothing(_: *mut libc::c_void) -> libc::c_int {
    0
}

/// CPU time in the caller of a clone that shares the memory. The child returns at once.
fn create_without_copy() -> io::Result<Estimate> {
    // The child's stack, in our memory; its top is aligned as the ABI requires.
    let mut stack = vec![0u128; 4096];
    let mut samples = Vec::new();
    for round in 0..=REPETITIONS {
        let top = stack.as_mut_ptr_range().end;
        let begin = cpu_time();
        // SAFETY: `nothing` touches no memory but its stack, which is ours until the child has been
        // waited for below, and what glibc's clone does after it is to exit.
        let pid =
            unsafe { libc::clone(nothing, top.cast(), libc::CLONE_VM | libc::SIGCHLD, ptr::null_mut()) };
        let took = cpu_time() - begin;
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        reap(pid)?;
        if round > 0 {
            samples.push(took);
        }
    }
    Ok(Estimate::of_samples(&mut samples))
}

/// While it lasts, this thread and its children run before ordinary work, if this user may have
/// that (`CAP_SYS_NICE`). On a busy machine each start of a program would wait for a processor, up
/// to a hundred times as long as it takes.
struct Ahead;

impl Ahead {
    fn begin() -> Option<Ahead> {
        // SAFETY: asks about the calling thread.
        let is_ordinary = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
        (is_ordinary && set_scheduler(libc::SCHED_FIFO, 1)).then(|| Ahead)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // To become ordinary needs no right.
        set_scheduler(libc::SCHED_OTHER, 0);
    }
}

/// Of the calling thread.
fn set_scheduler(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: all zeros are a value; musl's has further fields.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: reads the value.
    unsafe { libc::sched_setscheduler(0, policy, &raw const param) == 0 }
}

/// Time in posix_spawn, which the standard library uses for a plain command. Descriptors are
/// inherited: /bin/true uses none, and /dev/null may be closed to us.
///
/// Also the CPU time of the child, which the kernel tells when it is reaped.
fn spawn_and_program() -> io::Result<(Estimate, Estimate)> {
    let _ahead = Ahead::begin();
    let (mut samples, mut programs) = (Vec::new(), Vec::new());
    // The first is to find everything in memory.
    Command::new("/bin/true").status()?;
    while !estimate::agree(&mut samples) && samples.len() < MOST {
        let mut command = Command::new("/bin/true");
        let begin = Instant::now();
        let child = command.spawn()?;
        samples.push(since(begin));
        programs.push(reap(child.id().cast_signed())?);
    }
    Ok((Estimate::of_disturbed(&mut samples), Estimate::of_samples(&mut programs)))
}

/// `sh -c /bin/true` less /bin/true, interleaved.
fn shell_added() -> io::Result<Estimate> {
    let _ahead = Ahead::begin();
    let (mut direct, mut shell) = (Vec::new(), Vec::new());
    let time = |command: &mut Command| {
        let begin = Instant::now();
        command.status().map(|_| since(begin))
    };
    let mut line = Command::new("/bin/sh");
    line.args(["-c", "/bin/true"]);
    time(&mut line)?;
    while !(estimate::agree(&mut direct) && estimate::agree(&mut shell)) && shell.len() < MOST {
        direct.push(time(&mut Command::new("/bin/true"))?);
        shell.push(time(&mut line)?);
    }
    Ok(Estimate::of_disturbed(&mut shell).minus(Estimate::of_disturbed(&mut direct)).at_least_zero())
}

/// Nanoseconds for each call, of some hundreds in a row.
fn repeated(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 300;
    // The first finds everything in the caches.
    call();
    let begin = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    since(begin) / f64::from(CALLS)
}

/// Declares the calls whose prices are measured, each with the function that measures it once.
macro_rules! calls {
    ($($(#[$attribute:meta])* $name:ident = $measure:expr,)*) => {
        /// Samples of the price of each call. They are taken in rounds, between the other
        /// measurements: of seven in a row all may be disturbed alike, and then agreed.
        #[derive(Default)]
        struct CallSamples {
            $($(#[$attribute])* $name: Vec<f64>,)*
        }

        struct CallPrices {
            $($(#[$attribute])* $name: Estimate,)*
        }

        impl CallSamples {
            /// A round.
            fn take(&mut self) {
                /// Samples in a row.
                const SAMPLES: usize = 2;
                for _ in 0..SAMPLES {
                    $($(#[$attribute])* self.$name.push($measure);)*
                }
            }

            fn prices(mut self) -> CallPrices {
                CallPrices { $($(#[$attribute])* $name: Estimate::of_calls(&mut self.$name),)* }
            }
        }
    };
}

/// Where a path is looked for: directories that each machine has.
const SHORT: &CStr = c"/usr";
const USUAL: &CStr = c"/usr/lib/..";
const DEEP: &CStr = c"/usr/lib/../lib/../lib/../lib/../lib";

calls! {
    getuid = by_number(libc::SYS_getuid),
    getppid = by_number(libc::SYS_getppid),
    refused_read = refused_read(),
    close = close_of_none(),
    clock = clock_as_call(),
    clock_by_vdso = clock_by_vdso(),
    sigprocmask = sigprocmask(),
    #[cfg(target_env = "gnu")]
    swapcontext = ucontext::swapcontext(),
    #[cfg(target_env = "gnu")]
    getcontext = ucontext::getcontext(),
    failed_exec = failed_exec(),
    stat_localtime = stat(c"/etc/localtime"),
    stat_short = stat(&missing_below(SHORT)),
    stat_usual = stat(&missing_below(USUAL)),
    stat_deep = stat(&missing_below(DEEP)),
    open_short = missing_open(SHORT),
    open_usual = missing_open(USUAL),
    open_deep = missing_open(DEEP),
    readlink_short = readlink_of_none(SHORT),
    readlink_usual = readlink_of_none(USUAL),
    readlink_deep = readlink_of_none(DEEP),
}

/// One without arguments and without effects.
fn by_number(number: libc::c_long) -> f64 {
    repeated(|| {
        // SAFETY: the callers' numbers are of calls without arguments and without effects.
        unsafe { libc::syscall(number) };
    })
}

fn refused_read() -> f64 {
    let mut byte = 0u8;
    repeated(|| {
        // SAFETY: no descriptor has this number, so nothing is read.
        unsafe { libc::syscall(libc::SYS_read, -1, &raw mut byte, 1) };
    })
}

fn close_of_none() -> f64 {
    repeated(|| {
        // SAFETY: no descriptor has this number.
        unsafe { libc::syscall(libc::SYS_close, -1) };
    })
}

fn clock_as_call() -> f64 {
    let mut time = std::mem::MaybeUninit::<libc::timespec>::uninit();
    repeated(|| {
        // SAFETY: the kernel writes one timespec of ours.
        unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    })
}

fn clock_by_vdso() -> f64 {
    let mut time = std::mem::MaybeUninit::<libc::timespec>::uninit();
    repeated(|| {
        // SAFETY: it writes one timespec of ours.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    })
}

/// The exec fails when it opens the file, before it touches the process.
fn failed_exec() -> f64 {
    let path = c"/proc/self/forkless-calibration-no-such-file";
    let argv = [path.as_ptr(), ptr::null()];
    let environment: [*const libc::c_char; 1] = [ptr::null()];
    repeated(|| {
        // SAFETY: the arrays end in null, their strings in NUL; /proc never has that file, so the
        // call returns.
        unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
    })
}

/// With both sets, as swapcontext and sigsetjmp make it; the mask stays what it is.
fn sigprocmask() -> f64 {
    let (mut mask, mut old) = (0u64, 0u64);
    // SAFETY: no new set; the old one is written to eight bytes of ours.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0, &raw mut mask, 8) };
    repeated(|| {
        // SAFETY: both sets are eight bytes of ours.
        unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut old, 8)
        };
    })
}

/// What a read of the clock by a call costs more than by the vDSO. Where the clock source has no
/// vDSO (hpet, acpi_pm, xen), libc's function makes the call, too, and all of it is the price.
fn beyond_vdso(call: Estimate, by_libc: Estimate) -> Estimate {
    if by_libc.mid * 2.0 < call.mid { call.minus(by_libc).at_least_zero() } else { call }
}

/// A call by a path: its price grows with the directories that the kernel walks through.
fn by_depth([short, usual, deep]: [Estimate; 3]) -> Estimate {
    Estimate { low: short.low.min(usual.low), mid: usual.mid, high: deep.high.max(usual.high) }
}

/// A path below this directory at which there is nothing.
fn missing_below(directory: &CStr) -> CString {
    let path = [directory.to_bytes(), b"/forkless-calibration-no-such-file"].concat();
    CString::new(path).unwrap_or_default()
}

fn stat(path: &CStr) -> f64 {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    repeated(|| {
        // SAFETY: the path ends in NUL, and the kernel writes at most one stat structure.
        unsafe { libc::stat(path.as_ptr(), status.as_mut_ptr()) };
    })
}

fn missing_open(directory: &CStr) -> f64 {
    let path = missing_below(directory);
    repeated(|| {
        // SAFETY: the path ends in NUL.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if file >= 0 {
            // SAFETY: somebody has made the file; the descriptor is ours.
            unsafe { libc::close(file) };
        }
    })
}

fn readlink_of_none(directory: &CStr) -> f64 {
    let mut target = [0u8; 16];
    repeated(|| {
        // SAFETY: the path ends in NUL, and the kernel writes at most 16 bytes of ours.
        unsafe { libc::readlink(directory.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_ordered_as_physics_has_them() {
        // Another program's turn on the processor can spoil one calibration, and not each.
        const ATTEMPTS: usize = 5;
        let mut disorders = Vec::new();
        for _ in 0..ATTEMPTS {
            let model = CostModel::calibrate().expect("memory and children can be had");
            match disorder(&model) {
                None => return,
                Some(what) => disorders.push((what, model)),
            }
        }
        panic!("{disorders:#?}");
    }

    /// The first rule that a calibrated model breaks.
    fn disorder(model: &CostModel) -> Option<&'static str> {
        let least = model.system_call.low / 2.0;
        let is_call = |price: Estimate| price.mid > least;
        let table = model.fork_per_table.expect("room for a GiB of addresses");
        let rules = [
            ("an entry costs time", model.fork_per_entry.mid > 0.0),
            ("a creation is a part of a fork", (1.0..model.fork_fixed.high).contains(&model.create.mid)),
            ("a fault that copies takes longer", model.fault_copied.high >= model.fault_reused.low),
            // Calls with a path have prices of their own, and answering.rs chooses among them.
            ("a missing file costs time", model.missing_stat.mid > 0.0 && model.missing_open.mid > 0.0),
            ("no link costs time", model.readlink_of_none.mid > 0.0),
            // Less would be of memory that no child shared.
            ("a fault enters the kernel", is_call(model.fault_reused) && is_call(model.fault_copied)),
            (
                "a mapping costs time, and one that was written to costs more",
                model.fork_per_mapping.mid > 0.0
                    && model.fork_per_written_mapping.mid > model.fork_per_mapping.low,
            ),
            (
                "a price of calls has an interval",
                [model.system_call, model.unused_close, model.missing_stat, model.sigprocmask]
                    .iter()
                    .all(|price| price.low < price.mid && price.mid < price.high),
            ),
            ("a clock that is read by a call costs time", model.clock_call.mid > 0.0),
            ("starts and calls cost time", model.spawn.mid > 0.0 && model.system_call.mid > 0.0),
            ("an exec is more than a creation", model.program.mid > model.create.mid),
            (
                "a switch makes a system call",
                model.swapcontext.is_none_or(|switch| switch.mid > model.system_call.low),
            ),
            ("huge pages are cheaper", model.fork(262_144, 0).mid > model.fork(0, 512).mid),
            ("a table is a page to allocate", table.mid > model.fork_per_entry.mid),
        ];
        rules.into_iter().find(|(_, holds)| !holds).map(|(rule, _)| rule)
    }

    /// Regression: without a vDSO for the clock source the price was next to 0, and a program that
    /// reads the clock all the time was no finding.
    #[test]
    fn a_clock_without_a_vdso_has_the_price_of_its_call() {
        let price = |mid: f64| Estimate { low: mid - 10.0, mid, high: mid + 10.0 };
        assert_eq!(beyond_vdso(price(200.0), price(30.0)).mid, 170.0);
        assert_eq!(beyond_vdso(price(1500.0), price(1490.0)), price(1500.0));
    }

    /// A page in each of 100,000 tables was forked in 179 ms, where 11 were predicted.
    #[test]
    fn tables_with_a_page_each_are_told_from_full_ones() {
        let memory = |anon_pages: u64, file_pages: u64, tables: u64| CallerMemory {
            anon: anon_pages * 4096,
            file: file_pages * 4096,
            page_tables: tables * 4096,
            ..CallerMemory::default()
        };
        assert_eq!(sparse_tables(&memory(10_240, 500, 10_240 + 64), 0), 10_240 - 21);
        assert_eq!(sparse_tables(&memory(512 * 1000, 512 * 20, 1020 + 30), 0), 0, "full ones");
        assert_eq!(sparse_tables(&memory(512 * 1000, 0, 1000 + 30), 1000), 0, "of huge pages");
        assert_eq!(sparse_tables(&memory(100, 2000, 40), 0), 0, "a small program");
        let price = Estimate { low: 1.0, mid: 2.0, high: 3.0 };
        let model = CostModel { fork_per_table: Some(price), ..CostModel::default() };
        assert_eq!(model.tables(10), price.times(10.0));
        assert!(model.tables(100_000).high > 300_000.0 && model.tables(100_000).mid == 200_000.0);
    }
}
