//! How much a speculative child may fetch where memory is limited. What it fetches is memory that a plain fork would not have taken: near
//! the limit of its cgroup the kernel would make room by killing the largest process, and that is the parent.

use core::ffi::CStr;

use forkless_sys::CPtr;

use crate::decimal::decimal;
use crate::small_file;

const PATH: usize = 512;

/// Bytes left below every limit that this process's cgroup and those above it have, counting file pages that the kernel would give up first.
/// No limit, or none that can be read: `u64::MAX`. Out of line, for its text would be part of every fetch's frame.
#[cold]
#[inline(never)]
pub(crate) fn room() -> u64 {
    let mut text = [0u8; 2048];
    let Some(listed) = small_file::read(CPtr::from(c"/proc/self/cgroup"), &mut text) else { return u64::MAX };
    let mut room = u64::MAX;
    for line in listed.split(|b| *b == b'\n') {
        // ID:CONTROLLERS:PATH; the second version has no controllers (cgroups(7)).
        let mut fields = line.splitn(3, |b| *b == b':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            room = room.min(upwards(b"/sys/fs/cgroup", group, [b"/memory.max", b"/memory.current"]));
        } else if controllers.split(|b| *b == b',').any(|c| c == b"memory") {
            let files: [&[u8]; 2] = [b"/memory.limit_in_bytes", b"/memory.usage_in_bytes"];
            room = room.min(upwards(b"/sys/fs/cgroup/memory", group, files));
        }
    }
    room
}

/// The least room from a group up to the root of the hierarchy, as far as it is seen from here.
fn upwards(mount: &[u8], group: &[u8], [limit, usage]: [&[u8]; 2]) -> u64 {
    let mut room = u64::MAX;
    let mut group = group;
    loop {
        if let (Some(limit), Some(usage)) = (number(mount, group, limit), number(mount, group, usage)) {
            let spare = reclaimable(mount, group).unwrap_or(0);
            room = room.min(limit.saturating_sub(usage).saturating_add(spare));
        }
        let Some(slash) = group.iter().rposition(|b| *b == b'/') else { return room };
        group = &group[..slash];
    }
}

fn number(mount: &[u8], group: &[u8], file: &[u8]) -> Option<u64> {
    let mut text = [0u8; 32];
    // "max" is no number.
    decimal(at(mount, group, file, &mut text)?.trim_ascii_end())
}

fn reclaimable(mount: &[u8], group: &[u8]) -> Option<u64> {
    let mut text = [0u8; 4096];
    let all = at(mount, group, b"/memory.stat", &mut text)?;
    all.split(|b| *b == b'\n').find_map(|line| decimal(line.strip_prefix(b"inactive_file ")?))
}

fn at<'a>(mount: &[u8], group: &[u8], file: &[u8], text: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0u8; PATH];
    let mut len = 0;
    for part in [mount, group, file] {
        path.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    small_file::read(CPtr::from(CStr::from_bytes_until_nul(&path).ok()?), text)
}
