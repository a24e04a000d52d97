//! Measuring without the preloaded library where it is all around: in a program that `forkless run`
//! started, and where a list of the loader's brings it into every program. Else the
//! library's fork would be measured under libc's name, here and in the children.

use std::os::unix::ffi::OsStrExt as _;

use forkless_run::{
    EnvironmentEntries, OPTIONS_VARIABLE, PreloadList, SWITCH_VARIABLE, is_off, names_library, preloadings,
};

/// The environment in which this program measures without the library, if started again in it.
/// `None` where it does so already.
#[must_use]
pub fn environment() -> Option<EnvironmentEntries> {
    let current = EnvironmentEntries::current();
    let mut other = without_library(current.clone());
    let is_on = !other.get(SWITCH_VARIABLE).is_some_and(is_off);
    if is_on && is_in_every_program() {
        other.set(SWITCH_VARIABLE, b"off");
    }
    (other != current).then_some(other)
}

/// Whether the system's list brings the library into every program. No environment keeps it out,
/// so it is switched off there.
#[must_use]
pub fn is_in_every_program() -> bool {
    preloadings().iter().any(|entry| entry.list == PreloadList::System)
}

/// Whether [`environment`] has switched it off for that reason, or the user.
#[must_use]
pub fn is_switched_off() -> bool {
    let variable = std::env::var_os(SWITCH_VARIABLE);
    is_in_every_program() && variable.is_some_and(|value| is_off(value.as_bytes()))
}

/// What a reader of plain figures needs where they were taken beside the library.
#[must_use]
pub fn note() -> Option<String> {
    let list = PreloadList::System;
    is_in_every_program()
        .then(|| format!("{list} brings the library into every program: plain runs have it switched off"))
}

/// The environment of a command that nobody has given the library.
pub(crate) fn without_library(mut environment: EnvironmentEntries) -> EnvironmentEntries {
    const PRELOAD: &str = "LD_PRELOAD";
    environment.remove(OPTIONS_VARIABLE);
    let Some(list) = environment.get(PRELOAD).map(<[u8]>::to_vec) else { return environment };
    let entries: Vec<&[u8]> = list.split(|byte| b" :".contains(byte)).collect();
    if entries.iter().any(|entry| names_library(entry)) {
        let others: Vec<&[u8]> = entries.into_iter().filter(|entry| !names_library(entry)).collect();
        match others.join(&b':') {
            empty if empty.is_empty() => environment.remove(PRELOAD),
            others => environment.set(PRELOAD, &others),
        }
    }
    environment
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn a_plain_environment_keeps_all_but_the_library() {
        let environment = |preload: &str| -> EnvironmentEntries {
            let entries = ["A=1", "FORKLESS_RUN=fork=off", preload];
            entries.map(|entry| CString::new(entry).unwrap()).into_iter().collect()
        };
        let preload = |value: &str| {
            let cleaned = without_library(environment(&format!("LD_PRELOAD={value}")));
            assert_eq!((cleaned.get("A"), cleaned.get("FORKLESS_RUN")), (Some(&b"1"[..]), None));
            cleaned.get("LD_PRELOAD").map(|value| String::from_utf8_lossy(value).into_owned())
        };
        assert_eq!(preload("/x/libforkless-run.so"), None);
        assert_eq!(preload("/x/libforkless_preload.so:/x/other.so").as_deref(), Some("/x/other.so"));
        assert_eq!(preload("/x/a.so b.so").as_deref(), Some("/x/a.so b.so"));
    }
}
