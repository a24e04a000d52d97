//! The hand-written headers against the library: every signature, every symbol, every structure.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use support::{CLANG, GCC, c_sources, have, include, libraries, root, run, scratch};

/// The exported functions of the crate's source: from the name to the return type and the parameter
/// types, in C.
fn exported() -> BTreeMap<String, (String, Vec<String>)> {
    let mut all = BTreeMap::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(src).expect("src") {
        let path = entry.expect("entry").path();
        let module = path.file_stem().expect("stem").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("source");
        for piece in text.split("#[unsafe(no_mangle)]").skip(1) {
            let begin = piece.find("fn ").expect("a function") + 3;
            let open = begin + piece[begin..].find('(').expect("parameters");
            let name = piece[begin..open].to_owned();
            let end = piece.find(" {").expect("a body");
            let (params, result) = match piece[open..end].rsplit_once(" -> ") {
                Some((params, result)) => (params, result),
                None => (&piece[open..end], "()"),
            };
            let params = params.trim().trim_start_matches('(').trim_end_matches(')');
            let mut types = Vec::new();
            for param in split(params) {
                types.push(c_type(&name, &module, param.split_once(':').expect("a type").1));
            }
            all.insert(name.clone(), (c_type(&name, &module, result), types));
        }
    }
    all
}

/// Splits parameters at commas outside brackets.
fn split(params: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut depth = 0;
    for c in params.chars() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            out.push(String::new());
        } else {
            out.last_mut().expect("one").push(c);
        }
    }
    out.into_iter().map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect()
}

/// The C type that corresponds to a Rust parameter's type.
fn c_type(function: &str, module: &str, rust: &str) -> String {
    let handle = |name: &str| {
        let name = name.trim_start_matches("Forkless").to_lowercase();
        format!("forkless_{name} *")
    };
    let rust = rust.trim();
    if let Some(inner) = rust.strip_prefix("Option<").and_then(|r| r.strip_suffix('>')) {
        return match inner {
            "&Failure" => "const forkless_error *".into(),
            "&mut MaybeUninit<PassToPclose>" | "&mut PassToPclose" => {
                "struct popen_noshell_pass_to_pclose *".into()
            }
            "&mut MaybeUninit<Box<ForklessChild>>" => "forkless_child **".into(),
            "&mut MaybeUninit<c_int>" => "int *".into(),
            "&mut MaybeUninit<*mut c_void>" => "void **".into(),
            "&libc::sigset_t" => "const sigset_t *".into(),
            "NonNull<ForklessFacility>" => "struct forkless_facility *".into(),
            "Hook" | "Function" => "int (*)(void *)".into(),
            "Callback" => "int (*)(void *, int, const void *, size_t)".into(),
            _ => {
                if let Some(name) = inner.strip_prefix("Box<").and_then(|b| b.strip_suffix('>')) {
                    handle(name)
                } else if let Some(name) = inner.strip_prefix("&mut ") {
                    handle(name)
                } else if let Some(name) = inner.strip_prefix('&') {
                    format!("const {}", handle(name))
                } else {
                    panic!("{function}: no C type is known for {rust}")
                }
            }
        };
    }
    match rust {
        "()" => "void",
        "c_int" => "int",
        "c_uint" => "unsigned",
        "usize" => "size_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "libc::uid_t" => "uid_t",
        "libc::gid_t" => "gid_t",
        "libc::pid_t" | "pid_t" => "pid_t",
        "libc::mode_t" => "mode_t",
        "Text<'_>" | "*const c_char" => "const char *",
        "*mut FILE" => "FILE *",
        "*const Failure" => "const forkless_error *",
        "Vector<'_>" => "const char *const *",
        "Array<'_, libc::gid_t>" => "const gid_t *",
        "Array<'_, c_uint>" => "const unsigned *",
        "Array<'static, u8>" => "const void *",
        "Data" => "void *",
        "Out<'_, c_int>" => "int *",
        "Out<'_, usize>" => "size_t *",
        "Out<'_, *const c_void>" => "const void **",
        "Out<'_, Box<ForklessChild>>" => "forkless_child **",
        "Out<'_, Box<ForklessPrepared>>" => "forkless_prepared **",
        "Out<'_, Box<ForklessConversation>>" => "forkless_conversation **",
        "Handle<'_>" => return format!("forkless_{module} *"),
        _ => panic!("{function}: no C type is known for {rust}"),
    }
    .into()
}

fn accept(compiler: &str, args: &[&str], name: &str, source: &str) {
    let path = scratch().join(name);
    fs::write(&path, source).expect("source");
    let done = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
        .arg(include())
        .args(args)
        .arg(&path)
        .output()
        .expect("the compiler runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{compiler} {args:?} {name}:\n{said}");
}

/// A C file that compiles only where each declaration in the headers is that of the Rust function.
fn signatures() -> String {
    let mut c = String::from("#include <forkless.h>\n#include <popen_noshell.h>\n");
    for (name, (result, params)) in exported() {
        let params = if params.is_empty() { "void".into() } else { params.join(", ") };
        writeln!(c, "{result} (*use_{name})({params}) = {name};").expect("a string");
    }
    let members = |c: &mut String, of: &str, names: [&str; 5], rust: [usize; 6]| {
        for (member, at) in names.into_iter().zip(rust) {
            writeln!(c, "_Static_assert(offsetof({of}, {member}) == {at}, \"{member}\");").expect("a string");
        }
        writeln!(c, "_Static_assert(sizeof({of}) == {}, \"size\");", rust[5]).expect("a string");
    };
    let facility = ["size", "name", "state", "used_for", "fallback"];
    members(&mut c, "struct forkless_facility", facility, forkless_capi::facilities::FACILITY);
    let pass = ["fp", "pid", "free_clone_mem", "stack", "func_args"];
    members(&mut c, "struct popen_noshell_pass_to_pclose", pass, forkless_capi::noshell::PASS_TO_PCLOSE);
    c
}

#[test]
fn headers_declare_what_the_library_defines() {
    for compiler in [GCC, CLANG] {
        if have(compiler) {
            accept(compiler, &["-std=c11", "-D_GNU_SOURCE"], "signatures.c", &signatures());
        }
    }
}

#[test]
fn a_wrong_declaration_would_be_noticed() {
    if !have(GCC) {
        return;
    }
    let right = signatures();
    for (from, to) in [
        ("uint64_t, uint64_t", "uint64_t, int64_t"),
        ("uid_t", "uid_t *"),
        (" == 0, \"fp\"", " == 8, \"fp\""),
    ] {
        let wrong = right.replacen(from, to, 1);
        assert_ne!(wrong, right, "{from}");
        let path = scratch().join("wrong.c");
        fs::write(&path, wrong).expect("source");
        let mut gcc = Command::new(GCC);
        gcc.args(["-std=c11", "-D_GNU_SOURCE", "-Werror", "-fsyntax-only", "-I"]).arg(include()).arg(path);
        assert!(!gcc.output().expect("gcc runs").status.success(), "{from} as {to} was accepted");
    }
}

#[test]
fn exported_symbols_are_those_checked_in() {
    if !have("nm") {
        return;
    }
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("symbols.txt");
    let list = fs::read_to_string(list).expect("symbols.txt");
    // Versions are given when the library is linked for installation (packaging/link.sh; xtask,
    // `symbols`), and cargo's own has none.
    let expected: Vec<&str> =
        list.lines().filter(|l| !l.starts_with('#')).filter_map(|l| Some(l.split_once('@')?.0)).collect();
    let nm = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(libraries().join("libforkless.so"))
        .env("LC_ALL", "C")
        .output()
        .expect("nm runs");
    let said = String::from_utf8(nm.stdout).expect("names");
    let mut found: Vec<&str> = said.lines().filter_map(|l| l.split_whitespace().nth(2)).collect();
    found.sort_unstable();
    assert_eq!(found, expected, "the library and symbols.txt differ");
    let mut written: Vec<String> = exported().into_keys().collect();
    written.sort();
    assert_eq!(written, expected, "the source and symbols.txt differ");
}

#[test]
fn headers_stand_alone_in_every_dialect() {
    let both = "#include <popen_noshell.h>\n#include <forkless.h>\n#include <forkless.h>\nint used;\n";
    for header in ["forkless.h", "popen_noshell.h"] {
        let alone = format!("#include <{header}>\nint used;\n");
        for compiler in [GCC, CLANG] {
            if !have(compiler) {
                continue;
            }
            // The second time with the C standard alone, where <signal.h> has no sigset_t.
            for posix in ["-D_POSIX_C_SOURCE=200809L", "-U_POSIX_C_SOURCE"] {
                for std in ["c89", "c99", "c11", "c17"] {
                    let args = [&format!("-std={std}"), posix, "-Wconversion", "-Wstrict-prototypes"];
                    accept(compiler, &args, &format!("alone-{header}.c"), &alone);
                    accept(compiler, &args, "both.c", both);
                }
            }
        }
        for compiler in ["g++", "clang++"] {
            if !have(compiler) {
                continue;
            }
            for std in ["c++98", "c++11", "c++20"] {
                let args = [&format!("-std={std}"), "-Wno-long-long", "-Wno-c++11-long-long"];
                // gcc does not know clang's option name, and says so only when something else is
                // wrong.
                accept(compiler, &args, &format!("alone-{header}.cpp"), &alone);
                accept(compiler, &args, "both.cpp", both);
            }
        }
    }
}

#[test]
fn every_declared_function_exists_and_is_documented() {
    let exported = exported();
    for header in ["forkless.h", "popen_noshell.h"] {
        let text = fs::read_to_string(include().join(header)).expect("header");
        let mut documented = false;
        for line in text.lines() {
            let declares = !line.starts_with([' ', '\t', '#', '/', '*'])
                && line.contains('(')
                && !line.contains("extern \"C\"");
            if declares {
                let name = line.split('(').next().unwrap_or_default();
                let name = name.rsplit([' ', '*']).next().unwrap_or_default();
                assert!(exported.contains_key(name), "{header}: {name} does not exist");
                assert!(documented, "{header}: {name} has no comment");
            }
            // A comment belongs to what follows it without a blank line.
            if line.ends_with("*/") {
                documented = true;
            } else if line.is_empty() || declares {
                documented = false;
            }
        }
    }
}

/// C without comments and strings, which name functions that they do not call.
fn code_of(c: &str) -> String {
    let mut code = String::new();
    let mut rest = c;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        code.push_str(&rest[..at]);
        let here = &rest[at..];
        let skipped = if here.starts_with("/*") {
            here.find("*/").expect("the comment ends") + 2
        } else if here.starts_with('/') {
            code.push('/');
            1
        } else {
            let quote = here.as_bytes()[0];
            let mut end = 1;
            while here.as_bytes()[end] != quote {
                end += if here.as_bytes()[end] == b'\\' { 2 } else { 1 };
            }
            end + 1
        };
        rest = &here[skipped..];
    }
    code + rest
}

/// Whether the code has the name as a whole word.
fn mentions(code: &str, name: &str) -> bool {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    code.match_indices(name)
        .any(|(at, _)| !code[..at].ends_with(in_word) && !code[at + name.len()..].starts_with(in_word))
}

/// Each function is called by a test of its behaviour. `nulls.c` alone does not count, and has a
/// list of its own.
#[test]
fn every_function_is_used_by_a_c_test_and_given_null_by_another() {
    let (mut used, mut nulls) = (String::new(), String::new());
    for entry in fs::read_dir(c_sources()).expect("tests/c") {
        let path = entry.expect("entry").path();
        let to = if path.ends_with("nulls.c") { &mut nulls } else { &mut used };
        to.push_str(&code_of(&fs::read_to_string(path).expect("source")));
    }
    let all = exported();
    let unused: Vec<&String> = all.keys().filter(|name| !mentions(&used, name)).collect();
    assert!(unused.is_empty(), "no test in tests/c uses {unused:?}");
    let takes_pointer = |params: &[String]| params.iter().any(|p| p.contains('*'));
    let not_null: Vec<&String> =
        all.iter().filter(|(name, f)| takes_pointer(&f.1) && !mentions(&nulls, name)).map(|f| f.0).collect();
    assert!(not_null.is_empty(), "tests/c/nulls.c does not pass NULL to {not_null:?}");
}

#[test]
fn code_is_told_from_comments_and_strings() {
    let code = code_of("a_b(x) /* c_d(y) */ / \"e_f(\\\"z\" '\\'' g");
    assert!(mentions(&code, "a_b") && mentions(&code, "g") && mentions(&code, "x"), "{code}");
    for absent in ["c_d", "e_f", "z", "a", "b"] {
        assert!(!mentions(&code, absent), "{absent} in {code}");
    }
}

#[test]
fn steps_have_the_numbers_of_the_header() {
    use forkless::Step;
    let text = fs::read_to_string(include().join("forkless.h")).expect("header");
    let all = [
        Step::Command,
        Step::Pipe,
        Step::Stack,
        Step::Clone,
        Step::Descriptors,
        Step::Signals,
        Step::Setsid,
        Step::ProcessGroup,
        Step::Terminal,
        Step::Cgroup,
        Step::Rlimit,
        Step::Nice,
        Step::Scheduler,
        Step::Affinity,
        Step::Chroot,
        Step::Groups,
        Step::Gid,
        Step::Uid,
        Step::Chdir,
        Step::NoNewPrivs,
        Step::DeathSignal,
        Step::PreExec,
        Step::Exec,
        Step::Wait,
    ];
    for step in all {
        let number = forkless_capi::error::step_number(step);
        let line = format!("\tFORKLESS_STEP_{} = {number},", step.name().to_uppercase());
        assert!(text.contains(&line), "{line}");
    }
    // All steps but NONE and OTHER: a step that is new in the header must be in the list above.
    assert_eq!(text.matches("\tFORKLESS_STEP_").count(), all.len() + 2);
}

#[test]
fn the_version_is_the_crates() {
    let text = fs::read_to_string(include().join("forkless.h")).expect("header");
    for (name, value) in ["MAJOR", "MINOR", "PATCH"].iter().zip(env!("CARGO_PKG_VERSION").split('.')) {
        assert!(
            text.contains(&format!("#define FORKLESS_VERSION_{name} {value}\n")),
            "{name} is not {value}"
        );
    }
}

#[test]
fn the_pkg_config_template_has_what_a_static_link_needs() {
    let text = fs::read_to_string(root().join("crates/forkless-capi/forkless.pc.in")).expect("template");
    for placeholder in ["@prefix@", "@libdir@", "@version@"] {
        assert_eq!(text.matches(placeholder).count(), 1, "{placeholder}");
    }
    if !have("pkg-config") {
        return;
    }
    let dir = scratch().join("pc");
    fs::create_dir_all(&dir).expect("directory");
    let filled = text
        .replace("@libdir@", "lib")
        .replace("@prefix@", "/opt/x")
        .replace("@version@", env!("CARGO_PKG_VERSION"));
    fs::write(dir.join("forkless.pc"), filled).expect("pc file");
    let out = Command::new("pkg-config")
        .args(["--cflags", "--libs", "--static", "forkless"])
        .env("PKG_CONFIG_PATH", &dir)
        .output()
        .expect("pkg-config runs");
    let said = String::from_utf8(out.stdout).expect("flags");
    for flag in ["-I/opt/x/include", "-L/opt/x/lib", "-lforkless", "-lpthread"] {
        assert!(said.contains(flag), "{flag} is not in {said}");
    }
    // A fully static program finds all symbols: the compiler adds its own unwinder, shared or
    // static as the program is.
    for compiler in [GCC, CLANG] {
        if !have(compiler) {
            continue;
        }
        let source = scratch().join("static.c");
        fs::write(
            &source,
            "#include <forkless.h>\nint main(void) { return forkless_system(\"exit 7\") != 7 << 8; }\n",
        )
        .expect("source");
        let program = scratch().join(format!("static-{compiler}"));
        let mut cc = Command::new(compiler);
        cc.args(["-static", "-I"]).arg(include()).arg(&source).arg("-o").arg(&program);
        cc.arg("-L").arg(libraries()).args(said.split_whitespace().filter(|f| f.starts_with("-l")));
        let made = cc.output().expect("the compiler runs");
        let errors = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{compiler}: {errors}");
        run(&program, &[]);
    }
}
