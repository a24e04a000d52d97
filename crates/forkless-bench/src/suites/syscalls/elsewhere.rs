//! On other systems than Linux all calls go through libc.

use std::path::PathBuf;

use crate::engine::Arm;
use crate::error::Error;
use crate::guard::Guard;

/// No programs of a few instructions.
pub(super) struct Programs;

impl Programs {
    #[expect(clippy::unnecessary_wraps, reason = "the face is that of Linux")]
    pub(super) fn prepare(_tracer: Option<PathBuf>, _guard: Option<&mut Guard>) -> Result<Programs, Error> {
        Ok(Programs)
    }

    /// No call is the system's own.
    #[expect(clippy::unused_self, reason = "the face is that of Linux")]
    pub(super) fn arm(
        &self,
        _name: &str,
        _via: &str,
        _overhead: f64,
    ) -> Option<Result<Box<dyn Arm + '_>, Error>> {
        None
    }
}
