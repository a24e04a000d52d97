//! Which creations `--log` prints.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use clap::builder::{OsStringValueParser, TypedValueParser};
use forkless_diagnose::Creation;

/// Bytes of a thread's name that the kernel keeps (TASK_COMM_LEN without its NUL).
const NAME_BYTES: usize = 15;

/// Flags that go with `--log`. A creation must pass all that are given.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Filter {
    /// With --log: print only creations whose caller's or child's name contains NAME. Given twice:
    /// either name.
    #[arg(long, value_name = "NAME", requires = "log", value_parser = names())]
    comm: Vec<String>,

    /// With --log: print only creations by this user. Given twice: either user.
    #[arg(long, value_name = "UID", requires = "log", value_parser = uid)]
    uid: Vec<u32>,

    /// With --log: print only creations whose child could not execute its program.
    #[arg(long, requires = "log")]
    failed: bool,

    /// With --log: print only creations that took longer than this, in milliseconds, until the
    /// caller ran on or the program was in place.
    #[arg(long, value_name = "MS", requires = "log", value_parser = milliseconds, allow_negative_numbers = true)]
    slower: Option<f64>,
}

/// Names from the kernel have their bytes that are no UTF-8 replaced, and so has this.
fn names() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|name: OsString| {
        let bytes = name.as_bytes();
        let kept = bytes.get(..NAME_BYTES).unwrap_or(bytes);
        let kept = String::from_utf8_lossy(kept).into_owned();
        if kept.is_empty() { Err("every name contains it; give a part of a name") } else { Ok(kept) }
    })
}

fn uid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "not the number of a user; `id -u NAME` tells it".to_owned())
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0);
    number.ok_or_else(|| "must be a number of milliseconds, 0 or more".to_owned())
}

impl Filter {
    /// Whether no flag was given.
    pub(super) fn wants_all(&self) -> bool {
        self.comm.is_empty() && self.uid.is_empty() && !self.failed && self.slower.is_none()
    }

    /// Whether to print a creation. `age_ns` is the time since the call, if it is not over yet.
    pub(super) fn wants(&self, creation: &Creation, age_ns: u64) -> bool {
        let named = |name: &String| creation.caller_comm.contains(name) || creation.child_comm.contains(name);
        let by_user = |uid: &u32| creation.caller_uid == Some(*uid);
        let has_failed = creation.execs == 0 && creation.exec_errno.is_some();
        (self.comm.is_empty() || self.comm.iter().any(named))
            && (self.uid.is_empty() || self.uid.iter().any(by_user))
            && (!self.failed || has_failed)
            && self.slower.is_none_or(|ms| took_ns(creation, age_ns) as f64 > ms * 1e6)
    }
}

/// The time until the caller ran on or the new program was in place, whichever was later.
fn took_ns(creation: &Creation, age_ns: u64) -> u64 {
    // A caller that has not returned still waits.
    let caller = creation.caller_waited_ns.or(creation.copy_ns).unwrap_or(age_ns);
    caller.max(creation.until_exec_ns.unwrap_or(0))
}
