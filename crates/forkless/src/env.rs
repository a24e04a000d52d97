//! The environment a child gets: the parent's at the moment of the start, with the changes asked for.

#![expect(unsafe_code, reason = "libc's environment is a C global, read as getenv does")]

use crate::layout::{At, Builder};
use crate::strings::Strings;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

/// Changes to the inherited environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvChanges {
    clear: bool,
    vars: BTreeMap<OsString, Option<OsString>>,
    /// The strings to pass on as they are, in this order, whatever else is set.
    exact: Option<Strings>,
}

unsafe extern "C" {
    /// libc's current environment (`environ(7)`).
    static environ: *const *const c_char;
}

/// The process's own vector, as it stands: what `execv` would pass on. Changes when the program changes its environment.
pub(crate) fn current() -> *const *const c_char {
    static EMPTY: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
    // SAFETY: a C global; reading it is what getenv(3) does.
    let now = unsafe { environ };
    // clearenv(3) leaves it null, which exec would warn about.
    if now.is_null() { (&raw const EMPTY).cast() } else { now }
}

/// The process's environment strings as they stand.
///
/// Reads `environ` as getenv(3) does, without std's lock: the contract of `std::env::set_var` rules out a concurrent change in
/// a program with threads, and the lock is not to be had from outside std.
fn inherited() -> impl Iterator<Item = &'static [u8]> {
    // SAFETY: `environ` is null or a null-terminated vector; see above for concurrent changes.
    let mut at = unsafe { environ };
    std::iter::from_fn(move || {
        if at.is_null() {
            return None;
        }
        // SAFETY: `at` has not passed the terminating null.
        let s = unsafe { *at };
        if s.is_null() {
            return None;
        }
        // SAFETY: the entry was not the terminating null, so there is a next one.
        let next = unsafe { at.add(1) };
        at = next;
        // SAFETY: entries are NUL-terminated.
        let s = unsafe { CStr::from_ptr(s) };
        Some(s.to_bytes())
    })
}

fn name_of(entry: &[u8]) -> &[u8] {
    // A name may begin with '=', as std has it.
    let end = entry.iter().skip(1).position(|b| *b == b'=').map_or(entry.len(), |p| p + 1);
    &entry[..end]
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

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&OsStr, Option<&OsStr>)> {
        self.vars.iter().map(|(k, v)| (k.as_os_str(), v.as_deref()))
    }

    /// Whether the child is to have exactly what this process has.
    pub(crate) fn is_empty(&self) -> bool {
        !self.clear && self.vars.is_empty() && self.exact.is_none()
    }

    /// The first variable that cannot be passed on: its name or value has a NUL byte.
    pub(crate) fn with_nul(&self) -> Option<&OsStr> {
        let nul = |s: &OsStr| s.as_bytes().contains(&0);
        self.vars
            .iter()
            .find(|(k, v)| nul(k) || v.as_ref().is_some_and(|v| nul(v)))
            .map(|(k, _)| k.as_os_str())
    }

    /// The strings the child will have. Entries without `=` are passed on as they are, as fork would.
    pub(crate) fn strings(&self) -> Strings {
        let mut all = Strings::default();
        all.reserve(4096, 64);
        self.each(|parts| all.push_parts(parts));
        all
    }

    fn each(&self, mut take: impl FnMut(&[&[u8]])) {
        if let Some(exact) = &self.exact {
            return exact.iter().for_each(|entry| take(&[entry]));
        }
        if !self.clear {
            for entry in inherited() {
                if self.vars.is_empty() || !self.vars.contains_key(OsStr::from_bytes(name_of(entry))) {
                    take(&[entry]);
                }
            }
        }
        for (name, value) in &self.vars {
            if let Some(value) = value {
                take(&[name.as_bytes(), b"=", value.as_bytes()]);
            }
        }
    }

    /// Appends the vector for exec: the same strings.
    pub(crate) fn lay_out(&self, layout: &mut Builder) -> At {
        let mut entries = Vec::with_capacity(64);
        self.each(|parts| entries.push(layout.string(parts)));
        let here = layout.here();
        entries.into_iter().for_each(|e| layout.entry(e));
        layout.end();
        here
    }

    /// The value the child will see.
    pub(crate) fn lookup(&self, name: &[u8]) -> Option<Vec<u8>> {
        match self.vars.get(OsStr::from_bytes(name)) {
            Some(v) => v.as_ref().map(|v| v.as_bytes().to_vec()),
            None if self.clear => None,
            None => inherited()
                .find(|e| name_of(e) == name && e.len() > name.len())
                .map(|e| e[name.len() + 1..].to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(e: &EnvChanges) -> Vec<Vec<u8>> {
        let mut b = Builder::with_capacity(0, 0);
        let at = e.lay_out(&mut b);
        let layout = b.finish();
        let mut v = layout.vector(at);
        let mut out = Vec::new();
        loop {
            // SAFETY: not past the terminating null.
            let s = unsafe { *v };
            if s.is_null() {
                return out;
            }
            // SAFETY: a NUL-terminated string of the layout.
            let text = unsafe { CStr::from_ptr(s) };
            out.push(text.to_bytes().to_vec());
            // SAFETY: the entry was not the last.
            v = unsafe { v.add(1) };
        }
    }

    #[test]
    fn changes_apply_to_what_is_inherited_now() {
        let mut e = EnvChanges::default();
        assert!(e.is_empty());
        let plain: Vec<Vec<u8>> = inherited().map(<[u8]>::to_vec).collect();
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
