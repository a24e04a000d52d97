//! The context that a signal handler is given (`struct ucontext`, x86-64), as far as dispatch needs
//! it.
#![expect(unsafe_code, reason = "the kernel's structure is longer than ours")]

use forkless_sys::signal::{AltStack, Taken};

use crate::kernel::Args;

/// What the kernel pushed, and restores at `rt_sigreturn`.
#[repr(C)]
pub(crate) struct Frame {
    flags: u64,
    link: usize,
    /// Alternate stack in force afterwards.
    pub(crate) stack: AltStack,
    registers: [usize; 23],
    fpstate: usize,
    reserved: [u64; 8],
    /// Signal mask in force afterwards.
    pub(crate) mask: u64,
}

const _: () = assert!(core::mem::offset_of!(Frame, mask) == 296, "uc_sigmask");

// Order of `struct sigcontext_64` (arch/x86/include/uapi/asm/sigcontext.h).
const R8: usize = 0;
const R9: usize = 1;
const R10: usize = 2;
const RDI: usize = 8;
const RSI: usize = 9;
const RDX: usize = 12;
const RAX: usize = 13;
const RSP: usize = 15;
const RIP: usize = 16;

impl Frame {
    /// Number of the dispatched call: dispatch rolls rax back to it (`syscall_rollback`).
    pub(crate) fn number(&self) -> u32 {
        self.registers[RAX] as u32
    }

    pub(crate) fn args(&self) -> Args {
        [RDI, RSI, RDX, R10, R8, R9].map(|r| self.registers[r])
    }

    pub(crate) fn sp(&self) -> usize {
        self.registers[RSP]
    }

    /// Whether the instruction before the interrupted one may be a system call. `true` where that
    /// instruction may lie in another page, which may be absent.
    pub(crate) fn may_follow_a_call(&self) -> bool {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let at = self.registers[RIP];
        // SAFETY: in the page of the instruction that was to be executed next.
        at & 0xfff < 2 || unsafe { ((at - 2) as *const [u8; 2]).read() } == SYSCALL
    }

    /// What the call returns.
    pub(crate) fn answer(&mut self, value: isize) {
        self.registers[RAX] = value as usize;
    }

    /// Makes the program execute its system call instruction again. The context points behind that
    /// instruction, which is two bytes long.
    pub(crate) fn again(&mut self) {
        self.registers[RIP] -= 2;
    }
}

/// `siginfo_t`, as far as our handlers read it. Always the kernel's, never one of our own making.
#[repr(C)]
pub(crate) struct Info {
    signo: i32,
    errno: i32,
    /// `SI_*`, `SEGV_*`, `SYS_*`.
    pub(crate) code: i32,
    pad: i32,
    /// Address of a fault, or of a dispatched system call. For a call these follow:
    pub(crate) address: usize,
    number: u32,
    /// `AUDIT_ARCH_*`: the architecture whose table the number is of.
    pub(crate) table: u32,
}

impl Info {
    /// All of what the kernel says.
    pub(crate) fn taken(&self) -> &Taken {
        // SAFETY: the kernel pushes all 128 bytes for a handler, of which `Info` are the first.
        unsafe { &*core::ptr::from_ref(self).cast() }
    }
}

/// `AUDIT_ARCH_X86_64`: EM_X86_64, 64 bits, little-endian.
pub(crate) const OWN_TABLE: u32 = 62 | 0x8000_0000 | 0x4000_0000;
