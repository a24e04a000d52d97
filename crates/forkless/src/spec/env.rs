//! The environment a child gets: the parent's at the moment of the start, with the changes asked
//! for.
//!
//! Safe code may change the environment at any time, under a lock of std's (`std::env::set_var`, in
//! editions to 2021). Only std's own functions take that lock. So they read this process's
//! environment, and the child gets the copy. The C library reads `environ` as getenv(3) does, since
//! setenv(3) takes no lock that others could take.

#![expect(unsafe_code, reason = "libc's environment is a C global, read as getenv does")]

use super::strings::Strings;
use crate::kernel::single_threaded::single_threaded;
use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

/// Changes to the inherited environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvChanges {
    clear: bool,
    vars: BTreeMap<OsString, Option<OsString>>,
    /// If set, the child gets exactly these strings, in this order.
    exact: Option<Strings>,
    inherits: Inherits,
}

/// How this process's environment is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Inherits {
    /// Under std's lock. `vars_os` lists no entry without `=`, so no child gets one.
    #[default]
    Variables,
    /// As getenv(3) and execv(3) read it: every entry as it is, and no other thread may change it
    /// meanwhile.
    Environ,
}

unsafe extern "C" {
    /// libc's current environment (`environ(7)`).
    static environ: *const *const c_char;
}

/// The process's own vector, which `execv` would pass on. It changes when the program changes its
/// environment.
fn current() -> *const *const c_char {
    static EMPTY: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
    // SAFETY: a C global; reading it is what getenv(3) does.
    let now = unsafe { environ };
    // clearenv(3) leaves the vector null, which exec would warn about.
    if now.is_null() { (&raw const EMPTY).cast() } else { now }
}

/// The entries of a vector, in their order.
///
/// # Safety
/// The vector ends in a null pointer, its entries in a NUL, and nothing changes them while the
/// iterator is in use.
unsafe fn entries(mut at: *const *const c_char) -> impl Iterator<Item = &'static [u8]> {
    std::iter::from_fn(move || {
        // SAFETY: `at` has not passed the terminating null, as the caller promises.
        let s = unsafe { *at };
        if s.is_null() {
            return None;
        }
        // SAFETY: the entry was not the terminating null, so there is a next one.
        let next = unsafe { at.add(1) };
        at = next;
        // SAFETY: entries are NUL-terminated, as the caller promises.
        let s = unsafe { CStr::from_ptr(s) };
        Some(s.to_bytes())
    })
}

fn name_of(entry: &[u8]) -> &[u8] {
    // A name may begin with '=', as std has it.
    let end = entry.iter().skip(1).position(|b| *b == b'=').map_or(entry.len(), |p| p + 1);
    &entry[..end]
}

/// Whether an entry has a name and a value, as `vars_os` wants it.
fn is_variable(entry: &[u8]) -> bool {
    name_of(entry).len() < entry.len()
}

/// The last variable of each name. std hands these on when it changes an environment.
fn last_of_each(all: &[(OsString, OsString)]) -> impl Iterator<Item = &(OsString, OsString)> {
    let mut seen = HashSet::with_capacity(all.len());
    let mut last: Vec<_> = all.iter().rev().filter(|(name, _)| seen.insert(name)).collect();
    last.reverse();
    last.into_iter()
}

impl EnvChanges {
    pub(crate) fn set(&mut self, name: &OsStr, value: &OsStr) {
        self.vars.insert(name.to_owned(), Some(value.to_owned()));
    }

    pub(crate) fn remove(&mut self, name: &OsStr) {
        if self.clear {
            self.vars.remove(name);
        } else {
            self.vars.insert(name.to_owned(), None);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.clear = true;
        self.vars.clear();
    }

    /// Passes on exactly these strings, in this order.
    pub(crate) fn set_exact(&mut self, strings: Strings) {
        self.exact = Some(strings);
    }

    /// Reads `environ` without std's lock from here on.
    ///
    /// # Safety
    /// No other thread may change the environment during a start.
    pub(crate) unsafe fn read_environ(&mut self) {
        self.inherits = Inherits::Environ;
    }

    /// Copies `environ` now, with entries that have no `=`. Later changes of it reach no child.
    ///
    /// # Safety
    /// No other thread may change the environment during the call.
    pub(crate) unsafe fn fix(&mut self) {
        self.inherits = Inherits::Environ;
        self.exact = Some(self.strings());
    }

    /// Whether no variable of this process is inherited.
    pub(crate) fn is_cleared(&self) -> bool {
        self.clear
    }

    /// Whether the strings come from a C program or a shell, and so follow other rules than std's.
    pub(crate) fn is_of_c(&self) -> bool {
        self.exact.is_some() || self.inherits == Inherits::Environ
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&OsStr, Option<&OsStr>)> {
        self.vars.iter().map(|(k, v)| (k.as_os_str(), v.as_deref()))
    }

    /// This process's own vector, where the child is to have exactly that environment.
    ///
    /// Nothing must change the vector before the child's exec. The calling thread waits for the
    /// exec, so no other thread may exist. A hook is the caller's code, and might change it, too.
    pub(crate) fn borrowed(&self, hooked: bool) -> Option<*const *const c_char> {
        let unchanged = !self.clear && self.vars.is_empty() && self.exact.is_none();
        if !unchanged {
            return None;
        }
        let vector = current();
        match self.inherits {
            Inherits::Environ => Some(vector),
            Inherits::Variables if hooked || !single_threaded() => None,
            // SAFETY: libc's own vector, and there is no thread to change it.
            Inherits::Variables => unsafe { entries(vector) }.all(is_variable).then_some(vector),
        }
    }

    /// The first variable that cannot be passed on: its name or value has a NUL byte.
    pub(crate) fn with_nul(&self) -> Option<&OsStr> {
        let nul = |s: &OsStr| s.as_bytes().contains(&0);
        self.vars
            .iter()
            .find(|(k, v)| nul(k) || v.as_ref().is_some_and(|v| nul(v)))
            .map(|(k, _)| k.as_os_str())
    }

    /// The strings the child will have.
    pub(crate) fn strings(&self) -> Strings {
        let mut all = Strings::default();
        all.reserve(4096, 64);
        self.each(|parts| all.push_parts(parts));
        all
    }

    /// Calls `take` with each string, in parts.
    pub(crate) fn each(&self, mut take: impl FnMut(&[&[u8]])) {
        if let Some(exact) = &self.exact {
            return exact.iter().for_each(|entry| take(&[entry]));
        }
        let changed = |name: &OsStr| !self.vars.is_empty() && self.vars.contains_key(name);
        match self.inherits {
            _ if self.clear => {}
            Inherits::Variables if self.vars.is_empty() => {
                for (name, value) in std::env::vars_os() {
                    take(&[name.as_bytes(), b"=", value.as_bytes()]);
                }
            }
            Inherits::Variables => {
                let all: Vec<_> = std::env::vars_os().filter(|(name, _)| !changed(name)).collect();
                for (name, value) in last_of_each(&all) {
                    take(&[name.as_bytes(), b"=", value.as_bytes()]);
                }
            }
            Inherits::Environ => {
                // SAFETY: libc's own vector; `read_environ` has the caller's promise.
                let all = unsafe { entries(current()) };
                all.filter(|e| !changed(OsStr::from_bytes(name_of(e)))).for_each(|entry| take(&[entry]));
            }
        }
        for (name, value) in &self.vars {
            if let Some(value) = value {
                take(&[name.as_bytes(), b"=", value.as_bytes()]);
            }
        }
    }

    /// The value that the child will see. Of several inherited ones it is the first, as for
    /// getenv(3) and std's search.
    pub(crate) fn lookup(&self, name: &[u8]) -> Option<Vec<u8>> {
        match self.vars.get(OsStr::from_bytes(name)) {
            Some(v) => v.as_ref().map(|v| v.as_bytes().to_vec()),
            None if self.clear => None,
            None if self.inherits == Inherits::Variables => {
                std::env::var_os(OsStr::from_bytes(name)).map(OsStringExt::into_vec)
            }
            // SAFETY: libc's own vector; `read_environ` has the caller's promise.
            None => unsafe { entries(current()) }
                .find(|e| name_of(e) == name && e.len() > name.len())
                .map(|e| e[name.len() + 1..].to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(e: &EnvChanges) -> Vec<Vec<u8>> {
        e.strings().iter().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn changes_apply_to_what_is_inherited_now() {
        let mut e = EnvChanges::default();
        // SAFETY: no test of this crate changes the environment.
        let plain: Vec<Vec<u8>> = unsafe { entries(current()) }.map(<[u8]>::to_vec).collect();
        assert_eq!(captured(&e), plain);
        e.set(OsStr::new("PATH"), OsStr::new("/p"));
        assert_eq!(e.lookup(b"PATH").as_deref(), Some(&b"/p"[..]));
        assert_eq!(captured(&e).iter().filter(|s| s.starts_with(b"PATH=")).collect::<Vec<_>>(), [b"PATH=/p"]);
        e.remove(OsStr::new("PATH"));
        assert_eq!(e.lookup(b"PATH"), None);
        assert!(!captured(&e).iter().any(|s| s.starts_with(b"PATH=")));
        e.clear();
        assert!(captured(&e).is_empty());
        e.set(OsStr::new("A"), OsStr::new("b\0"));
        assert_eq!(e.with_nul(), Some(OsStr::new("A")));
    }

    #[test]
    fn names_may_begin_with_an_equals_sign() {
        assert_eq!(name_of(b"=C:=x"), b"=C:");
        assert_eq!(name_of(b"plain"), b"plain");
    }
}
