//! Mappings: made, protected, moved, left out of a fork, and asked about.
#![expect(unsafe_code, reason = "mapping memory is what is tested")]

mod common;

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use common::{in_child, must};
use forkless_sys::mm::{self, PAGE};
use forkless_sys::time::Timespec;
use forkless_sys::{Errno, fd, futex, maps, poll, process};

fn pages(number: usize) -> *mut c_void {
    mm::map_anonymous(number * PAGE, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE).unwrap()
}

fn unmap(at: *mut c_void, number: usize) {
    // SAFETY: the tests' own pages, not used any more.
    unsafe { mm::munmap(at, number * PAGE) }.unwrap();
}

#[test]
fn protection_and_removal_take_effect() {
    let (page, mut resident) = (pages(1), [0]);
    // SAFETY: a fresh page.
    unsafe { page.cast::<u8>().write(1) };
    mm::mincore(page as usize, &mut resident).unwrap();
    assert_eq!(resident[0] & 1, 1);
    assert_eq!(mm::mincore(page as usize + 1, &mut resident), Err(Errno::EINVAL), "not the start of a page");

    let zero = fd::openat(fd::AT_FDCWD, c"/dev/zero".into(), fd::O_CLOEXEC, 0).unwrap();
    // SAFETY: nothing writes to the page.
    unsafe { mm::mprotect(page, PAGE, mm::PROT_READ) }.unwrap();
    // SAFETY: no reference covers the page; the kernel may not write to it either.
    assert_eq!(unsafe { fd::pread_raw(zero, page.cast(), 1, 0) }, Err(Errno::EFAULT));
    fd::close(zero).unwrap();
    unmap(page, 1);
    assert_eq!(mm::mincore(page as usize, &mut resident), Err(Errno::ENOMEM));
}

#[test]
fn advice_keeps_a_page_from_a_forked_child_and_splits_its_mapping() {
    let range = pages(3) as usize;
    let is_split = || mm::is_split(range, 2 * PAGE);
    assert_eq!(is_split(), Ok(false));
    // SAFETY: no child uses the page.
    unsafe { mm::madvise(range as *mut c_void, PAGE, mm::MADV_DONTFORK) }.unwrap();
    assert_eq!(is_split(), Ok(true));
    in_child(move || must(mm::mincore(range, &mut [0]) == Err(Errno::ENOMEM)));
    assert_eq!(mm::mincore(range, &mut [0]), Ok(()));
    // SAFETY: no child uses the page.
    unsafe { mm::madvise(range as *mut c_void, PAGE, mm::MADV_DOFORK) }.unwrap();
    // Regression: where nothing lay behind the range, it grew.
    unmap((range + 2 * PAGE) as *mut c_void, 1);
    assert_eq!(is_split(), Ok(false));
    assert_eq!(mm::mincore(range + 2 * PAGE, &mut [0]), Err(Errno::ENOMEM));
    unmap((range + PAGE) as *mut c_void, 1);
    assert_eq!(is_split(), Ok(true), "half of it is unmapped");
    unmap(range as *mut c_void, 1);
}

#[test]
fn a_range_moves_onto_another_and_a_fixed_mapping_replaces_one() {
    let (new, old) = (pages(1), pages(1));
    // SAFETY: a fresh page.
    unsafe { new.cast::<u8>().write(7) };
    // SAFETY: nothing uses either page.
    unsafe { mm::move_onto(new, PAGE, old as usize) }.unwrap();
    // SAFETY: mapped; it has the content of `new`.
    assert_eq!(unsafe { old.cast::<u8>().read() }, 7);
    assert_eq!(mm::mincore(new as usize, &mut [0]), Err(Errno::ENOMEM));

    let fixed = mm::MAP_PRIVATE | mm::MAP_FIXED;
    // SAFETY: nothing uses the page.
    unsafe { mm::map_anonymous_at(old as usize, PAGE, mm::PROT_READ, fixed) }.unwrap();
    // SAFETY: mapped.
    assert_eq!(unsafe { old.cast::<u8>().read() }, 0);
    let program = fd::openat(fd::AT_FDCWD, c"/proc/self/exe".into(), fd::O_CLOEXEC, 0).unwrap();
    // SAFETY: as above.
    unsafe { mm::map_file_at(old as usize, program, PAGE, mm::PROT_READ, fixed) }.unwrap();
    // SAFETY: a running program has a header, and cannot be written to (ETXTBSY).
    assert_eq!(unsafe { old.cast::<[u8; 4]>().read() }, *b"\x7fELF");
    fd::close(program).unwrap();
    unmap(old, 1);
}

#[test]
fn memory_is_read_without_a_signal() {
    let (from, mut to) = (*b"memory", [0; 6]);
    match mm::read(process::getpid(), from.as_ptr() as usize, &mut to) {
        Ok(n) => assert_eq!((n, to), (6, from)),
        Err(e) => assert!(matches!(e, Errno::ENOSYS | Errno::EPERM), "{e}"), // an old kernel, a container's filter
    }
    assert!(mm::read(process::getpid(), 0, &mut to).is_err());
}

#[test]
fn a_mapping_is_found_by_address_and_filter() {
    let file = fd::openat(fd::AT_FDCWD, c"/proc/self/maps".into(), fd::O_CLOEXEC, 0).unwrap();
    let (local, code) = (0u8, unmap as fn(_, _) as usize);
    match maps::query(file, &raw const local as usize, maps::WRITABLE) {
        Ok(stack) => {
            assert!(stack.inode == 0 && stack.page_size >= PAGE as u64);
            let text = maps::query(file, code, maps::EXECUTABLE).unwrap();
            assert!(
                (text.start..text.end).contains(&code) && text.flags & maps::WRITABLE == 0 && text.inode != 0
            );
            assert_eq!(maps::query(file, code, maps::WRITABLE), Err(Errno::ENOENT));
        }
        Err(e) => println!("skipped: PROCMAP_QUERY: {e}"), // before Linux 6.11
    }
    fd::close(file).unwrap();
}

#[test]
fn a_word_is_waited_for_and_woken() {
    let word = AtomicU32::new(1);
    assert_eq!(futex::wait(&word, 0), Err(Errno::EAGAIN));
    assert_eq!(poll::futex_wait(&word, 0, None), Err(Errno::EAGAIN));
    let millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    assert_eq!(poll::futex_wait(&word, 1, Some(&millisecond)), Err(Errno::ETIMEDOUT));
    assert_eq!((futex::wake(&word), poll::futex_wake(&word, 1)), (Ok(0), Ok(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            word.store(2, Ordering::Release);
            while futex::wake(&word) == Ok(0) && word.load(Ordering::Acquire) == 2 {
                std::thread::yield_now();
            }
        });
        while word.load(Ordering::Acquire) == 1 {
            let _ = futex::wait(&word, 1);
        }
        word.store(3, Ordering::Release);
    });
}
