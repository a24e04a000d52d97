//! The server with the standard library. `std::process::Command` forks whenever a uid or gid is
//! set.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

include!("../server.rs");
