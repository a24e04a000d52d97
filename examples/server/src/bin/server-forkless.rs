//! The same server with forkless. Only the `use` differs.

use forkless::{Command, Stdio};

include!("../server.rs");
