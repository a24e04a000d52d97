//! What the suite writes to, made for it and taken apart after it.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::TargetKind;
use super::counters::Device;
use super::loop_device::LoopDevice;
use super::mapper::Volume;
use super::scratch::Scratch;
use crate::error::Error;
use crate::guard::Guard;

const LOOP_MAJOR: u32 = 7;

/// A file or device open for writing. Fields drop in order: what is on top goes before what it
/// stands on.
#[derive(Debug)]
pub(super) struct WriteTarget {
    pub(super) buffered: File,
    pub(super) direct: Result<File, String>,
    pub(super) device: Device,
    pub(super) notes: Vec<String>,
    _volume: Option<Volume>,
    _loop: Option<LoopDevice>,
    _scratch: Option<Scratch>,
}

impl WriteTarget {
    pub(super) fn make(
        on: TargetKind,
        size: u64,
        directory: Option<&Path>,
        mut guard: Option<&mut Guard>,
    ) -> Result<WriteTarget, Error> {
        let scratch = Scratch::make(size, directory, guard.as_deref_mut())?;
        let sector = match on {
            TargetKind::File => {
                let device = scratch.device()?;
                let notes = vec![format!(
                    "in {}; its device's counters are those of everybody, read_bytes is this process's own",
                    scratch.directory.display()
                )];
                let Scratch { buffered, direct, .. } = scratch;
                return Ok(WriteTarget {
                    buffered,
                    direct,
                    device,
                    notes,
                    _volume: None,
                    _loop: None,
                    _scratch: None,
                });
            }
            TargetKind::Loop | TargetKind::Mapper => 512,
            TargetKind::Loop4k => 4096,
        };
        let below = LoopDevice::attach(&scratch.buffered, sector, guard.as_deref_mut())?;
        let mut notes = Vec::new();
        if !below.is_direct() {
            notes.push(
                "reads of the loop device are answered from memory: they cost less than a disk's".into(),
            );
        }
        let no_counters = || Error::Missing("the kernel shows no counters of the device".into());
        if on != TargetKind::Mapper {
            return Ok(WriteTarget {
                buffered: below.open(0)?,
                direct: below.open(libc::O_DIRECT).map_err(|error| error.to_string()),
                device: Device::of(LOOP_MAJOR, below.number()).ok_or_else(no_counters)?,
                notes,
                _volume: None,
                _loop: Some(below),
                _scratch: Some(scratch),
            });
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("forkless-bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let volume = Volume::linear(&name, &format!("{LOOP_MAJOR}:{}", below.number()), size / 512, guard)?;
        let (major, minor) = volume.number();
        Ok(WriteTarget {
            buffered: volume.open(0)?,
            direct: volume.open(libc::O_DIRECT).map_err(|error| error.to_string()),
            device: Device::of(major, minor).ok_or_else(no_counters)?,
            notes,
            _volume: Some(volume),
            _loop: Some(below),
            _scratch: Some(scratch),
        })
    }
}
