//! /proc/PID/maps, a line of it.

use std::ops::Range;

/// A line of /proc/PID/maps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MapsLine {
    pub(super) range: Range<u64>,
    pub(super) executable: bool,
    pub(super) offset: u64,
    pub(super) device: String,
    pub(super) inode: u64,
    pub(super) path: String,
}

impl MapsLine {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let (first, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after;
            first
        };
        let (start, end) = field().split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        let executable = field().as_bytes().get(2) == Some(&b'x');
        let offset = u64::from_str_radix(field(), 16).ok()?;
        let device = field().to_owned();
        let inode = field().parse().ok()?;
        Some(Self { range, executable, offset, device, inode, path: rest.trim_start().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maps_line_keeps_blanks_in_the_path() {
        let line =
            "55d0c0000000-55d0c0001000 r-xp 00002000 08:01 1234                       /opt/a b (deleted)";
        let map = MapsLine::parse(line).expect("well formed");
        assert_eq!((map.range, map.offset, map.inode), (0x55d0_c000_0000..0x55d0_c000_1000, 0x2000, 1234));
        assert!(map.executable);
        assert_eq!(map.path, "/opt/a b (deleted)");
    }

    #[test]
    fn nonsense_in_maps_is_no_mapping() {
        assert_eq!(MapsLine::parse(""), None);
        assert_eq!(MapsLine::parse("zz-11 r-xp 0 0 0"), None);
    }
}
