# GNU make's own tests (tests/scripts), of the release of the installed make. make itself spawns.
# The forks are those of the tests' driver and of the shells of recipes and of $(shell). The driver
# is in Perl, redirects its own descriptors and waits under an alarm.
# shellcheck shell=bash

prepare() {
	fetch_source make-dfsg || return 1
	# The results of configure, as far as tests ask for them.
	sed -e "s/'@CC@'/'cc'/; s/'@AR@'/'ar'/; s/'@[A-Z_]*@'/''/" "$source/tests/config-flags.pm.in" >"$source/tests/config-flags.pm"
}

cases() { (cd "$source/tests/scripts" && find . -mindepth 2 -type f -not -path './vms/*' -printf '%P\n' | sort); }

# The tests write beside themselves. The driver clears the environment except for some names.
one() {
	cp -r "$source/tests" t && cd t && sed -i "s/'LD_LIBRARY_PATH',/& 'LD_PRELOAD', 'FORKLESS_RUN',/" test_driver.pl || return
	timeout -k 5 120 "${RUN[@]}" perl run_make_tests.pl -srcdir "$source" -make /usr/bin/make "$1"
	# A test that fails leaves these files.
	cat work/*/*.diff* 2>/dev/null
}


# The times in the headings of these files.
said() { sed -E 's,^(\*\*\*|---) (work/[^[:space:]]+).*,\1 \2,'; }
