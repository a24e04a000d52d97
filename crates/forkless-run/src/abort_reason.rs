//! Why a fork stayed plain: one `u32` that fits a shared word.

use core::fmt;

macro_rules! kinds {
    ($($name:ident = $value:literal, $key:literal, $text:literal;)*) => {
        /// The kind of an [`AbortReason`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum AbortKind {
            $(#[doc = $text] $name = $value,)*
        }
        impl AbortKind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [AbortKind] = &[$(AbortKind::$name,)*];

            /// Whether a child that has read memory late may owe this end to what it read: then it
            /// proves nothing. A child that ends by a request of its own, as most children do that
            /// execute nothing, is taken at its word.
            pub const fn may_come_of_late_reads(self) -> bool {
                matches!(self, AbortKind::Late | AbortKind::Fault | AbortKind::Died)
            }

            const fn from_raw(raw: u8) -> Option<AbortKind> {
                match raw { $($value => Some(AbortKind::$name),)* _ => None }
            }

            /// The name of the JSON report. Stable: readers of reports know it.
            pub const fn key(self) -> &'static str {
                match self { $(AbortKind::$name => $key,)* }
            }

            /// The phrase of the report.
            pub const fn text(self) -> &'static str {
                match self { $(AbortKind::$name => $text,)* }
            }
        }
    };
}
kinds! {
    // Speculation was not tried.
    Off = 1, "Off", "switched off";
    Small = 2, "Small", "too little memory to gain";
    Threads = 3, "Threads", "more than one thread";
    Traced = 4, "Traced", "traced by a debugger";
    Sandbox = 5, "Sandbox", "seccomp filter of the program's own";
    NoDispatch = 6, "NoDispatch", "no syscall user dispatch here";
    DispatchTaken = 7, "DispatchTaken", "syscall user dispatch used by the program";
    NoProc = 8, "NoProc", "no /proc of its own to read";
    NoMaps = 9, "NoMaps", "mappings could not be listed";
    Descriptors = 10, "Descriptors", "no free descriptor";
    AltStack = 11, "AltStack", "on an alternate signal stack";
    Learned = 12, "Learned", "call site that pauses";
    Busy = 13, "Busy", "another thread was forking or changing memory";
    Unusual = 14, "Unusual", "unusual call or signal during the fork";
    Advice = 15, "Advice", "not all MADV_DONTFORK ranges of the program are known";
    CloneFailed = 16, "CloneFailed", "clone refused";
    Nested = 17, "Nested", "forked by a fork handler";
    Namespace = 18, "Namespace", "its children are in another PID namespace";
    Lock = 19, "Lock", "lock held for long by another thread";
    Shared = 20, "Shared", "in memory that is another process's (vfork)";
    Lent = 21, "Lent", "memory lent to a pipe (vmsplice)";
    Files = 22, "Files", "descriptors shared with another process";
    Helper = 23, "Helper", "no helper thread can be made";
    Ignored = 24, "Ignored", "SIGSYS is ignored, and there are threads";
    SecondLibc = 25, "SecondLibc", "a second C library is loaded (dlmopen)";
    Ring = 26, "Ring", "the kernel writes its memory (io_uring, aio)";
    Queue = 27, "Queue", "notified by a message queue, and there are threads";
    Serves = 28, "Serves", "it may serve memory or files (userfaultfd, fanotify)";
    // Speculation was aborted.
    Call = 32, "Call", "system call";
    Command = 33, "Command", "command of fcntl, ioctl or prctl";
    Inherited = 34, "Inherited", "inherited descriptor";
    Fault = 35, "Fault", "fault at an address the parent does not have";
    SharedWrite = 36, "SharedWrite", "write to shared memory";
    Timeout = 37, "Timeout", "time limit";
    Budget = 38, "Budget", "page budget";
    Signal = 39, "Signal", "signal arrived";
    Died = 40, "Died", "child ended without exec";
    OpenFile = 41, "OpenFile", "open of anything but a plain file for reading";
    Collision = 42, "Collision", "descriptor number needed by the program";
    Setup = 43, "Setup", "child could not be set up";
    Layout = 44, "Layout", "change to a mapping the child does not have";
    Interrupted = 45, "Interrupted", "exec interrupted by a signal handler";
    Late = 46, "Late", "read memory late";
    Call32 = 47, "Call32", "32-bit system call";
}

/// A system call with commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandOf {
    /// `fcntl`.
    Fcntl,
    /// `ioctl`.
    Ioctl,
    /// `prctl`.
    Prctl,
}

impl CommandOf {
    const ALL: [CommandOf; 3] = [CommandOf::Fcntl, CommandOf::Ioctl, CommandOf::Prctl];
}

/// Bits of a command that a reason keeps.
const COMMAND_BITS: u32 = 22;

/// Why a fork was not speculated, or why its speculation was aborted: a kind, and for some kinds a
/// number (the system call, the command, the signal).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AbortReason {
    kind: AbortKind,
    detail: u32,
}

impl AbortReason {
    /// `detail` keeps its low 24 bits.
    pub const fn new(kind: AbortKind, detail: u32) -> AbortReason {
        AbortReason { kind, detail: detail & 0xff_ffff }
    }

    /// A command of a call. Its low 22 bits are kept, which tell all commands apart that the kernel
    /// has.
    pub const fn command(of: CommandOf, command: u32) -> AbortReason {
        AbortReason::new(AbortKind::Command, (of as u32) << COMMAND_BITS | low_bits(command))
    }

    /// Of [`command`](Self::command): the call, and the command's low bits.
    pub fn as_command(self) -> Option<(CommandOf, u32)> {
        let of = *CommandOf::ALL.get((self.detail >> COMMAND_BITS) as usize)?;
        (self.kind == AbortKind::Command).then_some((of, low_bits(self.detail)))
    }

    /// The kind.
    pub const fn kind(self) -> AbortKind {
        self.kind
    }

    /// The number that goes with the kind; 0 when the kind has none.
    pub const fn detail(self) -> u32 {
        self.detail
    }

    /// As one word, never 0.
    pub const fn raw(self) -> u32 {
        (self.kind as u32) << 24 | self.detail
    }

    /// Back from [`raw`](Self::raw); `None` for words that are no reason.
    pub const fn from_raw(raw: u32) -> Option<AbortReason> {
        match AbortKind::from_raw((raw >> 24) as u8) {
            Some(kind) => Some(AbortReason { kind, detail: raw & 0xff_ffff }),
            None => None,
        }
    }
}

/// The bits of a command that a reason keeps.
pub(crate) const fn low_bits(command: u32) -> u32 {
    command & ((1 << COMMAND_BITS) - 1)
}

impl From<AbortKind> for AbortReason {
    fn from(kind: AbortKind) -> AbortReason {
        AbortReason::new(kind, 0)
    }
}

impl fmt::Debug for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AbortKind::Call
            | AbortKind::Inherited
            | AbortKind::Command
            | AbortKind::Signal
            | AbortKind::OpenFile => {
                write!(f, "{:?}({})", self.kind, self.detail)
            }
            kind => write!(f, "{kind:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AbortKind, AbortReason, CommandOf};
    use crate::Counter;

    #[test]
    fn a_command_is_kept_with_its_call() {
        for of in CommandOf::ALL {
            let reason = AbortReason::command(of, 0x8004_5430);
            assert_eq!(reason.as_command(), Some((of, 0x04_5430)));
            assert_eq!(AbortReason::from_raw(reason.raw()), Some(reason));
        }
        assert_eq!(AbortReason::new(AbortKind::Call, 1).as_command(), None);
    }

    #[test]
    fn each_kind_has_a_key_of_its_own() {
        for (at, kind) in AbortKind::ALL.iter().enumerate() {
            assert!(AbortKind::ALL[..at].iter().all(|other| other.key() != kind.key()), "{kind:?}");
        }
    }

    /// The guide says of each reason what it means, and has no others. `Off` is in no report.
    #[test]
    fn the_guide_has_every_reason_and_no_other() {
        const GUIDE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/report.md"));
        let words: Vec<&str> = GUIDE.split_whitespace().collect();
        let guide = words.join(" ");
        let kinds = || AbortKind::ALL.iter().filter(|&&kind| kind != AbortKind::Off).map(|kind| kind.text());
        for text in kinds() {
            assert!(guide.contains(text), "the guide lacks {text}");
        }
        let of_shells =
            || Counter::ALL.iter().filter_map(|one| one.text().strip_prefix("executed shells kept: "));
        // A row of a table of reasons; the heading has the word alone.
        let rows = GUIDE.lines().filter_map(|line| Some(line.strip_prefix("| ")?.split_once(" | ")?.0));
        let (reasons, _) = GUIDE.split_once("## Which children commit").expect("a heading");
        let rows = rows.filter(|row| reasons.contains(&format!("| {row} |")) && *row != "reason");
        let mut told = 0;
        for row in rows {
            assert!(kinds().chain(of_shells()).any(|text| text == row), "no report has {row}");
            told += 1;
        }
        assert!(told > kinds().count() / 2, "{told} rows");
    }

    #[test]
    fn a_reason_survives_as_one_word() {
        for &kind in AbortKind::ALL {
            for detail in [0, 1, 61, 0xff_ffff] {
                let reason = AbortReason::new(kind, detail);
                assert_ne!(reason.raw(), 0);
                assert_eq!(AbortReason::from_raw(reason.raw()), Some(reason));
                assert_eq!((reason.kind(), reason.detail()), (kind, detail));
            }
        }
    }

    #[test]
    fn a_detail_keeps_its_low_24_bits() {
        assert_eq!(AbortReason::new(AbortKind::Fault, 0x7fff_1234).detail(), 0xff_1234);
    }

    #[test]
    fn words_that_are_no_reason_are_none() {
        for raw in [0, 61, 255 << 24, 31 << 24] {
            assert_eq!(AbortReason::from_raw(raw), None, "{raw:#x}");
        }
    }
}
