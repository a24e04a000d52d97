//! What the loader and libc are asked for by name.
#![expect(unsafe_code, reason = "functions and variables of the loader's and of libc's")]

#[cfg(target_arch = "aarch64")]
use core::ffi::CStr;
use core::ffi::{c_char, c_void};

use crate::rt;

unsafe extern "C" {
    /// Of libc (or libdl before glibc 2.34).
    #[cfg(target_arch = "aarch64")]
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    static __environ: *mut *mut c_char;
}

/// `dlsym(3)`.
#[cfg(target_arch = "x86_64")]
pub(crate) type Dlsym = extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// `RTLD_NEXT`: after the library the call comes from. So `dlsym` may be called only from this
/// library's own code.
pub(crate) const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;

/// The definition after ours. Takes the loader's lock: from ordinary code only, never from a
/// handler.
#[cfg(target_arch = "aarch64")]
pub(crate) fn next_definition(name: &CStr) -> *mut c_void {
    // SAFETY: a NUL-terminated name.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr()) }
}

/// glibc's `dlsym`, by its `dlvsym`, which this library needs only where it is there: musl has
/// none. Ours has the name `dlsym`, so the loader cannot bind that name to libc's.
#[cfg(target_arch = "x86_64")]
pub(crate) fn dlsym_of_glibc() -> *mut c_void {
    type Dlvsym = extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    let found: *mut c_void;
    // SAFETY: reads the address that the loader has bound, or null.
    unsafe {
        core::arch::asm!(
            ".weak dlvsym",
            "mov {}, [rip + dlvsym@GOTPCREL]",
            out(reg) found,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    // SAFETY: null, or glibc's function of this type.
    let dlvsym = unsafe { core::mem::transmute::<*mut c_void, Option<Dlvsym>>(found) };
    dlvsym
        .map_or(core::ptr::null_mut(), |dlvsym| dlvsym(RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.2.5".as_ptr()))
}

/// The environment, as the program may have changed it: libc's own variable, bound by the loader. A
/// search by name at every start would cost 2 us.
pub(crate) fn environment() -> *mut *mut c_char {
    // SAFETY: a pointer, read as every reader of the environment does.
    unsafe { __environ }
}

/// An entry of the auxiliary vector, as `getauxval(3)` gives it: 0 if there is none. `None`: this
/// libc cannot tell.
#[cfg(target_arch = "x86_64")]
#[expect(clippy::unnecessary_wraps, reason = "as on arm64")]
pub(crate) fn auxiliary(kind: usize) -> Option<usize> {
    unsafe extern "C" {
        fn getauxval(kind: usize) -> usize;
    }
    // SAFETY: takes no lock and no memory.
    Some(unsafe { getauxval(kind) })
}

/// As on x86-64. Found by name, for ours of that name is for the compiler.
#[cfg(target_arch = "aarch64")]
pub(crate) fn auxiliary(kind: usize) -> Option<usize> {
    let found = next_definition(c"getauxval");
    // SAFETY: null, or the function of this name and type.
    let getauxval =
        unsafe { core::mem::transmute::<*mut c_void, Option<extern "C" fn(usize) -> usize>>(found) };
    Some(getauxval?(kind))
}

/// Whether the kernel started this program with more rights than its caller has: set-user-ID,
/// set-group-ID, file capabilities, or by a security module's word. The caller's environment is
/// not to be believed then. Also where that cannot be told.
pub(crate) fn is_secure() -> bool {
    const AT_SECURE: usize = 23;
    auxiliary(AT_SECURE) != Some(0)
}

/// AddressSanitizer's runtime asks this function for options, before any library's constructors. A
/// program's own comes before ours, the runtime's empty one after it. The runtime ends a program in
/// which another library comes before it (asan_linux.cpp, `AsanCheckDynamicRTPrereqs`), unless told
/// that this is meant. It may come second to a library that only passes calls on.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

/// Exported, so that the loader binds it to the first object that has it.
#[unsafe(no_mangle)]
static forkless_in_charge: u8 = 0;

/// Whether another copy of this library stands before this one: a file of its own, preloaded by
/// another list. The loader takes files for the same only by device and inode.
pub(crate) fn another_is_in_charge() -> bool {
    let bound: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the address that the loader has bound.
    unsafe {
        core::arch::asm!("mov {}, [rip + {}@GOTPCREL]", out(reg) bound, sym forkless_in_charge,
            options(nostack, preserves_flags, pure, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the address that the loader has bound.
    unsafe {
        core::arch::asm!("adrp {0}, :got:{1}", "ldr {0}, [{0}, :got_lo12:{1}]", out(reg) bound,
            sym forkless_in_charge, options(nostack, preserves_flags, pure, readonly));
    }
    !rt::image().contains(&bound)
}
