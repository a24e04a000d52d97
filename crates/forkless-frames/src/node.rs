//! Node.js: frames of V8 on the thread's stack.
//!
//! V8 publishes where its fields are, in constants for debuggers after a crash (`v8dbg_...`). What
//! it does not publish is where its innermost frame is. That is found on the stack: a frame by
//! which JavaScript was left for C++ has a mark, and its chain of callers ends in a frame by which
//! JavaScript was entered.
//!
//! A function has its line as long as V8 interprets it, and when Sparkplug has compiled it, which
//! it does after some calls: its code follows the bytecode, and a table says how. The compilers
//! behind it (Maglev, Turbofan) rearrange code, so their functions have their name and file only.

use std::ops::Range;

use crate::image::Image;
use crate::memory::{Memory, text};
use crate::process::Process;
use crate::{Frame, Language, Why};

/// A process that runs Node.js.
#[derive(Debug)]
pub(crate) struct Node {
    layout: Layout,
}

/// Offsets of fields in tagged objects, and marks, as V8 publishes them.
#[derive(Debug)]
struct Layout {
    exits: Vec<u64>,
    entries: Vec<u64>,
    function_shared: u64,
    shared_name: u64,
    shared_script: u64,
    script_name: u64,
    script_source: u64,
    map_type: u64,
    type_shared: u16,
    type_script: u16,
    type_bytecode: u16,
    type_code: Option<u16>,
    bytecode_header: u64,
    /// Where instructions begin in an object of code; `None` where the object has their address.
    code_instructions: Option<u64>,
    bytecode_sizes: Option<BytecodeSizes>,
    string_length: u64,
    string_data: u64,
    cons_first: u64,
    cons_second: u64,
    thin_actual: u64,
    external_resource: u64,
}

/// Of slots, relative to the frame pointer, in every V8 that publishes them.
const MARK: u64 = 8;
/// Above the frame pointer: where its caller goes on.
const RETURN: u64 = 8;
const FUNCTION: u64 = 16;
const BYTECODE: u64 = 32;
const BYTECODE_OFFSET: u64 = 40;

/// The table of source positions in bytecode, by the size of its header; V8 does not publish it.
/// The sizes are those of Node.js 18, 20, and 22 and 24.
const fn positions(header: u64) -> Option<u64> {
    match header {
        54 | 56 => Some(32),
        64 => Some(24),
        _ => None,
    }
}

/// Where the closures of a function have its bytecode or code: the first field in every V8 up to
/// that of Node.js 24.
const FUNCTION_DATA: u64 = 8 - 1;
/// The length of an array, and its elements.
const LENGTH: u64 = 8 - 1;
const ELEMENTS: u64 = 16 - 1;
/// The bytecode, the table and the instructions' address are among the first words of an object of
/// code, in an order that differs.
const WORDS_OF_CODE: usize = 8;
/// A function that Sparkplug compiles is no longer (it takes 64 KiB of bytecode at most).
const LONGEST_CODE: u64 = 16 << 20;
/// Instructions begin at a multiple of it.
const CODE_ALIGNMENT: u64 = 32;

/// The C++ between JavaScript and fork takes a part of this.
const MOST_STACK: u64 = 256 << 10;
const MOST_FRAMES: usize = 512;
const LONGEST_TABLE: usize = 256 << 10;
const LONGEST_SOURCE: usize = 1 << 20;
const LONGEST_NAME: usize = 1024;
/// Strings that are joined of strings, deep.
const MOST_PARTS: usize = 64;

impl Node {
    pub(crate) fn find(process: &Process, memory: &Memory) -> Option<Result<Self, Why>> {
        let shared = "v8dbg_class_JSFunction__shared__SharedFunctionInfo";
        let image = Image::with_symbols(process, "libnode", &[shared])?;
        let layout = Layout::read(memory, &image);
        Some(layout.map(|layout| Self { layout }).ok_or_else(|| Why::Version("this Node.js".into())))
    }

    pub(crate) fn frames(
        &self,
        process: &Process,
        memory: &Memory,
        tid: u32,
        limit: usize,
    ) -> Result<Vec<Frame>, Why> {
        let pointer = process.call(tid).map(|call| call.stack_pointer).ok_or(Why::Changing)?;
        self.frames_on(&Stack::read(process, memory, pointer)?, memory, limit)
    }

    fn frames_on(&self, stack: &Stack, memory: &Memory, limit: usize) -> Result<Vec<Frame>, Why> {
        let mut inner = self.innermost(stack).ok_or(Why::NoFrames)?;
        let mut frames = Vec::new();
        for frame in self.callers(stack, inner).skip(1) {
            if frames.len() == limit {
                break;
            }
            let returns_to = stack.word(inner.wrapping_add(RETURN)).unwrap_or(0);
            // Frames of V8's own code have a mark and no function.
            if let Some(shared) = self.shared(memory, stack, frame)? {
                frames.push(self.frame(memory, stack, &Call { frame, shared, returns_to })?);
            }
            inner = frame;
        }
        Ok(frames)
    }

    /// The frame by which JavaScript was last left. Frames of calls that have returned lie below
    /// it: their chains pass it by.
    fn innermost(&self, stack: &Stack) -> Option<u64> {
        let left = |at: &u64| self.layout.exits.contains(&stack.word(at.wrapping_sub(MARK)).unwrap_or(0));
        let entered = |exit: u64| {
            let last = self.callers(stack, exit).last()?;
            let mark = stack.word(last.wrapping_sub(MARK))?;
            self.layout.entries.contains(&mark).then_some(last)
        };
        let exits = stack.addresses().filter(left).filter_map(|exit| Some((exit, entered(exit)?)));
        let exits: Vec<(u64, u64)> = exits.collect();
        let mut innermost = *exits.first()?;
        for &(exit, entered) in &exits {
            if exit < innermost.1 {
                innermost = (exit, entered);
            }
        }
        Some(innermost.0)
    }

    /// A frame and those that called it, up to the one by which JavaScript was entered.
    fn callers<'a>(&'a self, stack: &'a Stack, frame: u64) -> impl Iterator<Item = u64> + 'a {
        let outer = move |&frame: &u64| {
            let mark = stack.word(frame.wrapping_sub(MARK))?;
            let caller = stack.word(frame)?;
            (!self.layout.entries.contains(&mark) && caller > frame).then_some(caller)
        };
        std::iter::successors(Some(frame), outer).take(MOST_FRAMES)
    }

    /// What the closures of a frame's function share, if it is a frame of JavaScript.
    fn shared(&self, memory: &Memory, stack: &Stack, frame: u64) -> Result<Option<u64>, Why> {
        let function = stack.word(frame.wrapping_sub(FUNCTION)).unwrap_or(0);
        let mark = stack.word(frame.wrapping_sub(MARK)).unwrap_or(0);
        if !is_object(mark) || !is_object(function) {
            return Ok(None);
        }
        let shared = memory.pointer(function.wrapping_add(self.layout.function_shared))?;
        let is_shared = is_object(shared) && self.kind(memory, shared)? == self.layout.type_shared;
        Ok(is_shared.then_some(shared))
    }

    fn kind(&self, memory: &Memory, object: u64) -> Result<u16, Why> {
        let map = memory.pointer(object.wrapping_sub(1))?;
        memory.array(map.wrapping_add(self.layout.map_type)).map(u16::from_ne_bytes)
    }

    fn frame(&self, memory: &Memory, stack: &Stack, call: &Call) -> Result<Frame, Why> {
        let layout = &self.layout;
        let shared = call.shared;
        let script = memory.pointer(shared.wrapping_add(layout.shared_script))?;
        let script =
            (is_object(script) && self.kind(memory, script)? == layout.type_script).then_some(script);
        let file = match script {
            Some(script) => self.string(memory, memory.pointer(script.wrapping_add(layout.script_name))?)?,
            None => String::new(),
        };
        let line = match (script, self.position(memory, stack, call)?) {
            (Some(script), Some(position)) => {
                let source = memory.pointer(script.wrapping_add(layout.script_source))?;
                self.line(memory, source, position)?
            }
            _ => None,
        };
        let function = self.name(memory, memory.pointer(shared.wrapping_add(layout.shared_name))?)?;
        let function = if function.is_empty() { "<anonymous>".to_owned() } else { function };
        let file = file.strip_prefix("file://").map_or(file.clone(), str::to_owned);
        Ok(Frame { function, file, line, language: Language::JavaScript })
    }

    /// The name of a function: a string, or the last of its scope's, after its variables' names.
    fn name(&self, memory: &Memory, name: u64) -> Result<String, Why> {
        const FIRST_FIELD: u64 = 7;
        if !is_object(name) {
            return Ok(String::new());
        }
        if self.is_string(memory, name)? {
            return self.string(memory, name);
        }
        let field = |index: u64| memory.pointer(name.wrapping_add(FIRST_FIELD + 8 * index));
        let variables = field(2)? >> 32;
        if variables > 64 {
            return Ok(String::new());
        }
        let mut names = 0;
        // Flags, two counts, two positions, names and places of variables, and some more.
        for index in 3..3 + 2 + 2 * variables + 4 {
            let value = field(index)?;
            if is_object(value) {
                if !self.is_string(memory, value)? {
                    break;
                }
                names += 1;
                if names > variables {
                    return self.string(memory, value);
                }
            }
        }
        Ok(String::new())
    }

    fn is_string(&self, memory: &Memory, object: u64) -> Result<bool, Why> {
        Ok(self.kind(memory, object)? < FIRST_NO_STRING)
    }

    /// The text of a string that need not be long.
    fn string(&self, memory: &Memory, string: u64) -> Result<String, Why> {
        if !is_object(string) || !self.is_string(memory, string)? {
            return Ok(String::new());
        }
        let letters = self.letters(memory, string, LONGEST_NAME)?;
        Ok(text(String::from_utf16_lossy(&letters).as_bytes()))
    }

    /// The first letters of a string, at most `most`.
    fn letters(&self, memory: &Memory, string: u64, most: usize) -> Result<Vec<u16>, Why> {
        let layout = &self.layout;
        let mut letters = Vec::new();
        let mut parts = vec![string];
        for _ in 0..MOST_PARTS {
            let Some(part) = parts.pop() else { break };
            if letters.len() >= most {
                break;
            }
            let kind = self.kind(memory, part)?;
            let field = |offset: u64| memory.pointer(part.wrapping_add(offset));
            match kind & SHAPE {
                CONS => parts.extend([field(layout.cons_second)?, field(layout.cons_first)?]),
                THIN => parts.push(field(layout.thin_actual)?),
                shape @ (SEQUENTIAL | EXTERNAL) => {
                    let data = if shape == SEQUENTIAL {
                        part.wrapping_add(layout.string_data)
                    } else if kind & UNCACHED == 0 {
                        // The address of the text is kept behind the object that owns it.
                        field(layout.external_resource + 8)?
                    } else {
                        return Err(Why::Strange);
                    };
                    let length = memory.u32(part.wrapping_add(layout.string_length))? as usize;
                    let length = length.min(most - letters.len());
                    if kind & ONE_BYTE == 0 {
                        let bytes = memory.bytes(data, 2 * length as u64, 2 * most)?;
                        letters.extend(bytes.as_chunks().0.iter().map(|&two| u16::from_ne_bytes(two)));
                    } else {
                        let bytes = memory.bytes(data, length as u64, most)?;
                        letters.extend(bytes.into_iter().map(u16::from));
                    }
                }
                // A part of another string.
                _ => return Err(Why::Strange),
            }
        }
        Ok(letters)
    }

    /// Where in its script a frame of bytecode is, or one of code that Sparkplug made of it.
    fn position(&self, memory: &Memory, stack: &Stack, call: &Call) -> Result<Option<usize>, Why> {
        let layout = &self.layout;
        let bytecode = stack.word(call.frame.wrapping_sub(BYTECODE)).unwrap_or(0);
        let offset = stack.word(call.frame.wrapping_sub(BYTECODE_OFFSET)).unwrap_or(1);
        let Some(positions) = positions(layout.bytecode_header) else { return Ok(None) };
        if !self.is_a(memory, bytecode, layout.type_bytecode)? {
            return Ok(None);
        }
        let offset = if offset & 1 == 0 {
            Some((offset >> 32).wrapping_sub(layout.bytecode_header - 1))
        } else {
            // Compiled code has an object in this slot.
            self.offset_of_code(memory, bytecode, call)?
        };
        let Some(offset) = offset else { return Ok(None) };
        let table = memory.pointer(bytecode.wrapping_add(positions - 1))?;
        Ok(position_at(&self.elements(memory, table)?, offset))
    }

    /// The offset in its bytecode of a frame that runs Sparkplug's code. `None` for all other code:
    /// what is read must agree with the bytecode.
    fn offset_of_code(&self, memory: &Memory, bytecode: u64, call: &Call) -> Result<Option<u64>, Why> {
        let layout = &self.layout;
        let (Some(sizes), Some(kind)) = (&layout.bytecode_sizes, layout.type_code) else { return Ok(None) };
        let code = memory.pointer(call.shared.wrapping_add(FUNCTION_DATA))?;
        if !self.is_a(memory, code, kind)? {
            return Ok(None);
        }
        let words: [u8; 8 * WORDS_OF_CODE] = memory.array(code.wrapping_sub(1))?;
        let words: Vec<u64> = words.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word)).collect();
        if !words.contains(&bytecode) {
            return Ok(None);
        }
        let before = |word: &&u64| word.is_multiple_of(CODE_ALIGNMENT) && **word <= call.returns_to;
        let address = || words.iter().filter(before).max().copied();
        let begins = layout.code_instructions.map(|inside| code.wrapping_add(inside)).or_else(address);
        let Some(begins) = begins else { return Ok(None) };
        let at = call.returns_to.wrapping_sub(begins);
        if at > LONGEST_CODE {
            return Ok(None);
        }
        let length = memory.pointer(bytecode.wrapping_add(LENGTH))? >> 32;
        let bytes = memory.bytes(bytecode.wrapping_add(layout.bytecode_header - 1), length, LONGEST_TABLE)?;
        let Some(bytecodes) = sizes.offsets(&bytes) else { return Ok(None) };
        for &table in words.iter().filter(|&&word| is_object(word) && word != bytecode) {
            let found = match self.elements(memory, table) {
                // Other words point at objects that are no arrays.
                Err(Why::Strange) => None,
                elements => offset_in(&elements?, &bytecodes, at),
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The bytes of an array.
    fn elements(&self, memory: &Memory, array: u64) -> Result<Vec<u8>, Why> {
        let length = memory.pointer(array.wrapping_add(LENGTH))?;
        memory.bytes(array.wrapping_add(ELEMENTS), length >> 32, LONGEST_TABLE)
    }

    /// Whether a word that may be anything is an object of a kind.
    fn is_a(&self, memory: &Memory, word: u64, kind: u16) -> Result<bool, Why> {
        if !is_object(word) {
            return Ok(false);
        }
        match self.kind(memory, word) {
            Err(Why::Strange) => Ok(false),
            found => Ok(found? == kind),
        }
    }

    fn line(&self, memory: &Memory, source: u64, position: usize) -> Result<Option<u32>, Why> {
        if !is_object(source) || position > LONGEST_SOURCE {
            return Ok(None);
        }
        let letters = self.letters(memory, source, position)?;
        let lines = letters.iter().filter(|&&letter| letter == u16::from(b'\n')).count();
        Ok(u32::try_from(lines + 1).ok())
    }
}

/// Kinds of objects below this number are strings.
const FIRST_NO_STRING: u16 = 128;
const SHAPE: u16 = 7;
const SEQUENTIAL: u16 = 0;
const CONS: u16 = 1;
const EXTERNAL: u16 = 2;
const THIN: u16 = 5;
const ONE_BYTE: u16 = 8;
const UNCACHED: u16 = 16;

/// Pointers to objects end in 01; small integers in 0.
const fn is_object(value: u64) -> bool {
    value & 3 == 1
}

/// V8's table of source positions: pairs of differences, of bytecode offsets and of positions.
fn position_at(table: &[u8], offset: u64) -> Option<usize> {
    let mut bytes = table.iter().copied();
    // Differences begin before the first bytecode, at that of the function's entry.
    let (mut at, mut raw, mut found) = (-1_i64, 0_i64, None);
    while let (Some(code), Some(position)) = (signed(&mut bytes), signed(&mut bytes)) {
        // A negative difference marks an expression, a positive one a statement.
        at = at.checked_add(if code < 0 { -(code + 1) } else { code })?;
        raw = raw.checked_add(position)?;
        if at > offset.cast_signed() {
            break;
        }
        // One bit, then the position plus one, in 30 bits.
        found = usize::try_from((raw >> 1 & 0x3fff_ffff) - 1).ok();
    }
    found
}

/// The offset of the bytecode whose code ends at `at` or behind it. V8's table has the length of
/// what comes before the first bytecode's code, and then of each one's code.
fn offset_in(table: &[u8], bytecodes: &[u64], at: u64) -> Option<u64> {
    let mut bytes = table.iter().copied();
    let (mut end, mut ends) = (0_u64, Vec::new());
    while bytes.len() > 0 {
        end = end.checked_add(unsigned(&mut bytes)?)?;
        ends.push(end);
    }
    // Another table, or that of other bytecode.
    if ends.len() != bytecodes.len() + 1 {
        return None;
    }
    let index = ends.iter().position(|&end| end >= at)?;
    bytecodes.get(index.checked_sub(1)?).copied()
}

/// 0, -1, 1, -2 ... are numbered from 0 on (`DecodeInt` of V8's source-position-table.cc). Were the
/// lowest bit a plain sign, each expression would lie one byte too early.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = unsigned(bytes)?;
    let magnitude = (value >> 1).cast_signed();
    Some(if value & 1 == 1 { -magnitude - 1 } else { magnitude })
}

/// Seven bits a byte, the lowest first.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..63).step_by(7) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}

/// A frame of JavaScript.
struct Call {
    frame: u64,
    /// What the closures of its function share.
    shared: u64,
    /// Where its code goes on when the call that it is in returns.
    returns_to: u64,
}

/// How long each bytecode is with its operands: as it is, behind the prefix for wide operands, and
/// behind that for extra wide ones.
#[derive(Debug)]
struct BytecodeSizes(Vec<u8>);

impl BytecodeSizes {
    const SYMBOL: &str = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE";

    fn read(memory: &Memory, image: &Image) -> Option<Self> {
        let size = image.elf.size_of(Self::SYMBOL).filter(|size| size.is_multiple_of(3) && *size > 0)?;
        memory.bytes(image.symbol(Self::SYMBOL)?, size, 3 * 256).ok().map(Self)
    }

    /// Where each bytecode begins.
    fn offsets(&self, bytecode: &[u8]) -> Option<Vec<u64>> {
        let count = self.0.len() / 3;
        let (mut at, mut offsets) = (0, Vec::new());
        while let Some(&first) = bytecode.get(at) {
            offsets.push(at as u64);
            // The prefixes are the first bytecodes, each also as a debugger's break point.
            let scale = match first {
                0 | 2 => 1,
                1 | 3 => 2,
                _ => 0,
            };
            at += usize::from(scale > 0);
            let code = usize::from(*bytecode.get(at)?);
            let size = *self.0.get(scale * count + code).filter(|size| code < count && **size > 0)?;
            at += usize::from(size);
        }
        (at == bytecode.len()).then_some(offsets)
    }
}

/// A copy of the lower end of a thread's stack.
struct Stack {
    range: Range<u64>,
    bytes: Vec<u8>,
}

impl Stack {
    fn read(process: &Process, memory: &Memory, pointer: u64) -> Result<Self, Why> {
        let mapping = process.mappings.iter().find(|mapping| mapping.range.contains(&pointer));
        // The main thread's stack has grown since.
        let end = mapping.map_or(pointer, |mapping| mapping.range.end);
        let range = pointer & !7..end.min(pointer.saturating_add(MOST_STACK));
        let bytes = memory.bytes(range.start, range.end.saturating_sub(range.start), MOST_STACK as usize)?;
        Ok(Self { range, bytes })
    }

    fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        self.range.clone().step_by(8)
    }

    fn word(&self, at: u64) -> Option<u64> {
        let at = usize::try_from(at.checked_sub(self.range.start)?).ok()?;
        let word = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(word.try_into().ok()?))
    }
}

impl Layout {
    fn read(memory: &Memory, image: &Image) -> Option<Self> {
        let value = |name: &str| memory.i32(image.symbol(&format!("v8dbg_{name}"))?).ok();
        let number = |name: &str| u16::try_from(value(name)?).ok();
        // Pointers to objects are one too high.
        let field = |name: &str| u64::try_from(value(&format!("class_{name}"))?).ok()?.checked_sub(1);
        // The names of types have changed, and with them the constants' names.
        let shared = |name: &str| field(&format!("SharedFunctionInfo__{name}"));
        let marks = |names: &[&str]| {
            let marks = names.iter().filter_map(|name| value(&format!("frametype_{name}Frame")));
            marks.filter_map(|mark| u64::try_from(mark).ok()).map(|mark| mark << 1).collect()
        };
        Some(Self {
            exits: marks(&["Exit", "BuiltinExit", "ApiCallbackExit"]),
            entries: marks(&["Entry", "ConstructEntry"]),
            function_shared: field("JSFunction__shared__SharedFunctionInfo")?,
            shared_name: shared("name_or_scope_info__Object")
                .or_else(|| shared("name_or_scope_info__Tagged_Object_"))
                .or_else(|| shared("name_or_scope_info__Tagged_NameOrScopeInfoT_"))?,
            shared_script: shared("script_or_debug_info__HeapObject")
                .or_else(|| shared("script__Tagged_HeapObject_"))?,
            script_name: field("Script__name__Object")?,
            script_source: field("Script__source__Object")?,
            map_type: field("Map__instance_type__uint16_t")?,
            type_shared: number("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")?,
            type_script: number("type_Script__SCRIPT_TYPE")?,
            type_bytecode: number("type_BytecodeArray__BYTECODE_ARRAY_TYPE")?,
            type_code: number("type_Code__CODE_TYPE"),
            bytecode_header: field("BytecodeArray__data__uintptr_t")? + 1,
            code_instructions: field("Code__instruction_start__uintptr_t"),
            bytecode_sizes: BytecodeSizes::read(memory, image),
            string_length: field("String__length__int32_t")?,
            string_data: field("SeqOneByteString__chars__char")?,
            cons_first: field("ConsString__first__String")?,
            cons_second: field("ConsString__second__String")?,
            thin_actual: field("ThinString__actual__String")?,
            external_resource: field("ExternalString__resource__Object")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_that_of_the_last_pair_at_or_before_an_offset() {
        // Offsets 0 (statement), 3 (expression) and 200; positions 5, 4 and 100.
        let table = [2, 24, 2 * 3 + 1, 3, 0b1000_1010, 0b11, 0b1000_0000, 0b11];
        assert_eq!(signed(&mut [0b1000_1010, 0b11].into_iter()), Some(197));
        assert_eq!([0, 1, 2, 3].map(|byte| signed(&mut [byte].into_iter())), [0, -1, 1, -2].map(Some));
        assert_eq!(
            [0, 2, 3, 199, 200].map(|offset| position_at(&table, offset)),
            [5, 5, 4, 4, 100].map(Some)
        );
        assert_eq!(position_at(&[], 0), None);
    }

    /// Three bytecodes, the second with a prefix. Sparkplug's code has 6 bytes before them, then
    /// 40, 200 and 3.
    #[test]
    fn an_address_in_sparkplugs_code_is_in_one_bytecode() {
        let mut sizes = vec![1_u8; 3 * 10];
        (sizes[7], sizes[10 + 8]) = (2, 5);
        let sizes = BytecodeSizes(sizes);
        let bytecode = [7, 9, 0, 8, 0, 0, 0, 0, 6];
        let offsets = sizes.offsets(&bytecode).expect("whole bytecodes");
        assert_eq!(offsets, [0, 2, 8]);
        assert_eq!(sizes.offsets(&bytecode[..7]), None, "cut");
        assert_eq!(sizes.offsets(&[10]), None, "no bytecode has this number");
        let table = [6, 40, 0b1100_1000, 1, 3];
        let found = [0, 6, 7, 46, 47, 246, 249, 250].map(|at| offset_in(&table, &offsets, at));
        assert_eq!(found, [None, None, Some(0), Some(0), Some(2), Some(2), Some(8), None]);
        assert_eq!(offset_in(&table, &offsets[..2], 7), None, "other bytecode");
        assert_eq!(offset_in(&[255; 9], &offsets, 7), None);
    }

    #[test]
    fn a_process_that_lies_gets_an_answer() {
        crate::lies::tell(|_, memory, lies| {
            let layout = Layout {
                exits: vec![0, 2, 6],
                entries: vec![4, 10],
                function_shared: 23,
                shared_name: 15,
                shared_script: 31,
                script_name: 15,
                script_source: 7,
                map_type: 11,
                type_shared: 0,
                type_script: 0,
                type_bytecode: 0,
                type_code: Some(0),
                bytecode_header: 54,
                code_instructions: None,
                bytecode_sizes: Some(BytecodeSizes(vec![1; 3 * 200])),
                string_length: 11,
                string_data: 15,
                cons_first: 15,
                cons_second: 23,
                thin_actual: 15,
                external_resource: 15,
            };
            let stack = Stack { range: lies.clone(), bytes: memory.bytes(lies.start, 4096, 4096)? };
            Node { layout }.frames_on(&stack, memory, 48)
        });
    }

    #[test]
    fn a_table_that_lies_ends() {
        position_at(&[255; 100], 7);
        position_at(&[127; 4096], u64::MAX);
    }
}
