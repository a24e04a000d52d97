//! A loop device over the scratch file. It detaches itself when its last descriptor is closed
//! (`LO_FLAGS_AUTOCLEAR`), so the kernel undoes it even when this process is killed. A device that
//! had to be added is removed again, by the guard if need be.

#![expect(unsafe_code, reason = "ioctls of the loop driver")]

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux_raw_sys::loop_device::{
    LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO, LOOP_CONFIGURE, LOOP_CTL_GET_FREE, LOOP_CTL_REMOVE, loop_config,
};

use crate::error::Error;
use crate::guard::{Guard, Undo};

const CONTROL: &str = "/dev/loop-control";

/// Removes a loop device that was added, once it is detached.
pub(super) const UNDO: Undo = Undo {
    kind: b'l',
    undo: |number| {
        let number = number.to_str().and_then(|number| number.parse().ok());
        remove(number.ok_or(std::io::ErrorKind::InvalidData)?)
    },
};

/// An attached loop device; detached when dropped.
#[derive(Debug)]
pub(super) struct LoopDevice {
    file: Option<File>,
    number: u32,
    added: bool,
}

impl LoopDevice {
    /// Attaches `backing` to a free loop device with sectors of this many bytes.
    pub(super) fn attach(
        backing: &File,
        sector: u32,
        mut guard: Option<&mut Guard>,
    ) -> Result<LoopDevice, Error> {
        let control = OpenOptions::new().read(true).write(true).open(CONTROL);
        let control = control.map_err(|error| Error::Missing(format!("{CONTROL}: {error} (needs root)")))?;
        // Between the question for a free device and its configuration somebody else may take it.
        for _ in 0..20 {
            let before: Vec<u32> = known();
            // SAFETY: the ioctl takes no argument and returns a device number.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as libc::Ioctl) };
            let Ok(number) = u32::try_from(number) else {
                return Err(missing("find a free loop device"));
            };
            let added = !before.contains(&number);
            if let Some(guard) = guard.as_deref_mut().filter(|_| added) {
                guard.undo_at_end(&UNDO, OsStr::new(&number.to_string()))?;
            }
            let mut device = LoopDevice { file: None, number, added };
            let file = open(&device.path(), 0)?;
            let mut config = loop_config {
                fd: backing.as_raw_fd().unsigned_abs(),
                block_size: sector,
                // SAFETY: a structure of integers and byte arrays, for which zero means "the
                // default".
                info: unsafe { std::mem::zeroed() },
                __reserved: [0; 8],
            };
            // Direct I/O below: else reads of the device would be answered from memory and cost
            // nothing.
            config.info.lo_flags = LO_FLAGS_AUTOCLEAR as u32 | LO_FLAGS_DIRECT_IO as u32;
            // SAFETY: the configuration is a complete structure; the driver takes its own reference
            // to the backing file.
            let result =
                unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CONFIGURE as libc::Ioctl, &raw const config) };
            if result == 0 {
                device.file = Some(file);
                return Ok(device);
            }
            if std::io::Error::last_os_error().raw_os_error() != Some(libc::EBUSY) {
                return Err(missing("set up a loop device"));
            }
        }
        Err(Error::Missing("every free loop device was taken by somebody else".into()))
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    /// Opens it once more, with `O_DIRECT` or without.
    pub(super) fn open(&self, flags: i32) -> Result<File, Error> {
        open(&self.path(), flags)
    }

    /// Whether its reads reach the file's device, and not only the page cache of the file.
    pub(super) fn is_direct(&self) -> bool {
        let dio = fs::read_to_string(format!("/sys/block/loop{}/loop/dio", self.number));
        dio.is_ok_and(|text| text.trim() == "1")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The last descriptor: the driver detaches now.
        drop(self.file.take());
        if self.added {
            // The guard tries again.
            let _ = remove(self.number);
        }
    }
}

/// Removes the node of a loop device that nobody uses; fine if it is gone already.
fn remove(number: u32) -> std::io::Result<()> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    for _ in 0..100 {
        // SAFETY: the ioctl takes a device number; it refuses a device in use.
        if unsafe {
            libc::ioctl(control.as_raw_fd(), LOOP_CTL_REMOVE as libc::Ioctl, libc::c_ulong::from(number))
        } >= 0
        {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENODEV) => return Ok(()),
            // Detaching happens after the last close has returned, and udev may be looking at it.
            Some(libc::EBUSY) => std::thread::sleep(Duration::from_millis(20)),
            _ => return Err(error),
        }
    }
    Err(std::io::Error::from_raw_os_error(libc::EBUSY))
}

/// Numbers of the loop devices there are.
fn known() -> Vec<u32> {
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok()).collect()
}

fn open(path: &Path, flags: i32) -> Result<File, Error> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    opened.map_err(|error| Error::Missing(format!("{}: {error}", path.display())))
}

fn missing(step: &str) -> Error {
    Error::Missing(format!("cannot {step}: {}", std::io::Error::last_os_error()))
}
