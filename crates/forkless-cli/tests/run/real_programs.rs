//! Real programs with and without forkless, each in a shell script whose output and status must be
//! the same. Every fork is speculated, of processes with threads too. Each runs once with a report,
//! for which the library does more, and once without, which hides nothing. Some start servers, and
//! some need root. None touches anything outside its own directory. They run when asked for: `cargo
//! test -p forkless-cli --test run -- --ignored real_programs --nocapture`. A script whose program
//! is missing counts as skipped.

use std::path::Path;
use std::process::Command;

use crate::support::{FORKLESS, LIBRARY, allow_seconds, observe, plain, root};

struct Case {
    name: &'static str,
    /// Programs that the script needs.
    needs: &'static [&'static str],
    /// Whether only root can run it.
    root: bool,
    /// Runs in an empty directory. `$RUN` stands before the program under test, `$SOURCE` is
    /// `fixtures/run/fork_uses.c`.
    script: &'static str,
}

const fn case(name: &'static str, needs: &'static [&'static str], script: &'static str) -> Case {
    Case { name, needs, root: false, script }
}

const CASES: &[Case] = &[
    case("musl", &["musl-gcc"], "musl-gcc -o p $SOURCE -pthread && $RUN ./p"),
    case(
        "address sanitizer",
        &["gcc"],
        "gcc -g -fsanitize=address -o p $SOURCE -pthread && ASAN_OPTIONS=detect_leaks=0 $RUN ./p",
    ),
    case("thread sanitizer", &["gcc"], "gcc -g -fsanitize=thread -o p $SOURCE -pthread && $RUN ./p"),
    case("strace on top", &["gcc", "strace"], "gcc -o p $SOURCE -pthread && strace -f -o log $RUN ./p"),
    case("strace below", &["gcc", "strace"], "gcc -o p $SOURCE -pthread && $RUN strace -f -o log ./p"),
    case(
        "ctags' sandbox",
        &["ctags-universal"],
        r#"printf '{"command":"generate-tags","filename":"x.c","size":24}\nint a(int b){return b;}\n' > q
$RUN ctags-universal --_interactive=sandbox < q; echo $?"#,
    ),
    case(
        "stress-ng's sandbox",
        &["stress-ng"],
        "$RUN stress-ng --seccomp 1 --seccomp-ops 50 --timeout 20 --verify 2>&1 | grep -oE 'successful|which was not expected'",
    ),
    case("valgrind", &["gcc", "valgrind"], "gcc -g -o p $SOURCE -pthread && $RUN valgrind -q ./p"),
    case(
        "gdb",
        &["gcc", "gdb"],
        "gcc -g -o p $SOURCE -pthread && $RUN gdb -nx -batch -ex 'set startup-with-shell off' -ex 'break filter' \
         -ex run -ex 'delete 1' -ex continue ./p 2>/dev/null | sed 's/0x[0-9a-f]*/X/g; s/[0-9][0-9][0-9][0-9]*/N/g'",
    ),
    case(
        "go",
        &["go", "gcc"],
        r#"cat > p.go <<'END'
package main

import "C"
import ("fmt"; "os/exec"; "strings"; "sync")

func main() {
	var all sync.WaitGroup
	for i := 0; i < 20; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			c := exec.Command("tr", "a-z", "A-Z")
			c.Stdin = strings.NewReader("from go")
			if out, err := c.Output(); err != nil || string(out) != "FROM GO" { fmt.Println(string(out), err) }
		}()
	}
	all.Wait()
	fmt.Println(exec.Command("sh", "-c", "exit 4").Run())
}
END
HOME=$PWD CGO_ENABLED=1 go build -o p p.go && $RUN ./p"#,
    ),
    case(
        "java",
        &["javac", "java"],
        r#"cat > P.java <<'END'
public class P {
    public static void main(String[] a) throws Exception {
        for (int i = 0; i < 5; i++) {
            Process p = new ProcessBuilder("tr", "a-z", "A-Z").start();
            p.getOutputStream().write("from java".getBytes());
            p.getOutputStream().close();
            System.out.println(new String(p.getInputStream().readAllBytes()) + p.waitFor());
        }
        System.out.println(new ProcessBuilder("sh", "-c", "exit 4").start().waitFor());
    }
}
END
javac P.java && for how in POSIX_SPAWN VFORK FORK; do $RUN java -Xmx64m -Djdk.lang.Process.launchMechanism=$how P; done"#,
    ),
    case(
        "ruby",
        &["ruby"],
        r#"$RUN ruby -e 'puts `echo from a shell`; p system("exit 3"), $?.exitstatus
            p Process.wait2(fork { exit 4 })[1].exitstatus
            IO.popen(["tr", "a-z", "A-Z"], "r+") { |io| io.write "both ways"; io.close_write; puts io.read }
            r, w = IO.pipe
            fork { r.close; w.write "a worker"; exit!(0) }; w.close; puts r.read; Process.wait
            p 4.times.map { |i| Thread.new { `echo #{i}`.to_i } }.map(&:value)
            at_exit { puts "once" }; Process.wait(fork { exit!(0) })
            exec "sh", "-c", "exit 7"'; echo $?"#,
    ),
    case(
        "php",
        &["php"],
        r#"$RUN php -r 'echo shell_exec("echo from a shell"); system("exit 3", $s); echo "$s\n";
            $p = proc_open(["tr", "a-z", "A-Z"], [["pipe", "r"], ["pipe", "w"]], $io);
            fwrite($io[0], "both ways"); fclose($io[0]); echo stream_get_contents($io[1]), proc_close($p), "\n";'"#,
    ),
    case(
        "perl",
        &["perl"],
        r#"$RUN perl -e '$| = 1; print `echo from a shell`; system "exit 3"; print $? >> 8, "\n";
            open my $p, "-|", "echo", "a list" or die; print <$p>; close $p;
            my $pid = open(my $k, "-|") // die; if (!$pid) { print "a worker\n"; exit 2 } print <$k>; close $k; print $? >> 8, "\n";
            local $SIG{CHLD} = sub { 1 while wait > 0; print "CHLD\n" }; if (!fork) { exec "true" } select undef, undef, undef, 2;'"#,
    ),
    case(
        "python",
        &["python3"],
        r#"cat > p.py <<'END'
import multiprocessing, os, subprocess, sys
def work(i): return i * i
if __name__ == "__main__":
    print(subprocess.run(["tr", "a-z", "A-Z"], input=b"in", stdout=subprocess.PIPE, preexec_fn=os.setsid).stdout)
    print(subprocess.run(["sh", "-c", "umask; ulimit -n"], stdout=subprocess.PIPE, umask=0o77, preexec_fn=lambda: __import__("resource").setrlimit(7, (99, 99))).stdout)
    with multiprocessing.get_context("fork").Pool(3) as pool: print(pool.map(work, range(20)))
    try: subprocess.run(["/nonexistent"], preexec_fn=lambda: None)
    except FileNotFoundError as e: print(e)
    pid, fd = os.forkpty()
    if not pid: os.execlp("tty", "tty")
    print(b"/dev/pts" in os.read(fd, 100), os.waitpid(pid, 0)[1])
    sys.stdout.flush()
    print(os.waitstatus_to_exitcode(os.system("exit 6")))
END
$RUN python3 p.py"#,
    ),
    case(
        "node",
        &["node"],
        r#"$RUN node -e 'const c = require("child_process");
            console.log(c.spawnSync("tr", ["a-z", "A-Z"], {input: "sync"}).stdout.toString(), c.spawnSync("/nonexistent").error.code);
            console.log(c.execSync("echo from a shell; exit 0").toString());
            const k = c.spawn("sh", ["-c", "cat; exit 5"]); k.stdout.on("data", d => console.log(String(d)));
            k.on("close", (s, g) => console.log(s, g)); k.stdin.end("piped");'"#,
    ),
    case(
        "bash",
        &["bash"],
        r#"cat > p.sh <<'END'
trap 'echo CHLD >&2' CHLD; set -o pipefail; shopt -s lastpipe
echo a | tr a b | cat; false | true; echo $?; (exit 3); echo $?
# Bash 5.2 loses the rest of a line where the trap runs while it reads what is in the parentheses.
cat <<< "$(echo nested $(echo twice))"; trap - CHLD
diff <(echo 1) <(echo 2); wait
trap 'echo CHLD >&2' CHLD; coproc tr a z; echo a >&${COPROC[1]}; exec {COPROC[1]}>&-; cat <&${COPROC[0]}; wait
sleep 5 & kill $!; wait $!; echo $?; for i in 1 2 3; do (echo $i; exec true); done; trap 'echo bye' EXIT; nonexistent; echo $?
END
$RUN bash p.sh 2>err; echo $?; grep -c CHLD err; grep -v CHLD err | sed 's/[0-9]* Term/Term/'"#,
    ),
    case(
        "bash on a terminal",
        &["bash", "python3"],
        r#"cat > t.py <<'END'
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])
text = b""
def until(word):
    global text
    while word not in text and select.select([fd], [], [], 20)[0]:
        try: text += os.read(fd, 1000)
        except OSError: break
    print(word in text); text = b""
until(b"ready>")
for line, word in [("set -m; echo $((1+1))x", b"2x"), ("sleep 60", None), ("\x1a", b"Stopped"), ("jobs | wc -l", b"1"), ("bg; kill %1; wait; echo en''ded", b"ended"),
                   ("sleep 60", None), ("\x03", b"ready>"), ("echo st$?", b"st130"), ("exit 9", None)]:
    os.write(fd, line.encode() + (b"" if line < " " else b"\n"))
    if word: until(word)
    else: time.sleep(0.5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
PS1='ready> ' $RUN python3 t.py env PS1='ready> ' bash --norc --noprofile -i"#,
    ),
    case(
        "make and git",
        &["make", "gcc", "git"],
        r#"export HOME=$PWD GIT_AUTHOR_DATE=@1 GIT_COMMITTER_DATE=@1; git config --global user.email a@b; git config --global user.name a; git config --global init.defaultBranch m
mkdir w && cd w; for i in 1 2 3 4; do echo "int f$i(void) { return $i; }" > f$i.c; done
printf 'all: f1.o f2.o f3.o f4.o\n\tar rcD l.a $^\n%%.o: %%.c\n\tcc -c $<\n' > Makefile
$RUN make -s -j2; echo $?; ar t l.a; $RUN git init -q; $RUN git add .; $RUN git commit -qm one; $RUN git gc -q; $RUN git clone -q . ../c; cd ../c; $RUN git log --format=%H; $RUN git fsck"#,
    ),
    case(
        "redis",
        &["redis-server", "redis-cli"],
        r#"$RUN redis-server --port 0 --unixsocket s --save '' --daemonize yes --logfile log --dir $PWD >/dev/null
cli() { redis-cli -s s "$@"; }; n=0; while ! cli ping >/dev/null 2>&1 && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
cli debug populate 100000; cli bgsave; n=0; while [ ! -e dump.rdb ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
sleep 0.5; cli info persistence | grep -a last_bgsave_status; cli debug reload; cli dbsize; cli shutdown nosave; ls"#,
    ),
    case(
        "nginx",
        &["nginx", "curl"],
        r#"mkdir logs www; echo served > www/index.html
cat > c <<END
daemon on; worker_processes 2; pid $PWD/pid; error_log $PWD/logs/error notice; user $(id -un) $(id -gn);
events {} http { access_log off; client_body_temp_path $PWD/t; proxy_temp_path $PWD/t; fastcgi_temp_path $PWD/t; uwsgi_temp_path $PWD/t; scgi_temp_path $PWD/t;
  server { listen unix:$PWD/s; root $PWD/www; } }
END
get() { curl -s --unix-socket s http://x/; }; workers() { pgrep -c -P $(cat pid); }
$RUN $(command -v nginx) -p $PWD -c $PWD/c; echo $?; sleep 0.5; get; workers; kill -HUP $(cat pid); sleep 1; get; workers
kill -USR2 $(cat pid); sleep 1; get; kill -QUIT $(cat pid.oldbin); sleep 1; get; kill -QUIT $(cat pid); sleep 1; ls; grep -c 'exited on signal' logs/error; true"#,
    ),
    case(
        "apache with mod_cgi and mod_cgid",
        &["apache2", "curl"],
        r#"mkdir www; cat > www/env <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\n\n%s %s %s\n' "$REQUEST_METHOD" "$QUERY_STRING" "$(head -c 20)"; ls /proc/self/fd | tr '\n' ' '; grep -E 'SigBlk|SigIgn' /proc/self/status
END
printf '#!/bin/sh\nexit 3\n' > www/fails; chmod -R 755 www; chmod 755 .; M=/usr/lib/apache2/modules
for how in cgi cgid; do cat > $how.conf <<END
ServerRoot $PWD
DefaultRuntimeDir $PWD
PidFile $PWD/$how.pid
ErrorLog $PWD/$how.log
ServerName localhost
Listen 127.0.0.1:$((20000 + $$ % 20000))
LoadModule mpm_prefork_module $M/mod_mpm_prefork.so
LoadModule authz_core_module $M/mod_authz_core.so
LoadModule ${how}_module $M/mod_$how.so
StartServers 2
DocumentRoot $PWD/www
<Directory $PWD/www>
Options +ExecCGI
SetHandler cgi-script
</Directory>
END
[ $how = cgi ] || echo "ScriptSock $PWD/$how.sock" >> $how.conf
[ $(id -u) = 0 ] && printf 'User www-data\nGroup www-data\n' >> $how.conf
# At its end Apache signals its whole process group.
setsid $RUN $(command -v apache2) -DFOREGROUND -f $PWD/$how.conf & server=$!; url=http://127.0.0.1:$((20000 + $$ % 20000))
n=0; while ! curl -s $url/env >/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
for i in 1 2 3 4 5; do curl -s "$url/env?$i"; curl -s -d "posted $i" $url/env; curl -s -o /dev/null -w '%{http_code}\n' $url/fails; done
kill -USR1 $(cat $how.pid); sleep 1; curl -s "$url/env?again"; kill -TERM $server; wait $server; echo $?; grep -c 'exit signal' $how.log; ls *.pid *.sock 2>/dev/null; done; true"#,
    ),
    Case {
        name: "postgres and its archive_command",
        needs: &["postgres", "initdb", "psql", "runuser"],
        root: true,
        script: r#"chown postgres .; mkdir archive; chown postgres archive; me="runuser -u postgres --"; $me test -x ${RUN%% *} || { echo unreachable; exit; }
$me initdb -D data -A trust >/dev/null 2>&1
cat >> data/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '$PWD'
archive_mode = on
archive_command = 'test ! -f $PWD/archive/%f && cp %p $PWD/archive/%f'
fsync = off
END
$me $RUN postgres -D data >log 2>&1 & server=$!
sql() { psql -h $PWD -U postgres -d postgres -Atqc "$1"; }; n=0; while ! sql 'select 1' >/dev/null 2>&1 && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
sql 'create table t as select generate_series(1, 100000) i'; sql 'create index on t (i)'; sql 'select pg_switch_wal()' | wc -l
sql "copy (select 42) to program 'cat > $PWD/archive/copied'"; cat archive/copied; sql 'set max_parallel_workers_per_gather = 4; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; select sum(i) from t'
n=0; while [ $(ls archive | wc -l) -lt 2 ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; ls archive; sql 'select failed_count from pg_stat_archiver'
kill -INT $(head -1 data/postmaster.pid); wait $server; echo $?; grep -c PANIC log; true"#,
    },
    Case {
        name: "cron",
        needs: &["cron", "unshare"],
        root: true,
        script: r#"mkdir d; cat > run.sh <<'END'
mount -t tmpfs none /run; mount -t tmpfs none /etc/cron.d; mount -t tmpfs none /var/spool/cron
echo "@reboot root (id -u; umask; tty; exit 3) > $DIR/out 2>&1; echo done > $DIR/done" > /etc/cron.d/job
$RUN cron -f & n=0; while [ ! -e $DIR/done ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; sleep 0.3; kill $!; wait $!; echo $?
END
DIR=$PWD/d unshare --mount --propagation=private sh run.sh; cat d/out d/done"#,
    },
    Case {
        name: "sshd",
        needs: &["sshd", "ssh", "ssh-keygen", "unshare"],
        root: true,
        script: r#"ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f key
printf 'HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPrintMotd no\nPrintLastLog no\n' $PWD/host $PWD/key.pub > c
cat > run.sh <<'END'
mount -t tmpfs none /run; mkdir /run/sshd; sshd=$(command -v sshd)
# One connection over a socket of inetd's kind: no port is needed.
remote() { ssh -q -F none -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o "ProxyCommand $RUN $sshd -i -f c" root@x "$@"; }
remote 'echo remote; exit 3'; echo $?; echo input | remote 'tr a-z A-Z'; remote -tt tty 2>/dev/null | cut -c1-8; remote 'sh -c "kill -9 \$\$"'; echo $?
END
unshare --mount --propagation=private sh run.sh"#,
    },
];

fn is_here(program: &str) -> bool {
    Command::new("sh").args(["-c", "command -v \"$0\"", program]).output().is_ok_and(|o| o.status.success())
}

#[test]
#[ignore = "starts some twenty programs, servers among them: minutes"]
fn real_programs_do_the_same() {
    allow_seconds(600);
    let only = std::env::var("FORKLESS_REAL").unwrap_or_default();
    let (mut same, mut skipped, mut wrong) = (0, 0, Vec::new());
    for case in CASES.iter().filter(|c| c.name.contains(&only)) {
        let missing = case.needs.iter().find(|program| !is_here(program));
        let why = match missing {
            Some(program) => Some(format!("{program} is not installed")),
            None if case.root && !rustix::process::geteuid().is_root() => Some("needs root".to_owned()),
            None => None,
        };
        if let Some(why) = why {
            println!("skipped: {}: {why}", case.name);
            skipped += 1;
            continue;
        }
        let run = |more| {
            let run = format!("{FORKLESS} run --quiet --fork-minimum=0 --fork-always {more} --");
            observed(case, &run)
        };
        let without = observed(case, "");
        if without.0 != Some(0) {
            wrong.push(format!("{}: without forkless, too: {without:#?}", case.name));
            continue;
        }
        let different = ["", "--report=/dev/null"].into_iter().find_map(|more| {
            let with = run(more);
            (with != without).then(|| format!("{} {more}:\n{without:#?}\n{with:#?}", case.name))
        });
        match different {
            Some(different) => wrong.push(different),
            None => {
                println!("{}: the same", case.name);
                same += 1;
            }
        }
    }
    println!("{same} the same, {skipped} skipped, {} different", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a case in a directory of its own, with `run` before its program.
fn observed(case: &Case, run: &str) -> (Option<i32>, String, String) {
    // The path is short, since socket names are, and open to servers that drop their rights.
    let folder = std::env::temp_dir().join(format!("forkless-real.{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new directory");
    let path = |p: &Path| p.to_str().expect("UTF-8").to_owned();
    let mut command = plain("sh".as_ref(), &["-c", case.script]);
    command.current_dir(&folder).env("RUN", run).env("FORKLESS_LIBRARY", &*LIBRARY);
    command.env("SOURCE", path(&root().join("fixtures/run/fork_uses.c"))).env("LC_ALL", "C");
    let seen = observe(&mut command);
    std::fs::remove_dir_all(&folder).expect("the case's own directory");
    seen
}
