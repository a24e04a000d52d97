//! Memory of a process that lies: words that point at each other, small numbers, anything.

use std::ops::Range;

use crate::memory::Memory;
use crate::process::Process;
use crate::{Frame, Why};

const WORDS: usize = 512;
const LIES: u64 = 400;
/// What one reading may take.
const BYTES: usize = 256 << 10;

/// Has `read` look at many such memories. It must come back each time, within its allowance.
pub(crate) fn tell(read: impl Fn(&Process, &Memory, Range<u64>) -> Result<Vec<Frame>, Why>) {
    let process = Process { pid: std::process::id(), mappings: Vec::new() };
    let memory = Memory::open(process.pid).expect("we may read ourselves");
    let mut lies = vec![0_u64; WORDS];
    let start = lies.as_ptr().addr() as u64;
    let range = start..start + 8 * WORDS as u64;
    let mut random = 88_172_645_463_325_252_u64;
    for _ in 0..LIES {
        for word in &mut lies {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let inside = start + random / 16 % (8 * WORDS as u64);
            *word = match random % 8 {
                0..=3 => inside & !7,
                4 => inside & !7 | 1,
                5 => random / 8 % 32,
                6 => 1 << (random / 8 % 64),
                _ => random,
            };
        }
        std::hint::black_box(&mut lies);
        memory.allow_bytes(BYTES);
        if let Ok(frames) = read(&process, &memory, range.clone()) {
            assert!(frames.len() <= 48, "{} frames", frames.len());
        }
    }
}
