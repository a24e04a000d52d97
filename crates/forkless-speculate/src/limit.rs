//! How much a speculative child may fetch where memory is limited.
//!
//! A plain fork would not take the memory that a child fetches. Near the limit of its cgroup the
//! kernel makes room by killing the largest process, and that is the parent (decision 19).

use core::ffi::CStr;

use crate::text::decimal;

/// Bytes of the longest name of a file.
const PATH: usize = 512;

/// Bytes left below every limit of this process's cgroup and of the cgroups above it. File pages
/// count as free: the kernel gives them up first. `u64::MAX`: there is no limit, or none that can
/// be read.
///
/// `read` reads a file by its name into a buffer, as far as the buffer has room.
pub fn room(read: impl for<'a> Fn(&CStr, &'a mut [u8]) -> Option<&'a [u8]>) -> u64 {
    let read = &read;
    let mut text = [0u8; 2048];
    let Some(listed) = read(c"/proc/self/cgroup", &mut text) else { return u64::MAX };
    let mut room = u64::MAX;
    for line in listed.split(|b| *b == b'\n') {
        // ID:CONTROLLERS:PATH; the second version has no controllers (cgroups(7)).
        let mut fields = line.splitn(3, |b| *b == b':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            room = room.min(upwards(read, b"/sys/fs/cgroup", group, [b"/memory.max", b"/memory.current"]));
        } else if controllers.split(|b| *b == b',').any(|c| c == b"memory") {
            let files: [&[u8]; 2] = [b"/memory.limit_in_bytes", b"/memory.usage_in_bytes"];
            room = room.min(upwards(read, b"/sys/fs/cgroup/memory", group, files));
        }
    }
    room
}

/// The least room from a group up to the root of the hierarchy, as far as this process sees it.
fn upwards(
    read: &impl for<'a> Fn(&CStr, &'a mut [u8]) -> Option<&'a [u8]>,
    mount: &[u8],
    group: &[u8],
    [limit, usage]: [&[u8]; 2],
) -> u64 {
    let mut room = u64::MAX;
    let mut group = group;
    loop {
        if let (Some(limit), Some(usage)) =
            (number(read, mount, group, limit), number(read, mount, group, usage))
        {
            let spare = reclaimable(read, mount, group).unwrap_or(0);
            room = room.min(limit.saturating_sub(usage).saturating_add(spare));
        }
        let Some(slash) = group.iter().rposition(|b| *b == b'/') else { return room };
        group = &group[..slash];
    }
}

fn number(
    read: &impl for<'a> Fn(&CStr, &'a mut [u8]) -> Option<&'a [u8]>,
    mount: &[u8],
    group: &[u8],
    file: &[u8],
) -> Option<u64> {
    let mut text = [0u8; 32];
    // "max" is no number.
    decimal(at(read, mount, group, file, &mut text)?.trim_ascii_end())
}

fn reclaimable(
    read: &impl for<'a> Fn(&CStr, &'a mut [u8]) -> Option<&'a [u8]>,
    mount: &[u8],
    group: &[u8],
) -> Option<u64> {
    let mut text = [0u8; 4096];
    let all = at(read, mount, group, b"/memory.stat", &mut text)?;
    all.split(|b| *b == b'\n').find_map(|line| decimal(line.strip_prefix(b"inactive_file ")?))
}

fn at<'a>(
    read: &impl for<'b> Fn(&CStr, &'b mut [u8]) -> Option<&'b [u8]>,
    mount: &[u8],
    group: &[u8],
    file: &[u8],
    text: &'a mut [u8],
) -> Option<&'a [u8]> {
    let mut path = [0u8; PATH];
    let mut len = 0;
    for part in [mount, group, file] {
        path.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    read(CStr::from_bytes_until_nul(&path).ok()?, text)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::string::{String, ToString as _};
    use std::vec::Vec;

    use super::*;

    fn room_of(files: &[(&str, &str)]) -> u64 {
        let files: Vec<(String, String)> =
            files.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
        room(|name, into| {
            let (_, text) = files.iter().find(|(known, _)| known.as_bytes() == name.to_bytes())?;
            let n = text.len().min(into.len());
            into[..n].copy_from_slice(&text.as_bytes()[..n]);
            Some(&into[..n])
        })
    }

    #[test]
    fn the_least_room_of_all_groups_up_to_the_root_counts() {
        let group = "/sys/fs/cgroup/a/b";
        let files = [
            ("/proc/self/cgroup", "0::/a/b\n"),
            (&format!("{group}/memory.max"), "max\n"),
            (&format!("{group}/memory.current"), "500\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a/memory.current", "900\n"),
            ("/sys/fs/cgroup/a/memory.stat", "anon 800\ninactive_file 70\nactive_file 30\n"),
        ];
        assert_eq!(room_of(&files), 170);
        assert_eq!(room_of(&files[..4]), u64::MAX, "usage is not known");
        assert_eq!(room_of(&[]), u64::MAX);
    }

    #[test]
    fn the_first_version_has_its_limits_elsewhere() {
        let group = "/sys/fs/cgroup/memory/x";
        let files = [
            ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n"),
            (&format!("{group}/memory.limit_in_bytes"), "4096\n"),
            (&format!("{group}/memory.usage_in_bytes"), "5000\n"),
        ];
        assert_eq!(room_of(&files), 0, "above its limit");
    }

    #[test]
    fn a_group_whose_name_is_too_long_has_no_limit() {
        let name = format!("0::/{}\n", "x".repeat(600));
        assert_eq!(room_of(&[("/proc/self/cgroup", &name)]), u64::MAX);
    }
}
