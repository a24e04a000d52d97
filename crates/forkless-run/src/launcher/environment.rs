//! The environment that a program starts with: the caller's, entry by entry as it stands (the
//! standard library would drop malformed ones), with what the library reads.
#![expect(unsafe_code, reason = "walks the C environment")]

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// The entries of an environment, in order, malformed ones and repeated names among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentEntries(Vec<CString>);

impl EnvironmentEntries {
    /// The environment of this process, in which no other thread may change it meanwhile.
    pub fn current() -> EnvironmentEntries {
        let mut all = Vec::new();
        // SAFETY: set by libc before main; the caller sees to it that nobody changes it.
        let mut at = unsafe { environ };
        loop {
            // SAFETY: the vector ends in a null pointer, where the loop stops.
            let entry = unsafe { *at };
            if entry.is_null() {
                return EnvironmentEntries(all);
            }
            // SAFETY: entries are NUL-terminated.
            all.push(unsafe { CStr::from_ptr(entry) }.to_owned());
            at = at.wrapping_add(1);
        }
    }

    /// The value of a variable: of the first entry with its name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find_map(|entry| value(entry, name))
    }

    /// Sets a variable: in place of the first entry with its name, else as the last entry. A value
    /// ends at its first NUL.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
        let entry = [name.as_bytes(), b"=", value].concat();
        let entry = CString::new(entry).unwrap_or_default();
        match self.0.iter().position(|entry| self::value(entry, name).is_some()) {
            Some(at) => self.0[at] = entry,
            None => self.0.push(entry),
        }
    }

    /// Removes every entry with a name.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|entry| value(entry, name).is_none());
    }

    /// The entries.
    pub fn entries(&self) -> &[CString] {
        &self.0
    }

    /// Name and value of the entries that have both.
    pub fn pairs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().filter_map(|entry| {
            let entry = entry.as_bytes();
            // As the standard library reads it: a name may begin with `=`.
            let equals = 1 + entry.get(1..)?.iter().position(|byte| *byte == b'=')?;
            Some((OsStr::from_bytes(&entry[..equals]), OsStr::from_bytes(&entry[equals + 1..])))
        })
    }
}

impl FromIterator<CString> for EnvironmentEntries {
    fn from_iter<I: IntoIterator<Item = CString>>(entries: I) -> EnvironmentEntries {
        EnvironmentEntries(entries.into_iter().collect())
    }
}

fn value<'e>(entry: &'e CStr, name: &str) -> Option<&'e [u8]> {
    entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// Puts the library first among those that the loader preloads.
pub(super) fn preload(environment: &mut EnvironmentEntries, library: &Path) {
    const VARIABLE: &str = "LD_PRELOAD";
    let library = library.as_os_str().as_bytes();
    let mut all = library.to_vec();
    let others = environment.get(VARIABLE).unwrap_or_default().split(|byte| b" :".contains(byte));
    for other in others.filter(|other| !other.is_empty() && *other != library) {
        all.push(b':');
        all.extend(other);
    }
    environment.set(VARIABLE, &all);
}

/// The runtime of AddressSanitizer checks that it comes first. It may come second to a library that
/// only passes calls on.
pub(super) fn allow_another_library_first(environment: &mut EnvironmentEntries) {
    const VARIABLE: &str = "ASAN_OPTIONS";
    let mut options = environment.get(VARIABLE).unwrap_or_default().to_vec();
    if !options.is_empty() {
        options.push(b':');
    }
    options.extend(b"verify_asan_link_order=0");
    environment.set(VARIABLE, &options);
}

/// Sets `TZ` where it is unset. With `/etc/localtime` missing glibc means UTC, and would look for
/// the file again at every call.
pub(super) fn set_time_zone(environment: &mut EnvironmentEntries) {
    if environment.get("TZ").is_none() {
        let zone: &[u8] = if Path::new("/etc/localtime").exists() { b":/etc/localtime" } else { b"UTC0" };
        environment.set("TZ", zone);
    }
}

/// Seccomp filters of this process, as the library counts them: one where the kernel gives no
/// number (before 5.9).
pub(super) fn filters_in_force() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    field("Seccomp_filters:").or_else(|| field("Seccomp:").map(|mode: u32| mode.min(1)))
}

/// Whether children of this process are in its PID namespace. After `unshare(CLONE_NEWPID)` the
/// first is the init of a new one, which ends with it. `None`: there is no /proc. By the standard
/// library, whose calls a filter must allow in any case: none was tried yet.
pub(super) fn children_stay() -> Option<bool> {
    let own = std::fs::read_link("/proc/thread-self/ns/pid").ok()?;
    // The link of a new namespace leads nowhere before it has an init.
    Some(std::fs::read_link("/proc/thread-self/ns/pid_for_children").is_ok_and(|it| it == own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[&str]) -> EnvironmentEntries {
        entries.iter().map(|entry| CString::new(*entry).unwrap()).collect()
    }

    #[test]
    fn entries_stay_in_their_places_malformed_ones_too() {
        let mut environment = of(&["A=1", "junk", "B=2", "A=3"]);
        environment.set("A", b"x");
        environment.set("C", b"y");
        assert_eq!(environment, of(&["A=x", "junk", "B=2", "A=3", "C=y"]));
        environment.remove("A");
        assert_eq!(environment, of(&["junk", "B=2", "C=y"]));
    }

    #[test]
    fn a_name_is_all_before_the_equals_sign() {
        let environment = of(&["TZX=1", "TZ", "TZ=2"]);
        assert_eq!(environment.get("TZ"), Some(&b"2"[..]));
        assert_eq!(environment.get("T"), None);
    }

    #[test]
    fn pairs_leave_out_what_is_none() {
        let environment = of(&["A=1=2", "junk", "=C:=x", "", "B="]);
        let pairs: Vec<_> =
            environment.pairs().map(|(n, v)| (n.to_str().unwrap(), v.to_str().unwrap())).collect();
        assert_eq!(pairs, [("A", "1=2"), ("=C:", "x"), ("B", "")]);
    }

    #[test]
    fn the_library_comes_first_and_once() {
        let library = Path::new("/lib/forkless.so");
        for (before, after) in [
            (&[][..], "LD_PRELOAD=/lib/forkless.so"),
            (&["LD_PRELOAD="], "LD_PRELOAD=/lib/forkless.so"),
            (&["LD_PRELOAD=a.so :/lib/forkless.so:b.so"], "LD_PRELOAD=/lib/forkless.so:a.so:b.so"),
        ] {
            let mut environment = of(before);
            preload(&mut environment, library);
            assert_eq!(environment, of(&[after]), "{before:?}");
        }
    }

    #[test]
    fn what_is_set_for_a_sanitizer_or_a_time_zone_is_kept() {
        let mut environment = of(&["ASAN_OPTIONS=a=1", "TZ="]);
        allow_another_library_first(&mut environment);
        set_time_zone(&mut environment);
        assert_eq!(environment, of(&["ASAN_OPTIONS=a=1:verify_asan_link_order=0", "TZ="]));
    }
}
