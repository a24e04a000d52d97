//! Static ELF executables of a few hundred bytes for Linux, put together from machine code.

/// The code of the child: write `text` if there is any, then `_exit(0)`. `data` is the address of
/// `text`.
#[cfg(target_arch = "x86_64")]
fn code(text: &[u8], data: u32) -> Vec<u8> {
    let mut code = Vec::new();
    if !text.is_empty() {
        let length = u32::try_from(text.len()).unwrap_or(0).to_le_bytes();
        code.extend([0xb8, 1, 0, 0, 0]); // mov eax, 1 (write)
        code.extend([0xbf, 1, 0, 0, 0]); // mov edi, 1
        code.push(0xbe); // mov esi, data
        code.extend(data.to_le_bytes());
        code.push(0xba); // mov edx, length
        code.extend(length);
        code.extend([0x0f, 0x05]); // syscall
    }
    code.extend([0xb8, 60, 0, 0, 0]); // mov eax, 60 (exit)
    code.extend([0x31, 0xff]); // xor edi, edi
    code.extend([0x0f, 0x05]); // syscall
    code
}

/// The code of the child: write `text` if there is any, then `_exit(0)`. `data` is the address of
/// `text`.
#[cfg(target_arch = "aarch64")]
fn code(text: &[u8], data: u32) -> Vec<u8> {
    let movz = |register: u32, value: u32| 0xd280_0000 | (value & 0xffff) << 5 | register;
    let movk16 = |register: u32, value: u32| 0xf2a0_0000 | (value >> 16) << 5 | register;
    const SVC: u32 = 0xd400_0001;
    let mut words = Vec::new();
    if !text.is_empty() {
        let length = u32::try_from(text.len()).unwrap_or(0);
        words.extend([movz(8, 64), movz(0, 1), movz(1, data), movk16(1, data), movz(2, length), SVC]);
    }
    words.extend([movz(8, 93), movz(0, 0), SVC]);
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// The code of a child that reads CLOCK_MONOTONIC first of all, then writes the 16 bytes to the
/// beginning of the file whose name is at `name`. It exits with 0 if all were written.
///
/// The clock is read by a system call: the vDSO would have to be found first, and other counters
/// have another zero.
#[cfg(target_arch = "x86_64")]
fn first_code(name: u32) -> Vec<u8> {
    let mut code = Vec::new();
    code.extend([0xb8, 228, 0, 0, 0]); // mov eax, 228 (clock_gettime)
    code.extend([0xbf, 1, 0, 0, 0]); // mov edi, 1 (CLOCK_MONOTONIC)
    code.extend([0x48, 0x8d, 0x74, 0x24, 0xc0]); // lea rsi, [rsp - 64]
    code.extend([0x0f, 0x05]); // syscall
    code.extend([0xb8, 2, 0, 0, 0]); // mov eax, 2 (open)
    code.push(0xbf); // mov edi, name
    code.extend(name.to_le_bytes());
    code.extend([0xbe, 1, 0, 0, 0]); // mov esi, 1 (O_WRONLY)
    code.extend([0x0f, 0x05]); // syscall
    code.extend([0x89, 0xc7]); // mov edi, eax
    code.extend([0xb8, 1, 0, 0, 0]); // mov eax, 1 (write)
    code.extend([0x48, 0x8d, 0x74, 0x24, 0xc0]); // lea rsi, [rsp - 64]
    code.extend([0xba, 16, 0, 0, 0]); // mov edx, 16
    code.extend([0x0f, 0x05]); // syscall
    code.extend([0x83, 0xe8, 16]); // sub eax, 16
    code.extend([0x89, 0xc7]); // mov edi, eax
    code.extend([0xb8, 60, 0, 0, 0]); // mov eax, 60 (exit)
    code.extend([0x0f, 0x05]); // syscall
    code
}

/// The code of a child that reads CLOCK_MONOTONIC first of all, then writes the 16 bytes to the
/// beginning of the file whose name is at `name`. It exits with 0 if all were written.
///
/// The clock is read by a system call: the vDSO would have to be found first, and other counters
/// have another zero.
#[cfg(target_arch = "aarch64")]
fn first_code(name: u32) -> Vec<u8> {
    let movz = |register: u32, value: u32| 0xd280_0000 | (value & 0xffff) << 5 | register;
    let movk16 = |register: u32, value: u32| 0xf2a0_0000 | (value >> 16) << 5 | register;
    // x1 = sp - 64
    const BUFFER: u32 = 0xd100_0000 | 64 << 10 | 31 << 5 | 1;
    // x0 = AT_FDCWD, which is -100
    const CURRENT: u32 = 0x9280_0000 | 99 << 5;
    // x0 = x0 - 16
    const LESS_16: u32 = 0xd100_0000 | 16 << 10;
    const SVC: u32 = 0xd400_0001;
    let words: [&[u32]; 4] = [
        &[movz(8, 113), movz(0, 1), BUFFER, SVC], // clock_gettime
        &[movz(8, 56), CURRENT, movz(1, name), movk16(1, name), movz(2, 1), movz(3, 0), SVC], // openat
        &[movz(8, 64), BUFFER, movz(2, 16), SVC], // write
        &[LESS_16, movz(8, 93), SVC],             // exit
    ];
    words.concat().into_iter().flat_map(u32::to_le_bytes).collect()
}

/// The executable that writes the time of its first instruction into a file with a name that ends
/// in NUL.
pub(super) fn first_image(name: &[u8]) -> Vec<u8> {
    let length = u32::try_from(first_code(0).len()).unwrap_or(0);
    image_of(&first_code(BASE + START + length), name)
}

const BASE: u32 = 0x40_0000;
const HEADER: u16 = 64;
const PROGRAM_HEADER: u16 = 56;
/// Where the code begins: behind the ELF header and two program headers.
const START: u32 = HEADER as u32 + 2 * PROGRAM_HEADER as u32;

/// The executable that writes `text`, if there is any, and exits.
pub(super) fn image(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(code(text, 0).len()).unwrap_or(0);
    image_of(&code(text, BASE + START + length), text)
}

/// A complete static executable: an ELF header, one loadable read-and-execute segment (the whole
/// file), and a `PT_GNU_STACK` header without the execute bit. Without that header the kernel makes
/// the stack executable.
pub(super) fn image_of(code: &[u8], data: &[u8]) -> Vec<u8> {
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let size = u64::from(START) + code.len() as u64 + data.len() as u64;

    let mut file = Vec::new();
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"); // 64 bit, little endian, version 1, System V
    file.extend(2_u16.to_le_bytes()); // ET_EXEC
    file.extend(MACHINE.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    file.extend(u64::from(BASE + START).to_le_bytes()); // entry
    file.extend(u64::from(HEADER).to_le_bytes()); // program headers follow at once
    file.extend(0_u64.to_le_bytes()); // no section headers
    file.extend(0_u32.to_le_bytes());
    for half in [HEADER, PROGRAM_HEADER, 2, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let load: [u64; 6] = [0, u64::from(BASE), u64::from(BASE), size, size, 0x1000];
    for (kind, flags, fields) in [(1_u32, 5_u32, load), (0x6474_e551, 6, [0; 6])] {
        file.extend(kind.to_le_bytes()); // PT_LOAD, PT_GNU_STACK
        file.extend(flags.to_le_bytes());
        file.extend(fields.into_iter().flat_map(u64::to_le_bytes));
    }
    file.extend(code);
    file.extend(data);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_small_and_its_stack_not_executable() {
        let image = image(b"");
        assert!(image.len() < 300);
        let stack_flags = &image[64 + 56 + 4..64 + 56 + 8];
        assert_eq!(stack_flags, 6_u32.to_le_bytes());
    }
}
