//! The next definition of an interposed function, found once, as `dlsym(RTLD_NEXT)` would find it.
//! Other preloaded libraries and the sanitizers' runtimes keep their place in the chain.
#![expect(unsafe_code, reason = "calling functions found by name")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::mem::transmute_copy;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::{loader, objects};

/// A function of the type `F`, looked up at first use.
pub(crate) struct Next<F> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// Not looked up yet.
    ///
    /// # Safety
    ///
    /// `F` is the type, a function pointer's, of what any libc has under this name.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Next<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) }
        Next { name, address: AtomicPtr::new(null_mut()), function: PhantomData }
    }

    /// `None` where there is none.
    pub(crate) fn get(&self) -> Option<F> {
        let address = self.address();
        // SAFETY: of the size of an address, and under its name lies a function of this type, as
        // `new` was promised.
        (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
    }

    /// Looks it up now.
    pub(crate) fn find(&self) {
        self.address();
    }

    fn address(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = lookup(self.name);
        self.address.store(found, Relaxed);
        found
    }
}

/// Declares functions of libc's. Each has the page or header that gives its signature.
macro_rules! of_libc {
    ($($(#[$meta:meta])* static $name:ident: $type:ty = $text:literal, $page:literal;)*) => {
        $(
            $(#[$meta])*
            #[doc = $page]
            // SAFETY: the signature that `$page` gives for this name.
            static $name: $crate::next::Next<$type> = unsafe { $crate::next::Next::new($text) };
        )*
    };
}
pub(crate) use of_libc;

/// `fork` and `_Fork`.
pub(crate) type Fork = extern "C" fn() -> c_int;

/// Finds the definition after ours. Asks the loader, which takes its lock, only where its list
/// cannot be read.
#[inline(never)]
pub(crate) fn lookup(name: &CStr) -> *mut c_void {
    if let Some(found) = objects::find(name) {
        return found;
    }
    #[cfg(target_arch = "x86_64")]
    return dlsym()(loader::RTLD_NEXT, name.as_ptr());
    #[cfg(target_arch = "aarch64")]
    loader::next_definition(name)
}

/// libc's `dlsym`, for which ours stands. Until the first call a trampoline that looks for it.
#[cfg(target_arch = "x86_64")]
pub(crate) static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(find_dlsym as *const () as *mut c_void);

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn find_dlsym() {
    find_and_go_on!(resolve_dlsym)
}

/// Not by [`lookup`], which would ask `dlsym`.
#[cfg(target_arch = "x86_64")]
#[cold]
extern "C" fn resolve_dlsym() -> *mut c_void {
    extern "C" fn nothing(_: *mut c_void, _: *const c_char) -> *mut c_void {
        null_mut()
    }
    let known = || objects::find(c"dlsym").filter(|found| !found.is_null());
    let found = known().or_else(|| {
        // A constructor of another library may come before ours.
        objects::remember();
        known()
    });
    let mut found = found.unwrap_or_else(loader::dlsym_of_glibc);
    if found.is_null() {
        found = nothing as *const () as *mut c_void;
    }
    DLSYM.store(found, Relaxed);
    found
}

/// libc's `dlsym`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn dlsym() -> loader::Dlsym {
    // SAFETY: libc's function of this type, or what finds it.
    unsafe { core::mem::transmute::<*mut c_void, loader::Dlsym>(DLSYM.load(Relaxed)) }
}

of_libc! {
    static VERSION: extern "C" fn() -> *const c_char = c"gnu_get_libc_version", "gnu_get_libc_version(3)";
}

/// Whether the program's libc is glibc; else it is musl.
pub(crate) fn is_glibc() -> bool {
    VERSION.get().is_some()
}

/// Whether this libc is glibc from 2.38 on. Its `system` and `popen` tell the shell where its
/// options end (bug 27143), and its `posix_spawn` leaves the handlers to the kernel, by
/// `CLONE_CLEAR_SIGHAND`.
pub(crate) fn is_glibc_2_38() -> bool {
    let Some(version) = VERSION.get() else { return false };
    // SAFETY: a string of libc's.
    let version = unsafe { CStr::from_ptr(version()) }.to_bytes();
    // Compared as text, which is right as long as a version is 2 and two digits.
    version >= b"2.38"
}

/// Puts the registers that carry arguments on the stack. rax is among them: it counts the vector
/// registers in use.
#[cfg(target_arch = "x86_64")]
macro_rules! keep_arguments {
    () => {
        "push rdi
        push rsi
        push rdx
        push rcx
        push r8
        push r9
        push rax"
    };
}

/// Takes them back.
#[cfg(target_arch = "x86_64")]
macro_rules! arguments_back {
    () => {
        "pop rax
        pop r9
        pop r8
        pop rcx
        pop rdx
        pop rsi
        pop rdi"
    };
}

/// The instructions that ask `$resolve` for a function and go on to it with the arguments as they
/// came.
#[cfg(target_arch = "x86_64")]
macro_rules! find_and_go_on {
    ($resolve:ident) => {
        core::arch::naked_asm!(
            crate::next::keep_arguments!(),
            "call {resolve}",
            "mov r11, rax",
            crate::next::arguments_back!(),
            "jmp r11",
            resolve = sym $resolve,
        )
    };
}

/// Puts the registers that carry arguments on the stack. x8 is among them: it may hold the address
/// of a large result.
#[cfg(target_arch = "aarch64")]
macro_rules! keep_arguments {
    () => {
        "stp x29, x30, [sp, #-96]!
        mov x29, sp
        stp x0, x1, [sp, #16]
        stp x2, x3, [sp, #32]
        stp x4, x5, [sp, #48]
        stp x6, x7, [sp, #64]
        str x8, [sp, #80]"
    };
}

/// Takes them back.
#[cfg(target_arch = "aarch64")]
macro_rules! arguments_back {
    () => {
        "ldr x8, [sp, #80]
        ldp x6, x7, [sp, #64]
        ldp x4, x5, [sp, #48]
        ldp x2, x3, [sp, #32]
        ldp x0, x1, [sp, #16]
        ldp x29, x30, [sp], #96"
    };
}

/// As on x86-64. Functions of other objects are reached through x16, as a landing pad of theirs
/// allows.
#[cfg(target_arch = "aarch64")]
macro_rules! find_and_go_on {
    ($resolve:ident) => {
        core::arch::naked_asm!(
            "hint #34",
            crate::next::keep_arguments!(),
            "bl {resolve}",
            "mov x16, x0",
            crate::next::arguments_back!(),
            "br x16",
            resolve = sym $resolve,
        )
    };
}

pub(crate) use {arguments_back, find_and_go_on, keep_arguments};

pub(crate) use loader::environment;

/// Finds what a slot jumps to, before its first call does. `absent` stands for a function that this
/// libc does not have.
pub(crate) fn settle(slot: &AtomicPtr<c_void>, name: &CStr, absent: *const ()) -> *mut c_void {
    let found = lookup(name);
    let found = if found.is_null() { absent.cast_mut().cast() } else { found };
    slot.store(found, Relaxed);
    found
}

/// Defines a static that holds the address of a function's next definition. Interposers jump
/// through it with their argument registers untouched. Until the first call it holds a trampoline
/// that looks the definition up, keeps it, and goes on to it. `$absent` stands for a function that
/// this libc does not have.
macro_rules! jump_slot {
    ($visibility:vis $slot:ident = $name:expr, else $absent:expr) => {
        $visibility static $slot: core::sync::atomic::AtomicPtr<core::ffi::c_void> = {
            #[unsafe(naked)]
            extern "C" fn find() {
                crate::next::find_and_go_on!(resolve)
            }

            extern "C" fn resolve() -> *mut core::ffi::c_void {
                crate::next::settle(&$slot, $name, $absent as *const ())
            }

            core::sync::atomic::AtomicPtr::new(find as *const () as *mut core::ffi::c_void)
        };
    };
}
pub(crate) use jump_slot;
