//! The environment a child gets: the parent's at the moment of the start, with the changes asked for.

#![expect(unsafe_code, reason = "libc's environment is a C global, read as getenv does")]

use crate::strings::Strings;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

/// Changes to the inherited environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvChanges {
    clear: bool,
    vars: BTreeMap<OsString, Option<OsString>>,
}

unsafe extern "C" {
    /// libc's current environment (`environ(7)`).
    static environ: *const *const c_char;
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

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&OsStr, Option<&OsStr>)> {
        self.vars.iter().map(|(k, v)| (k.as_os_str(), v.as_deref()))
    }

    /// The strings for exec. Entries without `=` are passed on as they are, as fork would.
    pub(crate) fn capture(&self) -> Strings {
        let mut out = Strings::default();
        out.reserve(4096, 64);
        if !self.clear {
            for entry in inherited() {
                if self.vars.is_empty() || !self.vars.contains_key(OsStr::from_bytes(name_of(entry))) {
                    out.push(entry);
                }
            }
        }
        for (name, value) in &self.vars {
            if let Some(value) = value {
                out.push_parts(&[name.as_bytes(), b"=", value.as_bytes()]);
            }
        }
        out
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

    #[test]
    fn changes_apply_to_what_is_inherited_now() {
        let mut e = EnvChanges::default();
        let plain: Vec<Vec<u8>> = inherited().map(<[u8]>::to_vec).collect();
        assert_eq!(e.capture().iter().map(<[u8]>::to_vec).collect::<Vec<_>>(), plain);
        e.set(OsStr::new("PATH"), OsStr::new("/p"));
        assert_eq!(e.lookup(b"PATH").as_deref(), Some(&b"/p"[..]));
        assert_eq!(e.capture().iter().filter(|s| s.starts_with(b"PATH=")).collect::<Vec<_>>(), [b"PATH=/p"]);
        e.remove(OsStr::new("PATH"));
        assert_eq!(e.lookup(b"PATH"), None);
        assert!(!e.capture().iter().any(|s| s.starts_with(b"PATH=")));
        e.clear();
        assert_eq!(e.capture().iter().len(), 0);
    }

    #[test]
    fn names_may_begin_with_an_equals_sign() {
        assert_eq!(name_of(b"=C:=x"), b"=C:");
        assert_eq!(name_of(b"plain"), b"plain");
    }
}
