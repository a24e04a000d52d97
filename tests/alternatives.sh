#!/bin/bash
# What the common ways to start a program ask of the kernel here: the facts behind the table "Beside
# the alternatives" in README.md. Each row is one start, seen by strace: whether the call that makes
# the process shares its caller's memory and descriptor table, or copies them. A copy's cost grows.
#
# Then each starts a program in a directory that does not exist, and prints the error it gets.
#
#   tests/alternatives.sh         needs ./x build, gcc, strace; programs that are missing are skipped
#
# Run it as root: changes of the user need that. Exit codes: 0 all rows are as README.md says,
# 1 a row differs, 3 something needed is missing.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
built=${CARGO_TARGET_DIR:-$top/target}/release
for thing in gcc strace; do
	command -v $thing >/dev/null || { echo "alternatives.sh: $thing is missing: apt-get install $thing" >&2; exit 3; }
done
[ -e "$built/libforkless.so" ] || { echo "alternatives.sh: $built/libforkless.so is missing: ./x build" >&2; exit 3; }
[ "$(id -u)" = 0 ] || { echo "alternatives.sh: only root may start programs as another user" >&2; exit 3; }
unset LD_PRELOAD FORKLESS_OPTIONS FORKLESS_RUN
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
chmod 755 "$dir"

cat >spawn.c <<'C'
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char *words[] = {"true", 0};
	pid_t pid;
	if (argc > 2) {
		posix_spawn_file_actions_t actions;
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_addchdir_np(&actions, argv[2]);
		puts(strerror(posix_spawn(&pid, "/bin/true", &actions, 0, words, 0)));
		return 0;
	}
	if (argc > 1) {
		if (!(pid = vfork())) {
			execv("/bin/true", words);
			_exit(127);
		}
	} else {
		posix_spawn(&pid, "/bin/true", 0, 0, words, 0);
	}
	return waitpid(pid, 0, 0) != pid;
}
C
gcc -o spawn spawn.c
cat >own.c <<'C'
#include <forkless.h>
#include <stdio.h>
#include <sys/resource.h>
int main(int argc, char **argv)
{
	int status = 1;
	forkless_command *command = forkless_command_new("true");
	if (argc > 1)
		forkless_command_current_dir(command, argv[1]);
	forkless_command_uid(command, 65534);
	forkless_command_umask(command, 027);
	forkless_command_rlimit(command, RLIMIT_CORE, 0, 0);
	if (forkless_command_status(command, &status) < 0)
		puts(forkless_error_message(forkless_command_error(command)));
	forkless_command_free(command);
	return status != 0;
}
C
gcc -o own own.c -I"$top/include" -L"$built" -lforkless -Wl,-rpath,"$built"
cat >std.rs <<'RUST'
use std::os::unix::process::CommandExt;
fn main() {
    let mut command = std::process::Command::new("/bin/true");
    match std::env::args().nth(1).as_deref() {
        Some("uid") => drop(command.uid(65534)),
        // SAFETY: the closure does nothing.
        Some("pre_exec") => drop(unsafe { command.pre_exec(|| Ok(())) }),
        Some(_) => drop(command.current_dir("/nowhere")),
        None => {}
    }
    match command.status() {
        Ok(status) => assert!(status.success()),
        Err(error) => println!("{error}"),
    }
}
RUST
if command -v rustc >/dev/null; then rustc -o std std.rs 2>/dev/null || true; fi

failed=0
# The first process that COMMAND makes: does the call share memory, and the descriptor table?
row() { # WANTED NAME COMMAND...
	local wanted=$1 name=$2 call memory=copied table=copied
	shift 2
	if ! command -v "$1" >/dev/null; then
		echo "skipped: $name: no $1 here"
		return
	fi
	strace -f -qq -e trace=clone,clone3,fork,vfork -e signal=none -o calls "$@" </dev/null >said 2>&1 || {
		echo "FAILED: $name: $* ended otherwise than by exit 0: $(head -n1 said)"
		failed=1
		return
	}
	# Calls that failed were trials of what the kernel has.
	call=$(grep -v -e CLONE_THREAD -e '= -1' calls | grep -m1 -E 'clone3?\(|v?fork\(' || true)
	[[ $call != *CLONE_VM* && $call != *vfork\(* ]] || memory=shared
	[[ $call != *CLONE_FILES* ]] || table=shared
	printf '%-44s memory %-7s descriptor table %s\n' "$name" $memory $table
	[ "$memory/$table" = "$wanted" ] || { echo "FAILED: $name: README.md says $wanted: $call"; failed=1; }
}

row shared/copied "glibc $(getconf GNU_LIBC_VERSION | cut -d' ' -f2): posix_spawn" ./spawn
row shared/copied "vfork by hand" ./spawn vfork
row shared/copied "Rust std: nothing set" ./std
row copied/copied "Rust std: uid" ./std uid
row copied/copied "Rust std: pre_exec" ./std pre_exec
python='import subprocess, sys; subprocess.run(["/bin/true"], check=True, **eval(sys.argv[1]))'
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
# Its own file: a wrapper in PATH, as pyenv's, would be what strace sees.
file=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null || echo python3)
row shared/copied "Python $version subprocess: umask" "$file" -c "$python" "dict(umask=0o27)"
row copied/copied "Python $version subprocess: user" "$file" -c "$python" "dict(user=65534)"
row copied/copied "Python $version subprocess: preexec_fn" "$file" -c "$python" "dict(preexec_fn=int)"
node='require("child_process").spawnSync("/bin/true", [], JSON.parse(process.argv[1]))'
row copied/copied "Node.js, libuv $(node -p process.versions.uv 2>/dev/null || true): nothing set" node -e "$node" "{}"
row copied/copied "Perl: system" perl -e 'exit(system("/bin/true") != 0)'
row copied/copied "Ruby as root: system" ruby -e 'exit(system("/bin/true"))'
row shared/shared "forkless: user, umask and a limit" ./own

echo
echo "What a start says whose directory does not exist:"
says() { # WANTED NAME COMMAND...
	local wanted=$1 name=$2 said
	shift 2
	if ! command -v "$1" >/dev/null; then
		echo "skipped: $name: no $1 here"
		return
	fi
	said=$("$@" </dev/null 2>&1 || true)
	printf '%-28s %s\n' "$name" "$said"
	[ "$said" = "$wanted" ] || { echo "FAILED: $name: README.md goes by: $wanted"; failed=1; }
}
none="No such file or directory"
says "$none" "glibc: posix_spawn" ./spawn vfork /nowhere
says "$none (os error 2)" "Rust std" ./std nowhere
says "[Errno 2] $none: '/nowhere'" "Python $version" "$file" -c '
import subprocess
try:
    subprocess.run(["true"], cwd="/nowhere")
except OSError as error:
    print(error)'
says "spawnSync true ENOENT" "Node.js" node -p 'require("child_process").spawnSync("true", {cwd: "/nowhere"}).error.message'
says "chdir to /nowhere: $none" "forkless" ./own /nowhere
exit $failed
