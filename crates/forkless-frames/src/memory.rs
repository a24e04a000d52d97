//! The memory of another process, by /proc/PID/mem.
//!
//! It is read through an open descriptor, and not by pid: that refers to one memory map. After an
//! exec or the process's end it reads nothing, and never another process's memory.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use crate::moment::Copied;
use crate::{Limits, Why};

/// Reads another process's memory, within an allowance.
#[derive(Debug)]
pub(crate) struct Memory {
    file: File,
    bytes_left: Cell<usize>,
    until: Cell<Option<Instant>>,
    /// What is read in place of the process's memory.
    copied: RefCell<Option<Copied>>,
}

/// What a read counts beside its bytes: a system call takes as long as copying some of them.
const COST_OF_A_READ: usize = 64;

impl Memory {
    pub(crate) fn open(pid: u32) -> Result<Self, Why> {
        let file = File::open(format!("/proc/{pid}/mem")).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => Why::Denied,
            _ => Why::Gone,
        })?;
        let (bytes_left, until) = (Cell::new(0), Cell::new(None));
        Ok(Self { file, bytes_left, until, copied: RefCell::new(None) })
    }

    /// Begins a new allowance.
    pub(crate) fn allow(&self, limits: Limits) {
        self.bytes_left.set(limits.bytes);
        self.until.set(Some(Instant::now() + limits.time));
    }

    /// Begins a new allowance that does not end by time.
    pub(crate) fn allow_bytes(&self, bytes: usize) {
        self.bytes_left.set(bytes);
        self.until.set(None);
    }

    /// Has copied memory read in place of the process's, until this is taken back by `None`.
    pub(crate) fn lay_over(&self, copied: Option<Copied>) {
        *self.copied.borrow_mut() = copied;
    }

    /// The stack pointer of the thread whose memory was copied.
    pub(crate) fn copied_stack_pointer(&self) -> Option<u64> {
        self.copied.borrow().as_ref().map(|copied| copied.stack_pointer)
    }

    /// Whether copied memory is read and lacks this frame, which may be gone by now.
    pub(crate) fn lacks_frame(&self, at: u64) -> bool {
        self.copied.borrow().as_ref().is_some_and(|copied| !copied.has_frame(at))
    }

    /// Fills `into` from address `at`.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Why> {
        let left = self.bytes_left.get().checked_sub(into.len() + COST_OF_A_READ).ok_or(Why::TooMuch)?;
        self.bytes_left.set(left);
        if self.until.get().is_some_and(|until| Instant::now() > until) {
            return Err(Why::TooMuch);
        }
        // Nothing of a program is above the half of the address space, and 0 is no pointer.
        if at == 0 || at > i64::MAX as u64 {
            return Err(Why::Strange);
        }
        let copied = self.copied.borrow();
        if copied.as_ref().is_some_and(|copied| copied.fill(at, into)) {
            return Ok(());
        }
        self.file.read_exact_at(into, at).map_err(|error| match error.kind() {
            // The kernel reads 0 bytes from a memory map that nobody uses any more.
            ErrorKind::UnexpectedEof => Why::Gone,
            ErrorKind::PermissionDenied => Why::Denied,
            _ => Why::Strange,
        })?;
        if let Some(copied) = copied.as_ref() {
            copied.patch(at, into);
        }
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], Why> {
        let mut bytes = [0; N];
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn pointer(&self, at: u64) -> Result<u64, Why> {
        self.array(at).map(u64::from_ne_bytes)
    }

    pub(crate) fn u32(&self, at: u64) -> Result<u32, Why> {
        self.array(at).map(u32::from_ne_bytes)
    }

    pub(crate) fn i32(&self, at: u64) -> Result<i32, Why> {
        self.array(at).map(i32::from_ne_bytes)
    }

    pub(crate) fn u8(&self, at: u64) -> Result<u8, Why> {
        self.array(at).map(u8::from_ne_bytes)
    }

    /// `length` bytes, if they are no more than `most`.
    pub(crate) fn bytes(&self, at: u64, length: u64, most: usize) -> Result<Vec<u8>, Why> {
        let length = usize::try_from(length).ok().filter(|&length| length <= most).ok_or(Why::Strange)?;
        let mut bytes = vec![0; length];
        if length > 0 {
            self.read(at, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// The bytes before the first 0, at most [`LONGEST_NAME`] of them.
    pub(crate) fn c_string(&self, at: u64) -> Result<String, Why> {
        let mut bytes = Vec::new();
        while bytes.len() < LONGEST_NAME {
            // Up to the end of the page: the next one may not exist.
            let here = at.checked_add(bytes.len() as u64).ok_or(Why::Strange)?;
            let length = (PAGE - here % PAGE).min(256);
            let part = self.bytes(here, length, 256)?;
            if let Some(end) = part.iter().position(|&byte| byte == 0) {
                bytes.extend_from_slice(part.get(..end).unwrap_or_default());
                break;
            }
            bytes.extend(part);
        }
        Ok(text(&bytes))
    }
}

/// No pages are smaller.
const PAGE: u64 = 4096;

/// Names and paths are no longer: PATH_MAX.
pub(crate) const LONGEST_NAME: usize = 4096;

/// Bytes as text. What is no UTF-8 is replaced; so are control characters, since a name with a
/// newline would look like two lines of a report.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ours() -> Memory {
        let memory = Memory::open(std::process::id()).expect("we may read ourselves");
        memory.allow_bytes(1 << 20);
        memory
    }

    #[test]
    fn a_string_is_read_up_to_its_end_and_control_characters_are_replaced() {
        let string = b"a\nb\xff\0c";
        assert_eq!(ours().c_string(string.as_ptr().addr() as u64), Ok("a\u{fffd}b\u{fffd}".into()));
    }

    #[test]
    fn an_address_that_is_not_mapped_is_an_error() {
        for nowhere in [0, 1, i64::MAX as u64, u64::MAX] {
            assert_eq!(ours().pointer(nowhere), Err(Why::Strange), "{nowhere:#x}");
        }
    }

    #[test]
    fn an_allowance_ends_by_bytes_and_by_time() {
        let memory = ours();
        let bytes = [7_u8; 256];
        let at = bytes.as_ptr().addr() as u64;
        memory.allow(Limits { bytes: 512, time: Duration::from_secs(60), frames: 1 });
        assert_eq!(memory.bytes(at, 256, 256).map(|read| read.len()), Ok(256));
        assert_eq!(memory.bytes(at, 256, 256), Err(Why::TooMuch));
        memory.allow(Limits { bytes: 512, time: Duration::ZERO, frames: 1 });
        assert_eq!(memory.bytes(at, 1, 256), Err(Why::TooMuch));
        memory.allow(Limits::default());
        assert_eq!(memory.bytes(at, 257, 256), Err(Why::Strange));
    }
}
