#!/bin/bash
# How many forks of real programs commit, and why the others do not: a row a program, as a table of
# Markdown. A command of its own, not for every push: it needs the programs, and takes minutes.
#
#   tests/commits/run.sh [--forkless COMMAND] [--mode MODE] [WORD...]
#
# --forkless names a built command, with its library beside it; otherwise target/release/forkless.
# --mode is the option --fork of `run` (exact, its default).
# With WORDs only the programs run whose rows begin with one of them.
#
# Every fork speculates, however small the process is, and a call site is never left alone for its
# history (--fork-always): the table shows children, not what `run` learns of them. The time limit
# is a minute, so that a busy machine changes nothing.
#
# A row is `row NAME "PROGRAM" VERSION-COMMAND`, and the script on standard input, in which $RUN
# stands before the program. Rows of programs that are not here say so.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
forkless=$top/target/release/forkless mode=exact words=()
while [ $# -gt 0 ]; do
	case $1 in
	--forkless) forkless=$(realpath -- "${2:?--forkless needs a command}") && shift ;;
	--mode) mode=${2:?--mode needs a mode} && shift ;;
	-*) echo "commits: no option $1" >&2 && exit 2 ;;
	*) words+=("$1") ;;
	esac
	shift
done
[ -x "$forkless" ] || { echo "commits: $forkless is not there: ./x build makes it" >&2; exit 3; }
work=$(mktemp -d) || exit 3
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
skipped=()

row() { # NAME "PROGRAM..." VERSION-COMMAND < SCRIPT
	local name=$1 program script word wanted=''
	script=$(cat)
	for word in "${words[@]}"; do [[ $name == "$word"* ]] && wanted=1; done
	[ ${#words[@]} = 0 ] || [ -n "$wanted" ] || return 0
	for program in $2; do
		command -v "$program" >/dev/null || { skipped+=("$name ($program)"); return 0; }
	done
	rm -rf "$work/here" "$work/report" && mkdir "$work/here"
	export RUN="$forkless run --quiet --fork=$mode --fork-minimum=0 --fork-always --fork-limit=60000 --report=$work/report --"
	(cd "$work/here" && timeout -k 5 120 bash -c "$script") </dev/null >"$work/output" 2>&1 ||
		echo "commits: $name ended with $?: $(head -c 200 "$work/output")" >&2
	# The report comes a moment after the program's end.
	local i
	for i in $(seq 100); do grep -q '^call sites' "$work/report" 2>/dev/null && break; sleep 0.1; done
	awk -v name="$name" -v version="$(bash -c "$3" 2>&1 | head -1 | grep -oE '[0-9]+[0-9.a-z+-]*' | head -1)" '
		/^ +[0-9]+  forks seen$/ { forks = $1 }
		/^ +[0-9]+  speculated$/ { tried = $1 }
		/^ +[0-9]+  committed / { committed = $1 }
		sites && /^ {18}/ { n = $1; sub(/^ +[0-9]+ +/, ""); reasons[$0] += n }
		/^call sites/ { sites = 1 }
		END {
			while (1) {
				most = ""
				for (r in reasons) if (most == "" || reasons[r] > reasons[most]) most = r
				if (most == "") break
				all = all (all == "" ? "" : "; ") most " (" reasons[most] ")"
				delete reasons[most]
			}
			gsub(/\|/, "\\|", name)
			share = forks ? sprintf("%.0f %%", 100 * committed / forks) : "-"
			printf "| %s | %s | %d | %d | %s | %s |\n", name, version, forks, committed, share, all
		}' "$work/report"
}

echo "| program | version | forks | commit | share | reasons of the rest |"
echo "|---|---|---|---|---|---|"

r="ruby --version"
row "Ruby: \`system\`" ruby "$r" <<<'$RUN ruby -e "20.times { system %q(true) }"'
row "Ruby: \`spawn\`" ruby "$r" <<<'$RUN ruby -e "20.times { Process.wait spawn(%q(true), out: %q(/dev/null)) }"'
row "Ruby: backticks" ruby "$r" <<<'$RUN ruby -e "20.times { %x(echo x) }"'
row "Ruby: \`fork { exec }\`" ruby "$r" <<<'$RUN ruby -e "20.times { Process.wait fork { exec %q(true) } }"'
row "Ruby: \`IO.popen\`" ruby "$r" <<<'$RUN ruby -e "20.times { IO.popen([%q(tr), %q(a), %q(b)], %q(r+)) { |io| io.write %q(a); io.close_write; io.read } }"'
row "Ruby: \`Open3.capture3\`" ruby "$r" <<<'$RUN ruby -ropen3 -e "20.times { Open3.capture3(%q(cat), stdin_data: %q(a)) }"'
row "Ruby: with a busy thread" ruby "$r" <<<'$RUN ruby -e "Thread.new { loop { 1 + 1 } }; 10.times { system %q(true); %x(echo x) }"'
row "Ruby: \`PTY.spawn\`" ruby "$r" <<<'$RUN ruby -rpty -e "10.times { r, w, pid = PTY.spawn(%q(tty)); r.gets; Process.wait pid }"'
p="php --version"
row "PHP: \`exec\`" php "$p" <<<'$RUN php -r "for (\$i = 0; \$i < 20; \$i++) exec(\"true\");"'
row "PHP: \`shell_exec\`" php "$p" <<<'$RUN php -r "for (\$i = 0; \$i < 20; \$i++) shell_exec(\"echo x\");"'
row "PHP: \`proc_open\`" php "$p" <<<'$RUN php -r "for (\$i = 0; \$i < 20; \$i++) { \$p = proc_open([\"cat\"], [[\"pipe\", \"r\"], [\"pipe\", \"w\"]], \$io); fclose(\$io[0]); stream_get_contents(\$io[1]); proc_close(\$p); }"'
row "PHP: \`pcntl_fork\` and \`pcntl_exec\`" php "$p" <<<'$RUN php -r "for (\$i = 0; \$i < 20; \$i++) { \$p = pcntl_fork(); if (!\$p) pcntl_exec(\"/bin/true\"); pcntl_waitpid(\$p, \$s); }"'
row "Java: \`FORK\`" "java javac" "java --version" <<'END'
cat >P.java <<'J'
public class P {
    public static void main(String[] a) throws Exception {
        for (int i = 0; i < 20; i++) {
            Process p = new ProcessBuilder("cat").start();
            p.getOutputStream().close();
            p.getInputStream().readAllBytes();
            p.waitFor();
        }
    }
}
J
javac P.java && $RUN java -Xmx64m -Djdk.lang.Process.launchMechanism=FORK P
END
row "Erlang: \`os:cmd\`" erl "erl -noshell -eval 'io:format(erlang:system_info(otp_release)), halt().'" \
	<<<"\$RUN erl -noshell -eval '[os:cmd(\"true\") || _ <- lists:seq(1, 20)], halt().'"
row "Erlang: \`open_port\`" erl "erl -noshell -eval 'io:format(erlang:system_info(otp_release)), halt().'" \
	<<<"\$RUN erl -noshell -eval '[begin P = open_port({spawn_executable, \"/bin/true\"}, [exit_status]), receive {P, {exit_status, _}} -> ok end end || _ <- lists:seq(1, 20)], halt().'"
row "R: \`system\`" R "R --version" <<<"\$RUN R --vanilla -s -e 'for (i in 1:20) system(\"true\")'"
row "R: \`system(intern)\`" R "R --version" <<<"\$RUN R --vanilla -s -e 'for (i in 1:20) system(\"echo x\", intern = TRUE)'"
row "Lua: \`os.execute\`, \`io.popen\`" lua5.4 "lua5.4 -v" \
	<<<"\$RUN lua5.4 -e 'for i = 1, 10 do os.execute(\"true\"); io.popen(\"echo x\"):close() end'"
t="echo 'puts [info patchlevel]' | tclsh"
row "Tcl: \`exec\`" tclsh "$t" <<<"echo 'for {set i 0} {\$i < 20} {incr i} { exec true }' >t; \$RUN tclsh t"
row "Tcl: \`open |\`" tclsh "$t" <<<"echo 'for {set i 0} {\$i < 20} {incr i} { set f [open |[list echo x]]; read \$f; close \$f }' >t; \$RUN tclsh t"
row "Emacs: \`call-process\`" emacs "emacs --version" <<<"\$RUN emacs -Q --batch --eval '(dotimes (_ 20) (call-process \"true\"))'"
row "Emacs: \`start-process\`" emacs "emacs --version" <<<"\$RUN emacs -Q --batch --eval '(dotimes (_ 20) (let ((p (start-process \"p\" nil \"true\"))) (while (process-live-p p) (accept-process-output p 1))))'"
y="/usr/bin/python3 --version"
python() { # NAME LOOP-BODY [PROLOGUE]
	local code="import os, subprocess, signal, pty, sys
${3:-}
for i in range(20):
    $2"
	row "Python: $1" /usr/bin/python3 "$y" <<<"cat >p.py <<'P'
$code
P
\$RUN /usr/bin/python3 p.py"
}
python "\`subprocess\`, \`preexec_fn\`" 'subprocess.run(["true"], preexec_fn=os.setsid)'
python "\`preexec_fn\` with \`PR_SET_PDEATHSIG\`" 'subprocess.run(["true"], preexec_fn=lambda: libc.prctl(1, 9))' 'import ctypes; libc = ctypes.CDLL(None)'
python "\`preexec_fn\` with \`signal.signal\`" 'subprocess.run(["true"], preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))'
python "\`subprocess\`, \`user=\`" 'subprocess.run(["true"], user=65534, group=65534, extra_groups=[])'
python "\`preexec_fn\` with \`os.initgroups\`" 'subprocess.run(["true"], preexec_fn=lambda: os.initgroups("nobody", 65534))'
python "\`subprocess\`, pipes and \`cwd\`" 'subprocess.run(["cat"], input=b"x", capture_output=True, cwd="/", preexec_fn=lambda: None)'
python "\`os.fork\` and \`os.execv\`" 'pid = os.fork()
    if pid == 0: os.execv("/bin/true", ["true"])
    os.waitpid(pid, 0)'
python "\`pty.fork\`" 'pid, fd = pty.fork()
    if pid == 0: os.execv("/bin/true", ["true"])
    os.waitpid(pid, 0); os.close(fd)'
python "\`os.system\`, \`os.popen\`" 'os.system("true"); os.popen("echo x").read()'
python "\`multiprocessing\` (workers)" 'q = c.Process(target=int); q.start(); q.join()' 'import multiprocessing; c = multiprocessing.get_context("fork")'
row "Perl: \`system\`" perl "perl -e 'print \$^V'" <<<"\$RUN perl -e 'system \"true\", 1 for 1..20'"
row "Perl: backticks" perl "perl -e 'print \$^V'" <<<"\$RUN perl -e '\`echo x\` for 1..20'"
row "Perl: \`open |\`" perl "perl -e 'print \$^V'" <<<"\$RUN perl -e 'for (1..20) { open my \$p, \"-|\", \"echo\", \"x\"; <\$p>; close \$p }'"
row "Perl: \`fork\`, \`exec\`" perl "perl -e 'print \$^V'" <<<"\$RUN perl -e 'for (1..20) { my \$p = fork; exec \"true\" unless \$p; waitpid \$p, 0 }'"
row "Node.js: \`spawnSync\`" node "node --version" <<<"\$RUN node -e 'for (let i = 0; i < 20; i++) require(\"child_process\").spawnSync(\"true\")'"
row "Node.js: \`spawn\`" node "node --version" <<<"\$RUN node -e 'let n = 0; const f = () => { if (n++ < 20) require(\"child_process\").spawn(\"true\").on(\"close\", f) }; f()'"
for shell in bash dash zsh mksh ksh93; do
	row "$shell: commands" $shell "$shell --version 2>/dev/null || dpkg-query -W -f '\${Version}' $shell" \
		<<<"echo 'for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done; :' >s; \$RUN $shell s"
	row "$shell: pipes, substitution" $shell "$shell --version 2>/dev/null || dpkg-query -W -f '\${Version}' $shell" \
		<<<"echo 'for i in 1 2 3 4 5; do /bin/echo a | /usr/bin/tr a b >/dev/null; x=\$(/bin/echo x); /bin/true <s >/dev/null; done; :' >s; \$RUN $shell s"
	row "$shell: background, subshell" $shell "$shell --version 2>/dev/null || dpkg-query -W -f '\${Version}' $shell" \
		<<<"echo 'for i in 1 2 3 4 5; do /bin/true & wait; (exec /bin/true); (cd /; /bin/true); done; :' >s; \$RUN $shell s"
done
row "make" make "make --version" <<<"printf 'all: 1 2 3 4 5 6 7 8 9\n%%: ;@true; true\n' >Makefile; \$RUN make -s"
row "xargs" xargs "xargs --version" <<<"seq 20 | \$RUN xargs -n 1 true"
row "find -exec" find "find --version" <<<"touch a b c d e f g h; \$RUN find . -type f -exec true {} \\;"
row "gawk: \`system\`, pipes" gawk "gawk --version" <<<"\$RUN gawk 'BEGIN { for (i = 0; i < 10; i++) { system(\"true\"); \"echo x\" | getline; close(\"echo x\") } }'"
row "git: commit, fetch, gc" git "git --version" <<'END'
export HOME=$PWD; git config --global user.email a@b; git config --global user.name a
mkdir w && cd w && git init -q && echo a >a && git add a && $RUN sh -c 'git commit -qm one && git gc -q && git clone -q . ../c && cd ../c && git fetch -q && git log --oneline | cat'
END
row "expect: \`spawn\`" expect "expect -v" <<<"echo 'for {set i 0} {\$i < 10} {incr i} { spawn -noecho echo x; expect eof; wait }' >e; \$RUN expect e"
row "socat: \`EXEC\`" socat "socat -V | grep version" <<<"for i in 1 2 3 4 5; do echo x | \$RUN socat - EXEC:cat; done"
row "socat: \`EXEC\` on a terminal" socat "socat -V | grep version" <<<"echo x | \$RUN socat - EXEC:tty,pty,setsid,ctty"
row "Apache: mod_cgi" "apache2 curl" "apache2 -v" <<'END'
mkdir www; printf '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\nx\\n"\n' >www/c; chmod -R 755 . www
M=/usr/lib/apache2/modules port=$((20000 + $$ % 20000))
cat >conf <<C
ServerRoot $PWD
DefaultRuntimeDir $PWD
PidFile $PWD/pid
ErrorLog $PWD/log
ServerName localhost
Listen 127.0.0.1:$port
LoadModule mpm_prefork_module $M/mod_mpm_prefork.so
LoadModule authz_core_module $M/mod_authz_core.so
LoadModule cgi_module $M/mod_cgi.so
StartServers 2
MinSpareServers 1
MaxSpareServers 2
DocumentRoot $PWD/www
<Directory $PWD/www>
Options +ExecCGI
SetHandler cgi-script
</Directory>
C
[ "$(id -u)" = 0 ] && printf 'User www-data\nGroup www-data\n' >>conf
setsid $RUN $(command -v apache2) -DFOREGROUND -f $PWD/conf & server=$!
n=0; while ! curl -s http://127.0.0.1:$port/c >/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
for i in $(seq 20); do curl -s http://127.0.0.1:$port/c; done; kill -TERM $server; wait $server; true
END
[ ${#skipped[@]} = 0 ] || printf 'SKIPPED: not installed: %s\n' "${skipped[@]}" >&2
