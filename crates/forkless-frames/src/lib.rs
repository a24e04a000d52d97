//! Which line of the user's code a thread stands at, read from outside.
//!
//! A thread in fork, or in the wait for its child, stands still, and so does its interpreter's
//! stack. [`Reader::frames`] reads that stack from the process's memory: functions, files, lines.
//! It stops nothing, attaches to nothing and writes nothing. The reader pays for the system calls.
//! The process pays for a shared lock on its memory map.
//!
//! The process is not trusted: it may end, run on while it is read, or lay out memory so that it
//! lies. Each reading is bounded ([`Limits`]), and counts only when a second one says the same.
//!
//! A thread that runs on has other frames by then. A BPF program can copy memory at the right
//! moment, such as a fork: it copies what [`Reader::look`] names; [`Reader::frames_at`] reads it.
//!
//! It does not unwind machine code: that is `forkless-diagnose`'s part.

mod bash;
mod dash;
mod elf;
mod error;
mod image;
#[cfg(test)]
mod lies;
mod maps;
mod memory;
mod moment;
mod node;
mod perl;
mod php;
mod process;
mod python;
mod python_lines;
mod ruby;

use std::time::Duration;

pub use error::Why;
pub use moment::{Look, Moment, Next};
pub use process::{ThreadCall, own_number};

use crate::memory::Memory;
use crate::moment::Copied;
use crate::process::Process;

/// The language of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Language {
    /// Python, by CPython 3.8 or newer.
    Python,
    /// Ruby, by CRuby 2.7 or newer.
    Ruby,
    /// Perl 5.
    Perl,
    /// PHP 7.4 or newer, without thread safety.
    Php,
    /// JavaScript, by Node.js.
    JavaScript,
    /// Scripts of bash.
    Bash,
    /// Scripts of dash.
    Dash,
}

impl Language {
    /// The language's name, as its users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::Ruby => "Ruby",
            Self::Perl => "Perl",
            Self::Php => "PHP",
            Self::JavaScript => "JavaScript",
            Self::Bash => "bash",
            Self::Dash => "dash",
        }
    }
}

/// One call of the user's code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function; for code outside any function what the language calls it, such as `<module>`.
    pub function: String,
    /// The file, as the interpreter was given it: it may be relative to the directory of then.
    pub file: String,
    /// The line from 1; `None` where it is not known, as for functions that V8 has optimized.
    pub line: Option<u32>,
    /// The language.
    pub language: Language,
}

/// What one reading may take at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Frames; the outer ones are left out.
    pub frames: usize,
    /// Bytes of the process's memory.
    pub bytes: usize,
    /// Time, from the call on.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { frames: 48, bytes: 4 << 20, time: Duration::from_millis(100) }
    }
}

/// A process whose interpreter is known.
#[derive(Debug)]
pub struct Reader {
    process: Process,
    memory: Memory,
    runtime: Runtime,
    limits: Limits,
}

/// An interpreter with the addresses that were found in its process.
#[derive(Debug)]
enum Runtime {
    Bash(bash::Bash),
    Dash(dash::Dash),
    Node(node::Node),
    Perl(perl::Perl),
    Php(php::Php),
    Python(python::Python),
    Ruby(ruby::Ruby),
    /// An interpreter of a version whose memory is not known.
    Unknown(Language, Why),
}

/// Bytes of the process's memory for finding its interpreter. It has no limit of time: the symbols
/// of a large file take a while, once.
const TO_FIND: usize = 4 << 20;

/// How often a stack is read until two readings agree.
const READINGS: usize = 4;

impl Reader {
    /// A reader of a process. `None` if it runs no interpreter that is known here, is gone, or may
    /// not be read. After an exec the process needs a new reader.
    pub fn new(pid: u32) -> Option<Self> {
        let process = Process::look_at(pid)?;
        let memory = Memory::open(pid).ok()?;
        memory.allow_bytes(TO_FIND);
        let runtime = Runtime::find(&process, &memory)?;
        Some(Self { process, memory, runtime, limits: Limits::default() })
    }

    /// The same reader with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The interpreter's language.
    pub const fn language(&self) -> Language {
        match self.runtime {
            Runtime::Bash(_) => Language::Bash,
            Runtime::Dash(_) => Language::Dash,
            Runtime::Node(_) => Language::JavaScript,
            Runtime::Perl(_) => Language::Perl,
            Runtime::Php(_) => Language::Php,
            Runtime::Python(_) => Language::Python,
            Runtime::Ruby(_) => Language::Ruby,
            Runtime::Unknown(language, _) => language,
        }
    }

    /// The frames of thread `tid`, innermost first; never an empty list.
    ///
    /// # Errors
    ///
    /// [`Why`] says whether to try again ([`Why::Changing`]) or never.
    pub fn frames(&self, tid: u32) -> Result<Vec<Frame>, Why> {
        self.memory.allow(self.limits);
        let mut before = self.read(tid);
        for _ in 1..READINGS {
            let after = self.read(tid);
            match (before, after) {
                // A limit or a missing process stays what it is.
                (Err(Why::Gone), _) | (_, Err(Why::Gone)) => return Err(Why::Gone),
                (_, Err(Why::TooMuch)) => return Err(Why::TooMuch),
                (before, after) if before == after => return after,
                (_, after) => before = after,
            }
        }
        Err(Why::Changing)
    }

    /// Which memory is to be copied to have the frames of a thread as they were at a moment. `None`
    /// for an interpreter that this is not known of: shells wait for what they start, and the
    /// frames of Node.js are on the machine's stack.
    ///
    /// `stack_pointer` is the thread's; without it the thread must stand still.
    ///
    /// # Errors
    /// As [`Self::frames`].
    pub fn look(&self, tid: u32, stack_pointer: Option<u64>) -> Result<Option<Look>, Why> {
        let (process, memory) = (&self.process, &self.memory);
        memory.allow(self.limits);
        memory.lay_over(stack_pointer.map(Copied::nothing));
        let look = match &self.runtime {
            Runtime::Perl(perl) => perl.look(process, memory, tid).map(Some),
            Runtime::Php(php) => Ok(Some(php.look())),
            Runtime::Python(python) => python.look(memory, tid).map(Some),
            Runtime::Ruby(ruby) => ruby.look(process, memory, tid).map(Some),
            Runtime::Bash(_) | Runtime::Dash(_) | Runtime::Node(_) => Ok(None),
            Runtime::Unknown(_, why) => Err(why.clone()),
        };
        memory.lay_over(None);
        look
    }

    /// The frames of thread `tid` at a moment, of the memory that was copied then. Of what was not
    /// copied nothing is read that changes as the thread runs on, except in a program that
    /// replaces its own code.
    ///
    /// # Errors
    /// As [`Self::frames`].
    pub fn frames_at(&self, tid: u32, look: &Look, moment: &Moment) -> Result<Vec<Frame>, Why> {
        self.memory.allow(self.limits);
        self.memory.lay_over(Some(Copied::new(look, moment)));
        let frames = self.read(tid);
        self.memory.lay_over(None);
        frames
    }

    /// The language's own function that the thread is in, such as `exec` or `waitpid`. `None` where
    /// this is not to be had: for PHP and Perl it is.
    pub fn within(&self, tid: u32) -> Option<String> {
        self.memory.allow(self.limits);
        match &self.runtime {
            Runtime::Perl(perl) => perl.within(&self.process, &self.memory, tid).ok()?,
            Runtime::Php(php) => php.within(&self.memory).ok()?,
            _ => None,
        }
    }

    fn read(&self, tid: u32) -> Result<Vec<Frame>, Why> {
        let (process, memory) = (&self.process, &self.memory);
        let limit = self.limits.frames;
        let frames = match &self.runtime {
            Runtime::Bash(bash) => bash.frames(process, memory, tid, limit),
            Runtime::Dash(dash) => dash.frames(memory),
            Runtime::Node(node) => node.frames(process, memory, tid, limit),
            Runtime::Perl(perl) => perl.frames(process, memory, tid, limit),
            Runtime::Php(php) => php.frames(memory, limit),
            Runtime::Python(python) => python.frames(memory, tid, limit),
            Runtime::Ruby(ruby) => ruby.frames(process, memory, tid, limit),
            Runtime::Unknown(_, why) => Err(why.clone()),
        }?;
        if frames.is_empty() { Err(Why::NoFrames) } else { Ok(frames) }
    }
}

impl Runtime {
    /// The interpreter of a process. A shell comes last: its symbols are the least peculiar.
    fn find(process: &Process, memory: &Memory) -> Option<Self> {
        type Find = fn(&Process, &Memory) -> Option<Result<Runtime, Why>>;
        const FINDERS: &[(Language, Find)] = &[
            (Language::Python, |p, m| Some(python::Python::find(p, m)?.map(Runtime::Python))),
            (Language::Ruby, |p, m| Some(ruby::Ruby::find(p, m)?.map(Runtime::Ruby))),
            (Language::Perl, |p, m| Some(perl::Perl::find(p, m)?.map(Runtime::Perl))),
            (Language::Php, |p, m| Some(php::Php::find(p, m)?.map(Runtime::Php))),
            (Language::JavaScript, |p, m| Some(node::Node::find(p, m)?.map(Runtime::Node))),
            (Language::Bash, |p, m| Some(bash::Bash::find(p, m)?.map(Runtime::Bash))),
            (Language::Dash, |p, m| Some(dash::Dash::find(p, m)?.map(Runtime::Dash))),
        ];
        FINDERS.iter().find_map(|&(language, find)| {
            let found = find(process, memory)?;
            Some(found.unwrap_or_else(|why| Self::Unknown(language, why)))
        })
    }
}
