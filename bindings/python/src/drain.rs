//! `_forkless.drain`: reads two pipes to their ends, without the interpreter's lock, as
//! `Popen._communicate` does by a selector.
#![expect(unsafe_code, reason = "descriptors that Python names by number")]

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::io;
use std::os::fd::RawFd;

/// A pipe that is read: -1 once it has ended, which poll(2) passes over.
struct Pipe {
    fd: RawFd,
    data: Vec<u8>,
}

/// Reads until both have ended.
fn read_all(pipes: &mut [Pipe; 2]) -> io::Result<()> {
    // As much as a pipe holds unless its size was changed.
    const ROOM: usize = 1 << 16;
    while pipes.iter().any(|pipe| pipe.fd >= 0) {
        let mut polled = [0, 1].map(|i| libc::pollfd { fd: pipes[i].fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: an array of that length, which the kernel writes to.
        if unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        for (pipe, polled) in pipes.iter_mut().zip(polled) {
            if polled.revents == 0 {
                continue;
            }
            pipe.data.reserve(ROOM);
            let spare = pipe.data.spare_capacity_mut();
            // SAFETY: the kernel writes to the spare capacity, within its length.
            let n = unsafe { libc::read(pipe.fd, spare.as_mut_ptr().cast(), spare.len()) };
            match usize::try_from(n) {
                Ok(0) => pipe.fd = -1,
                Ok(n) => {
                    let length = pipe.data.len() + n;
                    // SAFETY: the kernel has written these bytes.
                    unsafe { pipe.data.set_len(length) };
                }
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
    }
    Ok(())
}

/// Reads two descriptors to their ends, and appends what came to two lists, also where a signal's
/// handler or an error ends it early.
#[pyfunction]
fn drain(
    py: Python<'_>,
    first: RawFd,
    second: RawFd,
    into_first: Bound<'_, PyList>,
    into_second: Bound<'_, PyList>,
) -> PyResult<()> {
    let mut pipes = [first, second].map(|fd| Pipe { fd, data: Vec::new() });
    let read = loop {
        match py.detach(|| read_all(&mut pipes)) {
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {
                if let Err(raised) = py.check_signals() {
                    break Err(raised);
                }
            }
            Err(e) => break Err(PyOSError::new_err((e.raw_os_error(), e.to_string()))),
            Ok(()) => break Ok(()),
        }
    };
    for (pipe, into) in pipes.iter().zip([into_first, into_second]) {
        if !pipe.data.is_empty() {
            into.append(PyBytes::new(py, &pipe.data))?;
        }
    }
    read
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::add(module, c"drain", wrap_pyfunction!(drain, module)?)
}
