//! A linear device-mapper volume over another block device, made with the control device's ioctls
//! (include/uapi/linux/dm-ioctl.h): no program of LVM is needed. It is removed when dropped, and by
//! the guard if this process is killed.

#![expect(unsafe_code, reason = "ioctls of the device mapper")]

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::guard::{Guard, Undo};

const CONTROL: &str = "/dev/mapper/control";

/// Removes a volume that was made.
pub(super) const UNDO: Undo =
    Undo { kind: b'v', undo: |name| remove(name.to_str().ok_or(ErrorKind::InvalidData)?) };

const DEV_CREATE: u8 = 3;
const DEV_REMOVE: u8 = 4;
const DEV_SUSPEND: u8 = 6;
const TABLE_LOAD: u8 = 9;
/// `struct dm_ioctl`.
const HEADER: usize = 312;
/// Offsets in it.
const TARGET_COUNT: usize = 20;
const DEV: usize = 40;
const NAME: usize = 48;
const NAME_LENGTH: usize = 128;
/// `struct dm_target_spec`.
const SPEC: usize = 40;

/// A volume; removed when dropped.
#[derive(Debug)]
pub(super) struct Volume {
    name: String,
    minor: u32,
    major: u32,
}

impl Volume {
    /// Maps the first `sectors` (of 512 bytes) of the device `below`, given as `major:minor`.
    pub(super) fn linear(
        name: &str,
        below: &str,
        sectors: u64,
        guard: Option<&mut Guard>,
    ) -> Result<Volume, Error> {
        let control = control().map_err(|error| {
            Error::Missing(format!("no device mapper here: {CONTROL}: {error} (needs root and dm_mod)"))
        })?;
        if let Some(guard) = guard {
            guard.undo_at_end(&UNDO, OsStr::new(name))?;
        }
        let missing = |step: &str| {
            let step = format!("cannot {step} a device-mapper volume");
            move |error: io::Error| Error::Missing(format!("{step}: {error}"))
        };
        let answer = request(&control, DEV_CREATE, name, &[]).map_err(missing("make"))?;
        // huge_encode_dev, include/linux/kdev_t.h.
        let number = u64::from_ne_bytes(field(&answer, DEV));
        #[expect(clippy::cast_possible_truncation, reason = "device numbers have 32 bits")]
        let number = number as u32;
        let volume = Volume {
            name: name.to_owned(),
            major: (number >> 8) & 0xfff,
            minor: (number & 0xff) | ((number >> 12) & 0xf_ff00),
        };
        request(&control, TABLE_LOAD, name, &table(below, sectors)).map_err(missing("load the table of"))?;
        // Without the flag that suspends, this is what makes the loaded table the active one.
        request(&control, DEV_SUSPEND, name, &[]).map_err(missing("activate"))?;
        Ok(volume)
    }

    pub(super) fn number(&self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Opens it, with `O_DIRECT` or without.
    pub(super) fn open(&self, flags: i32) -> Result<File, Error> {
        let path = PathBuf::from(format!("/dev/dm-{}", self.minor));
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        opened.map_err(|error| Error::Missing(format!("{}: {error}", path.display())))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // The guard tries again, and complains if it cannot.
        let _ = remove(&self.name);
    }
}

/// Removes a volume by name; fine if it is gone already.
fn remove(name: &str) -> io::Result<()> {
    let control = control()?;
    for _ in 0..100 {
        match request(&control, DEV_REMOVE, name, &[]) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(()),
            // Still open: by a process on its way out, or by udev, which looks at every new device.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other.map(drop),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}

fn control() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(CONTROL)
}

/// One target of a table: `linear` over `below` from its first sector.
fn table(below: &str, sectors: u64) -> Vec<u8> {
    let parameters = format!("{below} 0\0");
    let length = (SPEC + parameters.len()).next_multiple_of(8);
    let mut target = Vec::with_capacity(length);
    target.extend(0_u64.to_ne_bytes()); // the first sector
    target.extend(sectors.to_ne_bytes());
    target.extend(0_i32.to_ne_bytes()); // status
    target.extend(u32::try_from(length).unwrap_or(0).to_ne_bytes()); // where the next one would be
    target.extend(b"linear\0\0\0\0\0\0\0\0\0\0");
    target.extend(parameters.as_bytes());
    target.resize(length, 0);
    target
}

/// Makes one request and returns the header as the kernel answered it.
fn request(control: &File, number: u8, name: &str, targets: &[u8]) -> io::Result<Vec<u8>> {
    if name.is_empty() || name.len() >= NAME_LENGTH {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut buffer = vec![0_u8; HEADER];
    for (index, word) in [4_u32, 0, 0].into_iter().enumerate() {
        put(&mut buffer, 4 * index, &word.to_ne_bytes()); // the interface version
    }
    let size = u32::try_from(HEADER + targets.len()).map_err(|_| ErrorKind::InvalidInput)?;
    put(&mut buffer, 12, &size.to_ne_bytes());
    put(&mut buffer, 16, &u32::try_from(HEADER).unwrap_or(0).to_ne_bytes()); // where the targets begin
    put(&mut buffer, TARGET_COUNT, &u32::from(!targets.is_empty()).to_ne_bytes());
    put(&mut buffer, NAME, name.as_bytes());
    buffer.extend(targets);
    // _IOWR(0xfd, number, struct dm_ioctl)
    let code = 3 << 30 | (HEADER as libc::c_ulong) << 16 | 0xfd << 8 | libc::c_ulong::from(number);
    // The libc of musl declares the request as an int.
    #[allow(
        clippy::useless_conversion,
        clippy::cast_possible_truncation,
        reason = "depends on the C library"
    )]
    let code = code as _;
    // SAFETY: the buffer is as long as its header says, which is how far the kernel reads and
    // writes.
    if unsafe { libc::ioctl(control.as_raw_fd(), code, buffer.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(buffer)
}

fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    buffer[at..at + bytes.len()].copy_from_slice(bytes);
}

fn field<const N: usize>(buffer: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&buffer[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_laid_out_as_the_kernel_reads_it() {
        let table = table("7:3", 8192);
        assert_eq!(table.len(), 48);
        assert_eq!(u64::from_ne_bytes(field(&table, 8)), 8192);
        assert_eq!(u32::from_ne_bytes(field(&table, 20)), 48);
        assert_eq!(&table[24..31], b"linear\0");
        assert_eq!(&table[40..46], b"7:3 0\0");
    }
}
