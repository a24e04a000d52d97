//! CRuby: `ruby_current_vm_ptr`, threads, control frames, instruction sequences.
//!
//! The offsets are from the crate rbspy-ruby-structs 0.55, by `offset_of!` on the first and the
//! last release of each series. rbspy itself takes the last line of a method for the line since
//! Ruby 2.6; here the table is read as Ruby's `iseq.c` reads it (`get_insn_info_succinct`).

use crate::image::Image;
use crate::memory::{LONGEST_NAME, Memory, text};
use crate::process::Process;
use crate::{Frame, Language, Look, Next, Why};

/// A process that runs Ruby.
#[derive(Debug)]
pub(crate) struct Ruby {
    vm: u64,
    layout: Layout,
}

/// Offsets of fields, and sizes, in bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    vm_main_thread: u64,
    threads: Threads,
    thread_context: u64,
    context_machine: u64,
    frame_size: u64,
    body_lines: u64,
    /// Size of the entry of a line.
    line_size: u64,
    string: Strings,
}

/// Where the list of threads begins.
#[derive(Debug, Clone, Copy)]
enum Threads {
    /// In the virtual machine.
    Machine(u64),
    /// In the main ractor, whose address is in the virtual machine.
    Ractor(u64),
}

/// Where a short string has its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strings {
    /// Among the flags.
    InFlags,
    /// In a field.
    InField,
}

/// Of the main ractor, in the virtual machine since 3.0.
const MAIN_RACTOR: u64 = 8 + 24;

const IN_2_7: Layout = Layout {
    vm_main_thread: 192,
    threads: Threads::Machine(312),
    thread_context: 32,
    context_machine: 152,
    frame_size: 56,
    body_lines: 120,
    line_size: 8,
    string: Strings::InFlags,
};
const IN_3_0: Layout =
    Layout { vm_main_thread: 8 + 32, threads: Threads::Ractor(304), thread_context: 40, ..IN_2_7 };
const IN_3_1: Layout = Layout { context_machine: 144, frame_size: 64, line_size: 12, ..IN_3_0 };
const IN_3_2: Layout =
    Layout { thread_context: 48, context_machine: 152, body_lines: 112, string: Strings::InField, ..IN_3_1 };
const IN_3_3: Layout = Layout { frame_size: 56, threads: Threads::Ractor(256), ..IN_3_2 };
const IN_3_4: Layout = Layout { context_machine: 144, ..IN_3_3 };
const IN_4_0: Layout = Layout { context_machine: 176, threads: Threads::Ractor(184), ..IN_3_3 };

const MOST_THREADS: usize = 4096;
/// Frames of C functions lie between those of Ruby; they have no line.
const FRAMES_A_LINE: usize = 4;

impl Ruby {
    pub(crate) fn find(process: &Process, memory: &Memory) -> Option<Result<Self, Why>> {
        let image = Image::with_symbols(process, "libruby", &["ruby_current_vm_ptr", "ruby_version"])?;
        let version = memory.c_string(image.symbol("ruby_version")?).ok()?;
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
        let layout = match (numbers.next()?, numbers.next()?) {
            (2, 7) => IN_2_7,
            (3, 0) => IN_3_0,
            (3, 1) => IN_3_1,
            (3, 2) => IN_3_2,
            (3, 3) => IN_3_3,
            (3, 4) => IN_3_4,
            (4, 0) => IN_4_0,
            _ => return Some(Err(Why::Version(format!("Ruby {version}")))),
        };
        Some(Ok(Self { vm: image.symbol("ruby_current_vm_ptr")?, layout }))
    }

    pub(crate) fn frames(
        &self,
        process: &Process,
        memory: &Memory,
        tid: u32,
        limit: usize,
    ) -> Result<Vec<Frame>, Why> {
        let thread = self.thread(process, memory, tid)?;
        let context = memory.pointer(thread.wrapping_add(self.layout.thread_context))?;
        let stack = memory.pointer(context)?;
        let size = memory.pointer(context.wrapping_add(8))?;
        let mut at = memory.pointer(context.wrapping_add(16))?;
        let end = stack.wrapping_add(size.wrapping_mul(8));
        let mut frames = Vec::new();
        for _ in 0..limit.saturating_mul(FRAMES_A_LINE) {
            // The outermost frame is the machine's own.
            let is_last = at.wrapping_add(self.layout.frame_size) >= end;
            if is_last || frames.len() == limit || memory.lacks_frame(at) {
                break;
            }
            let counter = memory.pointer(at)?;
            let instructions = memory.pointer(at.wrapping_add(16))?;
            // C functions have no program counter.
            if counter != 0 && instructions != 0 {
                frames.push(self.frame(memory, instructions, counter)?);
            }
            at = at.wrapping_add(self.layout.frame_size);
        }
        Ok(frames)
    }

    /// Where the thread has its frames. A fiber has an execution context of its own.
    pub(crate) fn look(&self, process: &Process, memory: &Memory, tid: u32) -> Result<Look, Why> {
        let head = self.thread(process, memory, tid)?.wrapping_add(self.layout.thread_context);
        Ok(Look { head, through: Some(16), next: Next::Array(self.layout.frame_size), words: [None; 2] })
    }

    /// The thread whose machine stack holds the stack pointer.
    fn thread(&self, process: &Process, memory: &Memory, tid: u32) -> Result<u64, Why> {
        let layout = &self.layout;
        let vm = memory.pointer(self.vm)?;
        let main = memory.pointer(vm.wrapping_add(layout.vm_main_thread))?;
        let list = match layout.threads {
            Threads::Machine(list) => vm.wrapping_add(list),
            Threads::Ractor(list) => memory.pointer(vm.wrapping_add(MAIN_RACTOR))?.wrapping_add(list),
        };
        let mut threads = vec![main];
        // On other architectures locks have other sizes, and the list another place.
        if cfg!(target_arch = "x86_64") {
            let mut thread = memory.pointer(list)?;
            while thread != list && threads.len() < MOST_THREADS {
                if thread != main {
                    threads.push(thread);
                }
                thread = memory.pointer(thread)?;
            }
        }
        let context = |thread: u64| memory.pointer(thread.wrapping_add(layout.thread_context));
        if let [only] = threads[..]
            && cfg!(target_arch = "x86_64")
        {
            return Ok(only);
        }
        let stack_pointer = memory.copied_stack_pointer();
        let stack_pointer = stack_pointer.or_else(|| Some(process.call(tid)?.stack_pointer));
        let stack_pointer = stack_pointer.ok_or(Why::Changing)?;
        for thread in threads {
            let context = context(thread)?;
            let machine = context.wrapping_add(layout.context_machine);
            let start = memory.pointer(machine)?;
            let size = memory.pointer(machine.wrapping_add(16))?;
            if stack_pointer <= start && start.wrapping_sub(stack_pointer) <= size {
                return Ok(thread);
            }
        }
        Err(Why::NoFrames)
    }

    fn frame(&self, memory: &Memory, instructions: u64, counter: u64) -> Result<Frame, Why> {
        let body = memory.pointer(instructions.wrapping_add(16))?;
        let encoded = memory.pointer(body.wrapping_add(8))?;
        let path = memory.pointer(body.wrapping_add(64))?;
        let function = self.string(memory, memory.pointer(body.wrapping_add(64 + 16))?)?;
        let file = self.path(memory, path)?;
        // The counter is at the next instruction, in words.
        let position = (counter.wrapping_sub(encoded) / 8).saturating_sub(1);
        let line = self.line(memory, body.wrapping_add(self.layout.body_lines), position)?;
        let line = u32::try_from(line).ok().filter(|&line| line > 0);
        Ok(Frame { function, file, line, language: Language::Ruby })
    }

    /// A path is a string, or an array of the path as given and its real path.
    fn path(&self, memory: &Memory, path: u64) -> Result<String, Why> {
        const ARRAY: u64 = 7;
        const EMBEDDED: u64 = 1 << 13;
        let flags = memory.pointer(path)?;
        if flags & 31 != ARRAY {
            return self.string(memory, path);
        }
        let elements = path.wrapping_add(16);
        let elements = if flags & EMBEDDED == 0 { memory.pointer(path.wrapping_add(32))? } else { elements };
        self.string(memory, memory.pointer(elements)?)
    }

    fn string(&self, memory: &Memory, at: u64) -> Result<String, Why> {
        const STRING: u64 = 5;
        const NOT_EMBEDDED: u64 = 1 << 13;
        let flags = memory.pointer(at)?;
        if flags & 31 != STRING {
            return Err(Why::Strange);
        }
        let field = memory.pointer(at.wrapping_add(16))?;
        let (data, length) = if flags & NOT_EMBEDDED != 0 {
            (memory.pointer(at.wrapping_add(24))?, field)
        } else if self.layout.string == Strings::InFlags {
            (at.wrapping_add(16), flags >> 14 & 31)
        } else {
            (at.wrapping_add(24), field)
        };
        Ok(text(&memory.bytes(data, length, LONGEST_NAME)?))
    }

    /// The line of the instruction at `position` words.
    fn line(&self, memory: &Memory, lines: u64, position: u64) -> Result<i32, Why> {
        let entries = memory.pointer(lines)?;
        let size = memory.u32(lines.wrapping_add(16))?;
        let index = match size {
            0 => return Ok(0),
            1 => 0,
            _ => rank(memory, memory.pointer(lines.wrapping_add(24))?, position)?.saturating_sub(1),
        };
        if index >= u64::from(size) {
            return Err(Why::Strange);
        }
        memory.i32(entries.wrapping_add(index.wrapping_mul(self.layout.line_size)))
    }
}

/// How many lines begin at or before `position`, by Ruby's succinct table (`succ_index_lookup`):
/// counts of 7 bits for the first 54 words, then blocks of 512 words.
fn rank(memory: &Memory, table: u64, position: u64) -> Result<u64, Why> {
    const AT_ONCE: u64 = 54;
    const BLOCK: u64 = 80;
    if position < AT_ONCE {
        let counts = memory.pointer(table.wrapping_add(position / 9 * 8))?;
        return Ok(counts >> (position % 9 * 7) & 0x7f);
    }
    let (block, bit) = ((position - AT_ONCE) / 512, (position - AT_ONCE) % 512);
    let block = table.wrapping_add(AT_ONCE / 9 * 8).wrapping_add(block.wrapping_mul(BLOCK));
    let before = memory.u32(block)?;
    let counts = memory.pointer(block.wrapping_add(8))?;
    let word = bit / 64;
    let within = if word == 0 { 0 } else { counts >> ((word - 1) * 9) & 0x1ff };
    let bits = memory.pointer(block.wrapping_add(16 + word * 8))?;
    Ok(u64::from(before) + within + u64::from((bits << (63 - bit % 64)).count_ones()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lies_gets_an_answer() {
        crate::lies::tell(|process, memory, lies| {
            for layout in [IN_2_7, IN_3_1, IN_4_0] {
                drop(Ruby { vm: lies.start, layout }.frames(process, memory, process.pid, 48));
            }
            Ruby { vm: lies.start, layout: IN_3_4 }.frames(process, memory, process.pid, 48)
        });
    }

    #[test]
    fn a_rank_counts_the_lines_up_to_a_position() {
        let memory = Memory::open(std::process::id()).expect("we may read ourselves");
        memory.allow_bytes(1 << 20);
        // Words 0 and 2 of the first nine begin lines, and words 54, 117 and 118 behind.
        let mut table = [0_u64; 16];
        table[0] = (0..9).map(|word| (if word < 2 { 1 } else { 2 }) << (word * 7)).sum();
        table[6] = 2;
        table[7] = (1..8).map(|word| (if word == 1 { 2 } else { 3 }) << ((word - 1) * 9)).sum();
        table[8] = 1 | 1 << 63;
        table[9] = 1;
        let at = table.as_ptr().addr() as u64;
        for (position, lines) in [(0, 1), (1, 1), (2, 2), (54, 3), (116, 3), (117, 4), (118, 5), (200, 5)] {
            assert_eq!(rank(&memory, at, position), Ok(lines), "word {position}");
        }
    }
}
