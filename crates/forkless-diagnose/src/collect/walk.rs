//! When to read a table again whose size depends on the machine.

use std::time::Instant;

/// The readings of one table. Each may take milliseconds. Together they take a fiftieth of the time
/// at most.
#[derive(Debug, Default)]
pub(super) struct Walk {
    began: Option<Instant>,
    next: Option<Instant>,
}

impl Walk {
    const SHARE: u32 = 50;

    pub(super) fn is_due(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    pub(super) fn began(&mut self) {
        self.began = Some(Instant::now());
    }

    pub(super) fn ended(&mut self) {
        let now = Instant::now();
        self.next = self.began.map(|began| now + (now - began) * Self::SHARE);
    }
}
