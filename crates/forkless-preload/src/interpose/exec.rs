//! The functions that execute or spawn a program. A shell for a single command makes way for the
//! command (`shell::replace`). Every other call is the next definition's, with its arguments as
//! they came.

// The parent module's expectation of unsafe code covers this file.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::next::{self, find_and_go_on};
use crate::shell::{self, Program};

use super::{absent, arch};

/// A null-terminated vector of strings.
type Vector = *const *const c_char;

/// The next definitions that children call most. A vector of all would not fit on the library's one
/// writable page.
static EXECVE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static EXECV: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static EXECVP: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Finds the functions that children call between fork and exec.
pub(super) fn find_for_children() {
    kept(&EXECVE, c"execve");
    kept(&EXECV, c"execv");
    kept(&EXECVP, c"execvp");
}

fn kept(slot: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = slot.load(Relaxed);
    if known.is_null() { next::settle(slot, name, absent as *const ()) } else { known }
}

/// The same for a function that is called seldom.
#[unsafe(link_section = ".text.unlikely.exec")]
fn found(name: &CStr) -> *mut c_void {
    let found = next::lookup(name);
    if found.is_null() { absent as *mut c_void } else { found }
}

fn environment() -> Vector {
    next::environment().cast_const().cast()
}

/// Defines a function that executes a program: `$before` may do so in its place, and returns the
/// address of the definition that gets the arguments as they came.
macro_rules! executes {
    ($($(#[$meta:meta])* $name:ident, $section:literal => $before:ident;)*) => {
        $($(#[$meta])*
        #[unsafe(no_mangle)]
        #[unsafe(link_section = $section)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            find_and_go_on!($before)
        })*
    };
}

executes! {
    execve, ".text.execve" => before_execve;
    execv, ".text.execv" => before_execv;
    execvp, ".text.execvp" => before_execvp;
    execvpe, ".text.unlikely.execvpe" => before_execvpe;
    /// Variadic, like the next two: the registers hold as many arguments as a shell's line has.
    execl, ".text.unlikely.execl" => before_execl;
    execlp, ".text.unlikely.execlp" => before_execlp;
    execle, ".text.unlikely.execle" => before_execle;
}

extern "C" fn before_execve(path: *const c_char, argv: Vector, envp: Vector) -> *mut c_void {
    shell::replace(Program::Path(path), argv, envp);
    arch::direct_execve().unwrap_or_else(|| kept(&EXECVE, c"execve"))
}

extern "C" fn before_execv(path: *const c_char, argv: Vector) -> *mut c_void {
    shell::replace(Program::Path(path), argv, environment());
    kept(&EXECV, c"execv")
}

extern "C" fn before_execvp(name: *const c_char, argv: Vector) -> *mut c_void {
    shell::replace(Program::Name(name), argv, environment());
    kept(&EXECVP, c"execvp")
}

#[unsafe(link_section = ".text.unlikely.exec")]
extern "C" fn before_execvpe(name: *const c_char, argv: Vector, envp: Vector) -> *mut c_void {
    shell::replace(Program::Name(name), argv, envp);
    found(c"execvpe")
}

#[unsafe(link_section = ".text.unlikely.exec")]
extern "C" fn before_execl(path: *const c_char, a: Text, b: Text, c: Text, d: Text) -> *mut c_void {
    listed(Program::Path(path), [a, b, c, d], environment());
    found(c"execl")
}

#[unsafe(link_section = ".text.unlikely.exec")]
extern "C" fn before_execlp(name: *const c_char, a: Text, b: Text, c: Text, d: Text) -> *mut c_void {
    listed(Program::Name(name), [a, b, c, d], environment());
    found(c"execlp")
}

#[unsafe(link_section = ".text.unlikely.exec")]
extern "C" fn before_execle(
    path: *const c_char,
    a: Text,
    b: Text,
    c: Text,
    d: Text,
    envp: Vector,
) -> *mut c_void {
    listed(Program::Path(path), [a, b, c, d], envp);
    found(c"execle")
}

type Text = *const c_char;

/// The first of a list of arguments. After the null that ends it a register may hold anything.
#[unsafe(link_section = ".text.unlikely.exec")]
fn listed(program: Program, list: [Text; 4], envp: Vector) {
    let [name, option, line, end] = list;
    if !name.is_null() && !option.is_null() && !line.is_null() && end.is_null() {
        shell::replace(program, list.as_ptr(), envp);
    }
}

/// Defines a function that spawns.
macro_rules! spawns {
    ($($(#[$meta:meta])* $name:ident, $text:literal, $program:path;)*) => {
        $($(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            pid: *mut c_int,
            file: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            argv: Vector,
            envp: Vector,
        ) -> c_int {
            // SAFETY: the function of this name, or `absent`, which looks at no argument.
            let real = unsafe { transmute::<*mut c_void, shell::PosixSpawn>(found($text)) };
            let spawn = shell::Spawn { real, pid, actions, attributes };
            shell::spawn($program(file), &spawn, argv, envp).unwrap_or_else(|| spawn.start(file, argv, envp))
        })*
    };
}

spawns! {
    /// `posix_spawn(3)`.
    posix_spawn, c"posix_spawn", Program::Path;
    /// `posix_spawnp(3)`.
    posix_spawnp, c"posix_spawnp", Program::Name;
}

/// Defines functions that add a file action after which a spawn cannot be tried twice, or whose
/// children begin in another directory.
macro_rules! notes_actions {
    ($($(#[$meta:meta])* $name:ident, $section:literal, $text:literal;)*) => {
        $($(#[$meta])*
        #[unsafe(no_mangle)]
        #[unsafe(link_section = $section)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            #[unsafe(link_section = ".text.unlikely.exec")]
            extern "C" fn note(_: usize, _: usize, path: *const c_char) -> *mut c_void {
                let is_harmless = $text == c"posix_spawn_file_actions_addopen"
                    // SAFETY: a string, which libc copies.
                    && unsafe { CStr::from_ptr(path) } == c"/dev/null";
                if !is_harmless {
                    shell::note_file_action();
                }
                found($text)
            }
            find_and_go_on!(note)
        })*
    };
}

notes_actions! {
    posix_spawn_file_actions_addopen, ".text.unlikely.addopen", c"posix_spawn_file_actions_addopen";
    posix_spawn_file_actions_addchdir, ".text.unlikely.addchdir", c"posix_spawn_file_actions_addchdir";
    posix_spawn_file_actions_addchdir_np, ".text.unlikely.addchdir_np", c"posix_spawn_file_actions_addchdir_np";
    posix_spawn_file_actions_addfchdir, ".text.unlikely.addfchdir", c"posix_spawn_file_actions_addfchdir";
    posix_spawn_file_actions_addfchdir_np, ".text.unlikely.addfchdir_np", c"posix_spawn_file_actions_addfchdir_np";
}
