//! How many system calls an operation makes, by ptrace; on Linux only.

// The parent module's expectation of unsafe code covers what is below this file.

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
pub(super) use self::linux::system_calls;

/// Not counted.
#[cfg(not(target_os = "linux"))]
pub(super) fn system_calls(_operation: &super::Operation) -> Option<Result<f64, crate::error::Error>> {
    None
}

/// Why they are not.
pub(super) fn missing() -> Option<&'static str> {
    (!cfg!(target_os = "linux")).then_some("system calls are counted on Linux only")
}
