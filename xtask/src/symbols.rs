//! Checks the built shared objects: the names they export and need, their libraries, and their
//! binding.
//!
//! Signatures and the list of the C library's functions are compared with the headers by
//! crates/forkless-capi's tests; this module checks the properties of the linked object.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::tree;

/// The preloaded library's size and the names that it may need. The check of the other architecture
/// reads the same file.
const PRELOAD_LIMITS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/forkless-preload/limits.txt"));
/// Names of glibc's, and AddressSanitizer's, that it stands in front of, although they begin like
/// names of its own.
const PRELOAD_MAY_EXPORT: &[&str] = &[
    "__asan_default_options",
    "__clone",
    "__dup2",
    "__fcntl",
    "__fork",
    "__libc_realloc",
    "__register_atfork",
    "__sigaction",
    "__sysv_signal",
];
/// Prefixes of other names that it must not export: programs would use its `memcpy` instead of
/// their own.
const PRELOAD_MUST_NOT_EXPORT: &[&str] =
    &["mem", "bcmp", "str", "rust_", "__rust", "_R", "_ZN", "_Unwind", "__"];
/// Its largest writable memory, one page. The loader relocates it in every program. A second page
/// of the file costs another fault and copy, about 2 us; a page of zeros costs another mapping, 5
/// us.
const PRELOAD_WRITABLE_BYTES: u64 = 4096;

/// Where in the file the functions end that programs use when they start, fork and end
/// (crates/forkless-preload/layout.ld). The kernel maps 64 KiB at a time, wherever the loader has
/// put the file, and each time costs every program 4 us. A test of `forkless run` depends on this
/// number. The functions that copy and clear memory lie right behind, and belong to it.
const PRELOAD_START_BYTES: u64 = (40 << 10) - 128;

/// Checks `target/release`.
pub(crate) fn check() -> Result<String> {
    let built = tree::target().join("release");
    let c = built.join("libforkless.so");
    let preload = built.join("libforkless_preload.so");
    ensure!(c.is_file() && preload.is_file(), "nothing to check in {}: ./x build", built.display());

    let dynamic = tool("readelf", &["-dW"], &c)?;
    ensure!(
        dynamic.contains("soname: [libforkless.so.0]"),
        "libforkless.so: another soname than libforkless.so.0"
    );
    ensure!(
        dynamic.contains("NODELETE"),
        "libforkless.so: a child could lose its code to dlclose: link with -z nodelete"
    );
    bound_at_load("libforkless.so", &dynamic)?;
    for needed in needed(&dynamic) {
        ensure!(
            ["libc.so.", "libgcc_s.so.", "ld-linux"].iter().any(|known| needed.starts_with(known)),
            "libforkless.so needs {needed}"
        );
    }

    let agreed = std::fs::read_to_string(tree::root().join("crates/forkless-capi/symbols.txt"))?;
    let wrong = versions(&agreed, &tool("nm", &["--dynamic", "--defined-only"], &c)?);
    ensure!(
        wrong.is_empty(),
        "libforkless.so and crates/forkless-capi/symbols.txt differ:\n{}",
        wrong.join("\n")
    );
    let others = tool("nm", &["--extern-only", "--defined-only"], &built.join("libforkless.a"))?;
    if let Some(name) = others
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .find(|name| !agreed.lines().any(|line| line.split('@').next() == Some(*name)))
    {
        bail!("libforkless.a shows C programs the name {name}: packaging/link.sh hides all but symbols.txt");
    }

    let dynamic = tool("readelf", &["-dW"], &preload)?;
    bound_at_load("libforkless_preload.so", &dynamic)?;
    ensure!(
        needed(&dynamic).is_empty(),
        "libforkless_preload.so needs {:?}: it must serve every libc",
        needed(&dynamic)
    );
    let sections = tool("readelf", &["-SW"], &preload)?;
    let (_, zeros) = section(".reserve", &sections)?;
    let bytes = std::fs::metadata(&preload)?.len() - zeros;
    let most: u64 = limit("bytes").parse()?;
    ensure!(bytes <= most, "libforkless_preload.so has {bytes} bytes, more than {most}");
    let writable = writable(&tool("readelf", &["-lW"], &preload)?)?;
    ensure!(
        writable <= PRELOAD_WRITABLE_BYTES,
        "libforkless_preload.so has {writable} bytes of writable memory, more than a page: tables of text without pointers need none, and larger \
         ones belong into the reserve (reserve.rs)"
    );
    let (start, size) = section(".text.start", &sections)?;
    let end = start + size;
    ensure!(
        end <= PRELOAD_START_BYTES,
        "libforkless_preload.so: what programs start with ends at {end} bytes: crates/forkless-preload/layout.ld says where functions lie"
    );
    let listed = symbols(&preload)?;
    let wrong = unexpected(&listed);
    if !wrong.is_empty() {
        bail!("libforkless_preload.so (nm -D):\n{}", wrong.join("\n"));
    }
    Ok(format!(
        "libforkless.so and libforkless_preload.so ({bytes} bytes and {zeros} of zeros, {} names) are as they must be",
        listed.len()
    ))
}

/// How the versions of symbols that `nm` shows differ from those agreed on, `name@VERSION` a line.
/// A program that was linked earlier asks for each name with its version, and does not start
/// without.
fn versions(agreed: &str, listed: &str) -> Vec<String> {
    let agreed: BTreeSet<&str> = agreed.lines().filter(|line| !line.starts_with('#')).collect();
    // A node of its own stands for each version, as an absolute symbol.
    let found: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, "A", _] => None,
            [.., name] => Some(name.replacen("@@", "@", 1)),
            [] => None,
        })
        .collect();
    let gone = agreed.iter().filter(|name| !found.contains(**name));
    let more = found.iter().filter(|name| !agreed.contains(name.as_str()));
    gone.map(|name| format!("{name} is gone, or has another version"))
        .chain(more.map(|name| format!("{name} is not agreed on")))
        .collect()
}

/// The value of a word of [`PRELOAD_LIMITS`], which has each once.
fn limit(word: &str) -> &'static str {
    let values = PRELOAD_LIMITS.lines().filter_map(|line| line.split_once(' '));
    values.into_iter().find(|(name, _)| *name == word).map_or("", |(_, value)| value)
}

fn unexpected(listed: &[(char, String)]) -> Vec<String> {
    let may_want: Vec<&str> = limit("wants-x86_64").split(' ').collect();
    let mut wrong = Vec::new();
    for (kind, name) in listed {
        match kind {
            'U' | 'w' if !may_want.contains(&name.as_str()) => {
                wrong.push(format!(
                    "wants {name}, which not every program has (crates/forkless-preload/limits.txt lists \
                     what it may)"
                ));
            }
            'T' | 'D' | 'B' | 'R'
                if !PRELOAD_MAY_EXPORT.contains(&name.as_str())
                    && PRELOAD_MUST_NOT_EXPORT.iter().any(|prefix| name.starts_with(prefix)) =>
            {
                wrong.push(format!("exports {name}, which programs would use instead of their own"));
            }
            _ => {}
        }
    }
    wrong
}

fn tool(name: &str, flags: &[&str], file: &Path) -> Result<String> {
    let output = Command::new(name).args(flags).arg(file).output().with_context(|| name.to_owned())?;
    ensure!(
        output.status.success(),
        "{name} {}: {}",
        file.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Lazy binding would run the loader, its locks included, in a child that shares its parent's
/// memory.
fn bound_at_load(name: &str, dynamic: &str) -> Result<()> {
    ensure!(
        dynamic.contains("BIND_NOW") || dynamic.contains("Flags: NOW"),
        "{name}: bound lazily: link with -z now"
    );
    Ok(())
}

/// Bytes in memory of the writable segment, by `readelf -lW`: kind, offset, two addresses, size in
/// the file, size in memory, rights.
fn writable(headers: &str) -> Result<u64> {
    let sizes = headers.lines().filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["LOAD", _, _, _, _, in_memory, "RW", ..] => Some(in_memory),
        _ => None,
    });
    let [size] = sizes.collect::<Vec<_>>()[..] else { bail!("not one writable segment:\n{headers}") };
    Ok(u64::from_str_radix(size.trim_start_matches("0x"), 16)?)
}

/// Where a section begins in the file, and its size, by `readelf -SW`: number, name, kind, address,
/// offset, size.
fn section(name: &str, sections: &str) -> Result<(u64, u64)> {
    let fields = sections
        .lines()
        .find_map(|line| line.split_once(name))
        .map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
    let Some([_, _, offset, size, ..]) = fields.as_deref() else { bail!("no section {name}:\n{sections}") };
    Ok((u64::from_str_radix(offset, 16)?, u64::from_str_radix(size, 16)?))
}

fn needed(dynamic: &str) -> Vec<&str> {
    dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split(']').next())
        .collect()
}

/// `nm`'s kind and name of each dynamic symbol; versions of libc's left out.
fn symbols(file: &Path) -> Result<Vec<(char, String)>> {
    let listed = tool("nm", &["--dynamic"], file)?;
    Ok(listed
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().rev();
            let name = words.next()?.split('@').next()?;
            Some((words.next()?.chars().next()?, name.to_owned()))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wanted_panic_handler_and_an_exported_memcpy_are_named() {
        let listed = [('U', "rust_eh_personality"), ('w', "dlvsym"), ('T', "memcpy"), ('T', "fork")];
        let wrong = unexpected(&listed.map(|(kind, name)| (kind, name.to_owned())));
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }

    #[test]
    fn a_symbol_that_leaves_comes_or_changes_its_version_is_named() {
        let agreed = "# comment\nfork_a@FORKLESS_0.1\nfork_b@FORKLESS_0.1\nfork_c@FORKLESS_0.1\n";
        let same = "0 A FORKLESS_0.1\n1 T fork_a@@FORKLESS_0.1\n2 T fork_b@@FORKLESS_0.1\n\
                    3 T fork_c@@FORKLESS_0.1\n";
        assert_eq!(versions(agreed, same), [""; 0]);
        let changed = same.replace("b@@FORKLESS_0.1", "b@@FORKLESS_0.2").replace("fork_c", "fork_d");
        let wrong = versions(agreed, &changed).join("\n");
        for name in ["fork_b@FORKLESS_0.1 is gone", "fork_b@FORKLESS_0.2 is not", "fork_c@", "fork_d@"] {
            assert!(wrong.contains(name), "{wrong}");
        }
        // Without versions, as cargo links it.
        assert_eq!(versions(agreed, "1 T fork_a\n").len(), 4);
    }

    #[test]
    fn the_writable_segment_is_read_from_the_program_headers() {
        let code = "  LOAD           0x000000 0x0000 0x0000 0x025636 0x025636 R E 0x1000\n";
        let data = "  LOAD           0x026000 0x26000 0x26000 0x000730 0x000f98 RW  0x1000\n";
        assert_eq!(writable(&format!("{code}{data}")).expect("one segment"), 0xf98);
        assert!(writable(code).is_err());
    }

    #[test]
    fn a_section_is_read_from_the_section_headers() {
        let sections = "  [ 7] .text.start   PROGBITS  0000000000003600 0034fc 005405 00  AX  0   0  4\n";
        assert_eq!(section(".text.start", sections).expect("a section"), (0x34fc, 0x5405));
        assert!(section(".text.far", sections).is_err());
    }

    #[test]
    fn needed_libraries_are_read_from_the_dynamic_section() {
        let dynamic = " 0x01 (NEEDED)  Shared library: [libc.so.6]\n 0x0e (SONAME) Library soname: [x.so]";
        assert_eq!(needed(dynamic), ["libc.so.6"]);
    }
}
