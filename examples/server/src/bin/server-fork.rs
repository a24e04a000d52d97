//! The server with the standard library. It forks, as `std::process::Command` does whenever a uid or gid is asked for.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

include!("../server.rs");
