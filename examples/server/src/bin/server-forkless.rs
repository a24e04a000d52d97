//! The same server with forkless: the `use` is all that differs.

use forkless::{Command, Stdio};

include!("../server.rs");
