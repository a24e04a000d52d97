//! PHP without thread safety: `executor_globals`, call frames, functions.
//!
//! The offsets are from phpspy's structures; for 8.2 they agree with `offsetof` on its headers.

use crate::image::Image;
use crate::memory::{LONGEST_NAME, Memory, text};
use crate::process::Process;
use crate::{Frame, Language, Look, Next, Why};

/// A process that runs PHP.
#[derive(Debug)]
pub(crate) struct Php {
    /// The address of the pointer to the innermost call frame.
    innermost: u64,
    file_name: u64,
}

const USER_FUNCTION: u8 = 2;
/// Frames of PHP's own functions lie between those of the user's.
const FRAMES_A_LINE: usize = 4;

impl Php {
    pub(crate) fn find(process: &Process, _: &Memory) -> Option<Result<Self, Why>> {
        let image = Image::with_symbols(process, "libphp", &["executor_globals", "zend_execute_ex"])?;
        let globals = image.symbol("executor_globals")?;
        let version = image.elf.php_version.as_deref().unwrap_or("of an unknown version");
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
        let (innermost, file_name) = match (numbers.next()?, numbers.next().unwrap_or_default()) {
            (7, 4) => (488, 136),
            (8, 0 | 1 | 3) => (488, 144),
            (8, 2) => (488, 152),
            (8, 4) => (488, 168),
            (8, 5) => (512, 168),
            _ => return Some(Err(Why::Version(format!("PHP {version}")))),
        };
        Some(Ok(Self { innermost: globals.wrapping_add(innermost), file_name }))
    }

    /// Where the thread has its frames.
    pub(crate) fn look(&self) -> Look {
        Look { head: self.innermost, through: None, next: Next::Pointer(48), words: [None; 2] }
    }

    /// The name of the language's own function that the thread is in, such as `exec`.
    pub(crate) fn within(&self, memory: &Memory) -> Result<Option<String>, Why> {
        const OWN_FUNCTION: u8 = 1;
        let function = memory.pointer(memory.pointer(self.innermost)?.wrapping_add(24))?;
        if function == 0 || memory.u8(function)? != OWN_FUNCTION {
            return Ok(None);
        }
        name(memory, function).map(Some)
    }

    pub(crate) fn frames(&self, memory: &Memory, limit: usize) -> Result<Vec<Frame>, Why> {
        let mut at = memory.pointer(self.innermost)?;
        let mut frames = Vec::new();
        for _ in 0..limit.saturating_mul(FRAMES_A_LINE) {
            if at == 0 || frames.len() == limit || memory.lacks_frame(at) {
                break;
            }
            let function = memory.pointer(at.wrapping_add(24))?;
            if function != 0 && memory.u8(function)? == USER_FUNCTION {
                let instruction = memory.pointer(at)?;
                let file = string(memory, memory.pointer(function.wrapping_add(self.file_name))?)?;
                let line = memory.u32(instruction.wrapping_add(24))?;
                let (function, language) = (name(memory, function)?, Language::Php);
                frames.push(Frame { function, file, line: (line > 0).then_some(line), language });
            }
            at = memory.pointer(at.wrapping_add(48))?;
        }
        Ok(frames)
    }
}

/// `function`, `Class::method`, or `{main}` for code outside functions, as PHP's own traces say.
fn name(memory: &Memory, function: u64) -> Result<String, Why> {
    let name = memory.pointer(function.wrapping_add(8))?;
    if name == 0 {
        return Ok("{main}".to_owned());
    }
    let name = string(memory, name)?;
    let class = memory.pointer(function.wrapping_add(16))?;
    if class == 0 {
        return Ok(name);
    }
    let class = string(memory, memory.pointer(class.wrapping_add(8))?)?;
    Ok(format!("{class}::{name}"))
}

fn string(memory: &Memory, at: u64) -> Result<String, Why> {
    let length = memory.pointer(at.wrapping_add(16))?;
    Ok(text(&memory.bytes(at.wrapping_add(24), length, LONGEST_NAME)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lies_gets_an_answer() {
        crate::lies::tell(|_, memory, lies| Php { innermost: lies.start, file_name: 144 }.frames(memory, 48));
    }
}
