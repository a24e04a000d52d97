//! A child made by the assembly really runs on its own stack, shares memory, and is seen by waitid
//! and by its pidfd.
#![expect(unsafe_code, reason = "creating processes is what is tested")]

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use forkless_sys::{Errno, clone, fd, mm, process};

static SEEN: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn child(data: *mut c_void) -> ! {
    SEEN.store(data as usize as u32, Ordering::Release);
    process::exit_group(7)
}

const STACK: usize = 64 * 1024;

fn stack() -> *mut c_void {
    mm::map_anonymous(STACK, mm::PROT_READ | mm::PROT_WRITE, mm::MAP_PRIVATE).unwrap()
}

fn reap(pidfd: i32, pid: i32) {
    let info = process::waitid(process::P_PIDFD, pidfd, process::WEXITED).unwrap();
    assert_eq!((info.pid, info.code, info.status), (pid, 1, 7), "CLD_EXITED with the child's status");
    assert_eq!(process::waitid(process::P_PIDFD, pidfd, process::WEXITED), Err(Errno::ECHILD));
    match process::pidfd_exit_status(pidfd) {
        Ok(status) => assert_eq!(status, Some(7 << 8)),
        Err(e) => println!("skipped: PIDFD_GET_INFO: {e}"),
    }
    fd::close(pidfd).unwrap();
}

#[test]
fn clone3_and_clone_start_a_child_that_shares_memory() {
    let stack = stack();
    let mut pidfd = -1i32;
    let mut args = clone::args();
    args.flags = u64::from(clone::CLONE_VM | clone::CLONE_VFORK | clone::CLONE_PIDFD);
    args.exit_signal = 17;
    args.pidfd = (&raw mut pidfd) as u64;
    args.stack = stack as u64;
    args.stack_size = STACK as u64;
    // SAFETY: the stack is fresh and lives on; the child only stores to an atomic and exits.
    let pid = unsafe { clone::clone3(&args, child, 41 as *mut c_void) }.unwrap();
    assert_eq!(SEEN.load(Ordering::Acquire), 41);
    reap(pidfd, pid);

    // SAFETY: one past the end of the mapping made above.
    let top = unsafe { stack.byte_add(STACK) };
    let flags = clone::CLONE_VM | clone::CLONE_VFORK | clone::CLONE_PIDFD;
    // SAFETY: as above; the first child has left the stack.
    let pid = unsafe {
        clone::clone(flags, 17, top, &raw mut pidfd, core::ptr::null_mut(), child, 42 as *mut c_void)
    }
    .unwrap();
    assert_eq!(SEEN.load(Ordering::Acquire), 42);
    reap(pidfd, pid);
    // SAFETY: both children are gone.
    unsafe { mm::munmap(stack, STACK) }.unwrap();
    clone::clone3_allowed().unwrap();
}
