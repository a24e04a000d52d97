# GNU make's own tests (tests/scripts), of the release of the make that is installed. make itself spawns: what forks are the tests' driver, in
# Perl, which redirects its own descriptors and waits under an alarm, and the shells of recipes and of $(shell).
# shellcheck shell=bash

prepare() {
	fetch_source make-dfsg || return 1
	# What configure would have found, as far as tests ask.
	sed -e "s/'@CC@'/'cc'/; s/'@AR@'/'ar'/; s/'@[A-Z_]*@'/''/" "$source/tests/config-flags.pm.in" >"$source/tests/config-flags.pm"
}

cases() { (cd "$source/tests/scripts" && find . -mindepth 2 -type f -not -path './vms/*' -printf '%P\n' | sort); }

# They write beside themselves, and the driver clears the environment but for some names.
one() {
	cp -r "$source/tests" t && cd t && sed -i "s/'LD_LIBRARY_PATH',/& 'LD_PRELOAD', 'FORKLESS_RUN',/" test_driver.pl || return
	timeout -k 5 120 "${RUN[@]}" perl run_make_tests.pl -srcdir "$source" -make /usr/bin/make "$1"
	# A test that fails leaves them.
	cat work/*/*.diff* 2>/dev/null
}


# The times in the headings of those.
said() { sed -E 's,^(\*\*\*|---) (work/[^[:space:]]+).*,\1 \2,'; }
