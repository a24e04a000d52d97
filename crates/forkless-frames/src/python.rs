//! CPython: `_PyRuntime`, interpreters, thread states, frames.
//!
//! Python 3.13 and newer publish where their fields are (`_Py_DebugOffsets`). The older ones have
//! a table here, from `offsetof` on the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1; no
//! release of a series moves them.

use crate::image::Image;
use crate::memory::{LONGEST_NAME, Memory, text};
use crate::process::{Process, own_number};
use crate::python_lines::{Table, line_at};
use crate::{Frame, Language, Look, Next, Why};

/// A process that runs CPython.
#[derive(Debug)]
pub(crate) struct Python {
    runtime: u64,
    layout: Layout,
}

/// Offsets of fields, bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Of the first interpreter in `_PyRuntime`.
    interpreters: u64,
    interpreter_next: u64,
    interpreter_threads: u64,
    thread_next: u64,
    thread_id: u64,
    /// Of `native_thread_id`; the versions before 3.11 have none.
    thread_native_id: Option<u64>,
    /// Of the innermost frame, or of what points at it.
    thread_frame: u64,
    /// 3.11 and 3.12: of the frame in the thing at `thread_frame`.
    cframe_frame: Option<u64>,
    frame_previous: u64,
    frame_code: u64,
    frame_position: u64,
    /// Of the frame's owner; the versions before 3.11 have none.
    frame_owner: Option<u64>,
    code_filename: u64,
    code_name: u64,
    code_first_line: u64,
    code_lines: u64,
    /// Of the bytecode; the versions before 3.11 keep a position relative to it.
    code_bytecode: u64,
    string_ascii: u64,
    string_other: u64,
    table: Table,
}

/// Up to here `f_lasti` counts bytes or instructions.
const UP_TO_3_9: Layout = Layout {
    interpreters: 32,
    interpreter_next: 0,
    interpreter_threads: 8,
    thread_next: 8,
    thread_id: 176,
    thread_native_id: None,
    thread_frame: 24,
    cframe_frame: None,
    frame_previous: 24,
    frame_code: 32,
    frame_position: 104,
    frame_owner: None,
    code_filename: 104,
    code_name: 112,
    code_first_line: 40,
    code_lines: 120,
    code_bytecode: 0,
    string_ascii: 48,
    string_other: 72,
    table: Table::Lnotab,
};

const IN_3_10: Layout = Layout { frame_position: 96, table: Table::Ranges, ..UP_TO_3_9 };

const IN_3_11: Layout = Layout {
    interpreters: 40,
    interpreter_threads: 16,
    thread_id: 152,
    thread_native_id: Some(160),
    thread_frame: 56,
    cframe_frame: Some(8),
    frame_previous: 48,
    frame_code: 32,
    frame_position: 56,
    frame_owner: Some(69),
    code_filename: 112,
    code_name: 128,
    code_first_line: 72,
    code_lines: 136,
    code_bytecode: 184,
    table: Table::Locations,
    ..UP_TO_3_9
};

const IN_3_12: Layout = Layout {
    interpreter_threads: 72,
    thread_id: 136,
    thread_native_id: Some(144),
    cframe_frame: Some(0),
    frame_previous: 8,
    frame_code: 0,
    frame_owner: Some(70),
    code_first_line: 68,
    code_bytecode: 192,
    string_ascii: 40,
    string_other: 56,
    ..IN_3_11
};

/// Frames of the C stack and of the interpreter itself, in 3.12 and newer.
const FIRST_OWNER_WITHOUT_CODE: u8 = 3;
const MOST_INTERPRETERS: usize = 16;
const MOST_THREADS: usize = 4096;
/// The table of a function's lines. Generated functions of 10,000 lines stay below.
const LONGEST_TABLE: usize = 256 << 10;

impl Python {
    pub(crate) fn find(process: &Process, memory: &Memory) -> Option<Result<Self, Why>> {
        let image = Image::with_symbols(process, "libpython", &["_PyRuntime"])?;
        let runtime = image.symbol("_PyRuntime")?;
        let layout = Layout::published(memory, runtime)
            .unwrap_or_else(|| Layout::of_version(version(process, memory, &image)));
        Some(layout.map(|layout| Self { runtime, layout }))
    }

    pub(crate) fn frames(&self, memory: &Memory, tid: u32, limit: usize) -> Result<Vec<Frame>, Why> {
        let layout = &self.layout;
        let thread = self.thread(memory, tid)?;
        let mut frame = memory.pointer(thread + layout.thread_frame)?;
        if let Some(offset) = layout.cframe_frame {
            frame = memory.pointer(frame.wrapping_add(offset))?;
        }
        let mut frames = Vec::new();
        // The frames without code between two others are no more than those.
        for _ in 0..limit.saturating_mul(2) {
            if frame == 0 || frames.len() == limit || memory.lacks_frame(frame) {
                break;
            }
            let of_code = match layout.frame_owner {
                Some(owner) => memory.u8(frame.wrapping_add(owner))? < FIRST_OWNER_WITHOUT_CODE,
                None => true,
            };
            if of_code {
                frames.push(self.frame(memory, frame)?);
            }
            frame = memory.pointer(frame.wrapping_add(layout.frame_previous))?;
        }
        Ok(frames)
    }

    /// Where the thread has its frames.
    pub(crate) fn look(&self, memory: &Memory, tid: u32) -> Result<Look, Why> {
        let head = self.thread(memory, tid)?.wrapping_add(self.layout.thread_frame);
        let next = Next::Pointer(self.layout.frame_previous);
        Ok(Look { head, through: self.layout.cframe_frame, next, words: [None; 2] })
    }

    /// The thread state of the thread.
    fn thread(&self, memory: &Memory, tid: u32) -> Result<u64, Why> {
        let number = own_number(tid).unwrap_or(tid);
        let layout = &self.layout;
        let mut states = Vec::new();
        let mut interpreter = memory.pointer(self.runtime + layout.interpreters)?;
        for _ in 0..MOST_INTERPRETERS {
            if interpreter == 0 {
                break;
            }
            let mut state = memory.pointer(interpreter.wrapping_add(layout.interpreter_threads))?;
            while state != 0 && states.len() < MOST_THREADS {
                states.push(state);
                state = memory.pointer(state.wrapping_add(layout.thread_next))?;
            }
            interpreter = memory.pointer(interpreter.wrapping_add(layout.interpreter_next))?;
        }
        // Without a second one there is no choice. A forked process's only thread state may hold
        // its parent's number.
        if let [only] = states[..] {
            return Ok(only);
        }
        for &state in &states {
            let is_it = match layout.thread_native_id {
                Some(offset) => memory.pointer(state.wrapping_add(offset))? == u64::from(number),
                None => is_the_pthread(memory, memory.pointer(state.wrapping_add(layout.thread_id))?, number),
            };
            if is_it {
                return Ok(state);
            }
        }
        Err(Why::NoFrames)
    }

    fn frame(&self, memory: &Memory, frame: u64) -> Result<Frame, Why> {
        let layout = &self.layout;
        // Newer versions mark references in the lowest two bits.
        let code = memory.pointer(frame.wrapping_add(layout.frame_code))? & !3;
        let field = |offset: u64| memory.pointer(code.wrapping_add(offset));
        let function = self.string(memory, field(layout.code_name)?)?;
        let file = self.string(memory, field(layout.code_filename)?)?;
        let first = memory.i32(code.wrapping_add(layout.code_first_line))?;
        let position = frame.wrapping_add(layout.frame_position);
        let position = match layout.table {
            Table::Lnotab => i64::from(memory.i32(position)?),
            Table::Ranges => i64::from(memory.i32(position)?).saturating_mul(2),
            Table::Locations => {
                memory.pointer(position)?.wrapping_sub(code.wrapping_add(layout.code_bytecode)).cast_signed()
            }
        };
        let lines = field(layout.code_lines)?;
        let length = memory.pointer(lines.wrapping_add(16))?;
        let lines = memory.bytes(lines.wrapping_add(32), length, LONGEST_TABLE)?;
        let line = line_at(layout.table, &lines, first, position);
        Ok(Frame { function, file, line, language: Language::Python })
    }

    /// A `str`.
    fn string(&self, memory: &Memory, at: u64) -> Result<String, Why> {
        let length = memory.pointer(at.wrapping_add(16))?;
        let state = memory.u32(at.wrapping_add(32))?;
        // The marks for interned strings before these bits have grown with the versions.
        let (kind, ascii) = [2, 8, 16]
            .into_iter()
            .map(|shift| ((state >> shift) & 7, (state >> (shift + 3)) & 1, (state >> (shift + 4)) & 1))
            .find_map(|(kind, compact, ascii)| {
                (compact == 1 && matches!(kind, 1 | 2 | 4)).then_some((kind, ascii == 1))
            })
            .ok_or(Why::Strange)?;
        let data = at.wrapping_add(if ascii { self.layout.string_ascii } else { self.layout.string_other });
        let bytes = memory.bytes(data, length.saturating_mul(u64::from(kind)), LONGEST_NAME)?;
        let letters: String = match kind {
            1 => bytes.iter().copied().map(char::from).collect(),
            2 => letters(bytes.chunks_exact(2).map(|two| u32::from(u16::from_ne_bytes([two[0], two[1]])))),
            _ => letters(bytes.as_chunks().0.iter().map(|&four| u32::from_ne_bytes(four))),
        };
        Ok(text(letters.as_bytes()))
    }
}

/// Bytes of a path that are no UTF-8 are surrogates in a `str`.
fn letters(codes: impl Iterator<Item = u32>) -> String {
    codes.map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Whether a `pthread_t` is that of the thread with this number. It points at libc's block for the
/// thread, which holds the number: glibc's at 720, musl's below 64.
fn is_the_pthread(memory: &Memory, pthread: u64, number: u32) -> bool {
    memory
        .array::<1024>(pthread)
        .is_ok_and(|block| block.as_chunks().0.iter().any(|&word| u32::from_ne_bytes(word) == number))
}

impl Layout {
    fn of_version((major, minor): (u32, u32)) -> Result<Self, Why> {
        match (major, minor) {
            (3, 8 | 9) => Ok(UP_TO_3_9),
            (3, 10) => Ok(IN_3_10),
            (3, 11) => Ok(IN_3_11),
            (3, 12) => Ok(IN_3_12),
            _ => Err(Why::Version(format!("Python {major}.{minor}"))),
        }
    }

    /// What the process itself publishes.
    fn published(memory: &Memory, runtime: u64) -> Option<Result<Self, Why>> {
        if memory.array(runtime).ok()? != *b"xdebugpy" {
            return None;
        }
        Some(Self::read(memory, runtime))
    }

    /// Reads `_Py_DebugOffsets`. Its parts begin with their sizes, but no size tells their number
    /// of fields: it is the version's.
    fn read(memory: &Memory, runtime: u64) -> Result<Self, Why> {
        let words = memory.array::<{ 56 * 8 }>(runtime)?;
        let words: Vec<u64> = words.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word)).collect();
        let word = |at: usize| words.get(at).copied().filter(|&word| word < 1 << 20).ok_or(Why::Strange);
        let version = words.get(1).copied().unwrap_or_default();
        let (major, minor) = (version >> 24 & 0xff, version >> 16 & 0xff);
        // After the cookie, the version and the kind of build: runtime (3), interpreter, thread.
        let interpreter = 6;
        let (thread, frame, code) = match (major, minor) {
            (3, 13) => (19, 28, 34),
            // An interpreter has three fields more, a frame two.
            (3, 14) => (22, 31, 39),
            _ => return Err(Why::Version(format!("Python {major}.{minor}"))),
        };
        // Free-threaded 3.14 runs a copy of the bytecode for each thread.
        if words.get(2) != Some(&0) {
            return Err(Why::Version(format!("free-threaded Python {major}.{minor}")));
        }
        let threads = word(interpreter + 3)?;
        Ok(Self {
            interpreters: word(5)?,
            interpreter_next: word(interpreter + 2)?,
            interpreter_threads: threads,
            thread_next: word(thread + 2)?,
            thread_frame: word(thread + 4)?,
            thread_id: word(thread + 5)?,
            thread_native_id: Some(word(thread + 6)?),
            cframe_frame: None,
            frame_previous: word(frame + 1)?,
            frame_code: word(frame + 2)?,
            frame_position: word(frame + 3)?,
            frame_owner: Some(word(frame + 5)?),
            code_filename: word(code + 1)?,
            code_name: word(code + 3)?,
            code_lines: word(code + 4)?,
            code_first_line: word(code + 5)?,
            code_bytecode: word(code + 9)?,
            string_ascii: IN_3_12.string_ascii,
            string_other: IN_3_12.string_other,
            table: Table::Locations,
        })
    }
}

/// The version of Python. 3.11 and newer have a constant, the older ones only their files' names.
fn version(process: &Process, memory: &Memory, image: &Image) -> (u32, u32) {
    if let Some(at) = image.symbol("Py_Version")
        && let Ok(version) = memory.u32(at)
    {
        return (version >> 24 & 0xff, version >> 16 & 0xff);
    }
    let executable = process.executable();
    let libraries = process.mappings.iter().map(|mapping| mapping.path.to_string_lossy().into_owned());
    let names = libraries.filter(|path| path.contains("libpython")).chain(executable);
    // A static Python under another name has at least its modules mapped.
    let modules = process.mappings.iter().map(|mapping| mapping.path.to_string_lossy().into_owned());
    let minor = names.chain(modules).find_map(|name| {
        let digits = name.split("python3.").nth(1)?;
        digits.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    });
    (3, minor.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lies_gets_an_answer() {
        crate::lies::tell(|process, memory, lies| {
            for layout in [UP_TO_3_9, IN_3_10, IN_3_11] {
                drop(Python { runtime: lies.start, layout }.frames(memory, process.pid, 48));
            }
            Python { runtime: lies.start, layout: IN_3_12 }.frames(memory, process.pid, 48)
        });
    }

    #[test]
    fn a_version_without_a_layout_is_named() {
        assert!(Layout::of_version((3, 11)).is_ok());
        let why = Layout::of_version((3, 7)).expect_err("too old");
        assert_eq!(why.to_string(), "Python 3.7: the memory layout of this version is not known");
    }

    #[test]
    fn published_offsets_that_cannot_be_are_refused() {
        let memory = Memory::open(std::process::id()).expect("we may read ourselves");
        memory.allow_bytes(1 << 20);
        let published = |cookie: &[u8; 8], version| {
            let mut block = [u64::MAX; 64];
            block[0] = u64::from_ne_bytes(*cookie);
            block[1] = version;
            block[2] = 0;
            Layout::published(&memory, block.as_ptr().addr() as u64).map(|layout| layout.map(drop))
        };
        assert_eq!(published(b"xdebugpy", 0x030d_00f0), Some(Err(Why::Strange)));
        assert!(matches!(published(b"xdebugpy", 0x0363_00f0), Some(Err(Why::Version(_)))));
        assert_eq!(published(b"anything", 0x030d_00f0), None);
    }
}
