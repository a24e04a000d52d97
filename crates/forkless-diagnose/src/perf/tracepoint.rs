//! Reads tracepoints from tracefs and symbols from /proc/kallsyms. On most systems only root may
//! read them.

use std::fs;
use std::ops::Range;

/// Where tracefs is mounted, newer place first.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

fn read(group: &str, name: &str, file: &str) -> Option<String> {
    MOUNTS.iter().find_map(|mount| fs::read_to_string(format!("{mount}/events/{group}/{name}/{file}")).ok())
}

/// The number perf_event_open knows a tracepoint by; `None` if tracefs cannot be read or does not
/// have it.
pub(super) fn id(group: &str, name: &str) -> Option<u64> {
    read(group, name, "id")?.trim().parse().ok()
}

/// task_newtask, and where in its data (offset, bytes) the clone flags are: Linux 6.18 made them 64
/// bits wide.
pub(super) fn task_newtask() -> Option<(u64, (usize, usize))> {
    Some((id("task", "task_newtask")?, field(&read("task", "task_newtask", "format")?, "clone_flags")?))
}

/// Offset and size of a field, from a tracepoint's format file.
fn field(format: &str, name: &str) -> Option<(usize, usize)> {
    let line = format.lines().find(|line| {
        line.split(';')
            .next()
            .is_some_and(|declaration| declaration.trim_end().ends_with(&format!(" {name}")))
    })?;
    let number = |key: &str| {
        line.split(';').find_map(|part| part.trim().strip_prefix(key)?.strip_prefix(':')?.parse().ok())
    };
    Some((number("offset")?, number("size")?)).filter(|(_, size)| matches!(size, 4 | 8))
}

/// The addresses of a kernel function; `None` where they are hidden (kptr_restrict).
pub(super) fn kernel_symbol(name: &str) -> Option<Range<u64>> {
    range_of(&fs::read_to_string("/proc/kallsyms").ok()?, name)
}

fn range_of(kallsyms: &str, name: &str) -> Option<Range<u64>> {
    let symbol = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        matches!(words.next()?, "t" | "T").then_some((address, words.next()? == name))
    };
    let start = kallsyms.lines().filter_map(symbol).find_map(|(address, is_it)| is_it.then_some(address))?;
    let end = kallsyms.lines().filter_map(symbol).map(|(address, _)| address).filter(|a| *a > start).min()?;
    (start != 0).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let format = "format:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:unsigned long old_clone_flags;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:u64 clone_flags;\toffset:32;\tsize:8;\tsigned:0;\n";
        assert_eq!(field(format, "clone_flags"), Some((32, 8)));
        assert_eq!(field(format, "common_type"), None, "neither 4 nor 8 bytes");
        assert_eq!(field(format, "nothing"), None);
    }

    #[test]
    fn a_function_ends_where_the_next_begins() {
        let symbols = "ffffffff81000100 T kernel_clone\nffffffff81000400 t after\nffffffff81000080 D data\n\
            ffffffff81000200 d table\nffffffff81000040 T before\n";
        assert_eq!(range_of(symbols, "kernel_clone"), Some(0xffff_ffff_8100_0100..0xffff_ffff_8100_0400));
        assert_eq!(range_of("0000000000000000 T kernel_clone\n0000000000000000 T b\n", "kernel_clone"), None);
    }
}
