//! Seccomp filters that refuse single system calls, or calls with certain bits in an argument, as
//! sandboxes and container runtimes do. Written as classic BPF by hand
//! (`Documentation/userspace-api/seccomp_filter.rst`). A filter stays for good, so only processes
//! made for it install one.
#![expect(unsafe_code, reason = "prctl takes an address")]

use forkless_sys::Errno;

/// A call to refuse.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub nr: i64,
    /// Only when this argument's low half, masked, has this value.
    pub when: Option<(u8, u32, u32)>,
    pub errno: Errno,
}

/// Refuses a call whatever its arguments.
pub fn refuse(nr: i64, errno: Errno) -> Rule {
    Rule { nr, when: None, errno }
}

/// Refuses it when `argument & mask == value`.
pub fn refuse_when(nr: i64, argument: u8, mask: u32, value: u32, errno: Errno) -> Rule {
    Rule { nr, when: Some((argument, mask, value)), errno }
}

/// Installs the rules over whatever filter there is.
pub fn install(rules: &[Rule]) {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = Vec::new();
    for r in rules {
        program.push(op(LOAD, 0, 0, 0)); // seccomp_data.nr
        match r.when {
            None => program.push(op(EQUAL, 0, 1, r.nr as u32)),
            Some((arg, mask, value)) => {
                program.push(op(EQUAL, 0, 4, r.nr as u32));
                program.push(op(LOAD, 0, 0, 16 + 8 * u32::from(arg))); // the low half: little-endian
                program.push(op(AND, 0, 0, mask));
                program.push(op(EQUAL, 0, 1, value));
            }
        }
        program.push(op(RETURN, 0, 0, ERRNO | r.errno.raw() as u32));
    }
    program.push(op(RETURN, 0, 0, ALLOW));
    forkless_sys::process::set_no_new_privs().expect("no_new_privs");
    let all = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const all) };
    if done != 0 {
        super::skip(&format!("no seccomp filters here: {}", std::io::Error::last_os_error()));
    }
}
