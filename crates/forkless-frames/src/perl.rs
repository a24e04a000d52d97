//! Perl: the current statement (`PL_curcop`) and the stack of contexts.
//!
//! With threads (Debian's Perl) both are fields of the interpreter, else variables. The offsets
//! are from `intrpvar.h` and from `offsetof` with each version's `cop.h`, 5.32 to 5.40.
//!
//! Perl leaves out the statement of a block that has only one, and its messages then look for it
//! in the tree of operations (`closest_cop` in its `util.c`). So does [`Tree::closest`].

use std::cell::Cell;

use crate::image::Image;
use crate::memory::{LONGEST_NAME, Memory, text};
use crate::process::Process;
use crate::{Frame, Language, Look, Next, Why};

/// A process that runs Perl.
#[derive(Debug)]
pub(crate) struct Perl {
    at: At,
    /// Of the names of operations.
    names: Option<u64>,
}

/// Where the variables are.
#[derive(Debug)]
enum At {
    /// The address of the pointer to the first interpreter, and the fields' offsets in it.
    Threaded { interpreter: u64, statement: u64, contexts: u64 },
    /// The addresses of the pointers.
    Plain { operation: u64, statement: u64, contexts: u64 },
}

/// Of the current operation in the interpreter.
const OPERATION: u64 = 8;
const CONTEXT: u64 = 104;
/// Of the innermost context's index in a stack of contexts.
const INNERMOST: u64 = 32;
const SUB: u8 = 9;
const MOST_CONTEXTS: usize = 1024;
/// A context stack of its own has each sort block, overloaded operator and `require`.
const MOST_STACKS: usize = 64;

impl Perl {
    pub(crate) fn find(process: &Process, memory: &Memory) -> Option<Result<Self, Why>> {
        let image = Image::with_symbols(process, "libperl", &["PL_version", "PL_thr_key"])
            .or_else(|| Image::with_symbols(process, "libperl", &["PL_version", "PL_curcop"]))?;
        let version = memory.u8(image.symbol("PL_version")?).ok()?;
        let (statement, contexts) = match version {
            32 => (224, 240),
            34 | 36 | 38 | 40 => (208, 224),
            _ => return Some(Err(Why::Version(format!("Perl 5.{version}")))),
        };
        let plain = image.symbol("PL_curcop").zip(image.symbol("PL_curstackinfo"));
        let at = match plain.zip(image.symbol("PL_op")) {
            Some(((statement, contexts), operation)) => At::Plain { operation, statement, contexts },
            None => At::Threaded { interpreter: image.symbol("PL_curinterp")?, statement, contexts },
        };
        Some(Ok(Self { at, names: image.symbol("PL_op_name") }))
    }

    pub(crate) fn frames(
        &self,
        process: &Process,
        memory: &Memory,
        tid: u32,
        limit: usize,
    ) -> Result<Vec<Frame>, Why> {
        let (operation, statement, contexts, threaded) = self.pointers(process, memory, tid)?;
        let tree = Tree { memory, left: Cell::new(MOST_OPERATIONS) };
        let statement = memory.pointer(statement)?;
        let mut statement = tree.closest(statement, memory.pointer(operation)?, false)?;
        let mut stack = memory.pointer(contexts)?;
        let mut frames = Vec::new();
        for number in 0..MOST_STACKS {
            let is_innermost = number == 0;
            if stack == 0 || frames.len() == limit {
                break;
            }
            let contexts = memory.pointer(stack.wrapping_add(8))?;
            let innermost = memory.i32(stack.wrapping_add(INNERMOST))?;
            let indices = (0..=innermost).rev().take(MOST_CONTEXTS);
            for index in indices.filter_map(|index| u64::try_from(index).ok()) {
                let context = contexts.wrapping_add(index * CONTEXT);
                // So many of the innermost ones were copied. The rest may be gone by now.
                if is_innermost && memory.lacks_frame(context) {
                    return if frames.is_empty() { Err(Why::TooMuch) } else { Ok(frames) };
                }
                if memory.u8(context)? & 15 == SUB && frames.len() < limit {
                    let function = name(memory, memory.pointer(context.wrapping_add(72))?)?;
                    frames.push(frame(memory, function, statement, threaded)?);
                    let caller = memory.pointer(context.wrapping_add(16))?;
                    statement = tree.closest(caller, memory.pointer(context.wrapping_add(48))?, true)?;
                }
            }
            stack = memory.pointer(stack.wrapping_add(16))?;
        }
        if frames.len() < limit {
            frames.push(frame(memory, "main".to_owned(), statement, threaded)?);
        }
        Ok(frames)
    }

    /// Where the thread has its frames.
    pub(crate) fn look(&self, process: &Process, memory: &Memory, tid: u32) -> Result<Look, Why> {
        let (operation, statement, contexts, _) = self.pointers(process, memory, tid)?;
        let words = [Some(operation), Some(statement)];
        Ok(Look {
            head: contexts,
            through: Some(8),
            next: Next::Reversed { stride: CONTEXT, last: INNERMOST },
            words,
        })
    }

    /// The name of the operation that the thread is in, such as `waitpid`.
    pub(crate) fn within(&self, process: &Process, memory: &Memory, tid: u32) -> Result<Option<String>, Why> {
        let (operation, ..) = self.pointers(process, memory, tid)?;
        let Some(names) = self.names else { return Ok(None) };
        let kind = memory.u32(memory.pointer(operation)?.wrapping_add(32))? & 0x1ff;
        memory.c_string(memory.pointer(names.wrapping_add(u64::from(kind) * 8))?).map(Some)
    }

    /// The addresses of the pointers to operation, statement and contexts; whether it has threads.
    fn pointers(&self, process: &Process, memory: &Memory, tid: u32) -> Result<(u64, u64, u64, bool), Why> {
        match self.at {
            At::Plain { operation, statement, contexts } => Ok((operation, statement, contexts, false)),
            At::Threaded { interpreter, statement, contexts } => {
                // Each other thread has an interpreter of its own, known only to that thread.
                if tid != process.pid {
                    return Err(Why::NoFrames);
                }
                let interpreter = memory.pointer(interpreter)?;
                let field = |offset| interpreter.wrapping_add(offset);
                Ok((field(OPERATION), field(statement), field(contexts), true))
            }
        }
    }
}

/// The tree of operations; how many more of it may be read.
struct Tree<'a> {
    memory: &'a Memory,
    left: Cell<usize>,
}

const MOST_OPERATIONS: usize = 4096;
const DEEPEST: usize = 64;

/// An operation of the tree.
struct Operation {
    at: u64,
    next: u64,
    sibling: u64,
    first_child: u64,
    kind: u64,
    target: u64,
}

/// What is searched for in the tree.
struct Search {
    wanted: u64,
    by_next: bool,
    /// The kind of statements.
    kind: u64,
}

impl Tree<'_> {
    fn read(&self, at: u64) -> Result<Operation, Why> {
        let fields = self.memory.array::<48>(at)?;
        let word = |index: usize| {
            let bytes = fields.as_chunks().0.get(index).copied().unwrap_or_default();
            u64::from_ne_bytes(bytes)
        };
        // Bit fields: 9 bits of kind, at bit 14 whether a sibling follows; then a byte of flags.
        let bits = word(4);
        let (has_sibling, has_children) = (bits >> 14 & 1 == 1, bits >> 18 & 1 == 1);
        Ok(Operation {
            at,
            next: word(0),
            sibling: if has_sibling { word(1) } else { 0 },
            first_child: if has_children { word(5) } else { 0 },
            kind: bits & 0x1ff,
            target: word(3),
        })
    }

    /// The statement that holds `wanted`, after `statement`: itself, or one left out below it. With
    /// `by_next`, `wanted` is what follows the operation looked for.
    fn closest(&self, statement: u64, wanted: u64, by_next: bool) -> Result<u64, Why> {
        if wanted == 0 {
            return Ok(statement);
        }
        let first = self.read(statement)?;
        if first.sibling == 0 {
            return Ok(statement);
        }
        let search = Search { wanted, by_next, kind: first.kind };
        let found = self.search(&search, self.read(first.sibling)?, statement, DEEPEST)?;
        Ok(found.unwrap_or(statement))
    }

    /// The statement that holds what is searched for, in the tree below `under`. `last` is the
    /// last statement before.
    fn search(
        &self,
        search: &Search,
        under: Operation,
        mut last: u64,
        depth: usize,
    ) -> Result<Option<u64>, Why> {
        if under.at == search.wanted || search.by_next && under.next == search.wanted {
            return Ok(Some(last));
        }
        let mut child = under.first_child;
        while child != 0 && depth > 0 {
            let Some(left) = self.left.get().checked_sub(1) else { break };
            self.left.set(left);
            let operation = self.read(child)?;
            child = operation.sibling;
            // What was left out has kind 0, and as its target the kind that it had.
            if operation.kind == 0 && operation.target == search.kind {
                last = operation.at;
            }
            if let Some(found) = self.search(search, operation, last, depth - 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

fn frame(memory: &Memory, function: String, statement: u64, threaded: bool) -> Result<Frame, Why> {
    let line = memory.u32(statement.wrapping_add(36))?;
    let file = memory.pointer(statement.wrapping_add(48))?;
    let file = if threaded {
        memory.c_string(file)?
    } else {
        // The file's glob is named after it, with `_<` before.
        let name = glob_name(memory, file)?;
        name.strip_prefix("_<").map_or(name.clone(), str::to_owned)
    };
    Ok(Frame { function, file, line: (line > 0).then_some(line), language: Language::Perl })
}

/// The name of a sub.
fn name(memory: &Memory, sub: u64) -> Result<String, Why> {
    const NAMED: u32 = 0x8000;
    let body = memory.pointer(sub)?;
    let name = memory.pointer(body.wrapping_add(56))?;
    if name == 0 {
        return Ok("__ANON__".to_owned());
    }
    if memory.u32(body.wrapping_add(92))? & NAMED != 0 { key(memory, name) } else { glob_name(memory, name) }
}

fn glob_name(memory: &Memory, glob: u64) -> Result<String, Why> {
    key(memory, memory.pointer(memory.pointer(glob)?.wrapping_add(32))?)
}

/// A shared hash key.
fn key(memory: &Memory, key: u64) -> Result<String, Why> {
    let length = u64::try_from(memory.i32(key.wrapping_add(4))?).map_err(|_| Why::Strange)?;
    Ok(text(&memory.bytes(key.wrapping_add(8), length, LONGEST_NAME)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lies_gets_an_answer() {
        crate::lies::tell(|process, memory, lies| {
            let (operation, statement, contexts) = (lies.start, lies.start + 8, lies.start + 16);
            let names = Some(lies.start);
            let perl = |at| Perl { at, names };
            let plain = perl(At::Plain { operation, statement, contexts });
            drop(plain.frames(process, memory, process.pid, 48));
            drop(plain.within(process, memory, process.pid));
            let interpreter = lies.start;
            let at = At::Threaded { interpreter, statement: 208, contexts: 224 };
            perl(at).frames(process, memory, process.pid, 48)
        });
    }
}
