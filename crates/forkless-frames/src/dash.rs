//! dash, which is built without symbols: the line of the command it executes.
//!
//! dash keeps that line in an `int`, and prints it before its messages: `script: 3: name: not
//! found` (`exvwarning2` in its `src/error.c`). The format of that message is found among its
//! constants, and the `int` by the one place in its code that prints with that format.

use std::ops::Range;

use crate::image::Image;
use crate::memory::Memory;
use crate::process::Process;
use crate::{Frame, Language, Why};

/// A process that runs dash.
#[derive(Debug)]
pub(crate) struct Dash {
    lineno: u64,
    script: String,
}

/// dash's code has some 80 KiB, its variables 16.
const LARGEST: usize = 512 << 10;

impl Dash {
    pub(crate) fn find(process: &Process, memory: &Memory) -> Option<Result<Self, Why>> {
        if process.executable()? != "dash" {
            return None;
        }
        let image = Image::executable(process)?;
        let script = script(&process.arguments());
        let found = lineno(process, memory, &image).map(|lineno| Self { lineno, script });
        Some(found.ok_or_else(|| Why::Version("this build of dash".into())))
    }

    pub(crate) fn frames(&self, memory: &Memory) -> Result<Vec<Frame>, Why> {
        let line = memory.u32(self.lineno)?;
        // Only the line is to be had: functions have no names in memory when they are executed.
        let (function, file) = ("main".to_owned(), self.script.clone());
        Ok(vec![Frame { function, file, line: (line > 0).then_some(line), language: Language::Dash }])
    }
}

/// The script among a shell's arguments: the first that is no option.
fn script(arguments: &[String]) -> String {
    let mut rest = arguments.iter().skip(1);
    let shell = arguments.first().cloned().unwrap_or_default();
    while let Some(argument) = rest.next() {
        match argument.as_bytes() {
            [b'-' | b'+', letters @ ..] if !letters.is_empty() => {
                if letters == b"-" {
                    return rest.next().cloned().unwrap_or(shell);
                }
                // The line is the argument, and no file.
                if letters.contains(&b'c') {
                    return shell;
                }
                if letters.ends_with(b"o") {
                    rest.next();
                }
            }
            [] => return shell,
            _ => return argument.clone(),
        }
    }
    shell
}

fn lineno(process: &Process, memory: &Memory, image: &Image) -> Option<u64> {
    let read =
        |range: Range<u64>| memory.bytes(range.start, range.end.checked_sub(range.start)?, LARGEST).ok();
    let format = image.constants(process).find_map(|range| {
        let constants = read(range.clone())?;
        let at = constants.windows(FORMAT.len()).position(|window| window == FORMAT)?;
        Some(range.start.wrapping_add(at as u64))
    })?;
    let code = image.code(process)?;
    let loads = loads(&read(code.clone())?, code.start);
    let printed = loads.iter().find(|load| !load.of_value && load.address == format)?;
    let variables = image.variables(process)?;
    let values = loads.iter().filter(|load| load.of_value && variables.contains(&load.address));
    let nearest = values.min_by_key(|load| load.at.abs_diff(printed.at))?;
    (nearest.at.abs_diff(printed.at) <= NEAR).then_some(nearest.address)
}

const FORMAT: &[u8] = b"%s: %d: %s: \0";

/// Bytes of code between two instructions for one call's arguments.
const NEAR: u64 = 64;

/// An instruction that takes an address relative to itself.
struct Load {
    at: u64,
    address: u64,
    /// Whether it loads the `int` there, and not the address.
    of_value: bool,
}

/// x86-64: `lea r64, [rip+d32]` and `mov r32, [rip+d32]`.
#[cfg(target_arch = "x86_64")]
fn loads(code: &[u8], start: u64) -> Vec<Load> {
    let mut loads = Vec::new();
    for (offset, window) in code.windows(7).enumerate() {
        let &[prefix, opcode, operand, a, b, c, d] = window else { continue };
        let of_value = match (prefix, opcode) {
            (0x48 | 0x4c, 0x8d) => false,
            // With such a prefix it loads a pointer.
            (prefix, 0x8b) if !(0x48..0x50).contains(&prefix) => true,
            _ => continue,
        };
        // The address is relative to the end of the instruction.
        if operand & 0xc7 == 0x05 {
            let at = start.wrapping_add(offset as u64);
            let distance = i64::from(i32::from_le_bytes([a, b, c, d])).cast_unsigned();
            loads.push(Load { at, address: at.wrapping_add(7).wrapping_add(distance), of_value });
        }
    }
    loads
}

/// aarch64: `adrp xN` and then `add xN, xN, #low` or `ldr wM, [xN, #low]`.
#[cfg(target_arch = "aarch64")]
fn loads(code: &[u8], start: u64) -> Vec<Load> {
    let mut loads = Vec::new();
    let mut pages = [0_u64; 32];
    for (index, &word) in code.as_chunks().0.iter().enumerate() {
        let (word, at) = (u32::from_le_bytes(word), start.wrapping_add(4 * index as u64));
        let (to, from) = (word as usize & 31, word as usize >> 5 & 31);
        let page = pages.get(from).copied().unwrap_or_default();
        let low = u64::from(word >> 10 & 0xfff);
        if word & 0x9f00_0000 == 0x9000_0000 {
            let pages_away = (word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3;
            let signed = i64::from((pages_away << 11).cast_signed() >> 11) << 12;
            if let Some(page) = pages.get_mut(to) {
                *page = (at & !0xfff).wrapping_add(signed.cast_unsigned());
            }
        } else if word & 0xffc0_0000 == 0x9100_0000 {
            loads.push(Load { at, address: page.wrapping_add(low), of_value: false });
        } else if word & 0xffc0_0000 == 0xb940_0000 {
            loads.push(Load { at, address: page.wrapping_add(4 * low), of_value: true });
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its code is read, too, for the place of the line.
    #[test]
    fn a_process_that_lies_gets_an_answer() {
        crate::lies::tell(|_, memory, lies| {
            let mut code = memory.bytes(lies.start, lies.end - lies.start, LARGEST)?;
            // Beginnings of instructions, with what is there behind them.
            for (at, byte) in code.iter_mut().enumerate() {
                *byte = match at % 16 {
                    0 => 0x48,
                    1 if *byte & 1 == 0 => 0x8d,
                    1 => 0x8b,
                    2 => 0x05 | *byte & 0x38,
                    _ => *byte,
                };
            }
            let script = || "a.sh".to_owned();
            for load in loads(&code, lies.start) {
                drop(Dash { lineno: load.address, script: script() }.frames(memory));
            }
            let frames = Dash { lineno: lies.start, script: script() }.frames(memory)?;
            assert_eq!(frames.len(), 1);
            Ok(frames)
        });
    }

    #[test]
    fn the_script_is_the_first_argument_that_is_no_option() {
        let of = |line: &str| script(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("sh -e /opt/a.sh -x"), "/opt/a.sh");
        assert_eq!(of("dash -o errexit a.sh"), "a.sh");
        assert_eq!(of("dash -- -odd"), "-odd");
        assert_eq!(of("dash -ec true"), "dash");
        assert_eq!(of("dash"), "dash");
    }
}
