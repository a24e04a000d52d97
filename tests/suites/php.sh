# PHP's own tests of proc_open, exec and the like, and of the pcntl and posix extensions.
# shellcheck shell=bash

prepare() {
	command -v php >/dev/null || { echo "suites: php is not installed"; return 1; }
	fetch_source "$(php -r 'echo "php", PHP_MAJOR_VERSION, ".", PHP_MINOR_VERSION;')"
}

# pcntl/tests/002.phpt sometimes waits for ever for a signal that has already come, without forkless
# too.
cases() {
	(cd "$source" && ls -- ext/standard/tests/general_functions/proc_*.phpt ext/standard/tests/general_functions/*bug*.phpt ext/standard/tests/misc/*.phpt \
		ext/{pcntl,posix,sysvmsg,sysvsem,sysvshm,shmop}/tests/*.phpt sapi/cli/tests/*.phpt
		grep -lrE '\b(exec|shell_exec|proc_open|popen|passthru|system|pcntl_fork|mail)\(' --include=*.phpt ext/standard/tests ext/sockets/tests ext/opcache/tests Zend/tests tests
	) 2>/dev/null | awk '!/pcntl.tests.002/ && !seen[$0]++'
}

# run-tests.php writes beside the test.
one() {
	mkdir -p "$(dirname "$1")" && cp -r "$source/$(dirname "$1")/." "$(dirname "$1")" && cp "$source/run-tests.php" . || return
	env TEST_PHP_EXECUTABLE="$(command -v php)" TMPDIR="$PWD" NO_INTERACTION=1 NO_COLOR=1 timeout -k 5 120 "${RUN[@]}" php -n run-tests.php -q --show-diff --no-progress "$1"
}

# The run's description of itself, its temporary directory, and times.
said() {
	sed -E -e '/^(PHP_|=+$|CWD|Extra dirs|VALGRIND|Zend|INI|PHP |TEST_|Running|TIME |Time taken|LOG |More )/d' -e 's/[0-9]+\.[0-9]+ seconds/N seconds/' \
		-e "s|$work|WORK|g" -e 's/0x[0-9a-f]{6,}/ADDRESS/g'
}
