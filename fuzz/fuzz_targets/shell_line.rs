//! The analysis of shell lines: whatever the bytes, it ends with an answer that can be read back.
//! Whether the answer is the shell's is tested beside the shells (`forkless-shell`,
//! `differential`).
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/forkless-shell/tests/exercise/mod.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    let Some((&room, line)) = input.split_first() else { return };
    let environment: [&[u8]; 5] = [b"PATH=/bin", b"a=b c", b"A=\xff", b"broken", b"SHLVL=7"];
    exercise::exercise(line, &environment, usize::from(room) * 8);
    #[cfg(feature = "planted")]
    {
        let mut buffer = [0; 4096];
        let decision = forkless_shell::analyze(line, &[], &forkless_shell::ShellTraits::DASH, &mut buffer);
        let two = decision.is_ok_and(|script| script.pipelines().any(|p| p.stage_count() > 1));
        assert!(!two, "planted: no line has a pipe");
    }
});
