//! Whatever the bytes, the analysis ends with an answer, and the answer can be read back and shown.

mod exercise;

use exercise::exercise;
use forkless_shell::{ShellTraits, analyze, resolve_directory};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(0x1234_5678_9abc_def1);
    for _ in 0..20_000 {
        let line: Vec<u8> = (0..random.below(40)).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        exercise(&line, &[b"PATH=/bin"], random.below(400));
    }
}

#[test]
fn random_shell_characters_never_panic() {
    const ALPHABET: &[u8] = b" \t\n\\'\"$`*?[]{}()<>|&;!#~=:,-_+%@^ab1029PATHexitcd/.\x00\x01\x7f\x80\xff";
    let mut random = Random(0xfeed_f00d_dead_beef);
    let environment: [&[u8]; 4] = [b"PATH=/bin", b"a=b c", b"A=\xff", b"broken"];
    for _ in 0..30_000 {
        let line: Vec<u8> = (0..random.below(30)).map(|_| ALPHABET[random.below(ALPHABET.len())]).collect();
        exercise(&line, &environment, random.below(600));
    }
}

#[test]
fn random_environments_never_panic() {
    const NAMES: &[&str] =
        &["PATH", "SHLVL", "PWD", "OLDPWD", "_", "A", "LC_ALL", "", "a.b", "BASH_FUNC_x%%"];
    const VALUES: &[&str] = &["=", "=/bin", "=7", "=999", "=99999999999", "", "=x=y", "=/a/../b"];
    let mut random = Random(0x0bad_cafe_0bad_cafe);
    for _ in 0..20_000 {
        let entries: Vec<String> = (0..random.below(12))
            .map(|_| format!("{}{}", NAMES[random.below(NAMES.len())], VALUES[random.below(VALUES.len())]))
            .collect();
        let environment: Vec<&[u8]> = entries.iter().map(|entry| entry.as_bytes()).collect();
        exercise(b"A=\"$A\" /bin/x | b \"$A\"; exec /y", &environment, 600);
    }
}

#[test]
fn random_directories_never_panic() {
    const ALPHABET: &[u8] = b"/./a.-\0";
    let mut random = Random(0x5eed_5eed_5eed_5eed);
    let text = |random: &mut Random| -> Vec<u8> {
        (0..random.below(10)).map(|_| ALPHABET[random.below(ALPHABET.len())]).collect()
    };
    for _ in 0..50_000 {
        let (current, operand) = (text(&mut random), text(&mut random));
        let mut buf = vec![0; random.below(24)];
        if let Ok(path) = resolve_directory(&current, &operand, &mut buf) {
            assert!(path.to_bytes().starts_with(b"/"), "{current:?} {operand:?}");
        }
    }
}

#[test]
fn random_probe_answers_are_never_taken_for_a_shell() {
    let mut random = Random(0x9999_8888_7777_6666);
    for _ in 0..20_000 {
        let mut answer = b"12 (cat) R 11 0\n".to_vec();
        let keep = random.below(answer.len() + 1);
        answer.truncate(keep);
        answer.extend((0..random.below(60)).map(|_| u8::try_from(random.below(256)).unwrap()));
        assert_eq!(ShellTraits::from_answer(&answer, 11, b"/"), ShellTraits::UNKNOWN);
    }
}

/// Microseconds this thread has computed: others use this machine, too.
fn cpu_time() -> i64 {
    use nix::sys::time::TimeValLike;
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().num_microseconds()
}

#[test]
fn time_grows_with_the_length_of_the_line() {
    let mut buf = vec![0; 8 << 20];
    let expansions = "\"$A\" ".repeat(3000);
    let prefixed = format!("B=1 x {expansions}");
    for piece in [
        prefixed.as_str(),
        "a ",
        "{",
        "a|",
        "$A",
        "\"$A\"",
        "a;",
        "A=1 ",
        ">a",
        "\\\n",
        "'x'",
        "# ",
        "\n",
        "cd x;",
        "{}",
        "a=b:",
        "12",
    ] {
        let mut times = [0_i64; 2];
        for (time, count) in times.iter_mut().zip([2_000, 20_000]) {
            let line = piece.repeat((count / piece.len()).max(count / 2_000));
            let environment: [&[u8]; 2] = [b"PATH=/bin", b"A=1"];
            // The best of some: the first touches fresh memory.
            *time = (0..3)
                .map(|_| {
                    let begin = cpu_time();
                    for shell in [ShellTraits::DASH, ShellTraits::BASH] {
                        let _ = analyze(line.as_bytes(), &environment, &shell, &mut buf);
                    }
                    cpu_time() - begin
                })
                .min()
                .unwrap();
        }
        // Ten times the line: a hundred times the time would be quadratic. The sum forgives jitter.
        assert!(times[1] < times[0] * 40 + 20_000, "{piece:?}: {times:?} us");
    }
}
