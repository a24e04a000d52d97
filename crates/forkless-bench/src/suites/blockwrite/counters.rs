//! What the kernel counts: requests and sectors of a block device, as iostat reads them, and the
//! bytes this process had read from devices.

use std::fs;
use std::path::PathBuf;

use crate::error::Error;

/// A block device's counters.
#[derive(Debug)]
pub(super) struct Device {
    stat: PathBuf,
}

/// A reading of them (Documentation/block/stat.rst); a sector is 512 bytes whatever the device's
/// are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counters {
    pub(super) reads: u64,
    pub(super) sectors_read: u64,
    pub(super) writes: u64,
    pub(super) sectors_written: u64,
}

impl Device {
    /// The device (or partition) with this number; `None` where the kernel knows none, as for file
    /// systems that are on no device or on several.
    pub(super) fn of(major: u32, minor: u32) -> Option<Device> {
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        stat.exists().then_some(Device { stat })
    }

    pub(super) fn read(&self) -> Result<Counters, Error> {
        let text =
            fs::read_to_string(&self.stat).map_err(Error::io(format!("read {}", self.stat.display())))?;
        Counters::parse(&text)
            .ok_or_else(|| Error::Missing(format!("{} has not the usual fields", self.stat.display())))
    }
}

impl Counters {
    fn parse(text: &str) -> Option<Counters> {
        let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[reads, _, sectors_read, _, writes, _, sectors_written, ..] = fields.as_slice() else {
            return None;
        };
        Some(Counters { reads, sectors_read, writes, sectors_written })
    }

    pub(super) fn since(self, earlier: Counters) -> Counters {
        Counters {
            reads: self.reads.wrapping_sub(earlier.reads),
            sectors_read: self.sectors_read.wrapping_sub(earlier.sectors_read),
            writes: self.writes.wrapping_sub(earlier.writes),
            sectors_written: self.sectors_written.wrapping_sub(earlier.sectors_written),
        }
    }
}

/// `read_bytes` of proc_pid_io(5): what this thread caused to be fetched from devices; `None`
/// without task I/O accounting. Of the thread: others of the process read meanwhile.
pub(super) fn own_read_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_stat_file_are_told_apart() {
        let text = "     100        1     2000       30      400        5     6000       70        0       80       90\n";
        let before = Counters::parse(text).unwrap();
        assert_eq!(before, Counters { reads: 100, sectors_read: 2000, writes: 400, sectors_written: 6000 });
        let after = Counters { reads: 101, ..before };
        assert_eq!(after.since(before), Counters { reads: 1, ..Counters::default() });
        assert!(Counters::parse("1 2 3").is_none());
        assert!(Device::of(0, 0).is_none());
    }
}
