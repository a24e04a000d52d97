//! The burden a measured parent carries: memory it has written, descriptors it holds open. Threads
//! are the business of the suite that uses them. Everything is given back when the value is
//! dropped.

#![expect(unsafe_code, reason = "mmap, madvise and rlimits")]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use crate::error::Error;
use crate::machine::page_size;
use crate::memory;
use crate::page_kinds::Pages;

#[cfg(target_os = "linux")]
#[path = "parent/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "parent/elsewhere.rs"]
mod system;

/// Binds what calls it to the given processors: the thread, on FreeBSD the process; the threads it
/// will start, and all children.
///
/// # Errors
/// [`Error::Missing`] when none of them exists or may be used, and on macOS, which binds nothing;
/// [`Error::Spec`] for a number that no processor can have.
pub fn pin(cpus: &[usize]) -> Result<(), Error> {
    system::pin(cpus)
}

/// Why the last system call did not bind to these processors.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
fn cannot_run_on(cpus: &[usize]) -> Error {
    let reason = std::io::Error::last_os_error();
    let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    Error::Missing(format!(
        "cannot run on processor {}: {reason} (`taskset -p $$` and `nproc` tell which there are)",
        list.join(",")
    ))
}

/// Written anonymous private memory.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    length: usize,
    mapped: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps `bytes` and writes one byte to every base page, after asking whether that is safe.
    ///
    /// # Errors
    /// [`Error::Missing`] when so much memory cannot be taken safely.
    pub(crate) fn touched(bytes: u64, pages: Pages) -> Result<Memory, Error> {
        memory::require(bytes)?;
        let mut memory = Memory::mapped(bytes, pages)?;
        memory.touch(memory.length);
        Ok(memory)
    }

    /// Maps `bytes` without touching them.
    ///
    /// # Errors
    /// When the address space or the commit limit does not allow it.
    pub fn mapped(bytes: u64, pages: Pages) -> Result<Memory, Error> {
        let too_large = || Error::Spec(format!("{bytes} bytes do not fit this machine's address space"));
        // Zero bytes cannot be mapped; a page stands for none.
        let length = usize::try_from(bytes.max(1)).map_err(|_| too_large())?;
        // Aligned to what the pages need, and to 2 MiB so that transparent ones fit.
        let unit = usize::try_from(pages.size()).map_err(|_| too_large())?.max(2 << 20);
        let length = length.checked_next_multiple_of(unit).ok_or_else(too_large)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | system::map_flags(pages)?;
        // SAFETY: a new private anonymous mapping at an address the kernel chooses touches no
        // existing memory.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            let what = format!("map {} KiB of {pages} pages", bytes.div_ceil(1024));
            // A limit that is not among those asked for beforehand (`ulimit -v`), or
            // vm.overcommit_memory.
            return Err(match error.raw_os_error() {
                Some(libc::ENOMEM) => {
                    Error::Missing(format!("cannot {what}: {error}: ask for less, or raise the limit"))
                }
                _ => Error::io(what)(error),
            });
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(Error::Spec("the kernel mapped memory at address 0".into()));
        };
        let memory =
            Memory { start, length: usize::try_from(bytes).map_err(|_| too_large())?, mapped: length };
        // SAFETY: the range is the mapping made above.
        unsafe { system::advise(start, length, pages) };
        Ok(memory)
    }

    /// The first byte.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes asked for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.length
    }

    /// Bytes of this mapping that huge pages of the PMD size back now, transparent or from a pool;
    /// `None` where the system (`/proc/self/smaps` on Linux) does not tell.
    #[must_use]
    pub fn huge_bytes(&self) -> Option<u64> {
        let first = self.start.as_ptr() as u64;
        system::huge_bytes(first, first + self.mapped as u64)
    }

    /// Writes one byte to every base page of the first `bytes`.
    pub fn touch(&mut self, bytes: usize) {
        let step = usize::try_from(page_size()).unwrap_or(4096);
        self.write((0..bytes.min(self.length)).step_by(step), 1);
    }

    /// Writes one byte to every base page of `parts` equal parts, a page of each in turn: so the
    /// pages of all parts lie alike in physical memory.
    #[cfg(target_os = "linux")]
    pub fn touch_in_turns(&mut self, parts: usize) {
        let step = usize::try_from(page_size()).unwrap_or(4096);
        let part = self.length / parts / step * step;
        self.write((0..part).step_by(step).flat_map(|page| (0..parts).map(move |one| one * part + page)), 1);
    }

    /// Lets forks copy only the first `bytes`, a multiple of the page size.
    ///
    /// # Errors
    /// When the kernel does not know `MADV_DONTFORK`.
    #[cfg(target_os = "linux")]
    pub fn fork_only(&mut self, bytes: usize) -> Result<(), Error> {
        let bytes = bytes.min(self.mapped);
        // SAFETY: the range is this value's own mapping; only what becomes of it in a fork changes.
        let whole = unsafe { libc::madvise(self.start.as_ptr().cast(), self.mapped, libc::MADV_DOFORK) };
        // SAFETY: at most one past the end of the mapping.
        let rest = unsafe { self.start.add(bytes) };
        // SAFETY: as above.
        let part = unsafe { libc::madvise(rest.as_ptr().cast(), self.mapped - bytes, libc::MADV_DONTFORK) };
        if whole != 0 || part != 0 { Err(Error::last_os("keep memory out of a fork")) } else { Ok(()) }
    }

    /// Writes `value` to one byte of every `stride`-th base page.
    pub fn write_every(&mut self, stride: u64, value: u8) {
        let step = usize::try_from(stride.saturating_mul(page_size())).unwrap_or(usize::MAX);
        self.write((0..self.length).step_by(step.max(1)), value);
    }

    fn write(&mut self, offsets: impl Iterator<Item = usize>, value: u8) {
        for offset in offsets {
            debug_assert!(offset < self.length);
            // SAFETY: callers give offsets below the mapping's length.
            let byte = unsafe { self.start.add(offset) };
            // SAFETY: the byte is inside a writable mapping that nothing else refers to. Volatile,
            // for the compiler would otherwise see that nobody reads it.
            unsafe { byte.write_volatile(value) };
        }
    }

    /// Has the kernel gather the memory into huge pages again; the milliseconds it took, or `None`
    /// where it cannot (`MADV_COLLAPSE`, Linux 6.1).
    pub(crate) fn collapse(&self) -> Option<f64> {
        let start = std::time::Instant::now();
        // SAFETY: the range is this value's own mapping.
        let collapsed = unsafe { system::collapse(self.start, self.mapped) };
        collapsed.then(|| start.elapsed().as_secs_f64() * 1e3)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, made in `mapped`, is unmapped once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

/// Descriptors held open, each its own open file, close-on-exec as well-kept programs open theirs.
#[derive(Debug)]
pub(crate) struct Descriptors {
    // Dropped before the limit goes back, as fields drop in order.
    _files: Vec<OwnedFd>,
    _limit: Option<RaisedLimit>,
}

impl Descriptors {
    /// Opens `/dev/null` until `count` descriptors are open, those of the program included, raising
    /// the soft limit if the hard one allows.
    ///
    /// # Errors
    /// [`Error::Missing`] when the hard limit on descriptors is lower.
    pub(crate) fn held(count: u64) -> Result<Descriptors, Error> {
        // The harness needs some for pipes and pidfds while it measures, times the threads.
        const SPARE: u64 = 512;
        let limit = RaisedLimit::at_least(count.saturating_add(SPARE))?;
        let entries = std::fs::read_dir(system::DESCRIPTORS);
        let open = entries.map_or(3, |entries| entries.count().saturating_sub(1)) as u64;
        let mut files = Vec::new();
        for _ in open..count {
            let file = File::open("/dev/null").map_err(Error::io("open /dev/null once more"))?;
            files.push(OwnedFd::from(file));
        }
        Ok(Descriptors { _files: files, _limit: limit })
    }
}

/// The soft limit on descriptors as it was, put back on drop.
#[derive(Debug)]
struct RaisedLimit {
    old: libc::rlimit,
}

impl RaisedLimit {
    fn at_least(wanted: u64) -> Result<Option<RaisedLimit>, Error> {
        let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `old` is writable memory of the right type.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut old) } != 0 {
            return Err(Error::last_os("read the limit on open descriptors"));
        }
        // Signed on FreeBSD; no system opens so many files.
        let wanted = libc::rlim_t::try_from(wanted).unwrap_or(libc::rlim_t::MAX);
        if old.rlim_cur >= wanted {
            return Ok(None);
        }
        let new = libc::rlimit { rlim_cur: wanted.min(old.rlim_max), rlim_max: old.rlim_max };
        // A few short of the spare ones is fine; being short of the asked-for ones is not.
        if new.rlim_cur + 256 < wanted {
            return Err(Error::Missing(format!(
                "{} open descriptors asked for, but the hard limit here is {}: ask for at most {}, or raise the limit \
                 (`ulimit -Hn`, as root)",
                wanted.saturating_sub(512),
                old.rlim_max,
                old.rlim_max.saturating_sub(256)
            )));
        }
        // SAFETY: `new` is a valid limit not above the hard one.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const new) } != 0 {
            return Err(Error::last_os("raise the soft limit on open descriptors"));
        }
        Ok(Some(RaisedLimit { old }))
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        // SAFETY: the limit was read from the kernel; lowering the soft limit is always allowed.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.old) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of this mapping that are in memory. Not the process's resident size: other tests
    /// allocate and free beside this one.
    fn resident(memory: &Memory) -> usize {
        let mut pages = vec![0_u8; memory.mapped.div_ceil(usize::try_from(page_size()).unwrap())];
        let start = memory.start.as_ptr().cast();
        // SAFETY: the vector has a byte for each page of the mapping.
        let answer = unsafe { libc::mincore(start, memory.mapped, pages.as_mut_ptr().cast()) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn touched_memory_is_resident_and_mapped_memory_is_not() {
        const PAGES: usize = 4096;
        let bytes = PAGES as u64 * page_size();
        assert_eq!(resident(&Memory::mapped(bytes, Pages::Base).unwrap()), 0);
        let mut touched = Memory::touched(bytes, Pages::Base).unwrap();
        assert_eq!(resident(&touched), PAGES);
        touched = Memory::mapped(bytes, Pages::Base).unwrap();
        touched.write_every(4, 1);
        assert_eq!(resident(&touched), PAGES / 4);
    }

    #[test]
    fn more_memory_than_the_machine_has_is_refused() {
        assert!(matches!(Memory::touched(1 << 50, Pages::Base), Err(Error::Missing(_))));
        assert!(Memory::mapped(u64::MAX, Pages::Base).is_err());
    }
}
