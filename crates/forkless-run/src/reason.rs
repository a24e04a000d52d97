//! Why a fork was not speculated, or a speculation was undone: one `u32` that fits a shared word.

use core::fmt;

macro_rules! kinds {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        /// The kind of a [`Reason`].
        ///
        /// ```
        /// use forkless_run::{Kind, Reason};
        /// let reason = Reason::from(Kind::Timeout);
        /// assert_eq!((reason.kind(), reason.detail()), (Kind::Timeout, 0));
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = $text] $name = $value,)*
        }
        impl Kind {
            const fn from_raw(raw: u8) -> Option<Kind> {
                match raw { $($value => Some(Kind::$name),)* _ => None }
            }
            /// The phrase of the report.
            ///
            /// ```
            /// assert_eq!(forkless_run::Kind::Busy.text(), "another thread was forking");
            /// ```
            pub const fn text(self) -> &'static str {
                match self { $(Kind::$name => $text,)* }
            }
        }
    };
}
kinds! {
    // Not tried.
    Off = 1, "switched off";
    Small = 2, "too little memory to gain";
    Threads = 3, "more than one thread (--fork=strict)";
    Traced = 4, "traced by a debugger";
    Sandbox = 5, "seccomp filter of the program's own";
    NoDispatch = 6, "no syscall user dispatch here";
    DispatchTaken = 7, "syscall user dispatch used by the program";
    NoProc = 8, "no /proc of its own to read";
    NoMaps = 9, "mappings could not be listed";
    Descriptors = 10, "no free descriptor";
    AltStack = 11, "on an alternate signal stack";
    Learned = 12, "call site whose children seldom exec";
    Busy = 13, "another thread was forking";
    Unusual = 14, "unusual call in a fork handler";
    Advice = 15, "not all MADV_DONTFORK ranges of the program are known";
    CloneFailed = 16, "clone refused";
    Nested = 17, "forked by a fork handler";
    Namespace = 18, "its children are in another PID namespace";
    Lock = 19, "lock held for long by another thread";
    Shared = 20, "in memory that is another process's (vfork)";
    Lent = 21, "memory lent to a pipe (vmsplice)";
    Files = 22, "descriptors shared with another process";
    // Undone.
    Call = 32, "system call";
    Command = 33, "command of fcntl, ioctl or prctl";
    Inherited = 34, "inherited descriptor used";
    Fault = 35, "fault at an address the parent does not have";
    SharedWrite = 36, "write to shared memory";
    Timeout = 37, "time limit";
    Budget = 38, "page budget";
    Signal = 39, "signal arrived";
    Died = 40, "child ended without exec";
    OpenFile = 41, "open of anything but a plain file for reading";
    Collision = 42, "descriptor number needed by the program";
    Setup = 43, "child could not be set up";
    Layout = 44, "change to a mapping the child does not have";
    Interrupted = 45, "exec interrupted by a signal handler";
}

/// A kind, and for some kinds a number: the system call, the command, the signal.
///
/// ```
/// use forkless_run::{Kind, Reason};
/// let r = Reason::new(Kind::Call, 61);
/// assert_eq!(Reason::from_raw(r.raw()), Some(r));
/// assert_eq!(r.kind().text(), "system call");
/// assert_eq!(Reason::from_raw(0), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    kind: Kind,
    detail: u32,
}

impl Reason {
    /// `detail` keeps its low 24 bits.
    ///
    /// ```
    /// use forkless_run::{Kind, Reason};
    /// assert_eq!(Reason::new(Kind::Signal, 15).detail(), 15);
    /// assert_eq!(Reason::new(Kind::Fault, 0x7fff_1234).detail(), 0xff_1234);
    /// ```
    pub const fn new(kind: Kind, detail: u32) -> Reason {
        Reason { kind, detail: detail & 0xff_ffff }
    }

    /// The kind.
    ///
    /// ```
    /// use forkless_run::{Kind, Reason};
    /// assert_eq!(Reason::new(Kind::Signal, 15).kind(), Kind::Signal);
    /// ```
    pub const fn kind(self) -> Kind {
        self.kind
    }

    /// The number that goes with the kind, 0 when none does.
    ///
    /// ```
    /// use forkless_run::{Kind, Reason};
    /// assert_eq!(Reason::new(Kind::Call, 61).detail(), 61);
    /// assert_eq!(Reason::from(Kind::Budget).detail(), 0);
    /// ```
    pub const fn detail(self) -> u32 {
        self.detail
    }

    /// As one word, never 0.
    ///
    /// ```
    /// use forkless_run::{Kind, Reason};
    /// assert_eq!(Reason::new(Kind::Off, 0).raw(), 1 << 24);
    /// ```
    pub const fn raw(self) -> u32 {
        (self.kind as u32) << 24 | self.detail
    }

    /// Back from [`raw`](Self::raw); `None` for words that are no reason.
    ///
    /// ```
    /// use forkless_run::{Kind, Reason};
    /// assert_eq!(Reason::from_raw(32 << 24 | 61), Some(Reason::new(Kind::Call, 61)));
    /// assert_eq!(Reason::from_raw(255 << 24), None);
    /// ```
    pub const fn from_raw(raw: u32) -> Option<Reason> {
        match Kind::from_raw((raw >> 24) as u8) {
            Some(kind) => Some(Reason { kind, detail: raw & 0xff_ffff }),
            None => None,
        }
    }
}

impl From<Kind> for Reason {
    fn from(kind: Kind) -> Reason {
        Reason::new(kind, 0)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Call | Kind::Inherited | Kind::Command | Kind::Signal | Kind::OpenFile => {
                write!(f, "{:?}({})", self.kind, self.detail)
            }
            kind => write!(f, "{kind:?}"),
        }
    }
}
