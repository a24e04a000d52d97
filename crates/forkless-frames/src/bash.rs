//! bash: `line_number`, and the arrays FUNCNAME, BASH_SOURCE and BASH_LINENO.
//!
//! Distributions build bash with its symbols exported, for its loadable builtins. The structures
//! are those of its `variables.h`, `hashlib.h` and `array.h`, which the same builtins see.

use std::collections::HashMap;

use crate::image::Image;
use crate::memory::Memory;
use crate::process::Process;
use crate::{Frame, Language, Why};

const NEEDED: &[&str] = &["line_number", "global_variables", "dollar_vars", "this_shell_function"];

/// A process that runs bash.
#[derive(Debug)]
pub(crate) struct Bash {
    line_number: u64,
    /// An older bash has none.
    last_line_number: Option<u64>,
    global_variables: u64,
    dollar_vars: u64,
}

const WAITS: [i64; 2] = [libc::SYS_wait4, libc::SYS_waitid];

const FUNCNAME: &str = "FUNCNAME";
const BASH_SOURCE: &str = "BASH_SOURCE";
const BASH_LINENO: &str = "BASH_LINENO";
const MOST_BUCKETS: u32 = 1 << 16;
const MOST_IN_A_BUCKET: usize = 64;

impl Bash {
    pub(crate) fn find(process: &Process, _: &Memory) -> Option<Result<Self, Why>> {
        let image = Image::with_symbols(process, "libbash", NEEDED)?;
        Some(Ok(Self {
            line_number: image.symbol("line_number")?,
            last_line_number: image.symbol("line_number_for_err_trap"),
            global_variables: image.symbol("global_variables")?,
            dollar_vars: image.symbol("dollar_vars")?,
        }))
    }

    pub(crate) fn frames(
        &self,
        process: &Process,
        memory: &Memory,
        tid: u32,
        limit: usize,
    ) -> Result<Vec<Frame>, Why> {
        // In a function bash takes `line_number` back before it waits for the command. The other
        // one keeps the line of the last command. In fork, and while bash reads what a command
        // substitution prints, only the first is right.
        let waits = process.call(tid).is_some_and(|call| WAITS.contains(&call.number));
        let line_number = self.last_line_number.filter(|_| waits).unwrap_or(self.line_number);
        let line = memory.i32(line_number)?;
        let arrays = self.arrays(memory)?;
        let array = |name| arrays.get(name).map_or(Ok(Vec::new()), |&at| strings(memory, at, limit));
        let (functions, sources, lines) = (array(FUNCNAME)?, array(BASH_SOURCE)?, array(BASH_LINENO)?);
        if functions.is_empty() {
            // `bash -c` and commands from standard input have no file.
            let file = memory.c_string(memory.pointer(self.dollar_vars)?)?;
            return Ok(vec![frame("main", &file, line)]);
        }
        // Each function's entry of BASH_LINENO is the line of its call, in the next outer one.
        let calls = lines.iter().map(|line| line.parse().unwrap_or(0));
        let lines = std::iter::once(line).chain(calls);
        let frames = functions.iter().zip(&sources).zip(lines);
        Ok(frames.map(|((function, source), line)| frame(function, source, line)).collect())
    }

    /// The addresses of the three arrays.
    fn arrays(&self, memory: &Memory) -> Result<HashMap<&'static str, u64>, Why> {
        let mut found = HashMap::new();
        let context = memory.pointer(self.global_variables)?;
        let table = memory.pointer(context.wrapping_add(32))?;
        let buckets = memory.pointer(table)?;
        let count = memory.u32(table.wrapping_add(8))?;
        if count > MOST_BUCKETS {
            return Err(Why::Strange);
        }
        let buckets = memory.bytes(buckets, u64::from(count) * 8, MOST_BUCKETS as usize * 8)?;
        for &bucket in buckets.as_chunks().0 {
            let mut item = u64::from_ne_bytes(bucket);
            for _ in 0..MOST_IN_A_BUCKET {
                if item == 0 {
                    break;
                }
                let fields = memory.array::<24>(item)?;
                let [next, key, variable] = words(fields);
                // Whole variables' names would be read for nothing: these three begin so.
                let name = memory.array::<12>(key).unwrap_or_default();
                for wanted in [FUNCNAME, BASH_SOURCE, BASH_LINENO] {
                    if name.starts_with(wanted.as_bytes())
                        && name.get(wanted.len()).is_none_or(|&end| end == 0)
                    {
                        found.insert(wanted, memory.pointer(variable.wrapping_add(8))?);
                    }
                }
                item = next;
            }
            if found.len() == 3 {
                break;
            }
        }
        Ok(found)
    }
}

fn frame(function: &str, file: &str, line: i32) -> Frame {
    let line = u32::try_from(line).ok().filter(|&line| line > 0);
    Frame { function: function.to_owned(), file: file.to_owned(), line, language: Language::Bash }
}

fn words<const N: usize, const M: usize>(bytes: [u8; N]) -> [u64; M] {
    let mut words = [0; M];
    for (word, &bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(bytes);
    }
    words
}

/// The strings of an array, from the lowest index on: a ring of elements around a head.
fn strings(memory: &Memory, array: u64, limit: usize) -> Result<Vec<String>, Why> {
    if array == 0 {
        return Ok(Vec::new());
    }
    let fields = words::<32, 4>(memory.array(array)?);
    // Before 5.2 an array begins with its type. The head has no index.
    let head = [fields[2], fields[3]]
        .into_iter()
        .find(|&head| head != 0 && memory.pointer(head) == Ok(u64::MAX))
        .ok_or(Why::Strange)?;
    let mut strings = Vec::new();
    let mut element = memory.pointer(head.wrapping_add(16))?;
    while element != head && strings.len() < limit {
        let [_, value, next] = words::<24, 3>(memory.array(element)?);
        strings.push(memory.c_string(value)?);
        element = next;
    }
    Ok(strings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lies_gets_an_answer() {
        crate::lies::tell(|process, memory, lies| {
            let (line_number, global_variables, dollar_vars) = (lies.start, lies.start + 8, lies.start + 16);
            let bash = Bash { line_number, last_line_number: None, global_variables, dollar_vars };
            bash.frames(process, memory, process.pid, 48)
        });
    }
}
